// Askpy asks a model a question and lets it compute the answer with Python
// programs, which run in a sandbox on this machine.
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
	"github.com/fnloop/fnloop/fixtures"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the program: it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	opts, err := parse(args, getenv)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitAnswered
	}
	if err == nil && opts.version {
		fmt.Fprintln(stdout, version())
		return exitAnswered
	}
	var answer *fnloop.Answer
	var env environment
	if err == nil {
		env, err = readEnvironment(getenv)
	}
	if err == nil {
		answer, err = ask(ctx, opts, env, stdin, stderr)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		complain(stderr, err.Error())
		fmt.Fprintln(stderr, "Run askpy --help for its flags and an example.")
		return exitUsage
	}

	status, text := exitAnswered, ""
	if err != nil {
		status, text = exitFailed, env.scrubber().hide(explain(err))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		status, text = exitInterrupted, "interrupted"
	case errors.Is(err, fnloop.ErrMaxTurns):
		status = exitMaxTurns
	}
	if err := writeAnswer(stdout, answer, text, opts.json); err != nil {
		complain(stderr, "the answer could not be written: "+err.Error())
		status = max(status, exitFailed)
	}
	if text != "" {
		complain(stderr, text)
	}
	return status
}

// ask has the question answered. The Answer is nil with a usage error only.
func ask(ctx context.Context, opts options, env environment, stdin io.Reader, stderr io.Writer) (*fnloop.Answer, error) {
	none := &fnloop.Answer{Stop: fnloop.StopInvalid, Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}
	prompt, err := readPrompt(ctx, opts, stdin)
	if err != nil {
		if ctx.Err() != nil {
			none.Stop = fnloop.StopCancelled
		}
		return none, err
	}
	if isBuiltin(opts, env, prompt) {
		prompt, opts.model = fixtures.FibPrompt, defaultModel
	}
	none.Prompt = prompt

	progress := newProgress(stderr, opts, env)
	defer progress.stop()
	wire, err := openWire(opts, env, prompt, progress)
	if err != nil {
		return none, err
	}
	runner, err := openRunner(ctx, opts.runner, progress)
	if err != nil {
		if ctx.Err() != nil {
			none.Stop = fnloop.StopCancelled
		}
		return none, wire.finish(err)
	}
	if c, ok := runner.(io.Closer); ok {
		defer c.Close()
	}
	loop := &fnloop.Loop{
		Client:        env.client(wire),
		Model:         opts.model,
		Instructions:  instructions,
		Tools:         []fnloop.Tool{progress.watchTool(fnloop.PythonTool(runner, fnloop.Limits{Time: opts.timeout}))},
		MaxTurns:      opts.maxTurns,
		BeforeRequest: progress.beforeRequest,
	}
	answer, err := loop.Run(ctx, prompt)
	progress.idle()
	return answer, wire.finish(err)
}

// instructions are those that the model gets with every request. Recordings
// hold them, so a change calls for new ones.
const instructions = "Answer the question. Where computing helps, run Python rather than guess. Give the result plainly and briefly."

// explain makes the text of an error fit for the command line.
func explain(err error) string {
	text := strings.TrimPrefix(err.Error(), "fnloop: ")
	switch {
	case errors.Is(err, fnloop.ErrMaxTurns):
		text += "; --max-turns allows more"
	}
	return text
}

// complain prints an error.
func complain(stderr io.Writer, text string) {
	fmt.Fprintf(stderr, "askpy: %s\n", printable(strings.TrimSpace(text)))
}
