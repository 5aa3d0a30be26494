package runtimetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// Keys that the stand-in knows when [Server.Keys] is nil.
const (
	Key         = "rtcloud_test"       // may do everything with its own sandboxes
	OtherKey    = "rtcloud_test_other" // another agent's, with sandboxes of its own
	ReadOnlyKey = "rtcloud_test_read"  // sees what Key made and changes nothing
)

// A Server answers as Runtime Cloud's API does. Its zero value is ready; set the
// fields before the first request. It is an [http.Handler] for real connections
// and an [http.RoundTripper] for tests without any, where time may be that of
// testing/synctest. It is safe for concurrent use.
type Server struct {
	// Exec runs the commands that Python does not. The context ends at the
	// command's time limit, and when its sandbox goes. Nil means that every
	// command exits at once with status 0.
	Exec func(context.Context, *Command) Exit
	// Python, when not nil, runs the commands "python3 FILE", and those of other
	// languages that it has, such as "bash FILE". If it is an interpreter.Opener, it
	// runs the cells in Python too.
	Python fnloop.Runner
	// Guests run the cells of each language that it names. They must be
	// interpreter.Openers.
	Guests map[string]fnloop.Runner
	// Grace is how long a cell that was stopped may take before its interpreter is
	// killed. Zero means a second. The service's own is not documented.
	Grace time.Duration
	// Inline is how large a value of a cell may be that comes within its answer.
	// Zero means 64 KiB. The service's own bound is not documented.
	Inline int
	// InstallDelay is how long the first use of r, java or go takes.
	InstallDelay time.Duration

	// Delay is how long every answer takes.
	Delay time.Duration
	// Bandwidth is how many bytes a second of output a stream carries. Zero means
	// as many as it can.
	Bandwidth int
	// StartDelay is how long a sandbox is "starting".
	StartDelay time.Duration
	// Hasty makes a create answer at once, although the sandbox is starting and
	// the client asked for the answer to wait.
	Hasty bool
	// MaxRunning is how many sandboxes an account may run. Zero means 100.
	MaxRunning int
	// RoomCode and RoomStatus refuse one more. Zero means
	// "no_credit_running_limit" and 409.
	RoomCode   string
	RoomStatus int
	// Rate is how many requests a second are answered, Burst how many at once.
	// Zero means 50 and 200; a negative Rate means no limit.
	Rate, Burst int
	// MaxConns is how many requests are served at once; more are dropped, as the
	// service drops connections. Zero means 64.
	MaxConns int
	// PageSize is the longest page of a list. Zero means 100.
	PageSize int
	// ChunkBytes is the size of a chunk of an upload. Zero means 1 MiB.
	ChunkBytes int
	// SignalStatus makes a command that a signal killed exit with 128 and the
	// signal's number, in the state "killed", instead of no status. The
	// documentation leaves open which it is.
	SignalStatus bool
	// Lossy leaves out the base64 form of output that is not UTF-8.
	Lossy bool

	mu        sync.Mutex
	seq       int
	sandboxes []*sandbox // in the order of their creation
	memory    map[string]*memo
	requests  []Request
	faults    map[Step][]Fault
	serving   int
	most      int
	tokens    float64
	refilled  time.Time
	limited   int
	secrets   map[string]secret
	snapshots []*snapshot
	images    []*image
	closing   sync.WaitGroup // of interpreters
}

// A Request is one that the stand-in got.
type Request struct {
	Step   Step
	Method string
	Path   string // unescaped, with the query
	Header http.Header
	Body   []byte // at most its first 64 KiB
	Time   time.Time
}

// New gives a Server that fails t if a sandbox or a snapshot is left at its end.
func New(t testing.TB) *Server {
	s := new(Server)
	t.Cleanup(func() {
		if live := s.Live(); len(live) > 0 {
			t.Errorf("runtimetest: sandboxes left: %q", live)
		}
		if left := s.Snapshots(); len(left) > 0 {
			t.Errorf("runtimetest: snapshots left: %q", left)
		}
		s.closing.Wait()
	})
	return s
}

// Start serves on the loopback interface until t ends, and gives the address.
func (s *Server) Start(t testing.TB) string {
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// Requests gives all that came for a step, or for every step if none is named.
func (s *Server) Requests(steps ...Step) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, r := range s.requests {
		if len(steps) == 0 || slices.Contains(steps, r.Step) {
			found = append(found, r)
		}
	}
	return found
}

// MaxServing is the largest number of requests that were served at once.
func (s *Server) MaxServing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Limited is how many requests were refused for being too many.
func (s *Server) Limited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limited
}

// answer is what a request comes to.
type answer struct {
	status  int
	header  http.Header
	body    any      // JSON, or []byte for a file
	process *process // to be streamed
	cell    *cellRun // to be streamed, of
	sandbox *sandbox
	cursor  int64 // from where
	start   bool  // with a start event
}

func ok(body any) *answer { return &answer{status: http.StatusOK, body: body} }

// apiError is a refusal.
type apiError struct {
	status       int
	code         string
	message      string
	hint         string
	details      any
	retryAfter   string
	retryAfterMs float64
}

func refuse(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) envelope(id string) map[string]any {
	inner := map[string]any{"code": e.code, "status": e.status, "message": e.message, "requestId": id}
	if e.hint != "" {
		inner["hint"] = e.hint
	}
	if e.details != nil {
		inner["details"] = e.details
	}
	if e.retryAfterMs > 0 {
		inner["retryAfterMs"] = e.retryAfterMs
	}
	return map[string]any{"error": inner}
}

// memo is what is remembered under an idempotency key.
type memo struct {
	step   Step
	path   string
	sum    [sha256.Size]byte
	done   chan struct{} // closed when answer is there, or there was none
	answer *answer
}

// call is one request on its way.
type call struct {
	*http.Request
	out   http.ResponseWriter
	id    string
	step  Step
	owner string
	body  []byte
	path  []string // segments after /v1, unescaped, the verb taken off the last
	verb  string
	fault Fault
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := &call{Request: r, out: w, body: body}
	c.split()
	match := c.match()
	c.step = match.step
	if !s.admit(c) {
		panic(http.ErrAbortHandler)
	}
	defer s.leave()
	w.Header().Set("x-request-id", c.id)
	if !pause(r.Context(), s.Delay) {
		panic(http.ErrAbortHandler)
	}
	if refusal := s.allow(c, match); refusal != nil {
		c.refuse(refusal)
		return
	}
	if c.fault = s.nextFault(c.step); c.fault.Hook != nil {
		c.fault.Hook()
	}
	if !c.fault.After {
		if c.spoil() {
			return
		}
	}
	a, refusal := s.settle(c, match.handle)
	if c.fault.After && c.spoil() {
		return
	}
	if refusal != nil {
		c.refuse(refusal)
		return
	}
	c.send(a, s)
}

// split takes the path apart. The last colon of the last segment begins a verb.
func (c *call) split() {
	path, isV1 := strings.CutPrefix(c.URL.EscapedPath(), "/v1/")
	if !isV1 {
		return
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if i == len(segments)-1 {
			if at := strings.LastIndexByte(segment, ':'); at >= 0 {
				segment, c.verb = segment[:at], segment[at+1:]
			}
		}
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "" || plain == "." || plain == ".." {
			c.path = nil
			return
		}
		c.path = append(c.path, plain)
	}
}

// admit records the request, unless there are too many connections.
func (s *Server) admit(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	c.id = fmt.Sprintf("req_t%04d", s.seq)
	path := c.URL.Path
	if c.URL.RawQuery != "" {
		path += "?" + c.URL.RawQuery
	}
	s.requests = append(s.requests, Request{
		Step: c.step, Method: c.Method, Path: path, Header: c.Header.Clone(), Body: bytes.Clone(c.body[:min(len(c.body), 64<<10)]), Time: time.Now(),
	})
	if limit := s.MaxConns; s.serving >= cmp.Or(limit, 64) {
		return false
	}
	s.serving++
	s.most = max(s.most, s.serving)
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving--
}

// allow checks who asks, how often, and for what.
func (s *Server) allow(c *call, match route) *apiError {
	if !s.take() {
		e := refuse(http.StatusTooManyRequests, "rate_limited", "Too many requests.")
		e.retryAfter = "1"
		return e
	}
	key, bearer := strings.CutPrefix(c.Header.Get("Authorization"), "Bearer ")
	switch {
	case bearer && (key == Key || key == ReadOnlyKey):
		c.owner = Key
	case bearer && key == OtherKey:
		c.owner = OtherKey
	default:
		return refuse(http.StatusUnauthorized, "unauthorized", "The key is not valid.")
	}
	switch {
	case match.step == "":
		return refuse(http.StatusNotFound, "route_not_found", "No such route.")
	case match.handle == nil && match.wrongMethod:
		return refuse(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not for this path.", c.Method)
	case c.Method != http.MethodGet && key == ReadOnlyKey:
		return refuse(http.StatusForbidden, "forbidden", "The key is read-only.")
	case c.Method != http.MethodGet && c.Header.Get("Idempotency-Key") == "":
		return refuse(http.StatusBadRequest, "invalid_request", "A change needs an Idempotency-Key.") // the stand-in's own rule
	}
	return nil
}

// take takes a token from the bucket of requests.
func (s *Server) take() bool {
	if s.Rate < 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rate, burst := float64(cmp.Or(s.Rate, 50)), float64(cmp.Or(s.Burst, 200))
	now := time.Now()
	if s.refilled.IsZero() {
		s.tokens = burst
	} else {
		s.tokens = min(burst, s.tokens+now.Sub(s.refilled).Seconds()*rate)
	}
	s.refilled = now
	if s.tokens < 1 {
		s.limited++
		return false
	}
	s.tokens--
	return true
}

// settle carries the request out, once for every idempotency key. Refusals are
// not remembered.
func (s *Server) settle(c *call, handle func(*Server, *call) (*answer, *apiError)) (*answer, *apiError) {
	if c.Method == http.MethodGet {
		return handle(s, c)
	}
	key := c.owner + " " + c.Header.Get("Idempotency-Key")
	sum := sha256.Sum256(c.body)
	for {
		s.mu.Lock()
		m := s.memory[key]
		if m == nil {
			if s.memory == nil {
				s.memory = make(map[string]*memo)
			}
			m = &memo{step: c.step, path: c.URL.Path, sum: sum, done: make(chan struct{})}
			s.memory[key] = m
			s.mu.Unlock()
			a, refusal := handle(s, c)
			s.mu.Lock()
			if refusal != nil {
				delete(s.memory, key)
			}
			m.answer = a
			s.mu.Unlock()
			close(m.done)
			return a, refusal
		}
		s.mu.Unlock()
		switch {
		case m.step != c.step || m.path != c.URL.Path:
			return nil, refuse(http.StatusConflict, "operation_conflict", "This key was used for another operation.")
		case m.sum != sum:
			e := refuse(http.StatusUnprocessableEntity, "idempotency_key_reused", "This key was used with another body.")
			e.hint = "Send the first body again, or pick another key."
			return nil, e
		}
		select {
		case <-m.done:
		case <-c.Context().Done():
			panic(http.ErrAbortHandler)
		}
		if m.answer == nil {
			continue // it was refused, and may be tried again
		}
		again := *m.answer
		again.header = http.Header{"Idempotency-Replayed": {"true"}}
		if fields, ok := again.body.(map[string]any); ok {
			fields = maps.Clone(fields)
			fields["replayed"] = true
			again.body = fields
		}
		return &again, nil
	}
}

// refuse sends an error.
func (c *call) refuse(e *apiError) {
	if e.retryAfter != "" {
		c.out.Header().Set("Retry-After", e.retryAfter)
	}
	c.write(e.status, e.envelope(c.id))
}

func (c *call) write(status int, v any) {
	h := c.out.Header()
	h.Set("Content-Type", "application/json")
	b := encode(v)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.out.WriteHeader(status)
	c.print(b)
}

// send sends a success.
func (c *call) send(a *answer, s *Server) {
	h := c.out.Header()
	maps.Copy(h, a.header)
	switch {
	case a.process != nil:
		c.stream(a, s)
	case a.cell != nil:
		c.streamCell(a, s)
	case c.fault.Late:
		c.late(encode(a.body))
	case c.fault.Half:
		c.half(a.body)
	default:
		if b, isFile := a.body.([]byte); isFile {
			h.Set("Content-Type", "application/octet-stream")
			h.Set("Content-Length", strconv.Itoa(len(b)))
			c.out.WriteHeader(a.status)
			c.print(b)
			return
		}
		c.write(a.status, a.body)
	}
}

// print sends a part of the body.
func (c *call) print(b []byte) {
	c.out.Write(b) //nolint:errcheck // the client may be gone at any moment, which is its business
}

func (c *call) flush() {
	http.NewResponseController(c.out).Flush() //nolint:errcheck // what cannot flush need not
}

func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
