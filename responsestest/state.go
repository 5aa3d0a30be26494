package responsestest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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

// listInput lists the input items of a response, those of its ancestors included.
func (s *Server) listInput(x *exchange) {
	resp := s.lookup(x)
	if resp == nil {
		return
	}
	var items []*item
	if resp.parent != nil {
		items = resp.parent.history()
	}
	sendPage(x, append(items, resp.input...))
}

// listConversation lists the items of a conversation.
func (s *Server) listConversation(x *exchange) {
	id := x.r.PathValue("id")
	s.mu.Lock()
	c, ok := s.conversations[id]
	var items []*item
	if ok {
		items = slices.Clone(c.items)
	}
	s.mu.Unlock()
	if !ok {
		x.refuse(notFound("Conversation with id '%s' not found.", id))
		return
	}
	sendPage(x, items)
}

// sendPage sends a part of a list, as the parameters order, limit and after say: the newest first, unless
// the order is asc. The texts of its refusals are invented.
func sendPage(x *exchange, items []*item) {
	query := x.r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "20"))
	if err != nil || limit < 1 || limit > 100 {
		x.refuse(invalid("", "limit", "Invalid 'limit': expected a number from 1 to 100."))
		return
	}
	switch order := cmp.Or(query.Get("order"), "desc"); order {
	case "desc":
		slices.Reverse(items)
	case "asc":
	default:
		x.refuse(invalid("", "order", "Invalid 'order': expected 'asc' or 'desc'."))
		return
	}
	if after := query.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(it *item) bool { return it.id == after })
		if i < 0 {
			x.refuse(invalid("", "after", "Item with id '%s' not found.", after))
			return
		}
		items = items[i+1:]
	}
	more := len(items) > limit
	items = items[:min(limit, len(items))]
	data, first, last := make([]json.RawMessage, len(items)), "null", "null"
	for i, it := range items {
		data[i] = it.raw
	}
	if len(items) > 0 {
		first, last = strconv.Quote(items[0].id), strconv.Quote(items[len(items)-1].id)
	}
	list, _ := json.Marshal(data)
	x.send(http.StatusOK, fmt.Appendf(nil, `{"object":"list","data":%s,"first_id":%s,"has_more":%t,"last_id":%s}`, list, first, more, last))
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
		for _, it := range items {
			c.items = append(c.items, s.identify(it))
		}
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
