// Package uistream writes the events of a run in the protocol of a front end,
// whose encoder makes JSON frames of them.
package uistream

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/sse"
)

// Frames are the frames that an encoder has made and nobody has written yet.
type Frames struct {
	buf  bytes.Buffer
	json *json.Encoder // to buf
	err  error
}

// Put adds a value as a frame.
func (f *Frames) Put(v any) {
	if f.json == nil {
		f.json = json.NewEncoder(&f.buf)
		f.json.SetEscapeHTML(false)
	}
	f.buf.WriteString("data: ")
	if err := f.json.Encode(v); err != nil && f.err == nil { // of a value of the caller's
		f.err = err
	}
	f.buf.WriteByte('\n')
}

// Raw adds a frame that is not JSON.
func (f *Frames) Raw(data string) { f.buf.WriteString("data: " + data + "\n\n") }

// Err is the first error of Put.
func (f *Frames) Err() error { return f.err }

// An Encoder makes frames of events.
type Encoder interface {
	// Event adds what an event is in the protocol; failed says that the run's
	// error comes beside it. Its error is one of the event.
	Event(e fnloop.Event, failed bool) error
	// End adds what is missing when the events have ended, err being the run's.
	End(err error)
}

// Write sends the frames of a run to a browser. It reads the events to the end
// whatever the browser does, and returns the run's error unless the caller has
// cancelled the run, as [fnloop.SSE.Write] does. Of s the times count.
func Write(w http.ResponseWriter, events iter.Seq2[fnloop.Event, error], s fnloop.SSE, frames *Frames, enc Encoder) error {
	if s.KeepAlive == 0 {
		s.KeepAlive = fnloop.DefaultKeepAlive
	}
	if s.WriteTimeout == 0 {
		s.WriteTimeout = fnloop.DefaultWriteTimeout
	}
	out := sse.New(w, s.KeepAlive, s.WriteTimeout)
	defer out.End()
	flush := func() {
		if frames.buf.Len() > 0 {
			out.Write(frames.buf.Bytes())
			frames.buf.Reset()
		}
	}
	var runErr, eventErr error
	cancelled := false
	for e, err := range events {
		if err != nil {
			runErr = err
		}
		if done, ok := e.(fnloop.Done); ok && done.Answer != nil {
			cancelled = done.Answer.Stop == fnloop.StopCancelled
		}
		if e != nil && !out.Gone() {
			if err := enc.Event(e, err != nil); err != nil && eventErr == nil {
				eventErr = err
			}
		}
		flush()
	}
	enc.End(runErr)
	flush()
	if runErr != nil && !cancelled {
		return runErr
	}
	return eventErr
}
