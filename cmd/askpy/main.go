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
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/session"
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
	signals := []os.Signal{syscall.SIGTERM} // run sees to os.Interrupt
	if !signal.Ignored(syscall.SIGHUP) {    // as under nohup
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
	opts, err := parse(args)
	switch {
	case err == nil && opts.help:
		return display(stdout, stderr, help())
	case err == nil && opts.version:
		return display(stdout, stderr, version()+"\n")
	}
	var env environment
	if err == nil {
		env, err = readEnvironment(getenv)
	}
	name := ""
	if len(opts.args) > 0 && !afterDashes(args, opts.args[0]) {
		name = opts.args[0]
	}
	if c, ok := commands[name]; ok && c.run != nil && (err == nil || c.anyhow) {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		return finish(stderr, env, c.run(ctx, opts, env, stdout))
	}
	if name == mcpCommand && err == nil {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		return finish(stderr, env, serveMCP(ctx, opts, env, stdin, stdout, stderr))
	}
	if near := misspelt(name, opts.args); err == nil && near != "" {
		err = usagef("there is no command %s; did you mean %s? a prompt of that word goes after --", name, near)
	}
	q := &question{
		opts: opts, env: env, stdin: stdin, stdout: stdout, stderr: stderr, chatting: name == chatCommand,
		progress: terminal.NewProgress(stdout, stderr, terminal.Options{
			Quiet: opts.quiet, Verbose: opts.verbose, Answer: !opts.json && !opts.events, Plain: env.noColor, Dumb: env.dumb, Graphics: env.graphics,
		}),
	}
	defer q.close()
	if q.chatting && err == nil {
		return q.chat(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // the next one ends the program at once
	var answer *fnloop.Answer
	if err == nil {
		answer, err = q.ask(ctx)
		q.progress.Idle()
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return finish(stderr, env, err)
	}
	status := q.report(ctx, answer, err)
	if status != exitAnswered && q.wayBack != "" && session.Resumable(answer) {
		complain(stderr, fmt.Sprintf("%q goes on from here", "askpy "+q.wayBack))
	}
	if opts.usage {
		fmt.Fprintln(stderr, usageLine(answer))
	}
	return status
}

// report prints what came of a run, and gives the status for it.
func (q *question) report(ctx context.Context, answer *fnloop.Answer, err error) int {
	status, text := exitAnswered, ""
	if err != nil {
		status, text = exitFailed, q.env.scrubber().Hide(explain(err, q.env))
	}
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, terminal.ErrInterrupted)):
		status, text = exitInterrupted, "interrupted"
	case errors.Is(err, fnloop.ErrMaxTurns):
		status = exitMaxTurns
	}
	partial, err := q.answer(answer, text)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // whoever reads may stop when they have seen enough
		complain(q.stderr, "the answer could not be written: "+err.Error())
		status = max(status, exitFailed)
	}
	if text != "" {
		complain(q.stderr, text)
	}
	if partial {
		complain(q.stderr, "the text above is not the whole answer")
	}
	return status
}

// finish reports the error of a command or of its flags, if any.
func finish(stderr io.Writer, env environment, err error) int {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return exitAnswered
	}
	complain(stderr, env.scrubber().Hide(err.Error()))
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintln(stderr, "Run askpy --help for its flags and examples.")
		return exitUsage
	}
	return exitFailed
}

// display prints what was asked for instead of a run.
func display(stdout, stderr io.Writer, text string) int {
	if _, err := io.WriteString(stdout, text); err != nil && !errors.Is(err, syscall.EPIPE) {
		complain(stderr, "it could not be written: "+err.Error())
		return exitFailed
	}
	return exitAnswered
}

// explain makes the text of an error fit for the command line: what is wrong, and
// what to do about it.
func explain(err error, env environment) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "fnloop: "), "request: ")
	stream, streamed := errors.AsType[*fnloop.StreamError](err)
	request, requested := errors.AsType[*fnloop.RequestError](err)
	switch {
	case errors.Is(err, fnloop.ErrMaxTurns):
		text += "\n--max-turns allows more"
	case streamed && stream.Events == 0 && strings.HasPrefix(stream.ContentType, "text/html"):
		text = "the server answered with a web page, and not with a response\nis OPENAI_BASE_URL the address of an API, and does the network want a login?"
	case !requested:
	case request.Code == "model_not_found":
		text += "\nis --model right?"
	case request.StatusCode == http.StatusNotFound && path.Base(env.baseURL.Path) != "v1":
		text += "\nis OPENAI_BASE_URL right? most of them end in /v1"
	case request.StatusCode == http.StatusNotFound:
		text += "\nis OPENAI_BASE_URL right?"
	case request.StatusCode == http.StatusUnauthorized:
		text += "\nis OPENAI_API_KEY right, and is it a key of the server at OPENAI_BASE_URL?"
	case request.StatusCode == 0:
		text += "\ncan the server at OPENAI_BASE_URL be reached from here?"
	}
	return text
}

// complain prints an error.
func complain(stderr io.Writer, text string) {
	fmt.Fprintf(stderr, "askpy: %s\n", terminal.Printable(strings.TrimSpace(text)))
}
