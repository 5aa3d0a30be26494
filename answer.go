package fnloop

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"
)

// A StopReason says why a run ended.
type StopReason string

// What ends a run. All but StopAnswered come with an error.
const (
	StopAnswered    StopReason = "answered"    // the model answered
	StopMaxTurns    StopReason = "max_turns"   // ErrMaxTurns
	StopTruncated   StopReason = "truncated"   // ErrTruncated
	StopFiltered    StopReason = "filtered"    // ErrFiltered
	StopIncomplete  StopReason = "incomplete"  // ErrIncomplete for any other reason
	StopRefused     StopReason = "refused"     // ErrRefused
	StopEmpty       StopReason = "empty"       // ErrEmpty
	StopMismatch    StopReason = "mismatch"    // ErrMismatch
	StopBadCalls    StopReason = "bad_calls"   // ErrBadCalls
	StopRepeating   StopReason = "repeating"   // ErrRepeating
	StopFailed      StopReason = "failed"      // *ResponseError
	StopRequest     StopReason = "request"     // *RequestError
	StopStream      StopReason = "stream"      // *StreamError
	StopProtocol    StopReason = "protocol"    // *ProtocolError
	StopUnsupported StopReason = "unsupported" // *UnsupportedItemError
	StopApproval    StopReason = "approval"    // ErrApproval
	StopBusy        StopReason = "busy"        // ErrBusy, nothing was sent
	StopAborted     StopReason = "aborted"     // *ToolError, or an error of one of the Loop's hooks
	StopCancelled   StopReason = "cancelled"   // the caller's context was cancelled
	StopDeadline    StopReason = "deadline"    // the caller's deadline passed
	StopInvalid     StopReason = "invalid"     // *ConfigError, nothing was sent
)

// Usage counts tokens, summed over all responses of a run, failed ones too.
type Usage struct {
	InputTokens     int64 `json:"input_tokens"`
	CachedTokens    int64 `json:"cached_tokens"` // part of InputTokens
	OutputTokens    int64 `json:"output_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"` // part of OutputTokens
	TotalTokens     int64 `json:"total_tokens"`
}

func (u *Usage) add(v Usage) {
	u.InputTokens += v.InputTokens
	u.CachedTokens += v.CachedTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.TotalTokens += v.TotalTokens
}

// An Answer is where a run got to, whatever stopped it. It round-trips through
// JSON, so that a back end can store it with the conversation, and
// [Loop.Continue] picks up from it.
//
// The counts and calls are those of one run; the conversation is behind ID.
type Answer struct {
	// Text is the model's answer, or its words when it refused.
	Text string `json:"text"`
	// Stop is why the run ended.
	Stop StopReason `json:"stop"`
	// ID is the response that the conversation continues from: the last one
	// that was completed. Empty means that there is none yet.
	ID string `json:"id"`
	// Turns is how many rounds of calls were run.
	Turns int `json:"turns"`
	// Usage counts the tokens of all responses.
	Usage Usage `json:"usage"`
	// Pending are the calls of the response ID that have no output.
	Pending []Call `json:"pending"`
	// Calls are those that have one, in order.
	Calls []CallResult `json:"calls"`

	// Open are the IDs of the calls of the response ID whose outputs were not
	// yet sent, in call order. Continue sends what Calls has of them and says
	// of those in Pending that they were not run.
	Open []string `json:"open,omitempty"`
	// Conversation is the conversation of a Loop whose State is InConversation.
	Conversation string `json:"conversation,omitempty"`
	// Items are the whole conversation, as the API's items, where the Loop keeps
	// it: when it is Stateless or has KeepItems set.
	Items []json.RawMessage `json:"items,omitempty"`
	// Prompt is a prompt that no response has taken in: the run ended before.
	// Continue sends it again when it gets no other.
	Prompt string `json:"prompt,omitempty"`
	// Paused says that the response ID is that of a program which OpenAI runs
	// and which has not ended. Continue lets it go on, with or without a prompt.
	Paused bool `json:"paused,omitempty"`
	// Partial is the text of a response that is no answer: it was cut short, or
	// came with calls that were not run.
	Partial string `json:"partial,omitempty"`
	// Responses is how many responses came, and Unmetered how many of them did
	// not say what they used.
	Responses int `json:"responses"`
	Unmetered int `json:"unmetered,omitempty"`
	// Abandoned is how many handlers were left behind because they did not
	// return when their context ended.
	Abandoned int `json:"abandoned,omitempty"`
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

// callJSON is the form of calls in JSON. Arguments that are a JSON object stay
// one, any other text is a string that holds it. Where encoding/json would spell
// the object in another way, Text has the model's own.
type callJSON struct {
	Turn       int             `json:"turn"`
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Namespace  string          `json:"namespace,omitempty"`
	Arguments  json.RawMessage `json:"arguments"`
	Text       string          `json:"arguments_text,omitempty"`
	Started    bool            `json:"started,omitempty"`
	Output     *string         `json:"output,omitempty"`
	IsError    *bool           `json:"is_error,omitempty"`
	DurationMS *float64        `json:"duration_ms,omitempty"`
	Content    []Content       `json:"content,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Custom     bool            `json:"custom,omitempty"`
	Caller     callerID        `json:"caller,omitempty"`
	Decision   *Decision       `json:"decision,omitempty"`
	Digest     string          `json:"digest,omitempty"`
}

func (c Call) json() (callJSON, error) {
	j := callJSON{
		Turn: c.Turn, ID: c.ID, Name: c.Name, Namespace: c.Namespace, Started: c.Started,
		Custom: c.Custom, Caller: c.caller, Decision: c.Decision, Digest: c.digest,
	}
	if t := bytes.TrimLeft(c.Arguments, " \t\r\n"); !c.Custom && len(t) > 0 && t[0] == '{' && utf8.Valid(t) && json.Valid(t) {
		j.Arguments = c.Arguments
		if !bytes.Equal(respell(c.Arguments), c.Arguments) {
			j.Text = string(c.Arguments)
		}
		return j, nil
	}
	var err error
	j.Arguments, err = json.Marshal(string(c.Arguments))
	return j, err
}

func (c *Call) set(j callJSON) error {
	args := respell(j.Arguments)
	var err error
	if len(args) > 0 && args[0] == '"' {
		var s string
		err = json.Unmarshal(j.Arguments, &s)
		args = []byte(s)
	} else if j.Text != "" && bytes.Equal(respell([]byte(j.Text)), args) {
		args = []byte(j.Text)
	}
	*c = Call{
		Turn: j.Turn, ID: j.ID, Name: j.Name, Namespace: j.Namespace, Arguments: args, Started: j.Started,
		Custom: j.Custom, Decision: j.Decision, caller: j.Caller, digest: j.Digest,
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

// respell spells JSON in one way: without white space between its tokens, and
// with the characters that json.Marshal escapes for HTML as they are.
func respell(data []byte) json.RawMessage {
	var buf bytes.Buffer
	if json.Compact(&buf, data) != nil {
		return data
	}
	return unescapeHTML(buf.Bytes())
}

// unescapeHTML takes back what json.Marshal does to the text of a RawMessage.
func unescapeHTML(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u00`)) && !bytes.Contains(data, []byte(`\u202`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' || i+1 == len(data) {
			out = append(out, data[i])
			continue
		}
		if i+6 <= len(data) {
			switch string(data[i : i+6]) {
			case `\u003c`:
				out, i = append(out, '<'), i+5
				continue
			case `\u003e`:
				out, i = append(out, '>'), i+5
				continue
			case `\u0026`:
				out, i = append(out, '&'), i+5
				continue
			case `\u2028`:
				out, i = append(out, "\u2028"...), i+5
				continue
			case `\u2029`:
				out, i = append(out, "\u2029"...), i+5
				continue
			}
		}
		out, i = append(out, data[i], data[i+1]), i+1
	}
	return out
}
