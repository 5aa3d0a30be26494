// Askpy asks a model a question and lets it compute the answer with Python
// programs, which run in a sandbox.
//
//	askpy "compute fib(40)"
//
// See askpy --help for its flags, environment variables and exit statuses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// The exit statuses.
const (
	exitAnswered    = 0
	exitFailed      = 1
	exitUsage       = 2
	exitMaxTurns    = 3
	exitInterrupted = 130
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // the next signal ends the program at once
	// Of a broken pipe the write that fails tells. The signal would end the
	// program with its sandboxes still there; it is caught rather than ignored,
	// which other programs would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the program: it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	opts, err := parse(args, getenv)
	if errors.Is(err, flag.ErrHelp) {
		return display(stdout, stderr, help)
	}
	if err == nil && opts.version {
		return display(stdout, stderr, version()+"\n")
	}
	var env environment
	if err == nil {
		env, err = readEnvironment(getenv)
	}
	q := &question{opts: opts, env: env, stdin: stdin, stderr: stderr, progress: terminal.NewProgress(stdout, stderr, terminal.Options{
		Model: opts.model, Quiet: opts.quiet, Verbose: opts.verbose, Answer: !opts.json, Plain: env.noColor, Dumb: env.dumb,
	})}
	defer q.close()
	var answer *fnloop.Answer
	if err == nil {
		answer, err = q.ask(ctx)
		q.progress.Idle()
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		complain(stderr, err.Error())
		fmt.Fprintln(stderr, "Run askpy --help for its flags and an example.")
		return exitUsage
	}

	status, text := exitAnswered, ""
	if err != nil {
		status, text = exitFailed, env.scrubber().Hide(explain(err))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		status, text = exitInterrupted, "interrupted"
	case errors.Is(err, fnloop.ErrMaxTurns):
		status = exitMaxTurns
	}
	stray, err := q.answer(stdout, answer, text)
	if err != nil {
		complain(stderr, "the answer could not be written: "+err.Error())
		status = max(status, exitFailed)
	}
	if text != "" {
		complain(stderr, text)
	}
	if stray && answer.Stop != fnloop.StopAnswered && answer.Stop != fnloop.StopRefused {
		complain(stderr, "the text above is not the whole answer")
	}
	return status
}

// display prints what was asked for instead of a run.
func display(stdout, stderr io.Writer, text string) int {
	if _, err := io.WriteString(stdout, text); err != nil {
		complain(stderr, "it could not be written: "+err.Error())
		return exitFailed
	}
	return exitAnswered
}

// explain makes the text of an error fit for the command line.
func explain(err error) string {
	text := strings.TrimPrefix(err.Error(), "fnloop: ")
	stream, streamed := errors.AsType[*fnloop.StreamError](err)
	switch {
	case streamed && stream.Events == 0 && strings.HasPrefix(stream.ContentType, "text/html"):
		text = "the server answered with a web page, and not with a response; is OPENAI_BASE_URL the address of an API, and does the network want a login?"
	case errors.Is(err, fnloop.ErrMaxTurns):
		text += "; --max-turns allows more"
	}
	return text
}

// complain prints an error.
func complain(stderr io.Writer, text string) {
	fmt.Fprintf(stderr, "askpy: %s\n", terminal.Printable(strings.TrimSpace(text)))
}
