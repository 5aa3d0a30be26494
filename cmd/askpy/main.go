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
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

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
	q := &question{opts: opts, env: env, stdin: stdin, stderr: stderr, progress: newProgress(stdout, stderr, opts, env)}
	defer q.close()
	var answer *fnloop.Answer
	if err == nil {
		answer, err = q.ask(ctx)
		q.progress.idle()
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

// A question is one invocation.
type question struct {
	opts     options
	env      environment
	stdin    io.Reader
	progress *progress
	stderr   io.Writer
	approver *approver     // nil without --approve
	session  *session      // nil without --session
	runner   fnloop.Runner // nil until there is one
}

// close frees what the question holds. It may have to wait for sandboxes to be
// removed, so the answer should be out by then.
func (q *question) close() {
	if c, ok := q.runner.(io.Closer); ok {
		slow := time.AfterFunc(time.Second, func() { q.progress.start("removing sandboxes") })
		defer slow.Stop()
		if err := c.Close(); err != nil {
			q.progress.failure(err.Error())
		}
	}
	if q.session != nil {
		q.session.close()
	}
	q.approver.close()
	q.progress.stop()
}

// ask has the question answered. The Answer is nil with a usage error only.
func (q *question) ask(ctx context.Context) (*fnloop.Answer, error) {
	none := &fnloop.Answer{Stop: fnloop.StopInvalid, Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}
	failed := func(err error) (*fnloop.Answer, error) {
		switch {
		case ctx.Err() != nil:
			none.Stop = fnloop.StopCancelled
		case errors.Is(err, errHeld):
			none.Stop = fnloop.StopBusy
		}
		return none, err
	}
	var err error
	if q.opts.approve {
		if q.approver, err = openApprover(q.stdin, q.stderr); err != nil {
			return failed(err)
		}
	}
	var last *fnloop.Answer
	if q.opts.session != "" {
		if q.session, err = openSession(q.opts.session); err != nil {
			return failed(err)
		}
		last = q.session.answer
	}
	prompt, err := readPrompt(ctx, q.opts, q.stdin, resumable(last))
	if err != nil {
		return failed(err)
	}
	if isBuiltin(q.opts, q.env, prompt) {
		prompt, q.opts.model, q.progress.model = fixtures.FibPrompt, defaultModel, defaultModel
	}
	none.Prompt = prompt

	wire, err := openWire(q.opts, q.env, prompt, q.progress)
	if err != nil {
		return failed(err)
	}
	if q.runner, err = openRunner(ctx, q.opts, q.env, q.progress); err != nil {
		return failed(wire.finish(err))
	}
	var from *fnloop.Answer
	if q.session != nil {
		if from, err = q.session.begin(prompt); err != nil {
			return failed(wire.finish(err))
		}
		if last != nil {
			for _, line := range unfinished(last, prompt, q.opts.approve) {
				q.progress.note(line)
			}
		}
		prompt = "" // it is in from
	}
	answer, err := q.converse(ctx, q.loop(wire), from, prompt)
	return answer, wire.finish(err)
}

// loop makes the loop.
func (q *question) loop(w wire) fnloop.Loop {
	python := fnloop.PythonTool(q.runner, fnloop.Limits{Time: q.opts.timeout})
	if q.approver != nil {
		python.NeedsApproval = fnloop.Always
	}
	loop := fnloop.Loop{
		Client:       q.client(w),
		Model:        q.opts.model,
		Instructions: instructions,
		Tools:        []fnloop.Tool{python},
		MaxTurns:     q.opts.maxTurns,
	}
	if q.session != nil {
		loop.Checkpoint = q.session.checkpoint
		loop.KeepItems = true // the API keeps a conversation for a month
	}
	return loop
}

// converse runs the loop, and again with what was decided whenever it stops for
// approvals.
func (q *question) converse(ctx context.Context, loop fnloop.Loop, from *fnloop.Answer, prompt string) (*fnloop.Answer, error) {
	var before *fnloop.Answer // of this invocation
	for {
		if q.approver != nil && from != nil {
			q.progress.idle()
			if err := q.approver.decide(ctx, from); err != nil {
				answer := *from
				if answer.Stop = fnloop.StopApproval; ctx.Err() != nil {
					answer.Stop = fnloop.StopCancelled
				}
				return &answer, err
			}
		}
		answer, err := q.read(loop.Events(ctx, from, prompt))
		if before != nil {
			answer = joined(before, answer)
		}
		if answer.Turns > q.opts.maxTurns && errors.Is(err, fnloop.ErrApproval) {
			answer.Turns, answer.Stop = q.opts.maxTurns, fnloop.StopMaxTurns
			err = fmt.Errorf("%w: %d calls after %d rounds were not run", fnloop.ErrMaxTurns, len(answer.Pending), answer.Turns)
		}
		if q.session != nil {
			if e := q.session.save(answer); err == nil {
				err = e
			} else if e != nil {
				q.progress.failure(e.Error())
			}
		}
		if q.approver == nil || !errors.Is(err, fnloop.ErrApproval) {
			return answer, err
		}
		// A Loop must have a round. One too many stops for approval above.
		loop.MaxTurns = max(1, q.opts.maxTurns-answer.Turns)
		before, from, prompt = answer, answer, ""
	}
}

// client makes the client, which streams where the answer is shown as it comes.
// A replay streams if what was recorded did.
func (q *question) client(w wire) fnloop.Responder {
	stream := q.progress.out != nil
	if r, ok := w.(*replay); ok {
		stream = r.streamed()
	}
	if stream {
		return q.env.client(whole{w})
	}
	return unstreamed{q.env.client(w)}
}

// read reads the events of a run to its end.
func (q *question) read(events iter.Seq2[fnloop.Event, error]) (answer *fnloop.Answer, err error) {
	for event, failure := range events {
		if done, ok := event.(fnloop.Done); ok {
			answer, err = done.Answer, failure
		}
		q.progress.event(event)
	}
	return answer, err
}

// answer prints the answer, or all of it as JSON. It reports whether text was
// printed before that is no answer.
func (q *question) answer(stdout io.Writer, answer *fnloop.Answer, failure string) (stray bool, err error) {
	if q.progress.out != nil {
		return q.progress.answered(answer)
	}
	return false, writeAnswer(stdout, answer, failure, q.opts.json)
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
