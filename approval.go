package fnloop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

// Approve decides that [Loop.Continue] runs the pending call id, with the
// arguments that it has now: when they are others by then, Continue refuses.
func (a *Answer) Approve(id string) error {
	return a.decide(id, Decision{Approve: true})
}

// Reject decides that the pending call id is not run. The model reads that it
// was rejected, and the reason unless it is empty.
func (a *Answer) Reject(id, reason string) error {
	return a.decide(id, Decision{Reason: reason})
}

func (a *Answer) decide(id string, d Decision) error {
	c := a.pending(id)
	if c == nil {
		return &ConfigError{"call " + id, "is not pending"}
	}
	if c.digest == "" {
		return &ConfigError{"call " + id, "does not wait for approval"}
	}
	c.Decision = &d
	return nil
}

// digest stands for what a call would do. Storage may change the white space of
// its arguments and the order of their members, which is not a change.
func digest(c Call) string {
	args := []byte(c.Arguments)
	if !c.Custom {
		dec := json.NewDecoder(bytes.NewReader(args))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) == nil && !dec.More() {
			args, _ = json.Marshal(v)
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %t %s", c.ID, c.Name, c.Custom, args))
	return hex.EncodeToString(sum[:])
}

// checkDecisions refuses to run what was not shown to whoever approved it.
func checkDecisions(pending []Call) error {
	for _, c := range pending {
		if c.Decision == nil {
			continue
		}
		if c.digest == "" {
			return &ConfigError{"call " + c.ID, "has a decision but did not wait for one"}
		}
		if c.Decision.Approve && c.digest != digest(c) {
			return &ConfigError{"call " + c.ID, "was approved, but is not the call that approval was asked for; reject it instead, and the model can make another"}
		}
	}
	return nil
}

// decided carries out the decisions on calls of the answer that the run
// continues from.
func (r *run) decided(ctx context.Context) error {
	others, approved := []Call{}, []Call{}
	for _, c := range r.answer.Pending {
		switch {
		case c.Decision == nil:
			others = append(others, c)
		case c.Decision.Approve:
			approved = append(approved, c)
		default:
			text := "rejected: this call was not approved and was not run"
			if c.Decision.Reason != "" {
				text += ": " + c.Decision.Reason
			}
			r.answer.Calls = append(r.answer.Calls, CallResult{Call: c.done(), Output: Output{Text: limitText(text, r.maxOutput), IsError: true}})
		}
	}
	r.answer.Pending = append(others, approved...)
	if len(approved) == 0 {
		return nil
	}
	return r.round(ctx, r.answer.Pending[len(others):])
}

// waiting names the calls that need approval.
func waiting(calls []Call) string {
	var names []string
	for _, c := range calls {
		if c.held() {
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, c.ID))
		}
	}
	return strings.Join(names, ", ")
}
