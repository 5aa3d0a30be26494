package runtimetest

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// process is a command that runs or has run. What it prints is kept until the
// client has it, and a good deal longer.
type process struct {
	id      string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed at its end
	stream  bool
	signals bool

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at each change
	chunks  []chunk
	size    int64 // bytes printed
	first   int64 // offset of the first chunk kept
	read    int64 // the furthest that was sent
	exit    Exit
	cause   error // the sandbox's end, if it ended first
}

type chunk struct {
	stream string
	offset int64
	data   []byte
	gone   int64 // bytes that there are no data of
}

func (c chunk) end() int64 { return c.offset + int64(len(c.data)) + c.gone }

// window is how far a command may be ahead of the client, and how much is kept
// behind.
const window = 128 << 10

func (p *process) finished() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) finish(exit Exit, ctx context.Context) {
	p.mu.Lock()
	p.exit = exit
	if ctx.Err() != nil {
		p.cause = context.Cause(ctx)
	}
	p.mu.Unlock()
	close(p.done)
	p.cancel(nil)
}

// lost is the refusal for a command whose sandbox went away.
func (p *process) lost() *apiError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == nil {
		return nil
	}
	return refuse(http.StatusConflict, "sandbox_stopped", "%v", p.cause)
}

func (p *process) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

type processWriter struct {
	p      *process
	stream string
}

func (w processWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(len(b), 32<<10)]
		b = b[len(part):]
		if err := w.p.add(w.stream, part); err != nil {
			return n - len(b), err
		}
	}
	return n, nil
}

// add keeps a chunk, once there is room for it.
func (p *process) add(stream string, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stream && p.size-p.read > window {
		changed := p.changed
		p.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-p.ctx.Done():
			err = p.ctx.Err()
		}
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
	p.chunks = append(p.chunks, chunk{stream: stream, offset: p.size, data: append([]byte(nil), b...)})
	p.size += int64(len(b))
	for p.stream && len(p.chunks) > 1 && p.chunks[1].offset < p.read-window {
		p.first = p.chunks[1].offset
		p.chunks[0] = chunk{}
		p.chunks = p.chunks[1:]
	}
	p.change()
	return nil
}

// drop notes that bytes are gone, as they are where a client was away for long.
func (p *process) drop(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks = append(p.chunks, chunk{offset: p.size, gone: n})
	p.size += n
	p.change()
}

// since gives what was printed from the cursor on, and a channel that is closed
// when there may be more.
func (p *process) since(cursor int64) (chunks []chunk, dropped int64, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cursor < p.first {
		dropped = p.first - cursor
		cursor = p.first
	}
	for _, c := range p.chunks {
		if c.end() > cursor {
			if c.offset < cursor && c.gone == 0 {
				c.data = c.data[cursor-c.offset:]
				c.offset = cursor
			}
			chunks = append(chunks, c)
		}
	}
	return chunks, dropped, p.changed
}

func (p *process) sent(to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to > p.read {
		p.read = to
		p.change()
	}
}

// outcome has the fields that say how the command ended.
func (p *process) outcome() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := map[string]any{"exitCode": p.exit.Code, "state": "exited", "timedOut": false, "durationMs": p.exit.Duration.Milliseconds()}
	switch {
	case p.exit.TimedOut:
		o["exitCode"], o["state"], o["timedOut"] = nil, "timed_out", true
	case p.exit.Signal != 0 && p.signals:
		o["exitCode"], o["state"] = 128+p.exit.Signal, "killed"
	case p.exit.Signal != 0:
		o["exitCode"], o["state"] = nil, "killed"
	}
	return o
}

// result is the answer in one piece, with the head of each stream.
func (p *process) result(most int) map[string]any {
	o := p.outcome()
	delete(o, "state")
	o["processId"] = p.id
	chunks, _, _ := p.since(0)
	for _, stream := range []string{"stdout", "stderr"} {
		var b []byte
		for _, c := range chunks {
			if c.stream == stream {
				b = append(b, c.data...)
			}
		}
		o[stream+"Truncated"] = len(b) > most
		o[stream] = strings.ToValidUTF8(string(b[:min(len(b), most)]), "\ufffd")
	}
	return o
}
