package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// maxPrompt is the size of the longest text that the API takes, in bytes.
const maxPrompt = 10 << 20

const promptLike = `give one, as in askpy "compute fib(40)"`

// readPrompt takes the prompt from the command line and from standard input,
// which follows it after an empty line. An argument "-" asks for standard input
// even where it is a terminal. The prompt may be missing, and is empty then,
// where there is something to resume.
func (q *question) readPrompt(ctx context.Context, resume bool) (string, error) {
	args := slices.Clone(q.opts.args)
	dash := slices.Index(args, "-")
	if dash >= 0 {
		args = slices.Delete(args, dash, dash+1)
	}
	switch {
	case len(args) > 1:
		return "", usagef("%d prompts, %q and %q; put the prompt in quotes", len(args), args[0], args[1])
	case len(args) == 1 && strings.TrimSpace(args[0]) == "":
		return "", usagef("the prompt is empty; %s", promptLike)
	}
	var parts []string
	if len(args) == 1 {
		if !utf8.ValidString(args[0]) {
			return "", usagef("the prompt is not valid UTF-8")
		}
		parts = args
	}
	read := dash >= 0 || hasInput(q.stdin, len(args) == 1)
	if read {
		text, err := q.readStdin(ctx)
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(text) != "" {
			parts = append(parts, text)
		}
	}
	prompt := strings.Join(parts, "\n\n")
	switch {
	case prompt == "" && resume:
		return "", nil
	case prompt == "" && (q.opts.session != "" || q.opts.last):
		return "", usagef("no prompt, and the conversation of %s has nothing to finish; %s", q.sessionName(), promptLike)
	case prompt == "" && !read:
		return "", usagef("no prompt; %s, or talk with askpy chat", promptLike)
	case prompt == "":
		return "", usagef("the prompt on standard input is empty; %s", promptLike)
	case len(prompt) > maxPrompt:
		return "", usagef("the prompt is longer than the %d MiB that the API takes", maxPrompt>>20)
	}
	return prompt, nil
}

// hasInput reports whether something may come on standard input that belongs to
// the prompt. A terminal, or a device such as /dev/null, has nothing to add to a
// prompt that is there.
func hasInput(stdin io.Reader, prompted bool) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	if err != nil { // there is none, as under a service manager
		return false
	}
	if info.Mode()&fs.ModeCharDevice != 0 {
		return !prompted && !term.IsTerminal(int(f.Fd()))
	}
	return true
}

// readStdin reads the text on standard input, or gives up when ctx ends: a read
// from a pipe cannot be called off.
func (q *question) readStdin(ctx context.Context) (string, error) {
	slow := time.AfterFunc(2*time.Second, func() {
		q.progress.Note("waiting for the end of standard input; askpy ... </dev/null does without it")
	})
	if f, ok := q.stdin.(*os.File); ok && terminal.Is(f) {
		slow.Stop()
		q.progress.Note("type the prompt; Ctrl-D on a line of its own ends it")
	}
	defer slow.Stop()
	var text []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = io.ReadAll(io.LimitReader(q.stdin, maxPrompt+1))
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-done:
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the prompt from standard input: %w", err)
	case len(text) > maxPrompt:
		return "", usagef("the prompt on standard input is longer than the %d MiB that the API takes", maxPrompt>>20)
	case !utf8.Valid(text):
		return "", usagef("the prompt on standard input is not valid UTF-8; only text can be read from there")
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
