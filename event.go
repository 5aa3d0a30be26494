package fnloop

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// An Event is something that happened in a run; see [Loop.Events]. Its types
// are [RequestStarted], [TextDelta], [ReasoningDelta], [CallAnnounced],
// [CallStarted], [CallOutput], [CallFinished], [ResponseFinished] and [Done]. More
// may come, so a switch over them should pass over what it does not know.
//
// As JSON an event is an object with a member type beside those of its fields.
type Event interface {
	// Type is the event's name in JSON, such as "text_delta".
	Type() string
}

// RequestStarted says that a request is about to be sent. The requests of a run
// are counted from one; a request that is sent again is still the same one.
type RequestStarted struct {
	Request int `json:"request"`
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

// CallAnnounced says that the model has begun to write a call. Nothing is run
// until the response is complete, and the response may still come to nothing.
type CallAnnounced struct {
	ID   string `json:"id"`
	Name string `json:"name"`
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

// CallFinished says that a call has its output.
type CallFinished struct {
	CallResult
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

// Done is the last event of a run, with or without an error beside it.
type Done struct {
	Answer *Answer `json:"answer"`
}

// Type returns "request_started".
func (RequestStarted) Type() string { return "request_started" }

// Type returns "text_delta".
func (TextDelta) Type() string { return "text_delta" }

// Type returns "reasoning_delta".
func (ReasoningDelta) Type() string { return "reasoning_delta" }

// Type returns "call_announced".
func (CallAnnounced) Type() string { return "call_announced" }

// Type returns "call_started".
func (CallStarted) Type() string { return "call_started" }

// Type returns "call_output".
func (CallOutput) Type() string { return "call_output" }

// Type returns "call_finished".
func (CallFinished) Type() string { return "call_finished" }

// Type returns "response_finished".
func (ResponseFinished) Type() string { return "response_finished" }

// Type returns "done".
func (Done) Type() string { return "done" }

// encodeEvent gives an event as a JSON object that begins with its type.
func encodeEvent(e Event) ([]byte, error) {
	fields, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if fields[0] != '{' {
		return nil, fmt.Errorf("fnloop: event %s: %T is no JSON object, but %.20s", e.Type(), e, fields)
	}
	out := append([]byte(`{"type":"`), e.Type()...)
	out = append(out, '"')
	if len(fields) > len("{}") {
		out = append(out, ',')
	}
	return append(out, fields[1:]...), nil
}

// Events is [Loop.Run], or [Loop.Continue] when from is not nil, told while it
// happens. With openai-go's own service as the Client the responses are
// streamed.
//
// The last pair has a [Done] event, and beside it the error that Run would have
// returned; no other pair has an error. Breaking out of the range cancels the
// run, and returns when its handlers have; what was not yet sent is then lost
// unless [Loop.Checkpoint] keeps it, so to stop a run and go on later end its
// context instead and read on to Done. Each range over the sequence is a run of
// its own.
//
// A run goes no faster than its reader: while the loop's body works, nothing is
// read from the API and the outputs of calls wait. Programs do not wait. What a
// program prints while the reader is busy is left out of the events, with a
// note in its place, and is in the result all the same.
func (l *Loop) Events(ctx context.Context, from *Answer, prompt string, parts ...Content) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if from == nil {
			from = &Answer{}
		}
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
		answer, err := l.run(ctx, from, prompt, parts, options{emit: emit})
		if reading {
			yield(Done{answer}, err)
		}
	}
}

// emit tells the reader of an event. It must be called where the run was
// called; what runs beside uses send.
func (r *run) emit(e Event) {
	if r.opts.emit != nil {
		r.opts.emit(e)
	}
}

// A sideEvent is an event from beside the loop's goroutine.
type sideEvent struct {
	Event
	read chan<- struct{} // closed when the reader is done with it; may be nil
}

// emitAside passes an event of a call to the goroutine that emits, and returns when
// the reader is done with it.
func (r *run) emitAside(e Event) {
	if r.events == nil {
		return
	}
	read := make(chan struct{})
	r.events <- sideEvent{e, read}
	<-read
}

// emitWhile runs f beside the caller, which emits meanwhile what f sends.
func (r *run) emitWhile(cancel func(), f func()) {
	if r.opts.emit == nil {
		f()
		return
	}
	r.events = make(chan sideEvent)
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
