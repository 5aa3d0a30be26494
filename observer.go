package fnloop

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/openai/openai-go/v3/responses"
)

// An Observer watches the runs of a [Loop], for traces and metrics. Package
// otelloop has one for OpenTelemetry.
//
// Each method is called when its operation begins. It returns the context that
// the operation goes on with, so that what it puts there reaches the requests,
// the handlers and the runners, and a function that is called once when the
// operation has ended. Either may be nil: the context then stays as it is, and
// nothing is called at the end.
//
// The values that an Observer gets are shared with the run: it may read them
// until it returns, and must not change or keep what they point to. Calls of one
// response run side by side, so ObserveCall and its end must be safe for
// concurrent use. A panic of an Observer is logged and changes nothing.
type Observer interface {
	// ObserveRun begins one call of Run, Continue, Events or RunAs.
	ObserveRun(context.Context, RunInfo) (context.Context, func(*Answer, error))
	// ObserveResponse begins one response: a request with all its retries.
	ObserveResponse(context.Context, ResponseInfo) (context.Context, func(ResponseEnd))
	// ObserveCall begins one call. What waits for approval or is rejected does
	// not begin.
	ObserveCall(context.Context, CallInfo) (context.Context, func(CallEnd))
}

// RunInfo says what is known of a run when it begins.
type RunInfo struct {
	Model        string  // Loop.Model; BeforeRequest may set another
	Conversation string  // of the API, empty if there is none
	From         *Answer // what the run continues from, nil for a new conversation
	Prompt       string
}

// ResponseInfo says what is known of a response when its request is sent.
type ResponseInfo struct {
	// Request is the number of the request in its run, from 1.
	Request int
	// Params are the request as BeforeRequest left it.
	Params *responses.ResponseNewParams
	// Stream reports whether the events of the response are read.
	Stream bool
}

// ResponseEnd says how a request ended. If no response came, Err says why and
// the fields that describe one are zero.
type ResponseEnd struct {
	ID, Status string
	// Model and ServiceTier are those that made the response, empty where the API
	// does not say.
	Model, ServiceTier string
	// Calls are what the response asks for, and Text is its text.
	Calls []Call
	Text  string
	// Reason is why the response is incomplete, such as "max_output_tokens".
	Reason string
	Usage  Usage
	// Attempts is how often the request was sent.
	Attempts int
	// FirstEvent is how long the first event of a stream took from the last
	// sending of the request; zero without a stream.
	FirstEvent time.Duration
	Err        error
}

// CallInfo says what is known of a call when it begins.
type CallInfo struct {
	Call
	// Description is that of the tool, empty if there is no such tool.
	Description string
	// Queued is how long the call waited for others of its response.
	Queued time.Duration
}

// CallEnd says how a call ended. Result is nil when the run ended before the
// call had an output; Err then says why.
type CallEnd struct {
	Result *CallResult
	Err    error
}

// recovered is deferred around what calls the Observer.
func (l *Loop) recovered(ctx context.Context) {
	if v := recover(); v != nil && l.Logger != nil {
		l.Logger.ErrorContext(ctx, "Observer panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// observeRun begins a run. The context is never nil; what is to be called at the
// end is, if there is nothing to call.
func (l *Loop) observeRun(ctx context.Context, from *Answer, prompt string) (observed context.Context, end func(*Answer, error)) {
	if l.Observer == nil {
		return ctx, nil
	}
	info := RunInfo{Model: l.Model, Conversation: from.Conversation, Prompt: prompt}
	if from.ID != "" || len(from.Items) > 0 || len(from.Open) > 0 {
		info.From = from
	}
	observed = ctx
	defer l.recovered(ctx)
	c, done := l.Observer.ObserveRun(ctx, info)
	if c != nil {
		observed = c
	}
	if done == nil {
		return observed, nil
	}
	return observed, func(a *Answer, err error) {
		defer l.recovered(ctx)
		done(a, err)
	}
}

// observeResponse begins a response, as observeRun a run.
func (r *run) observeResponse(ctx context.Context, params *responses.ResponseNewParams) (observed context.Context, end func(*response, int, error)) {
	l := r.loop
	if l.Observer == nil {
		return ctx, nil
	}
	observed = ctx
	defer l.recovered(ctx)
	c, done := l.Observer.ObserveResponse(ctx, ResponseInfo{Request: r.requests, Params: params, Stream: l.WebSocket || r.streams()})
	if c != nil {
		observed = c
	}
	if done == nil {
		return observed, nil
	}
	return observed, func(response *response, attempts int, err error) {
		e := ResponseEnd{Attempts: attempts, Err: err}
		if response != nil {
			e.ID, e.Status, e.Reason, e.FirstEvent = response.ID, response.Status, response.IncompleteDetails.Reason, response.first
			e.Model, e.ServiceTier = response.Model, response.ServiceTier
			e.Text, e.Calls = response.text(), r.newCalls(response.calls(), r.answer.Turns+1)
			e.Usage, _ = response.usage()
			e.Err = response.check()
		}
		defer l.recovered(ctx)
		done(e)
	}
}

// observeCall begins a call of a round that began at a time, as observeRun a
// run.
func (r *run) observeCall(ctx context.Context, call Call, began time.Time) (observed context.Context, end func(*outcome)) {
	if r.loop.Observer == nil {
		return ctx, nil
	}
	return r.observedCall(ctx, call, began)
}

func (r *run) observedCall(ctx context.Context, call Call, began time.Time) (observed context.Context, end func(*outcome)) {
	l := r.loop
	info := CallInfo{Call: call, Queued: time.Since(began)}
	if t := r.tool(call.Name); t != nil {
		info.Description = t.Description
	}
	observed = ctx
	defer l.recovered(ctx)
	c, done := l.Observer.ObserveCall(ctx, info)
	if c != nil {
		observed = c
	}
	if done == nil {
		return observed, nil
	}
	return observed, func(out *outcome) {
		var e CallEnd
		switch {
		case out == nil:
			e.Err = context.Cause(ctx)
		case out.abort != nil:
			e.Err = &ToolError{Call: call, Err: out.abort}
		default:
			result := out.CallResult
			e.Result = &result
		}
		defer l.recovered(ctx)
		done(e)
	}
}
