package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/session"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	"github.com/fnloop/fnloop/fixtures"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/mcptool"
)

// A question is one invocation, which asks once or, in a chat, again and again.
type question struct {
	opts     options
	env      environment
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	progress *terminal.Progress
	approver *terminal.Approver // nil where nobody is asked
	runner   fnloop.Runner      // nil until there is one
	wire     wire               // nil until there is one
	chatting bool

	attached []attachment
	sessions *interpreter.Sessions // nil where programs are run one by one
	polyglot fnloop.Runner         // for programs of other languages; nil without --languages
	figures  int                   // that were drawn
	kept     kept                  // the files of the conversation
	gallery  string                // the folder that keeps them, once there is one
	servers  []*mcptool.Conn       // of --mcp

	serverTools []fnloop.Tool // of the servers

	session   *session.Session // nil where the conversation is not kept
	path      string           // its file
	keeping   bool             // the conversation is to be kept for --continue
	nameless  bool             // the session has no name and cannot fail the run
	last      *fnloop.Answer   // where the conversation is, or nil
	notes     session.Notes
	wayBack   string // the flag that goes on with it, once it is kept
	schema    *responses.ResponseFormatTextConfigUnionParam
	used      *fnloop.Answer // what a chat has used, as an Answer has it
	eventsErr error          // the first of printing an event
}

// close frees what the question holds. It may have to wait for sandboxes to be
// removed, so the answer should be out by then.
func (q *question) close() {
	for _, c := range q.servers {
		c.Close()
	}
	if q.sessions != nil {
		if err := q.sessions.Close(); err != nil {
			q.progress.Failure(err.Error())
		}
	}
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
	if q.opts.approve {
		var err error
		if q.approver, err = terminal.OpenApprover(q.stdin, q.stderr); err != nil {
			return failed(usagef("--approve asks on a terminal, and there is none"))
		}
	}
	if err := q.readFiles(); err != nil {
		return failed(err)
	}
	if n := q.waiting(); n > 0 && q.approver == nil {
		return failed(usagef("%s: the conversation waits for your word on %d programs; --approve asks for it, and what you do not approve is not run", q.sessionName(), n))
	}
	prompt, err := q.readPrompt(ctx, session.Resumable(q.last))
	if err != nil {
		return failed(err)
	}
	if isBuiltin(q.opts, q.env, prompt) {
		prompt, q.opts.model = fixtures.FibPrompt, defaultModel
	} else {
		q.keeping = !q.opts.private && q.opts.record == "" && q.opts.replay == "" && q.env.home != ""
	}
	none.Prompt = prompt
	q.recall()
	if err := q.open(ctx, prompt); err != nil {
		return failed(err)
	}
	answer, err := q.turn(ctx, prompt)
	if answer == nil {
		return failed(q.wire.finish(err))
	}
	return answer, q.wire.finish(err)
}

// waiting is how many calls wait for a person's word.
func (q *question) waiting() int {
	if q.last == nil {
		return 0
	}
	return len(q.last.Waiting())
}

// readFiles reads the files that the flags name.
func (q *question) readFiles() (err error) {
	if q.opts.schema != "" {
		if q.schema, err = readSchema(q.opts.schema); err != nil {
			return err
		}
	}
	if q.attached, err = readAttachments(q.opts.files); err != nil {
		return err
	}
	return q.openSession()
}

// open opens what a run needs, before anything is sent.
func (q *question) open(ctx context.Context, prompt string) (err error) {
	if q.wire, err = openWire(q.opts, q.env, prompt, q.progress); err != nil {
		return err
	}
	if q.runner, err = openRunner(ctx, q.opts, q.env, q.progress); err == nil {
		err = q.openInterpreter(q.wire)
	}
	if err == nil && len(q.opts.languages) > 0 {
		q.polyglot, err = chooseLanguages(ctx, q.runner, q.opts.languages)
	}
	if err == nil {
		err = q.openMCP(ctx)
	}
	if err != nil {
		return q.wire.finish(err)
	}
	return nil
}

// turn has a prompt answered, or finishes what is not where it is empty. The Answer
// is nil where nothing was begun.
func (q *question) turn(ctx context.Context, prompt string) (*fnloop.Answer, error) {
	loop := q.loop(q.wire)
	before := q.last
	if prompt = q.withFiles(prompt); prompt != "" && q.chatting {
		if err := q.rejectWaiting(); err != nil {
			return nil, err
		}
	}
	from, err := q.begin(prompt)
	if err != nil {
		return nil, err
	}
	if before != nil && !q.chatting {
		for _, line := range session.Unfinished(before, prompt, loop.Tools[0].Repeatable) {
			q.progress.Note(line)
		}
	}
	if err := q.put(ctx, from); err != nil {
		return nil, err
	}
	q.attached = nil
	answer, err := q.converse(ctx, loop, from)
	q.last = answer
	return answer, err
}

// rejectWaiting answers calls that wait for a person who has asked something else.
func (q *question) rejectWaiting() error {
	if q.waiting() == 0 {
		return nil
	}
	for _, call := range q.last.Waiting() {
		if err := q.last.Reject(call.ID, "the user has gone on with something else"); err != nil {
			return err
		}
	}
	return nil
}

// begin gives the answer to go on from, with the prompt in it if there is one, once
// it is stored: until a response has taken the prompt in, only the file has it. The
// prompt that is there already asks for another attempt.
func (q *question) begin(prompt string) (*fnloop.Answer, error) {
	from := fnloop.Answer{Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}
	if q.last != nil {
		from = *q.last
	}
	if parts := q.parts(); prompt != from.Prompt || len(parts) > 0 {
		if prompt != "" || len(parts) > 0 {
			q.notes.Mark(prompt, q.last)
		}
		from.AddPrompt(prompt, parts...)
	}
	for _, a := range q.attached {
		if a.part == nil {
			q.kept.add(a.name, a.path)
		}
	}
	q.notes.Title = cmp.Or(q.notes.Title, title(prompt))
	if err := q.keep(); err != nil {
		return nil, err
	}
	if err := q.store(&from); err != nil {
		return nil, err
	}
	q.last = &from
	return &from, nil
}

// loop makes the loop.
func (q *question) loop(w wire) fnloop.Loop {
	python := fnloop.PythonTool(q.runner, fnloop.Limits{Time: q.opts.timeout})
	if q.sessions != nil {
		python = q.sessions.Tool()
	}
	tools := []fnloop.Tool{python}
	if q.polyglot != nil {
		tools = append(tools, fnloop.CodeTool(q.polyglot, fnloop.Limits{Time: q.opts.timeout}))
	}
	tools = append(tools, q.serverTools...)
	if q.opts.approve {
		for i := range tools {
			tools[i].NeedsApproval = fnloop.Always
		}
	}
	loop := fnloop.Loop{
		Client:       q.env.client(w),
		Model:        q.opts.model,
		Instructions: cmp.Or(q.opts.system, instructions),
		Tools:        tools,
		MaxTurns:     q.opts.maxTurns,
		KeepItems:    q.session != nil || q.keeping || q.chatting, // the API keeps a conversation for a month
		Checkpoint:   func(_ context.Context, answer *fnloop.Answer) error { return q.store(answer) },
	}
	if q.opts.effort != "" || q.opts.temperature != nil || q.schema != nil {
		loop.BeforeRequest = q.beforeRequest
	}
	return loop
}

// beforeRequest sets what a Loop has no fields for.
func (q *question) beforeRequest(_ context.Context, params *responses.ResponseNewParams) error {
	params.Reasoning.Effort = shared.ReasoningEffort(q.opts.effort)
	if t := q.opts.temperature; t != nil {
		params.Temperature = param.NewOpt(*t)
	}
	if q.schema != nil {
		params.Text.Format = *q.schema
	}
	return nil
}

// readSchema reads the schema that the answer has to fit. One that strict mode
// takes is sent for that; any other goes out as it is, and the model does what
// it can.
func readSchema(file string) (*responses.ResponseFormatTextConfigUnionParam, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("--schema %s: %v", file, cause(err))
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil || schema == nil {
		return nil, usagef("--schema %s: the file is not a JSON schema, which is an object: %v", file, err)
	}
	format := responses.ResponseFormatTextConfigParamOfJSONSchema("answer", schema)
	format.OfJSONSchema.Strict = param.NewOpt(fnloop.CheckStrict(data) == nil)
	return &format, nil
}

// converse runs the loop, and again with what was decided whenever it stops for
// approvals.
func (q *question) converse(ctx context.Context, loop fnloop.Loop, from *fnloop.Answer) (*fnloop.Answer, error) {
	var before *fnloop.Answer // of this invocation
	for {
		if q.approver != nil {
			q.progress.Idle()
			if err := q.approver.Decide(ctx, from); err != nil {
				answer := *from
				if answer.Stop = fnloop.StopApproval; ctx.Err() != nil {
					answer.Stop = fnloop.StopCancelled
				}
				return &answer, err
			}
		}
		answer, err := q.read(loop.Events(ctx, from, ""))
		if before != nil {
			answer = joined(before, answer)
		}
		if e := q.store(answer); err == nil {
			err = e
		} else if e != nil {
			q.progress.Failure(e.Error())
		}
		if q.approver == nil || !errors.Is(err, fnloop.ErrApproval) {
			return answer, err
		}
		before, from = answer, answer
	}
}

// read reads the events of a run to its end.
func (q *question) read(events iter.Seq2[fnloop.Event, error]) (answer *fnloop.Answer, err error) {
	for event, failure := range events {
		if done, ok := event.(fnloop.Done); ok {
			answer, err = done.Answer, failure
		} else if q.opts.events && q.eventsErr == nil {
			q.eventsErr = writeEvent(q.stdout, event, "")
		}
		q.progress.Event(event)
	}
	return answer, err
}

// answer prints the answer in the form that is asked for. It reports whether
// text was printed that is not the whole answer.
func (q *question) answer(answer *fnloop.Answer, failure string) (partial bool, err error) {
	switch {
	case q.opts.events && q.eventsErr != nil:
		return false, q.eventsErr
	case q.opts.events:
		return false, writeEvent(q.stdout, fnloop.Done{Answer: view(answer)}, failure)
	case q.opts.json:
		return false, writeJSON(q.stdout, answer, failure)
	case q.progress.Streams():
		stray, err := q.progress.Answered(answer)
		return stray && answer.Stop != fnloop.StopAnswered && answer.Stop != fnloop.StopRefused, err
	}
	return writeText(q.stdout, answer)
}

// instructions are those that the model gets with every request. Recordings
// hold them, so a change calls for new ones.
const instructions = "Answer the question. Where computing helps, run Python rather than guess. Give the result plainly and briefly."
