package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// The examples talk to a stand-in for the Responses API that plays a script. In
// a program of yours Client is &client.Responses of openai-go's client.

func Example() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "forecast", `{"city":"Oslo"}`),
		responsestest.Text("Tomorrow it snows in Oslo, at -4 °C."),
	)
	defer srv.Close()

	type input struct {
		City string `json:"city" jsonschema_description:"Name of the city, in English."`
	}
	type weather struct {
		Celsius int    `json:"celsius"`
		Sky     string `json:"sky"`
	}
	forecast := fnloop.MustTool("forecast", "Tomorrow's weather in one city.",
		func(ctx context.Context, in input) (weather, error) {
			return weather{Celsius: -4, Sky: "snow"}, nil
		})

	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{forecast}}
	answer, err := loop.Run(context.Background(), "Do I need boots in Oslo tomorrow?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Text)
	// Output:
	// Tomorrow it snows in Oslo, at -4 °C.
}

// The Answer tells what was called, what came of it and what it cost.
func ExampleLoop_Run() {
	srv := responsestest.NewServer(
		responsestest.Join( // two calls in one response: they run side by side
			responsestest.Call("call_1", "add", `{"a":1,"b":2}`),
			responsestest.Call("call_2", "add", `{"a":3,"b":4}`),
		),
		responsestest.Text("3 and 7"),
	)
	defer srv.Close()

	type input struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	loop := &fnloop.Loop{
		Client:       srv.Client(),
		Model:        "gpt-6-astra",
		Instructions: "Answer with the sums alone.",
		Tools: []fnloop.Tool{fnloop.MustTool("add", "Adds two integers.",
			func(_ context.Context, in input) (int, error) { return in.A + in.B, nil })},
	}
	answer, err := loop.Run(context.Background(), "What are 1+2 and 3+4?")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range answer.Calls {
		fmt.Printf("round %d: %s%s = %s\n", call.Turn, call.Name, call.Arguments, call.Text)
	}
	fmt.Println("answer:", answer.Text)
	fmt.Println("tokens counted:", answer.Usage.TotalTokens > 0)
	// Output:
	// round 1: add{"a":1,"b":2} = 3
	// round 1: add{"a":3,"b":4} = 7
	// answer: 3 and 7
	// tokens counted: true
}

// A run that reached its limit is stored, and goes on in another process.
func ExampleLoop_Continue() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "next_page", `{}`),
		responsestest.Call("call_2", "next_page", `{}`), // one more than allowed: it is not run
		responsestest.Text("Page one says hello."),
	)
	defer srv.Close()
	loop := &fnloop.Loop{
		Client:   srv.Client(),
		Model:    "gpt-6-astra",
		MaxTurns: 1,
		Tools: []fnloop.Tool{fnloop.MustTool("next_page", "Reads the next page.",
			func(context.Context, struct{}) (string, error) { return "hello", nil })},
	}
	ctx := context.Background()

	answer, err := loop.Run(ctx, "What does the book say?")
	if errors.Is(err, fnloop.ErrMaxTurns) {
		fmt.Println("stopped:", answer.Stop, "not run:", answer.Pending[0].ID)
	}
	stored, err := json.Marshal(answer)
	if err != nil {
		fmt.Println(err)
		return
	}

	// Later. The model learns that call_2 was not run, and reads the new prompt.
	var from fnloop.Answer
	if err := json.Unmarshal(stored, &from); err != nil {
		fmt.Println(err)
		return
	}
	answer, err = loop.Continue(ctx, &from, "Answer with what you have.")
	fmt.Println(answer.Text, err)
	// Output:
	// stopped: max_turns not run: call_2
	// Page one says hello. <nil>
}

// Whatever stops a run, the error says what to do about it, and the Answer
// beside it has the same in its field Stop.
func ExampleAnswer_errors() {
	srv := responsestest.NewServer(
		responsestest.Refusal("I can't help with that."),
		responsestest.Incomplete("max_output_tokens", responsestest.Text("Once upon a")),
		responsestest.Error(401, "invalid_api_key", "Incorrect API key provided."),
	)
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra"}

	for range 3 {
		answer, err := loop.Run(context.Background(), "Tell me a story.")
		switch {
		case err == nil:
			fmt.Println(answer.Text)
		case errors.Is(err, fnloop.ErrMaxTurns), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			fmt.Println("stopped on the way: store the Answer and Continue")
		case errors.Is(err, fnloop.ErrRefused):
			fmt.Printf("%s: %s\n", answer.Stop, answer.Text)
		case errors.Is(err, fnloop.ErrIncomplete):
			fmt.Printf("%s after %q\n", answer.Stop, answer.Partial)
		default:
			if request, ok := errors.AsType[*fnloop.RequestError](err); ok {
				fmt.Printf("%s: status %d, %s\n", answer.Stop, request.StatusCode, request.Code)
			} else if tool, ok := errors.AsType[*fnloop.ToolError](err); ok {
				fmt.Printf("%s: %s stopped the run: %v\n", answer.Stop, tool.Call.Name, tool.Err)
			} else {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// refused: I can't help with that.
	// truncated after "Once upon a"
	// request: status 401, invalid_api_key
}

// An Answer is stored as one JSON object.
func ExampleAnswer_json() {
	srv := responsestest.NewServer(responsestest.Reply{
		Output: responsestest.Text("Hello!").Output,
		Usage:  &responsestest.Usage{InputTokens: 9, OutputTokens: 3},
	})
	defer srv.Close()

	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra"}
	answer, err := loop.Run(context.Background(), "Say hello.")
	if err != nil {
		fmt.Println(err)
		return
	}
	stored, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(stored))
	// Output:
	// {
	//   "version": 1,
	//   "text": "Hello!",
	//   "stop": "answered",
	//   "id": "resp_2",
	//   "turns": 0,
	//   "usage": {
	//     "input_tokens": 9,
	//     "cached_tokens": 0,
	//     "output_tokens": 3,
	//     "reasoning_tokens": 0,
	//     "total_tokens": 12
	//   },
	//   "model": "gpt-6-astra",
	//   "service_tier": "default",
	//   "context_tokens": 9,
	//   "pending": [],
	//   "calls": [],
	//   "responses": 1
	// }
}

// The hook edits each request before it is sent. What a Loop has no field for
// is set there.
func ExampleLoop_beforeRequest() {
	srv := responsestest.NewServer(responsestest.Text("Hello!"))
	defer srv.Close()

	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		BeforeRequest: func(_ context.Context, p *responses.ResponseNewParams) error {
			p.Temperature = param.NewOpt(0.2)
			p.SafetyIdentifier = param.NewOpt("user-7")
			return nil
		},
	}
	if _, err := loop.Run(context.Background(), "Say hello."); err != nil {
		fmt.Println(err)
		return
	}
	var sent struct {
		Temperature      float64 `json:"temperature"`
		SafetyIdentifier string  `json:"safety_identifier"`
	}
	if err := json.Unmarshal(srv.Requests()[0].Body, &sent); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sent.Temperature, sent.SafetyIdentifier)
	// Output:
	// 0.2 user-7
}

// The schema that the model sees is made from the struct.
func ExampleNewTool() {
	type input struct {
		From  string `json:"from" jsonschema_description:"Where the trip starts."`
		To    string `json:"to"`
		Stops int    `json:"stops" jsonschema:"minimum=0,maximum=3"`
	}
	route, err := fnloop.NewTool("route", "Plans a trip.",
		func(_ context.Context, in input) (string, error) { return in.From + " to " + in.To, nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	// The arguments are the model's. Those that do not fit never reach the function.
	ctx := context.Background()
	for _, arguments := range []string{
		`{"from":"Bergen","to":"Oslo","stops":1}`,
		`{"from":"Bergen","to":"Oslo","stops":"none"}`,
	} {
		out, err := route.Handle(ctx, fnloop.Call{Name: "route", Arguments: json.RawMessage(arguments)})
		fmt.Printf("%q %v\n", out.Text, err)
	}
	// Output:
	// "Bergen to Oslo" <nil>
	// "" stops: expected integer from 0 to 3, got string "none"
}

// In strict mode the model writes every property; one that may be left out is a
// pointer, for which it writes null. A value that the enum does not have never
// reaches the function.
func ExampleNewTool_enum() {
	type input struct {
		City string  `json:"city"`
		Unit string  `json:"unit" jsonschema:"enum=celsius,enum=kelvin"`
		Day  *string `json:"day" jsonschema_description:"As 2006-01-02. Null means tomorrow."`
	}
	forecast, err := fnloop.NewTool("forecast", "The weather in one city.",
		func(_ context.Context, in input) (string, error) {
			day := "tomorrow"
			if in.Day != nil {
				day = *in.Day
			}
			return fmt.Sprintf("%s, %s, in %s", in.City, day, in.Unit), nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(forecast.Parameters))
	out, err := forecast.Handle(context.Background(),
		fnloop.Call{Arguments: json.RawMessage(`{"city":"Oslo","unit":"kelvin","day":null}`)})
	fmt.Println(out.Text, err)
	// Output:
	// {"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["celsius","kelvin"]},"day":{"description":"As 2006-01-02. Null means tomorrow.","type":["string","null"]}},"required":["city","unit","day"],"additionalProperties":false}
	// Oslo, tomorrow, in kelvin <nil>
}

// What a type cannot say in a strict schema is found when the tool is made.
func ExampleNewTool_error() {
	type input struct {
		Labels map[string]string `json:"labels"`
	}
	_, err := fnloop.NewTool("tag", "Labels a thing.",
		func(context.Context, input) (string, error) { return "", nil })
	if bad, ok := errors.AsType[*fnloop.SchemaError](err); ok {
		fmt.Println(bad.Path, bad.Type)
	}
	// Output:
	// input.Labels map[string]string
}

// Tools that are known when the program is written are made without an error to
// check: MustTool panics instead.
func ExampleMustTool() {
	type input struct {
		Text string `json:"text"`
	}
	type count struct {
		Words int `json:"words"`
		Bytes int `json:"bytes"`
	}
	counter := fnloop.MustTool("count", "Counts the words and bytes of a text.",
		func(_ context.Context, in input) (count, error) {
			return count{Words: len(strings.Fields(in.Text)), Bytes: len(in.Text)}, nil
		})
	counter.Timeout = time.Second // the other fields are set on what it returns

	out, err := counter.Handle(context.Background(),
		fnloop.Call{Arguments: json.RawMessage(`{"text":"to be or not"}`)})
	fmt.Println(out.Text, err)
	// Output:
	// {"words":4,"bytes":12} <nil>
}

// An error is for the model, which reads it and tries again. An Abort is for
// the caller, and ends the run.
func ExampleAbort() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "pay", `{"cents":-5}`),
		responsestest.Call("call_2", "pay", `{"cents":500}`),
	)
	defer srv.Close()

	errDown := errors.New("the bank is closed")
	type input struct {
		Cents int `json:"cents"`
	}
	pay := fnloop.MustTool("pay", "Pays an amount.", func(_ context.Context, in input) (string, error) {
		if in.Cents <= 0 {
			return "", fmt.Errorf("cents must be positive, got %d", in.Cents)
		}
		return "", fnloop.Abort(errDown)
	})

	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{pay}}
	answer, err := loop.Run(context.Background(), "Pay what I owe.")
	fmt.Println("the model read:", answer.Calls[0].Text)
	fmt.Println("the caller got:", err)
	fmt.Println(answer.Stop, errors.Is(err, errDown))
	// Output:
	// the model read: cents must be positive, got -5
	// the caller got: fnloop: tool pay (call call_2): the bank is closed
	// aborted true
}

// A Tool that is written out has a schema of its own and reads the arguments
// itself.
func ExampleTool() {
	tool := fnloop.Tool{
		Name:        "lookup",
		Description: "Looks a word up.",
		Parameters: json.RawMessage(`{
			"type": "object",
			"properties": {"word": {"type": "string"}},
			"required": ["word"],
			"additionalProperties": false
		}`),
		Timeout: 5 * time.Second,
		Serial:  true, // never beside another call
		Handle: func(ctx context.Context, call fnloop.Call) (fnloop.Output, error) {
			var in struct{ Word string }
			if err := json.Unmarshal(call.Arguments, &in); err != nil {
				return fnloop.Output{}, err
			}
			return fnloop.Output{Text: in.Word + ": not in the dictionary", IsError: true}, nil
		},
	}
	fmt.Println("strict:", fnloop.CheckStrict(tool.Parameters) == nil)
	out, err := tool.Handle(context.Background(), fnloop.Call{Arguments: json.RawMessage(`{"word":"fnloop"}`)})
	fmt.Println(out.Text, err)
	// Output:
	// strict: true
	// fnloop: not in the dictionary <nil>
}

// The model writes a program, the runner runs it, and the model reads the
// result. The runner here plays a script; runners/bubblewrap has one that runs
// the program.
func ExamplePythonTool() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "run_python", `{"code":"print(6*7)"}`),
		responsestest.Text("6 times 7 is 42."),
	)
	defer srv.Close()

	runner := &fake.Runner{Scripts: map[string]fnloop.Result{"print(6*7)": fake.Exit(0, "42\n")}}
	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{fnloop.PythonTool(runner, fnloop.Limits{Time: 5 * time.Second})},
	}
	answer, err := loop.Run(context.Background(), "What is 6 times 7?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runner.Calls()[0].Source)
	fmt.Println(answer.Calls[0].Text)
	fmt.Println(answer.Text)
	// Output:
	// print(6*7)
	// {"exit_code":0,"timed_out":false,"stdout":"42\n","stderr":""}
	// 6 times 7 is 42.
}

// The model chooses among the languages that the runner has.
func ExampleCodeTool() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "run_code", `{"language":"bash","code":"echo $((6*7))"}`),
		responsestest.Text("6 times 7 is 42."),
	)
	defer srv.Close()

	runner := &fake.Runner{
		Env:     fnloop.Environment{Languages: []fnloop.Language{{Name: fnloop.LanguagePython}, {Name: fnloop.LanguageBash}}},
		Scripts: map[string]fnloop.Result{"echo $((6*7))": fake.Exit(0, "42\n")},
	}
	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{fnloop.CodeTool(runner, fnloop.Limits{Time: 5 * time.Second})},
	}
	answer, err := loop.Run(context.Background(), "What is 6 times 7?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runner.Calls()[0].Language, runner.Calls()[0].Source)
	fmt.Println(answer.Text)
	// Output:
	// bash echo $((6*7))
	// 6 times 7 is 42.
}

// The model reads four fields, in at most 64 KiB. What is too long loses its
// middle; the host can still tell how much there was.
func ExampleResult_Text() {
	var stdout fnloop.Capture
	for i := range 100_000 {
		fmt.Fprintf(&stdout, "line %d\n", i)
	}
	code := 0
	res := fnloop.Result{ExitCode: &code, End: fnloop.EndExit}
	res.SetOutput(&stdout, nil)

	text := res.Text()
	fmt.Println(len(text) <= fnloop.DefaultMaxOutput)
	fmt.Println(text[:51])
	fmt.Println(res.StdoutBytes, res.StdoutTruncated)
	// Output:
	// true
	// {"exit_code":0,"timed_out":false,"stdout":"line 0\n
	// 1088890 true
}

// A runner of your own writes what a program prints to a Capture for each
// stream, says how it ended, and lets SetOutput do the rest.
func ExampleResult_SetOutput() {
	var stdout, stderr fnloop.Capture
	fmt.Fprint(&stdout, "3.14159")
	res := fnloop.Result{
		TimedOut: true,
		End:      fnloop.EndTimeout,
		Limits:   fnloop.Limits{Time: 2 * time.Second},
	}
	res.SetOutput(&stdout, &stderr)
	fmt.Println(res.Text())
	// Output:
	// {"exit_code":null,"timed_out":true,"stdout":"3.14159","stderr":"[killed: the time limit of 2s was reached]\n"}
}

// A Capture holds the ends of a stream, whatever its length.
func ExampleCapture() {
	var c fnloop.Capture
	chunk := make([]byte, 1<<20)
	for range 64 {
		if _, err := c.Write(chunk); err != nil { // it never fails
			fmt.Println(err)
		}
	}
	fmt.Println(c.Len()>>20, "MiB went by")
	// Output:
	// 64 MiB went by
}

// timed is a runner that wraps another.
type timed struct{ fnloop.Runner }

func (t timed) Unwrap() fnloop.Runner { return t.Runner }

// What a runner can do beyond Run is found through whatever wraps it.
func ExampleRunnerAs() {
	inner := &fake.Runner{Env: fnloop.Environment{Python: "3.12.4"}}
	if d, ok := fnloop.RunnerAs[fnloop.Describer](timed{inner}); ok {
		fmt.Println("Python", d.Environment().Python)
	}
	_, ok := fnloop.RunnerAs[interface{ Close() error }](timed{inner})
	fmt.Println("can be closed:", ok)
	// Output:
	// Python 3.12.4
	// can be closed: false
}

// A run can be watched: the answer as it is written, the calls as they start
// and finish, what programs print. The last event has the Answer.
func ExampleLoop_Events() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "run_python", `{"code":"print(6*7)"}`),
		responsestest.Text("It is 42."),
	)
	defer srv.Close()

	runner := &fake.Runner{Scripts: map[string]fnloop.Result{"print(6*7)": fake.Exit(0, "42\n")}}
	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{fnloop.PythonTool(runner, fnloop.Limits{})},
	}
	var written strings.Builder
	for event, err := range loop.Events(context.Background(), nil, "What is 6 times 7?") {
		switch e := event.(type) {
		case fnloop.TextDelta:
			written.WriteString(e.Text)
		case fnloop.CallStarted:
			fmt.Println("started", e.Name)
		case fnloop.CallFinished:
			fmt.Println("finished", e.Name)
		case fnloop.Done: // comes last, with the error of the run if there is one
			fmt.Println(e.Answer.Stop, err)
		}
	}
	fmt.Println(written.String())
	// Output:
	// started run_python
	// finished run_python
	// answered <nil>
	// It is 42.
}

// A back end streams a run to a browser, and keeps the conversation.
func ExampleWriteSSE() {
	srv := responsestest.NewServer(responsestest.Text("Hello!"))
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra"}
	type conversation struct {
		mu     sync.Mutex     // a row's lock in your database
		answer *fnloop.Answer // nil begins a conversation
	}
	var chats sync.Map // of conversations, by name

	chat := func(w http.ResponseWriter, r *http.Request) {
		found, _ := chats.LoadOrStore(r.PathValue("chat"), new(conversation))
		c := found.(*conversation)
		c.mu.Lock() // a second prompt waits for the answer to the first
		defer c.mu.Unlock()
		events := loop.Events(r.Context(), c.answer, r.FormValue("prompt"))
		err := fnloop.WriteSSE(w, func(yield func(fnloop.Event, error) bool) {
			for event, err := range events {
				if done, ok := event.(fnloop.Done); ok {
					c.answer = done.Answer // also when the browser has gone
				}
				if !yield(event, err) {
					return
				}
			}
		})
		if err != nil {
			slog.Error("chat", "chat", r.PathValue("chat"), "error", err)
		}
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats/{chat}", chat)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/chats/7?prompt=Say+hello.", nil))
	fmt.Println(w.Header().Get("Content-Type"))
	for line := range strings.Lines(w.Body.String()) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			fmt.Print(name)
		}
	}
	c, _ := chats.Load("7")
	fmt.Println(c.(*conversation).answer.Text)
	// Output:
	// text/event-stream
	// request_started
	// text_delta
	// text_delta
	// response_finished
	// done
	// Hello!
}

// A call that needs approval stops the run. Whoever decides may do so later and
// in another process.
func ExampleAnswer_Approve() {
	srv := responsestest.NewServer(
		responsestest.Join(
			responsestest.Call("call_1", "remove", `{"file":"cache.db"}`),
			responsestest.Call("call_2", "remove", `{"file":"users.db"}`),
		),
		responsestest.Text("I removed the cache and left the users alone."),
	)
	defer srv.Close()

	type input struct {
		File string `json:"file"`
	}
	remove := fnloop.MustTool("remove", "Removes a file.",
		func(_ context.Context, in input) (string, error) { return in.File + " is removed", nil })
	remove.NeedsApproval = fnloop.Always
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{remove}}
	ctx := context.Background()

	answer, err := loop.Run(ctx, "Make some room.")
	if !errors.Is(err, fnloop.ErrApproval) {
		fmt.Println(err)
		return
	}
	for _, call := range answer.Pending {
		fmt.Printf("%s%s?\n", call.Name, call.Arguments)
	}
	if err := errors.Join(answer.Approve("call_1"), answer.Reject("call_2", "the users are still needed")); err != nil {
		fmt.Println(err)
		return
	}
	answer, err = loop.Continue(ctx, answer, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Text)
	// Output:
	// remove{"file":"cache.db"}?
	// remove{"file":"users.db"}?
	// I removed the cache and left the users alone.
}

// The answer can be a Go value instead of a text.
func ExampleRunAs() {
	srv := responsestest.NewServer(responsestest.Text(`{"city":"Oslo","celsius":-4}`))
	defer srv.Close()

	type forecast struct {
		City    string `json:"city"`
		Celsius int    `json:"celsius"`
	}
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra"}
	f, _, err := fnloop.RunAs[forecast](context.Background(), loop, nil, "How cold will it be in Oslo?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d °C in %s\n", f.Celsius, f.City)
	// Output:
	// -4 °C in Oslo
}

// With Stateless the API keeps nothing, and the Answer holds the conversation.
func ExampleLoop_stateless() {
	srv := responsestest.NewServer(
		responsestest.Text("Hello, Ada!"),
		responsestest.Text("You are Ada."),
	)
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", State: fnloop.Stateless}
	ctx := context.Background()

	answer, err := loop.Run(ctx, "I am Ada.")
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err = loop.Continue(ctx, answer, "Who am I?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Text, len(answer.Items), "items")
	// Output:
	// You are Ada. 4 items
}

// A checkpoint is what a program that dies in the middle of a round goes on
// from. A call that was running then is not run again: the model learns that it
// was interrupted.
func ExampleLoop_checkpoint() {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "pay", `{}`),
		responsestest.Text("It is paid."),
	)
	defer srv.Close()

	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools: []fnloop.Tool{fnloop.MustTool("pay", "Pays the bill.",
			func(context.Context, struct{}) (string, error) { return "paid", nil })},
		Checkpoint: func(_ context.Context, a *fnloop.Answer) error {
			stored, err := json.Marshal(a) // and into the database
			fmt.Println(len(a.Pending), "pending,", len(a.Calls), "done,", len(stored) > 0)
			return err
		},
	}
	answer, err := loop.Run(context.Background(), "Pay the bill.")
	fmt.Println(answer.Text, err)
	// Output:
	// 1 pending, 0 done, true
	// 0 pending, 1 done, true
	// It is paid. <nil>
}

// To a custom tool the model writes free text, here within a grammar.
func ExampleTool_custom() {
	query := fnloop.Tool{
		Name:        "query",
		Description: "Runs a query and returns its rows.",
		Custom:      true,
		Grammar:     &fnloop.Grammar{Syntax: "regex", Definition: `SELECT [a-z, ]+ FROM [a-z]+`},
		Handle: func(_ context.Context, call fnloop.Call) (fnloop.Output, error) {
			return fnloop.Output{Text: "no rows for " + string(call.Arguments)}, nil
		},
	}
	srv := responsestest.NewServer(
		responsestest.CustomCall("call_1", "query", "SELECT name FROM users"),
		responsestest.Text("There are no users."),
	)
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: []fnloop.Tool{query}}
	answer, err := loop.Run(context.Background(), "Who uses it?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Calls[0].Text)
	// Output:
	// no rows for SELECT name FROM users
}

// As a custom tool the model writes the program as it is, and not as a string in
// JSON.
func ExampleCustomPythonTool() {
	srv := responsestest.NewServer(
		responsestest.CustomCall("call_1", "run_python", "print('a \"b\"')"),
		responsestest.Text("It printed a and b."),
	)
	defer srv.Close()

	runner := &fake.Runner{Func: func(_ context.Context, p fnloop.Program) (fnloop.Result, error) {
		return fake.Exit(0, "ran "+p.Source+"\n"), nil
	}}
	loop := &fnloop.Loop{
		Client: srv.Client(),
		Model:  "gpt-6-astra",
		Tools:  []fnloop.Tool{fnloop.CustomPythonTool(runner, fnloop.Limits{})},
	}
	answer, err := loop.Run(context.Background(), "Print a and b.")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer.Calls[0].Arguments)
	fmt.Println(answer.Text)
	// Output:
	// print('a "b"')
	// It printed a and b.
}

// A picture goes with the prompt. It is checked before anything is sent.
func ExampleImageData() {
	srv := responsestest.NewServer(responsestest.Text("A blue square."))
	defer srv.Close()
	loop := fnloop.Loop{Client: srv.Client(), Model: "gpt-5"}

	_, err := fnloop.ImageData([]byte("<html>Please log in.</html>"))
	fmt.Println(err)

	picture, err := fnloop.ImageData([]byte("\x89PNG\r\n\x1a\n..."))
	if err != nil {
		panic(err)
	}
	answer, err := loop.Run(context.Background(), "What is this?", picture)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Text)
	// Output:
	// fnloop: image: the data is text/html, and the API takes PNG, JPEG, WebP and GIF
	// A blue square.
}

// A Map in the arguments is a list of keys and values to the model.
func ExampleMap() {
	type headers struct {
		Set fnloop.Map[string] `json:"set" description:"Headers by name."`
	}
	tool := fnloop.MustTool("set_headers", "Sets headers.", func(_ context.Context, in headers) (string, error) {
		return fmt.Sprintf("%d set, %s", len(in.Set), in.Set["Accept"]), nil
	})
	out, err := tool.Handle(context.Background(), fnloop.Call{
		Arguments: json.RawMessage(`{"set":[{"key":"Accept","value":"text/html"}]}`),
	})
	fmt.Println(out.Text, err)
	// Output: 1 set, text/html <nil>
}
