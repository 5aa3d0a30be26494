package fnloop

import (
	"context"
	"errors"
	"fmt"
)

// A StopReason says why a run ended.
type StopReason string

// What ends a run, and the error that Run, Continue and Events return with it.
// Sentinel errors are for [errors.Is], types for [errors.As]. With StopBusy and
// StopInvalid nothing was sent.
const (
	StopAnswered    StopReason = "answered"    // no error: the model answered
	StopMaxTurns    StopReason = "max_turns"   // ErrMaxTurns: the model asks for more turns than MaxTurns
	StopMaxCalls    StopReason = "max_calls"   // ErrMaxCalls: a response has more calls than MaxCalls
	StopMaxTokens   StopReason = "max_tokens"  // ErrMaxTokens: the run has used MaxTokens
	StopApproval    StopReason = "approval"    // ErrApproval: calls wait for a decision; they are Pending
	StopTruncated   StopReason = "truncated"   // ErrTruncated: the response was cut at a limit of tokens
	StopFiltered    StopReason = "filtered"    // ErrFiltered: the content filter cut the response
	StopIncomplete  StopReason = "incomplete"  // ErrIncomplete: the response was cut for another reason
	StopRefused     StopReason = "refused"     // ErrRefused: the model refused; its words are Text
	StopEmpty       StopReason = "empty"       // ErrEmpty: the response has no text
	StopMismatch    StopReason = "mismatch"    // ErrMismatch: the answer does not fit the type given to RunAs
	StopBadCalls    StopReason = "bad_calls"   // ErrBadCalls: turn after turn of calls that cannot be made
	StopRepeating   StopReason = "repeating"   // ErrRepeating: the same calls with the same outputs, MaxRepeats times
	StopAborted     StopReason = "aborted"     // *ToolError: a tool called Abort; or the error of a hook of the Loop
	StopRequest     StopReason = "request"     // *RequestError: no response came
	StopFailed      StopReason = "failed"      // *ResponseError: the response says that it failed
	StopStream      StopReason = "stream"      // *StreamError: the stream broke off or fell silent
	StopProtocol    StopReason = "protocol"    // *ProtocolError: what came is not a usable response
	StopUnsupported StopReason = "unsupported" // *UnsupportedItemError: the model asks for what a Loop cannot give
	StopCancelled   StopReason = "cancelled"   // context.Canceled, and the cause: the caller's context was cancelled
	StopDeadline    StopReason = "deadline"    // context.DeadlineExceeded, and the cause: the caller's deadline passed
	StopBusy        StopReason = "busy"        // ErrBusy: another run is at the same conversation object
	StopInvalid     StopReason = "invalid"     // *ConfigError: the Loop, a tool, the prompt or the Answer is wrong
)

// stops says which errors a reason stands for. The first that matches counts.
// Types come first: what an error of the caller's or of a handler's wraps does
// not say why the run ended.
var stops = []struct {
	reason  StopReason
	matches func(error) bool
}{
	{StopInvalid, typed[*ConfigError]},
	{StopAborted, typed[*ToolError]},
	{StopAborted, typed[*hookError]},
	{StopRequest, typed[*RequestError]},
	{StopFailed, typed[*ResponseError]},
	{StopStream, typed[*StreamError]},
	{StopProtocol, typed[*ProtocolError]},
	{StopUnsupported, typed[*UnsupportedItemError]},
	{StopDeadline, endedBy(context.DeadlineExceeded)},
	{StopCancelled, typed[*endError]},
	{StopMaxTurns, wraps(ErrMaxTurns)},
	{StopMaxCalls, wraps(ErrMaxCalls)},
	{StopMaxTokens, wraps(ErrMaxTokens)},
	{StopApproval, wraps(ErrApproval)},
	{StopBusy, wraps(ErrBusy)},
	{StopTruncated, wraps(ErrTruncated)},
	{StopFiltered, wraps(ErrFiltered)},
	{StopIncomplete, wraps(ErrIncomplete)},
	{StopRefused, wraps(ErrRefused)},
	{StopEmpty, wraps(ErrEmpty)},
	{StopMismatch, wraps(ErrMismatch)},
	{StopBadCalls, wraps(ErrBadCalls)},
	{StopRepeating, wraps(ErrRepeating)},
}

// stopReason is the reason that an error which ends a run stands for.
func stopReason(err error) StopReason {
	for _, s := range stops {
		if s.matches(err) {
			return s.reason
		}
	}
	return StopInvalid
}

func typed[E error](err error) bool {
	_, ok := err.(E)
	return ok
}

func wraps(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// endedBy matches the end of a run by the caller's context.
func endedBy(cause error) func(error) bool {
	return func(err error) bool {
		e, ok := err.(*endError)
		return ok && e.err == cause
	}
}

// Errors of runs that ended without an answer. The [Answer] beside them says the
// same in its field Stop and is good for [Loop.Continue].
var (
	// ErrMaxTurns: the model made calls after the last turn that
	// [Loop.MaxTurns] allows. They were not run and are the Answer's Pending.
	ErrMaxTurns = errors.New("fnloop: turn limit reached")
	// ErrMaxCalls: a response had more calls than [Loop.MaxCalls]. The first of
	// them were run, and the outputs of the others say that they were not.
	ErrMaxCalls = errors.New("fnloop: too many calls in one response")
	// ErrMaxTokens: the run has used [Loop.MaxTokens], and another request was
	// not sent.
	ErrMaxTokens = errors.New("fnloop: token limit reached")
	// ErrApproval: calls wait for a decision; see [Answer.Approve].
	ErrApproval = errors.New("fnloop: calls need approval")
	// ErrBusy: another run of this process is at the same conversation.
	ErrBusy = errors.New("fnloop: another run uses this conversation")
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
	// ErrBadCalls: four turns in a row had only calls of unknown tools or with
	// arguments that do not fit.
	ErrBadCalls = errors.New("fnloop: the model keeps making calls that cannot run")
	// ErrRepeating: the model made the same calls with the same outputs in more
	// than [Loop.MaxRepeats] turns in a row.
	ErrRepeating = errors.New("fnloop: the model repeats itself")
)

// An endError says that the caller's context ended the run.
type endError struct {
	err  error // of the context
	why  error // its cause
	last error // of the request that was being sent, or sent again; may be nil
}

// ended is the error of a run whose context has ended, while a request failed
// or was under way if last is not nil.
func (r *run) ended(ctx context.Context, last error) error {
	return &endError{err: ctx.Err(), why: context.Cause(ctx), last: last}
}

func (e *endError) Error() string {
	s := "fnloop: run ended: " + e.why.Error()
	if e.last != nil {
		s += ", after " + e.last.Error()
	}
	return s
}

func (e *endError) Unwrap() []error {
	if e.last != nil {
		return []error{e.err, e.why, e.last}
	}
	return []error{e.err, e.why}
}
