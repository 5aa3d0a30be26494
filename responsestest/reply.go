package responsestest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// A Reply is one entry of a script: what the server does with one request that it has accepted. The
// functions of this package make the common ones; set fields for the rest. A Reply is not changed by being
// played and can be used in several scripts.
type Reply struct {
	// Output holds the output items, each a JSON object. The server adds what an item lacks: an id, a
	// status, a call_id, the namespace of the tool, the encrypted content of reasoning. None is a response
	// with an empty output.
	Output []json.RawMessage

	// Status is the status of the response. Empty means completed.
	Status string

	// Reason is the reason given in incomplete_details.
	Reason string

	// Code and Message make the error of a response whose Status is failed.
	Code, Message string

	// Usage is the reported usage. Nil means an estimate from the length of the texts.
	Usage *Usage

	// NoUsage leaves the usage out of the response.
	NoUsage bool

	// Delay is the time from the request to the answer; for a background response, to its completion. A long
	// one is a server that hangs: the wait ends when the client gives up or the server is closed.
	Delay time.Duration

	// Pause is the time between two events of a stream.
	Pause time.Duration

	// Cut breaks the answer off. A response that is cut is not stored, save with [Unsent]: the service
	// cancels a response whose connection is gone.
	Cut Cut

	// CutAfter is the number of events sent before the cut of a stream. Zero means half of them.
	CutAfter int

	// Edit rewrites the events of a stream before they are numbered and sent. Nil leaves them as they are.
	Edit func([]Event) []Event

	// Plain answers a streaming request with the plain JSON document. On a WebSocket there are only events.
	Plain bool

	// Forced plays the reply also to a request that does not allow it: a call of a tool that the request
	// does not offer, several calls where parallel_tool_calls is false, a call where tool_choice is none.
	// Without it such a reply is an error of the script.
	Forced bool

	// Raw, if not nil, is sent instead of a response. Nothing is stored. On a WebSocket a Raw with the status
	// of an error becomes an error message, and of any other its body is sent as a message.
	Raw *RawReply

	// Func, if not nil, computes the reply. The other fields are ignored. It may be called by several
	// goroutines at once.
	Func func(*Turn) Reply

	always    bool // the entry is never used up
	exhausted bool // there is no reply
}

// Usage counts the tokens of one response. The total is the sum of input and output; cached and reasoning
// tokens are a part of these.
type Usage struct {
	InputTokens, CachedTokens, OutputTokens, ReasoningTokens int64
}

// A RawReply is an HTTP reply that is no response of a model.
type RawReply struct {
	Status int // zero closes the connection without a byte
	Header http.Header
	Body   string
}

// A Cut says how an answer breaks off. Where it ends the connection, that is the WebSocket if the request
// came on one. The events that are errors leave a WebSocket open.
type Cut int

const (
	Whole       Cut = iota // not at all
	Unsent                 // the response is stored, then the connection is closed before the first byte
	EOF                    // the body ends where the cut is, in good order
	HalfLine               // as EOF, half way through a line
	Reset                  // the connection is closed before the body's end
	Freeze                 // nothing more comes until the client gives up
	FlatError              // an error event with code and message beside its type, then the end
	NestedError            // an error event with code and message in an error object, then the end
	FailedEvent            // the nested error event, a response.failed event, then the end
	HangUp                 // not at all, but the connection ends with the answer
)

// whole reports whether the client gets all of the answer.
func (c Cut) whole() bool { return c == Whole || c == HangUp }

// Text is a message of the assistant.
func Text(text string) Reply { return message("output_text", "text", text, "") }

// Commentary is a message in which the model says what it is about to do; it is no final answer.
func Commentary(text string) Reply { return message("output_text", "text", text, "commentary") }

// Refusal is a message whose only content is a refusal.
func Refusal(text string) Reply { return message("refusal", "refusal", text, "") }

func message(typ, member, text, phase string) Reply {
	b := []byte(`{"type":"message","role":"assistant",`)
	if phase != "" {
		b = append(append(append(b, `"phase":`...), quote(phase)...), ',')
	}
	b = append(b, `"content":[{"type":"`+typ+`",`...)
	if typ == "output_text" {
		b = append(b, `"annotations":[],"logprobs":[],`...)
	}
	b = append(append(append(b, `"`+member+`":`...), quote(text)...), `}]}`...)
	return Item(string(b))
}

// Reasoning is a reasoning item. An empty summary is usual: the service sends one only when asked.
func Reasoning(summary string) Reply {
	if summary == "" {
		return Item(`{"type":"reasoning","summary":[]}`)
	}
	return Item(`{"type":"reasoning","summary":[{"type":"summary_text","text":` + string(quote(summary)) + `}]}`)
}

// Call is a call of a function tool. The arguments are sent as they are, valid JSON or not. An empty id
// stands for one that the server makes up.
func Call(id, name, arguments string) Reply {
	b := []byte(`{"type":"function_call","arguments":`)
	b = appendQuoted(b, arguments)
	b = append(appendQuoted(append(b, `,"call_id":`...), id), `,"name":`...)
	return Item(string(append(appendQuoted(b, name), '}')))
}

// CustomCall is a call of a custom tool, whose input is free text.
func CustomCall(id, name, input string) Reply {
	b := []byte(`{"type":"custom_tool_call","call_id":`)
	b = append(appendQuoted(b, id), `,"input":`...)
	b = append(appendQuoted(b, input), `,"name":`...)
	return Item(string(append(appendQuoted(b, name), '}')))
}

// Item is an output item written as a JSON object, of any type, known or not. It panics when the text is
// no JSON object, which is an error of the test.
func Item(text string) Reply {
	raw := json.RawMessage(bytes.TrimSpace([]byte(text)))
	if !json.Valid(raw) || kindOf(raw) != kindObject {
		panic("responsestest: not a JSON object: " + strconv.Quote(text))
	}
	return Reply{Output: []json.RawMessage{raw}}
}

// Join is one response with the output of all replies, in order. The other fields are those of the last
// reply.
func Join(replies ...Reply) Reply {
	var joined Reply
	var output []json.RawMessage
	for _, r := range replies {
		output = append(output, r.Output...)
		joined = r
	}
	joined.Output = output
	return joined
}

// Incomplete is a response that ended early, with what it had of its output. The reason is one of
// max_output_tokens, content_filter and others; the last item of the output is marked incomplete.
func Incomplete(reason string, output ...Reply) Reply {
	r := Join(output...)
	r.Status, r.Reason = "incomplete", reason
	return r
}

// Failed is a response that failed while it was made, which is an answer with HTTP status 200.
func Failed(code, message string, output ...Reply) Reply {
	r := Join(output...)
	r.Status, r.Code, r.Message = "failed", code, message
	return r
}

// Cancelled is a response that was cancelled.
func Cancelled(output ...Reply) Reply {
	r := Join(output...)
	r.Status = "cancelled"
	return r
}

// HTTP is an HTTP reply written out: a page of a proxy, an error of the service, an empty body. An
// empty body and one that begins with a brace or a bracket are sent as JSON, any other as HTML; headers,
// given as name and value in turn, override that.
func HTTP(status int, body string, header ...string) Reply {
	h := make(http.Header)
	h.Set("Content-Type", "text/html")
	if body == "" || body[0] == '{' || body[0] == '[' {
		h.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return Reply{Raw: &RawReply{Status: status, Header: h, Body: body}}
}

// Error is an error reply of the service, with a type that fits the status.
func Error(status int, code, message string, header ...string) Reply {
	e := refusal{Status: status, Body: errorBody{Message: message, Type: "invalid_request_error", Code: optional(code)}}
	switch {
	case status >= 500:
		e.Body.Type = "server_error"
	case code == "rate_limit_exceeded":
		e.Body.Type = "tokens"
	case status == http.StatusTooManyRequests:
		e.Body.Type = "insufficient_quota"
	}
	return HTTP(status, string(e.json()), header...)
}

// RateLimited is a 429 that asks for a wait, in a Retry-After header rounded up to seconds and in a
// Retry-After-Ms header. There is neither when the wait is zero.
func RateLimited(wait time.Duration) Reply {
	const text = "Rate limit reached for stub-1 in organization org-stub on tokens per min (TPM): " +
		"Limit 1000, Used 990, Requested 20. Please try again in "
	if wait <= 0 {
		return Error(http.StatusTooManyRequests, "rate_limit_exceeded", text+"1s.")
	}
	seconds := int64((wait + time.Second - 1) / time.Second)
	return Error(http.StatusTooManyRequests, "rate_limit_exceeded", text+wait.String()+".",
		"Retry-After", strconv.FormatInt(seconds, 10), "Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
}

// ServerError is a 500 of the service.
func ServerError() Reply {
	return Error(http.StatusInternalServerError, "", "The server had an error processing your request. "+
		"Sorry about that! You can retry your request.")
}

// Drop closes the connection without an answer. Nothing is stored. A Reply whose Cut is [Unsent] does
// the same after the response was stored.
func Drop() Reply { return Reply{Raw: new(RawReply)} }

// Func is a reply that is computed when its turn comes.
func Func(f func(*Turn) Reply) Reply { return Reply{Func: f} }

// Always is a reply that is computed for this request and all that follow. It is never used up, so it
// should be the last of its script.
func Always(f func(*Turn) Reply) Reply { return Reply{Func: f, always: true} }

// After returns the reply with its Delay set.
func (r Reply) After(delay time.Duration) Reply {
	r.Delay = delay
	return r
}

// Broken returns the reply with its Cut and CutAfter set.
func (r Reply) Broken(cut Cut, after int) Reply {
	r.Cut, r.CutAfter = cut, after
	return r
}

// Paced returns the reply with its Pause set.
func (r Reply) Paced(pause time.Duration) Reply {
	r.Pause = pause
	return r
}

// Edited returns the reply with its Edit set.
func (r Reply) Edited(edit func([]Event) []Event) Reply {
	r.Edit = edit
	return r
}

// Force returns the reply with Forced set.
func (r Reply) Force() Reply {
	r.Forced = true
	return r
}
