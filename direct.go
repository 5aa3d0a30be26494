package fnloop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// DescribeTools checks l's tools and returns them as a model is shown them: the
// description and schema of a tool that runs programs say what its sandbox is like,
// and none but a custom tool is without Parameters. Its error is that of [Loop.Check].
// Client and Model are not needed.
func (l *Loop) DescribeTools(ctx context.Context) ([]Tool, error) {
	s, err := l.toolset(ctx)
	if err != nil {
		return nil, err
	}
	tools := slices.Clone(l.Tools)
	for i := range tools {
		t := &tools[i]
		t.Description = s.tools[i].description
		if known := s.tools[i]; !known.noSchema {
			t.Parameters = json.RawMessage(known.schema)
		} else if !t.Custom {
			t.Parameters = slices.Clone(noParameters)
		}
	}
	return tools, nil
}

// Call runs one call of a tool as a run does, for who has the model elsewhere: a
// server of another protocol, or a test. Arguments that do not fit, a panic and a
// tool's Timeout are results with IsError. emit, if not nil, is called with the
// [CallOutput] events of the call and with what its handler [Emit]s, one at a time.
// Client and Model are not needed.
//
// The error is what would end a run: a [*ConfigError], a [*ToolError] of [Abort] or
// of a runner that can run nothing, the end of ctx, or [ErrApproval], before anything
// was run, for a call that NeedsApproval and has no Decision that approves it. That
// a tool is Serial or Ordered is for the caller to see to, and what a tool sets in
// its [ToolState] is gone after the call.
func (l *Loop) Call(ctx context.Context, call Call, emit func(Event)) (CallResult, error) {
	s := l.limits()
	var err error
	if s.tools, err = l.toolset(ctx); err != nil {
		return CallResult{}, err
	}
	r := &run{settings: s, log: s.logger, answer: newAnswer(""), opts: options{emit: emit}}
	defer r.startGrace(ctx)()
	if r.needsApproval(ctx, &call) || call.Decision != nil && !call.Decision.Approve {
		return CallResult{}, fmt.Errorf("%w: %s", ErrApproval, call.Name)
	}
	callCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var out *outcome
	r.emitWhile(func() { stop(errStopped) }, func() {
		ended := make(chan *outcome, 1)
		h := r.newHandling(callCtx, call, nil, func(out *outcome, _ bool) { ended <- out })
		go h.handle()
		out = <-ended
	})
	switch {
	case out == nil:
		return CallResult{}, context.Cause(ctx)
	case out.abort != nil:
		return CallResult{}, &ToolError{Call: call, Err: out.abort}
	case out.unavailable:
		return CallResult{}, &ToolError{Call: call, Err: out.sandbox.Err}
	}
	return out.CallResult, nil
}
