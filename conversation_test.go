package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func TestStateless(t *testing.T) {
	loop, srv := play(t,
		rt.Join(rt.Reasoning(""), rt.Commentary("Let me see"), rt.Call("call_1", "ok", `{ "q" : "1 < 2" }`), rt.Item(`{"type":"web_search_call","status":"completed","action":{"type":"search","query":"x"},"created_by":"somebody"}`)),
		rt.Join(rt.Reasoning(""), rt.Text("done")), rt.Text("again"))
	loop.State, loop.Tools = fnloop.Stateless, []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	ans, err = loop.Continue(t.Context(), store(t, ans), "and?")
	require.NoError(t, err)
	assert.Equal(t, "again", ans.Text)

	for i, body := range posts(t, srv) {
		assert.Equal(t, false, body["store"], "request %d", i)
		assert.NotContains(t, body, "previous_response_id")
		assert.Equal(t, []any{"reasoning.encrypted_content"}, body["include"])
	}
	types := func(body map[string]any) (s []string) {
		for _, it := range body["input"].([]any) {
			m := it.(map[string]any)
			if m["type"] == nil {
				m["type"] = m["role"]
			}
			assert.NotContains(t, m, "created_by")
			s = append(s, m["type"].(string))
		}
		return s
	}
	assert.Equal(t, []string{"user", "reasoning", "message", "function_call", "web_search_call", "function_call_output"}, types(posts(t, srv)[1]), "every item, in order")
	assert.Len(t, posts(t, srv)[2]["input"], 9)
	assert.Contains(t, string(srv.Requests()[1].Body), `{ \"q\" : \"1 < 2\" }`, "arguments go back to the byte")
}

func TestStatelessFailureKeepsTheConversation(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Incomplete("max_output_tokens", rt.Text("half")), rt.Text("done"))
	loop.State, loop.Tools = fnloop.Stateless, []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrTruncated)
	_, err = loop.Continue(t.Context(), store(t, ans), "shorter, please")
	require.NoError(t, err)
	body := string(srv.Requests()[2].Body)
	assert.Contains(t, body, `{"content":"half","role":"assistant"}`, "of an unfinished response there is what was shown, and no item")
	assert.Equal(t, 1, strings.Count(body, `"function_call_output"`))
}

func TestInConversation(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Text("done"), rt.Text("again"))
	loop.State, loop.Tools = fnloop.InConversation, []fnloop.Tool{echo("ok", "yes")}
	id := newConversation(t, srv)
	ans, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: id}, "hi")
	require.NoError(t, err)
	_, err = loop.Continue(t.Context(), store(t, ans), "and?")
	require.NoError(t, err)
	for _, r := range srv.Requests() {
		if !strings.HasSuffix(r.Path, "/responses") {
			continue
		}
		assert.Contains(t, string(r.Body), id)
		assert.NotContains(t, string(r.Body), "previous_response_id")
	}

	t.Run("two runs at once", func(t *testing.T) {
		loop, srv := play(t, rt.Call("call_1", "nap", ""), rt.Text("done"))
		id := newConversation(t, srv)
		started, release := make(chan struct{}), make(chan struct{})
		loop.State, loop.Tools = fnloop.InConversation, []fnloop.Tool{raw("nap", func(context.Context) (string, error) {
			close(started)
			<-release
			return "", nil
		})}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: id}, "one")
			assert.NoError(t, err)
		})
		<-started
		ans, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: id}, "two")
		require.ErrorIs(t, err, fnloop.ErrBusy)
		assert.Equal(t, fnloop.StopBusy, ans.Stop)
		assert.Equal(t, "two", ans.Prompt)
		close(release)
		wg.Wait()
	})
	t.Run("locked by another process", func(t *testing.T) {
		loop, srv := play(t, rt.Text("done"))
		loop.State = fnloop.InConversation
		id := newConversation(t, srv)
		srv.LockConversation(id, true)
		bubble(t, func(t *testing.T) {
			time.AfterFunc(200*time.Millisecond, func() { srv.LockConversation(id, false) })
			ans, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: id}, "hi")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
		})
	})
}

func TestStateMixes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state fnloop.State
		from  *fnloop.Answer
		edit  func(*responses.ResponseNewParams)
		field string
	}{
		{"no conversation", fnloop.InConversation, &fnloop.Answer{}, nil, "from.Conversation"},
		{"conversation, but chained", fnloop.Chained, &fnloop.Answer{Conversation: "conv_1"}, nil, "from.Conversation"},
		{"conversation, but stateless", fnloop.Stateless, &fnloop.Answer{Conversation: "conv_1"}, nil, "from.Conversation"},
		{"stateless without items", fnloop.Stateless, &fnloop.Answer{ID: "resp_1"}, nil, "from.Items"},
		{"items without id, but chained", fnloop.Chained, &fnloop.Answer{Items: []json.RawMessage{[]byte(`{}`)}}, nil, "from.ID"},
		{"no such state", 7, &fnloop.Answer{}, nil, "Loop.State"},
		{"stateless, but stored", fnloop.Stateless, &fnloop.Answer{}, func(p *responses.ResponseNewParams) { p.Store = param.NewOpt(true) }, "store"},
		{"stateless, but chained", fnloop.Stateless, &fnloop.Answer{}, func(p *responses.ResponseNewParams) { p.PreviousResponseID = param.NewOpt("resp_1") }, "previous_response_id"},
		{"in a conversation, but chained", fnloop.InConversation, &fnloop.Answer{Conversation: "conv_1"}, func(p *responses.ResponseNewParams) { p.PreviousResponseID = param.NewOpt("resp_1") }, "previous_response_id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t)
			loop.State = tt.state
			if tt.edit != nil {
				loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { tt.edit(p); return nil }
			}
			_, err := loop.Continue(t.Context(), tt.from, "hi")
			var config *fnloop.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Contains(t, config.Field, tt.field)
			assert.Empty(t, srv.Requests())
		})
	}
}

func TestForgottenResponse(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Reasoning(""), rt.Call("call_1", "ok", "")), rt.Text("first"), rt.Text("second"), rt.Text("third"))
	loop.KeepItems, loop.Tools = true, []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	srv.Forget(ans.ID)
	ans, err = loop.Continue(t.Context(), store(t, ans), "and?")
	require.NoError(t, err)
	assert.Equal(t, "second", ans.Text)
	reqs := posts(t, srv)
	require.Len(t, reqs, 4, "one that failed, and one that sent the items")
	assert.NotContains(t, reqs[3], "previous_response_id")
	assert.Len(t, reqs[3]["input"], 5)
	ans, err = loop.Continue(t.Context(), store(t, ans), "and then?")
	require.NoError(t, err)
	assert.Equal(t, "third", ans.Text)
	assert.Len(t, posts(t, srv)[4]["input"], 1, "the chain goes on from there")

	for _, reply := range []rt.Reply{rt.Error(400, "invalid_function_parameters", "bad schema"), rt.Error(400, "context_length_exceeded", "too long")} {
		loop, srv := play(t, rt.Text("first"), reply)
		loop.KeepItems = true
		ans, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		_, err = loop.Continue(t.Context(), ans, "and?")
		require.Error(t, err)
		assert.Len(t, srv.Requests(), 2, "any other refusal is the caller's to see")
	}
}

func TestCustomTool(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.CustomCall("call_1", "run_python", "print(\"1 < 2\")\n"), rt.CustomCall("call_2", "nothing", "x").Force()), rt.Text("done"))
	var ran string
	loop.Tools = []fnloop.Tool{fnloop.CustomPythonTool(runnerFunc(func(_ context.Context, p fnloop.Program) (fnloop.Result, error) {
		ran = p.Source
		code := 0
		return fnloop.Result{ExitCode: &code, Stdout: "True\n"}, nil
	}), fnloop.Limits{})}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "print(\"1 < 2\")\n", ran, "code needs no escapes")
	reqs := posts(t, srv)
	tool := reqs[0]["tools"].([]any)[0].(map[string]any)
	assert.Equal(t, "custom", tool["type"])
	out := reqs[1]["input"].([]any)
	assert.Equal(t, "custom_tool_call_output", out[0].(map[string]any)["type"])
	assert.Equal(t, `{"exit_code":0,"timed_out":false,"stdout":"True\n","stderr":""}`, out[0].(map[string]any)["output"])
	assert.Contains(t, out[1].(map[string]any)["output"], "unknown tool")
	store(t, ans)

	t.Run("grammar", func(t *testing.T) {
		loop, srv := play(t, rt.Text("done"))
		loop.Tools = []fnloop.Tool{{Name: "digits", Custom: true, Grammar: &fnloop.Grammar{Syntax: "regex", Definition: "[0-9]+"}, Handle: echo("", "").Handle}}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		tool := posts(t, srv)[0]["tools"].([]any)[0].(map[string]any)
		assert.Equal(t, map[string]any{"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}, tool["format"])
	})
	for name, tool := range map[string]fnloop.Tool{
		"parameters":         {Name: "x", Custom: true, Parameters: []byte(`{}`), Handle: echo("", "").Handle},
		"grammar of no tool": {Name: "x", Grammar: &fnloop.Grammar{Syntax: "lark", Definition: "x"}, Handle: echo("", "").Handle},
		"unknown syntax":     {Name: "x", Custom: true, Grammar: &fnloop.Grammar{Syntax: "ebnf", Definition: "x"}, Handle: echo("", "").Handle},
	} {
		loop, _ := play(t)
		loop.Tools = []fnloop.Tool{tool}
		_, err := loop.Run(t.Context(), "hi")
		var config *fnloop.ConfigError
		require.ErrorAs(t, err, &config, name)
	}
}

type runnerFunc func(context.Context, fnloop.Program) (fnloop.Result, error)

func (f runnerFunc) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	return f(ctx, p)
}

func TestContent(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "plot", ""), rt.Text("done"))
	loop.Tools = []fnloop.Tool{{Name: "plot", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) {
		return fnloop.Output{Text: "a plot", Content: []fnloop.Content{
			{Text: "see"}, {Text: ""}, {ImageURL: "data:image/png;base64,AAAA"}, {ImageID: "file_1"}, {FileID: "file_2"}, {FileData: "data:text/plain;base64,AA==", FileName: "a.txt"},
		}}, nil
	}}}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	store(t, ans)
	out := posts(t, srv)[1]["input"].([]any)[0].(map[string]any)["output"]
	assert.Equal(t, []any{
		map[string]any{"type": "input_text", "text": "see"},
		map[string]any{"type": "input_text", "text": ""},
		map[string]any{"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
		map[string]any{"type": "input_image", "file_id": "file_1"},
		map[string]any{"type": "input_file", "file_id": "file_2"},
		map[string]any{"type": "input_file", "file_data": "data:text/plain;base64,AA==", "filename": "a.txt"},
	}, out)
}

func TestAsync(t *testing.T) {
	loop, srv := play(t,
		rt.Join(rt.Item(`{"type":"function_call","call_id":"call_1","name":"slow","arguments":"{}","async":true}`), rt.Text("I have started it")),
		rt.Text("It is done"))
	slow := echo("slow", "yes")
	slow.Async = true
	loop.Tools = []fnloop.Tool{slow}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "It is done", ans.Text, "a message beside an open call is not the end")
	assert.Equal(t, true, posts(t, srv)[0]["tools"].([]any)[0].(map[string]any)["async"])
	assert.Equal(t, []string{"call_1", "yes"}, outputs(t, posts(t, srv)[1]))
}

func TestRunAs(t *testing.T) {
	type answer struct {
		City string `json:"city"`
		Temp *int   `json:"temp"`
	}
	loop, srv := play(t, rt.Join(rt.Commentary(`{"city":"wrong"}`), rt.Text(`{"city":"Oslo","temp":3}`)), rt.Text(`{"city":"Oslo"`), rt.Refusal("no"))
	got, ans, err := fnloop.RunAs[answer](t.Context(), loop, nil, "weather")
	require.NoError(t, err)
	assert.Equal(t, "Oslo", got.City)
	assert.Equal(t, 3, *got.Temp)
	format := posts(t, srv)[0]["text"].(map[string]any)["format"].(map[string]any)
	assert.Equal(t, "json_schema", format["type"])
	assert.Equal(t, true, format["strict"])

	_, ans, err = fnloop.RunAs[answer](t.Context(), loop, ans, "again")
	require.ErrorIs(t, err, fnloop.ErrMismatch)
	assert.Equal(t, fnloop.StopMismatch, ans.Stop)
	assert.Equal(t, `{"city":"Oslo"`, ans.Text)

	_, ans, err = fnloop.RunAs[answer](t.Context(), loop, ans, "again")
	require.ErrorIs(t, err, fnloop.ErrRefused)
	assert.Equal(t, "no", ans.Text)

	_, ans, err = fnloop.RunAs[map[string]any](t.Context(), loop, nil, "x")
	require.Error(t, err)
	assert.Equal(t, fnloop.StopInvalid, ans.Stop)
}

func TestCheckpoint(t *testing.T) {
	loop, _ := play(t, rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_2", "ok", "")), rt.Text("done"))
	loop.Tools, loop.Parallel = []fnloop.Tool{echo("ok", "yes")}, 1
	var states []*fnloop.Answer
	loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
		states = append(states, store(t, a))
		return nil
	}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	require.Len(t, states, 3)
	for i, a := range states {
		assert.Len(t, a.Calls, i)
		assert.Len(t, a.Pending, 2-i)
		assert.Equal(t, []string{"call_1", "call_2"}, a.Open)
	}
	assert.True(t, states[0].Pending[0].Started, "it may have started by the time that this is read")

	t.Run("error", func(t *testing.T) {
		loop, _ := play(t, rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_2", "ok", "")))
		ran := 0
		loop.Tools, loop.Parallel = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { ran++; return "yes", nil })}, 1
		n := 0
		loop.Checkpoint = func(context.Context, *fnloop.Answer) error {
			if n++; n == 2 {
				return errBoom
			}
			return nil
		}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, fnloop.StopAborted, ans.Stop)
		assert.Equal(t, 1, ran)
		assert.Len(t, ans.Pending, 1)
	})
	t.Run("before anything starts", func(t *testing.T) {
		loop, _ := play(t, rt.Call("call_1", "ok", ""))
		loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { t.Error("started"); return "", nil })}
		loop.Checkpoint = func(context.Context, *fnloop.Answer) error { return errBoom }
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, errBoom)
		assert.False(t, ans.Pending[0].Started)
	})
}

// A lockedSource serves a test and the server that it asks, which may yet be at
// work when the test goes on.
type lockedSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}

var promptsIn = regexp.MustCompile(`prompt \d+\.`)

// Whatever happens to a run, and wherever its process dies, the conversation
// goes on: no call runs twice once it has finished, and no request is refused.
func TestAnyEndCanBeContinued(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(&lockedSource{source: rand.NewPCG(seed, 7)})
			onSocket := seed%4 == 3 // with a real clock and a WebSocket
			unit := time.Second
			if onSocket {
				unit = 2 * time.Millisecond
			}
			calls := 0
			var mu sync.Mutex
			names := map[string]string{}  // of the tools, by call
			started := map[string]int{}   // by call
			finished := map[string]bool{} // calls whose output was stored
			model := func(turn *rt.Turn) rt.Reply {
				if turn.Round > 12 || rng.IntN(3) == 0 {
					return rt.Text("done")
				}
				var all []rt.Reply
				for range 1 + rng.IntN(4) {
					mu.Lock()
					calls++
					id := fmt.Sprintf("call_%d", calls)
					mu.Unlock()
					name := []string{"ok", "fail", "slow", "abort", "ask", "unknown", "again", "loose"}[rng.IntN(8)]
					mu.Lock()
					names[id] = name
					mu.Unlock()
					all = append(all, rt.Call(id, name, []string{"", "{}", `{"x":`, "null"}[rng.IntN(4)]))
				}
				return rt.Join(all...).Force()
			}
			var faults []rt.Reply
			for range 40 {
				switch rng.IntN(8) {
				case 0:
					faults = append(faults, rt.ServerError())
				case 1:
					faults = append(faults, rt.HTTP(200, "<html>"))
				case 2:
					faults = append(faults, rt.Failed("server_error", "x"))
				case 3:
					faults = append(faults, rt.Incomplete("max_output_tokens", rt.Call(fmt.Sprintf("cut_%d", len(faults)), "ok", "{")))
				case 4:
					faults = append(faults, rt.Drop())
				default:
					faults = append(faults, rt.Func(model))
				}
			}
			srv := rt.NewServer(append(faults, rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("done") }))...)
			defer srv.Close()

			tool := func(name string, h func(context.Context) error) fnloop.Tool {
				return fnloop.Tool{Name: name, Handle: func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) {
					mu.Lock()
					started[c.ID]++
					assert.False(t, finished[c.ID], "call %s has an output", c.ID)
					assert.True(t, started[c.ID] == 1 || c.Repeated, "call %s", c.ID)
					mu.Unlock()
					if s, ok := fnloop.ToolStateFrom(ctx); assert.True(t, ok) && s.Set(c.ID) != nil {
						assert.Error(t, ctx.Err(), "only a call that was left behind has no state")
					}
					return fnloop.Output{Text: name}, h(ctx)
				}}
			}
			ask := tool("ask", func(ctx context.Context) error { return nap(ctx, unit) })
			ask.NeedsApproval = fnloop.Always
			loop := &fnloop.Loop{Client: service(srv), Model: "m", MaxTurns: 3, Attempts: 2, KeepItems: rng.IntN(2) == 0, Tools: []fnloop.Tool{
				tool("ok", func(context.Context) error { return nil }),
				tool("fail", func(context.Context) error { return errBoom }),
				tool("slow", func(ctx context.Context) error { return nap(ctx, unit) }),
				tool("abort", func(context.Context) error { return fnloop.Abort(errBoom) }),
				ask,
				tool("again", func(ctx context.Context) error { return nap(ctx, unit) }),
				tool("loose", func(context.Context) error { return nil }),
			}}
			loop.Tools[5].Repeatable, loop.Tools[6].NonStrict = true, true
			loop.Parallel = 1 + rng.IntN(4)
			if onSocket {
				loop.Client, loop.WebSocket, loop.MaxRetryWait = srv.Client(), true, time.Millisecond
			}
			ans := &fnloop.Answer{}
			switch rng.IntN(3) {
			case 0:
				loop.State = fnloop.Stateless
			case 1:
				if onSocket {
					break // what the deadline cuts off there may be in the conversation
				}
				loop.State = fnloop.InConversation
				ans.Conversation = newConversation(t, srv)
			}
			clock := bubble
			if onSocket {
				clock = func(t *testing.T, f func(*testing.T)) { f(t) }
			}
			var prompts []string
			prompt := func() (string, []fnloop.Content) {
				prompts = append(prompts, fmt.Sprintf("prompt %d.", len(prompts)))
				if rng.IntN(3) == 0 {
					return "", []fnloop.Content{{Text: prompts[len(prompts)-1]}, {ImageURL: "https://a.example/x.png"}}
				}
				return prompts[len(prompts)-1], nil
			}
			clock(t, func(t *testing.T) {
				for range 30 {
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(3) == 0 {
						ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*unit/1000)
					}
					var stored *fnloop.Answer // where the process dies, if it does
					die := rng.IntN(3) == 0
					loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
						if die && rng.IntN(3) == 0 {
							stored = store(t, a)
							return errors.New("power cut")
						}
						return nil
					}
					hookFails := rng.IntN(12)
					loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
						if hookFails--; hookFails > -1 || hookFails < -3 {
							return nil
						}
						switch hookFails {
						case -1:
							return errBoom
						case -2:
							panic(errBoom)
						}
						p.Model = ""
						return nil
					}
					text, parts := prompt()
					var err error
					if rng.IntN(2) == 0 {
						ans, err = loop.Continue(ctx, ans, text, parts...)
					} else {
						for e, runErr := range loop.Events(ctx, ans, text, parts...) {
							if done, ok := e.(fnloop.Done); ok {
								ans, err = done.Answer, runErr
							}
						}
					}
					cancel()
					if stored != nil {
						ans = stored
					}
					if request, ok := errors.AsType[*fnloop.RequestError](err); ok {
						require.NotEqual(t, 400, request.StatusCode, "refused: %v", err)
					}
					ans = store(t, ans)
					mu.Lock()
					for _, c := range ans.Calls {
						finished[c.ID] = true
					}
					mu.Unlock()
					for _, c := range ans.Pending {
						switch rng.IntN(3) {
						case 0:
							ans.Approve(c.ID)
						case 1:
							ans.Reject(c.ID, "no")
						}
					}
				}
				loop.Checkpoint, loop.BeforeRequest = nil, nil
				for { // and it can always be brought to an end
					var err error
					text, parts := prompt()
					ans, err = loop.Continue(t.Context(), ans, text, parts...)
					if err == nil {
						assert.NotEmpty(t, ans.Text)
						break
					}
					if request, ok := errors.AsType[*fnloop.RequestError](err); ok {
						require.NotEqual(t, 400, request.StatusCode, "refused: %v", err)
					}
				}
			})
			for id, n := range started {
				assert.True(t, n == 1 || names[id] == "again", "call %s was started %d times", id, n)
			}
			if loop.State == fnloop.Stateless { // the Answer has the whole conversation
				var all []string
				for _, item := range ans.Items {
					if strings.Contains(string(item), `"user"`) {
						all = append(all, promptsIn.FindAllString(string(item), -1)...)
					}
				}
				assert.Equal(t, prompts, all, "every prompt once, in order")
			}
		})
	}
}

// Servers say in many words that they do not have the response to continue from.
func TestForgottenInOtherWords(t *testing.T) {
	for _, tt := range []struct {
		why    string
		status int
		fault  string
		forgot bool
	}{
		{"OpenAI's code", 400, `{"type":"invalid_request_error","code":"previous_response_not_found","message":"x"}`, true},
		{"with another status", 404, `{"code":"previous_response_not_found","message":"x"}`, true},
		{"without a code", 400, `{"param":"previous_response_id","message":"Previous response with id 'resp_0' not found."}`, true},
		{"by its name alone", 404, `{"code":"not_found","message":"Response with id 'resp_0' not found."}`, true},
		{"by no name", 404, `{"message":"No such response: it has expired"}`, true},
		{"a server that keeps nothing", 400, `{"message":"previous_response_id is only supported on Responses WebSocket v2"}`, true},
		{"a parameter that it does not know", 422, `{"message":"Unsupported parameter: previous_response_id"}`, true},
		{"zero data retention", 400, `{"code":"unsupported_parameter","param":"previous_response_id","message":"x"}`, true},
		{"another thing is not found", 404, `{"code":"model_not_found","message":"The model does not exist."}`, false},
		{"the server is full", 503, `{"message":"the store of previous_response_id is overloaded"}`, false},
		{"something else is wrong", 400, `{"code":"invalid_prompt","message":"x"}`, false},
	} {
		for _, form := range []string{"an answer", "an event", "a failed response"} {
			t.Run(tt.why+" as "+form, func(t *testing.T) {
				var sent []string
				loop := &fnloop.Loop{Model: "m", KeepItems: true, Attempts: 1, Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(req.Body)
					require.NoError(t, err)
					sent = append(sent, string(body))
					status, text := 200, `{"id":"resp_0","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"done"}]}]}`
					if strings.Contains(string(body), "previous_response_id") {
						switch form {
						case "an answer":
							status, text = tt.status, `{"error":`+tt.fault+`}`
						case "an event":
							text = frames(`{"type":"error","status":` + strconv.Itoa(tt.status) + `,"sequence_number":0,"error":` + tt.fault + `}`)
						case "a failed response":
							text = `{"id":"resp_1","status":"failed","error":` + tt.fault + `}`
							tt.forgot = tt.forgot && tt.why != "by no name"
						}
					}
					return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
				}))}
				_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
				require.NoError(t, err)
				_, ans, err = watch(t, loop.Events(t.Context(), store(t, ans), "again"))
				if !tt.forgot {
					require.Error(t, err)
					assert.Len(t, sent, 2)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, "done", ans.Text)
				require.Len(t, sent, 3)
				assert.Contains(t, sent[2], `"hi"`, "the conversation itself is sent")
				assert.NotContains(t, sent[2], "previous_response_id")
			})
		}
	}
}

// Of several messages the value is in the last one that is final.
func TestRunAsOfSeveralMessages(t *testing.T) {
	message := func(phase, text string) string {
		content, err := json.Marshal(text)
		require.NoError(t, err)
		return fmt.Sprintf(`{"type":"message","phase":%q,"content":[{"type":"output_text","text":%s}]}`, phase, content)
	}
	for _, tt := range []struct {
		why, items string
		fits       bool
	}{
		{"prose, then the value", message("", "Here it is.") + "," + message("", `{"n":7}`), true},
		{"a draft, then the value", message("", `{"n":1}`) + "," + message("", `{"n":7}`), true},
		{"a comment, then the value", message("commentary", "Working.") + "," + message("final_answer", `{"n":7}`), true},
		{"words of no phase, then the value", message("", "Let me see.") + "," + message("final_answer", `{"n":7}`), true},
		{"the value, then words of no phase", message("final_answer", `{"n":7}`) + "," + message("", "There."), true},
		{"the value, then a comment", message("", `{"n":7}`) + "," + message("commentary", "There."), true},
		{"the value in two parts", `{"type":"message","content":[{"type":"output_text","text":"{\"n\":"},{"type":"output_text","text":"7}"}]}`, true},
		{"a draft, then prose", message("", `{"n":7}`) + "," + message("", "I am not sure."), false},
		{"no value", message("", "Seven."), false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			loop := sse(t, "", `{"id":"resp_1","status":"completed","output":[`+tt.items+`]}`)
			value, ans, err := fnloop.RunAs[struct {
				N int `json:"n"`
			}](t.Context(), loop, nil, "hi")
			if !tt.fits {
				require.ErrorIs(t, err, fnloop.ErrMismatch)
				assert.Equal(t, fnloop.StopMismatch, ans.Stop)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 7, value.N)
		})
	}
}

// Items are kept as they came, but for what the API adds for readers alone.
func TestItemsKeepTheirSpelling(t *testing.T) {
	for _, tt := range []struct{ item, sent string }{
		{`{"type":"x","id":"x_1","created_by":"me"}`, `{"type":"x","id":"x_1"}`},
		{`{"created_by":"me","type":"x","id":"x_1"}`, `{"type":"x","id":"x_1"}`},
		{`{ "type" : "x" , "created_by" : { "a" : [ 1 , "}" ] } , "id":"x_1", "n" : 1e2 }`, `{"type":"x","id":"x_1","n":1e2}`},
		{`{"type":"x","id":"x_1","say":"\"created_by\":1,","created_by":null}`, `{"type":"x","id":"x_1","say":"\"created_by\":1,"}`},
		{`{"type":"shell_call_output","id":"x_1","call_id":"call_1","output":[{"created_by":"me","a":{"created_by":"kept"}},7,[]],"n":"<"}`,
			`{"type":"shell_call_output","id":"x_1","call_id":"call_1","output":[{"a":{"created_by":"kept"}},7,[]],"n":"<"}`},
		{`{"type":"x","id":"x_1","output":"created_by","created_by":""}`, `{"type":"x","id":"x_1","output":"created_by"}`},
	} {
		loop, _ := play(t, rt.Join(rt.Item(tt.item), rt.Text("one")))
		loop.State = fnloop.Stateless
		answer, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, tt.sent, string(answer.Items[1]))
	}
}

// Reasoning is sealed for the model that made it. Another model goes on without.
func TestReasoningOfAnotherModel(t *testing.T) {
	sealed := rt.Join(rt.Item(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"sealed elsewhere"}`), rt.Call("call_1", "ok", "{}"))
	for name, refusal := range map[string]rt.Reply{
		"code":            rt.Error(400, "invalid_encrypted_content", "could not be verified"),
		"words":           rt.Error(400, "invalid_request_error", "Encrypted content could not be decrypted."),
		"failed response": rt.Failed("invalid_encrypted_content", "could not be verified"),
		"in a stream":     rt.Failed("invalid_encrypted_content", "could not be verified"),
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, sealed, refusal.Force(), rt.Text("one").Force(), rt.Text("two"))
			loop.State, loop.Tools, loop.Attempts = fnloop.Stateless, []fnloop.Tool{echo("ok", "yes")}, 1
			var ans *fnloop.Answer
			var err error
			if name == "in a stream" {
				_, ans, err = watch(t, loop.Events(t.Context(), nil, "hi"))
			} else {
				ans, err = loop.Run(t.Context(), "hi")
			}
			require.NoError(t, err)
			assert.Equal(t, "one", ans.Text)
			_, err = loop.Continue(t.Context(), store(t, ans), "and?")
			require.NoError(t, err)
			reqs := srv.Requests()
			assert.Contains(t, string(reqs[1].Body), "sealed elsewhere")
			for _, r := range reqs[2:] {
				assert.NotContains(t, string(r.Body), "sealed elsewhere", "it is left out for good")
				assert.Contains(t, string(r.Body), `"function_call_output"`)
			}
		})
	}

	loop, srv := play(t, rt.Text("one"), rt.Error(400, "invalid_encrypted_content", "could not be verified"))
	loop.State = fnloop.Stateless
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	_, err = loop.Continue(t.Context(), ans, "and?")
	require.Error(t, err, "there is nothing to leave out")
	assert.Len(t, srv.Requests(), 2)
}
