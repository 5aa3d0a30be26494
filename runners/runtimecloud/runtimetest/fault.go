package runtimetest

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// A Fault spoils the answer to one request. Its zero value spoils nothing.
type Fault struct {
	// Hook, when not nil, is called first.
	Hook func()
	// After carries the request out before its answer is spoiled.
	After bool

	// Status and Code refuse the request. Code alone comes with 409.
	Status        int
	Code          string
	Message, Hint string
	Details       any
	RetryAfter    string  // the header
	RetryAfterMs  float64 // in the body
	// Body is sent as it is, with Status, in place of the API's own envelope.
	Body string
	// Location redirects there.
	Location string

	// Drop closes the connection without an answer.
	Drop bool
	// Freeze sends nothing until the client goes away.
	Freeze bool
	// Half cuts a successful answer in half and closes the connection, or with
	// Freeze sends nothing more.
	Half bool
	// Late starts the answer with status 200 before its outcome is known, be it
	// that of the request, Code's or Body.
	Late bool

	// Fork is how many copies of a fork do not start.
	Fork int

	// Stream spoils a stream after so many of its Events.
	Stream StreamFault
	Events int
}

// A StreamFault is what can happen to a stream.
type StreamFault string

// The ways a stream can be spoiled. After all but StreamTruncated and
// StreamGap it is at its end.
const (
	StreamCut       StreamFault = "cut"       // ends without exit
	StreamReset     StreamFault = "reset"     // the connection breaks
	StreamHalf      StreamFault = "half"      // ends within a line
	StreamGarbage   StreamFault = "garbage"   // a line is no JSON
	StreamFreeze    StreamFault = "freeze"    // says nothing more until the client goes
	StreamContinue  StreamFault = "continue"  // asks to be taken up at a cursor
	StreamError     StreamFault = "error"     // has an error event, of Code and Status
	StreamTruncated StreamFault = "truncated" // leaves out an event and says so
	StreamGap       StreamFault = "gap"       // leaves out an event and says nothing
)

// Fail spoils the answers to the next requests of a step, one after the other.
func (s *Server) Fail(step Step, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = make(map[Step][]Fault)
	}
	s.faults[step] = append(s.faults[step], faults...)
}

// Unused gives the number of faults that no request has met.
func (s *Server) Unused() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, faults := range s.faults {
		n += len(faults)
	}
	return n
}

func (s *Server) nextFault(step Step) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queued := s.faults[step]; len(queued) > 0 {
		f, s.faults[step] = queued[0], queued[1:]
	}
	return f
}

// spoil answers in place of the request, and reports whether it did.
func (c *call) spoil() bool {
	f := &c.fault
	h := c.out.Header()
	switch {
	case f.Stream != "":
		return false
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Freeze && !f.Half:
		<-c.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Location != "":
		h.Set("Location", f.Location)
		c.out.WriteHeader(cmp.Or(f.Status, http.StatusFound))
	case f.Code != "":
		e := &apiError{
			status: cmp.Or(f.Status, http.StatusConflict), code: f.Code, message: cmp.Or(f.Message, "Made to fail."),
			hint: f.Hint, details: f.Details, retryAfter: f.RetryAfter, retryAfterMs: f.RetryAfterMs,
		}
		if f.Late {
			c.late(encode(e.envelope(c.id)))
		} else {
			c.refuse(e)
		}
	case f.Late && f.Body != "":
		c.late([]byte(f.Body))
	case f.Status != 0:
		h.Set("Content-Type", "text/html")
		if f.RetryAfter != "" {
			h.Set("Retry-After", f.RetryAfter)
		}
		h.Set("Content-Length", strconv.Itoa(len(f.Body)))
		c.out.WriteHeader(f.Status)
		c.print([]byte(f.Body))
	default:
		return false
	}
	return true
}

// late sends white space for a while, and then the answer.
func (c *call) late(body []byte) {
	h := c.out.Header()
	h.Set("Content-Type", "application/json")
	h.Set("runtime-late-answer", "true")
	c.out.WriteHeader(http.StatusOK)
	for range 3 {
		c.print([]byte(" "))
		c.flush()
		if !pause(c.Context(), 10*time.Millisecond) {
			panic(http.ErrAbortHandler)
		}
	}
	c.print(body)
}

// half sends the beginning of an answer and breaks the connection.
func (c *call) half(v any) {
	h := c.out.Header()
	b, isFile := v.([]byte)
	if !isFile {
		b = encode(v)
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.out.WriteHeader(http.StatusOK)
	c.print(b[:len(b)/2])
	c.flush()
	if c.fault.Freeze {
		<-c.Context().Done()
	}
	panic(http.ErrAbortHandler)
}
