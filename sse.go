package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"
)

// browserWait is how long a browser may take nothing of what is written to it.
const browserWait = 30 * time.Second

// WriteSSE sends the events of a run to a browser as server-sent events, each
// as it comes. The event's name and the member type of its data are
// [Event.Type]; the other members are the fields of the event's type:
//
//	event: text_delta
//	data: {"type":"text_delta","text":"102","phase":"final_answer"}
//
// The last one is done, with the [Answer]. When the run has an error, done has a
// member error beside it that holds the stop reason: what the error says is for
// the host, and is returned.
//
// It reads events to the end whatever the browser does, so that the host sees
// Done and can store its Answer. When a write fails, or the browser takes nothing
// for 30 seconds, it writes no more and the run goes on until its own context
// ends it, which the context of the request does when the browser has gone. That
// is no error, nor is a run that its context cancelled. The write timeout of an
// [http.Server] does not end the stream: each write has those 30 seconds.
func WriteSSE(w http.ResponseWriter, events iter.Seq2[Event, error]) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	out := eventWriter{w: w, control: http.NewResponseController(w)}
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
		if err := out.write(e, err); err != nil && eventErr == nil {
			eventErr = err
		}
	}
	if runErr != nil && !cancelled {
		return runErr
	}
	return eventErr
}

// An eventWriter writes events to a browser until it is gone.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
	gone    bool
}

// write writes one event. Its error is one of the event, not of the browser.
func (o *eventWriter) write(e Event, runErr error) error {
	if o.gone {
		return nil
	}
	data, err := encodeEvent(e)
	if err != nil {
		return err
	}
	if done, ok := e.(Done); ok && runErr != nil && done.Answer != nil {
		stop, err := json.Marshal(done.Answer.Stop)
		if err != nil {
			return err
		}
		data = append(append(append(data[:len(data)-1], `,"error":`...), stop...), '}')
	}
	o.buf.Reset()
	o.buf.WriteString("event: " + e.Type() + "\ndata: ")
	o.buf.Write(data) // JSON has no line break
	o.buf.WriteString("\n\n")
	// Where there are no deadlines there is no connection that can block.
	o.control.SetWriteDeadline(time.Now().Add(browserWait))
	if _, err := o.w.Write(o.buf.Bytes()); err != nil {
		o.gone = true
		return nil
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.gone = true
	}
	return nil
}
