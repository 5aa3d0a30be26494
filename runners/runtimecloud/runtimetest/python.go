package runtimetest

import (
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fnloop/fnloop"
)

// programOf gives the language and the file of a command that runs a program.
func programOf(argv []string) (language, file string) {
	names := map[string]string{
		"python3": fnloop.LanguagePython, "bash": fnloop.LanguageBash, "node": fnloop.LanguageJavaScript, "bun": fnloop.LanguageTypeScript,
		"Rscript": fnloop.LanguageR, "java": fnloop.LanguageJava,
	}
	switch {
	case len(argv) == 2 && !strings.HasPrefix(argv[1], "-"):
		return names[argv[0]], argv[1]
	case len(argv) == 3 && argv[0] == "go" && argv[1] == "run":
		return fnloop.LanguageGo, argv[2]
	}
	return "", ""
}

// speaks reports whether Python, the runner, has the language.
func (s *Server) speaks(ctx context.Context, language string) bool {
	if language == "" || language == fnloop.LanguagePython {
		return language != ""
	}
	i, ok := fnloop.RunnerAs[fnloop.Inspector](s.Python)
	if !ok {
		return false
	}
	env, err := i.Inspect(ctx)
	return err == nil && slices.ContainsFunc(env.Languages, func(l fnloop.Language) bool { return l.Name == language })
}

// runProgram runs a program on a runner of this machine, in place of the
// service's microVM.
func runProgram(ctx context.Context, runner fnloop.Runner, cmd *Command, language, file string) Exit {
	source, there := cmd.File(file)
	if !there {
		fmt.Fprintf(cmd.Stderr, "%s: can't open file '%s': [Errno 2] No such file or directory\n", cmd.Argv[0], path.Join(cmd.Dir, file))
		return Exit{Code: 2}
	}
	stdout, stderr := &copier{w: cmd.Stdout, drop: cmd.drop}, &copier{w: cmd.Stderr, drop: cmd.drop}
	res, err := runner.Run(ctx, fnloop.Program{
		Source: string(source), Language: language, Stdin: cmd.Stdin, Stdout: stdout, Stderr: stderr,
		Limits: fnloop.Limits{Time: cmd.Timeout, Memory: cmd.Memory},
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(cmd.Stderr, "runtimetest: %v\n", err)
		return Exit{Code: 70}
	}
	stdout.finish(res.Stdout, res.StdoutBytes)
	stderr.finish(res.Stderr, res.StderrBytes)
	// A sandbox that did not come back from being killed was killed all the same.
	late := res.End == fnloop.EndLost && res.Duration >= cmd.Timeout
	exit := Exit{TimedOut: res.TimedOut || late, Duration: res.Duration, OOM: res.OOM == fnloop.EvidenceYes}
	switch {
	case res.ExitCode != nil:
		exit.Code = *res.ExitCode
	case res.End == fnloop.EndSignal:
		exit.Signal = signalNumbers[res.Signal]
	case !exit.TimedOut:
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
	io.WriteString(c.w, tail)
}
