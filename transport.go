package fnloop

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// maxResponse bounds what is read of one response, in bytes. The largest that
// OpenAI's service gives are images of a few dozen MiB.
const maxResponse = 64 << 20

var errTooLarge = fmt.Errorf("the response is larger than %d MiB", maxResponse>>20)

// capBody keeps a broken server from filling the memory. It calls alive, if it
// is not nil, whenever bytes come; the body is then that of a stream.
func capBody(alive func()) option.RequestOption {
	return option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(req)
		if res != nil && res.Body != nil {
			res.Body = &cappedBody{res.Body, maxResponse, alive}
			if alive != nil && res.StatusCode < http.StatusBadRequest {
				res.Body = &eventBody{ReadCloser: res.Body}
			}
		}
		return res, err
	})
}

// Options of requests. A Loop repeats them itself.
var (
	noRetries = option.WithMaxRetries(0)
	capWhole  = capBody(nil)
	streamed  = option.WithJSONSet("stream", true)
)

type cappedBody struct {
	io.ReadCloser
	left  int64
	alive func()
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p)
	if b.alive != nil && n > 0 {
		b.alive()
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// requestID is the API's own name of a request, or empty.
func requestID(res *http.Response) string {
	if res == nil {
		return ""
	}
	return res.Header.Get("X-Request-Id")
}

// classify says what to make of an error of the client. The answer is nil when
// none came.
func classify(err error, httpRes *http.Response) *failure {
	if p, ok := err.(*ProtocolError); ok { // of a client that reads the body by itself
		return &failure{err: p}
	}
	if api, ok := errors.AsType[*responses.Error](err); ok {
		if api.Response != nil {
			httpRes = api.Response
		}
		return httpFailure(err, api.StatusCode, api.RawJSON(), httpRes)
	}
	if httpRes != nil && httpRes.StatusCode >= http.StatusBadRequest { // with a body that is no API error
		return httpFailure(fmt.Errorf("%s: %w", httpRes.Status, err), httpRes.StatusCode, "", httpRes)
	}
	e := &RequestError{Attempts: 1, Err: err}
	if httpRes != nil {
		e.StatusCode, e.RequestID = httpRes.StatusCode, requestID(httpRes)
	}
	sent, retry := transportError(err)
	if httpRes != nil { // it came in part
		sent = true
	}
	e.MaybeDelivered = sent
	return &failure{err: e, retry: retry, wait: -1, maybeDelivered: sent}
}

// httpFailure is the failure of a request that was answered with an error: raw
// is the error as the client read it, if it could.
func httpFailure(err error, status int, raw string, httpRes *http.Response) *failure {
	var header http.Header
	data := []byte(raw)
	if httpRes != nil {
		header = httpRes.Header
		if len(data) == 0 && httpRes.Body != nil { // openai-go has put it back
			data, _ = io.ReadAll(io.LimitReader(httpRes.Body, 64<<10))
		}
	}
	f := newFault(status, header, data)
	if f.code == "" && f.message == "" && len(bytes.TrimSpace(data)) > 0 {
		f.message = fmt.Sprintf("the body begins with %q", snippet(data))
	}
	return f.requestFailure(err, header.Get("X-Request-Id"))
}

// requestFailure is the failure of a request that got a fault for its answer.
func (f *fault) requestFailure(err error, requestID string) *failure {
	return &failure{
		err: &RequestError{
			StatusCode: f.status, Code: f.code, Type: f.kind, Message: f.message, Param: f.param, RequestID: requestID,
			RetryAfter: max(f.wait, 0), Attempts: 1, MaybeDelivered: f.maybeDelivered(), Err: err,
		},
		fault: f, retry: f.transient(), wait: f.wait, maybeDelivered: f.maybeDelivered(),
	}
}

// transportError says of an error that is no HTTP answer whether the request may
// have been sent, and whether to send it again.
func transportError(err error) (sent, retry bool) {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false, true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return false, true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false, false
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		for _, early := range []string{"net/http: invalid", "unsupported protocol scheme", "no Host in request URL", "origin must match"} {
			if strings.Contains(u.Err.Error(), early) {
				return false, false
			}
		}
		return true, true
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return true, true
	}
	return false, false
}

// A RequestError says why a request got no response: the network failed, or
// the API answered with an error. It wraps the last attempt's error, so that
// errors.As finds a *responses.Error of openai-go in it.
type RequestError struct {
	// StatusCode is that of the last answer, or zero when there was none.
	StatusCode int
	// Code, Type, Message, Param and RequestID are what the API said of it, each
	// empty when it did not.
	Code, Type, Message, Param, RequestID string
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
	if word := cmp.Or(e.Code, e.Type); word != "" {
		fmt.Fprintf(&b, ": %s", word)
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
