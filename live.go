package fnloop

import (
	"context"
	"io"
	"sync"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// A live passes on what the program of one call prints.
type live struct {
	events chan<- relayedEvent
	id     string
	over   chan struct{}   // closed when the call has its output
	ended  <-chan struct{} // closed when the handler's context ends

	sending sync.RWMutex // is held while an event is sent, which ends when over is closed
}

// liveOf is that of the handler with this context; nil when nobody reads events.
func liveOf(ctx context.Context) *live {
	if h := handlingOf(ctx); h != nil {
		return h.live
	}
	return nil
}

// finish makes sure that nothing more is sent.
func (l *live) finish() {
	close(l.over)
	l.sending.Lock()
	//lint:ignore SA2001 there is nothing to guard, but sends to wait for
	l.sending.Unlock()
}

// LiveOutput returns writers for what a program prints that a handler runs. What
// is written becomes [CallOutput] events. [PythonTool] does this by itself. Both
// are nil when nobody reads events. A write waits for the reader until the
// handler's context ends, and is lost once the handler has returned. Neither
// writer is safe for concurrent use.
func LiveOutput(ctx context.Context) (stdout, stderr io.Writer) {
	l := liveOf(ctx)
	if l == nil {
		return nil, nil
	}
	return &liveWriter{live: l, stream: "stdout"}, &liveWriter{live: l, stream: "stderr"}
}

// Emit passes an event of the handler's own to the reader of [Loop.Events], such
// as a chart or its progress. It returns when the reader is done with the event,
// or when the handler's context ends. Do not change the event afterwards. Emit
// reports whether the event was passed on: it is not if nobody reads events, or
// if the handler has returned.
//
// Any type with the method Type can be an event. [WriteSSE] sends it as an object
// of its type's fields and the member type, so the browser gets all that it
// holds. Put the ID of the call into it, which [CallFrom] gives.
func Emit(ctx context.Context, e Event) bool {
	l := liveOf(ctx)
	if l == nil {
		return false
	}
	return l.emit(e)
}

// emit passes e on and waits until it was read.
func (l *live) emit(e Event) bool {
	read := make(chan struct{})
	if !l.send(relayedEvent{e, read}) {
		return false
	}
	select {
	case <-read:
	case <-l.ended:
	}
	return true
}

// send passes an event on, unless the call is over.
func (l *live) send(s relayedEvent) bool {
	l.sending.RLock()
	defer l.sending.RUnlock()
	select {
	case <-l.over: // first, since both may be ready
		return false
	default:
	}
	select {
	case l.events <- s:
		return true
	case <-l.over:
	case <-l.ended:
	}
	return false
}

type liveWriter struct {
	*live
	stream string
	rest   []byte // the beginning of a rune
}

func (w *liveWriter) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	whole := excerpt.TrimEnd(all)
	w.rest = append([]byte(nil), all[len(whole):]...)
	if len(whole) == 0 {
		return len(p), nil
	}
	w.send(relayedEvent{Event: CallOutput{ID: w.id, Stream: w.stream, Text: toValidUTF8(whole)}})
	return len(p), nil
}
