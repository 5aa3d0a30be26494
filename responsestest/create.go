package responsestest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// create serves POST /v1/responses.
func (s *Server) create(x *exchange) {
	req, bad := s.parseRequest(x.body)
	if bad != nil {
		x.refuse(bad)
		return
	}
	s.answer(x, req)
}

// answer looks up what the request continues, judges the effective input, asks the script, and plays the
// reply. Whatever is refused leaves no trace in the state.
func (s *Server) answer(x *exchange, req *request) {
	resp, old, bad := s.begin(req)
	if bad != nil {
		x.refuse(bad)
		return
	}
	defer s.release(resp)
	org := x.r.Header.Get("OpenAI-Organization")
	if bad := s.checkInput(resp, old, org); bad != nil {
		x.refuse(bad)
		return
	}
	if req.prepare {
		resp.reply, resp.status, resp.usage = new(Reply), "completed", Usage{InputTokens: estimate(resp).InputTokens}
		s.play(x, resp)
		return
	}
	offered := offeredTools(req, old)
	reply, place, ok := s.script.take()
	if ok && reply.Func != nil {
		t := newTurn(x, resp, old, offered)
		for reply.Func != nil {
			reply = reply.Func(t)
		}
	}
	if reply.exhausted {
		x.refuse(s.script.fail("script_exhausted", "the script is used up: no reply for request %d of %s, round %d of its conversation",
			s.count(), x.r.URL.Path, resp.round))
		return
	}
	resp.reply = &reply
	if reply.Raw != nil {
		x.wait(reply.Delay)
		x.sendRaw(reply.Raw)
		return
	}

	resp.status = reply.Status
	if resp.status == "" {
		resp.status = "completed"
	}
	for i, raw := range reply.Output {
		status := "completed"
		if resp.status == "incomplete" && i == len(reply.Output)-1 {
			status = "incomplete"
		}
		it := s.complete(raw, status, offered, org)
		resp.output = append(resp.output, it)
		resp.size += len(it.raw)
	}
	if why := misfit(req, offered, resp.output, &reply); why != "" {
		x.refuse(s.script.fail("script_misfit", "reply %d of the script %s", place+1, why))
		return
	}
	if reply.Usage != nil {
		resp.usage = *reply.Usage
	} else {
		resp.usage = estimate(resp)
	}
	s.play(x, resp)
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// begin looks up what the request continues and returns a new response with the items before it. A
// conversation is taken and has to be released.
func (s *Server) begin(req *request) (*response, []*item, *refusal) {
	resp := &response{id: s.newID("resp"), req: req, created: time.Now(), input: req.input}
	old, bad := s.find(resp)
	if bad != nil {
		return nil, nil, bad
	}
	if resp.parent != nil {
		old = resp.parent.history()
	}
	return resp, old, nil
}

// find sets what the response continues, and returns the items of its conversation if it has one.
func (s *Server) find(resp *response) ([]*item, *refusal) {
	req := resp.req
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case req.conversation != "":
		c, ok := s.conversations[req.conversation]
		switch {
		case !ok:
			// The status and the text are invented after those of responses.
			return nil, notFound("Conversation with id '%s' not found.", req.conversation)
		case c.busy || c.locked:
			return nil, invalid("conversation_locked", "conversation",
				"Another process is currently operating on this conversation. Please retry in a few seconds.")
		}
		c.busy = true
		resp.conv, resp.round, resp.size = c, c.round, c.size
		return c.items, nil
	case req.previous != "":
		p, ok := s.responses[req.previous]
		if !ok && req.lane != nil {
			p, ok = req.lane.socket.cached(req.previous)
		}
		if !ok {
			return nil, invalid("previous_response_not_found", "previous_response_id",
				"Previous response with id '%s' not found.", req.previous)
		}
		switch status := p.state(time.Now()); status {
		case "completed", "incomplete":
		default:
			// Invented: what continuing from such a response gives is not known.
			return nil, invalid("", "previous_response_id",
				"Previous response with id '%s' cannot be continued: its status is '%s'.", req.previous, status)
		}
		resp.parent, resp.round, resp.size = p, p.round, p.size
	}
	return nil, nil
}

// release frees the conversation of a response.
func (s *Server) release(r *response) {
	if r.conv != nil {
		s.mu.Lock()
		r.conv.busy = false
		s.mu.Unlock()
	}
}

// checkInput judges the input together with the items before it.
func (s *Server) checkInput(resp *response, old []*item, org string) *refusal {
	missing := func(id string) *refusal {
		e := notFound("Item with id '%s' not found. Items are not persisted when `store` is set to false. "+
			"Try again with `store` set to true, or remove this item from your input.", id)
		e.Body.Param = optional("input")
		return e
	}
	input := make([]*item, len(resp.input))
	for i, it := range resp.input {
		s.mu.Lock()
		stored, known := s.items[it.id]
		s.mu.Unlock()
		switch {
		case it.kind == "item_reference":
			if !known {
				return missing(it.id)
			}
			it = stored
		case sealed[it.kind] && it.fields.has("encrypted_content"):
			if bad := s.checkSeal(it, org); bad != nil {
				return bad
			}
		case it.kind == "reasoning" && it.id != "" && !known:
			return missing(it.id) // other items are complete in themselves, and accepted under any id
		}
		input[i] = it
		resp.size += len(it.raw)
	}
	if s.PairReasoning {
		if bad := s.checkReasoning(input); bad != nil {
			return bad
		}
	}
	resp.input = input
	if bad := checkPairing(old, resp.input); bad != nil {
		return bad
	}
	if bad := checkNamespaces(resp.input, offeredTools(resp.req, append(old[:len(old):len(old)], resp.input...))); bad != nil {
		return bad
	}
	// Where the client keeps the history, its answers are in the input.
	made := false
	for _, it := range resp.input {
		if it.modelMade() && !made {
			resp.round++
		}
		made = it.modelMade()
	}
	return nil
}

// checkReasoning refuses stored items that come back without the reasoning that the model made right before
// them, and reasoning without what came after it.
func (s *Server) checkReasoning(input []*item) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range input {
		n := s.neighbours[it.id]
		switch {
		case it.id == "":
		case n.after != "" && (i+1 == len(input) || input[i+1].id != n.after):
			return invalid("", "input", "Item '%s' of type 'reasoning' was provided without its required following item.", it.id)
		case n.before != "" && (i == 0 || input[i-1].id != n.before):
			return invalid("", "input", "Item '%s' of type '%s' was provided without its required 'reasoning' item: '%s'.",
				it.id, it.kind, n.before)
		}
	}
	return nil
}

// neighbours are the ids of the reasoning before an item and of the item after reasoning.
type neighbours struct{ before, after string }

// offeredTools returns the tools of the request and those that items of the conversation brought.
func offeredTools(req *request, old []*item) map[string]tool {
	offered := req.tools.names
	copied := false
	bring := func(items []*item) {
		for _, it := range items {
			if it.kind != "tool_search_output" && it.kind != "additional_tools" {
				continue
			}
			more, bad := parseTools("tools", it.fields["tools"])
			if bad != nil {
				continue // it was stored by a script
			}
			if !copied {
				clone := make(map[string]tool, len(offered)+len(more.names))
				for name, t := range offered {
					clone[name] = t
				}
				offered, copied = clone, true
			}
			for name, t := range more.names {
				if it.kind == "tool_search_output" && t.namespace == "" {
					t.namespace = name // a function that is loaded alone is its own namespace
				}
				offered[name] = t
			}
		}
	}
	bring(old)
	bring(req.input)
	return offered
}

func newTurn(x *exchange, resp *response, old []*item, offered map[string]tool) *Turn {
	t := &Turn{
		Model:        resp.req.model,
		Instructions: resp.req.fields.str("instructions"),
		Round:        resp.round,
		ctx:          x.ctx,
		key:          resp.req.previous + resp.req.conversation + "\x00" + string(resp.req.fields["input"]),
	}
	x.note(func(r *Request) { t.Request = *r })
	for _, it := range old {
		t.Input = append(t.Input, it.raw)
	}
	for _, it := range resp.input {
		t.Input = append(t.Input, it.raw)
	}
	t.New = t.Input[len(old):]
	for name := range offered {
		t.Tools = append(t.Tools, name)
	}
	slices.Sort(t.Tools)
	return t
}

// estimate makes a usage of four bytes a token.
func estimate(resp *response) Usage {
	const bytesPerToken = 4
	out := 0
	reasoning := 0
	for _, it := range resp.output {
		out += len(it.raw)
		if it.kind == "reasoning" {
			reasoning += len(it.raw)
		}
	}
	in := resp.size - out + len(resp.req.fields["instructions"]) + len(resp.req.fields["tools"])
	return Usage{
		InputTokens:     int64(in/bytesPerToken) + 1,
		OutputTokens:    int64(out/bytesPerToken) + 1,
		ReasoningTokens: int64(reasoning / bytesPerToken),
	}
}

// play answers with a response.
func (s *Server) play(x *exchange, resp *response) {
	reply := resp.reply
	x.note(func(r *Request) { r.ResponseID = resp.id })
	if resp.req.background {
		s.playBackground(x, resp)
		return
	}
	x.wait(reply.Delay)
	switch reply.Cut {
	case Whole:
	case HangUp:
		x.hangUp()
	case Unsent:
		s.keep(resp)
		x.abort()
	default:
		x.sendCut(resp)
		return
	}
	if resp.streams() {
		x.stream(resp.edited(), resp)
		x.end(reply.Cut)
		return
	}
	s.keep(resp)
	x.send(http.StatusOK, resp.appendJSON(nil, resp.status))
}

// streams reports whether the response is sent as events.
func (r *response) streams() bool { return r.req.lane != nil || r.req.stream && !r.reply.Plain }

// keep stores a response and moves its conversation on.
func (s *Server) keep(resp *response) {
	if resp.status == "completed" && !resp.req.prepare {
		resp.round++
	}
	input := make([]*item, len(resp.input))
	for i, it := range resp.input {
		input[i] = s.identify(it)
	}
	resp.input = input
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := resp.conv; c != nil && resp.status != "failed" && resp.status != "cancelled" {
		c.items = append(append(c.items[:len(c.items):len(c.items)], resp.input...), resp.output...)
		c.round, c.size = resp.round, resp.size
	}
	if l := resp.req.lane; l != nil && (resp.status == "completed" || resp.status == "incomplete") {
		l.latest = resp
	}
	if !resp.req.store {
		return
	}
	s.responses[resp.id] = resp
	for _, it := range resp.input {
		s.items[it.id] = it
	}
	for i, it := range resp.output {
		s.items[it.id] = it
		if it.kind == "reasoning" && i+1 < len(resp.output) {
			next := resp.output[i+1]
			s.neighbours[it.id] = neighbours{before: s.neighbours[it.id].before, after: next.id}
			s.neighbours[next.id] = neighbours{before: it.id}
		}
	}
}

// sendRaw answers with what is no response.
func (x *exchange) sendRaw(raw *RawReply) {
	if raw.Status == 0 {
		x.abort()
	}
	if x.socket != nil {
		x.sendRawMessage(raw)
		return
	}
	for name, values := range raw.Header {
		x.w.Header()[name] = values
	}
	x.start(raw.Status, "")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(raw.Body)))
	x.w.WriteHeader(raw.Status)
	x.w.Write([]byte(raw.Body))
}

// sendCut answers with a part of the response.
func (x *exchange) sendCut(resp *response) {
	reply := resp.reply
	if resp.streams() {
		x.streamCut(resp)
		return
	}
	switch reply.Cut {
	case FlatError, NestedError:
		// Outside of a stream an error has a status of its own.
		x.refuse(&refusal{Status: http.StatusInternalServerError, Body: reply.errorBody()})
		return
	case FailedEvent:
		e := reply.errorBody()
		failed := *reply
		failed.Code, failed.Message = *e.Code, e.Message
		resp.reply, resp.output = &failed, nil
		x.send(http.StatusOK, resp.appendJSON(nil, "failed"))
		return
	}
	body := resp.appendJSON(nil, resp.status)
	x.start(http.StatusOK, "application/json")
	if reply.Cut == Reset {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.w.Write(body[:len(body)/2])
	x.end(reply.Cut)
}

// end ends a body in the way of the cut.
func (x *exchange) end(cut Cut) {
	if x.socket != nil {
		x.endMessages(cut)
		return
	}
	switch cut {
	case Reset:
		x.flush()
		x.abort()
	case Freeze:
		x.flush()
		x.freeze()
	}
}

// hangUp makes the connection end with the answer.
func (x *exchange) hangUp() {
	if x.socket == nil {
		x.w.Header().Set("Connection", "close")
	}
}

func (x *exchange) flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

// errorBody is the error of a cut that has one.
func (r *Reply) errorBody() errorBody {
	code, message := r.Code, r.Message
	if code == "" {
		code = "server_error"
	}
	if message == "" {
		message = "An error occurred while processing your request."
	}
	typ := "server_error"
	switch {
	case code == "rate_limit_exceeded":
		typ = "tokens"
	case strings.HasPrefix(code, "invalid") || code == "context_length_exceeded":
		typ = "invalid_request_error"
	}
	return errorBody{Message: message, Type: typ, Code: &code}
}
