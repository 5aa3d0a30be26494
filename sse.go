package fnloop

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/fnloop/fnloop/internal/sse"
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

// An SSE sends events to a browser as server-sent events. The zero value is ready
// to use.
type SSE struct {
	// View is what the browser is sent of each event.
	View View
	// KeepAlive is the time without events after which a comment is sent, so that
	// proxies do not close the connection. Zero means DefaultKeepAlive, negative no
	// comments.
	KeepAlive time.Duration
	// WriteTimeout is how long one write to the browser may take. Zero means
	// DefaultWriteTimeout, negative the timeout of the server.
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
	defer out.End()
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
	return &eventWriter{Writer: sse.New(w, s.KeepAlive, s.WriteTimeout), view: s.View}
}

// An eventWriter writes events as a view shows them.
type eventWriter struct {
	*sse.Writer
	view View
	buf  bytes.Buffer
}

// write writes an event, with its ID unless that is empty. Its error is one of the
// event, not of the browser.
func (o *eventWriter) write(id string, e Event, failed bool) error {
	e = o.view.Event(e)
	if e == nil || o.Gone() {
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
	o.buf.Reset()
	if id != "" {
		o.buf.WriteString("id: " + id + "\n")
	}
	o.buf.WriteString("event: " + e.Type() + "\ndata: ")
	o.buf.Write(data) // JSON has no line break
	o.buf.WriteString("\n\n")
	o.Write(o.buf.Bytes())
	return nil
}
