package fnloop

import (
	"context"
	"iter"
	"time"
)

// An Event is something that happened in a run; see [Loop.Events]. Its types
// are, in the order in which a run has them, [RequestStarted], [Retry],
// [ReasoningDelta], [TextDelta], [CallAnnounced], [CallDelta], [HostedStarted],
// [HostedProgress], [HostedFinished], [FileAdded], [CitationAdded],
// [ResponseFinished], [ApprovalRequested], [CallStarted], [CallOutput],
// [CallEvent], [CallFinished] and [Done], and those that handlers [Emit]. More may
// come, so a switch over them should pass over what it does not know.
//
// As JSON an event is an object with a member type beside those of its fields;
// docs/events.md lists them.
type Event interface {
	// Type is the event's name in JSON, such as "text_delta".
	Type() string
}

// RequestStarted says that a request is about to be sent. The requests of a run
// are counted from one; a request that is sent again is still the same one.
type RequestStarted struct {
	Request int `json:"request"`
}

// Retry says that a request has failed and is sent again after a wait.
type Retry struct {
	Request int `json:"request"`
	// Attempt is the one that comes next, counted from one.
	Attempt int `json:"attempt"`
	// Wait is how long the run waits before it. In JSON it is wait_ms, in
	// milliseconds.
	Wait time.Duration `json:"-"`
	// StatusCode and Code are what the API said of the failure: the status of
	// HTTP, and a word such as "rate_limit_exceeded". Each is zero if it did not.
	StatusCode int    `json:"status_code,omitempty"`
	Code       string `json:"code,omitempty"`
	// Err is what failed. It is for the host: JSON does not have it.
	Err error `json:"-"`
}

// ReasoningDelta is a piece of the model's reasoning, in most cases of a summary
// of it.
type ReasoningDelta struct {
	Text string `json:"text"`
	// Item is the place of the reasoning among the items of its response, and
	// Part that of this piece's paragraph within it. The first piece of a
	// paragraph that follows another one begins with a blank line.
	Item int `json:"item"`
	Part int `json:"part"`
	// Raw says that this is the reasoning itself, which some models show, and
	// not a summary of it.
	Raw bool `json:"raw,omitempty"`
}

// TextDelta is a piece of a message as the model writes it.
type TextDelta struct {
	Text string `json:"text"`
	// Phase is "commentary" for talk about the work, "final_answer" for the
	// answer, and empty when the model does not say.
	Phase string `json:"phase,omitempty"`
	// Item is the place of the message among the items of its response: a new
	// one begins a new message.
	Item int `json:"item"`
	// Refusal says that the model refuses with these words.
	Refusal bool `json:"refusal,omitempty"`
}

// CallAnnounced says that the model has begun to write a call. Nothing is run
// until the response is complete, and the response may still come to nothing.
type CallAnnounced struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	// Custom says that the arguments are free text and not JSON.
	Custom bool `json:"custom,omitempty"`
}

// CallDelta is a piece of a call's arguments as the model writes them. The Texts
// of a call make up its arguments.
type CallDelta struct {
	ID   string `json:"id"` // of the call
	Text string `json:"text"`
	// Property is the property whose value the piece is of, if that is a string,
	// and Value what the piece adds to it: JSON's escape sequences are decoded,
	// so that a program can be shown while it is written. A custom tool's text is
	// a Value without a Property.
	Property string `json:"property,omitempty"`
	Value    string `json:"value,omitempty"`
}

// HostedStarted says that the API has begun to run a tool of its own.
type HostedStarted struct {
	HostedCall
}

// HostedProgress says how far a tool that the API runs has come.
type HostedProgress struct {
	ID   string `json:"id"` // of the HostedCall
	Kind string `json:"kind"`
	// Status is the API's word for what the tool does, such as "searching".
	Status string `json:"status,omitempty"`
	// Text is a piece of the program or of the arguments that the model writes
	// for the tool, or of what a program prints.
	Text string `json:"text,omitempty"`
	// Image is an unfinished image, in base64.
	Image string `json:"image,omitempty"`
}

// HostedFinished says that a tool that the API runs has ended, and with what.
type HostedFinished struct {
	HostedCall
}

// FileAdded is an image or a file that a hosted tool has made.
type FileAdded struct {
	File
}

// CitationAdded says where a piece of a message comes from. It comes when the
// message is complete, and its places are those in the message's text.
type CitationAdded struct {
	Citation
	Item int `json:"item"` // of the message, as in TextDelta
}

// ResponseFinished says that the response to a request has come to its end, and
// what it used.
type ResponseFinished struct {
	Request int   `json:"request"`
	Usage   Usage `json:"usage"`
	// ID is the response's. Model and ServiceTier are those that made it, where
	// the API says so.
	ID          string `json:"id,omitempty"`
	Model       string `json:"model,omitempty"`
	ServiceTier string `json:"service_tier,omitempty"`
}

// ApprovalRequested says that a call waits to be approved or rejected. The run
// goes on with the other calls of the response and then ends with [ErrApproval].
type ApprovalRequested struct {
	Call
}

// CallStarted says that the handler of a call is about to start.
type CallStarted struct {
	Call
}

// CallOutput is a piece of what a running program prints. Stream is "stdout"
// or "stderr". Pieces never split a rune.
type CallOutput struct {
	ID     string `json:"id"` // of the call
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// CallEvent is an event of a run that the handler of a call has started with its
// own context: of a Loop within a tool.
type CallEvent struct {
	ID    string `json:"id"` // of the call
	Event Event  `json:"event"`
}

// CallFinished says that a call has its output.
type CallFinished struct {
	CallResult
}

// Done is the last event of a run, with or without an error beside it.
type Done struct {
	Answer *Answer `json:"answer"`
	// Value is the T of [EventsAs], if the answer fits it.
	Value any `json:"value,omitempty"`
}

// Events does the same as [Loop.Run], or as [Loop.Continue] when from is not nil,
// and reports what happens. With openai-go's own service as the Client the
// responses are streamed.
//
// The last pair has a [Done] event, and beside it the error that Run would have
// returned. No other pair has an error. Breaking out of the range cancels the run
// and waits for its handlers; what was not yet sent is lost unless
// [Loop.Checkpoint] keeps it. To stop a run and go on later, end its context
// instead and read on to Done. Each range over the sequence is a run of its own.
//
// A run waits for its reader: while the body of the range works, nothing is read
// from the API and the outputs of calls wait. Programs do not wait. What a program
// prints while the reader is busy is replaced by a note in the events. The result
// has all of it.
func (l *Loop) Events(ctx context.Context, from *Answer, prompt string, parts ...Content) iter.Seq2[Event, error] {
	return l.events(ctx, func(ctx context.Context, emit func(Event)) (Done, error) {
		answer, err := l.run(ctx, from, prompt, parts, options{emit: emit})
		return Done{Answer: answer}, err
	})
}

// events yields what a run emits, and at the end what it returns.
func (l *Loop) events(ctx context.Context, run func(context.Context, func(Event)) (Done, error)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reading := true
		emit := func(e Event) {
			if reading && !yield(e, nil) {
				reading = false
				cancel()
			}
		}
		defer func() { reading = false }() // a panic of the reader passes through the run
		done, err := run(ctx, emit)
		if reading {
			yield(done, err)
		}
	}
}

// emit passes an event to the reader. Only the goroutine of the run may call it;
// those of calls use emitRelayed.
func (r *run) emit(e Event) {
	if r.opts.emit != nil {
		r.opts.emit(e)
	}
}

// A relayedEvent is an event from the goroutine of a call, which that of the run
// emits.
type relayedEvent struct {
	Event
	read chan<- struct{} // closed when the reader is done with it; may be nil
}

// emitRelayed has the goroutine of the run emit an event, and returns when the
// reader is done with it.
func (r *run) emitRelayed(e Event) {
	if r.events == nil {
		return
	}
	read := make(chan struct{})
	r.events <- relayedEvent{e, read}
	<-read
}

// emitWhile runs f in another goroutine, and until f returns emits what it relays.
func (r *run) emitWhile(cancel func(), f func()) {
	if r.opts.emit == nil {
		f()
		return
	}
	r.events = make(chan relayedEvent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	relay := func(emit func(Event)) {
		for {
			select {
			case s := <-r.events:
				func() {
					if s.read != nil {
						defer close(s.read)
					}
					emit(s.Event)
				}()
			case <-done:
				return
			}
		}
	}
	defer func() { // also when the reader panics
		cancel()
		relay(func(Event) {})
		r.events = nil
	}()
	relay(r.emit)
}
