package runtimecloud

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
)

// brokenCodes are those that no program of the runner can do without: the account,
// the key or the fields of the runner have to change.
var brokenCodes = []string{
	"unauthorized", "forbidden", "permission_denied", "invalid_region", "image_not_found", "snapshot_not_found",
	"invalid_env", "env_too_large",
}

// broken marks an error that all programs would meet with [fnloop.Unavailable]: a
// field or a key that is wrong, no money, something that is switched off, or a
// service that does not answer although it was asked again and again. Others are
// of one call, or may be gone with the next.
func broken(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, fnloop.ErrUnavailable) {
		return err
	}
	_, config := errors.AsType[*ConfigError](err)
	_, packages := errors.AsType[*fnloop.PackageError](err)
	if config || packages || errors.Is(err, ErrClosed) {
		return fnloop.Unavailable(err)
	}
	e, ok := asError(err)
	if !ok {
		return err
	}
	op, dialled := errors.AsType[*net.OpError](e.Err)
	dialled = dialled && op.Op == "dial"
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusPaymentRequired, e.Status == http.StatusForbidden,
		slices.Contains(brokenCodes, e.Code), slices.Contains(finalCodes, e.Code),
		e.Op == "create" && !e.wantsRoom() && (e.Status == 0 || e.redirected() || e.Status >= 500), dialled:
		return fnloop.Unavailable(err)
	}
	return err
}

// ErrClosed is what a [Runner] answers after its Close.
var ErrClosed = errors.New("runtimecloud: runner is closed")

// A ConfigError says which field of a [Runner], or which environment variable
// read in its place, cannot be used. Its text never holds the value of a key.
type ConfigError struct {
	Field  string // "Key", "URL", "Network.Allow"
	Reason string // what is wrong with it and how to fix it
}

func (e *ConfigError) Error() string { return "runtimecloud: " + e.Field + ": " + e.Reason }

// An Error is a call to the API that failed: the API refused it, or no answer
// came. It never holds the API key.
type Error struct {
	// Op is the step that failed, such as "create", "write" or "exec".
	Op string
	// Code is the API's name for the failure, such as "insufficient_funds". The
	// names that the API used before October 2026 are given by their successors.
	// The client's own names are "connection_error", "timeout", "start_failed",
	// "stream_failed" and, for an answer that is not the API's, "request_failed".
	Code string
	// Status is the HTTP status, or zero when no answer came.
	Status int
	// Message and Hint are the API's words, for a person.
	Message, Hint string
	// Details are what the API adds for some codes, as it sent them, or nil.
	Details json.RawMessage
	// RequestID finds the request in the API's records; quote it to support.
	RequestID string
	// Sandbox is the ID of the sandbox that the call was about, if there was one.
	Sandbox string
	// Err is what kept the answer from coming, such as the context's error.
	Err error

	retryAfter time.Duration // what the API asks for, or negative
	retryBody  bool          // it asks in the body and not in the header
	late       bool          // in an answer that had begun as a success
	uncertain  bool          // the request may have been carried out
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("runtimecloud: " + e.Op)
	if e.Code != "" {
		b.WriteString(": " + e.Code)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	switch {
	case e.RequestID != "" && e.Sandbox != "":
		fmt.Fprintf(&b, " [request %s, sandbox %s]", e.RequestID, e.Sandbox)
	case e.RequestID != "":
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	case e.Sandbox != "":
		fmt.Fprintf(&b, " [sandbox %s]", e.Sandbox)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same program may well succeed later: there was
// no room, too much was asked at once, or the service could not be reached. It
// is false where the account, the key or the request must change first.
func (e *Error) Retryable() bool {
	if e.Status == 0 {
		return e.Code == codeConnection || e.Code == codeTimeout
	}
	return e.wantsRoom() || transient(e.Status) && !slices.Contains(finalCodes, e.Code)
}

// A SetupError says that the command of a [Setup] ran and failed, so that the
// program was not started.
type SetupError struct {
	Argv     []string
	ExitCode *int   // nil when the command was killed
	TimedOut bool   // at its time limit
	Output   string // what it printed, cut in the middle where it is long
	Sandbox  string
}

func (e *SetupError) Error() string {
	s := fmt.Sprintf("runtimecloud: setup: %q %s", e.Argv, e.how())
	if out := lastLines(e.Output, 4); out != "" {
		s += ": " + out
	}
	return s
}

// how says how the command ended.
func (e *SetupError) how() string {
	switch {
	case e.TimedOut:
		return "reached its time limit"
	case e.ExitCode != nil:
		return fmt.Sprintf("exited with status %d", *e.ExitCode)
	}
	return "was killed"
}

// lastLines are the last few lines of what a command printed: pip says why on
// more than one.
func lastLines(out string, lines int) string {
	const most = 2000
	out = strings.TrimSpace(out)
	at := len(out)
	for range lines {
		if at = strings.LastIndexByte(out[:at], '\n'); at < 0 {
			break
		}
	}
	out = out[at+1:]
	if len(out) > most {
		out = "…" + strings.ToValidUTF8(out[len(out)-most:], "")
	}
	return out
}

// A LeakError names what could not be removed and may cost money until it is:
// delete it by hand, or run [Runner.Sweep] once the service answers again.
type LeakError struct {
	Sandboxes []string // IDs of sandboxes that could not be deleted
	Runs      []string // values of the label "run" under which a sandbox may exist
}

func (e *LeakError) Error() string {
	var parts []string
	if len(e.Sandboxes) > 0 {
		parts = append(parts, "sandboxes "+strings.Join(e.Sandboxes, ", "))
	}
	if len(e.Runs) > 0 {
		parts = append(parts, "what has the labels run="+strings.Join(e.Runs, ", run="))
	}
	return "runtimecloud: not deleted: " + strings.Join(parts, " and ")
}

// Codes that the client makes itself.
const (
	codeConnection = "connection_error"
	codeTimeout    = "timeout"
	codeStart      = "start_failed"
	codeStream     = "stream_failed"
	codeRequest    = "request_failed"
)

// renamed has the codes that October 2026 replaced. Both names are in use.
var renamed = map[string]string{
	"trial_busy":         "no_credit_running_limit",
	"trial_capacity":     "no_credit_capacity_full",
	"trial_domain_limit": "no_credit_domain_limit",
	"invalid_trial":      "no_credit_size_limit",
	"trial_build_limit":  "no_credit_build_limit",
	"trial_exhausted":    "included_usage_used_up",
	"trial_unavailable":  "included_usage_unavailable",
	"lease_too_short":    "time_limit_too_short",
	"fence_conflict":     "busy",
}

// roomCodes refuse a sandbox for now, with 409 or 503. A refusal is not
// remembered under its idempotency key, so the same request may be sent again.
var roomCodes = []string{
	"no_capacity", "no_credit_running_limit", "no_credit_total_limit", "no_credit_domain_limit",
	"no_credit_capacity_full", "quota_exceeded", "volume_releasing",
}

// finalCodes come with 503 and stand for something that is switched off.
var finalCodes = []string{
	"unavailable", "unsupported", "fork_unavailable", "previews_unavailable", "network_unavailable",
	"network_rules_unavailable", "secrets_unavailable", "identity_unavailable", "env_unavailable",
}

// goneCodes say that the sandbox of a call no longer runs or exists.
var goneCodes = []string{"not_found", "not_running", "sandbox_stopped", "sandbox_paused", "guest_failed", "host_unknown"}

func transient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (e *Error) wantsRoom() bool {
	if !slices.Contains(roomCodes, e.Code) {
		return false
	}
	var d struct{ Field string }
	return json.Unmarshal(e.Details, &d) != nil || d.Field != "count"
}

// nothingRan reports whether the refusal proves that the request was not
// carried out, so that it may be repeated for as long as the call has time.
func (e *Error) nothingRan() bool {
	if e.Status != http.StatusTooManyRequests && e.Status != http.StatusServiceUnavailable {
		return false
	}
	return e.Code == "guest_busy" || !e.late && (e.Code == "busy" || e.Code == "rate_limited")
}

// mayHaveRun reports whether a request that got e for an answer may have been
// carried out all the same.
func (e *Error) mayHaveRun() bool {
	if e.Status >= 500 {
		return !e.nothingRan() && !e.wantsRoom() && !slices.Contains(finalCodes, e.Code)
	}
	if op, ok := errors.AsType[*net.OpError](e.Err); ok && op.Op == "dial" {
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return false
	}
	return e.Status < 400
}

// lost reports whether the sandbox of the call may be no more.
func (e *Error) lost() bool {
	return e.Status == 0 || slices.Contains(goneCodes, e.Code)
}

// wireError is the envelope that the API puts around every failure.
type wireError struct {
	Code         string          `json:"code"`
	Status       int             `json:"status"`
	Message      string          `json:"message"`
	Hint         string          `json:"hint"`
	Details      json.RawMessage `json:"details"`
	RequestID    string          `json:"requestId"`
	RetryAfterMs *float64        `json:"retryAfterMs"`
}

// toError makes an Error of w. The status of the answer counts unless there is
// none of a failure, as in a late answer or a stream.
func (w *wireError) toError(status int) *Error {
	if status < 400 {
		status = cmp.Or(w.Status, http.StatusInternalServerError)
		if status < 400 {
			status = http.StatusInternalServerError
		}
	}
	e := &Error{
		Code: w.Code, Status: status, Message: w.Message, Hint: w.Hint,
		Details: w.Details, RequestID: w.RequestID, retryAfter: -1,
	}
	if successor, ok := renamed[e.Code]; ok {
		e.Code = successor
	}
	if w.RetryAfterMs != nil && *w.RetryAfterMs >= 0 {
		e.retryAfter = milliseconds(*w.RetryAfterMs)
		e.retryBody = true
	}
	return e
}

func milliseconds(ms float64) time.Duration {
	return time.Duration(min(ms, 1e9) * float64(time.Millisecond))
}
