package fnloop

import (
	"context"
	"errors"
	"fmt"
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

// stopReason gives the word for an error that ends a run. What an error of the
// caller's or of a handler's wraps does not count, so types come first.
func stopReason(err error) StopReason {
	switch err := err.(type) {
	case *ConfigError:
		return StopInvalid
	case *ToolError, *hookError:
		return StopAborted
	case *RequestError:
		return StopRequest
	case *ResponseError:
		return StopFailed
	case *StreamError:
		return StopStream
	case *ProtocolError:
		return StopProtocol
	case *UnsupportedItemError:
		return StopUnsupported
	case *endError:
		return err.stop
	}
	for _, s := range []struct {
		err  error
		stop StopReason
	}{
		{ErrMaxTurns, StopMaxTurns},
		{ErrApproval, StopApproval},
		{ErrBusy, StopBusy},
		{ErrTruncated, StopTruncated},
		{ErrFiltered, StopFiltered},
		{ErrIncomplete, StopIncomplete},
		{ErrRefused, StopRefused},
		{ErrEmpty, StopEmpty},
		{ErrBadCalls, StopBadCalls},
		{ErrRepeating, StopRepeating},
	} {
		if errors.Is(err, s.err) {
			return s.stop
		}
	}
	return StopInvalid
}

// An endError says that the caller's context ended the run.
type endError struct {
	stop StopReason
	err  error // of the context
	why  error // its cause
	last error // of the request that was being sent, or sent again; may be nil
}

// ended is the error of a run whose context has ended, while a request failed
// or was under way if last is not nil.
func (r *run) ended(ctx context.Context, last error) error {
	e := &endError{stop: StopCancelled, err: ctx.Err(), why: context.Cause(ctx), last: last}
	if e.err == context.DeadlineExceeded {
		e.stop = StopDeadline
	}
	return e
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
