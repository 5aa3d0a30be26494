package fnloop

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// respond sends the next request until it gets a response that is worth
// reading, and counts what every response used.
func (r *run) respond(ctx context.Context) (*reply, error) {
	params, err := r.request(ctx)
	if err != nil {
		return nil, err
	}
	r.emit(TurnStarted{r.answer.Turns + 1})
	t := &tries{}
	for {
		if ctx.Err() != nil {
			return nil, r.ended(ctx, t.last)
		}
		t.count++
		start := time.Now()
		reply, fail := r.try(ctx, params)
		if reply != nil {
			r.count(reply)
			if fail = reply.failure(); fail != nil && reply.seen {
				fail.retry = false
			}
		}
		r.log.DebugContext(ctx, "request", "attempt", t.count, "turn", r.answer.Turns, "previous", r.answer.ID,
			"duration", time.Since(start), "failure", fail)
		if fail == nil {
			return r.took(reply), nil
		}
		if reply == nil && r.forgot(fail) {
			if params, err = r.request(ctx); err != nil {
				return nil, err
			}
			t.count--
			continue
		}
		t.add(fail)
		if ctx.Err() != nil {
			return nil, r.ended(ctx, t.last)
		}
		wait := fail.wait
		if wait < 0 {
			wait = min(backoff(t.count), r.maxRetryWait)
		}
		if r.loop.State == InConversation && fail.maybeDelivered {
			fail.retry = false // what was delivered is in the conversation, and cannot be sent twice
		}
		if !fail.retry || t.count >= r.attempts || wait > r.maxRetryWait {
			if reply != nil {
				return r.took(reply), nil // it says itself what failed
			}
			return nil, t.last
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, r.ended(ctx, t.last)
		}
	}
}

// tries are the attempts to send one request.
type tries struct {
	count          int
	maybeDelivered bool
	last           error
}

func (t *tries) add(fail *failure) {
	t.maybeDelivered = t.maybeDelivered || fail.maybeDelivered
	t.last = fail.err
	switch e := fail.err.(type) {
	case *RequestError:
		e.Attempts, e.MaybeDelivered = t.count, t.maybeDelivered
	case *StreamError:
		e.Attempts, e.MaybeDelivered = t.count, t.maybeDelivered
	}
}

func (r *run) count(reply *reply) {
	r.answer.Responses++
	if u, ok := reply.usage(); ok {
		r.answer.Usage.add(u)
	} else {
		r.answer.Unmetered++
	}
}

// took tells the reader of the response that the loop goes on with.
func (r *run) took(reply *reply) *reply {
	u, _ := reply.usage()
	r.emit(TurnFinished{r.answer.Turns + 1, u})
	return reply
}

// A failure is why one attempt got nothing that the loop can go on with.
type failure struct {
	err            error
	retry          bool          // it may go away
	wait           time.Duration // that the API asked for; negative means none
	maybeDelivered bool
}

func (f *failure) String() string {
	if f == nil {
		return ""
	}
	return fmt.Sprint(f.err)
}

// failure is not nil for a response that failed for a passing reason.
func (r *reply) failure() *failure {
	if r.Status != "failed" || r.Error == nil {
		return nil
	}
	switch r.Error.Code {
	case "server_error", "rate_limit_exceeded":
		return &failure{err: r.check(), retry: true, wait: waitInText(r.Error.Message), maybeDelivered: true}
	}
	return nil
}

// try sends a request once, in the way that suits the reader and the client.
func (r *run) try(ctx context.Context, params responses.ResponseNewParams) (*reply, *failure) {
	if r.loop.WebSocket {
		if reply, fail, ok := r.converse(ctx, params); ok {
			return reply, fail
		}
	}
	if r.opts.emit != nil {
		switch r.loop.Client.(type) {
		case *responses.ResponseService, Streamer:
			return r.stream(ctx, params)
		}
	}
	reply, fail := r.post(ctx, params)
	if reply != nil {
		reply.tell(r.emit)
	}
	return reply, fail
}

// post sends a request once and waits for the whole response.
func (r *run) post(ctx context.Context, params responses.ResponseNewParams) (*reply, *failure) {
	var answer *http.Response
	var body []byte
	opts := []option.RequestOption{option.WithMaxRetries(0), option.WithResponseInto(&answer), capBody(nil)}
	_, sdk := r.loop.Client.(*responses.ResponseService)
	if sdk { // the bytes will do; anything that wraps the service may want what it decodes
		opts = append(opts, option.WithResponseBodyInto(&body))
	}
	res, err := r.loop.Client.New(ctx, params, opts...)
	if err != nil {
		return nil, classify(err, answer)
	}
	var got *reply
	switch {
	case sdk:
		got, err = decodeReply(body)
	case res == nil:
		err = &ProtocolError{Reason: "the client returned neither a response nor an error"}
	default:
		got, err = readReply(res)
	}
	if err != nil {
		return nil, &failure{err: err}
	}
	return got, nil
}

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

// retryAfter is how long the headers ask to wait, or negative.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	after := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(after, 64); err == nil {
		return seconds(s)
	}
	if t, err := http.ParseTime(after); err == nil {
		return max(time.Until(t), 0)
	}
	return -1
}

func seconds(s float64) time.Duration {
	const forever = 365 * 24 * time.Hour
	if !(s >= 0) {
		return -1
	}
	return time.Duration(min(s, forever.Seconds()) * float64(time.Second))
}

var tryAgainIn = regexp.MustCompile(`try again in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)`)

// waitInText is the wait that a rate limit's message asks for, or negative.
// Within a response it is written nowhere else.
func waitInText(message string) time.Duration {
	m := tryAgainIn.FindStringSubmatch(message)
	if m == nil {
		return -1
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		return -1
	}
	return d
}

// backoff is the wait after an attempt when the API names none: half a second,
// doubled each time up to eight, less up to a quarter so that clients spread.
func backoff(attempt int) time.Duration {
	d := min(500*time.Millisecond<<min(attempt-1, 10), 8*time.Second)
	return d - time.Duration(rand.Int64N(int64(d)/4))
}
