package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func TestRun(t *testing.T) {
	loop, srv := play(t,
		rt.Join(rt.Reasoning(""), rt.Call("call_1", "add", `{"a":2,"b":3}`), rt.Call("call_2", "add", `{"a":4,"b":5}`)),
		rt.Call("call_3", "add", `{"a":5,"b":9}`),
		rt.Text("14"),
	)
	loop.Tools = []fnloop.Tool{adder()}
	ans, err := loop.Run(t.Context(), "Add 2 and 3, 4 and 5, then the sums.")
	require.NoError(t, err)
	assert.Equal(t, "14", ans.Text)
	assert.Equal(t, fnloop.StopAnswered, ans.Stop)
	assert.Equal(t, 2, ans.Turns)
	assert.Equal(t, 3, ans.Responses)
	assert.Empty(t, ans.Pending)
	assert.Empty(t, ans.Open)
	store(t, ans)

	reqs := posts(t, srv)
	require.Len(t, reqs, 3)
	for i, body := range reqs {
		assert.Equal(t, "Be brief.", body["instructions"], "instructions are not inherited")
		assert.Equal(t, reqs[0]["tools"], body["tools"], "nor are tools")
		tool := body["tools"].([]any)[0].(map[string]any)
		assert.Equal(t, true, tool["strict"], "request %d", i)
		assert.Equal(t, "gpt-test", body["model"])
		assert.NotContains(t, body, "parallel_tool_calls")
		assert.NotContains(t, body, "tool_choice")
	}
	assert.NotContains(t, reqs[0], "previous_response_id")
	got := srv.Requests()
	assert.Equal(t, got[0].ResponseID, reqs[1]["previous_response_id"])
	assert.Equal(t, got[1].ResponseID, reqs[2]["previous_response_id"])
	assert.Equal(t, got[2].ResponseID, ans.ID)
	assert.Equal(t, []string{"call_1", "5", "call_2", "9"}, outputs(t, reqs[1]))
	assert.Equal(t, []string{"call_3", "14"}, outputs(t, reqs[2]), "each follow-up has that round's outputs alone")
	assert.Len(t, reqs[1]["input"], 2)

	require.Len(t, ans.Calls, 3)
	assert.Equal(t, []int{1, 1, 2}, []int{ans.Calls[0].Turn, ans.Calls[1].Turn, ans.Calls[2].Turn})
}

func TestRunSendsPropertiesInOrder(t *testing.T) {
	type in struct {
		Zebra string `json:"zebra"`
		Apple string `json:"apple"`
		Mango *int   `json:"mango,omitempty"`
	}
	loop, srv := play(t, rt.Text("ok"))
	loop.Tools = []fnloop.Tool{fnloop.MustTool("order", "", func(context.Context, in) (string, error) { return "", nil })}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	body := string(srv.Requests()[0].Body)
	z, a, m := strings.Index(body, `"zebra":`), strings.Index(body, `"apple":`), strings.Index(body, `"mango":`)
	assert.True(t, 0 < z && z < a && a < m, "the model writes keys in the order of the properties: %s", body)
	assert.Contains(t, body, `["integer","null"]`)
}

func TestRunConfig(t *testing.T) {
	ok := echo("ok", "")
	strict := json.RawMessage(`{"type":"object","properties":{"x":{"type":"string"}},"required":[],"additionalProperties":false}`)
	for _, tt := range []struct {
		name, field string
		edit        func(*fnloop.Loop)
		prompt      string
	}{
		{"client", "Loop.Client", func(l *fnloop.Loop) { l.Client = nil }, "hi"},
		{"model", "Loop.Model", func(l *fnloop.Loop) { l.Model = "" }, "hi"},
		{"prompt", "prompt", func(l *fnloop.Loop) {}, ""},
		{"blank prompt", "prompt", func(l *fnloop.Loop) {}, " \n"},
		{"invalid prompt", "prompt", func(l *fnloop.Loop) {}, "a\xff"},
		{"same name", "Loop.Tools[1].Name", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{ok, ok} }, "hi"},
		{"no name", "Loop.Tools[0].Name", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{echo("", "")} }, "hi"},
		{"illegal name", "Loop.Tools[0].Name", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{echo("run python", "")} }, "hi"},
		{"long name", "Loop.Tools[0].Name", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{echo(strings.Repeat("x", 65), "")} }, "hi"},
		{"no handler", "Loop.Tools[0] (x).Handle", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{{Name: "x"}} }, "hi"},
		{"schema", "Loop.Tools[0] (ok).Parameters", func(l *fnloop.Loop) { t := ok; t.Parameters = strict; l.Tools = []fnloop.Tool{t} }, "hi"},
		{"limits", "Loop.Tools[0] (run_python)", func(l *fnloop.Loop) {
			l.Tools = []fnloop.Tool{fnloop.PythonTool(noRunner{}, fnloop.Limits{Time: -1})}
		}, "hi"},
		{"runner", "Loop.Tools[0] (run_python)", func(l *fnloop.Loop) {
			l.Tools = []fnloop.Tool{fnloop.PythonTool(nil, fnloop.Limits{})}
		}, "hi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t)
			tt.edit(loop)
			ans, err := loop.Run(t.Context(), tt.prompt)
			var config *fnloop.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Equal(t, tt.field, config.Field)
			assert.Contains(t, err.Error(), tt.field)
			require.NotNil(t, ans)
			assert.Equal(t, fnloop.StopInvalid, ans.Stop)
			assert.Empty(t, srv.Requests(), "nothing was sent")
		})
	}
}

type noRunner struct{}

func (noRunner) Run(context.Context, fnloop.Program) (fnloop.Result, error) {
	return fnloop.Result{}, errBoom
}

// TestStop tells every way in which a response can end a run from the others.
func TestStop(t *testing.T) {
	usage := &rt.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 6, ReasoningTokens: 2}
	call := rt.Call("call_1", "touch", "{}")
	half := rt.Call("call_1", "touch", `{"code":"import shutil; shutil.rmtree('/tmp/x`)
	for _, tt := range []struct {
		name, why string
		reply     rt.Reply
		stop      fnloop.StopReason
		is        error
		text      string
		partial   string
		moved     bool
	}{
		{"refusal", "a refusal is no answer", rt.Refusal("I can't help with that"), fnloop.StopRefused, fnloop.ErrRefused, "I can't help with that", "", true},
		{"empty", "nothing but reasoning is no answer", rt.Reasoning("hm"), fnloop.StopEmpty, fnloop.ErrEmpty, "", "", true},
		{"blank", "nor is white space", rt.Text(" \n"), fnloop.StopEmpty, fnloop.ErrEmpty, " \n", " \n", true},
		{"only commentary", "nor is talk about the work", rt.Commentary("Working on it"), fnloop.StopEmpty, fnloop.ErrEmpty, "", "Working on it", true},
		{"truncated text", "a piece of an answer is no answer", rt.Incomplete("max_output_tokens", rt.Text("The answer is")), fnloop.StopTruncated, fnloop.ErrTruncated, "", "The answer is", false},
		{"truncated call", "arguments may be a prefix that parses", rt.Incomplete("max_output_tokens", half), fnloop.StopTruncated, fnloop.ErrTruncated, "", "", false},
		{"truncated after a whole call", "the model had not finished deciding", rt.Incomplete("max_output_tokens", call, half), fnloop.StopTruncated, fnloop.ErrTruncated, "", "", false},
		{"filtered", "not the same as too long", rt.Incomplete("content_filter", rt.Text("x")), fnloop.StopFiltered, fnloop.ErrFiltered, "", "x", false},
		{"other reason", "reasons are an open set", rt.Incomplete("steered", call), fnloop.StopIncomplete, fnloop.ErrIncomplete, "", "", false},
		{"cancelled", "somebody cancelled it on the server", rt.Cancelled(call), fnloop.StopFailed, nil, "", "", false},
		{"failed", "a failure inside a 200", rt.Failed("invalid_prompt", "flagged"), fnloop.StopFailed, nil, "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.reply.Usage = usage
			loop, srv := play(t, tt.reply, rt.Text("fine"))
			var ran atomic.Int32
			loop.Tools = []fnloop.Tool{raw("touch", func(context.Context) (string, error) { ran.Add(1); return "", nil })}
			ans, err := loop.Run(t.Context(), "hi")
			require.Error(t, err)
			assert.Equal(t, tt.stop, ans.Stop, tt.why)
			if tt.is != nil {
				assert.ErrorIs(t, err, tt.is)
			} else {
				var failed *fnloop.ResponseError
				assert.ErrorAs(t, err, &failed)
			}
			assert.Equal(t, tt.text, ans.Text)
			assert.Equal(t, tt.partial, ans.Partial)
			assert.Zero(t, ran.Load(), "nothing of it is run")
			assert.Equal(t, fnloop.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 6, ReasoningTokens: 2, TotalTokens: 16}, ans.Usage)
			assert.Equal(t, tt.moved, ans.ID != "", "the head moves to completed responses alone")
			assert.Equal(t, tt.moved, ans.Prompt == "")
			require.Len(t, srv.Requests(), 1)

			ans, err = loop.Continue(t.Context(), store(t, ans), "go on")
			require.NoError(t, err)
			assert.Equal(t, "fine", ans.Text)
		})
	}
}

func TestFailedSaysWhy(t *testing.T) {
	loop, _ := play(t, rt.Failed("bio_policy", "no such thing"))
	_, err := loop.Run(t.Context(), "hi")
	var failed *fnloop.ResponseError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "bio_policy", failed.Code)
	assert.Equal(t, "no such thing", failed.Message)
	assert.Contains(t, err.Error(), "bio_policy")
	assert.Contains(t, err.Error(), "no such thing")
}

func TestCommentary(t *testing.T) {
	t.Run("beside the answer", func(t *testing.T) {
		loop, _ := play(t, rt.Join(rt.Commentary("Running it now"), rt.Text("102334155")))
		ans, err := loop.Run(t.Context(), "fib(40)")
		require.NoError(t, err)
		assert.Equal(t, "102334155", ans.Text)
	})
	for name, said := range map[string]rt.Reply{"commentary": rt.Commentary("Let me check"), "message": rt.Text("Let me check")} {
		t.Run(name+" beside a call", func(t *testing.T) {
			loop, srv := play(t, rt.Join(said, rt.Call("call_1", "ok", "")), rt.Text("done"))
			loop.Tools = []fnloop.Tool{echo("ok", "yes")}
			ans, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text, "text beside a call does not end the run")
			assert.Equal(t, []string{"call_1", "yes"}, outputs(t, posts(t, srv)[1]))
		})
	}
}

func TestMaxTurns(t *testing.T) {
	call := func(i int) rt.Reply { return rt.Call(fmt.Sprintf("call_%d", i), "ok", "{}") }
	t.Run("default", func(t *testing.T) {
		var script []rt.Reply
		for i := range 9 {
			script = append(script, call(i))
		}
		loop, srv := play(t, append(script, rt.Text("done"))...)
		var ran int
		loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { ran++; return "yes", nil })}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrMaxTurns)
		assert.Equal(t, fnloop.StopMaxTurns, ans.Stop)
		assert.Equal(t, fnloop.DefaultMaxTurns, ans.Turns)
		assert.Equal(t, 8, ran, "eight rounds")
		assert.Equal(t, 9, ans.Responses, "and nine responses")
		require.Len(t, ans.Pending, 1)
		assert.Equal(t, "call_8", ans.Pending[0].ID)
		assert.Equal(t, 9, ans.Pending[0].Turn)
		assert.Len(t, ans.Calls, 8)

		ans, err = loop.Continue(t.Context(), store(t, ans), "then tell me what you know")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
		last := posts(t, srv)[9]
		assert.Equal(t, []string{"call_8", "not run: the limit of rounds of tool calls was reached"}, outputs(t, last))
		assert.Len(t, last["input"], 2)
		assert.Equal(t, 8, ran)
	})
	t.Run("text on the last response", func(t *testing.T) {
		loop, _ := play(t, call(1), call(2), rt.Text("done"))
		loop.Tools, loop.MaxTurns = []fnloop.Tool{echo("ok", "")}, 2
		ans, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, 2, ans.Turns)
	})
	t.Run("final answer", func(t *testing.T) {
		loop, srv := play(t, call(1), call(2), rt.Text("what I have"))
		loop.Tools, loop.MaxTurns, loop.FinalAnswer = []fnloop.Tool{echo("ok", "")}, 2, true
		ans, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, "what I have", ans.Text)
		reqs := posts(t, srv)
		assert.Equal(t, "none", reqs[2]["tool_choice"])
		assert.Equal(t, reqs[0]["tools"], reqs[2]["tools"], "tools are listed still")
		assert.NotContains(t, reqs[1], "tool_choice")
	})
	t.Run("final answer is a call", func(t *testing.T) {
		loop, _ := play(t, call(1), rt.Join(rt.Text("I would"), call(2)).Force())
		var ran int
		loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { ran++; return "", nil })}
		loop.MaxTurns, loop.FinalAnswer = 1, true
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrMaxTurns)
		assert.Equal(t, 1, ran, "it is never run")
		assert.Equal(t, "I would", ans.Partial)
	})
}

func TestContinueChains(t *testing.T) {
	loop, srv := play(t, rt.Text("hello"), rt.Text("again"))
	first, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	second, err := loop.Continue(t.Context(), store(t, first), "and?")
	require.NoError(t, err)
	assert.Equal(t, "again", second.Text)
	assert.Equal(t, first.ID, posts(t, srv)[1]["previous_response_id"])
	assert.Equal(t, 1, second.Responses, "the counts are those of one run")

	_, err = loop.Continue(t.Context(), nil, "hi")
	var config *fnloop.ConfigError
	require.ErrorAs(t, err, &config)
	_, err = loop.Continue(t.Context(), first, "")
	require.ErrorAs(t, err, &config, "there is nothing to send")
}

func TestBeforeRequest(t *testing.T) {
	t.Run("edits each request", func(t *testing.T) {
		loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
		loop.Tools = []fnloop.Tool{echo("ok", "")}
		var n int
		loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
			n++
			p.Temperature = param.NewOpt(0.5)
			p.Metadata = map[string]string{"n": fmt.Sprint(n)}
			p.Tools[0].OfFunction.Description = param.NewOpt(fmt.Sprintf("description %d", n))
			p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptionsRequired)
			return nil
		}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		reqs := posts(t, srv)
		assert.Equal(t, 0.5, reqs[1]["temperature"])
		assert.Equal(t, map[string]any{"n": "2"}, reqs[1]["metadata"])
		assert.Equal(t, "required", reqs[0]["tool_choice"])
		assert.Equal(t, "auto", reqs[1]["tool_choice"], "a choice that stays forced never ends")
	})
	t.Run("none is kept", func(t *testing.T) {
		loop, srv := play(t, rt.Call("call_1", "ok", "").Force(), rt.Text("done"))
		loop.Tools = []fnloop.Tool{echo("ok", "")}
		loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
			p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptionsNone)
			return nil
		}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, "none", posts(t, srv)[1]["tool_choice"])
	})
	t.Run("no tools", func(t *testing.T) {
		loop, srv := play(t, rt.Text("done"))
		loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
			p.ParallelToolCalls = param.NewOpt(true)
			return nil
		}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.NotContains(t, posts(t, srv)[0], "parallel_tool_calls", "some servers refuse it without tools")
		assert.NotContains(t, posts(t, srv)[0], "tools")
	})
	t.Run("error", func(t *testing.T) {
		loop, srv := play(t)
		loop.BeforeRequest = func(context.Context, *responses.ResponseNewParams) error { return errBoom }
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, fnloop.StopAborted, ans.Stop)
		assert.Empty(t, srv.Requests())
	})
	for name, edit := range map[string]func(*responses.ResponseNewParams){
		"store":        func(p *responses.ResponseNewParams) { p.Store = param.NewOpt(false) },
		"background":   func(p *responses.ResponseNewParams) { p.Background = param.NewOpt(true) },
		"model":        func(p *responses.ResponseNewParams) { p.Model = "" },
		"conversation": func(p *responses.ResponseNewParams) { p.Conversation.OfString = param.NewOpt("conv_1") },
	} {
		t.Run("breaks the chain: "+name, func(t *testing.T) {
			loop, srv := play(t)
			loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { edit(p); return nil }
			_, err := loop.Run(t.Context(), "hi")
			var config *fnloop.ConfigError
			require.ErrorAs(t, err, &config)
			assert.Contains(t, config.Field, name)
			assert.Empty(t, srv.Requests())
		})
	}
}

func TestHostedItemsPassThrough(t *testing.T) {
	loop, srv := play(t,
		rt.Join(
			rt.Item(`{"type":"mcp_list_tools","server_label":"x","tools":[{"name":"t","input_schema":{}}]}`),
			rt.Item(`{"type":"code_interpreter_call","status":"completed","code":"1","container_id":"cntr_1","outputs":null}`),
			rt.Item(`{"type":"never_heard_of","content":"a string","arguments":{"x":1},"name":7}`),
			rt.Item(`{"type":"tool_search_call","execution":"server","call_id":null,"status":"completed","arguments":{}}`),
			rt.Call("call_1", "ok", "{}"),
		),
		rt.Join(rt.Item(`{"type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}`), rt.Text("done")),
	)
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	assert.Equal(t, []string{"call_1", "yes"}, outputs(t, posts(t, srv)[1]), "only our call is answered")
}

func TestItemsThatOnlyAClientCanAnswer(t *testing.T) {
	for _, item := range []string{
		`{"type":"computer_call","id":"cu_1","call_id":"call_9","actions":[],"pending_safety_checks":[],"status":"completed"}`,
		`{"type":"local_shell_call","id":"lsh_1","call_id":"call_9","action":{"type":"exec","command":["ls"]},"status":"completed"}`,
		`{"type":"shell_call","id":"sh_1","call_id":"call_9","action":{"commands":["ls"]},"environment":{"type":"local"},"status":"completed"}`,
		`{"type":"apply_patch_call","id":"apc_1","call_id":"call_9","operation":{"type":"delete_file","path":"x"},"status":"completed"}`,
		`{"type":"tool_search_call","id":"tsc_1","execution":"client","call_id":"call_9","arguments":{},"status":"completed"}`,
	} {
		var head struct{ Type, ID string }
		require.NoError(t, json.Unmarshal([]byte(item), &head))
		t.Run(head.Type, func(t *testing.T) {
			ran := false
			body := fmt.Sprintf(`{"id":"resp_x","object":"response","status":"completed","output":[%s,{"type":"function_call","id":"fc_1","call_id":"call_1","name":"ok","arguments":"{}","status":"completed"}]}`, item)
			loop, srv := play(t, rt.Call("call_0", "ok", ""), rt.HTTP(200, body), rt.Text("done"))
			n := 0
			loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { n++; ran = n > 1; return "yes", nil })}
			ans, err := loop.Run(t.Context(), "hi")
			var unsupported *fnloop.UnsupportedItemError
			require.ErrorAs(t, err, &unsupported)
			assert.Equal(t, fnloop.UnsupportedItemError{Type: head.Type, ID: head.ID}, *unsupported)
			assert.Equal(t, fnloop.StopUnsupported, ans.Stop)
			assert.False(t, ran, "the calls beside it are not run")
			assert.Equal(t, srv.Requests()[0].ResponseID, ans.ID, "the conversation continues from before it")

			ans, err = loop.Continue(t.Context(), store(t, ans), "without it, please")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
			assert.Equal(t, 1, n)
		})
	}
}

func TestProgram(t *testing.T) {
	caller := `"caller":{"type":"program","caller_id":"call_prog"}`
	loop, srv := play(t,
		rt.Join(
			rt.Item(`{"type":"program","call_id":"call_prog","code":"x","fingerprint":"f"}`),
			rt.Item(`{"type":"function_call","call_id":"call_1","name":"ok","arguments":"{}","status":"in_progress",`+caller+`}`),
		),
		rt.Item(`{"type":"program","call_id":"call_prog2","code":"y","fingerprint":"g"}`),
		rt.Text("done"),
	)
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.Tools[0].OfFunction.AllowedCallers = []string{"programmatic"}
		return nil
	}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	reqs := posts(t, srv)
	out := reqs[1]["input"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"type": "program", "caller_id": "call_prog"}, out["caller"])
	assert.Empty(t, reqs[2]["input"], "a paused program goes on with an empty request")
	assert.Equal(t, srv.Requests()[1].ResponseID, reqs[2]["previous_response_id"])
}

// A client that is not openai-go's own service gets a plain decoded response.
type wrapped struct {
	inner fnloop.Responder
	saw   int64
}

func (w *wrapped) New(ctx context.Context, p responses.ResponseNewParams, opts ...option.RequestOption) (*responses.Response, error) {
	res, err := w.inner.New(ctx, p, opts...)
	if err == nil {
		w.saw += res.Usage.TotalTokens
	}
	return res, err
}

func TestWrappedClient(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "add", `{"a":1,"b":2}`), rt.Text("3"))
	w := &wrapped{inner: loop.Client}
	loop.Client, loop.Tools = w, []fnloop.Tool{adder()}
	ans, err := loop.Run(t.Context(), "1+2")
	require.NoError(t, err)
	assert.Equal(t, "3", ans.Text)
	assert.Equal(t, ans.Usage.TotalTokens, w.saw)
}

// A stand-in of ten lines that fills fields instead of decoding JSON.
type literal []*responses.Response

func (l *literal) New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error) {
	res := (*l)[0]
	*l = (*l)[1:]
	return res, nil
}

func TestLiteralResponses(t *testing.T) {
	client := &literal{
		{ID: "resp_1", Status: "completed", Output: []responses.ResponseOutputItemUnion{{
			Type: "function_call", ID: "fc_1", CallID: "call_1", Name: "add", Status: "completed",
			Arguments: responses.ResponseOutputItemUnionArguments{OfString: `{"a":1,"b":2}`},
		}}},
		{ID: "resp_2", Status: "completed", Usage: responses.ResponseUsage{InputTokens: 3, TotalTokens: 3}, Output: []responses.ResponseOutputItemUnion{{
			Type: "message", Content: []responses.ResponseOutputMessageContentUnion{{Type: "output_text", Text: "three"}},
		}}},
	}
	loop := &fnloop.Loop{Client: client, Model: "m", Tools: []fnloop.Tool{adder()}}
	ans, err := loop.Run(t.Context(), "1+2")
	require.NoError(t, err)
	assert.Equal(t, "three", ans.Text)
	assert.Equal(t, "3", ans.Calls[0].Text)
	assert.EqualValues(t, 3, ans.Usage.TotalTokens)
	assert.Equal(t, 1, ans.Unmetered)
}

func TestUsage(t *testing.T) {
	first := rt.Call("call_1", "ok", "")
	first.Usage = &rt.Usage{InputTokens: 10, CachedTokens: 3, OutputTokens: 5, ReasoningTokens: 1}
	failed := rt.Failed("server_error", "sorry")
	failed.Usage = &rt.Usage{InputTokens: 7}
	last := rt.Text("done")
	last.NoUsage = true
	loop, _ := play(t, first, failed, last)
	loop.Tools = []fnloop.Tool{echo("ok", "")}
	bubble(t, func(t *testing.T) {
		ans, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, fnloop.Usage{InputTokens: 17, CachedTokens: 3, OutputTokens: 5, ReasoningTokens: 1, TotalTokens: 22}, ans.Usage)
		assert.Equal(t, 3, ans.Responses)
		assert.Equal(t, 1, ans.Unmetered)
	})
}

func TestConcurrentRuns(t *testing.T) {
	srv := rt.NewServer(rt.PerConversation(rt.Join(rt.Call("call_1", "add", `{"a":1,"b":2}`), rt.Call("call_2", "add", `{"a":3,"b":4}`)), rt.Text("done")))
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "m", Tools: []fnloop.Tool{adder()}}
	errs := make(chan error, 50)
	for range cap(errs) {
		go func() {
			ans, err := loop.Run(t.Context(), "hi")
			if err == nil && (ans.Text != "done" || len(ans.Calls) != 2) {
				err = errors.New("wrong answer")
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		assert.NoError(t, <-errs)
	}
}
