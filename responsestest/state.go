package responsestest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// lookup finds the response that the path names, or refuses the request and returns nil.
func (s *Server) lookup(x *exchange) *response {
	id := x.r.PathValue("id")
	s.mu.Lock()
	resp, ok := s.responses[id]
	s.mu.Unlock()
	if !ok {
		x.refuse(notFound("Response with id '%s' not found.", id))
		return nil
	}
	return resp
}

func (s *Server) remove(x *exchange) {
	id := x.r.PathValue("id")
	s.mu.Lock()
	ok := s.forget(id)
	s.mu.Unlock()
	if !ok {
		x.refuse(notFound("Response with id '%s' not found.", id))
		return
	}
	x.send(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"object":"response","deleted":true}`, id))
}

// listInput lists the input items of a response, the newest first, those of its ancestors included.
func (s *Server) listInput(x *exchange) {
	resp := s.lookup(x)
	if resp == nil {
		return
	}
	var items []*item
	if resp.parent != nil {
		items = resp.parent.history()
	}
	items = append(items, resp.input...)
	data := make([]json.RawMessage, 0, len(items))
	first, last := "null", "null"
	for i := len(items) - 1; i >= 0; i-- {
		data = append(data, items[i].raw)
		last = strconv.Quote(items[i].id)
		if first == "null" {
			first = last
		}
	}
	list, _ := json.Marshal(data)
	x.send(http.StatusOK, fmt.Appendf(nil, `{"object":"list","data":%s,"first_id":%s,"has_more":false,"last_id":%s}`, list, first, last))
}

func (s *Server) newConversation(x *exchange) {
	o, err := decodeObject(json.RawMessage(or(x.body, "{}")))
	if err != nil {
		x.refuse(invalid("", "", "We could not parse the JSON body of your request. The API expects a JSON payload."))
		return
	}
	c := &conversation{meta: or(o["metadata"], "{}")}
	if o.has("items") {
		items, bad := s.parseInput(o["items"])
		if bad != nil {
			x.refuse(bad)
			return
		}
		c.items = items
	}
	c.id = s.newID("conv")
	s.mu.Lock()
	s.conversations[c.id] = c
	s.mu.Unlock()
	x.send(http.StatusOK, c.json())
}

func (c *conversation) json() []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"conversation","created_at":%d,"metadata":%s}`, c.id, time.Now().Unix(), c.meta)
}

func (s *Server) getConversation(x *exchange) {
	id := x.r.PathValue("id")
	s.mu.Lock()
	c, ok := s.conversations[id]
	s.mu.Unlock()
	if !ok {
		x.refuse(notFound("Conversation with id '%s' not found.", id))
		return
	}
	x.send(http.StatusOK, c.json())
}

func (s *Server) removeConversation(x *exchange) {
	id := x.r.PathValue("id")
	s.mu.Lock()
	_, ok := s.conversations[id]
	delete(s.conversations, id)
	s.mu.Unlock()
	if !ok {
		x.refuse(notFound("Conversation with id '%s' not found.", id))
		return
	}
	x.send(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"object":"conversation.deleted","deleted":true}`, id))
}

// compact serves POST /v1/responses/compact: the messages of the user stay, the rest becomes one item.
func (s *Server) compact(x *exchange) {
	req, bad := s.parseRequest(x.body)
	if bad != nil {
		x.refuse(bad)
		return
	}
	resp, old, bad := s.begin(req)
	if bad != nil {
		x.refuse(bad)
		return
	}
	defer s.release(resp)
	var output []json.RawMessage
	for _, it := range append(old[:len(old):len(old)], resp.input...) {
		resp.size += len(it.raw)
		if it.kind == "message" && it.fields.str("role") == "user" {
			output = append(output, s.identify(it).raw)
		}
	}
	summary := s.complete(json.RawMessage(`{"type":"compaction"}`), "completed", nil, x.r.Header.Get("OpenAI-Organization"))
	output = append(output, summary.raw)
	list, _ := json.Marshal(output)
	x.send(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"object":"response.compaction","created_at":%d,"output":%s,"usage":%s}`,
		s.newID("cmpr"), time.Now().Unix(), list, estimate(resp).json()))
}
