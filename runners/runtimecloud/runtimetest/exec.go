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
	"strconv"
	"time"
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
	if language, file := programOf(cmd.Argv); s.Python != nil && s.speaks(ctx, language) {
		return runProgram(ctx, s.Python, cmd, language, file)
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

// readProcess answers what is known of a process, of a command or of an
// interpreter.
func (s *Server) readProcess(c *call) (*answer, *apiError) {
	p, refusal := s.process(c)
	if refusal == nil {
		o := map[string]any{"id": p.id, "kind": "process", "state": "running", "exitCode": nil}
		if p.finished() {
			maps.Copy(o, p.outcome())
		}
		return ok(o), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, gone := s.find(c)
	if gone != nil {
		return nil, gone
	}
	for _, k := range sb.kernels {
		if k.process == c.path[3] {
			return ok(map[string]any{"id": k.process, "kind": "process", "state": "running", "exitCode": nil}), nil
		}
	}
	if end, there := sb.gone[c.path[3]]; there {
		return ok(map[string]any{"id": c.path[3], "kind": "process", "state": end.state, "exitCode": end.exitCode}), nil
	}
	return nil, refusal
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
