// Package sse writes server-sent events to a browser that may be slow, stuck or
// gone, which never is an error: a run goes on without its reader.
package sse

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// A Writer writes frames until the browser is gone. It is safe for concurrent use.
type Writer struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	keepAlive time.Duration
	timeout   time.Duration

	mu    sync.Mutex
	gone  bool
	quiet *time.Timer // fires when nothing was written for keepAlive; may be nil
}

// New sets the header of a stream. Where keepAlive is positive, a comment is
// written when nothing else was for so long; where timeout is, a browser that
// takes nothing for so long counts as gone. End must be called.
func New(w http.ResponseWriter, keepAlive, timeout time.Duration) *Writer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	out := &Writer{w: w, control: http.NewResponseController(w), keepAlive: keepAlive, timeout: timeout}
	if keepAlive > 0 {
		out.mu.Lock() // the timer's function reads it
		defer out.mu.Unlock()
		out.quiet = time.AfterFunc(keepAlive, out.comment)
	}
	return out
}

// Write writes one or more whole frames at once.
func (o *Writer) Write(frames []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(frames)
}

// Gone reports whether the browser is gone.
func (o *Writer) Gone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// End ends the writing: the server may use the connection for something else.
func (o *Writer) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	if o.quiet != nil {
		o.quiet.Stop()
	}
}

func (o *Writer) comment() {
	if !o.mu.TryLock() { // something is being written
		return
	}
	defer o.mu.Unlock()
	o.write([]byte(":\n\n"))
}

// write writes and flushes. The mutex is held.
func (o *Writer) write(p []byte) {
	if o.gone {
		return
	}
	if o.timeout > 0 {
		// Where there are no deadlines there is no connection that can block.
		_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout))
	}
	if _, err := o.w.Write(p); err != nil {
		o.gone = true
		return
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.gone = true
		return
	}
	if o.quiet != nil {
		o.quiet.Reset(o.keepAlive)
	}
}
