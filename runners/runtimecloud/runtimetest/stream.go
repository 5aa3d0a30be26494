package runtimetest

import (
	"cmp"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// stream sends the events of a command as they come.
func (c *call) stream(a *answer, s *Server) {
	p, ctx := a.process, c.Context()
	h := c.out.Header()
	h.Set("Content-Type", "application/x-ndjson")
	c.out.WriteHeader(http.StatusOK)
	fault, events := c.fault.Stream, 0
	send := func(event map[string]any) bool {
		line := encode(event)
		if fault != "" && events == c.fault.Events {
			if fault == StreamTruncated || fault == StreamGap {
				data, isOutput := event["data"].(string)
				if !isOutput {
					c.print(line)
					return true
				}
				was := fault
				fault = ""
				if was == StreamTruncated {
					c.print(encode(map[string]any{
						"type": "truncated", "droppedBytes": len(data), "resumeAt": event["offset"].(int64) + int64(len(data)),
					}))
				}
				return true
			}
			c.breakOff(fault, line, p, a.cursor)
			return false
		}
		events++
		c.print(line)
		c.flush()
		return true
	}
	if a.start {
		start := map[string]any{"type": "start", "processId": p.id}
		if a.header != nil {
			start["replayed"] = true
		}
		if !send(start) {
			return
		}
	}
	for {
		over := p.finished()
		chunks, dropped, changed := p.since(a.cursor)
		if dropped > 0 {
			a.cursor += dropped
			if !send(map[string]any{"type": "truncated", "droppedBytes": dropped, "resumeAt": a.cursor}) {
				return
			}
		}
		for _, piece := range chunks {
			if piece.gone > 0 {
				if !send(map[string]any{"type": "truncated", "droppedBytes": piece.gone, "resumeAt": piece.end()}) {
					return
				}
				a.cursor = piece.end()
				p.sent(a.cursor)
				continue
			}
			event := map[string]any{"type": piece.stream, "data": strings.ToValidUTF8(string(piece.data), "\ufffd"), "offset": piece.offset}
			if !s.Lossy && !utf8.Valid(piece.data) {
				event["base64"] = piece.data
			}
			if !send(event) {
				return
			}
			a.cursor = piece.end()
			p.sent(a.cursor)
			if s.Bandwidth > 0 && !pause(ctx, time.Duration(len(piece.data))*time.Second/time.Duration(s.Bandwidth)) {
				panic(http.ErrAbortHandler)
			}
		}
		switch {
		case len(chunks) > 0:
		case over:
			if lost := p.lost(); lost != nil {
				event := lost.envelope(c.id)
				event["type"], event["cursor"] = "error", a.cursor
				send(event)
				return
			}
			event := p.outcome()
			event["type"] = "exit"
			send(event)
			return
		default:
			select {
			case <-changed:
			case <-p.done:
			case <-ctx.Done():
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// breakOff ends the stream of a command in the way of the fault, before the event
// in line.
func (c *call) breakOff(fault StreamFault, line []byte, p *process, cursor int64) {
	if fault == StreamContinue {
		c.print(encode(map[string]any{"type": "continue", "processId": p.id, "cursor": cursor}))
		return
	}
	c.breakStream(fault, line, func(e *apiError) map[string]any {
		event := e.envelope(c.id)
		event["type"], event["cursor"] = "error", cursor
		return event
	})
}

// breakStream ends a stream in the way of the fault, before the event in line.
// failure makes the event that an error is in such a stream.
func (c *call) breakStream(fault StreamFault, line []byte, failure func(*apiError) map[string]any) {
	switch fault {
	case StreamReset:
		c.flush()
		panic(http.ErrAbortHandler)
	case StreamHalf:
		c.print(line[:len(line)/2])
	case StreamGarbage:
		c.print([]byte("<html>502</html>\n"))
	case StreamFreeze:
		c.flush()
		<-c.Context().Done()
		panic(http.ErrAbortHandler)
	case StreamError:
		e := &apiError{status: cmp.Or(c.fault.Status, http.StatusServiceUnavailable), code: cmp.Or(c.fault.Code, "host_unavailable"), message: "Made to fail."}
		c.print(encode(failure(e)))
	}
}
