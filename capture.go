package fnloop

import "sync"

// halfOutput is how much of either end of a stream a Capture holds. Two of them are
// as much as a document can show of one stream.
const halfOutput = DefaultMaxOutput / 2

// A Capture is a writer that keeps the head and the tail of a stream, in at most
// [DefaultMaxOutput] bytes of memory whatever is written. Its zero value is ready; it
// is safe for concurrent use. A runner gives one for each stream of a program
// to [Result.SetOutput].
type Capture struct {
	mu    sync.Mutex
	head  []byte
	ring  []byte // the last bytes after head; wraps at next once it is full
	next  int
	total int64
}

// Write takes all of p and never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	c.total += int64(n)
	if room := halfOutput - len(c.head); room > 0 {
		room = min(room, len(p))
		c.head = append(c.head, p[:room]...)
		p = p[room:]
	}
	if len(p) > halfOutput {
		p = p[len(p)-halfOutput:]
	}
	if room := halfOutput - len(c.ring); room > 0 {
		room = min(room, len(p))
		c.ring = append(c.ring, p[:room]...)
		p = p[room:]
	}
	for len(p) > 0 {
		m := copy(c.ring[c.next:], p)
		c.next = (c.next + m) % halfOutput
		p = p[m:]
	}
	return n, nil
}

// Len is how many bytes were written.
func (c *Capture) Len() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *Capture) text() text {
	if c == nil {
		return text{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := make([]byte, 0, len(c.ring))
	tail = append(append(tail, c.ring[c.next:]...), c.ring[:c.next]...)
	gone := c.total - int64(len(c.head)) - int64(len(tail))
	if gone == 0 {
		return text{head: append(append(make([]byte, 0, len(c.head)+len(tail)), c.head...), tail...)}
	}
	return text{head: append([]byte(nil), c.head...), tail: tail, omitted: gone}
}
