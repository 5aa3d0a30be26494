package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/reeflective/readline"
	"golang.org/x/term"
)

// ErrInterrupted means that Ctrl-C was pressed where a line was to be typed.
var ErrInterrupted = errors.New("interrupted")

// An Editor reads what a person types on the terminal, which has to be standard
// input and output. Keys are those of readline, and what ~/.inputrc says of them
// counts. A text goes over several lines where it is pasted so, and after a
// backslash at the end of a line.
type Editor struct {
	shell   *readline.Shell
	history readline.History // nil where nothing is remembered
}

// EditorOptions say how an Editor asks.
type EditorOptions struct {
	// Prompt stands before the text.
	Prompt string
	// History is a file that keeps what was typed. Empty means that it is kept
	// until the Editor goes.
	History string
	// Complete gives the words that may stand for the one before the cursor, with the
	// blank that follows them; line is what is before the cursor. Nil means that
	// there are none.
	Complete func(line string) []string
	// Plain means no colours.
	Plain bool
}

// NewEditor makes an Editor.
func NewEditor(o EditorOptions) *Editor {
	shell := readline.NewShell()
	set := func(name string, value any) { shell.Config.Set(name, value) } //nolint:errcheck // it has no error to give
	set("enable-bracketed-paste", true)
	set("cursor-position-probe", false) // the prompt begins a line, and not every terminal answers
	set("multiline-column", false)
	set("convert-meta", false) // or é is the command of Alt-i
	if o.Plain {
		shell.Prompt.Primary(func() string { return o.Prompt })
	} else {
		shell.Prompt.Primary(func() string { return bold + o.Prompt + noBold })
	}
	shell.Prompt.Secondary(func() string { return strings.Repeat(" ", Width(o.Prompt)) })
	shell.AcceptMultiline = func(line []rune) bool {
		last := len(line) - 1
		if last < 0 || line[last] != '\\' {
			return true
		}
		shell.Line().Cut(last, last+1)
		shell.Cursor().Set(last)
		return false
	}
	// The library's own takes in one rune of a character that has several, and moves
	// over as many as that has columns.
	shell.Keymap.Register(map[string]func(){"self-insert": func() {
		shell.History.SkipSave()
		if key := shell.Keys.Caller(); len(key) > 0 && !unicode.IsControl(key[0]) {
			shell.Cursor().InsertAt(key...)
		}
	}})
	if o.Complete != nil {
		shell.Completer = func(line []rune, cursor int) readline.Completions {
			return readline.CompleteValues(o.Complete(string(line[:cursor]))...).NoSpace('/')
		}
	}
	e := &Editor{shell: shell}
	shell.History.Delete()
	if e.history = readline.NewInMemoryHistory(); o.History != "" {
		file, err := readline.NewHistoryFromFile(o.History)
		if err == nil || file != nil { // the file need not be there yet
			e.history = bounded{file}
		}
	}
	shell.History.Add("prompts", e.history)
	return e
}

// bounded is a history whose file has no line that it cannot read again.
type bounded struct{ readline.History }

// maxHistoryLine is below the longest line that the file is read by, in bytes; its
// JSON can be longer than the text.
const maxHistoryLine = 8 << 10

// Write adds a text.
func (b bounded) Write(text string) (int, error) {
	if len(text) > maxHistoryLine {
		return b.Len(), nil
	}
	return b.History.Write(text)
}

// Line reads a text. The error is io.EOF after Ctrl-D in an empty one,
// ErrInterrupted after Ctrl-C, and that of ctx when it ends: the Editor is of no use
// then.
func (e *Editor) Line(ctx context.Context) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	makeRoom()
	go func() { // a read from a terminal cannot be called off
		text, err := e.shell.Readline()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		term.Restore(fd, before) //nolint:errcheck // there is nothing better to do
		return "", ctx.Err()
	case r := <-done:
		if errors.Is(r.err, readline.ErrInterrupt) {
			r.err = ErrInterrupted
		}
		return strings.ToValidUTF8(r.text, "\uFFFD"), r.err
	}
}

// makeRoom scrolls the terminal where the cursor is in its last rows, in which an
// input of several lines would not be shown rightly.
func makeRoom() {
	_, height, err := term.GetSize(int(os.Stdout.Fd()))
	if rows := min(3, height-1); err == nil && rows > 0 {
		fmt.Printf("%s\x1b[%dA", strings.Repeat("\n", rows), rows)
	}
}
