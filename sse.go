package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"sync"
	"time"
)

// Defaults of an SSE's fields.
const (
	DefaultKeepAlive    = 15 * time.Second
	DefaultWriteTimeout = 30 * time.Second
)

// WriteSSE is [SSE.Write] with the zero SSE: what a user may see, as it happens.
func WriteSSE(w http.ResponseWriter, events iter.Seq2[Event, error]) error {
	return SSE{}.Write(w, events)
}

// An SSE sends events to a browser as server-sent events. The zero value is good
// for use.
type SSE struct {
	// View is what the browser is sent of each event.
	View View
	// KeepAlive is how long nothing may be sent before a comment is, which keeps
	// proxies from closing the connection. Zero means DefaultKeepAlive, negative
	// none.
	KeepAlive time.Duration
	// WriteTimeout is how long a browser may take nothing of what is written to
	// it. Zero means DefaultWriteTimeout, negative that of the server.
	WriteTimeout time.Duration
}

// Write sends the events of a run, each as it comes. The event's name and the
// member type of its data are [Event.Type]; the other members are the fields of
// the event's type:
//
//	event: text_delta
//	data: {"type":"text_delta","text":"102","phase":"final_answer"}
//
// The last one is done, with the [Answer] as the View shows it. When the run has
// an error, done has a member error beside it that holds the stop reason: what the
// error says is for the host, and is returned.
//
// It reads events to the end whatever the browser does, so that the host sees
// Done and can store its Answer. When a write fails, or the browser takes nothing
// for WriteTimeout, it writes no more and the run goes on until its own context
// ends it, which the context of the request does when the browser has gone. That
// is no error, nor is a run that its context cancelled. The write timeout of an
// [http.Server] does not end the stream: each write has a time of its own.
//
// An EventSource of a browser connects again when the stream ends, so it has to be
// closed at done, or it starts the next run.
func (s SSE) Write(w http.ResponseWriter, events iter.Seq2[Event, error]) error {
	out := s.begin(w)
	defer out.end()
	var runErr, eventErr error
	cancelled := false
	for e, err := range events {
		if err != nil {
			runErr = err
		}
		if e == nil {
			continue
		}
		if done, ok := e.(Done); ok && done.Answer != nil {
			cancelled = done.Answer.Stop == StopCancelled
		}
		if err := out.write("", e, err != nil); err != nil && eventErr == nil {
			eventErr = err
		}
	}
	if runErr != nil && !cancelled {
		return runErr
	}
	return eventErr
}

// begin writes the header of a stream.
func (s SSE) begin(w http.ResponseWriter) *eventWriter {
	if s.KeepAlive == 0 {
		s.KeepAlive = DefaultKeepAlive
	}
	if s.WriteTimeout == 0 {
		s.WriteTimeout = DefaultWriteTimeout
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	out := &eventWriter{SSE: s, w: w, control: http.NewResponseController(w)}
	if s.KeepAlive > 0 {
		out.mu.Lock() // the timer's function reads it
		defer out.mu.Unlock()
		out.quiet = time.AfterFunc(s.KeepAlive, out.keepAlive)
	}
	return out
}

// An eventWriter writes events to a browser until it is gone.
type eventWriter struct {
	SSE
	w       http.ResponseWriter
	control *http.ResponseController

	mu    sync.Mutex
	buf   bytes.Buffer
	gone  bool
	quiet *time.Timer // fires when nothing was written for KeepAlive; may be nil
}

// end stops writing: the server may use the connection for something else.
func (o *eventWriter) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	if o.quiet != nil {
		o.quiet.Stop()
	}
}

// write writes an event, with its ID unless that is empty. Its error is one of the
// event, not of the browser.
func (o *eventWriter) write(id string, e Event, failed bool) error {
	e = o.View.Event(e)
	if e == nil {
		return nil
	}
	data, err := encodeEvent(e)
	if err != nil {
		return err
	}
	if done, ok := e.(Done); ok && failed && done.Answer != nil {
		stop, err := json.Marshal(done.Answer.Stop)
		if err != nil {
			return err
		}
		data = append(append(append(data[:len(data)-1], `,"error":`...), stop...), '}')
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Reset()
	if id != "" {
		o.buf.WriteString("id: " + id + "\n")
	}
	o.buf.WriteString("event: " + e.Type() + "\ndata: ")
	o.buf.Write(data) // JSON has no line break
	o.buf.WriteString("\n\n")
	o.flush()
	return nil
}

func (o *eventWriter) keepAlive() {
	if !o.mu.TryLock() { // something is being written
		return
	}
	defer o.mu.Unlock()
	o.buf.Reset()
	o.buf.WriteString(":\n\n")
	o.flush()
}

// flush writes what is in buf. The mutex is held.
func (o *eventWriter) flush() {
	if o.gone {
		return
	}
	if o.WriteTimeout > 0 {
		// Where there are no deadlines there is no connection that can block.
		_ = o.control.SetWriteDeadline(time.Now().Add(o.WriteTimeout))
	}
	if _, err := o.w.Write(o.buf.Bytes()); err != nil {
		o.gone = true
		return
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.gone = true
		return
	}
	if o.quiet != nil {
		o.quiet.Reset(o.KeepAlive)
	}
}

// lost reports whether the browser is gone.
func (o *eventWriter) lost() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}
