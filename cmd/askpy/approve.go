package main

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

// An approver asks a person whether programs may run.
type approver struct {
	in  *bufio.Reader
	out io.Writer
	tty *os.File // to close, or nil

	asked bool // once at least
}

// openApprover finds the terminal to ask on: the one that controls the process,
// else standard input if it is one.
func openApprover(stdin io.Reader, stderr io.Writer) (*approver, error) {
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		return &approver{in: bufio.NewReader(tty), out: tty, tty: tty}, nil
	}
	if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &approver{in: bufio.NewReader(f), out: stderr}, nil
	}
	return nil, usagef("--approve asks on a terminal, and there is none")
}

func (a *approver) close() {
	if a != nil && a.tty != nil {
		a.tty.Close()
	}
}

// decide has the pending calls of an answer decided, all or none.
func (a *approver) decide(ctx context.Context, answer *fnloop.Answer) error {
	waiting := answer.Waiting()
	for n, call := range waiting {
		a.forget()
		fmt.Fprintf(a.out, "%s wants to run this program (%d of %d):\n%s", printable(call.Name), n+1, len(waiting), numbered(code(call)))
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
func (a *approver) forget() {
	if !a.asked {
		a.asked = true
		return
	}
	a.in.Discard(a.in.Buffered()) //nolint:errcheck // it is all there
	if a.tty == nil || a.tty.SetReadDeadline(time.Now().Add(20*time.Millisecond)) != nil {
		return // it cannot be read without a wait
	}
	for err := error(nil); err == nil; {
		_, err = a.tty.Read(make([]byte, 4096))
	}
	a.tty.SetReadDeadline(time.Time{}) //nolint:errcheck // it could be set before
}

// ask asks until there is an answer.
func (a *approver) ask(ctx context.Context) (approved bool, reason string, err error) {
	for {
		io.WriteString(a.out, "Run it? y, n, or why not: ")
		line, err := a.line(ctx)
		if err != nil {
			io.WriteString(a.out, "\n")
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

// line reads a line, or gives up when ctx ends.
func (a *approver) line(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() { // a read from a terminal cannot be called off
		line, err := a.in.ReadString('\n')
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
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
		fmt.Fprintf(&b, "%5d  %s\n", n, printable(strings.TrimSuffix(line, "\n")))
	}
	return b.String()
}

// joined is the later of two answers with the counts and calls of the earlier
// one, which it continues: to who asked they are one run.
func joined(earlier, later *fnloop.Answer) *fnloop.Answer {
	a := *later
	a.Turns += earlier.Turns
	a.Responses += earlier.Responses
	a.Unmetered += earlier.Unmetered
	a.Abandoned += earlier.Abandoned
	for _, u := range []struct {
		sum *int64
		n   int64
	}{
		{&a.Usage.InputTokens, earlier.Usage.InputTokens},
		{&a.Usage.CachedTokens, earlier.Usage.CachedTokens},
		{&a.Usage.OutputTokens, earlier.Usage.OutputTokens},
		{&a.Usage.ReasoningTokens, earlier.Usage.ReasoningTokens},
		{&a.Usage.TotalTokens, earlier.Usage.TotalTokens},
	} {
		*u.sum += u.n
	}
	// The later one begins with what was open in the earlier one: outputs that
	// are in both until they were sent, and outputs of what was pending.
	open := map[string]bool{}
	sent := map[string]bool{}
	for _, id := range earlier.Open {
		open[id], sent[id] = true, true
	}
	for _, c := range earlier.Pending {
		delete(sent, c.ID)
	}
	a.Calls = slices.Clip(earlier.Calls)
	for _, c := range later.Calls {
		if !open[c.ID] {
			c.Turn += earlier.Turns
		}
		if !sent[c.ID] {
			a.Calls = append(a.Calls, c)
		}
		delete(open, c.ID) // the same ID again is another call's
		delete(sent, c.ID)
	}
	a.Pending = slices.Clone(later.Pending)
	for i, c := range a.Pending {
		if !open[c.ID] {
			a.Pending[i].Turn += earlier.Turns
		}
	}
	return &a
}
