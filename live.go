package fnloop

import (
	"context"
	"io"
)

type liveKey struct{}

// A live passes on what the program of one call prints.
type live struct {
	events chan<- sent
	id     string
	over   <-chan struct{} // closed when the call has its output
	ended  <-chan struct{} // closed when the handler's context ends
}

// LiveOutput returns where a handler should copy what a program that it runs
// prints, so that it becomes [CallOutput] events; [PythonTool] does this by
// itself. Both are nil when nobody listens. A write waits for the reader of the
// events until the handler's context ends, and is lost once the handler has
// returned. Neither is safe for concurrent use.
func LiveOutput(ctx context.Context) (stdout, stderr io.Writer) {
	l, ok := ctx.Value(liveKey{}).(*live)
	if !ok {
		return nil, nil
	}
	return &liveWriter{live: l, stream: "stdout"}, &liveWriter{live: l, stream: "stderr"}
}

type liveWriter struct {
	*live
	stream string
	rest   []byte // the beginning of a rune
}

func (w *liveWriter) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	whole := trimPartialEnd(all)
	w.rest = append([]byte(nil), all[len(whole):]...)
	select {
	case <-w.over: // first, since both may be ready
		return len(p), nil
	default:
	}
	if len(whole) == 0 {
		return len(p), nil
	}
	select {
	case w.events <- sent{Event: CallOutput{ID: w.id, Stream: w.stream, Text: valid(whole)}}:
	case <-w.over:
	case <-w.ended:
	}
	return len(p), nil
}
