package fnloop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Decision is what was decided of a call that needs approval.
type Decision struct {
	Approve bool `json:"approve"`
	// Reason is what the model reads when the call was not approved.
	Reason string `json:"reason,omitempty"`
}

// Always is a [Tool]'s NeedsApproval that asks for each call.
func Always(context.Context, Call) bool { return true }

// Waiting are the pending calls that can be approved or rejected. The ID of a call
// of a Loop that the handler of another call runs is a path: that call's ID, a
// slash, and its own.
func (a *Answer) Waiting() []Call {
	var calls []Call
	for _, c := range a.Pending {
		if c.Waiting() {
			calls = append(calls, c)
		}
		if c.Started {
			continue
		}
		for _, i := range c.inner {
			if !i.waits() {
				continue
			}
			for _, in := range i.Answer.Waiting() {
				in.ID = within(c.ID, in.ID)
				calls = append(calls, in)
			}
		}
	}
	return calls
}

// Waiting reports whether a pending call can be approved or rejected.
func (c Call) Waiting() bool { return c.digest != "" && !c.Started && len(c.inner) == 0 }

// Approve decides that [Loop.Continue] runs the pending call id, with the
// arguments that it has now: when they are others by then, Continue refuses.
// That finds mistakes, not a forger, who could change what it compares with too.
//
// Every Continue of the Answer runs the call, so one that two requests may reach
// has to be taken out of the store before it is continued.
func (a *Answer) Approve(id string) error {
	return a.decide(id, Decision{Approve: true})
}

// Reject decides that the pending call id is not run. The model reads that it
// was rejected, and the reason unless it is empty.
func (a *Answer) Reject(id, reason string) error {
	return a.decide(id, Decision{Reason: reason})
}

// Decide makes all of the decisions, by the call's ID, or none of them: where one
// of the calls does not wait for a decision, the error says which and nothing is
// changed. It is for what a browser sends, whose IDs nobody should trust.
func (a *Answer) Decide(decisions map[string]Decision) error {
	for _, id := range slices.Sorted(maps.Keys(decisions)) {
		if _, err := a.undecided(id); err != nil {
			return err
		}
	}
	for id, d := range decisions {
		if err := a.decide(id, d); err != nil {
			return err
		}
	}
	return nil
}

func (a *Answer) decide(id string, d Decision) error {
	c, err := a.undecided(id)
	if err == nil {
		c.Decision = &d
	}
	return err
}

// undecided is the pending call of an ID, if a decision on it can be made.
func (a *Answer) undecided(id string) (*Call, error) {
	c := a.pending(id)
	if c == nil {
		return a.undecidedWithin(id)
	}
	if c.digest == "" {
		return nil, &ConfigError{Field: "call " + id, Reason: "does not wait for approval"}
	}
	if c.Started {
		return nil, &ConfigError{Field: "call " + id, Reason: "was approved and started before; what it did is not known"}
	}
	return c, nil
}

// undecidedWithin is such a call of a run within a call.
func (a *Answer) undecidedWithin(id string) (*Call, error) {
	for _, c := range a.Pending {
		rest, ok := strings.CutPrefix(id, within(c.ID, ""))
		if !ok {
			continue
		}
		if c.Started && len(c.inner) > 0 {
			return nil, &ConfigError{Field: "call " + id, Reason: "was decided and started before; what it did is not known"}
		}
		for _, i := range c.inner {
			if i.waits() && slices.ContainsFunc(i.Answer.Waiting(), func(in Call) bool { return in.ID == rest }) {
				return i.Answer.undecided(rest)
			}
		}
	}
	return nil, &ConfigError{Field: "call " + id, Reason: "is not pending"}
}

// needsApproval asks the tool whether c may run only once it was approved. Calls
// that cannot be made are answered and not asked about.
func (r *run) needsApproval(ctx context.Context, c *Call) bool {
	t := r.tool(c.Name)
	if t == nil || t.NeedsApproval == nil || c.Decision != nil || t.checkArguments(c.Arguments) != nil {
		return false
	}
	var needs bool
	asked := c.clone()
	err := r.callHook(ctx, "NeedsApproval", func() error {
		needs = t.NeedsApproval(ctx, asked)
		return nil
	})
	return err != nil || needs
}

// digest stands for what a call would do. Storage may change the white space of
// its arguments and the order of their members, which is not a change.
func digest(c Call) string {
	args := []byte(c.Arguments)
	if !c.Custom {
		if hasLoneSurrogate(args) { // decoding would make them all one
			args = escapeText(args)
		}
		if canonical, ok := canonicalJSON(args); ok {
			args = canonical
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %t %s", c.ID, c.Namespace, c.Name, c.Custom, args))
	return hex.EncodeToString(sum[:])
}

// checkDecisions refuses to run what was not shown to whoever approved it.
func checkDecisions(pending []Call) error {
	for _, c := range pending {
		if c.Decision == nil {
			continue
		}
		if c.digest == "" {
			return &ConfigError{Field: "call " + c.ID, Reason: "has a decision but did not wait for one"}
		}
		if c.Decision.Approve && c.digest != digest(c) {
			return &ConfigError{Field: "call " + c.ID, Reason: "was approved, but is not the call that approval was asked for; reject it instead, and the model can make another"}
		}
	}
	return nil
}

// callNames names the calls that need approval.
func callNames(calls []Call) string {
	var names []string
	for _, c := range calls {
		if !c.needsDecision() {
			continue
		}
		if !c.innerWaits() {
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, c.ID))
		}
		for _, in := range (&Answer{Pending: []Call{{ID: c.ID, inner: c.inner}}}).Waiting() {
			names = append(names, fmt.Sprintf("%s (%s)", in.Name, in.ID))
		}
	}
	return strings.Join(names, ", ")
}
