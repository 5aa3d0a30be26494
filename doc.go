// Package fnloop runs the tool loop of OpenAI's Responses API.
//
// You give a model tools, which are Go functions. The model responds with text,
// or with calls of the tools. A [Loop] runs the calls, sends their outputs back
// and repeats this until the model answers:
//
//	forecast := fnloop.MustTool("forecast", "Tomorrow's weather in one city.",
//		func(ctx context.Context, in place) (weather, error) {
//			return weather{Celsius: -4, Sky: "snow"}, nil
//		})
//
//	client := responses.NewResponseService(
//		option.WithEnvironmentProduction(),
//		option.WithAPIKey(os.Getenv("OPENAI_API_KEY")),
//	)
//	loop := &fnloop.Loop{Client: &client, Model: "gpt-6-astra", Tools: []fnloop.Tool{forecast}}
//	answer, err := loop.Run(context.Background(), "Do I need boots in Oslo tomorrow?")
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(answer.Text)
//
// The client is that of github.com/openai/openai-go. If your program already has
// one, made by openai.NewClient, use &client.Responses. In tests, package
// responsestest takes the place of the service.
//
// # Tools
//
// [NewTool] makes a tool of a function func(context.Context, In) (Out, error).
// It derives a strict JSON schema from In. The arguments that the model writes
// are checked against the same schema. If they do not fit, the model is told
// why, and the function is not called. For a schema of your own, write a [Tool]
// literal.
//
// [PythonTool] gives the model a tool that runs Python programs. They run on a
// [Runner], such as the one of package runners/bubblewrap, and the model reads a
// [Result]: exit_code, timed_out, stdout and stderr. [CustomPythonTool] is the
// same for models that support custom tools. A Runner has one method; package
// runners/runnertest tests whether an implementation keeps the contract.
//
// Package interpreter has a tool whose Python stays alive for a conversation, with
// figures, tables and files. A Loop that runs in the handler of a tool is part of
// the outer run: its events are [CallEvent]s, and its tokens are counted there.
//
// # Turns
//
// A turn is a round of calls: the model asks for calls, they run, and their
// outputs are sent. [Loop.MaxTurns] limits the turns of a run. A run therefore
// makes at most one request more than it has turns. If the model then asks for
// further calls, they do not run and the run ends with [ErrMaxTurns]. With
// [Loop.FinalAnswer] the last request forbids calls instead.
//
// Calls run only when the response that holds them is complete. If a response
// is incomplete or failed, none of its calls run.
//
// The calls of one response run at the same time, up to [Loop.Parallel] of
// them. Calls of a tool with [Tool.Serial] run alone. Outputs are sent in the
// order of the calls.
//
// The handler of a call is called once. Only requests are repeated, up to
// [Loop.Attempts] times, when the network failed or the API reports an error
// that may pass.
//
// # Events
//
// [Loop.Events] does the same as Run and Continue and reports what happens: text
// as the model writes it, calls as they start and finish, what programs print.
// The last event, [Done], holds the Answer. [WriteSSE] sends the events to a
// browser, which is shown what a [View] lets through. A [Hub] keeps runs that
// outlive the request that started them. Package chatstore keeps their
// conversations in a database. Packages aisdk and agui write the events
// for two kinds of front ends, package otelloop makes traces and metrics, and
// package mcptool brings the tools of MCP servers and serves tools as one.
//
// # Approval
//
// [Tool.NeedsApproval] can hold a call back until somebody approves it. The
// other calls of the turn run, and the run stops with [ErrApproval]. Decide with
// [Answer.Approve] and [Answer.Reject], also in another process, and go on with
// Continue. A call without a decision does not run.
//
// # Time limits
//
// There are three. [Limits].Time ends one program; the program is killed and its
// Result says so. [Tool.Timeout] ends one call; the model is told, and the run
// goes on. The caller's context ends the run. When the context of a handler
// ends, the handler has [Loop.Grace] to return. After that the run no longer
// waits for it, drops what it returns, and counts it in [Answer].Abandoned.
//
// # The Answer
//
// Run and [Loop.Continue] always return an [Answer], also with an error. It
// holds the text, the calls with their outputs, and the usage of all responses.
// It can be stored as JSON. Continue goes on from it, whatever stopped the run:
// it sends the outputs that were not yet sent, says of each other call that it
// did not run, and adds the new prompt. A call that has finished is never run
// again. [Loop.Checkpoint] lets you store the Answer during a run, so that a
// process that dies loses nothing.
//
// [Loop.State] says where the conversation itself is kept: by the API, response
// by response or in a conversation object, or in the Answer. [Loop.WebSocket]
// sends the requests of a run over one connection. [RunAs] returns the answer as
// a Go value.
//
// # Errors
//
// An error that a handler returns is for the model, which reads its text and may
// try again. An error made by [Abort] is for the caller and stops the run. When
// a handler panics, the model is told that the tool failed, and the caller finds
// a [*PanicError] in [CallResult].Err.
//
// The constants of [StopReason] list why a run can end and the error that Run,
// Continue and Events return then. Sentinel errors are for [errors.Is], types
// for [errors.As].
//
// # Concurrency
//
// Set the fields of a Loop, a Tool or a runner before first use and do not change
// them afterwards. They are then safe for concurrent use. A run keeps its state
// in its Answer. Continue does not change the Answer that it is given, so that
// two runs can continue the same one. Handlers run in goroutines of their own and
// must be safe for concurrent use.
//
// # How it was tested
//
// Package fnloop was tested against recorded traffic of OpenAI's service and
// against a stand-in written from its documentation, never against the live
// service.
package fnloop
