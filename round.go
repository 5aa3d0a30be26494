package fnloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrUnknownTool is in [CallResult.Err] of a call of a tool that the request did
// not offer. The model is told which there are, and the run goes on.
var ErrUnknownTool = errors.New("fnloop: unknown tool")

var (
	errToolTimeout = errors.New("fnloop: tool timed out")
	errStopped     = errors.New("fnloop: the round was stopped")
)

// A round is calls of one response while they run.
type round struct {
	*run
	calls  []Call
	others []Call // pending calls that are not of this round
	stop   context.CancelCauseFunc
	began  time.Time

	mu       sync.Mutex // of what follows, and of calls while they run
	outcomes []*outcome // by call; nil while it has none
	err      error      // what stopped the round, other than the caller
}

// An outcome is what became of a call.
type outcome struct {
	CallResult
	// What the handler's error was is found out under the guard of handle, as
	// its methods are not ours.
	abort   error // not nil if the handler stopped the run
	badCall bool  // the call could not be made: unknown tool, bad arguments
}

// runRound runs calls, the last of the answer's Pending, and moves those that get
// an output to its Calls. Its error is why the run cannot go on; whatever
// finished until then is kept.
func (r *run) runRound(ctx context.Context, calls []Call) error {
	roundCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := r.answer
	rd := &round{run: r, calls: calls, others: a.Pending[:len(a.Pending)-len(calls)], stop: stop, began: time.Now(), outcomes: make([]*outcome, len(calls))}
	for i := range calls {
		if calls[i].Hosted || r.needsApproval(ctx, &calls[i]) {
			calls[i].digest = digest(calls[i])
			r.emit(ApprovalRequested{calls[i]})
		}
	}
	rd.checkpoint(ctx)
	r.emitWhile(func() { stop(errStopped) }, func() { rd.runAll(roundCtx) })

	a.Pending, a.Calls = rd.progress(false)
	switch {
	case rd.err != nil:
		return rd.err
	case ctx.Err() != nil:
		return r.ended(ctx, nil)
	}
	if names := callNames(a.Pending); names != "" && len(rd.others) == 0 {
		return fmt.Errorf("%w: %s", ErrApproval, names)
	}
	return r.checkProgress(rd.outcomes)
}

// runAll runs the calls side by side, serial ones each alone.
func (rd *round) runAll(ctx context.Context) {
	for first := 0; first < len(rd.calls); {
		last := first + 1
		for !rd.serial(first) && last < len(rd.calls) && !rd.serial(last) {
			last++
		}
		var group errgroup.Group
		group.SetLimit(rd.parallel)
		for _, chain := range rd.chains(first, last) {
			begun := make(chan struct{})
			group.Go(func() error {
				for n, i := range chain {
					rd.runOne(ctx, i, func() {
						if n == 0 {
							close(begun)
						}
					})
				}
				return nil
			})
			<-begun // so that the calls start in their order
		}
		group.Wait()
		first = last
	}
}

// chains divides calls that run side by side into those that run one after the
// other: the calls of each ordered tool are one chain, any other call is one by
// itself.
func (rd *round) chains(first, last int) [][]int {
	chains := make([][]int, 0, last-first)
	var ordered map[string]int // the chain of a tool
	for i := first; i < last; i++ {
		if t := rd.tool(rd.calls[i].Name); t != nil && t.Ordered {
			if at, ok := ordered[t.Name]; ok {
				chains[at] = append(chains[at], i)
				continue
			}
			if ordered == nil {
				ordered = make(map[string]int)
			}
			ordered[t.Name] = len(chains)
		}
		chains = append(chains, []int{i})
	}
	return chains
}

func (rd *round) serial(i int) bool {
	t := rd.tool(rd.calls[i].Name)
	return t != nil && t.Serial
}

// runOne runs the call i unless the round has ended. It calls begun when that is
// known and the reader has been told.
func (rd *round) runOne(ctx context.Context, i int, begun func()) {
	call := rd.calls[i]
	runs := ctx.Err() == nil && !call.needsDecision()
	if runs {
		rd.emitAside(CallStarted{call})
		runs = rd.markStarted(ctx, i) // unless the reader has ended the run
	}
	begun()
	if !runs {
		return
	}
	callCtx, end := rd.observeCall(ctx, call, rd.began)
	out, left := rd.runCall(callCtx, call)
	if end != nil {
		end(out)
	}

	rd.mu.Lock()
	if left {
		rd.answer.Abandoned++
	}
	if out != nil && out.abort != nil {
		if ctx.Err() == nil {
			rd.fail(&ToolError{Call: call, Err: out.abort})
		}
		out = nil
	}
	if rd.outcomes[i] = out; out != nil {
		rd.checkpointLocked(ctx)
	}
	rd.mu.Unlock()
	if out != nil {
		rd.emitAside(CallFinished{out.CallResult})
	}
}

func (rd *round) markStarted(ctx context.Context, i int) bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	rd.calls[i].Started = true
	return true
}

// fail ends the round for a reason of its own. The first one counts.
func (rd *round) fail(err error) {
	if rd.err == nil {
		rd.err = err
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
	now := *rd.answer
	now.Pending, now.Calls = rd.progress(true)
	now.ToolState = rd.states.copy()
	snapshot := now.clone()
	err := guard(func() error { return rd.loop.Checkpoint(context.WithoutCancel(ctx), snapshot) })
	if err != nil {
		rd.fail(&hookError{"Checkpoint", err})
	}
}

// guard calls f and makes an error of a panic in it, since it is called where
// nobody could recover from one.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// progress are the answer's Pending and Calls with what the round has so far.
func (rd *round) progress(mayHaveStarted bool) (pending []Call, done []CallResult) {
	pending = append([]Call{}, rd.others...)
	done = slices.Clone(rd.answer.Calls)
	for i, out := range rd.outcomes {
		if out != nil {
			done = append(done, out.CallResult)
			continue
		}
		c := rd.calls[i]
		if mayHaveStarted && !c.needsDecision() {
			c.Started = true
		}
		pending = append(pending, c)
	}
	return pending, done
}

// runCall runs one call. The outcome is nil when the call has no output because
// ctx ended; left reports that its handler still runs.
func (r *run) runCall(ctx context.Context, call Call) (out *outcome, left bool) {
	tool := r.tool(call.Name)
	if tool == nil {
		has := "there are no tools to call now"
		if names := r.toolNames(); len(names) > 0 {
			has = "the tools are: " + strings.Join(names, ", ")
		}
		text := fmt.Sprintf("unknown tool %.80q; %s", call.Name, has)
		out := r.errorOutput(text)
		return &outcome{CallResult: CallResult{Call: call.settled(), Output: out, Err: ErrUnknownTool}, badCall: true}, false
	}
	toolCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if tool.Timeout > 0 {
		toolCtx, cancel = context.WithTimeoutCause(toolCtx, tool.Timeout, errToolTimeout)
		defer cancel()
	}
	state, end := r.states.of(call.Name)
	defer end()
	handlerCtx := context.WithValue(toolCtx, toolStateKey{}, state)
	handlerCtx = context.WithValue(handlerCtx, maxOutputKey{}, r.maxOutput)
	if r.events != nil {
		l := &live{events: r.events, id: call.ID, over: make(chan struct{}), ended: toolCtx.Done()}
		defer l.finish()
		handlerCtx = context.WithValue(handlerCtx, liveKey{}, l)
	}

	start := time.Now()
	done := make(chan *outcome, 1) // buffered: nobody may be there any more
	go r.runHandler(handlerCtx, tool, call, done)
	out = &outcome{}
	returned := true
	select {
	case out = <-done:
	case <-toolCtx.Done():
		grace := time.NewTimer(r.grace)
		defer grace.Stop()
		select {
		case out = <-done:
		case <-grace.C:
			select {
			case out = <-done:
			default:
				returned = false
			}
		}
	}
	out.Call, out.Duration = call.settled(), time.Since(start)
	switch {
	case returned && out.Err == nil:
	case ctx.Err() != nil:
		if out.abort == nil {
			return nil, !returned
		}
	case context.Cause(toolCtx) == errToolTimeout && out.abort == nil:
		out.Output = Output{Text: fmt.Sprintf("the tool timed out after %v", tool.Timeout), IsError: true}
		if out.Err == nil {
			out.Err = errToolTimeout
		}
	}
	level := slog.LevelDebug
	if !returned {
		level = slog.LevelError
	}
	r.log.Log(ctx, level, "call", "tool", call.Name, "call_id", call.ID, "turn", call.Turn, "duration", out.Duration,
		"returned", returned, "is_error", out.IsError, "bytes", len(out.Text), "truncated", out.Truncated)
	return out, !returned
}

// runHandler runs the handler of a call and sends one outcome, whatever it does.
func (r *run) runHandler(ctx context.Context, tool *Tool, call Call, done chan<- *outcome) {
	out := new(outcome)
	returned := false
	defer func() {
		if !returned { // it panicked or called runtime.Goexit
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			r.log.ErrorContext(ctx, "handler panicked", "tool", call.Name, "call_id", call.ID, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
			out = &outcome{CallResult: CallResult{Output: Output{Text: "the tool failed because of an internal error", IsError: true}, Err: p}}
		}
		done <- out
	}()
	res, err := tool.handle(ctx, call)
	if err == nil {
		err = res.check()
	}
	if err != nil {
		out.Err = err
		if stop, ok := errors.AsType[*abort](err); ok {
			out.abort = stop.err
			returned = true
			return
		}
		_, out.badCall = errors.AsType[*ArgumentsError](err)
		if res.Text == "" {
			res.Text = err.Error()
		}
		if res.Text == "" {
			res.Text = "the tool failed"
		}
		res.IsError, res.Content = true, nil
		r.log.DebugContext(ctx, "handler failed", "tool", call.Name, "call_id", call.ID, "error", err.Error())
	}
	out.Output = res.limited(r.maxOutput, r.maxMedia)
	returned = true
}

// tool is the tool of that name, or nil if there is none or the request that the
// model answered did not offer it.
func (r *run) tool(name string) *Tool {
	tools := r.loop.Tools
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 || r.offered != nil && !r.offered[name] {
		return nil
	}
	return &tools[i]
}

func (r *run) toolNames() []string {
	var names []string
	for _, t := range r.loop.Tools {
		if r.tool(t.Name) != nil {
			names = append(names, t.Name)
		}
	}
	return names
}

// maxBadTurns is how many rounds in a row may hold nothing but calls that could
// not be made. A model that has not found the tool's name or the form of its
// arguments by then only spends the caller's tokens.
const maxBadTurns = 4

// checkProgress stops a model that gets nowhere.
func (r *run) checkProgress(round []*outcome) error {
	if len(round) == 0 { // a program goes on
		return nil
	}
	bad := 0
	var calls strings.Builder
	var last string
	for _, out := range round {
		if out == nil { // it waits for approval
			continue
		}
		if last = out.Text; out.badCall {
			bad++
		}
		if r.maxRepeats > 0 {
			fmt.Fprintf(&calls, "%q %q %q\n", out.Name, out.Arguments, out.Text)
		}
	}
	if bad == len(round) {
		r.badTurns++
	} else {
		r.badTurns = 0
	}
	if r.badTurns == maxBadTurns {
		return fmt.Errorf("%w: %d turns in a row, the last with: %.300s", ErrBadCalls, maxBadTurns, last)
	}
	if r.maxRepeats > 0 {
		if s := calls.String(); s == r.lastRound {
			r.repeats++
		} else {
			r.lastRound, r.repeats = s, 0
		}
		if r.repeats > r.maxRepeats {
			return fmt.Errorf("%w: %d turns were the same", ErrRepeating, r.repeats+1)
		}
	}
	return nil
}

// A PanicError is in [CallResult.Err] of a call whose handler panicked or left
// its goroutine. The model reads only that the tool failed.
type PanicError struct {
	Value any    // what the handler panicked with, or nil for runtime.Goexit
	Stack []byte // of the handler's goroutine
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the handler ended its goroutine with runtime.Goexit"
	}
	return fmt.Sprintf("the handler panicked: %v", e.Value)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
