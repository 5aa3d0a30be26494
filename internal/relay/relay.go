// Package relay copies a stream to a writer that may be slow, without ever
// waiting for it.
package relay

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// room is how many bytes a writer may lag behind before it misses some: half of
// them are the first that it has not got, half the last.
const room = 256 << 10

// A Writer passes what is written to it on to another writer, from a goroutine
// of its own. Write never blocks: when the other writer lags by more than the
// buffer it misses bytes, and is told how many in their place. It never misses
// the last ones. What the other writer gets is cut between runes only.
type Writer struct {
	mu      sync.Mutex
	wake    sync.Cond
	buf     []byte // what the other writer is yet to get
	dropped int64  // bytes missing after buf
	tail    []byte // what comes after those
	closed  bool
	gone    bool // the other writer failed
	done    chan struct{}
}

// New returns a Writer that passes everything on to w. It must be closed.
func New(w io.Writer) *Writer {
	r := &Writer{done: make(chan struct{})}
	r.wake.L = &r.mu
	go r.copy(w)
	return r
}

// Write takes all of p and never fails.
func (r *Writer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	if r.closed || r.gone {
		return n, nil
	}
	if len(r.tail) == 0 {
		fits := min(len(p), room/2-len(r.buf))
		r.buf = append(r.buf, p[:fits]...)
		p = p[fits:]
	}
	r.tail = append(r.tail, p...)
	if len(r.tail) > room { // so that what is kept is not moved at each write
		over := len(r.tail) - room/2
		r.tail = append(r.tail[:0], r.tail[over:]...)
		r.dropped += int64(over)
	}
	r.wake.Signal()
	return n, nil
}

// Close gives the other writer up to grace for what it has not got yet, and
// leaves it behind after that.
func (r *Writer) Close(grace time.Duration) {
	r.mu.Lock()
	r.closed = true
	r.wake.Signal()
	r.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		r.mu.Lock()
		r.gone = true
		r.buf, r.tail = nil, nil
		r.mu.Unlock()
	}
}

// copy is the goroutine.
func (r *Writer) copy(w io.Writer) {
	defer close(r.done)
	var spare, carry []byte
	for {
		chunk, dropped, tail, last := r.take(spare)
		spare = chunk[:0]
		if len(carry) > 0 {
			chunk = append(carry, chunk...)
			carry = nil
		}
		if dropped > 0 {
			// The beginning of a rune must not stay without its end, nor an end
			// without its beginning.
			left := len(chunk) + len(tail)
			chunk, tail = excerpt.TrimEnd(chunk), excerpt.TrimStart(tail)
			dropped += int64(left - len(chunk) - len(tail))
			chunk = fmt.Appendf(chunk, excerpt.Marker, dropped)
		}
		chunk = append(chunk, tail...)
		if whole := excerpt.TrimEnd(chunk); !last {
			carry = append([]byte(nil), chunk[len(whole):]...)
			chunk = whole
		}
		if len(chunk) > 0 {
			if _, err := w.Write(chunk); err != nil {
				r.mu.Lock()
				r.gone, r.buf, r.tail = true, nil, nil
				r.mu.Unlock()
				return
			}
		}
		if last {
			return
		}
	}
}

// take waits for something to pass on and takes it all. It leaves empty for
// the next writes.
func (r *Writer) take(empty []byte) (chunk []byte, dropped int64, tail []byte, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.buf) == 0 && !r.closed && !r.gone {
		r.wake.Wait()
	}
	chunk, dropped, tail = r.buf, r.dropped, r.tail
	r.buf, r.dropped, r.tail = empty, 0, nil
	return chunk, dropped, tail, r.closed || r.gone
}
