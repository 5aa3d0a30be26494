package runtimecloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

const (
	// clientVersion tells the API which of its meanings we know: from this date
	// on a stop keeps the disk.
	clientVersion = "http/2026-10-04"
	userAgent     = "fnloop-runtimecloud (+https://github.com/fnloop/fnloop)"

	// maxConns bounds the connections to the API. It drops what comes from one
	// address beyond 64, and counts everyone there; its own clients hold 48.
	maxConns = 48
	// maxAnswer bounds what is read of a JSON answer.
	maxAnswer = 16 << 20
)

// A client makes calls to the API. It holds the key in no field, so that
// nothing that prints its insides can show it.
type client struct {
	base      string // scheme and host
	http      *http.Client
	authorize func(http.Header)
	redact    func(text, other string) string // without the key and other
	limit     *limiter
	log       *slog.Logger
}

// newClient checks base and key before anything is sent.
func newClient(base string, key Secret, transport http.RoundTripper, limit *limiter, log *slog.Logger) (*client, error) {
	origin, err := parseOrigin(base)
	if err != nil {
		return nil, err
	}
	switch {
	case key == "":
		return nil, &ConfigError{Field: "Key", Reason: "there is none: set it, or RUNTIME_API_KEY; keys are made at https://withruntime.com/account/keys"}
	case strings.ContainsFunc(string(key), func(r rune) bool { return unicode.IsSpace(r) || r < '!' || r > '~' }):
		return nil, &ConfigError{Field: "Key", Reason: "holds white space or a character that no key has; is there a newline at its end?"}
	}
	if transport == nil {
		transport = newTransport()
	}
	return &client{
		base: origin,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		authorize: func(h http.Header) { h.Set("Authorization", "Bearer "+string(key)) },
		redact: func(text, other string) string {
			text = strings.ReplaceAll(text, string(key), Secret(key).mask())
			if other != "" {
				text = strings.ReplaceAll(text, other, Secret(other).mask())
			}
			return text
		},
		limit: limit,
		log:   log,
	}, nil
}

// newTransport gives a pool of at most maxConns connections. It speaks HTTP/1.1
// only: the API's limits count connections, a stream then has one of its own,
// and one that freezes takes no other program with it.
func newTransport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		MaxConnsPerHost:       maxConns,
		MaxIdleConns:          maxConns,
		MaxIdleConnsPerHost:   maxConns,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		Protocols:             &protocols,
	}
}

// parseOrigin takes scheme and host of an address and refuses one that has
// anything else, or that would send the key in the clear.
func parseOrigin(s string) (string, error) {
	bad := func(reason string) (string, error) {
		return "", &ConfigError{Field: "URL", Reason: reason}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // its text may hold a password
		return bad("is no URL; want one such as " + DefaultURL)
	case u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Hostname() == "" || u.Opaque != "":
		return bad("must be a scheme and a host and nothing else, such as " + DefaultURL)
	case u.Scheme == "https":
	case u.Scheme != "http":
		return bad(fmt.Sprintf("the scheme %q is neither https nor http", u.Scheme))
	default:
		switch u.Hostname() {
		case "localhost", "127.0.0.1", "::1", "runtime.internal":
		default:
			return bad(fmt.Sprintf("plain http to %q would send the key in the clear; use https", u.Hostname()))
		}
	}
	return u.Scheme + "://" + u.Host, nil
}

// newRunID gives a name for a run that nobody else has.
func newRunID() string { return strings.ToLower(rand.Text()) }

// stepKey is the idempotency key of one step of one run. The API remembers keys
// across operations, so each step has its own; all attempts at a step share it.
// A Run is one attempt at its program and has an ID of its own, so running the
// program again never meets an old answer.
func stepKey(run, step string) string {
	sum := sha256.Sum256([]byte(run + ":" + step))
	return hex.EncodeToString(sum[:])
}

// A request is one call, whatever number of attempts it takes.
type request struct {
	op      string
	sandbox string
	method  string
	path    string // escaped, with the query
	key     string // for Idempotency-Key; empty with GET
	prefer  string
	accept  string // empty means JSON
	raw     bool   // body is the bytes of a file
	body    []byte

	answer time.Duration   // how long an answer may take to begin; zero means answerTimeout
	budget time.Duration   // how long the call may take; zero means callTimeout
	room   time.Duration   // how long to wait for room
	always bool            // repeat it after every failure of the service
	stop   <-chan struct{} // ends the retries, not the attempt that is under way
	hide   string          // a secret in the body
}

func (r *request) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// do makes the call and decodes its answer into out, if that is not nil.
func (c *client) do(ctx context.Context, r *request, out any) error {
	return c.retry(ctx, r, func(x *exchange) error {
		body, err := x.readAll()
		if err != nil {
			return err
		}
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			return &Error{Code: codeConnection, Message: "an answer that is not JSON or was cut", Err: err, retryAfter: -1}
		}
		return nil
	})
}

// open makes the call and leaves the answer's body and timer to the caller, who
// must close it. It is bound to ctx.
func (c *client) open(ctx context.Context, r *request) (*exchange, error) {
	var opened *exchange
	err := c.retry(ctx, r, func(x *exchange) error {
		x.timer.Stop()
		x.kept = true
		opened = x
		return nil
	})
	return opened, err
}

// retry makes attempts until use took an answer, or there is no sense in
// another attempt. The error is an *Error.
func (c *client) retry(ctx context.Context, r *request, use func(*exchange) error) error {
	s := schedule{deadline: time.Now().Add(cmp.Or(r.budget, callTimeout)), always: r.always}
	if r.room > 0 {
		s.roomUntil = time.Now().Add(r.room)
	}
	uncertain := false
	for n := 1; ; n++ {
		if c.limit.wait(ctx) != nil || r.stopped() {
			e := c.describe(ctx, r, context.Canceled)
			e.uncertain = uncertain
			return e
		}
		err := c.attempt(ctx, r, n, s.deadline, use)
		if err == nil {
			return nil
		}
		e := c.describe(ctx, r, err)
		uncertain = uncertain || e.mayHaveRun()
		e.uncertain = uncertain
		if ctx.Err() != nil {
			return e
		}
		pause, again := s.next(e)
		if !again {
			return e
		}
		c.log.LogAttrs(ctx, slog.LevelDebug, "runtimecloud: trying again", slog.String("op", r.op),
			slog.Duration("pause", pause), slog.String("code", e.Code), slog.Int("status", e.Status), slog.String("request", e.RequestID))
		if !sleep(ctx, r.stop, pause) {
			if ctx.Err() == nil {
				return e
			}
			e = c.describe(ctx, r, nil)
			e.uncertain = uncertain
			return e
		}
	}
}

// describe makes an *Error of whatever ended an attempt.
func (c *client) describe(ctx context.Context, r *request, err error) *Error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case ctx.Err() != nil:
		e = &Error{Err: endOf(ctx), retryAfter: -1}
	case !ok:
		e = &Error{Code: codeConnection, Err: err, retryAfter: -1}
		if errors.Is(err, errNoAnswer) {
			e.Code = codeTimeout
		}
	}
	e.Op, e.Sandbox = r.op, r.sandbox
	for _, text := range []*string{&e.Code, &e.Message, &e.Hint, &e.RequestID} {
		*text = c.redact(*text, r.hide)
	}
	const most = 500 // of an answer that is not the API's
	if e.Code == codeRequest && len(e.Message) > most {
		e.Message = strings.ToValidUTF8(e.Message[:most], "")
	}
	if e.Details != nil {
		e.Details = json.RawMessage(c.redact(string(e.Details), r.hide))
	}
	if e.Err != nil {
		if text := e.Err.Error(); c.redact(text, r.hide) != text {
			e.Err = errors.New(c.redact(text, r.hide))
		}
	}
	return e
}

// endOf is the error of a context that ended, with its cause where there is one.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// errNoAnswer ends an attempt whose answer did not come in time.
var errNoAnswer = errors.New("no answer in time")

// An exchange is one request and the beginning of its answer.
type exchange struct {
	resp   *http.Response
	late   bool // the answer began before its outcome was known
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	kept   bool // whoever opened it closes it
}

func (x *exchange) close() {
	x.timer.Stop()
	x.cancel(nil)
	x.resp.Body.Close()
}

// attempt sends r once and has use take the answer.
func (c *client) attempt(ctx context.Context, r *request, n int, deadline time.Time, use func(*exchange) error) error {
	actx, cancel := context.WithCancelCause(ctx)
	limit := min(cmp.Or(r.answer, answerTimeout), time.Until(deadline))
	x := &exchange{ctx: actx, cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errNoAnswer) })}
	began := time.Now()
	err := x.send(c, r)
	status := 0
	if x.resp != nil {
		status = x.resp.StatusCode
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "runtimecloud: call", slog.String("op", r.op), slog.String("method", r.method),
		slog.String("path", r.path), slog.Int("attempt", n), slog.Int("status", status), slog.Duration("took", time.Since(began)))
	if err != nil {
		x.timer.Stop()
		cancel(nil)
		return err
	}
	defer func() {
		if !x.kept {
			x.close()
		}
	}()
	if status < 200 || status > 299 {
		return x.refusal()
	}
	if x.late {
		x.timer.Reset(max(0, time.Until(deadline))) // it is under way and takes as long as it takes
	} else {
		x.timer.Reset(limit)
	}
	return use(x)
}

// send sends the request and waits for the beginning of the answer.
func (x *exchange) send(c *client, r *request) error {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(x.ctx, r.method, c.base+r.path, body)
	if err != nil {
		return err
	}
	c.authorize(req.Header)
	req.Header.Set("Accept", cmp.Or(r.accept, "application/json"))
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("X-Runtime-Client", clientVersion)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.prefer != "" {
		req.Header.Set("Prefer", r.prefer)
	}
	switch {
	case r.raw:
		req.Header.Set("Content-Type", "application/octet-stream")
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return x.cause(err)
	}
	x.resp = resp
	x.late = resp.Header.Get("runtime-late-answer") == "true"
	return nil
}

// cause is why err came to be: our own timer, or what the network says.
func (x *exchange) cause(err error) error {
	if context.Cause(x.ctx) == errNoAnswer {
		return errNoAnswer
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err // the URL and the method are known
	}
	return err
}

// readAll reads a JSON answer to its end. An answer that took long says with
// status 200 that it will come, and only its text says how it turned out.
func (x *exchange) readAll() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(x.resp.Body, maxAnswer+1))
	if err != nil {
		return nil, x.cause(err)
	}
	if len(body) > maxAnswer {
		return nil, &Error{Code: codeRequest, Status: http.StatusBadGateway, Message: fmt.Sprintf("the answer is longer than %d bytes", maxAnswer), retryAfter: -1}
	}
	if x.late {
		if err := lateError(body); err != nil {
			err.RequestID = cmp.Or(err.RequestID, x.resp.Header.Get("x-request-id"))
			return nil, err
		}
	}
	return body, nil
}

// lateError gives the error that a late answer turned out to be, or nil. An
// answer is an error only if it has nothing else: the result of a program has
// a field of that name beside others.
func lateError(body []byte) *Error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return &Error{Code: codeRequest, Status: http.StatusBadGateway, Message: "a late answer that is not JSON", retryAfter: -1, late: true}
	}
	if len(fields) != 1 || fields["error"] == nil {
		return nil
	}
	var w wireError
	if json.Unmarshal(fields["error"], &w) != nil || w.Code == "" {
		return nil
	}
	e := w.toError(0)
	e.late = true
	return e
}

// refusal reads an answer other than a success.
func (x *exchange) refusal() *Error {
	resp := x.resp
	if resp.StatusCode < 400 {
		return &Error{Code: codeConnection, Status: resp.StatusCode, Message: "a redirect, which the API never sends and is not followed", retryAfter: -1}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var w struct{ Error wireError }
	var e *Error
	if json.Unmarshal(body, &w) == nil && w.Error.Code != "" {
		e = w.Error.toError(resp.StatusCode)
	} else {
		// It is shortened when the key is out of it: half a key is one too many.
		e = &Error{Code: codeRequest, Status: resp.StatusCode, Message: strings.TrimSpace(string(body)), Err: err, retryAfter: -1}
	}
	e.RequestID = cmp.Or(e.RequestID, resp.Header.Get("x-request-id"))
	if e.retryAfter < 0 {
		e.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"))
	}
	return e
}
