package fnloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// spoken are the messages of a request in the order in which the model reads them:
// who speaks, and the text, with the parts by their type.
func spoken(t *testing.T, body map[string]any) (all []string) {
	t.Helper()
	for _, it := range body["input"].([]any) {
		m := it.(map[string]any)
		role, _ := m["role"].(string)
		switch content := m["content"].(type) {
		case string:
			all = append(all, role+": "+content)
		case []any:
			var parts []string
			for _, p := range content {
				p := p.(map[string]any)
				if s, ok := p["text"].(string); ok {
					parts = append(parts, s)
				} else {
					parts = append(parts, p["type"].(string))
				}
			}
			all = append(all, role+": "+strings.Join(parts, " + "))
		default:
			if m["type"] == "function_call_output" {
				all = append(all, "output of "+m["call_id"].(string))
			}
		}
	}
	return all
}

// states are the ways to keep a conversation, each with an Answer to begin with.
func states(t *testing.T, f func(t *testing.T, loop *fnloop.Loop, srv *rt.Server, from *fnloop.Answer), script func() []rt.Reply) {
	for name, set := range map[string]func(*fnloop.Loop){
		"chained":    func(*fnloop.Loop) {},
		"with items": func(l *fnloop.Loop) { l.KeepItems = true },
		"stateless":  func(l *fnloop.Loop) { l.State = fnloop.Stateless },
		"in a conversation": func(l *fnloop.Loop) {
			l.State = fnloop.InConversation
		},
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, script()...)
			set(loop)
			from := &fnloop.Answer{}
			if loop.State == fnloop.InConversation {
				from.Conversation = newConversation(t, srv)
			}
			f(t, loop, srv, from)
		})
	}
}

// lastPost is the newest request for a response.
func lastPost(t *testing.T, srv *rt.Server) map[string]any {
	t.Helper()
	all := posts(t, srv)
	return all[len(all)-1]
}

func TestEveryPromptIsSent(t *testing.T) {
	refused := rt.Error(400, "invalid_prompt", "no")
	states(t, func(t *testing.T, loop *fnloop.Loop, srv *rt.Server, ans *fnloop.Answer) {
		var err error
		for i, prompt := range []string{"one", "two", "", "three"} {
			ans, err = loop.Continue(t.Context(), ans, prompt)
			require.Error(t, err, "run %d", i)
			ans = store(t, ans)
		}
		assert.Equal(t, "three", ans.Prompt)
		assert.Len(t, ans.Earlier, 2)
		ans, err = loop.Continue(t.Context(), ans, "four")
		require.NoError(t, err)
		want := []string{"user: one", "user: two", "user: three", "user: four"}
		assert.Equal(t, want, spoken(t, lastPost(t, srv)))
		assert.Empty(t, ans.Prompt)
		assert.Empty(t, ans.Earlier)

		_, err = loop.Continue(t.Context(), ans, "five")
		require.NoError(t, err)
		got := spoken(t, lastPost(t, srv))
		assert.Equal(t, "user: five", got[len(got)-1])
		assert.LessOrEqual(t, strings.Count(strings.Join(got, "\n"), "user: one"), 1, "each once")
	}, func() []rt.Reply {
		return []rt.Reply{refused, refused, refused, refused, rt.Text("done"), rt.Text("more")}
	})
}

// The stop button, after the tools of a round and some words of the answer.
func TestWhatWasShownIsSent(t *testing.T) {
	states(t, func(t *testing.T, loop *fnloop.Loop, srv *rt.Server, ans *fnloop.Answer) {
		loop.Tools, loop.Client = []fnloop.Tool{echo("ok", "yes")}, srv.Client()
		stop := func(from *fnloop.Answer, prompt string) *fnloop.Answer {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var seen string
			for e := range loop.Events(ctx, from, prompt) {
				switch e := e.(type) {
				case fnloop.TextDelta:
					if seen += e.Text; strings.Contains(seen, "upon") {
						cancel()
					}
				case fnloop.Done:
					assert.Equal(t, seen, e.Answer.Partial)
					assert.True(t, e.Answer.Interrupted)
					return store(t, e.Answer)
				}
			}
			return nil
		}
		ans = stop(ans, "Tell me a story.")
		shown := ans.Partial
		assert.Empty(t, ans.Prompt, "the first response has it")
		ans = stop(ans, "In verse, please.")
		require.Len(t, ans.Earlier, 1)
		_, err := loop.Continue(t.Context(), ans, "Shorter.")
		require.NoError(t, err)
		got := spoken(t, lastPost(t, srv))
		assert.Equal(t, []string{"output of call_1", "assistant: " + shown, "user: In verse, please.", "assistant: " + ans.Partial, "user: Shorter."}, got[len(got)-5:])

		if loop.State == fnloop.InConversation {
			return // it has no forks
		}
		// Without a prompt the last request is made again.
		again, err := loop.Continue(t.Context(), ans, "")
		require.NoError(t, err)
		got = spoken(t, lastPost(t, srv))
		assert.Equal(t, []string{"output of call_1", "assistant: " + shown, "user: In verse, please."}, got[len(got)-3:])
		assert.False(t, again.Interrupted)
		assert.Empty(t, again.Partial)

		ans.DropPrompts()
		_, err = loop.Continue(t.Context(), ans, "Forget it.")
		require.NoError(t, err)
		got = spoken(t, lastPost(t, srv))
		assert.Equal(t, []string{"output of call_1", "user: Forget it."}, got[len(got)-2:])
	}, func() []rt.Reply {
		story := rt.Text("Once upon a time there was a fox who lived in a wood and had a tail")
		return []rt.Reply{rt.Call("call_1", "ok", "{}"), rt.Func(func(*rt.Turn) rt.Reply { return story.Broken(rt.Reset, 9) }), story.Broken(rt.Reset, 9), rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("done").Force() })}
	})
}

func TestRetryThatShowsNothingKeepsWhatWasShown(t *testing.T) {
	loop, srv := play(t, rt.Incomplete("max_output_tokens", rt.Text("Once upon")), rt.Error(400, "x", "no"), rt.Text("done"))
	ans, err := loop.Run(t.Context(), "story")
	require.ErrorIs(t, err, fnloop.ErrTruncated)
	ans, err = loop.Continue(t.Context(), store(t, ans), "")
	require.Error(t, err)
	assert.Equal(t, "Once upon", ans.Partial)
	assert.True(t, ans.Interrupted)
	_, err = loop.Continue(t.Context(), store(t, ans), "shorter")
	require.NoError(t, err)
	assert.Equal(t, []string{"user: story", "assistant: Once upon", "user: shorter"}, spoken(t, lastPost(t, srv)))
}

// What a completed response said is in the conversation already, and what the
// content filter cut would have the next request refused.
func TestPartialThatIsNotSent(t *testing.T) {
	for name, reply := range map[string]rt.Reply{
		"limit of rounds": rt.Join(rt.Text("I look"), rt.Call("call_2", "ok", "{}")),
		"filtered":        rt.Incomplete("content_filter", rt.Text("I look")),
		"empty":           rt.Commentary("I look"),
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, rt.Call("call_1", "ok", "{}"), reply, rt.Text("done"))
			loop.Tools, loop.MaxTurns = []fnloop.Tool{echo("ok", "yes")}, 1
			ans, err := loop.Run(t.Context(), "hi")
			require.Error(t, err)
			assert.Equal(t, "I look", ans.Partial)
			assert.False(t, ans.Interrupted)
			_, err = loop.Continue(t.Context(), store(t, ans), "and?")
			require.NoError(t, err)
			assert.NotContains(t, spoken(t, lastPost(t, srv)), "assistant: I look")
		})
	}
}

func TestAddPrompt(t *testing.T) {
	loop, srv := play(t, rt.Text("done"))
	first := &fnloop.Answer{}
	first.AddPrompt("one")
	second := *first
	first.AddPrompt("two")
	second.AddPrompt("  ")
	second.AddPrompt("three", fnloop.Content{ImageID: "file_1"})
	second.AddPrompt("  ", fnloop.Content{FileURL: "https://a.example/x.pdf"})
	assert.Equal(t, "two", first.Prompt)
	_, err := loop.Continue(t.Context(), store(t, &second), "")
	require.NoError(t, err)
	assert.Equal(t, []string{"user: one", "user: three + input_image", "user: input_file"}, spoken(t, lastPost(t, srv)))
}

func TestParts(t *testing.T) {
	image := fnloop.Content{ImageURL: "data:image/png;base64,AAAA", Detail: "low"}
	pdf := fnloop.Content{FileData: "data:application/pdf;base64,AAAA", FileName: "a.pdf"}
	states(t, func(t *testing.T, loop *fnloop.Loop, srv *rt.Server, ans *fnloop.Answer) {
		loop.Tools = []fnloop.Tool{echo("ok", "yes")}
		ans, err := loop.Continue(t.Context(), ans, "what is this?", image, fnloop.Content{Text: "a hint"}, pdf)
		require.Error(t, err)
		ans, err = loop.Continue(t.Context(), store(t, ans), "", fnloop.Content{ImageID: "file_9"})
		require.NoError(t, err)
		all := posts(t, srv)
		second := spoken(t, all[len(all)-2])
		assert.Equal(t, []string{"user: what is this? + input_image + a hint + input_file", "user: input_image"}, second)
		content := all[len(all)-2]["input"].([]any)[0].(map[string]any)["content"].([]any)
		assert.Equal(t, map[string]any{"type": "input_image", "image_url": image.ImageURL, "detail": "low"}, content[1])
		assert.Equal(t, map[string]any{"type": "input_file", "file_data": pdf.FileData, "filename": "a.pdf"}, content[3])
		if loop.State != fnloop.Stateless {
			assert.Equal(t, []string{"output of call_1"}, spoken(t, all[len(all)-1]), "parts are sent once")
		}
		assert.Empty(t, ans.Parts)
	}, func() []rt.Reply {
		return []rt.Reply{rt.Error(400, "x", "no"), rt.Call("call_1", "ok", "{}"), rt.Text("done")}
	})
}

func TestPartsAlone(t *testing.T) {
	image := fnloop.Content{ImageURL: "https://a.example/x.png"}
	for name, run := range map[string]func(*fnloop.Loop) error{
		"Run": func(l *fnloop.Loop) error { _, err := l.Run(context.Background(), "", image); return err },
		"Events": func(l *fnloop.Loop) (err error) {
			for _, e := range l.Events(context.Background(), nil, " ", image) {
				err = e
			}
			return err
		},
		"RunAs": func(l *fnloop.Loop) error {
			_, _, err := fnloop.RunAs[struct{}](context.Background(), l, nil, "", image)
			return err
		},
	} {
		loop, srv := play(t, rt.Text("{}"))
		require.NoError(t, run(loop), name)
		assert.Equal(t, []string{"user: input_image"}, spoken(t, lastPost(t, srv)), name)
	}
}

func TestPromptsThatTheAPIRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   fnloop.Answer
		prompt string
		parts  []fnloop.Content
		field  string
	}{
		{"nothing", fnloop.Answer{}, "", nil, "prompt"},
		{"white space", fnloop.Answer{}, " \n", nil, "prompt"},
		{"white space after a prompt that waits", fnloop.Answer{Prompt: "hi"}, " ", nil, "prompt"},
		{"text", fnloop.Answer{}, "a\xff", nil, "prompt"},
		{"empty part", fnloop.Answer{}, "hi", []fnloop.Content{{Text: "x"}, {}}, "parts[1]"},
		{"detail of nothing", fnloop.Answer{}, "hi", []fnloop.Content{{Detail: "low"}}, "parts[0]"},
		{"detail of a text", fnloop.Answer{}, "hi", []fnloop.Content{{Text: "x", Detail: "low"}}, "parts[0]"},
		{"unknown detail", fnloop.Answer{}, "hi", []fnloop.Content{{ImageID: "x", Detail: "fine"}}, "parts[0]"},
		{"original file", fnloop.Answer{}, "hi", []fnloop.Content{{FileID: "x", Detail: "original"}}, "parts[0]"},
		{"file without a name", fnloop.Answer{}, "hi", []fnloop.Content{{FileData: "data:,"}}, "parts[0]"},
		{"part that is no UTF-8", fnloop.Answer{}, "hi", []fnloop.Content{{ImageURL: "\xff"}}, "parts[0]"},
		{"stored part", fnloop.Answer{Parts: []fnloop.Content{{}}}, "", nil, "from.Parts[0]"},
		{"stored text", fnloop.Answer{Prompt: "\xff"}, "", nil, "from.Prompt"},
		{"stored earlier text", fnloop.Answer{Prompt: "\xff"}, "hi", nil, "from.Earlier[0].Text"},
		{"stored role", fnloop.Answer{Earlier: []fnloop.Message{{Role: "system", Text: "x"}}}, "hi", nil, "from.Earlier[0].Role"},
		{"assistant with an image", fnloop.Answer{Earlier: []fnloop.Message{{Role: "assistant", Parts: []fnloop.Content{{ImageID: "x"}}}}}, "hi", nil, "from.Earlier[0].Parts"},
	} {
		loop, srv := play(t)
		ans, err := loop.Continue(t.Context(), &tt.from, tt.prompt, tt.parts...)
		var config *fnloop.ConfigError
		require.ErrorAs(t, err, &config, tt.name)
		assert.Equal(t, tt.field, config.Field, tt.name)
		assert.Equal(t, fnloop.StopInvalid, ans.Stop)
		assert.Empty(t, srv.Requests())
	}
}

// What the caller and the hooks do to parts does not reach the Answer.
func TestPartsAreCopied(t *testing.T) {
	loop, srv := play(t, rt.Error(400, "x", "no"), rt.Text("done"))
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.Input.OfInputItemList[0].OfMessage.Content.OfInputItemContentList[1].OfInputImage.ImageURL = param.NewOpt("https://b.example")
		return nil
	}
	parts := []fnloop.Content{{ImageURL: "https://a.example"}}
	ans, err := loop.Run(t.Context(), "hi", parts...)
	require.Error(t, err)
	parts[0].ImageURL = "https://c.example"
	assert.Equal(t, "https://a.example", ans.Parts[0].ImageURL)
	loop.BeforeRequest = nil
	_, err = loop.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	assert.Contains(t, string(srv.Requests()[1].Body), "https://a.example")
}

func TestContentDetail(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "plot", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{{Name: "plot", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) {
		return fnloop.Output{Content: []fnloop.Content{{ImageURL: "https://a.example/x.png", Detail: "original"}, {FileID: "file_1", Detail: "high"}}}, nil
	}}}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Contains(t, string(srv.Requests()[1].Body), `"detail":"original"`)
	assert.Contains(t, string(srv.Requests()[1].Body), `"detail":"high"`)
}

// A tool's state goes where the conversation goes, and nowhere else.
func TestToolState(t *testing.T) {
	type memory struct{ N int }
	count := fnloop.MustTool("count", "Counts.", func(ctx context.Context, _ struct{}) (string, error) {
		s, ok := fnloop.ToolStateFrom(ctx)
		if !ok {
			return "", errBoom
		}
		var m memory
		if _, err := s.Get(&m); err != nil {
			return "", err
		}
		m.N++
		return fmt.Sprint(m.N), s.Set(m)
	})
	var states []*fnloop.Answer
	loop, srv := play(t, rt.Call("call_1", "count", "{}"), rt.Call("call_2", "count", "{}"), rt.Text("done"), rt.Call("call_3", "count", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{count}
	loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error { states = append(states, a); return nil }
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.JSONEq(t, `{"N":2}`, string(ans.ToolState["count"]))
	require.Len(t, states, 4)
	assert.Empty(t, states[0].ToolState)
	assert.JSONEq(t, `{"N":1}`, string(states[1].ToolState["count"]), "it is stored with the call's output")
	ans.ToolState["other"] = json.RawMessage(`"of a tool that is gone"`)

	one, err := loop.Continue(t.Context(), store(t, ans), "one")
	require.NoError(t, err)
	assert.JSONEq(t, `{"N":3}`, string(one.ToolState["count"]))
	assert.JSONEq(t, `"of a tool that is gone"`, string(one.ToolState["other"]))
	assert.JSONEq(t, `{"N":2}`, string(ans.ToolState["count"]), "a fork has its own")
	for _, r := range srv.Requests() {
		assert.NotContains(t, string(r.Body), "tool_state")
	}
}

func TestToolStateLimits(t *testing.T) {
	var late *fnloop.ToolState
	loop, _ := play(t, rt.Call("call_1", "f", "{}"), rt.Text("done"))
	loop.Grace = time.Nanosecond
	loop.Tools = []fnloop.Tool{raw("f", func(ctx context.Context) (string, error) {
		s, _ := fnloop.ToolStateFrom(ctx)
		late = s
		ok, err := s.Get(new(int))
		assert.False(t, ok)
		require.NoError(t, err)
		require.NoError(t, s.Set("kept"))
		require.ErrorContains(t, s.Set(strings.Repeat("x", fnloop.MaxToolState)), "4098 bytes are more than 4096")
		require.Error(t, s.Set(make(chan int)))
		require.Error(t, func() error { _, err := s.Get(new(int)); return err }(), "a string is no int")
		return "", nil
	})}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, `"kept"`, string(ans.ToolState["f"]))
	require.ErrorContains(t, late.Set("late"), "the call has ended")
	assert.Equal(t, `"kept"`, string(ans.ToolState["f"]))

	_, ok := fnloop.ToolStateFrom(t.Context())
	assert.False(t, ok)
}

func TestToolStateIsRemoved(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "f", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{raw("f", func(ctx context.Context) (string, error) {
		s, _ := fnloop.ToolStateFrom(ctx)
		return "", s.Set(nil)
	})}
	ans, err := loop.Continue(t.Context(), &fnloop.Answer{ToolState: map[string]json.RawMessage{"f": json.RawMessage(`1`)}}, "hi")
	require.NoError(t, err)
	assert.Empty(t, ans.ToolState)
}
