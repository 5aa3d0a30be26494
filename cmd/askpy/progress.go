package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/openai/openai-go/v3/responses"
	"golang.org/x/term"

	"github.com/fnloop/fnloop"
)

// A progress tells what is going on: on a terminal in one line that is written
// again and again, elsewhere in a line for each step.
type progress struct {
	w       io.Writer
	model   string
	quiet   bool
	verbose bool
	live    bool
	dim     bool
	width   func() int

	mu      sync.Mutex
	line    string            // what the live line shows
	asked   time.Time         // since when the model thinks, or zero
	running map[int]time.Time // the calls that run, by number, with their start
	calls   int               // so far
	quit    chan struct{}     // closed by stop
	ticking sync.WaitGroup
}

func newProgress(stderr io.Writer, opts options, env environment) *progress {
	p := &progress{
		w: stderr, model: opts.model, quiet: opts.quiet, verbose: opts.verbose,
		running: map[int]time.Time{}, quit: make(chan struct{}),
	}
	if isTerminal(stderr) && !env.dumb && !p.quiet {
		p.live, p.dim = true, !env.noColor
		fd := int(stderr.(*os.File).Fd())
		p.width = func() int {
			width, _, err := term.GetSize(fd)
			if err != nil || width <= 0 {
				width = 80
			}
			return width
		}
		p.ticking.Go(p.tick)
	}
	return p
}

func (p *progress) tick() {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// stop ends all output; calls that are still running are not told of.
func (p *progress) stop() {
	p.idle()
	p.mu.Lock()
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.mu.Unlock()
	p.ticking.Wait()
}

func (p *progress) stopped() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// idle says that nothing runs any more.
func (p *progress) idle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Time{}
	clear(p.running)
	p.draw()
}

// beforeRequest is the hook of the loop.
func (p *progress) beforeRequest(context.Context, *responses.ResponseNewParams) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Now()
	p.step(p.model+": thinking", "")
	return nil
}

// watchTool tells of the calls of a tool.
func (p *progress) watchTool(t fnloop.Tool) fnloop.Tool {
	handle := t.Handle
	t.Handle = func(ctx context.Context, call fnloop.Call) (out fnloop.Output, err error) {
		n := p.started(call)
		defer func() {
			p.finished(n, call, out)
			if runnerFailed(ctx, err) {
				p.failure(fmt.Sprintf("%s #%d: %v", call.Name, n, err))
			}
		}()
		return handle(ctx, call)
	}
	return t
}

func (p *progress) started(call fnloop.Call) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Time{}
	p.calls++
	p.running[p.calls] = time.Now()
	p.step(fmt.Sprintf("%s #%d: running", call.Name, p.calls), block("", code(call)))
	return p.calls
}

func (p *progress) finished(n int, call fnloop.Call, out fnloop.Output) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start, ok := p.running[n]
	if !ok || p.stopped() {
		return
	}
	delete(p.running, n)
	how, printed := outcome(out)
	took := time.Since(start)
	if took = took.Round(time.Millisecond); took > time.Second {
		took = took.Round(100 * time.Millisecond)
	}
	p.step(fmt.Sprintf("%s #%d: %s after %v", call.Name, n, how, took), printed)
}

// runnerFailed reports whether err is the runner's and not the program's. The
// model does not read it.
func runnerFailed(ctx context.Context, err error) bool {
	_, badArguments := errors.AsType[*fnloop.ArgumentsError](err)
	_, badProgram := errors.AsType[*fnloop.ProgramError](err)
	return err != nil && ctx.Err() == nil && !badArguments && !badProgram
}

// code is the program of a call.
func code(call fnloop.Call) string {
	var args struct {
		Code *string `json:"code"`
	}
	if json.Unmarshal(call.Arguments, &args) != nil || args.Code == nil {
		return string(call.Arguments)
	}
	return *args.Code
}

// outcome says in a word how a call ended, and what its program printed.
func outcome(out fnloop.Output) (how, printed string) {
	var res fnloop.Result
	if out.IsError || json.Unmarshal([]byte(out.Text), &res) != nil {
		return "failed", block("", out.Text)
	}
	printed = block("stdout", res.Stdout) + block("stderr", res.Stderr)
	switch {
	case res.TimedOut:
		return "timed out", printed
	case res.ExitCode == nil:
		return "killed", printed
	}
	return fmt.Sprintf("exit %d", *res.ExitCode), printed
}

// block sets the lines of a text off from others.
func block(name, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "    %s| %s\n", name, strings.TrimSuffix(line, "\n"))
	}
	return b.String()
}

// note tells what matters in any mode but a quiet one.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.quiet {
		p.write(text + "\n")
	}
}

// failure tells of an error that does not end the run.
func (p *progress) failure(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write("askpy: " + text + "\n")
}

// detail tells what matters to the curious.
func (p *progress) detail(text string) {
	if p.verbose {
		p.note(text)
	}
}

// step tells that something began or ended: a terminal's live line shows that
// anyway.
func (p *progress) step(head, more string) {
	if !p.verbose {
		more = ""
	}
	if !p.quiet && (p.verbose || !p.live) {
		p.write(head + "\n" + more)
	}
	p.draw()
}

// write prints lines above the live one.
func (p *progress) write(text string) {
	if p.stopped() {
		return
	}
	p.erase()
	io.WriteString(p.w, printable(text))
	p.draw()
}

func (p *progress) erase() {
	if p.line != "" {
		io.WriteString(p.w, "\r\x1b[K")
		p.line = ""
	}
}

// draw brings the live line up to date.
func (p *progress) draw() {
	if !p.live || p.stopped() {
		return
	}
	line := p.status()
	if line == p.line {
		return
	}
	p.erase()
	if p.line = line; line == "" {
		return
	}
	if p.dim {
		line = "\x1b[2m" + line + "\x1b[0m"
	}
	io.WriteString(p.w, line)
}

// status is what goes on, with the seconds that it has taken.
func (p *progress) status() string {
	var what string
	var since time.Time
	switch numbers := slices.Sorted(maps.Keys(p.running)); {
	case len(numbers) == 1:
		what, since = fmt.Sprintf("program #%d is running", numbers[0]), p.running[numbers[0]]
	case len(numbers) > 1:
		what, since = fmt.Sprintf("%d programs are running", len(numbers)), p.running[numbers[0]]
	case !p.asked.IsZero():
		what, since = p.model+" is thinking", p.asked
	default:
		return ""
	}
	line := printable(fmt.Sprintf("%s, %.0fs", what, time.Since(since).Truncate(time.Second).Seconds()))
	if most := p.width() - 1; utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:max(most, 0)])
	}
	return line
}
