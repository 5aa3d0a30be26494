package runtimetest

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
)

// A Command is what a sandbox is to run.
type Command struct {
	Sandbox string            // ID
	Argv    []string          // "bash", "-c", … for a command line
	Dir     string            // where
	Env     map[string]string // the sandbox's and the command's own
	Stdin   []byte
	Timeout time.Duration
	Memory  int64 // of the sandbox, in bytes
	// Internet reports whether the sandbox reaches the network now.
	Internet bool
	// File gives a file of the sandbox.
	File func(name string) (data []byte, there bool)
	// Stdout and Stderr take what the command prints. A write waits while the
	// client is behind.
	Stdout, Stderr io.Writer

	drop func(bytes int64) // notes output that is gone
}

// An Exit is how a [Command] ended.
type Exit struct {
	// Code is the exit status.
	Code int
	// Signal is the number of the signal that killed the command, if one did.
	Signal int
	// OOM says that the guest's kernel killed something for want of memory. A
	// client that asks for the count in /proc/vmstat sees it.
	OOM bool
	// TimedOut says that its time limit did. It is set by itself where the
	// context of the command ended at its limit.
	TimedOut bool
	// Duration is how long it ran. Zero means as long as it took.
	Duration time.Duration
}

// execTimeout is how long a command may run that does not say.
const execTimeout = 60_000

func (s *Server) exec(c *call) (*answer, *apiError) {
	f := c.fields()
	cmd := &Command{Argv: f.texts("argv"), Dir: f.text("cwd", "/workspace"), Env: f.pairs("env", 32)}
	if line := ""; f.get("command", &line, "a string") {
		if cmd.Argv != nil {
			f.wrong("command", "not together with argv")
		}
		cmd.Argv = []string{"bash", "-c", line}
	}
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		f.wrong("argv", "argv or command is needed")
	}
	if !path.IsAbs(cmd.Dir) {
		f.wrong("cwd", "an absolute path")
	}
	cmd.Stdin = []byte(f.text("stdin", ""))
	if text := ""; f.get("stdinBase64", &text, "a string") {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			f.wrong("stdinBase64", "not base64")
		}
		cmd.Stdin = b
	}
	_, explicit := f.left["timeoutMs"]
	ms := f.integer("timeoutMs", execTimeout, 1, 86_400_000, false)
	stream := f.flag("stream", false)
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	cmd.Timeout = time.Duration(ms) * time.Millisecond

	sb, refusal := s.use(c)
	if refusal != nil {
		s.mu.Unlock()
		return nil, refusal
	}
	if left := time.Until(sb.ends); !sb.ends.IsZero() && cmd.Timeout > left {
		if explicit {
			s.mu.Unlock()
			e := refuse(http.StatusConflict, "time_limit_too_short", "The sandbox ends before the command may.")
			e.details = map[string]any{"secondsLeft": int(left.Seconds())}
			return nil, e
		}
		cmd.Timeout = left
	}
	p := s.launch(sb, cmd, stream)
	s.mu.Unlock()
	if stream {
		return &answer{status: http.StatusOK, process: p, start: true}, nil
	}
	<-p.done
	if lost := p.lost(); lost != nil {
		return nil, lost
	}
	most := 64 << 10
	if ms > 60_000 {
		most = 1 << 20
	}
	return ok(p.result(most)), nil
}

// launch starts a command. The caller holds s.mu.
func (s *Server) launch(sb *sandbox, cmd *Command, stream bool) *process {
	env := maps.Clone(sb.env)
	if env == nil {
		env = make(map[string]string)
	}
	maps.Copy(env, cmd.Env)
	cmd.Sandbox, cmd.Env, cmd.Memory, cmd.Internet = sb.id, env, sb.memoryMiB<<20, *sb.net.Internet
	cmd.File = func(name string) ([]byte, bool) {
		if !path.IsAbs(name) {
			name = path.Join(cmd.Dir, name)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		data, there := sb.files[name]
		return data, there
	}
	s.seq++
	p := &process{id: fmt.Sprintf("p-%d", s.seq), done: make(chan struct{}), changed: make(chan struct{}), stream: stream, signals: s.SignalStatus}
	p.ctx, p.cancel = context.WithCancelCause(sb.ctx)
	sb.processes = append(sb.processes, p)
	cmd.Stdout, cmd.Stderr, cmd.drop = processWriter{p, "stdout"}, processWriter{p, "stderr"}, p.drop
	// The sandbox's own end is not waited for by a timer of its own.
	until := time.Time{}
	if !sb.ends.IsZero() {
		until = sb.ends
	}
	go func() {
		ctx, cancel := p.ctx, context.CancelFunc(func() {})
		if !until.IsZero() {
			ctx, cancel = context.WithDeadlineCause(ctx, until, errors.New("the sandbox ended: time_limit"))
		}
		defer cancel()
		began := time.Now()
		exit := s.perform(ctx, sb, cmd)
		exit.Duration = cmp.Or(exit.Duration, time.Since(began))
		if exit.OOM {
			s.mu.Lock()
			sb.oomKills++
			s.mu.Unlock()
		}
		p.finish(exit, ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		sb.active = time.Now()
	}()
	return p
}

var errTimeLimit = errors.New("time limit")

// perform runs the command, by whoever is there for it.
func (s *Server) perform(ctx context.Context, sb *sandbox, cmd *Command) Exit {
	if cmd.Argv[0] == "grep" && cmd.Argv[len(cmd.Argv)-1] == "/proc/vmstat" {
		s.mu.Lock()
		kills := sb.oomKills
		s.mu.Unlock()
		fmt.Fprintf(cmd.Stdout, "oom_kill %d\n", kills)
		return Exit{}
	}
	if s.Python != nil && cmd.Argv[0] == "python3" && len(cmd.Argv) == 2 {
		return runPython(ctx, s.Python, cmd)
	}
	if s.Exec == nil {
		return Exit{}
	}
	limited, cancel := context.WithTimeoutCause(ctx, cmd.Timeout, errTimeLimit)
	defer cancel()
	exit := s.Exec(limited, cmd)
	if context.Cause(limited) == errTimeLimit {
		exit.TimedOut = true
	}
	return exit
}

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
const window = 512 << 10

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

func (s *Server) process(c *call) (*process, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, refusal := s.find(c)
	if refusal != nil {
		return nil, refusal
	}
	for _, p := range sb.processes {
		if p.id == c.path[3] {
			return p, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "not_found", "No process %s.", c.path[3])
}

func (s *Server) output(c *call) (*answer, *apiError) {
	p, refusal := s.process(c)
	if refusal != nil {
		return nil, refusal
	}
	query := c.URL.Query()
	cursor, err := strconv.ParseInt(cmp.Or(query.Get("cursor"), "0"), 10, 64)
	if err != nil || cursor < 0 || query.Get("follow") != "true" {
		return nil, refuse(http.StatusBadRequest, "invalid_request", "cursor or follow cannot be understood.")
	}
	return &answer{status: http.StatusOK, process: p, cursor: cursor}, nil
}

func (s *Server) signal(c *call) (*answer, *apiError) {
	f := c.fields()
	f.text("signal", "SIGTERM", "SIGTERM", "SIGKILL", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	p, refusal := s.process(c)
	if refusal != nil {
		return nil, refusal
	}
	p.cancel(errors.New("a signal"))
	return ok(map[string]any{}), nil
}

// stream sends the events of a command as they come.
func (c *call) stream(a *answer, s *Server) {
	p, ctx := a.process, c.Context()
	h := c.out.Header()
	h.Set("Content-Type", "application/x-ndjson")
	c.out.WriteHeader(http.StatusOK)
	fault, events := c.fault.Stream, 0
	send := func(event map[string]any) bool {
		line := encode(event)
		if fault != "" && events == c.fault.Events {
			if fault == StreamTruncated || fault == StreamGap {
				data, isOutput := event["data"].(string)
				if !isOutput {
					c.out.Write(line)
					return true
				}
				was := fault
				fault = ""
				if was == StreamTruncated {
					c.out.Write(encode(map[string]any{
						"type": "truncated", "droppedBytes": len(data), "resumeAt": event["offset"].(int64) + int64(len(data)),
					}))
				}
				return true
			}
			c.breakOff(fault, line, p, a.cursor)
			return false
		}
		events++
		c.out.Write(line)
		c.flush()
		return true
	}
	if a.start {
		start := map[string]any{"type": "start", "processId": p.id}
		if a.header != nil {
			start["replayed"] = true
		}
		if !send(start) {
			return
		}
	}
	for {
		over := p.finished()
		chunks, dropped, changed := p.since(a.cursor)
		if dropped > 0 {
			a.cursor += dropped
			if !send(map[string]any{"type": "truncated", "droppedBytes": dropped, "resumeAt": a.cursor}) {
				return
			}
		}
		for _, piece := range chunks {
			if piece.gone > 0 {
				if !send(map[string]any{"type": "truncated", "droppedBytes": piece.gone, "resumeAt": piece.end()}) {
					return
				}
				a.cursor = piece.end()
				p.sent(a.cursor)
				continue
			}
			event := map[string]any{"type": piece.stream, "data": strings.ToValidUTF8(string(piece.data), "\ufffd"), "offset": piece.offset}
			if !s.Lossy && !utf8.Valid(piece.data) {
				event["base64"] = piece.data
			}
			if !send(event) {
				return
			}
			a.cursor = piece.end()
			p.sent(a.cursor)
			if s.Bandwidth > 0 && !pause(ctx, time.Duration(len(piece.data))*time.Second/time.Duration(s.Bandwidth)) {
				panic(http.ErrAbortHandler)
			}
		}
		switch {
		case len(chunks) > 0:
		case over:
			if lost := p.lost(); lost != nil {
				event := lost.envelope(c.id)
				event["type"], event["cursor"] = "error", a.cursor
				send(event)
				return
			}
			event := p.outcome()
			event["type"] = "exit"
			send(event)
			return
		default:
			select {
			case <-changed:
			case <-p.done:
			case <-ctx.Done():
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// breakOff ends a stream in the way of the fault, before the event in line.
func (c *call) breakOff(fault StreamFault, line []byte, p *process, cursor int64) {
	w := c.out
	switch fault {
	case StreamReset:
		c.flush()
		panic(http.ErrAbortHandler)
	case StreamHalf:
		w.Write(line[:len(line)/2])
	case StreamGarbage:
		w.Write([]byte("<html>502</html>\n"))
	case StreamFreeze:
		c.flush()
		<-c.Context().Done()
		panic(http.ErrAbortHandler)
	case StreamContinue:
		w.Write(encode(map[string]any{"type": "continue", "processId": p.id, "cursor": cursor}))
	case StreamError:
		e := &apiError{status: cmp.Or(c.fault.Status, http.StatusServiceUnavailable), code: cmp.Or(c.fault.Code, "host_unavailable"), message: "Made to fail."}
		event := e.envelope(c.id)
		event["type"], event["cursor"] = "error", cursor
		w.Write(encode(event))
	}
}

// runPython runs a program on a runner of this machine, in place of the
// service's microVM.
func runPython(ctx context.Context, runner fnloop.Runner, cmd *Command) Exit {
	source, there := cmd.File(cmd.Argv[1])
	if !there {
		fmt.Fprintf(cmd.Stderr, "python3: can't open file '%s': [Errno 2] No such file or directory\n", path.Join(cmd.Dir, cmd.Argv[1]))
		return Exit{Code: 2}
	}
	stdout, stderr := &copier{w: cmd.Stdout, drop: cmd.drop}, &copier{w: cmd.Stderr, drop: cmd.drop}
	res, err := runner.Run(ctx, fnloop.Program{
		Source: string(source), Stdin: cmd.Stdin, Stdout: stdout, Stderr: stderr,
		Limits: fnloop.Limits{Time: cmd.Timeout, Memory: cmd.Memory},
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(cmd.Stderr, "runtimetest: %v\n", err)
		return Exit{Code: 70}
	}
	stdout.finish(res.Stdout, res.StdoutBytes)
	stderr.finish(res.Stderr, res.StderrBytes)
	exit := Exit{TimedOut: res.TimedOut, Duration: res.Duration, OOM: res.OOM == fnloop.Yes}
	switch {
	case res.ExitCode != nil:
		exit.Code = *res.ExitCode
	case res.End == fnloop.EndSignal:
		exit.Signal = signalNumbers[res.Signal]
	case !res.TimedOut:
		exit.Signal = 9
	}
	return exit
}

var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
	"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
	"SIGXCPU": 24, "SIGXFSZ": 25, "SIGSYS": 31,
}

// A copier passes on the live output of a runner, which leaves out bytes where
// the reader is slow. A microVM's stream does not do that, so that the copier
// puts others in their place. The end is put right from the Result.
type copier struct {
	w    io.Writer
	drop func(int64)

	mu       sync.Mutex
	sent     int64
	owed     int64
	finished bool // the runner has left behind what it still writes
}

// maxFill is how many bytes a copier makes up. More than that are told to be
// gone.
const maxFill = 4 << 20

var leftOut = regexp.MustCompile(`\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n$`)

func (c *copier) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(b)
	if c.finished {
		return n, nil
	}
	c.fill(c.owed)
	c.owed = 0
	if m := leftOut.FindSubmatchIndex(b); m != nil {
		c.owed, _ = strconv.ParseInt(string(b[m[2]:m[3]]), 10, 64)
		b = b[:m[0]]
	}
	c.sent += int64(len(b))
	c.w.Write(b) //nolint:errcheck // it fails when nobody is there any more
	return n, nil
}

func (c *copier) fill(n int64) {
	c.sent += n
	if n > maxFill {
		c.drop(n)
		return
	}
	for dots := strings.Repeat(".", 32<<10); n > 0; n -= int64(len(dots)) {
		if _, err := io.WriteString(c.w, dots[:min(n, int64(len(dots)))]); err != nil {
			return
		}
	}
}

// finish sends what is missing of total bytes, of which text has the tail.
func (c *copier) finish(text string, total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished = true
	missing := total - c.sent
	if missing <= 0 {
		return
	}
	if i := strings.LastIndex(text, " bytes left out ...]\n"); i >= 0 {
		text = text[i+len(" bytes left out ...]\n"):]
	}
	tail := text[max(0, int64(len(text))-missing):]
	c.fill(missing - int64(len(tail)))
	io.WriteString(c.w, tail) //nolint:errcheck // as above
}
