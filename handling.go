package fnloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

var errToolTimeout = errors.New("fnloop: tool timed out")

// An outcome is what became of a call.
type outcome struct {
	CallResult
	// What the handler's error was is found out under the guard of handle, as
	// its methods are not ours.
	abort       error        // not nil if the handler stopped the run
	sandbox     *RunnerError // not nil if the sandbox behind the tool did not work
	unavailable bool         // it can run no program
	badCall     bool         // the call could not be made: unknown tool, bad arguments
}

// A handling is a call whose handler runs. It is also the context that the handler
// gets, and says what is to be known of the call there.
type handling struct {
	context.Context
	run   *run
	tool  *Tool // nil if the model may call none of that name
	call  Call
	nest  *nesting // nil if the call is of no run
	state ToolState
	live  *live // nil when nobody reads events

	around context.Context // without the end of the call
	start  time.Time
	free   func() // what the handler's context has
	ended  func(out *outcome, left bool)

	mu    sync.Mutex
	over  bool
	grace *time.Timer // since the context has ended
}

type handlingKey struct{}

// Value gives what a handler's context has of the call.
func (h *handling) Value(key any) any {
	switch key.(type) {
	case handlingKey:
		return h
	case callKey:
		return &h.call
	case nestingKey:
		if h.nest != nil {
			return h.nest
		}
	}
	return h.Context.Value(key)
}

// handlingOf is that of the handler with this context, or with one made from it. It
// is nil elsewhere.
func handlingOf(ctx context.Context) *handling {
	h, _ := ctx.Value(handlingKey{}).(*handling)
	return h
}

// newHandling prepares a call to be handled. Once it has ended, ended is given its
// outcome. That is nil when the call has no output because ctx ended; left reports
// that its handler still runs.
func (r *run) newHandling(ctx context.Context, call Call, nest *nesting, ended func(out *outcome, left bool)) *handling {
	h := &handling{
		run: r, tool: r.tool(call.Name), call: call, nest: nest, state: ToolState{run: &r.states, tool: call.Name},
		live: liveOf(ctx), around: ctx, start: time.Now(), ended: ended,
	}
	if h.tool == nil {
		return h
	}
	var cancel context.CancelFunc
	if h.tool.Timeout > 0 {
		h.Context, cancel = context.WithTimeoutCause(ctx, h.tool.Timeout, errToolTimeout)
	} else {
		h.Context, cancel = context.WithCancel(ctx)
	}
	if r.events != nil {
		h.live = &live{events: r.events, id: call.ID, over: make(chan struct{}), ended: h.Done()}
	}
	h.mu.Lock() // startGrace waits until all is set
	defer h.mu.Unlock()
	forget := context.AfterFunc(h.Context, h.startGrace)
	h.free = func() {
		if r.events != nil {
			h.live.finish()
		}
		h.state.end()
		forget()
		cancel()
	}
	return h
}

// startGrace ends the call in a while, as its context has ended.
func (h *handling) startGrace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.grace = time.AfterFunc(h.run.grace, func() { h.end(new(outcome), true) })
	}
}

// handle runs the handler and ends the call, whatever the handler does. If it does not
// return, another goroutine ends the call Grace after the context has ended.
func (h *handling) handle() {
	if h.tool == nil {
		h.ended(h.unknownTool(), false)
		return
	}
	out := new(outcome)
	returned := false
	defer func() {
		if !returned { // it panicked or called runtime.Goexit
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			h.run.log.ErrorContext(h, "handler panicked", "tool", h.call.Name, "call_id", h.call.ID, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
			out = &outcome{CallResult: CallResult{Output: Output{Text: "the tool failed because of an internal error", IsError: true}, Err: p}}
		}
		h.end(out, false)
	}()
	res, err := h.tool.handle(h, h.call)
	h.take(res, err, out)
	returned = true
}

// unknownTool is the outcome of a call of a tool that was not offered.
func (h *handling) unknownTool() *outcome {
	has := "there are no tools to call now"
	if names := h.run.toolNames(); len(names) > 0 {
		has = "the tools are: " + strings.Join(names, ", ")
	}
	text := fmt.Sprintf("unknown tool %.80q; %s", h.call.Name, has)
	return &outcome{CallResult: CallResult{Call: h.call.settled(), Output: h.run.errorOutput(text), Err: ErrUnknownTool}, badCall: true}
}

// take makes an outcome of what the handler returned.
func (h *handling) take(res Output, err error, out *outcome) {
	log := h.run.log
	if err == nil {
		err = res.check()
	}
	if err != nil {
		out.Err = err
		if stop, ok := errors.AsType[*abort](err); ok {
			out.abort = stop.err
			return
		}
		if broken, ok := errors.AsType[*RunnerError](err); ok {
			out.sandbox, out.unavailable = broken, errors.Is(err, ErrUnavailable)
			log.ErrorContext(h, "sandbox failed", "tool", h.call.Name, "call_id", h.call.ID, "error", err)
		}
		_, out.badCall = errors.AsType[*ArgumentsError](err)
		if res.Text == "" {
			res.Text = err.Error()
		}
		if res.Text == "" {
			res.Text = "the tool failed"
		}
		res.IsError, res.Content = true, nil
		log.DebugContext(h, "handler failed", "tool", h.call.Name, "call_id", h.call.ID, "error", err)
	}
	out.Output = res.limited(h.run.maxOutput, h.run.maxMedia)
}

// end ends the call, the first time that it is called.
func (h *handling) end(out *outcome, left bool) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return
	}
	h.over = true
	if h.grace != nil {
		h.grace.Stop()
	}
	h.mu.Unlock()
	out = h.finish(out, left)
	h.free()
	h.ended(out, left)
}

// finish completes the outcome. It is nil when the call has no output because the run
// ended.
func (h *handling) finish(out *outcome, left bool) *outcome {
	ctx, r := h.around, h.run
	out.Call, out.Duration = h.call.settled(), time.Since(h.start)
	switch {
	case !left && out.Err == nil:
	case ctx.Err() != nil:
		if out.abort == nil {
			return nil
		}
	case context.Cause(h) == errToolTimeout && out.abort == nil:
		out.Output = Output{Text: fmt.Sprintf("the tool timed out after %v", h.tool.Timeout), IsError: true}
		if out.Err == nil {
			out.Err = errToolTimeout
		}
	}
	level := slog.LevelDebug
	if left {
		level = slog.LevelError
	}
	if r.log.Enabled(ctx, level) {
		r.log.Log(ctx, level, "call", "tool", h.call.Name, "call_id", h.call.ID, "turn", h.call.Turn, "duration", out.Duration,
			"returned", !left, "is_error", out.IsError, "bytes", len(out.Text), "truncated", out.Truncated)
	}
	return out
}

// A PanicError is in [CallResult.Err] of a call whose handler panicked or left
// its goroutine, and in the error of a run that a hook or the Client ended so.
// The model reads only that the tool failed.
type PanicError struct {
	Value any    // what the handler panicked with, or nil for runtime.Goexit
	Stack []byte // of the handler's goroutine
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "ended its goroutine with runtime.Goexit"
	}
	return fmt.Sprintf("panicked: %v", e.Value)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
