package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A stdioConn is go-sdk's connection to a process. Unlike go-sdk's own it passes over
// what is no message, outlives a message that is too large, gives up writing when
// the caller does, and ends all that the process has started.
type stdioConn struct {
	process *process
	lines   *lineReader
	log     *slog.Logger
	batch   *json.Decoder // of what is left of the last one; nil if nothing is
	noise   int           // lines that were no message

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*exchange

	frames    chan *frame
	sent      chan struct{} // closed when the first message was written
	sending   sync.Once
	heard     chan struct{} // closed with the first message of the server
	hearing   sync.Once
	closed    chan struct{}
	closing   sync.Once
	writerEnd chan struct{}
}

// A frame is a message on its way out.
type frame struct {
	ctx  context.Context
	x    *exchange // may be nil
	data []byte
	done chan error
}

func newStdioConn(p *process, most int, log *slog.Logger) *stdioConn {
	c := &stdioConn{
		process: p, lines: newLineReader(p.stdout, most), log: log,
		waiting: make(map[jsonrpc.ID]*exchange), frames: make(chan *frame),
		sent: make(chan struct{}), heard: make(chan struct{}), closed: make(chan struct{}), writerEnd: make(chan struct{}),
	}
	go c.write()
	return c
}

// Connect lets the connection be its own transport.
func (c *stdioConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID is empty: a process is one session.
func (c *stdioConn) SessionID() string { return "" }

// Read returns the next message. Lines that are none are passed over.
func (c *stdioConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if msg := c.fromBatch(); msg != nil {
			return c.received(msg), nil
		}
		line, err := c.lines.next()
		if long, ok := errors.AsType[*oversize](err); ok {
			c.log.Warn("message left out", "error", err)
			if r := failure(long.id, leftOutText+long.Error()); r != nil {
				return c.received(r), nil
			}
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				select {
				case <-c.closed:
					err = io.EOF
				default:
				}
			}
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if line[0] == '[' && json.Valid(line) {
			c.batch = json.NewDecoder(bytes.NewReader(line))
			_, _ = c.batch.Token() // its beginning
			continue
		}
		msg, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			if c.noise++; c.noise <= 10 {
				c.log.Warn("passed over a line of standard output that is no message", "line", fmt.Sprintf("%.200q", line))
			}
			continue
		}
		return c.received(msg), nil
	}
}

// fromBatch is the next message of the last batch, or nil.
func (c *stdioConn) fromBatch() jsonrpc.Message {
	for c.batch != nil && c.batch.More() {
		var raw json.RawMessage
		if c.batch.Decode(&raw) != nil {
			break
		}
		if msg, err := jsonrpc.DecodeMessage(raw); err == nil {
			return msg
		}
	}
	c.batch = nil
	return nil
}

func (c *stdioConn) received(msg jsonrpc.Message) jsonrpc.Message {
	c.hearing.Do(func() { close(c.heard) })
	r, ok := msg.(*jsonrpc.Response)
	if !ok {
		return msg
	}
	c.mu.Lock()
	x := c.waiting[r.ID]
	delete(c.waiting, r.ID)
	c.mu.Unlock()
	if x != nil {
		x.take(r)
	}
	return r
}

// Write sends a message, or gives up when ctx ends. What was begun is then written
// to its end all the same, since half a line would spoil the next one.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	f := &frame{ctx: ctx, data: append(data, '\n'), done: make(chan error, 1)}
	if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
		if f.x = exchangeFrom(ctx); f.x != nil {
			c.mu.Lock()
			c.waiting[r.ID] = f.x
			c.mu.Unlock()
			f.x.forget = func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.waiting, r.ID)
			}
		}
	}
	select {
	case c.frames <- f:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
	select {
	case err := <-f.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// write writes frames one after the other until the connection is closed.
func (c *stdioConn) write() {
	defer close(c.writerEnd)
	for {
		select {
		case f := <-c.frames:
			f.done <- c.writeFrame(f)
		case <-c.closed:
			return
		}
	}
}

func (c *stdioConn) writeFrame(f *frame) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if f.x != nil {
		f.x.written.Store(true) // a write that fails may have sent a part
	}
	n, err := c.process.stdin.Write(f.data)
	if err != nil && n == 0 && f.x != nil {
		f.x.written.Store(false)
	}
	c.sending.Do(func() { close(c.sent) })
	return err
}

// Close ends the process with all that it has started.
func (c *stdioConn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		c.process.stop()
		<-c.writerEnd
	})
	return nil
}

// probeTimeout is how long a server may take to answer the first message, in which
// newer ones say what they are. Those of before 2026-07-28 know nothing of it, and
// some never answer.
const probeTimeout = 2 * time.Second

// silent waits until the process has read the first message, and then for the
// timeout. It reports whether nothing came by then. A server that is still being
// installed has read nothing.
func (c *stdioConn) silent(ctx context.Context) bool {
	select {
	case <-c.sent:
	case <-ctx.Done():
		return false
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	unread, timeout := true, probeTimeout
	var since time.Time
	for {
		if unread {
			n, known := c.process.unread()
			if unread = n > 0; !unread {
				since = time.Now()
			}
			if !known {
				timeout = 5 * probeTimeout
			}
		} else if time.Since(since) > timeout {
			return true
		}
		select {
		case <-tick.C:
		case <-c.heard:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
