package fnloop

import (
	"context"
	"fmt"
	"slices"
)

// loadFrom takes over the conversation that the run continues, and what its next
// request must answer.
func (r *run) loadFrom(from *Answer, prompt string, parts []Content) {
	a := r.answer
	from = from.clone()
	r.earlierStop, r.earlierTurns = from.Stop, from.Turns
	r.prompted = prompt != "" || len(parts) > 0
	a.ID = from.ID
	a.Conversation = from.Conversation
	a.ContextTokens = from.ContextTokens
	a.Items = from.Items
	a.Paused = from.Paused
	a.ToolState, r.states.tools = from.ToolState, cloneToolState(from.ToolState)
	a.Earlier, a.Prompt, a.Parts = from.Earlier, from.Prompt, from.Parts
	if from.Interrupted {
		a.Partial, a.Interrupted = from.Partial, true
	}
	a.AddPrompt(prompt, parts...)
	for _, id := range from.Open {
		if !slices.Contains(a.Open, id) {
			a.Open = append(a.Open, id)
		}
	}
	if len(a.Open) == 0 { // an Answer made by hand
		for _, c := range from.Pending {
			a.Open = append(a.Open, c.ID)
		}
	}
	for _, id := range a.Open {
		if c := from.pending(id); c != nil {
			a.Pending = append(a.Pending, *c)
		} else if c := from.result(id); c != nil {
			a.Calls = append(a.Calls, *c)
			r.earlierCalls = append(r.earlierCalls, id)
		} else {
			a.Pending = append(a.Pending, Call{ID: id})
		}
	}
}

// resume carries out the decisions on calls of the answer that the run continues
// from, and runs those again that were interrupted and are Repeatable. A call
// that was started before is not run otherwise, approved or not.
func (r *run) resume(ctx context.Context) error {
	a := r.answer
	others, ready := []Call{}, []Call{}
	decided := false
	for _, c := range a.Pending {
		switch {
		case r.runsAgain(&c):
			c.Started, c.Repeated = false, true
			ready = append(ready, c)
		case c.innerWaits() && !c.Started && c.innerDecided():
			ready = append(ready, c)
		case c.innerWaits(), c.Decision == nil || c.Started || c.Hosted: // the API makes what is hosted
			decided = decided || c.Hosted && c.Decision != nil
			others = append(others, c)
		case c.Decision.Approve:
			ready = append(ready, c)
		default:
			decided = true
			text := "rejected: this call was not approved and was not run"
			if c.Decision.Reason != "" {
				text += ": " + c.Decision.Reason
			}
			result := CallResult{Call: c.settled(), Output: r.errorOutput(text)}
			a.Calls = append(a.Calls, result)
			r.emit(CallFinished{result.clone()})
		}
	}
	a.Pending = append(others, ready...)
	ready = a.Pending[len(others):]
	switch {
	case !decided && len(ready) == 0:
	case !r.prompted: // it is the run before that goes on, and its turns count on
		a.Turns = max(0, r.earlierTurns)
		for _, c := range ready {
			a.Turns = max(a.Turns, c.Turn)
		}
	case len(ready) > 0: // the first turn of a run of its own
		a.Turns = 1
		for i := range ready {
			ready[i].Turn = 1
		}
	}
	if len(ready) > 0 {
		if err := r.runRound(ctx, ready, len(ready)); err != nil {
			return err
		}
	}
	slices.SortStableFunc(a.Calls, func(x, y CallResult) int {
		return slices.Index(a.Open, x.ID) - slices.Index(a.Open, y.ID)
	})
	// A checkpoint, which alone has no Stop, is made before the run stops for a
	// decision. A crash in between must not decide.
	if r.earlierStop == "" && !r.prompted && a.Prompt == "" && len(a.Parts) == 0 && len(a.Earlier) == 0 {
		if len(a.Waiting()) > 0 {
			return fmt.Errorf("%w: %s", ErrApproval, callNames(a.Pending))
		}
	}
	return nil
}

// runsAgain reports whether c was interrupted and is to be run again. A user who
// stopped it and asks for something else does not want it.
func (r *run) runsAgain(c *Call) bool {
	if !c.Started || c.Hosted || c.digest != "" && (c.Decision == nil || !c.Decision.Approve) || r.earlierStop == StopCancelled && r.prompted {
		return false
	}
	t := r.tool(c.Name)
	return t != nil && t.Repeatable
}
