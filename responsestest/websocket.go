package responsestest

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// A socket is a connection in WebSocket mode.
type socket struct {
	server    *Server
	conn      *websocket.Conn
	handshake *exchange
	number    int
	opened    time.Time
	slots     chan struct{} // one for each response that is being made
	turns     sync.WaitGroup
	lanes     map[string]*lane // by stream_id; guarded by Server.mu
}

// A lane makes one response after the other.
type lane struct {
	id     string // the stream_id, empty for the one that has none
	socket *socket
	latest *response     // which a continuation finds stored or not; guarded by Server.mu
	last   chan struct{} // closed when the requests so far have been answered; the reader's alone
}

// evict makes the lane lose the response if it is its latest. The caller holds Server.mu.
func (l *lane) evict(id string) {
	if l.latest != nil && l.latest.id == id {
		l.latest = nil
	}
}

// cached returns the response if it is the latest of a lane. The caller holds Server.mu.
func (c *socket) cached(id string) (*response, bool) {
	for _, l := range c.lanes {
		if l.latest != nil && l.latest.id == id {
			return l.latest, true
		}
	}
	return nil, false
}

// connect serves GET /v1/responses, which is the handshake of a WebSocket or nothing.
func (s *Server) connect(x *exchange) {
	if !strings.EqualFold(x.r.Header.Get("Upgrade"), "websocket") {
		s.unknownURL(x)
		return
	}
	if _, ok := x.w.(http.Hijacker); !ok { // behind ServeHTTP there need not be a connection
		e := invalid("", "", "WebSocket upgrades are not supported here.")
		e.Status = http.StatusNotImplemented
		x.refuse(e)
		return
	}
	n := int(s.shaken.Add(1))
	if s.Handshake != nil {
		reply := s.Handshake(n)
		x.wait(reply.Delay)
		if reply.Raw != nil {
			x.sendRaw(reply.Raw)
			return
		}
	}
	s.serving.Add(1)
	defer s.serving.Done()
	s.mu.Lock() // now, since the client may ask as soon as it is accepted
	s.connections++
	number := s.connections
	x.record.Status, x.record.Connection = http.StatusSwitchingProtocols, number
	s.mu.Unlock()
	conn, err := websocket.Accept(x.w, x.r, nil)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.connections--
		x.record.Status, x.record.Connection = http.StatusBadRequest, 0 // Accept has answered so, mostly
		return
	}
	conn.SetReadLimit(-1)
	c := &socket{
		server: s, conn: conn, handshake: x, number: number, opened: time.Now(),
		slots: make(chan struct{}, max(s.MaxInFlight, 1)), lanes: make(map[string]*lane),
	}
	s.mu.Lock()
	s.sockets[c] = true
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	delete(s.sockets, c)
	s.mu.Unlock()
}

// serve reads messages until the connection ends.
func (c *socket) serve() {
	ctx, cancel := context.WithCancelCause(c.handshake.ctx)
	for {
		kind, data, err := c.conn.Read(ctx)
		if err != nil {
			break
		}
		if kind != websocket.MessageText {
			c.conn.Close(websocket.StatusUnsupportedData, "text messages only") // the code is invented
			break
		}
		c.guard(func() { c.take(ctx, data) })
	}
	cancel(nil)
	c.turns.Wait()
	c.conn.CloseNow()
}

// guard calls a function that may give the connection up.
func (c *socket) guard(f func()) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			c.conn.CloseNow()
		default:
			panic(p)
		}
	}()
	f()
}

func (c *socket) write(ctx context.Context, message []byte) error {
	return c.conn.Write(ctx, websocket.MessageText, message)
}

// take puts a message into its lane.
func (c *socket) take(ctx context.Context, data []byte) {
	of := c.handshake.record
	x := &exchange{ctx: ctx, r: c.handshake.r, body: data, server: c.server, socket: c, record: &Request{
		Method: of.Method, Path: of.Path, Header: of.Header, Body: data, Time: time.Now(),
		WebSocket: true, Connection: c.number,
	}}
	c.server.add(x.record)
	all, bad := parseBody(data)
	if bad == nil {
		bad = checkEvent(all)
	}
	if bad == nil {
		x.lane, bad = c.lane(all)
	}
	if bad != nil {
		x.refuse(bad)
		return
	}
	before, done := x.lane.last, make(chan struct{})
	x.lane.last = done
	c.turns.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-c.slots }()
		c.guard(func() { c.turn(x, all) })
	})
}

// checkEvent refuses what is not the request for a response. All of it is invented, since the
// documents show good messages only.
func checkEvent(all object) *refusal {
	typ, given := all["type"]
	switch {
	case !given:
		return missingParameter("type")
	case kindOf(typ) != kindString:
		return wrongType("type", "a string", typ)
	case all.str("type") != "response.create":
		return wrongValue("type", all.str("type"), []string{"response.create"})
	}
	return nil
}

var streamIDs = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)

// lane returns the lane of a message.
func (c *socket) lane(all object) (*lane, *refusal) {
	s := c.server
	v := all["stream_id"]
	id := all.str("stream_id")
	if kindOf(v) != kindNull && !streamIDs.MatchString(id) {
		return nil, invalid("invalid_stream_id", "stream_id", "The 'stream_id' field must be a non-empty string with at most "+
			"256 characters and may only contain letters, numbers, underscores, hyphens, and periods.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := c.lanes[id]; l != nil {
		return l, nil
	}
	named := len(c.lanes)
	if c.lanes[""] != nil {
		named--
	}
	if id != "" && named >= s.MaxLanes {
		return nil, invalid("websocket_stream_limit_reached", "stream_id", "This WebSocket connection has reached its maximum "+
			"number of distinct stream IDs (%d). Reuse an existing stream_id or open a new WebSocket connection.", s.MaxLanes)
	}
	l := &lane{id: id, socket: c}
	c.lanes[id] = l
	return l, nil
}

// turn answers a message when its turn has come.
func (c *socket) turn(x *exchange, all object) {
	s := c.server
	if time.Since(c.opened) >= s.MaxAge {
		// Whether the service closes the connection then is not known; here it goes on refusing.
		x.refuse(connectionLimit(s.MaxAge))
		return
	}
	x.previous = all.str("previous_response_id")
	for _, name := range []string{"stream", "background"} {
		if kindOf(all[name]) != kindNull { // that they are left out is documented, the text is invented
			x.refuse(invalid("unsupported_parameter", name, "Unsupported parameter: '%s' is not supported on a WebSocket.", name))
			return
		}
	}
	generate := all["generate"]
	if kindOf(generate) != kindNull {
		if bad := aBool("generate", generate); bad != nil {
			x.refuse(bad)
			return
		}
	}
	for _, name := range []string{"type", "stream_id", "generate"} {
		delete(all, name)
	}
	req, bad := s.checkRequest(all)
	if bad != nil {
		x.refuse(bad)
		return
	}
	req.lane, req.stream = x.lane, true
	req.prepare = string(generate) == "false"
	s.answer(x, req)
}

func connectionLimit(age time.Duration) *refusal {
	return invalid("websocket_connection_limit_reached", "", "Responses websocket connection limit reached (%d minutes). "+
		"Create a new websocket connection to continue.", int(age.Minutes()))
}

// ConnectionLimit is what a request on a WebSocket gets when the connection has become too old.
func ConnectionLimit() Reply {
	e := connectionLimit(time.Hour)
	return HTTP(e.Status, string(e.json()))
}

// refuseMessage sends the error message of a refusal, and has the lane forget what the request continues.
func (x *exchange) refuseMessage(e *refusal) {
	body, err := json.Marshal(e.Body)
	if err != nil {
		panic(err) // strings always marshal
	}
	x.sendError(e.Status, e.Header, body)
}

// sendError sends an error message. The body is an error object.
func (x *exchange) sendError(status int, header http.Header, body []byte) {
	frame := object{"type": json.RawMessage(`"error"`), "error": body}
	frame["status"], _ = json.Marshal(status)
	if len(header) > 0 {
		flat := make(map[string]string, len(header))
		for name := range header {
			flat[strings.ToLower(name)] = header.Get(name)
		}
		var full map[string]json.RawMessage
		_ = json.Unmarshal(body, &full)
		full["headers"], _ = json.Marshal(flat)
		frame["error"], _ = json.Marshal(full)
	}
	if x.lane != nil && x.lane.id != "" {
		frame["stream_id"] = quote(x.lane.id)
	}
	x.evict()
	x.note(func(r *Request) { r.Status = status })
	message, _ := json.Marshal(frame)
	if x.socket.write(x.ctx, message) != nil {
		x.gone()
	}
}

// evict makes the lane forget its latest response if the request, which has failed, continues it. Of what
// another lane continues, that lane keeps.
func (x *exchange) evict() {
	if x.lane == nil {
		return
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.lane.evict(x.previous)
}

// sendRawMessage answers with what is no response.
func (x *exchange) sendRawMessage(raw *RawReply) {
	if raw.Status < http.StatusBadRequest {
		x.note(func(r *Request) { r.Status = raw.Status })
		if x.socket.write(x.ctx, []byte(raw.Body)) != nil {
			x.gone()
		}
		return
	}
	header := raw.Header.Clone()
	header.Del("Content-Type")
	if o, _ := decodeObject(json.RawMessage(raw.Body)); kindOf(o["error"]) == kindObject {
		x.sendError(raw.Status, header, o["error"])
		return
	}
	body, _ := json.Marshal(errorBody{Message: raw.Body, Type: "server_error"})
	x.sendError(raw.Status, header, body)
}

// sendHalf sends the first part of an event: of a line, or as a message of its own.
func (x *exchange) sendHalf(e *Event, n int) {
	if x.socket == nil {
		line := e.frame(nil, n)
		x.w.Write(line[:len(line)*2/3])
		return
	}
	message := e.message(nil, n, x.lane.id)
	x.socket.write(x.ctx, message[:len(message)*2/3])
}

// endMessages ends the messages of a response in the way of the cut.
func (x *exchange) endMessages(cut Cut) {
	switch cut {
	case EOF, HalfLine, HangUp:
		x.socket.conn.Close(websocket.StatusGoingAway, "") // the code is invented
	case Reset:
		x.abort()
	case Freeze:
		x.freeze()
	case FlatError, NestedError, FailedEvent:
		x.evict() // invented: documented is that a status of 4xx or 5xx does so
	}
}
