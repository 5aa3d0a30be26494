package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fnloop/fnloop"
)

// An Approver asks a person whether programs may run.
type Approver struct {
	in  *bufio.Reader
	out io.Writer
	tty *os.File // to close, or nil

	editor *Editor // that reads in place of in, or nil
	asked  bool    // once at least
}

// ErrNone means that there is no terminal to ask on.
var ErrNone = errors.New("there is no terminal to ask on")

// OpenApprover finds the terminal to ask on: the one that controls the process,
// else standard input if it is one, else it is ErrNone.
func OpenApprover(stdin io.Reader, stderr io.Writer) (*Approver, error) {
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		return &Approver{in: bufio.NewReader(tty), out: tty, tty: tty}, nil
	}
	if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &Approver{in: bufio.NewReader(f), out: stderr}, nil
	}
	return nil, ErrNone
}

// EditorApprover asks on the terminal of an Editor.
func EditorApprover(e *Editor, out io.Writer) *Approver {
	a := &Approver{editor: e, out: out, asked: true}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		a.in, a.tty = bufio.NewReader(tty), tty
	}
	return a
}

// Close lets the terminal go.
func (a *Approver) Close() {
	if a.tty != nil {
		a.tty.Close()
	}
}

// Decide has the pending calls of an answer decided that are not, all or none.
func (a *Approver) Decide(ctx context.Context, answer *fnloop.Answer) error {
	waiting := slices.DeleteFunc(answer.Waiting(), func(c fnloop.Call) bool { return c.Decision != nil })
	for n, call := range waiting {
		a.forget()
		what := "run this program"
		if !runsProgram(call.Name) {
			what = "be called with this"
		}
		fmt.Fprintf(a.out, "%s wants to %s (%d of %d):\n%s", Printable(call.Name), what, n+1, len(waiting), numbered(code(call)))
		approved, reason, err := a.ask(ctx)
		switch {
		case err != nil:
		case approved:
			err = answer.Approve(call.ID)
		default:
			err = answer.Reject(call.ID, reason)
		}
		if err != nil {
			for i := range answer.Pending {
				answer.Pending[i].Decision = nil
			}
			return err
		}
	}
	return nil
}

// forget drops what was typed after the answer to the question before, such as
// the same answer a second time: it must not approve a program that nobody has
// seen. What comes ahead of the first question can be meant for that one alone.
func (a *Approver) forget() {
	if !a.asked {
		a.asked = true
		return
	}
	if a.in != nil {
		a.in.Discard(a.in.Buffered()) //nolint:errcheck // it is all there
	}
	if a.tty == nil || a.tty.SetReadDeadline(time.Now().Add(20*time.Millisecond)) != nil {
		return // it cannot be read without a wait
	}
	for err := error(nil); err == nil; {
		_, err = a.tty.Read(make([]byte, 4096))
	}
	a.tty.SetReadDeadline(time.Time{}) //nolint:errcheck // it could be set before
}

// ask asks until there is an answer.
func (a *Approver) ask(ctx context.Context) (approved bool, reason string, err error) {
	for {
		line, err := a.line(ctx)
		if err != nil {
			return false, "", err
		}
		switch strings.ToLower(line) {
		case "":
		case "y", "yes":
			return true, "", nil
		case "n", "no":
			return false, "", nil
		default:
			return false, line, nil
		}
	}
}

var errNoDecision = fmt.Errorf("%w, and the terminal gave no answer", fnloop.ErrApproval)

// Question is what is asked of each program.
const Question = "Run it? y, n, or why not: "

// line asks and reads a line, or gives up when ctx ends.
func (a *Approver) line(ctx context.Context) (string, error) {
	if a.editor != nil {
		line, err := a.editor.Line(ctx)
		if errors.Is(err, io.EOF) {
			err = errNoDecision
		}
		return strings.TrimSpace(line), err
	}
	type result struct {
		line string
		err  error
	}
	io.WriteString(a.out, Question)
	done := make(chan result, 1)
	go func() { // a read from a terminal cannot be called off
		line, err := a.in.ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		io.WriteString(a.out, "\n")
		return "", ctx.Err()
	case r := <-done:
		if r.err != nil {
			io.WriteString(a.out, "\n")
		}
		if errors.Is(r.err, io.EOF) {
			return "", errNoDecision
		}
		return strings.TrimSpace(strings.ToValidUTF8(r.line, "\uFFFD")), r.err
	}
}

// numbered gives the lines of a program with their numbers, in which nothing
// has power over the terminal.
func numbered(source string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(source) {
		n++
		fmt.Fprintf(&b, "%5d  %s\n", n, Printable(strings.TrimSuffix(line, "\n")))
	}
	return b.String()
}
