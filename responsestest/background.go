package responsestest

import (
	"net/http"
	"strconv"
	"time"
)

// state returns the status that the response has at a time. Only background responses change theirs.
func (r *response) state(now time.Time) string {
	switch {
	case r.cancelled:
		return "cancelled"
	case now.Before(r.readyAt):
		return "in_progress"
	}
	return r.status
}

// playBackground answers at once; the response completes by itself after the delay of its reply.
func (s *Server) playBackground(x *exchange, resp *response) {
	resp.readyAt = time.Now().Add(resp.reply.Delay)
	resp.events = resp.edited()
	s.keep(resp)
	if resp.req.stream {
		x.stream(resp.events, resp)
		return
	}
	x.send(http.StatusOK, resp.appendJSON(nil, "queued"))
}

// retrieve serves GET /v1/responses/{id}, as a document or as the stream of a background response.
func (s *Server) retrieve(x *exchange) {
	resp := s.lookup(x)
	if resp == nil {
		return
	}
	query := x.r.URL.Query()
	if query.Get("stream") == "true" {
		if !resp.req.background || !resp.req.stream {
			// That this is not possible is documented; the text is invented.
			x.refuse(invalid("", "stream", "This response cannot be streamed: it was not created with background and stream."))
			return
		}
		after, err := strconv.Atoi(query.Get("starting_after"))
		if err != nil {
			after = -1
		}
		x.resume(resp.events, resp, after)
		return
	}
	s.mu.Lock()
	status := resp.state(time.Now())
	s.mu.Unlock()
	x.send(http.StatusOK, resp.appendJSON(nil, status))
}

func (s *Server) cancel(x *exchange) {
	resp := s.lookup(x)
	if resp == nil {
		return
	}
	if !resp.req.background {
		// That only background responses can be cancelled is documented; the text is invented.
		x.refuse(invalid("", "", "Cannot cancel a response that was not created with background set to true."))
		return
	}
	s.mu.Lock()
	if resp.state(time.Now()) == "in_progress" {
		resp.cancelled = true
	}
	status := resp.state(time.Now())
	s.mu.Unlock()
	x.send(http.StatusOK, resp.appendJSON(nil, status))
}
