package fnloop

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// maxResponse bounds what is read of one response, in bytes. The largest that
// OpenAI's service gives are images of a few dozen MiB.
const maxResponse = 64 << 20

var errTooLarge = fmt.Errorf("the response is larger than %d MiB", maxResponse>>20)

// capBody keeps a broken server from filling the memory. It calls alive, if it
// is not nil, whenever bytes come.
func capBody(alive func()) option.RequestOption {
	return option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(req)
		if res != nil && res.Body != nil {
			res.Body = &cappedBody{res.Body, maxResponse, alive}
		}
		return res, err
	})
}

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

// permanent are the codes of status 429 that waiting does not cure.
var permanent = []string{
	"insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
	"project_spend_limit_exceeded", "organization_usage_limit_exceeded",
}

// classify says what to make of an error of the client. The answer is nil when
// none came.
func classify(err error, answer *http.Response) *failure {
	if p, ok := err.(*ProtocolError); ok { // of a client that reads the body by itself
		return &failure{err: p}
	}
	if api, ok := errors.AsType[*responses.Error](err); ok {
		e := &RequestError{StatusCode: api.StatusCode, Code: api.Code, Message: api.Message, Param: api.Param, Attempts: 1, Err: err}
		if api.Response != nil {
			answer = api.Response
		}
		return httpFailure(e, api.Type, answer)
	}
	if answer != nil && answer.StatusCode >= http.StatusBadRequest { // with a body that is no API error
		e := &RequestError{StatusCode: answer.StatusCode, Attempts: 1, Err: fmt.Errorf("%s: %w", answer.Status, err)}
		return httpFailure(e, "", answer)
	}
	e := &RequestError{Attempts: 1, Err: err}
	if answer != nil {
		e.StatusCode, e.RequestID = answer.StatusCode, answer.Header.Get("X-Request-Id")
	}
	sent, retry := transport(err)
	if answer != nil { // it came in part
		sent = true
	}
	e.MaybeDelivered = sent
	return &failure{err: e, retry: retry, wait: -1, maybeDelivered: sent}
}

func httpFailure(e *RequestError, kind string, answer *http.Response) *failure {
	f := &failure{err: e, wait: -1}
	header := http.Header{}
	if answer != nil {
		header = answer.Header
		e.RequestID = header.Get("X-Request-Id")
		if e.Code == "" && e.Message == "" && answer.Body != nil { // openai-go has put it back
			if body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)); len(bytes.TrimSpace(body)) > 0 {
				e.Message = fmt.Sprintf("the body begins with %q", snippet(body))
			}
		}
	}
	f.wait = retryAfter(header)
	switch s := e.StatusCode; {
	case s == http.StatusTooManyRequests:
		f.retry = true
		if f.wait < 0 {
			f.wait = waitInText(e.Message)
		}
	case s == http.StatusRequestTimeout, s >= http.StatusInternalServerError:
		f.retry, f.maybeDelivered = true, true
	case s == http.StatusConflict, e.Code == "conversation_locked":
		f.retry = true
	}
	e.RetryAfter = max(f.wait, 0)
	switch header.Get("X-Should-Retry") {
	case "true":
		f.retry = true
	case "false":
		f.retry = false
	}
	if slices.Contains(permanent, e.Code) || slices.Contains(permanent, kind) {
		f.retry = false
	}
	e.MaybeDelivered = f.maybeDelivered
	return f
}

// transport says of an error that is no HTTP answer whether the request may
// have been sent, and whether to send it again.
func transport(err error) (sent, retry bool) {
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
