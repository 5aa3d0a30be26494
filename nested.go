package fnloop

import (
	"context"
	"slices"
)

// A Loop that runs in the handler of a call, with the handler's context, is part
// of the outer run: its events are [CallEvent]s, its tokens are counted there, and
// when a call within it needs approval both runs stop. The outer [Answer] then
// holds how far the handler had come. After the decision [Loop.Continue] calls the
// handler once more. Where that starts a Loop with the same prompt again, the run
// goes on from where it was, and one that had answered returns its answer at once.

// An innerRun is a run that the handler of a call has started.
type innerRun struct {
	Prompt string  `json:"prompt,omitempty"`
	Answer *Answer `json:"answer"`
	Value  string  `json:"value,omitempty"` // of RunAs
	used   bool    // the handler has come to it again
}

// waits reports whether the run has stopped for an approval.
func (i *innerRun) waits() bool {
	return i.Answer != nil && i.Answer.Stop == StopApproval && len(i.Answer.Waiting()) > 0
}

// decided reports whether something was decided that the run waits for.
func (i *innerRun) decided() bool {
	return i.waits() && slices.ContainsFunc(i.Answer.Pending, func(c Call) bool { return c.Decision != nil || c.innerDecided() })
}

// innerWaits reports whether runs within the call wait for approval.
func (c *Call) innerWaits() bool {
	return slices.ContainsFunc(c.inner, func(i innerRun) bool { return i.waits() })
}

func (c *Call) innerDecided() bool {
	return slices.ContainsFunc(c.inner, func(i innerRun) bool { return i.decided() })
}

// within gives the ID of a call within a call.
func within(outer, inner string) string { return outer + "/" + inner }

type nestingKey struct{}

// A nesting is what runs within the handler of a call share with the outer run.
type nesting struct {
	round *round
	id    string // of the call
	// The rest is guarded by the round's mutex.
	earlier []innerRun  // of the call's handler before
	runs    []*innerRun // in the order in which they began
	over    bool        // the call has ended
}

// run is [Loop.execute] within the handler.
func (n *nesting) run(ctx context.Context, l *Loop, from *Answer, prompt string, parts []Content, opts options) (*Answer, error) {
	now := &innerRun{Prompt: prompt}
	var value string
	if opts.value == nil {
		opts.value = &value
	}
	if before := n.begin(now, from); before != nil {
		if before.Answer.Stop == StopAnswered {
			*opts.value = before.Value
			n.end(now, before.Answer, before.Value, false)
			return before.Answer.clone(), nil
		}
		from, prompt, parts = before.Answer, "", nil
	}
	if live := liveOf(ctx); live != nil {
		own := opts.emit
		opts.emit = func(e Event) {
			live.emit(CallEvent{ID: n.id, Event: e})
			if own != nil {
				own(e)
			}
		}
	}
	answer, err := l.execute(ctx, from, prompt, parts, opts)
	n.end(now, answer, *opts.value, true)
	return answer, err
}

// begin notes a run and returns what became of it when the handler ran before, if
// it did.
func (n *nesting) begin(now *innerRun, from *Answer) *innerRun {
	n.round.mu.Lock()
	defer n.round.mu.Unlock()
	if from != nil && from.ID != "" { // the handler goes on by itself with what it stopped
		n.runs = slices.DeleteFunc(n.runs, func(i *innerRun) bool { return i.Answer != nil && i.Answer.ID == from.ID && i.waits() })
	}
	n.runs = append(n.runs, now)
	for i := range n.earlier {
		if before := &n.earlier[i]; !before.used && before.Prompt == now.Prompt {
			before.used = true
			return before
		}
	}
	return nil
}

func (n *nesting) end(now *innerRun, answer *Answer, value string, count bool) {
	n.round.mu.Lock()
	defer n.round.mu.Unlock()
	now.Answer, now.Value = answer.clone(), value
	if count && !n.over {
		outer := n.round.answer
		outer.Usage.add(answer.Usage)
		outer.Responses += answer.Responses
		outer.Unmetered += answer.Unmetered
	}
}

// finish ends the call with the round's mutex held. What it returns is not nil
// when runs within it wait for approval.
func (n *nesting) finish() []innerRun {
	n.over = true
	if !slices.ContainsFunc(n.runs, func(i *innerRun) bool { return i.waits() }) {
		return nil
	}
	var kept []innerRun
	for _, i := range n.runs {
		if i.Answer != nil && (i.waits() || i.Answer.Stop == StopAnswered) {
			kept = append(kept, *i)
		}
	}
	return kept
}
