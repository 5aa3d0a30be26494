package fnloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrUnknownTool is the [CallResult.Err] of a call of a tool that the request did
// not offer. The model reads which tools there are, and the run goes on.
var ErrUnknownTool = errors.New("fnloop: unknown tool")

var errStopped = errors.New("fnloop: the round was stopped")

// A round is calls of one response while they run.
type round struct {
	*run
	calls  []Call
	others []Call // pending calls that are not of this round
	stop   context.CancelCauseFunc
	start  time.Time
	saving chan struct{} // held while Checkpoint runs

	starting  sync.Mutex // held while calls are announced
	announced int        // how many of started were
	mu        sync.Mutex // of what follows, and of calls while they run
	queue     []int      // the calls that wait for their turn
	started   []int      // those whose turn has come, in order
	running   int
	alone     bool            // what runs is serial
	busy      map[string]bool // the ordered tools that run
	outcomes  []*outcome      // by call; nil while it has none
	err       error           // what stopped the round, other than the caller
}

// runRound runs calls, the last of the answer's Pending, and moves those that get
// an output to its Calls. Those beyond limit get one without being run. Its error
// is why the run cannot go on; whatever finished until then is kept.
func (r *run) runRound(ctx context.Context, calls []Call, limit int) error {
	roundCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := r.answer
	r.began = true
	rd := &round{run: r, calls: calls, others: a.Pending[:len(a.Pending)-len(calls)], stop: stop, start: time.Now(), busy: make(map[string]bool), saving: make(chan struct{}, 1), outcomes: make([]*outcome, len(calls))}
	var tooMany []*outcome
	for i := range calls {
		c := &calls[i]
		if len(rd.queue) >= limit && !c.Hosted { // the API makes what is hosted
			text := fmt.Sprintf("not run: of the calls of one response at most %d are run", limit)
			rd.outcomes[i] = &outcome{CallResult: CallResult{Call: c.settled(), Output: r.errorOutput(text), Err: ErrMaxCalls}}
			tooMany = append(tooMany, rd.outcomes[i])
			continue
		}
		if c.Hosted || r.needsApproval(ctx, c) {
			c.digest = digest(*c)
			r.emit(ApprovalRequested{c.clone()})
		}
		rd.queue = append(rd.queue, i)
	}
	rd.queue = slices.DeleteFunc(rd.queue, func(i int) bool { return calls[i].needsDecision() })
	first := rd.startable()
	rd.checkpoint(ctx)
	r.emitWhile(func() { stop(errStopped) }, func() { rd.runAll(roundCtx, first) })

	a.Pending, a.Calls = rd.progress()
	for _, out := range tooMany {
		r.emit(CallFinished{out.CallResult.clone()})
	}
	switch {
	case rd.err != nil:
		return rd.err
	case ctx.Err() != nil:
		return r.ended(ctx, nil)
	}
	if names := callNames(a.Pending[len(rd.others):]); names != "" {
		return fmt.Errorf("%w: %s", ErrApproval, names)
	}
	if len(tooMany) > 0 {
		return fmt.Errorf("%w: %d of %d were not run", ErrMaxCalls, len(tooMany), len(calls))
	}
	return r.checkProgress(rd.outcomes)
}

// startable adds to started the calls that may start now: as many as run side by
// side, a serial one alone, an ordered one after those of its tool. It returns how
// many calls of the round have started by then. They count as started, so that a
// checkpoint which is made before their handlers begin claims neither too little
// nor too much: what waits for its turn has not started.
func (rd *round) startable() int {
	var waiting []int
	held := make(map[string]bool) // ordered tools, a call of which waits
	for at, i := range rd.queue {
		t := rd.tool(rd.calls[i].Name)
		serial := t != nil && t.Serial
		if rd.alone || rd.parallel >= 0 && rd.running >= rd.parallel || serial && (rd.running > 0 || len(waiting) > 0) {
			waiting = append(waiting, rd.queue[at:]...)
			break
		}
		if t != nil && t.Ordered {
			if rd.busy[t.Name] || held[t.Name] {
				held[t.Name] = true
				waiting = append(waiting, i)
				continue
			}
			rd.busy[t.Name] = true
		}
		rd.alone = serial
		rd.running++
		rd.calls[i].Started = true
		rd.started = append(rd.started, i)
	}
	rd.queue = waiting
	return len(rd.started)
}

// runAll runs the calls. The first of them have started.
func (rd *round) runAll(ctx context.Context, first int) {
	var running sync.WaitGroup
	// start announces the first n calls and runs their handlers. It may do so for
	// calls that another call let start: the checkpoint before it had them too.
	var start func(n int)
	start = func(n int) {
		rd.starting.Lock()
		defer rd.starting.Unlock()
		rd.mu.Lock()
		calls := slices.Clone(rd.started[rd.announced:max(n, rd.announced)])
		rd.mu.Unlock()
		rd.announced += len(calls)
		for _, i := range calls {
			if rd.emitStarted(ctx, i) {
				running.Add(1)
				go func() {
					rd.handling(ctx, i, func(started int) {
						start(started)
						running.Done()
					}).handle()
				}()
			}
		}
	}
	start(first)
	running.Wait()
}

// emitStarted says that the call i is about to start, in the order of the calls. It
// reports false if the round has ended by then.
func (rd *round) emitStarted(ctx context.Context, i int) bool {
	if rd.events != nil && ctx.Err() == nil {
		rd.mu.Lock()
		call := rd.calls[i].clone()
		rd.mu.Unlock()
		call.Started = false // that is for what was interrupted
		rd.emitRelayed(CallStarted{call})
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if ctx.Err() != nil {
		rd.calls[i].Started = false
		return false
	}
	return true
}

// handling prepares the call i to be run. Once it has ended, next is told how many
// calls may have started after it.
func (rd *round) handling(ctx context.Context, i int, next func(started int)) *handling {
	rd.mu.Lock()
	call := rd.calls[i].clone()
	rd.mu.Unlock()
	call.Started = false
	callCtx, end := rd.observeCall(ctx, call, rd.start)
	nest := &nesting{round: rd, id: call.ID, earlier: slices.Clone(call.inner)}
	return rd.newHandling(callCtx, call, nest, func(out *outcome, left bool) {
		if end != nil {
			end(out)
		}
		next(rd.endCall(ctx, i, nest, out, left))
	})
}

// endCall takes in what became of the call i, and gives how many may have started
// after it.
func (rd *round) endCall(ctx context.Context, i int, nest *nesting, out *outcome, left bool) (started int) {
	call := &rd.calls[i]
	rd.mu.Lock()
	if left {
		rd.answer.Abandoned++
	}
	waiting := nest.finish()
	suspended := waiting != nil && out != nil && out.abort == nil && !left
	if suspended {
		call.inner, call.Started, out = waiting, false, nil
	}
	if out != nil {
		rd.countSandbox(out)
	}
	if out != nil && out.abort != nil {
		if ctx.Err() == nil {
			failed := call.clone()
			failed.Started = false
			rd.fail(&ToolError{Call: failed, Err: out.abort})
		}
		out = nil
	}
	rd.outcomes[i] = out
	rd.running, rd.alone = rd.running-1, false
	delete(rd.busy, call.Name)
	if ctx.Err() == nil {
		started = rd.startable()
	}
	rd.mu.Unlock()
	if out != nil || suspended {
		rd.checkpoint(ctx)
	}
	if out != nil && rd.events != nil {
		rd.emitRelayed(CallFinished{out.CallResult.clone()})
	}
	return started
}

// countSandbox makes an abort of a sandbox that can run nothing, or has failed
// twice in a row. A single failure may pass.
func (rd *round) countSandbox(out *outcome) {
	if out.sandbox == nil {
		delete(rd.sandboxFailed, out.Name)
		return
	}
	if rd.sandboxFailed[out.Name] || out.unavailable {
		out.abort = out.sandbox.Err
	}
	rd.sandboxFailed[out.Name] = true
}

// fail ends the round for a reason of its own. The first one counts.
func (rd *round) fail(err error) {
	if rd.err == nil {
		rd.err = err
		rd.stop(errStopped)
	}
}

// checkpoint gives the host what the run would continue from if the process ended
// now.
func (rd *round) checkpoint(ctx context.Context) {
	if rd.loop.Checkpoint == nil {
		return
	}
	rd.saving <- struct{}{} // one at a time, in the order of what happened
	defer func() { <-rd.saving }()
	rd.mu.Lock()
	now := *rd.answer
	now.Pending, now.Calls = rd.progress()
	now.ToolState = rd.states.copy()
	snapshot := now.clone()
	rd.mu.Unlock()
	if err := rd.callHook(ctx, "Checkpoint", func() error { return rd.loop.Checkpoint(rd.graceCtx, snapshot) }); err != nil {
		rd.mu.Lock()
		defer rd.mu.Unlock()
		rd.fail(err)
	}
}

// progress are the answer's Pending and Calls with what the round has so far.
func (rd *round) progress() (pending []Call, done []CallResult) {
	pending = append([]Call{}, rd.others...)
	done = slices.Grow(slices.Clone(rd.answer.Calls), len(rd.outcomes))
	for i, out := range rd.outcomes {
		if out != nil {
			done = append(done, out.CallResult)
		} else {
			pending = append(pending, rd.calls[i])
		}
	}
	return pending, done
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
