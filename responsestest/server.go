package responsestest

import (
	"crypto/rand"
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

// A Server is a stand-in for the Responses API that plays a script. It is safe for concurrent use; a
// script is played in the order in which requests arrive.
type Server struct {
	// URL is the base URL of the API, http://127.0.0.1:port/v1.
	URL string

	// Key is the bearer token that the server accepts, "test" unless it is changed before the first request.
	Key string

	// PairReasoning makes the server refuse a stored item that comes back without the reasoning before it,
	// and reasoning that comes back without the item after it. The service does so for some models only.
	// It may be changed before the first request.
	PairReasoning bool

	http    *httptest.Server
	mux     *http.ServeMux
	closing chan struct{}
	close   func()
	lastID  atomic.Int64
	sealKey []byte
	script  script
	tools   toolCache

	mu            sync.Mutex
	requests      []*Request
	responses     map[string]*response
	items         map[string]*item // stored items by id
	conversations map[string]*conversation
	neighbours    map[string]neighbours
	unheard       map[string]bool // ids of scripted items whose type the server does not know
	issued        map[string]bool // encrypted contents given by the script
}

// A Request is a request that the server got, and what became of it.
type Request struct {
	Method  string
	Path    string // with the query
	Header  http.Header
	Body    []byte
	Attempt int // the retry count that the client gives, 0 for a first attempt
	Time    time.Time

	// Status is the HTTP status of the answer; 0 if there is none, yet or for good.
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
		closing:       make(chan struct{}),
		sealKey:       []byte(rand.Text()),
		responses:     make(map[string]*response),
		items:         make(map[string]*item),
		conversations: make(map[string]*conversation),
		neighbours:    make(map[string]neighbours),
		unheard:       make(map[string]bool),
		issued:        make(map[string]bool),
	}
	s.close = sync.OnceFunc(func() { close(s.closing) })
	s.script.replies = slices.Clone(script)
	for pattern, handle := range map[string]func(*exchange){
		"POST /v1/responses":                 s.create,
		"POST /v1/responses/compact":         s.compact,
		"GET /v1/responses/{id}":             s.retrieve,
		"DELETE /v1/responses/{id}":          s.remove,
		"POST /v1/responses/{id}/cancel":     s.cancel,
		"GET /v1/responses/{id}/input_items": s.listInput,
		"POST /v1/conversations":             s.newConversation,
		"GET /v1/conversations/{id}":         s.getConversation,
		"DELETE /v1/conversations/{id}":      s.removeConversation,
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

// Close breaks off all open requests and stops the server. It waits for functions of the script to return.
// The server can be asked for its requests afterwards.
func (s *Server) Close() {
	s.close()
	s.http.CloseClientConnections() // a handler may be writing to a client that does not read
	s.http.Close()
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

// Err reports what went wrong with the script: replies that were not asked for, requests that came after
// its end, and replies that the request did not allow. Requests that the server refused are no errors here.
func (s *Server) Err() error { return s.script.err() }

// Forget makes the server lose a response, as if it had expired.
func (s *Server) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
}

func (s *Server) forget(id string) bool {
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
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	server *Server
	record *Request
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, handle func(*exchange)) {
	body, err := io.ReadAll(r.Body)
	attempt, _ := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	x := &exchange{w: w, r: r, body: body, server: s, record: &Request{
		Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header, Body: body, Attempt: attempt, Time: time.Now(),
	}}
	s.mu.Lock()
	s.requests = append(s.requests, x.record)
	s.mu.Unlock()
	if err != nil {
		x.gone()
	}
	w.Header().Set("X-Request-Id", s.newID("req"))
	if bad := authorize(r.Header, s.Key); bad != nil {
		x.refuse(bad)
		return
	}
	handle(x)
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
	for name, values := range e.Header {
		x.w.Header()[name] = values
	}
	x.send(e.Status, e.json())
}

// abort closes the connection.
func (x *exchange) abort() { panic(http.ErrAbortHandler) }

// gone notes that the client went away and gives up.
func (x *exchange) gone() {
	x.note(func(r *Request) { r.Disconnected = true })
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
	case <-x.r.Context().Done():
		x.gone()
	case <-x.server.closing:
		x.abort()
	}
}

// freeze waits for the client to give up.
func (x *exchange) freeze() {
	select {
	case <-x.r.Context().Done():
		x.gone()
	case <-x.server.closing:
		x.abort()
	}
}

func (s *Server) unknownURL(x *exchange) {
	x.refuse(notFound("Invalid URL (%s %s)", x.r.Method, strings.TrimSuffix(x.r.URL.Path, "/")))
}
