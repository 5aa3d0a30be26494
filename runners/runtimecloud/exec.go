package runtimecloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// execGrace is how long after the program's time limit its end may be told.
	execGrace = 60 * time.Second
	// followAfter is how long after the time limit a stream that says nothing is
	// taken for frozen. Asking anew costs nothing: it goes on where it was.
	followAfter = 5 * time.Second
	// followFor is how long such a new stream may say nothing.
	followFor = 15 * time.Second
	// drainFor is how long the end of a stream is waited for after the program's.
	drainFor = 50 * time.Millisecond
	// maxIdle is how many streams in a row may break at once, within idleTime and
	// without having brought anything. Others are bounded by execGrace alone.
	maxIdle  = 4
	idleTime = 10 * time.Second
	// maxStream is how much a program may print before it is ended. It bounds
	// what a program that prints without end costs in traffic.
	maxStream = 64 << 20
)

var errFlood = errors.New("the program printed too much")

// command is the body of an exec.
type command struct {
	Argv        []string          `json:"argv"`
	Cwd         string            `json:"cwd"`
	Env         map[string]string `json:"env,omitempty"`
	StdinBase64 []byte            `json:"stdinBase64,omitempty"`
	TimeoutMs   int64             `json:"timeoutMs"`
	Stream      bool              `json:"stream"`
}

// An execution is a command that runs in a sandbox and what came of it so far.
//
// It is always streamed. The answer in one piece keeps the head of each stream
// alone, where the last line of a traceback is at the other end; it counts
// nothing, and a lost connection would take everything with it.
type execution struct {
	sandbox string
	stdout  io.Writer
	stderr  io.Writer

	process string    // its ID, once the command started
	started time.Time // when that was known
	cursor  int64     // bytes of both streams that have come
	missing bool      // bytes were lost on the way, or may have been
	vague   bool      // the cursor was counted in text that stands in for bytes
	exit    *event    // how it ended
}

// exec runs argv in the sandbox until it ended, limit and all. It resumes the
// stream where it breaks. The error is an *Error, or errFlood.
func (c *client) exec(ctx context.Context, x *execution, key string, cmd *command) error {
	cmd.Stream = true
	body := encode(cmd)
	limit := time.Duration(cmd.TimeoutMs) * time.Millisecond
	hard := time.Now().Add(limit + execGrace)
	soft := time.Now().Add(limit + followAfter)
	call := &request{
		op: "exec", sandbox: x.sandbox, method: http.MethodPost, path: sandboxPath(x.sandbox, ":exec"),
		key: key, accept: "application/x-ndjson", body: body,
	}
	var last error
	for idle, failed := 0, 0; idle <= maxIdle && time.Now().Before(hard); {
		if x.process != "" {
			call = &request{
				op: "exec", sandbox: x.sandbox, method: http.MethodGet, accept: "application/x-ndjson",
				path: sandboxPath(x.sandbox, "/processes/"+url.PathEscape(x.process)+"/output?cursor="+strconv.FormatInt(x.cursor, 10)+"&follow=true"),
			}
		}
		call.budget = time.Until(hard)
		call.answer = min(max(time.Until(soft), followFor), call.budget)
		began, cursor, process := time.Now(), x.cursor, x.process
		opened, err := c.follow(ctx, x, call, call.answer)
		if err == nil || err == errFlood {
			return err
		}
		e := c.describe(ctx, call, err)
		switch {
		case ctx.Err() != nil:
			return e
		case !opened && x.process == "": // it was tried often enough
			return e
		case e.Status >= 400 && e.Status < 500 && !e.Retryable():
			return e
		}
		last = e // the command goes on, or its answer is there to be had again
		if x.cursor > cursor || x.process != process {
			idle, failed = 0, 0
			continue
		}
		failed++
		if e.Status == 0 && err != errContinue && time.Since(began) < idleTime {
			idle++
		}
		if !sleep(ctx, nil, jitter(backoff(250*time.Millisecond, failed-1, 4*time.Second), 0.5)) {
			return c.describe(ctx, call, nil)
		}
	}
	return &Error{Op: "exec", Code: codeStream, Message: "the end of the program was never told", Sandbox: x.sandbox, Err: last, retryAfter: -1}
}

// What ends a stream that is to be taken up at the cursor.
var (
	errBroken   = errors.New("the stream ended before the program")
	errContinue = errors.New("the stream goes on in another")
)

// follow opens one stream and reads it. The error is nil when the command
// ended.
func (c *client) follow(ctx context.Context, x *execution, call *request, patience time.Duration) (opened bool, err error) {
	s, err := c.open(ctx, call)
	if err != nil {
		return false, err
	}
	defer s.close()
	s.timer.Reset(patience)
	d := newDecoder(s.resp.Body)
	resumed := x.cursor
	x.missing = x.missing || x.vague
	for {
		ev, err := d.next()
		if err != nil {
			err = s.cause(err)
			if err == io.EOF {
				return true, errBroken
			}
			return true, fmt.Errorf("%w: %w", errBroken, err)
		}
		if x.cursor > maxStream {
			return true, errFlood
		}
		switch ev.Type {
		case "start":
			if x.process == "" {
				x.process, x.started = ev.ProcessID, time.Now()
			}
		case "stdout", "stderr":
			w := x.stdout
			if ev.Type == "stderr" {
				w = x.stderr
			}
			x.take(w, &ev, resumed)
		case "truncated":
			x.missing = true
			if ev.ResumeAt != nil {
				x.cursor = max(x.cursor, *ev.ResumeAt)
			}
		case "continue":
			if ev.Cursor != nil {
				x.cursor, x.vague = max(0, *ev.Cursor), false // it knows best
			}
			if x.process == "" {
				x.process = ev.ProcessID
			}
			return true, errContinue
		case "exit":
			x.exit = &ev
			// A body that is read to its end, which is next, leaves the connection
			// to the requests to come.
			s.timer.Reset(drainFor)
			io.Copy(io.Discard, io.LimitReader(s.resp.Body, 64<<10))
			return true, nil
		default:
			if ev.Error != nil {
				if ev.Cursor != nil {
					x.cursor = max(x.cursor, *ev.Cursor)
				}
				return true, ev.Error.toError(0)
			}
		}
	}
}

// take passes on what a stream brought.
//
// Offsets count what the program printed. Where the text stands in for bytes
// that are not UTF-8 its length is another, so the next offset is believed over
// a sum, and only what was there before the stream was resumed is left out. Where
// there is no next offset, because the stream breaks there, it is not known
// whether the next one begins too far on.
func (x *execution) take(w io.Writer, ev *event, resumed int64) {
	b := ev.output()
	offset := x.cursor
	if ev.Offset != nil && *ev.Offset >= 0 {
		offset = *ev.Offset
	}
	end := offset + int64(len(b))
	if offset < resumed {
		b = b[min(resumed-offset, int64(len(b))):]
	}
	if offset > x.cursor {
		x.missing = true
	}
	x.cursor = max(end, resumed)
	x.vague = ev.Base64 == nil && bytes.ContainsRune(b, utf8.RuneError)
	w.Write(b) //nolint:errcheck // a Capture and a relay take everything
}
