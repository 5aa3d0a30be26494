// Package fnloop drives a model through OpenAI's Responses API until it answers.
//
// The model is given tools, which are Go functions. It answers with text, or
// with calls of these functions; a [Loop] runs them, sends their outputs back,
// and goes on until the model answers with text:
//
//	forecast := fnloop.MustTool("forecast", "Tomorrow's weather in one city.",
//		func(ctx context.Context, in input) (weather, error) {
//			return weather{Celsius: -4, Sky: "snow"}, nil
//		})
//
//	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{forecast}}
//	answer, err := loop.Run(context.Background(), "Do I need boots in Oslo tomorrow?")
//	if err != nil {
//		fmt.Println(err)
//		return
//	}
//	fmt.Println(answer.Text)
//
// Client is anything with the New method of openai-go's Responses service:
// &client.Responses of its client, a service made by [responses.NewResponseService],
// or, as here, a stand-in of package responsestest.
//
// # Tools
//
// [NewTool] makes a tool of a function func(context.Context, In) (Out, error).
// The JSON schema that the model sees is made from In, always strict, and the
// same schema judges the arguments that come back: what does not fit is answered
// with what is wrong, and the function is not called. A [Tool] literal is the
// way in for a schema written by hand.
//
// [PythonTool] gives the model a tool run_python. The program that the model
// writes runs on a [Runner], such as that of runners/bubblewrap, and the model
// reads back a [Result] of four fields: exit_code, timed_out, stdout, stderr.
// [CustomPythonTool] is the same for models that take custom tools: the program
// then needs no escaping in JSON. A Runner is one method; package runners/runnertest judges yours.
//
// # The rules of the loop
//
// A turn is a round of calls: the model asked, the calls ran, their outputs
// went back. [Loop.MaxTurns] counts rounds, so a run has at most one response
// more than that. When that last response still asks for calls they are not
// run, and the run ends with [ErrMaxTurns]; with [Loop.FinalAnswer] the model is
// asked to answer without further calls instead.
//
// Only what a completed response asks for is run. Of one that was cut short, or
// failed, nothing is, and the conversation stays where it was.
//
// The calls of one response run side by side, up to [Loop.Parallel] of them. A
// call of a tool that is [Tool.Serial] runs beside no other. Outputs are sent in
// the order of the calls.
//
// A handler is called once for a call. What is repeated, up to [Loop.Attempts]
// times, is the request, and only when the network failed or the API said that
// trying again may help.
//
// # Watching a run
//
// [Loop.Events] is Run and Continue told while it happens: text as it is
// written, calls as they start and finish, what programs print. It is the same
// loop, and its last event, [Done], has the Answer. [WriteSSE] sends the events
// to a browser. Nothing is run before the stream of a response has ended with
// the response; one that breaks off is a [*StreamError].
//
// # Approval
//
// A tool can ask for approval of a call, with [Tool.NeedsApproval]. The other
// calls of the round run, and the run stops with [ErrApproval]. Decide with
// [Answer.Approve] and [Answer.Reject], now or after a restart, and go on with
// Continue. A call that nobody decided on is not run.
//
// # Three clocks
//
// A program's own limit, [Limits].Time, kills the program, and its result says
// so. A tool's limit, [Tool.Timeout], ends one call; the model reads that it
// timed out and the run goes on. The caller's context ends the run. A handler
// whose context has ended gets [Loop.Grace] to return, and is then left behind:
// what it returns later is dropped, and [Answer].Abandoned counts it.
//
// # The Answer
//
// Run and [Loop.Continue] always return an [Answer], beside an error too. It
// says how far the run got, what was called, and how many tokens all responses
// used. It can be stored as JSON, and Continue goes on from it with one request
// that the API accepts: the outputs that were not yet sent, a short and true
// word for each call that was not run, then the new prompt. No call that
// finished is run again. [Loop.Checkpoint] stores it in the middle of a round
// too, for a process that dies there.
//
// Where the conversation itself is kept, [Loop.State] says: with the API, from
// response to response or in a conversation object, or in the Answer alone.
// [Loop.WebSocket] sends the requests of a run over one connection. [RunAs] asks
// for the answer as a Go value.
//
// # Errors
//
// There are two audiences. An error that a tool returns is for the model, which
// reads its text and may try again; one made by [Abort] is for the caller, and
// stops the run. A panic in a handler takes nothing down: the model reads that
// the tool failed, the caller finds a [*PanicError] with the stack in
// [CallResult].Err.
//
// What Run and Continue return when a run ends without an answer is listed with
// the constants of [StopReason], of which [Answer].Stop is one: sentinel errors
// for [errors.Is] and types for [errors.As].
//
// # Concurrency
//
// Set the fields of a Loop, a Tool or a runner before first use and leave them;
// from then on it is safe for any number of goroutines. All state of a run is in
// its Answer, which Continue only reads: an Answer can be continued twice, which
// forks the conversation. A handler runs in a goroutine of its own and must be
// safe for concurrent use, since two runs may call it at once.
//
// # What was not tried
//
// Package fnloop was tested against recorded exchanges with OpenAI's service
// and against a stand-in that was written from its documentation, never against
// the live service.
package fnloop
