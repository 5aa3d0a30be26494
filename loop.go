package fnloop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// A Responder is the part of openai-go's client that a Loop needs. Its
// *responses.ResponseService is one, and so is &client.Responses.
type Responder interface {
	New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error)
}

// A Loop drives a model through the Responses API until it answers.
//
// Set its fields before the first call and do not change them afterwards. It is
// then safe for concurrent use. What a run has done is in its [Answer]. In
// numbers and durations zero means the default and negative means none.
type Loop struct {
	// Client sends the requests. Required. [Loop.Events] streams if the Client
	// is a [Streamer]. A type that embeds openai-go's service to change New is
	// one too, so it has to change NewStreaming as well. Run waits for a silent
	// server until the context ends or the client's own timeout.
	Client Responder
	// Model is the model's name. Required unless BeforeRequest sets it.
	Model string
	// Instructions go with every request, since the API does not carry them
	// from one response to the next.
	Instructions string
	// Tools are those that the model may call. Their names are unique.
	Tools []Tool
	// MaxTurns is how many turns, rounds of tool calls, a run may have; the
	// model's answer to the last of them may still be text. A run that goes on
	// after an approval, without a new prompt, counts on. Zero means DefaultMaxTurns,
	// negative no limit.
	MaxTurns int
	// FinalAnswer asks the model for a final answer when MaxTurns is reached,
	// instead of ending the run with ErrMaxTurns: the request after the last
	// turn forbids further calls (tool_choice "none", the tools still listed).
	FinalAnswer bool
	// MaxCalls is how many calls of one response are run. The others get an
	// output that says that they were not run, and the run ends with
	// ErrMaxCalls. Zero means DefaultMaxCalls, negative no limit.
	MaxCalls int
	// MaxTokens, if positive, is how many tokens a run may use, as its Usage
	// counts them. It is checked before each request, so the last response may
	// exceed it. The run then ends with ErrMaxTokens. Each Continue is a run of
	// its own.
	MaxTokens int64
	// OtherTokens, if not nil, is asked before each request how many tokens other
	// runs have used that MaxTokens bounds too, such as those of the same user
	// today. What they use while the response is made is seen at the next request.
	// It is not called where MaxTokens is not set. Its error ends the run.
	OtherTokens func(context.Context) (int64, error)
	// MaxRepeats is how many turns in a row may repeat the one before, with the
	// same calls and the same outputs, before the run stops with ErrRepeating.
	// Zero or less means no limit.
	MaxRepeats int
	// Parallel is how many calls of one response run at once. Zero means
	// DefaultParallel, one means in order, negative all of them.
	Parallel int
	// MaxOutput is the size of the largest text sent for one call, in bytes.
	// Longer texts are cut in the middle. A JSON document stays valid JSON.
	// Zero means DefaultMaxOutput, negative no limit.
	MaxOutput int
	// MaxMedia is how many bytes the images and files of one call's output may
	// take in a request, in base64: an image of 3 MB takes 4 MB. What does not fit
	// is replaced by a line of text. Zero means DefaultMaxMedia, negative no limit.
	MaxMedia int
	// Grace is how long a handler, a hook or the Client may go on after the
	// context has ended. The run then no longer waits for it. Zero means
	// DefaultGrace, negative no time.
	Grace time.Duration
	// Attempts is how often a request is sent when the network fails or the API
	// asks to try again. Handlers are never repeated. Zero means
	// DefaultAttempts, one or negative no retries.
	Attempts int
	// MaxRetryWait is the longest wait before a retry. When the API asks for a
	// longer one the run stops at once. Zero means DefaultMaxRetryWait, negative
	// no limit.
	MaxRetryWait time.Duration
	// IdleTimeout is how long the stream of a response may be silent; it counts
	// for [Loop.Events], and with WebSocket for every response. Zero means
	// DefaultIdleTimeout, negative no limit.
	IdleTimeout time.Duration
	// WebSocket makes a run send its requests over one WebSocket, which saves
	// the set-up of each of them. It needs openai-go's own service as the
	// Client, whose options that edit a request's body then have no effect. A
	// connection that is lost or has reached the API's limits is replaced. If
	// none can be opened, the rest of the run goes over HTTP and a log record
	// says so. Each run has a connection of its own and closes it. What comes is
	// read even while the reader of the events is slow, up to 64 MiB.
	WebSocket bool
	// State says where the conversation is kept. Zero means Chained.
	State State
	// KeepItems keeps the conversation's items in the Answer of a chained Loop
	// too, if it has kept them from the start. When the API has forgotten the
	// response to continue from, the run then sends them once instead of ending
	// with that error.
	KeepItems bool
	// Checkpoint, if not nil, gets the state of the run before the handlers of a
	// round start and after each of them finishes. After a crash, Continue goes
	// on from the last one that was stored, and stops with ErrApproval again
	// where calls of that wait for a decision. Checkpoint may keep the Answer. It is
	// called by one goroutine at a time, with a context that ends Grace after the
	// caller's. Its error stops the run.
	Checkpoint func(context.Context, *Answer) error
	// BeforeRequest, if not nil, may edit each request before it is sent: set
	// the temperature, reasoning or metadata, add hosted tools, or input beside
	// the prompt. It is called once for each request and not for its retries. Its
	// error ends the run. A tool_choice that forces a call holds for the first
	// request of a run and is set to auto in those that follow.
	BeforeRequest func(context.Context, *responses.ResponseNewParams) error
	// Logger gets a debug record for each attempt to send a request and for each
	// call, and an error record for what the host should look into. Records have
	// the context of the run. Nil means none.
	Logger *slog.Logger
	// Observer, if not nil, watches the runs, for traces and metrics.
	Observer Observer
}

// Run asks the model and runs the tools it calls until it answers. The prompt is
// a text, with or without parts: images, files and further texts. Parts alone are
// a prompt too.
//
// The Answer is never nil: whatever the error, it says how far the run got and
// is good for [Loop.Continue].
func (l *Loop) Run(ctx context.Context, prompt string, parts ...Content) (*Answer, error) {
	return l.run(ctx, &Answer{}, prompt, parts, options{})
}

// Continue goes on with the conversation of from, whatever stopped it. Outputs
// that were not yet sent go with the prompt, and the model reads of each other
// call that it was not run. The prompt may be empty if there are such calls, or
// if from holds a prompt that got no answer.
//
// Prompts that got no answer are sent before the new one, in order, and between
// them what the user was shown of an answer that broke off. Without a new prompt
// the last request is made again, and its answer begins from the start.
// [Answer.DropPrompts] keeps these prompts from being sent.
//
// Continue does not change from, so that an Answer can be continued more than
// once.
func (l *Loop) Continue(ctx context.Context, from *Answer, prompt string, parts ...Content) (*Answer, error) {
	if from == nil {
		return newAnswer(StopInvalid), &ConfigError{Field: "from", Reason: "is nil; begin with Run"}
	}
	return l.run(ctx, from, prompt, parts, options{})
}

// A run is the state of one call of Run, Continue, Events or RunAs.
type run struct {
	*settings
	opts     options
	log      *slog.Logger
	answer   *Answer
	graceCtx context.Context   // ends Grace after the caller's: the run must return then
	events   chan relayedEvent // of the calls that run, when there is a reader
	states   toolStates
	ws       webSocket

	// Of the answer that the run continues from; see loadFrom.
	prompted     bool       // the run has a prompt of its own
	earlierStop  StopReason // why the earlier run stopped
	earlierTurns int        // how many turns it had
	earlierCalls []string   // IDs of its calls in answer.Calls, which are dropped once they were sent
	shown        string     // of an answer that broke off, which this run begins again

	// Of the requests.
	began        bool              // one was sent, or a handler has run
	requests     int               // made so far
	keepItems    bool              // the conversation's items are kept in the answer
	requestItems []json.RawMessage // the items of the last one, if they are kept
	resend       bool              // the next one sends the conversation itself, which the API has forgotten
	noReasoning  bool              // the next one leaves out the conversation's reasoning
	offered      map[string]bool   // the tools of the last one; nil for all
	loaded       []json.RawMessage // lists of tools that items of the conversation have loaded

	// Of the rounds; see checkProgress and countSandbox.
	sandboxFailed map[string]bool // by tool: its last call met a sandbox that failed
	badTurns      int             // in a row
	repeats       int             // in a row
	lastRound     string          // calls and outputs of the turn before
}

// options are what Run, Events, RunAs and EventsAs differ in.
type options struct {
	emit   func(Event)                                   // nil when nobody reads events
	format *responses.ResponseFormatTextConfigUnionParam // of the answer; nil for text
	value  *string                                       // is set to the message that should fit format
}

// run does one run. Within the handler of a call it is part of the outer run.
func (l *Loop) run(ctx context.Context, from *Answer, prompt string, parts []Content, opts options) (*Answer, error) {
	if n, ok := ctx.Value(nestingKey{}).(*nesting); ok {
		return n.run(ctx, l, from, prompt, parts, opts)
	}
	return l.execute(ctx, from, prompt, parts, opts)
}

// execute does one run: it checks the Loop and the answer to continue from, runs the
// turns, and says in the answer why it stopped.
func (l *Loop) execute(ctx context.Context, from *Answer, prompt string, parts []Content, opts options) (answer *Answer, err error) {
	if from == nil {
		from = &Answer{}
	}
	r := &run{answer: newAnswer(""), opts: opts, sandboxFailed: make(map[string]bool)}
	ctx, end := l.observeRun(ctx, from, prompt)
	if end != nil {
		defer func() { end(r.answer, err) }()
	}
	r.loadFrom(from, prompt, parts)
	s, err := l.settings(ctx)
	if err != nil && ctx.Err() != nil { // while a runner was asked
		err = r.ended(ctx, err)
	}
	if err == nil {
		r.settings, r.log = s, s.logger
		r.keepItems = l.State == Stateless || l.KeepItems && (from.ID == "" || len(from.Items) > 0)
		err = r.check(prompt, parts)
	}
	if err == nil {
		var unlock func()
		if unlock, err = r.lockConversation(); err == nil {
			defer unlock()
			defer r.closeWebSocket()
			defer r.startGrace(ctx)()
			if l.BeforeRequest != nil { // which may not list what the conversation has loaded
				r.loadTools(decodeItems(r.answer.Items))
			}
			err = r.runTurns(ctx)
		}
	}
	a := r.answer
	if err != nil {
		a.Stop = stopReason(err)
		if end, ok := err.(*endError); ok && end.why != end.err {
			a.Cause = end.why.Error()
		}
	}
	if a.Partial == "" && r.shown != "" { // nothing was shown since
		a.Partial, a.Interrupted = r.shown, true
	}
	a.ToolState = r.states.copy()
	return a, err
}

func (r *run) check(prompt string, parts []Content) error {
	switch a := r.answer; {
	case strings.TrimSpace(prompt) == "" && prompt != "" && len(parts) == 0, !a.hasPrompt() && len(a.Open) == 0 && !a.Paused:
		return &ConfigError{Field: "prompt", Reason: "is empty"}
	case a.ID == "" && len(a.Open) > 0:
		return &ConfigError{Field: "from.ID", Reason: "is empty although calls of it are open"}
	}
	if err := r.answer.checkPrompts(prompt != "" || len(parts) > 0); err != nil {
		return err
	}
	if err := r.loop.State.check(r.answer); err != nil {
		return err
	}
	return checkDecisions(r.answer.Pending)
}

// runTurns is the one loop body: a request, what the response says, a round of
// calls, and again.
func (r *run) runTurns(ctx context.Context) error {
	if err := r.resume(ctx); err != nil {
		return err
	}
	r.shown, r.answer.Partial, r.answer.Interrupted = r.answer.Partial, "", false
	for {
		response, err := r.nextResponse(ctx)
		if err != nil {
			return err
		}
		calls := response.calls()
		if err := r.advance(response, calls); err != nil {
			return err
		}
		if len(calls) == 0 && !r.answer.Paused {
			return r.finish(response)
		}
		if r.answer.Turns >= r.maxTurns {
			r.answer.Pending = r.newCalls(calls, r.answer.Turns+1)
			r.answer.Partial = response.text()
			if len(calls) == 0 {
				return fmt.Errorf("%w: a program that the API runs has not ended after %d turns", ErrMaxTurns, r.answer.Turns)
			}
			return fmt.Errorf("%w: %d calls after %d turns were not run", ErrMaxTurns, len(calls), r.answer.Turns)
		}
		r.answer.Turns++
		r.answer.Pending = r.newCalls(calls, r.answer.Turns)
		if err := r.runRound(ctx, r.answer.Pending, r.maxCalls); err != nil {
			return err
		}
	}
}

// finish takes the answer out of a response without calls.
func (r *run) finish(response *response) error {
	text, last, refused := response.answer()
	r.answer.Text = text
	if r.opts.value != nil {
		*r.opts.value = last
	}
	switch {
	case refused:
		return fmt.Errorf("%w: %.200s", ErrRefused, text)
	case strings.TrimSpace(text) == "":
		r.answer.Partial = response.text()
		return ErrEmpty
	}
	r.answer.Stop = StopAnswered
	r.answer.Citations = response.citations()
	return nil
}
