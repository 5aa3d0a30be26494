// Package relay copies a stream to a writer that may be slow, without ever
// waiting for it.
package relay

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// room is how many bytes a writer may lag behind before it misses some.
const room = 256 << 10

// A Writer passes what is written to it on to another writer, from a goroutine
// of its own. Write never blocks: when the other writer lags by more than the
// buffer it misses bytes, and is told how many in their place. What the other
// writer gets is cut between runes only.
type Writer struct {
	mu      sync.Mutex
	wake    sync.Cond
	buf     []byte // what the other writer is yet to get
	dropped int64  // bytes missing after buf
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
	if r.dropped == 0 {
		fits := min(len(p), room-len(r.buf))
		r.buf = append(r.buf, p[:fits]...)
		p = p[fits:]
		if len(p) > 0 {
			// The beginning of a rune must not stay without its end.
			whole := wholeRunes(r.buf)
			r.dropped = int64(len(r.buf) - whole)
			r.buf = r.buf[:whole]
		}
	}
	r.dropped += int64(len(p))
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
		r.buf = nil
		r.mu.Unlock()
	}
}

// copy is the goroutine.
func (r *Writer) copy(w io.Writer) {
	defer close(r.done)
	var spare, carry []byte
	midRune := false // bytes of a rune that began among the dropped may follow
	for {
		chunk, dropped, last := r.take(spare)
		spare = chunk[:0]
		if midRune {
			for i := 0; i < utf8.UTFMax-1 && len(chunk) > 0 && !utf8.RuneStart(chunk[0]); i++ {
				chunk = chunk[1:]
			}
			midRune = len(chunk) == 0 && !last
		}
		if len(carry) > 0 {
			chunk = append(carry, chunk...)
			carry = nil
		}
		if whole := wholeRunes(chunk); whole < len(chunk) && !last && dropped == 0 {
			carry = append([]byte(nil), chunk[whole:]...)
			chunk = chunk[:whole]
		}
		if dropped > 0 {
			chunk = fmt.Appendf(chunk, "\n[... %d bytes left out ...]\n", dropped)
			midRune = true
		}
		if len(chunk) > 0 {
			if _, err := w.Write(chunk); err != nil {
				r.mu.Lock()
				r.gone, r.buf = true, nil
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
func (r *Writer) take(empty []byte) (chunk []byte, dropped int64, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.buf) == 0 && r.dropped == 0 && !r.closed && !r.gone {
		r.wake.Wait()
	}
	chunk, dropped = r.buf, r.dropped
	r.buf, r.dropped = empty, 0
	return chunk, dropped, r.closed || r.gone
}

// wholeRunes is the length of b without the beginning of a rune at its end.
func wholeRunes(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}
