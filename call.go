package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// A Call is one request of the model to run a tool.
type Call struct {
	// Turn is the number of the turn that the call is of, from one within a run.
	Turn int
	// ID pairs the call with its output. It is the model's, unique within a
	// response.
	ID string
	// Name is the tool's, and Namespace that of the namespace that the model
	// found it in, if any.
	Name, Namespace string
	// Arguments are the text that the model wrote: a JSON object if all is
	// well, but it may be anything, also nothing.
	Arguments json.RawMessage
	// Custom reports that the tool is a custom one, so that Arguments are free
	// text.
	Custom bool
	// Hosted reports that the API makes the call itself, of a tool of the MCP
	// server that Namespace names, once [Answer.Approve] has allowed it.
	Hosted bool
	// Started reports, for a call that is pending in an [Answer], that its
	// handler had begun: what it does may have happened.
	Started bool
	// Repeated reports that the call was started in an earlier run, which was
	// interrupted, and is run again; see [Tool.Repeatable].
	Repeated bool
	// Decision is what was decided of a call that needs approval; see
	// [Answer.Approve].
	Decision *Decision

	caller callerID
	digest string     // of what approval was asked for
	inner  []innerRun // of its handler, if that stopped because a call within it needs approval
}

type callKey struct{}

func withCall(ctx context.Context, call Call) context.Context {
	if known, ok := ctx.Value(callKey{}).(*Call); ok && known.is(&call) {
		return ctx
	}
	own := call // so that call itself needs no memory
	return context.WithValue(ctx, callKey{}, &own)
}

// CallFrom returns the call that a handler answers, given the handler's context
// or one made from it. This is how the function of [NewTool], which gets its
// arguments alone, learns the call's ID. It reports false elsewhere. The Call is
// a copy, its Arguments too.
//
// An ID is unique within a response, and some servers use one again later, so a
// key that must never repeat needs the conversation's own name beside it.
func CallFrom(ctx context.Context) (Call, bool) {
	call, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return Call{}, false
	}
	return call.clone(), true
}

// is reports whether c and d are one call.
func (c *Call) is(d *Call) bool {
	return c.ID == d.ID && c.Turn == d.Turn && c.Name == d.Name && c.Namespace == d.Namespace && bytes.Equal(c.Arguments, d.Arguments) &&
		c.Custom == d.Custom && c.Hosted == d.Hosted && c.Started == d.Started && c.Repeated == d.Repeated && c.Decision == d.Decision &&
		c.caller == d.caller && c.digest == d.digest && len(c.inner) == 0 && len(d.inner) == 0
}

// clone is a copy of c that shares no memory with it.
func (c Call) clone() Call {
	c.Arguments = bytes.Clone(c.Arguments)
	if c.Decision != nil {
		d := *c.Decision
		c.Decision = &d
	}
	c.inner = slices.Clone(c.inner)
	for i := range c.inner {
		c.inner[i].Answer = c.inner[i].Answer.clone()
	}
	return c
}

// A CallResult is a call with its output.
type CallResult struct {
	Call
	Output
	// Duration is how long the handler ran.
	Duration time.Duration
	// Err is the error that the handler returned, a *[PanicError] if it
	// panicked. It is for the host: neither the model nor JSON has it.
	Err error
}

// clone is a copy of c that shares no memory with it but what Err may hold.
func (c CallResult) clone() CallResult {
	c.Call = c.Call.clone()
	c.Content = slices.Clone(c.Content)
	return c
}

// callJSON is the form of calls in JSON. Arguments that are a JSON object stay
// one, if a database keeps it; any other text is a string that holds it. Where encoding/json would spell
// the object in another way, Text has the model's own.
type callJSON struct {
	Turn       int             `json:"turn"`
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Namespace  string          `json:"namespace,omitempty"`
	Arguments  json.RawMessage `json:"arguments"`
	Text       string          `json:"arguments_text,omitempty"`
	Started    bool            `json:"started,omitempty"`
	Repeated   bool            `json:"repeated,omitempty"`
	Output     *string         `json:"output,omitempty"`
	IsError    *bool           `json:"is_error,omitempty"`
	DurationMS *float64        `json:"duration_ms,omitempty"`
	Content    []Content       `json:"content,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Custom     bool            `json:"custom,omitempty"`
	Hosted     bool            `json:"hosted,omitempty"`
	Caller     callerID        `json:"caller,omitempty"`
	Decision   *Decision       `json:"decision,omitempty"`
	Digest     string          `json:"digest,omitempty"`
	Inner      []innerRun      `json:"inner,omitempty"`
}

func (c Call) json() (callJSON, error) {
	j := callJSON{
		Turn: c.Turn, ID: c.ID, Name: c.Name, Namespace: c.Namespace, Started: c.Started, Repeated: c.Repeated,
		Custom: c.Custom, Hosted: c.Hosted, Caller: c.caller, Decision: c.Decision, Digest: c.digest, Inner: c.inner,
	}
	if t := bytes.TrimLeft(c.Arguments, " \t\r\n"); !c.Custom && len(t) > 0 && t[0] == '{' && utf8.Valid(t) && json.Valid(t) && storable(t) && !repeatsMember(t) {
		j.Arguments = c.Arguments
		if !bytes.Equal(compactJSON(c.Arguments), c.Arguments) {
			j.Text = string(c.Arguments)
		}
		return j, nil
	}
	var err error
	j.Arguments, err = json.Marshal(string(c.Arguments))
	return j, err
}

func (c *Call) set(j callJSON) error {
	args := compactJSON(j.Arguments)
	var err error
	if len(args) > 0 && args[0] == '"' {
		var s string
		err = json.Unmarshal(j.Arguments, &s)
		args = []byte(s)
	} else if j.Text != "" && bytes.Equal(compactJSON([]byte(j.Text)), args) {
		args = []byte(j.Text)
	}
	*c = Call{
		Turn: j.Turn, ID: j.ID, Name: j.Name, Namespace: j.Namespace, Arguments: args, Started: j.Started, Repeated: j.Repeated,
		Custom: j.Custom, Hosted: j.Hosted, Decision: j.Decision, caller: j.Caller, digest: j.Digest, inner: j.Inner,
	}
	return err
}

// MarshalJSON gives turn, id, name and arguments.
func (c Call) MarshalJSON() ([]byte, error) {
	j, err := c.json()
	if err != nil {
		return nil, err
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Call) UnmarshalJSON(data []byte) error {
	var j callJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	return c.set(j)
}

// MarshalJSON gives turn, id, name, arguments, output, is_error and
// duration_ms, in milliseconds.
func (c CallResult) MarshalJSON() ([]byte, error) {
	j, err := c.Call.json()
	if err != nil {
		return nil, err
	}
	ms := float64(c.Duration) / float64(time.Millisecond)
	j.Output, j.IsError, j.DurationMS = &c.Text, &c.IsError, &ms
	j.Content, j.Truncated = c.Content, c.Truncated
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *CallResult) UnmarshalJSON(data []byte) error {
	var j callJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*c = CallResult{Output: Output{Content: j.Content, Truncated: j.Truncated}}
	if j.Output != nil {
		c.Text = *j.Output
	}
	if j.IsError != nil {
		c.IsError = *j.IsError
	}
	if j.DurationMS != nil {
		c.Duration = time.Duration(math.Round(*j.DurationMS * float64(time.Millisecond)))
	}
	return c.Call.set(j)
}

// settled is the call as it stands in a result, where nothing is left to decide.
func (c Call) settled() Call {
	c.Started, c.Decision, c.digest, c.inner = false, nil, "", nil
	return c
}

// needsDecision reports whether the call must not run before it, or a call within
// it, was decided about.
func (c *Call) needsDecision() bool {
	if c.innerWaits() {
		return !c.innerDecided()
	}
	return c.digest != "" && c.Decision == nil
}

func (r *run) newCalls(calls []*item, turn int) []Call {
	out := make([]Call, len(calls))
	for i, it := range calls {
		out[i] = newCall(it)
		out[i].Turn = turn
	}
	return out
}

// newCall is the call that an item asks for.
func newCall(it *item) Call {
	c := Call{ID: it.CallID, Name: it.Name, Namespace: it.Namespace, Arguments: []byte(it.arguments()), Custom: it.Type == "custom_tool_call", caller: it.program()}
	if it.asksApproval() { // it is answered by its own ID
		c.ID, c.Namespace, c.Hosted = it.ID, it.ServerLabel, true
	}
	return c
}
