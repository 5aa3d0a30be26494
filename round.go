package fnloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	errUnknownTool = errors.New("fnloop: unknown tool")
	errToolTimeout = errors.New("fnloop: tool timed out")
	errStopped     = errors.New("fnloop: the round was stopped")
)

// A round is calls of one response while they run.
type round struct {
	*run
	calls []Call
	rest  []Call // pending calls that are not of this round
	stop  context.CancelCauseFunc

	mu      sync.Mutex    // of what follows, and of calls while they run
	results []*CallResult // by call; nil while it has none
	why     error         // what stopped the round, other than the caller
}

// round runs calls, the last of the answer's Pending, and moves those that get
// an output to its Calls. Its error is why the run cannot go on; whatever
// finished until then is kept.
func (r *run) round(ctx context.Context, calls []Call) error {
	roundCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := r.answer
	rd := &round{run: r, calls: calls, rest: a.Pending[:len(a.Pending)-len(calls)], stop: stop, results: make([]*CallResult, len(calls))}
	for i := range calls {
		c := &calls[i]
		if t := r.loop.tool(c.Name); t != nil && t.NeedsApproval != nil && c.Decision == nil && t.NeedsApproval(ctx, *c) {
			c.digest = digest(*c)
		}
	}
	rd.checkpoint(ctx)
	r.during(func() { stop(errStopped) }, func() { rd.all(roundCtx) })

	a.Pending, a.Calls = rd.settled(false)
	switch {
	case rd.why != nil:
		return rd.why
	case ctx.Err() != nil:
		return ended(ctx)
	}
	if names := waiting(a.Pending); names != "" && len(rd.rest) == 0 {
		return fmt.Errorf("%w: %s", ErrApproval, names)
	}
	return nil
}

// held reports whether the call must not run before it was approved.
func (c *Call) held() bool { return c.digest != "" && c.Decision == nil }

// all runs the calls side by side, serial ones each alone.
func (rd *round) all(ctx context.Context) {
	for first := 0; first < len(rd.calls); {
		last := first + 1
		for !rd.serial(first) && last < len(rd.calls) && !rd.serial(last) {
			last++
		}
		var group errgroup.Group
		group.SetLimit(rd.parallel)
		for i := first; i < last; i++ {
			group.Go(func() error { rd.one(ctx, i); return nil })
		}
		group.Wait()
		first = last
	}
}

func (rd *round) serial(i int) bool {
	t := rd.loop.tool(rd.calls[i].Name)
	return t != nil && t.Serial
}

// one runs the call i unless the round has ended.
func (rd *round) one(ctx context.Context, i int) {
	rd.mu.Lock()
	call := rd.calls[i]
	if ctx.Err() != nil || call.held() {
		rd.mu.Unlock()
		return
	}
	rd.calls[i].Started = true
	rd.mu.Unlock()

	rd.send(CallStarted{call})
	result, left := rd.call(ctx, call)

	rd.mu.Lock()
	if left {
		rd.answer.Abandoned++
	}
	if result != nil {
		if stop, ok := errors.AsType[*abort](result.Err); ok {
			if ctx.Err() == nil {
				rd.fail(&ToolError{Call: call, Err: stop.err})
			}
			result = nil
		}
	}
	if rd.results[i] = result; result != nil {
		rd.checkpointLocked(ctx)
	}
	rd.mu.Unlock()
	if result != nil {
		rd.send(CallFinished{*result})
	}
}

// fail ends the round for a reason of its own. The first one counts.
func (rd *round) fail(err error) {
	if rd.why == nil {
		rd.why = err
		rd.stop(errStopped)
	}
}

func (rd *round) checkpoint(ctx context.Context) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.checkpointLocked(ctx)
}

// checkpointLocked gives the host what the run would continue from if the
// process ended now. A call that may have started by then counts as started.
func (rd *round) checkpointLocked(ctx context.Context) {
	if rd.loop.Checkpoint == nil {
		return
	}
	snapshot := *rd.answer
	snapshot.Pending, snapshot.Calls = rd.settled(true)
	snapshot.Open = slices.Clone(snapshot.Open)
	if err := rd.loop.Checkpoint(context.WithoutCancel(ctx), &snapshot); err != nil {
		rd.fail(&hookError{"Checkpoint", err})
	}
}

// settled are the answer's Pending and Calls with what the round has so far.
func (rd *round) settled(mayHaveStarted bool) (pending []Call, done []CallResult) {
	pending = append([]Call{}, rd.rest...)
	done = slices.Clone(rd.answer.Calls)
	for i, result := range rd.results {
		if result != nil {
			done = append(done, *result)
			continue
		}
		c := rd.calls[i]
		if mayHaveStarted && !c.held() {
			c.Started = true
		}
		pending = append(pending, c)
	}
	return pending, done
}

// call runs one call. The result is nil when the call has no output because ctx
// ended; left reports that its handler still runs.
func (r *run) call(ctx context.Context, call Call) (result *CallResult, left bool) {
	tool := r.loop.tool(call.Name)
	if tool == nil {
		text := fmt.Sprintf("unknown tool %.80q; the tools are: %s", call.Name, r.loop.toolNames())
		return &CallResult{Call: call.done(), Output: Output{Text: limitText(text, r.maxOutput), IsError: true}, Err: errUnknownTool}, false
	}
	toolCtx, cancel := context.WithCancel(ctx)
	if tool.Timeout > 0 {
		cancel()
		toolCtx, cancel = context.WithTimeoutCause(ctx, tool.Timeout, errToolTimeout)
	}
	defer cancel()
	if r.events != nil {
		over := make(chan struct{})
		defer close(over)
		toolCtx = context.WithValue(toolCtx, liveKey{}, &live{r.events, call.ID, over})
	}

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
	switch {
	case returned && res.Err == nil:
	case ctx.Err() != nil:
		if _, stop := errors.AsType[*abort](res.Err); !stop {
			return nil, !returned
		}
	case context.Cause(toolCtx) == errToolTimeout:
		res.Output = Output{Text: fmt.Sprintf("the tool timed out after %v", tool.Timeout), IsError: true}
		if res.Err == nil {
			res.Err = errToolTimeout
		}
	}
	level := slog.LevelDebug
	if !returned {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "call", "tool", call.Name, "call_id", call.ID, "turn", call.Turn,
		"duration", res.Duration, "is_error", res.IsError, "bytes", len(res.Text), "returned", returned, "err", res.Err)
	return &res, !returned
}

// handle runs the handler of a call and sends one result, whatever it does.
func (r *run) handle(ctx context.Context, tool *Tool, call Call, done chan<- CallResult) {
	var res CallResult
	returned := false
	defer func() {
		if !returned { // it panicked or called runtime.Goexit
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			r.log.Error("handler panicked", "tool", call.Name, "call_id", call.ID, "stack", string(p.Stack))
			res = CallResult{Output: Output{Text: "the tool failed because of an internal error", IsError: true}, Err: p}
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
		out.Content = nil
	}
	out.Truncated = out.Truncated || len(out.Text) > r.maxOutput
	out.Text = limitText(out.Text, r.maxOutput)
	for i := range out.Content {
		out.Content[i].Text = limitText(out.Content[i].Text, r.maxOutput)
	}
	res = CallResult{Output: out, Err: err}
	returned = true
}

// done is the call as it stands in a result, where nothing is left to decide.
func (c Call) done() Call {
	c.Started, c.Decision, c.digest = false, nil, ""
	return c
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
