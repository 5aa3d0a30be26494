package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/session"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	"github.com/fnloop/fnloop/fixtures"
)

// A question is one invocation.
type question struct {
	opts     options
	env      environment
	stdin    io.Reader
	progress *terminal.Progress
	stderr   io.Writer
	approver *terminal.Approver // nil without --approve
	session  *session.Session   // nil without --session
	runner   fnloop.Runner      // nil until there is one
}

// close frees what the question holds. It may have to wait for sandboxes to be
// removed, so the answer should be out by then.
func (q *question) close() {
	if c, ok := q.runner.(io.Closer); ok {
		slow := time.AfterFunc(time.Second, func() { q.progress.Start("removing sandboxes") })
		defer slow.Stop()
		if err := c.Close(); err != nil {
			q.progress.Failure(err.Error())
		}
	}
	if q.session != nil {
		q.session.Close()
	}
	if q.approver != nil {
		q.approver.Close()
	}
	q.progress.Stop()
}

// ask has the question answered. The Answer is nil with a usage error only.
func (q *question) ask(ctx context.Context) (*fnloop.Answer, error) {
	none := &fnloop.Answer{Stop: fnloop.StopInvalid, Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}
	failed := func(err error) (*fnloop.Answer, error) {
		switch {
		case ctx.Err() != nil:
			none.Stop = fnloop.StopCancelled
		case errors.Is(err, session.ErrHeld):
			none.Stop = fnloop.StopBusy
		}
		return none, err
	}
	var err error
	if q.opts.approve {
		if q.approver, err = terminal.OpenApprover(q.stdin, q.stderr); err != nil {
			return failed(usagef("--approve asks on a terminal, and there is none"))
		}
	}
	var last *fnloop.Answer
	if q.opts.session != "" {
		if q.session, err = openSession(q.opts.session); err != nil {
			return failed(err)
		}
		last = q.session.Answer
	}
	prompt, err := readPrompt(ctx, q.opts, q.stdin, session.Resumable(last))
	if err != nil {
		return failed(err)
	}
	if isBuiltin(q.opts, q.env, prompt) {
		prompt, q.opts.model = fixtures.FibPrompt, defaultModel
		q.progress.SetModel(defaultModel)
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
		if from, err = q.session.Begin(prompt); err != nil {
			return failed(wire.finish(q.saved(err)))
		}
		if last != nil {
			for _, line := range session.Unfinished(last, prompt, q.opts.approve) {
				q.progress.Note(line)
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
		Client:       q.env.client(w),
		Model:        q.opts.model,
		Instructions: instructions,
		Tools:        []fnloop.Tool{python},
		MaxTurns:     q.opts.maxTurns,
	}
	if q.session != nil {
		loop.Checkpoint = q.checkpoint
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
			q.progress.Idle()
			if err := q.approver.Decide(ctx, from); err != nil {
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
			if e := q.saved(q.session.Save(answer)); err == nil {
				err = e
			} else if e != nil {
				q.progress.Failure(e.Error())
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

// read reads the events of a run to its end.
func (q *question) read(events iter.Seq2[fnloop.Event, error]) (answer *fnloop.Answer, err error) {
	for event, failure := range events {
		if done, ok := event.(fnloop.Done); ok {
			answer, err = done.Answer, failure
		}
		q.progress.Event(event)
	}
	return answer, err
}

// answer prints the answer, or all of it as JSON. It reports whether text was
// printed before that is no answer.
func (q *question) answer(stdout io.Writer, answer *fnloop.Answer, failure string) (stray bool, err error) {
	if q.progress.Streams() {
		return q.progress.Answered(answer)
	}
	return false, writeAnswer(stdout, answer, failure, q.opts.json)
}

// instructions are those that the model gets with every request. Recordings
// hold them, so a change calls for new ones.
const instructions = "Answer the question. Where computing helps, run Python rather than guess. Give the result plainly and briefly."

// openSession opens a session, whose file may be none that one can be kept in.
func openSession(name string) (*session.Session, error) {
	s, err := session.Open(name)
	switch {
	case errors.Is(err, session.ErrHeld):
		return nil, fmt.Errorf("--session %s: %w", name, err)
	case err != nil:
		return nil, usagef("--session %s: %v", name, cause(err))
	}
	return s, nil
}

// checkpoint is the hook of the loop.
func (q *question) checkpoint(_ context.Context, answer *fnloop.Answer) error {
	return q.saved(q.session.Save(answer))
}

// saved makes an error of the session one for the user.
func (q *question) saved(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--session %s: the file could not be written: %w", q.opts.session, cause(err))
}

// cause is err without the operation and the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
