package fnloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	errUnknownTool = errors.New("fnloop: unknown tool")
	errToolTimeout = errors.New("fnloop: tool timed out")
	errAborted     = errors.New("fnloop: another call of the round stopped the run")
)

// round runs the pending calls and moves those that get an output to the
// answer's Calls. Its error is why the run cannot go on; whatever finished
// until then is kept.
func (r *run) round(ctx context.Context) error {
	calls := r.answer.Pending
	results := make([]*CallResult, len(calls))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var mu sync.Mutex // of what the calls share: aborted and the answer
	var aborted *ToolError
	one := func(i int) {
		if ctx.Err() != nil {
			return
		}
		calls[i].Started = true
		result, left := r.call(ctx, calls[i])
		mu.Lock()
		defer mu.Unlock()
		if left {
			r.answer.Abandoned++
		}
		if result == nil {
			return
		}
		if stop, ok := errors.AsType[*abort](result.Err); ok {
			if aborted == nil && context.Cause(ctx) == nil {
				aborted = &ToolError{Call: calls[i], Err: stop.err}
				cancel(errAborted)
			}
			return
		}
		results[i] = result
	}
	for first := 0; first < len(calls); {
		last := first + 1 // a serial call is a group of its own
		for !r.serial(calls[first]) && last < len(calls) && !r.serial(calls[last]) {
			last++
		}
		var group errgroup.Group
		group.SetLimit(r.parallel)
		for i := first; i < last; i++ {
			group.Go(func() error { one(i); return nil })
		}
		group.Wait()
		first = last
	}

	r.answer.Pending = []Call{}
	for i, result := range results {
		if result == nil {
			r.answer.Pending = append(r.answer.Pending, calls[i])
		} else {
			r.answer.Calls = append(r.answer.Calls, *result)
		}
	}
	switch {
	case aborted != nil:
		return aborted
	case ctx.Err() != nil:
		return ended(ctx)
	}
	return nil
}

func (r *run) serial(c Call) bool {
	t := r.loop.tool(c.Name)
	return t != nil && t.Serial
}

// call runs one call. The result is nil when the call has no output because ctx
// ended; left reports that its handler still runs.
func (r *run) call(ctx context.Context, call Call) (result *CallResult, left bool) {
	tool := r.loop.tool(call.Name)
	if tool == nil {
		text := fmt.Sprintf("unknown tool %.80q; the tools are: %s", call.Name, r.loop.toolNames())
		return &CallResult{Call: call.done(), Output: Output{limitText(text, r.maxOutput), true}, Err: errUnknownTool}, false
	}
	toolCtx, cancel := context.WithCancel(ctx)
	if tool.Timeout > 0 {
		toolCtx, cancel = context.WithTimeoutCause(ctx, tool.Timeout, errToolTimeout)
	}
	defer cancel()

	start := time.Now()
	done := make(chan CallResult, 1) // buffered: nobody may be there any more
	go r.handle(toolCtx, tool, call, done)
	res, returned := CallResult{}, true
	select {
	case res = <-done:
	case <-toolCtx.Done():
		grace := time.NewTimer(r.grace)
		defer grace.Stop()
		select {
		case res = <-done:
		case <-grace.C:
			returned = false
		}
	}
	res.Call, res.Duration = call.done(), time.Since(start)
	ok := returned && res.Err == nil
	switch {
	case ok:
	case ctx.Err() != nil:
		if _, stop := errors.AsType[*abort](res.Err); !stop {
			return nil, !returned
		}
	case context.Cause(toolCtx) == errToolTimeout && toolCtx.Err() != nil:
		res.Output = Output{fmt.Sprintf("the tool timed out after %v", tool.Timeout), true}
		if res.Err == nil {
			res.Err = errToolTimeout
		}
	}
	level := slog.LevelDebug
	if !returned {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "call", "tool", call.Name, "call_id", call.ID, "turn", call.Turn,
		"duration", res.Duration, "is_error", res.IsError, "bytes", len(res.Text), "returned", returned, "err", errString(res.Err))
	return &res, !returned
}

// handle runs the handler of a call and sends one result, whatever it does.
func (r *run) handle(ctx context.Context, tool *Tool, call Call, done chan<- CallResult) {
	var res CallResult
	returned := false
	defer func() {
		if !returned { // it panicked or called runtime.Goexit
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			r.log.Error("handler panicked", "tool", call.Name, "call_id", call.ID, "err", p.Error(), "stack", string(p.Stack))
			res = CallResult{Output: Output{"the tool failed because of an internal error", true}, Err: p}
		}
		done <- res
	}()
	out, err := tool.Handle(ctx, call)
	if err != nil {
		if out.Text == "" {
			out.Text = err.Error()
		}
		if out.Text == "" {
			out.Text = "the tool failed"
		}
		out.IsError = true
	}
	out.Text = limitText(out.Text, r.maxOutput)
	res = CallResult{Output: out, Err: err}
	returned = true
}

// done is the call as it stands in a result, where Started says nothing.
func (c Call) done() Call {
	c.Started = false
	return c
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// limitText gives s as valid UTF-8 in at most limit bytes. What is longer loses
// its middle.
func limitText(s string, limit int) string {
	if len(s) <= limit && invalidUTF8(s) < 0 {
		return s
	}
	s, _ = text{head: []byte(s)}.cut(limit, plain)
	return s
}
