// Package terminal shows a run to a person: what goes on, the answer as it comes,
// and the programs that ask for approval.
package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/fnloop/fnloop"
)

// A Progress tells what is going on: on a terminal in one line that is written
// again and again, or in a line for each step where it cannot do that; elsewhere only
// what matters. It also writes the answer as it comes, where that is wanted, since
// both may share a terminal.
type Progress struct {
	w       io.Writer
	model   string
	quiet   bool
	verbose bool
	live    bool // w is a terminal that obeys
	steps   bool // each step is told in a line
	dim     bool
	width   func() int
	out     io.Writer // of the answer as it comes, or nil
	shared  bool      // out and w are terminals, so most likely the same
	md      *markdown // renders the answer, or nil where it is shown as it is
	outputs bool      // programs and their output are shown
	fold    bool      // but not all of them

	graphics string // how images are shown, or empty; see Graphics

	mu      sync.Mutex
	line    string                  // what the live line shows
	doing   string                  // what goes on beside programs, or empty
	since   time.Time               // when that began
	running map[string]*runningCall // by ID
	calls   int                     // so far
	said    strings.Builder         // the text of this turn that was written to out
	midLine bool                    // out is within a line
	outErr  error                   // the first of out
	comment string                  // the beginning of a line of commentary
	quit    chan struct{}           // closed by stop
	ticking sync.WaitGroup
}

// Options say what is shown.
type Options struct {
	Model   string
	Quiet   bool // errors only
	Verbose bool // programs, their output and details too
	Answer  bool // the answer as it comes, where it goes to a terminal
	Plain   bool // no colours
	Dumb    bool // the terminal cannot write a line again
	// Graphics is how the terminal shows images; see the function of that name.
	Graphics string
}

// NewProgress makes a Progress, which Stop ends.
func NewProgress(stdout, stderr io.Writer, o Options) *Progress {
	p := &Progress{
		w: stderr, model: o.Model, quiet: o.Quiet, verbose: o.Verbose, outputs: o.Verbose,
		running: map[string]*runningCall{}, quit: make(chan struct{}), steps: o.Verbose || Is(stderr) && o.Dumb,
	}
	if o.Answer && !o.Quiet && Is(stdout) {
		p.out = stdout
		p.shared = Is(stderr)
		if !o.Dumb && !o.Plain {
			p.md = &markdown{width: widthOf(stdout)}
		}
	}
	if Is(stderr) && !o.Dumb && !p.quiet {
		p.live, p.dim, p.graphics = true, !o.Plain, o.Graphics
		p.outputs = p.outputs || p.out != nil
		p.fold = !p.verbose
		p.width = widthOf(stderr)
		p.ticking.Go(p.tick)
	}
	return p
}

// widthOf tells how many columns a terminal has.
func widthOf(w io.Writer) func() int {
	fd := int(w.(*os.File).Fd())
	return func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			width = 80
		}
		return width
	}
}

func (p *Progress) tick() {
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

// Stop ends all output; calls that are still running are not told of.
func (p *Progress) Stop() {
	p.Idle()
	p.mu.Lock()
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.mu.Unlock()
	p.ticking.Wait()
}

// Streams reports whether the answer is shown as it comes.
func (p *Progress) Streams() bool { return p.out != nil }

// SetModel says that another model is asked.
func (p *Progress) SetModel(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.model = name
}

func (p *Progress) stopped() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// Idle says that nothing runs any more.
func (p *Progress) Idle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.running)
	p.do("")
}

// Start says what goes on from now on.
func (p *Progress) Start(doing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.do(doing)
}

func (p *Progress) do(doing string) {
	p.doing, p.since = doing, time.Now()
	p.draw()
}

// Event tells of an event of the run.
func (p *Progress) Event(e fnloop.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d, ok := e.(fnloop.TextDelta); !ok || d.Phase != commentary {
		p.endComment()
	}
	switch e := e.(type) {
	case fnloop.RequestStarted:
		p.endLine()
		p.said.Reset()
		p.step(p.model+": thinking", "")
		p.do(p.model + " is thinking")
	case fnloop.Retry:
		p.endLine()
		p.note(retryLine(e))
		p.do("waiting to send the request again")
	case fnloop.TextDelta:
		if e.Phase == commentary {
			p.remark(e.Text)
		} else {
			p.say(e.Text)
		}
	case fnloop.CallAnnounced:
		p.endLine()
		p.said.Reset() // it was no answer
		p.do(p.model + " is writing a program")
	case fnloop.ResponseFinished:
		p.do("")
	case fnloop.CallStarted:
		p.started(e.Call)
	case fnloop.CallOutput:
		p.printed(e)
	case fnloop.CallFinished:
		p.finished(e.CallResult)
	}
}

// retryLine says why a request is sent again, and when.
func retryLine(e fnloop.Retry) string {
	why := "the request failed"
	switch {
	case e.StatusCode > 0:
		why = strings.TrimSpace(fmt.Sprintf("the API answered %d %s", e.StatusCode, http.StatusText(e.StatusCode)))
	case e.Code != "":
		why = "the API answered " + e.Code
	case e.Err != nil:
		text := strings.TrimPrefix(e.Err.Error(), "fnloop: ")
		if u, ok := errors.AsType[*url.Error](e.Err); ok { // its place is known
			text = u.Err.Error()
		}
		why += ": " + text
	}
	when := "at once"
	if e.Wait >= time.Millisecond {
		when = "in " + rounded(e.Wait).String()
	}
	return fmt.Sprintf("%s; it is sent again %s", why, when)
}

// rounded is a duration as a person wants it.
func rounded(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// commentary is the phase of texts about the work.
const commentary = "commentary"

// remark shows the model's commentary, line by line.
func (p *Progress) remark(text string) {
	p.comment += text
	if i := strings.LastIndexByte(p.comment, '\n'); i >= 0 {
		whole := p.comment[:i+1]
		p.comment = p.comment[i+1:]
		if !p.quiet {
			p.write(whole)
		}
	}
}

func (p *Progress) endComment() {
	if p.comment != "" {
		p.remark("\n")
	}
}

// say writes a piece of the answer.
func (p *Progress) say(text string) {
	if p.out == nil || text == "" {
		return
	}
	p.said.WriteString(text)
	p.do("")
	p.put(text)
}

// put writes a piece of the answer as it is rendered.
func (p *Progress) put(text string) {
	text = Printable(text)
	if p.md != nil {
		text = p.md.write(text)
	}
	p.emit(text)
}

func (p *Progress) emit(text string) {
	if text == "" {
		return
	}
	if _, err := io.WriteString(p.out, text); err != nil && p.outErr == nil {
		p.outErr = err
	}
	p.midLine = !strings.HasSuffix(text, "\n")
}

// endLine ends what is held of the answer, and its line.
func (p *Progress) endLine() {
	if p.md != nil {
		p.emit(p.md.end())
	}
	if p.midLine {
		p.emit("\n")
	}
}

// Answered writes what of the answer has not come as events, which is nothing
// unless the server is an odd one. It reports whether any text was written for
// a run that has no answer.
func (p *Progress) Answered(answer *fnloop.Answer) (stray bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said.String()
	if answer.Stop == fnloop.StopAnswered && flat(said) != flat(answer.Text) {
		rest, ok := strings.CutPrefix(answer.Text, said)
		if !ok {
			p.endLine()
			rest = answer.Text
		}
		p.put(rest)
	}
	p.endLine()
	return said != "", p.outErr
}

// flat is s without its line breaks: events do not tell where a message ends.
func flat(s string) string { return strings.ReplaceAll(s, "\n", "") }

// A runningCall is what is known of a call while it runs.
type runningCall struct {
	number int
	start  time.Time
	prints map[string]*printout // by stream
}

// A printout is what was shown of a stream.
type printout struct {
	shown   string // the lines that were
	lines   int    // how many those are
	partial string // what came after them
	full    bool   // more is not shown while the program runs
}

// maxPrintout bounds what is shown of a stream while its program runs, in bytes.
const maxPrintout = 64 << 10

func (p *Progress) started(call fnloop.Call) {
	p.endLine()
	p.calls++
	p.running[call.ID] = &runningCall{p.calls, time.Now(), map[string]*printout{"stdout": {}, "stderr": {}, "result": {}}}
	more := ""
	switch {
	case p.outputs && p.fold:
		more = block("", foldCode(code(call)))
	case p.outputs:
		more = block("", code(call))
	}
	p.step(fmt.Sprintf("%s #%d: running", call.Name, p.calls), more)
}

// printed shows the lines that are whole.
func (p *Progress) printed(e fnloop.CallOutput) {
	c := p.running[e.ID]
	if c == nil || c.prints[e.Stream] == nil || !p.outputs {
		return
	}
	s := c.prints[e.Stream]
	if s.full {
		return
	}
	text := e.Text
	if room := maxPrintout - len(s.shown) - len(s.partial); len(text) > room {
		s.full = true
		text = strings.ToValidUTF8(text[:room], "") + "\n[more is not shown]\n"
		if p.fold { // the end is shown instead
			return
		}
	}
	s.partial += text
	lines := ""
	for !s.full || !p.fold {
		i := strings.IndexByte(s.partial, '\n') + 1
		if !p.fold {
			i = strings.LastIndexByte(s.partial, '\n') + 1
		}
		if i == 0 {
			break
		}
		line := s.partial[:i]
		s.shown, s.partial = s.shown+line, s.partial[i:]
		s.lines++
		if p.fold {
			s.full = s.lines == foldHead
			line = clipLines(line)
		}
		lines += line
	}
	p.aside(block(p.label(c, e.Stream), lines))
}

// label names a stream, and its call where others run beside it.
func (p *Progress) label(c *runningCall, stream string) string {
	if len(p.running) > 1 {
		return fmt.Sprintf("#%d %s", c.number, stream)
	}
	return stream
}

func (p *Progress) finished(res fnloop.CallResult) {
	c := p.running[res.ID]
	if c == nil {
		return
	}
	how, stdout, stderr, result := outcome(res.Name, res.Output)
	if p.outputs {
		for _, stream := range []struct{ name, text string }{{"stdout", stdout}, {"stderr", stderr}, {"result", result}} {
			s := c.prints[stream.name]
			rest, ok := strings.CutPrefix(stream.text, s.shown)
			if !ok { // something was left out
				rest = s.partial
			}
			if p.fold {
				rest = foldRest(s.lines, rest)
			}
			p.aside(block(p.label(c, stream.name), rest))
		}
	}
	delete(p.running, res.ID)
	more := ""
	if p.outputs && res.IsError {
		more = block("", res.Text)
	}
	p.step(fmt.Sprintf("%s #%d: %s after %v", res.Name, c.number, how, rounded(res.Duration)), more)
	if runsProgram(res.Name) && runnerFailed(res.Err) {
		p.write(fmt.Sprintf("askpy: %s #%d: %v\n", res.Name, c.number, res.Err))
	}
}

// The names of the tools that run programs and cells.
const (
	pythonTool      = "run_python"
	codeTool        = "run_code"
	interpreterTool = "python"
)

// runnerFailed reports whether err is the runner's and not the program's. The
// model does not read it.
func runnerFailed(err error) bool {
	_, badArguments := errors.AsType[*fnloop.ArgumentsError](err)
	_, badProgram := errors.AsType[*fnloop.ProgramError](err)
	return err != nil && !badArguments && !badProgram
}

// runsProgram reports whether the tool of that name is one of them.
func runsProgram(name string) bool {
	return name == pythonTool || name == codeTool || name == interpreterTool
}

// code is the program of a call, or the arguments of one that runs none.
func code(call fnloop.Call) string {
	if !runsProgram(call.Name) {
		return string(call.Arguments)
	}
	var args struct {
		Code *string `json:"code"`
	}
	if json.Unmarshal(call.Arguments, &args) != nil || args.Code == nil {
		return string(call.Arguments)
	}
	return *args.Code
}

// outcome says in a word how a call ended, what its program printed, and the value
// of its last expression if it was a cell.
func outcome(name string, out fnloop.Output) (how, stdout, stderr, result string) {
	if !runsProgram(name) {
		if out.IsError {
			return "failed", "", "", ""
		}
		return "done", "", "", ""
	}
	var cell struct{ Status, Stdout, Stderr, Result, Error string }
	if !out.IsError && json.Unmarshal([]byte(out.Text), &cell) == nil && cell.Status != "" { // of an interpreter
		return cell.Status, cell.Stdout, cell.Stderr + cell.Error, cell.Result
	}
	var res fnloop.Result
	if out.IsError || json.Unmarshal([]byte(out.Text), &res) != nil {
		return "failed", "", "", ""
	}
	switch {
	case res.TimedOut:
		how = "timed out"
	case res.ExitCode == nil:
		how = "killed"
	default:
		how = fmt.Sprintf("exit %d", *res.ExitCode)
	}
	return how, res.Stdout, res.Stderr, ""
}

// block sets the lines of a text off from others.
func block(name, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "    %s| %s\n", name, strings.TrimSuffix(line, "\n"))
	}
	return b.String()
}

// Note tells what matters in any mode but a quiet one.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(text)
}

func (p *Progress) note(text string) {
	if !p.quiet {
		p.write(text + "\n")
	}
}

// Failure tells of an error that does not end the run.
func (p *Progress) Failure(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write("askpy: " + text + "\n")
}

// Detail tells what matters to the curious.
func (p *Progress) Detail(text string) {
	if p.verbose {
		p.Note(text)
	}
}

// step tells that something began or ended: a terminal's live line shows that
// anyway, and who reads a file afterwards does not wait.
func (p *Progress) step(head, more string) {
	if !p.quiet && p.steps {
		p.write(head + "\n")
	}
	p.aside(more)
	p.draw()
}

// aside shows what is of a program, dimmed on a terminal.
func (p *Progress) aside(text string) {
	if text == "" || p.quiet {
		return
	}
	if p.dim {
		p.lines(dimmed(strings.TrimSuffix(Printable(text), "\n")) + "\n")
		return
	}
	p.write(text)
}

func dimmed(s string) string { return "\x1b[2m" + s + "\x1b[0m" }

// write prints lines above the live one.
func (p *Progress) write(text string) { p.lines(Printable(text)) }

func (p *Progress) lines(text string) {
	if p.stopped() {
		return
	}
	p.erase()
	if p.shared {
		p.endLine()
	}
	io.WriteString(p.w, text)
	p.draw()
}

func (p *Progress) erase() {
	if p.line != "" {
		io.WriteString(p.w, "\r\x1b[K")
		p.line = ""
	}
}

// draw brings the live line up to date.
func (p *Progress) draw() {
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
		line = dimmed(line)
	}
	io.WriteString(p.w, line)
}

// status is what goes on, with the seconds that it has taken.
func (p *Progress) status() string {
	what, since := p.doing, p.since
	first := 0
	for _, c := range p.running {
		if first == 0 || c.number < first {
			first, since = c.number, c.start
		}
	}
	switch {
	case len(p.running) == 1:
		what = fmt.Sprintf("program #%d is running", first)
	case len(p.running) > 1:
		what = fmt.Sprintf("%d programs are running", len(p.running))
	case what == "":
		return ""
	}
	line := Printable(fmt.Sprintf("%s, %.0fs", what, time.Since(since).Truncate(time.Second).Seconds()))
	line, _ = cut(line, p.width()-1)
	return line
}
