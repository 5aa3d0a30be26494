package fnloop

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors that say why a run ended without an answer, but for ErrUnknownTool. Test
// for them with [errors.Is]; the [Answer] beside them has the same in its Stop
// field and is good for [Loop.Continue].
var (
	// ErrMaxTurns: the model asked for another round of calls after the last
	// one allowed. They were not run and are the Answer's Pending.
	ErrMaxTurns = errors.New("fnloop: turn limit reached")
	// ErrApproval: calls wait for a decision; see [Answer.Approve].
	ErrApproval = errors.New("fnloop: calls need approval")
	// ErrBusy: another run of this process is at the same conversation.
	ErrBusy = errors.New("fnloop: another run is at this conversation")
	// ErrIncomplete: the response was cut short. ErrTruncated and ErrFiltered
	// are its kinds that have a name.
	ErrIncomplete = errors.New("fnloop: incomplete response")
	// ErrTruncated: max_output_tokens or the context window cut the response.
	ErrTruncated = fmt.Errorf("%w: cut at the limit of tokens", ErrIncomplete)
	// ErrFiltered: the content filter cut the response.
	ErrFiltered = fmt.Errorf("%w: cut by the content filter", ErrIncomplete)
	// ErrRefused: the model refused. Its words are the Answer's Text.
	ErrRefused = errors.New("fnloop: the model refused")
	// ErrEmpty: the response was completed without any text for the user.
	ErrEmpty = errors.New("fnloop: empty answer")
	// ErrBadCalls: nothing but unknown tools and arguments that do not fit, for
	// several rounds in a row.
	ErrBadCalls = errors.New("fnloop: the model keeps calling tools wrongly")
	// ErrUnknownTool is in [CallResult.Err] of a call of a tool that the request
	// did not offer. The model was told which there are, and the run goes on.
	ErrUnknownTool = errors.New("fnloop: unknown tool")
	// ErrRepeating: the model made the same calls with the same outputs in more
	// than [Loop.MaxRepeats] rounds in a row.
	ErrRepeating = errors.New("fnloop: the model repeats itself")
)

// A ConfigError says what is wrong with a Loop, a Tool, a prompt or an Answer
// to continue from. Nothing was sent.
type ConfigError struct {
	Field  string // such as "Loop.Client" or "prompt"
	Reason string
	Err    error // what was wrong, if there is more to it than Reason says
}

func (e *ConfigError) Error() string { return "fnloop: " + e.Field + ": " + e.Reason }

// Unwrap returns e.Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// A RequestError says why a request got no response: the network failed, or
// the API answered with an error. It wraps the last attempt's error, so that
// errors.As finds a *responses.Error of openai-go in it.
type RequestError struct {
	// StatusCode is that of the last answer, or zero when there was none.
	StatusCode int
	// Code, Message, Param and RequestID are what the API said of it, each
	// empty when it did not.
	Code, Message, Param, RequestID string
	// RetryAfter is how long the last answer asked to wait, or zero.
	RetryAfter time.Duration
	// Attempts is how often the request was sent.
	Attempts int
	// MaybeDelivered reports that the API may have made a response, and charged
	// for it, although none arrived.
	MaybeDelivered bool
	// Err is the last attempt's error.
	Err error
}

func (e *RequestError) Error() string {
	var b strings.Builder
	b.WriteString("fnloop: request: ")
	b.WriteString(e.Err.Error())
	if e.Code != "" {
		fmt.Fprintf(&b, ": %s", e.Code)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.Param != "" {
		fmt.Fprintf(&b, " (param %s)", e.Param)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (asks to wait %v)", e.RetryAfter)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (after %d attempts)", e.Attempts)
	}
	if e.MaybeDelivered {
		b.WriteString(" (may have been delivered)")
	}
	return b.String()
}

// Unwrap returns e.Err.
func (e *RequestError) Unwrap() error { return e.Err }

// A ResponseError is a failure that came as a response with HTTP status 200:
// its status is failed or cancelled.
type ResponseError struct {
	ID      string // of the response
	Status  string // "failed" or "cancelled"
	Code    string // such as "server_error" or "rate_limit_exceeded"; an open set
	Message string
}

func (e *ResponseError) Error() string {
	s := "fnloop: response: " + e.Status
	if e.ID != "" {
		s = fmt.Sprintf("fnloop: response %s: %s", e.ID, e.Status)
	}
	if e.Code != "" {
		s += ": " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// A ProtocolError is an answer that is no usable response: a page of HTML, a
// response without a status, calls that cannot be told apart. Nothing of it was
// run.
type ProtocolError struct {
	ID     string // of the response, if it had one
	Reason string
}

func (e *ProtocolError) Error() string {
	if e.ID != "" {
		return fmt.Sprintf("fnloop: response %s: %s", e.ID, e.Reason)
	}
	return "fnloop: response: " + e.Reason
}

// An UnsupportedItemError is an item in a response that only the client can
// answer and a Loop cannot, such as a computer_call. The response's calls were
// not run, and the conversation continues from before it.
type UnsupportedItemError struct {
	Type string // of the item
	ID   string // of the item
}

func (e *UnsupportedItemError) Error() string {
	return fmt.Sprintf("fnloop: item %s of type %q needs an answer that a Loop cannot give; do not offer its tool to the model", e.ID, e.Type)
}

// A ToolError is what a tool stopped the run with; see [Abort].
type ToolError struct {
	Call Call
	Err  error
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("fnloop: tool %s (call %s): %v", e.Call.Name, e.Call.ID, e.Err)
}

// Unwrap returns e.Err.
func (e *ToolError) Unwrap() error { return e.Err }

// An ArgumentsError says why arguments were refused. Its text is for the model.
type ArgumentsError struct {
	Tool   string // its name
	Reason string
}

func (e *ArgumentsError) Error() string { return e.Reason }

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

// A ProgramError says why a program was not started: it cannot be run by any
// runner of its kind, and the fault is the program's.
type ProgramError struct {
	Field  string // "source", "stdin", "limits.time", "limits.memory"
	Reason string // what is wrong with it
}

func (e *ProgramError) Error() string { return "program: " + e.Field + ": " + e.Reason }

func checkSource(source string) error {
	if i := strings.IndexByte(source, 0); i >= 0 {
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("NUL byte at offset %d", i)}
	}
	if i := invalidUTF8(source); i >= 0 {
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("invalid UTF-8 at offset %d", i)}
	}
	return nil
}

// invalidUTF8 is the offset of the first invalid byte in s, or -1.
func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}
