package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/session"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// A prompter gives what is typed in a chat, one prompt or command at a time, and
// io.EOF at the end.
type prompter interface {
	Line(ctx context.Context) (string, error)
}

// errLeft is the word of a command that the chat is over.
var errLeft = errors.New("the chat is over")

// chat is the command that asks again and again in one conversation. It gives the
// exit status.
func (q *question) chat(ctx context.Context) int {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)  // from here on it stops what goes on, and not the program
	opening, stop := context.WithCancel(ctx) // which what is opened may hold on to
	defer stop()
	opened := make(chan struct{})
	go func() {
		select {
		case <-interrupts:
			stop()
		case <-opened:
		}
	}()
	prompts, err := q.openChat(opening)
	close(opened)
	switch {
	case err != nil && opening.Err() != nil:
		complain(q.stderr, "interrupted")
		return exitInterrupted
	case err != nil:
		return q.fail(err)
	}
	_, typed := prompts.(*terminal.Editor)
	first := q.opts.args[1:]
	for {
		line := ""
		if typed {
			fmt.Fprintln(q.stderr)
		}
		if len(first) > 0 {
			line, first = first[0], first[1:]
		} else if line, err = prompts.Line(ctx); err != nil {
			switch {
			case ctx.Err() != nil:
				return exitInterrupted
			case errors.Is(err, terminal.ErrInterrupted):
				q.progress.Note("Ctrl-D or /quit ends the chat")
				continue
			case !errors.Is(err, io.EOF):
				return finish(q.stderr, q.env, fmt.Errorf("reading what to ask: %w", err))
			}
			q.leave()
			return exitAnswered
		}
		status := q.say(ctx, line, typed)
		switch {
		case status < 0:
			q.leave()
			return exitAnswered
		case ctx.Err() != nil:
			return exitInterrupted
		case status != exitAnswered && !typed: // what follows counts on it
			if session.Resumable(q.last) && q.wayBack != "" {
				complain(q.stderr, fmt.Sprintf("%q goes on from here", "askpy "+q.wayBack))
			}
			return status
		}
	}
}

// openChat opens what the chat needs, and says how it goes.
func (q *question) openChat(ctx context.Context) (prompter, error) {
	for _, flag := range []struct{ name, value string }{{"record", q.opts.record}, {"replay", q.opts.replay}} {
		if flag.value != "" {
			return nil, usagef("askpy chat and --%s cannot go together: a recording has one question", flag.name)
		}
	}
	if len(q.opts.args) > 2 {
		return nil, usagef("%d prompts, %q and %q; put the prompt in quotes", len(q.opts.args)-1, q.opts.args[1], q.opts.args[2])
	}
	if err := q.readFiles(); err != nil {
		return nil, err
	}
	q.keeping = !q.opts.private && q.env.home != ""
	q.recall()
	editor := q.openEditor()
	switch {
	case editor != nil:
		q.approver = terminal.EditorApprover(terminal.NewEditor(terminal.EditorOptions{Prompt: terminal.Question, Plain: q.env.noColor}), q.stderr)
	case q.opts.approve:
		var err error
		if q.approver, err = terminal.OpenApprover(q.stdin, q.stderr); err != nil {
			return nil, usagef("--approve asks on a terminal, and there is none")
		}
	case q.waiting() > 0:
		return nil, usagef("%s: the conversation waits for your word on %d programs; --approve asks for it, and what you do not approve is not run", q.sessionName(), q.waiting())
	}
	if err := q.open(ctx, ""); err != nil {
		return nil, err
	}
	q.progress.Idle()
	q.greet(editor != nil)
	if editor == nil {
		return &lines{in: bufio.NewReader(q.stdin)}, nil
	}
	return editor, nil
}

// openEditor makes the editor of prompts, where a person types and reads them.
func (q *question) openEditor() *terminal.Editor {
	in, ok := q.stdin.(*os.File)
	if !ok || !terminal.Is(in) || !terminal.Is(q.stdout) || q.env.dumb {
		return nil
	}
	o := terminal.EditorOptions{Prompt: "> ", Plain: q.env.noColor, Complete: completeLine}
	if q.keeping && os.MkdirAll(q.env.home, 0o700) == nil {
		o.History = filepath.Join(q.env.home, "history")
	}
	return terminal.NewEditor(o)
}

// greet says how the chat goes, and where it goes on from.
func (q *question) greet(typed bool) {
	if typed {
		q.progress.Note(fmt.Sprintf("chat with %s; /help lists the commands, Ctrl-D ends it", q.opts.model))
	} else {
		q.progress.Note("each line of standard input is a prompt; a backslash at the end of a line goes on in the next")
	}
	if q.last != nil {
		q.progress.Note(fmt.Sprintf("going on with %q", q.notes.Title))
		q.unfinished()
	}
}

// unfinished says what the run before has left, and what to do about it.
func (q *question) unfinished() {
	for _, line := range session.Unfinished(q.last, "", q.loop(q.wire).Tools[0].Repeatable) {
		q.progress.Note(line)
	}
	if session.Resumable(q.last) {
		q.progress.Note("an empty line goes on with it; a prompt comes after it; /undo takes it back")
	}
}

// say answers a prompt or runs a command, and gives the status of that. It is
// negative where the chat is over.
func (q *question) say(ctx context.Context, line string, typed bool) int {
	line = strings.TrimRight(line, " \t\r\n")
	name, argument, _ := strings.Cut(line, " ")
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	switch {
	case strings.HasPrefix(name, "/") && !strings.Contains(name[1:], "/") && !strings.Contains(line, "\n"):
		switch err := q.slash(name, strings.TrimSpace(argument)); {
		case errors.Is(err, errLeft):
			return -1
		case err != nil:
			complain(q.stderr, q.env.scrubber().Hide(err.Error()))
			return exitUsage
		}
		return exitAnswered
	case strings.TrimSpace(line) == "" && !session.Resumable(q.last) && len(q.attached) == 0:
		return exitAnswered
	case !utf8.ValidString(line):
		return finish(q.stderr, q.env, usagef("the prompt is not valid UTF-8"))
	case len(line) > maxPrompt:
		return finish(q.stderr, q.env, usagef("the prompt is longer than the %d MiB that the API takes", maxPrompt>>20))
	}
	if strings.TrimSpace(line) == "" {
		line = ""
	}
	answer, err := q.turn(ctx, line)
	q.progress.Idle()
	if answer == nil {
		return q.fail(err)
	}
	status := q.report(ctx, answer, err)
	q.used = sum(q.used, answer)
	if q.opts.usage {
		fmt.Fprintln(q.stderr, usageLine(answer))
	}
	if err != nil && typed {
		q.unfinished()
	}
	return status
}

// fail reports what kept a run from being begun.
func (q *question) fail(err error) int {
	if _, ok := errors.AsType[*usageError](err); !ok {
		err = errors.New(explain(err, q.env))
	}
	return finish(q.stderr, q.env, err)
}

// leave says how the chat can go on another time.
func (q *question) leave() {
	if q.wayBack != "" {
		q.progress.Note(fmt.Sprintf("%q goes on with this chat", "askpy chat "+q.wayBack))
	}
}

// lines are prompts that come through a pipe, one in each line.
type lines struct {
	in *bufio.Reader
}

// Line reads the next one that is not empty.
func (l *lines) Line(ctx context.Context) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() { // a read from a pipe cannot be called off
		text, err := l.read()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		return r.text, r.err
	}
}

func (l *lines) read() (string, error) {
	var text strings.Builder
	for {
		line, err := l.in.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		more, goesOn := strings.CutSuffix(line, `\`)
		text.WriteString(more)
		switch {
		case goesOn && err == nil && text.Len() <= maxPrompt:
			text.WriteByte('\n')
		case text.Len() > 0:
			return text.String(), nil // an error comes again
		case err != nil:
			return "", err
		}
	}
}

// sum is what two runs have used.
func sum(a, b *fnloop.Answer) *fnloop.Answer {
	if a == nil {
		return b
	}
	return joined(&fnloop.Answer{Usage: a.Usage, Responses: a.Responses, Unmetered: a.Unmetered, Calls: a.Calls}, b)
}
