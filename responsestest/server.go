package responsestest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// closeWait is how long Close waits for functions of the script.
var closeWait = 5 * time.Second

// A Server is a stand-in for the Responses API that plays a script. Its fields may be changed before the
// first request. It is safe for concurrent use; a script is played in the order in which requests arrive.
type Server struct {
	// URL is the base URL of the API, http://127.0.0.1:port/v1.
	URL string

	// Key is the bearer token that the server accepts, "test" at first.
	Key string

	// PairReasoning makes the server refuse a stored item that comes back without the reasoning before it,
	// and reasoning that comes back without the item after it. The service does so for some models only.
	PairReasoning bool

	// SetupDelay is the time that every HTTP request waits before it is looked at, the handshake of a
	// WebSocket included. A request on a WebSocket does not.
	SetupDelay time.Duration

	// Handshake, if not nil, is asked before a WebSocket is accepted, with the number of the handshake from 1
	// on. A Reply of [HTTP], [Error] or [Drop] refuses it, any other accepts; both may have a Delay.
	Handshake func(n int) Reply

	// MaxInFlight, MaxLanes and MaxAge are the limits of one WebSocket: the responses that are made at once,
	// beyond which requests wait; the distinct values of stream_id; the time after which every request is
	// answered with websocket_connection_limit_reached. At first they are 16, 32 and an hour.
	MaxInFlight, MaxLanes int
	MaxAge                time.Duration

	http    *httptest.Server
	mux     *http.ServeMux
	lastID  atomic.Int64
	shaken  atomic.Int64 // handshakes
	sealKey []byte
	script  script
	tools   toolCache
	serving sync.WaitGroup // connections that http does not know any more

	mu            sync.Mutex
	closed        bool
	open          map[*exchange]context.CancelCauseFunc
	sockets       map[*socket]bool
	connections   int // sockets so far
	requests      []*Request
	responses     map[string]*response
	items         map[string]*item // stored items by id
	conversations map[string]*conversation
	neighbours    map[string]neighbours
	unheard       map[string]bool // ids of scripted items whose type the server does not know
	issued        map[string]bool // encrypted contents given by the script
}

// errClosed is the cause of the end of what Close breaks off.
var errClosed = errors.New("responsestest: the server is closed")

// A Request is a request that the server got, and what became of it. On a WebSocket every message of the
// client is one, and so is the handshake.
type Request struct {
	Method  string
	Path    string // with the query
	Header  http.Header
	Body    []byte
	Attempt int // the retry count that the client gives, 0 for a first attempt
	Time    time.Time

	// WebSocket reports that the request is a message, and its body the message. Method, path and header are
	// those of the handshake.
	WebSocket bool

	// Connection is the number of the WebSocket, from 1 on, of a message and of the handshake that was
	// accepted; 0 for all other requests.
	Connection int

	// Status is the HTTP status of the answer, or the one in an error message; 0 if there is none, yet or for
	// good.
	Status int

	// ResponseID is the id of the response that was made, if one was.
	ResponseID string

	// Disconnected reports that the client went away before the answer was complete.
	Disconnected bool
}

// A conversation is a durable list of items.
type conversation struct {
	id     string
	items  []*item
	round  int
	size   int
	busy   bool // a response is being made
	locked bool // by LockConversation
	meta   []byte
}

// NewServer starts a server that plays the script. The caller closes it. It panics if it cannot listen.
func NewServer(script ...Reply) *Server {
	s := &Server{
		Key:           "test",
		mux:           http.NewServeMux(),
		MaxInFlight:   16,
		MaxLanes:      32,
		MaxAge:        time.Hour,
		sealKey:       []byte(rand.Text()),
		open:          make(map[*exchange]context.CancelCauseFunc),
		sockets:       make(map[*socket]bool),
		responses:     make(map[string]*response),
		items:         make(map[string]*item),
		conversations: make(map[string]*conversation),
		neighbours:    make(map[string]neighbours),
		unheard:       make(map[string]bool),
		issued:        make(map[string]bool),
	}
	s.script.replies = slices.Clone(script)
	for pattern, handle := range map[string]func(*exchange){
		"POST /v1/responses":                 s.create,
		"GET /v1/responses":                  s.connect,
		"POST /v1/responses/compact":         s.compact,
		"GET /v1/responses/{id}":             s.retrieve,
		"DELETE /v1/responses/{id}":          s.remove,
		"POST /v1/responses/{id}/cancel":     s.cancel,
		"GET /v1/responses/{id}/input_items": s.listInput,
		"POST /v1/conversations":             s.newConversation,
		"GET /v1/conversations/{id}":         s.getConversation,
		"DELETE /v1/conversations/{id}":      s.removeConversation,
		"GET /v1/conversations/{id}/items":   s.listConversation,
		"/":                                  s.unknownURL,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, handle) })
	}
	s.http = httptest.NewServer(s.mux)
	s.URL = s.http.URL + "/v1"
	if t, ok := s.http.Client().Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = 1024 // many conversations at once should not open a connection for each request
	}
	return s
}

// Close breaks off all open requests, closes all WebSockets and stops the server. It waits for functions of
// the script to return, but not for long: that one has not is then an error of the script. The server can be
// asked for its requests afterwards.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, cancel := range s.open {
		cancel(errClosed)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.http.Close()
		s.serving.Wait()
	}()
	late := time.NewTimer(closeWait)
	defer late.Stop()
	for {
		// A handler may be reading from a client that does not write, or the other way round, and new ones
		// come as long as the listener is open.
		s.http.CloseClientConnections()
		again := time.NewTimer(10 * time.Millisecond)
		select {
		case <-done:
			again.Stop()
			return
		case <-late.C:
			again.Stop()
			s.script.fail("", "a function of the script did not return when the server was closed")
			return
		case <-again.C:
		}
	}
}

// Client returns a client of the server, with the SDK's own retries. To turn these off, give the calls
// option.WithMaxRetries(0).
func (s *Server) Client() *responses.ResponseService {
	c := responses.NewResponseService(
		option.WithBaseURL(s.URL),
		option.WithAPIKey(s.Key),
		option.WithHTTPClient(s.http.Client()),
	)
	return &c
}

// ServeHTTP serves the API to other servers and to tests without a socket. Connections that a script
// breaks panic with [http.ErrAbortHandler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns all requests so far, in the order in which they arrived.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]Request, len(s.requests))
	for i, r := range s.requests {
		requests[i] = *r
	}
	return requests
}

// Connections returns how many WebSockets the server has accepted so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// Err reports what went wrong with the script: replies that were not asked for, requests that came after
// its end, and replies that the request did not allow. Requests that the server refused are no errors here.
func (s *Server) Err() error { return s.script.err() }

// Forget makes the server lose a response, as if it had expired, and WebSockets lose it too.
func (s *Server) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
}

func (s *Server) forget(id string) bool {
	for c := range s.sockets {
		for _, l := range c.lanes {
			l.evict(id)
		}
	}
	r, ok := s.responses[id]
	if !ok {
		return false
	}
	delete(s.responses, id)
	for _, it := range slices.Concat(r.input, r.output) {
		delete(s.items, it.id)
		delete(s.neighbours, it.id)
	}
	return true
}

// LockConversation makes the server answer requests of a conversation with conversation_locked, as it
// does while another response of the conversation is being made, until it is called with false.
func (s *Server) LockConversation(id string, locked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.conversations[id]; ok {
		c.locked = locked
	}
}

func (s *Server) newID(prefix string) string {
	return prefix + "_" + strconv.FormatInt(s.lastID.Add(1), 10)
}

// An exchange is a request on its way to an answer.
type exchange struct {
	ctx    context.Context // of the client, and until the server is closed
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	server *Server
	record *Request

	// The following belong to requests on a WebSocket, which have no w.
	socket   *socket
	lane     *lane  // nil until it is known
	previous string // previous_response_id
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, handle func(*exchange)) {
	attempt, _ := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	x := &exchange{w: w, r: r, server: s, record: &Request{
		Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header, Attempt: attempt, Time: time.Now(),
	}}
	defer s.enter(x)()
	var err error
	if r.Body != nil { // requests that a client made, and no server read, may have none
		x.body, err = io.ReadAll(r.Body)
		x.record.Body = x.body
	}
	s.add(x.record)
	if err != nil {
		x.gone()
	}
	x.wait(s.SetupDelay)
	w.Header().Set("X-Request-Id", s.newID("req"))
	if bad := authorize(r.Header, s.Key); bad != nil {
		x.refuse(bad)
		return
	}
	handle(x)
}

// enter gives the exchange its context, which is made here and not once for the server so that an exchange
// within a bubble of testing/synctest waits for nothing outside of it.
func (s *Server) enter(x *exchange) (leave func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	x.ctx = ctx
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[x] = cancel
	if s.closed {
		cancel(errClosed)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, x)
		cancel(nil)
	}
}

func (s *Server) add(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

// note changes the record of the request.
func (x *exchange) note(f func(*Request)) {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	f(x.record)
}

func (x *exchange) start(status int, contentType string) {
	x.note(func(r *Request) { r.Status = status })
	if contentType != "" {
		x.w.Header().Set("Content-Type", contentType)
	}
}

// send answers with a JSON document.
func (x *exchange) send(status int, body []byte) {
	x.start(status, "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	x.w.Write(body)
}

func (x *exchange) refuse(e *refusal) {
	if x.socket != nil {
		x.refuseMessage(e)
		return
	}
	for name, values := range e.Header {
		x.w.Header()[name] = values
	}
	x.send(e.Status, e.json())
}

// abort closes the connection, a WebSocket without a closing handshake.
func (x *exchange) abort() { panic(http.ErrAbortHandler) }

// gone gives up, and notes that the client went away if that is why.
func (x *exchange) gone() {
	if context.Cause(x.ctx) != errClosed {
		x.note(func(r *Request) { r.Disconnected = true })
	}
	x.abort()
}

// wait sleeps. It gives up when the client does, and when the server is closed.
func (x *exchange) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.ctx.Done():
		x.gone()
	}
}

// freeze waits for the client to give up.
func (x *exchange) freeze() {
	<-x.ctx.Done()
	x.gone()
}

func (s *Server) unknownURL(x *exchange) {
	x.refuse(notFound("Invalid URL (%s %s)", x.r.Method, strings.TrimSuffix(x.r.URL.Path, "/")))
}
