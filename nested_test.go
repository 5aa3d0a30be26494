package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// expert is a tool whose handler asks another Loop.
func expert(inner *fnloop.Loop, prompts ...string) fnloop.Tool {
	return raw("ask_expert", func(ctx context.Context) (string, error) {
		var texts []string
		for _, p := range prompts {
			ans, err := inner.Run(ctx, p)
			if err != nil {
				return "", err
			}
			texts = append(texts, ans.Text)
		}
		return strings.Join(texts, "; "), nil
	})
}

// The events of a Loop within a tool nest under the call, and its tokens count.
func TestLoopWithinATool(t *testing.T) {
	for _, how := range []string{"Run", "Events", "RunAs"} {
		t.Run(how, func(t *testing.T) {
			inner, _ := play(t, rt.Call("call_i", "add", `{"a":1,"b":2}`), rt.Text(`{"n":3}`))
			inner.Tools = []fnloop.Tool{adder()}
			outer, srv := play(t, rt.Call("call_o", "ask", ""), rt.Text("done"))
			alone := 0 // events that the handler has read itself
			outer.Tools = []fnloop.Tool{raw("ask", func(ctx context.Context) (string, error) {
				switch how {
				case "Events":
					for e, err := range inner.Events(ctx, nil, "add") {
						if alone++; e.Type() == "done" {
							return e.(fnloop.Done).Answer.Text, err
						}
					}
				case "RunAs":
					v, _, err := fnloop.RunAs[struct {
						N int `json:"n"`
					}](ctx, inner, nil, "add")
					return fmt.Sprint(v.N), err
				}
				ans, err := inner.Run(ctx, "add")
				return ans.Text, err
			})}
			seen, ans, err := watch(t, outer.Events(t.Context(), nil, "hi"))
			require.NoError(t, err)
			assert.Contains(t, outputs(t, posts(t, srv)[1])[1], "3")
			assert.Equal(t, 4, ans.Responses, "two of each")
			assert.Zero(t, ans.Unmetered)
			var used int64
			var within []string
			finished := false
			for _, e := range seen {
				switch e := e.(type) {
				case fnloop.CallEvent:
					assert.Equal(t, "call_o", e.ID)
					assert.False(t, finished)
					within = append(within, e.Event.Type())
					if f, ok := e.Event.(fnloop.ResponseFinished); ok {
						used += f.Usage.TotalTokens
					}
				case fnloop.ResponseFinished:
					used += e.Usage.TotalTokens
				case fnloop.CallFinished:
					finished = true
				}
			}
			assert.Equal(t, ans.Usage.TotalTokens, used)
			nested := strings.Join(within, " ")
			assert.True(t, strings.HasPrefix(nested, "request_started call_announced call_delta"), nested)
			assert.Contains(t, nested, "call_started call_finished request_started")
			if how == "Events" {
				assert.Equal(t, len(within)+1, alone, "the handler reads them too")
			}

			// Where nobody reads, the tokens count all the same.
			inner, _ = play(t, rt.Text(`{"n":3}`))
			outer, _ = play(t, rt.Call("call_o", "ask_expert", ""), rt.Text("done"))
			outer.Tools = []fnloop.Tool{expert(inner, "add")}
			ans, err = outer.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, 3, ans.Responses)
		})
	}
}

func TestEventsNestDeeper(t *testing.T) {
	deepest, _ := play(t, rt.Text("deep"))
	middle, _ := play(t, rt.Call("call_m", "ask_expert", ""), rt.Text("middle"))
	middle.Tools = []fnloop.Tool{expert(deepest, "?")}
	outer, _ := play(t, rt.Call("call_o", "ask_expert", ""), rt.Text("done"))
	outer.Tools = []fnloop.Tool{expert(middle, "?")}
	seen, ans, err := watch(t, outer.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	assert.Equal(t, 5, ans.Responses)
	data, err := json.Marshal(seen)
	require.NoError(t, err)
	assert.Contains(t, string(data), `{"type":"call_event","id":"call_o","event":{"type":"call_event","id":"call_m","event":{"type":"text_delta","text":"deep"`)
}

// An approval that a Loop within a tool needs reaches whoever asked the outer
// one, and the work goes on from there in another process.
func TestApprovalWithinATool(t *testing.T) {
	type world struct {
		inner, outer *fnloop.Loop
		asked, mails atomic.Int32
	}
	build := func(t *testing.T, innerScript, outerScript []rt.Reply) *world {
		w := new(world)
		w.inner, _ = play(t, innerScript...)
		mail := raw("mail", func(context.Context) (string, error) { w.mails.Add(1); return "sent", nil })
		mail.NeedsApproval = fnloop.Always
		w.inner.Tools = []fnloop.Tool{mail}
		w.outer, _ = play(t, outerScript...)
		ask := expert(w.inner, "first", "second")
		handle := ask.Handle
		ask.Handle = func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) { w.asked.Add(1); return handle(ctx, c) }
		w.outer.Tools = []fnloop.Tool{ask, echo("ok", "yes")}
		return w
	}
	outerScript := []rt.Reply{rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_o", "ask_expert", "")), rt.Text("done")}
	innerScript := []rt.Reply{rt.Text("one"), rt.Join(rt.Call("call_a", "mail", ""), rt.Call("call_b", "mail", "")), rt.Text("two")}

	t.Run("approved", func(t *testing.T) {
		w := build(t, innerScript, outerScript)
		seen, ans, err := watch(t, w.outer.Events(t.Context(), nil, "hi"))
		require.ErrorIs(t, err, fnloop.ErrApproval)
		assert.ErrorContains(t, err, "mail (call_o/call_a)")
		assert.Equal(t, 3, ans.Responses)
		data, err := json.Marshal(seen)
		require.NoError(t, err)
		assert.Contains(t, string(data), `"event":{"type":"approval_requested"`)
		assert.NotContains(t, outline(seen), "call_finished call_finished", "the call has not finished")

		ans = store(t, ans)
		var ids []string
		for _, c := range ans.Waiting() {
			ids = append(ids, c.ID)
			assert.Equal(t, "mail", c.Name)
		}
		assert.Equal(t, []string{"call_o/call_a", "call_o/call_b"}, ids)
		require.Error(t, ans.Approve("call_o"), "there is nothing to decide about the call itself")
		require.Error(t, ans.Approve("call_o/call_x"))
		require.Error(t, ans.Approve("call_x/call_a"))
		require.NoError(t, ans.Approve("call_o/call_a"))
		require.NoError(t, ans.Reject("call_o/call_b", "not him"))
		before, err := json.Marshal(ans)
		require.NoError(t, err)
		got, err := w.outer.Continue(t.Context(), ans, "")
		require.NoError(t, err)
		assert.Equal(t, "done", got.Text)
		assert.EqualValues(t, 1, w.mails.Load(), "one was approved")
		assert.EqualValues(t, 2, w.asked.Load(), "the handler begins anew")
		assert.Equal(t, 2, got.Responses, "what had answered is not asked again")
		after, err := json.Marshal(ans)
		require.NoError(t, err)
		assert.Equal(t, string(before), string(after), "Continue leaves its Answer alone")
		result := got.Calls
		for _, c := range result {
			if c.ID == "call_o" {
				assert.Equal(t, "one; two", c.Text)
			}
		}
	})
	t.Run("nobody decides", func(t *testing.T) {
		w := build(t, innerScript[:2], outerScript)
		ans, err := w.outer.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		ans, err = w.outer.Continue(t.Context(), store(t, ans), "never mind")
		require.NoError(t, err)
		assert.Zero(t, w.mails.Load())
		assert.EqualValues(t, 1, w.asked.Load())
		assert.Empty(t, ans.Pending)
	})
	t.Run("twice", func(t *testing.T) {
		w := build(t, []rt.Reply{rt.Call("call_a", "mail", ""), rt.Text("one"), rt.Call("call_b", "mail", ""), rt.Text("two")}, outerScript)
		ans, err := w.outer.Run(t.Context(), "hi")
		for _, id := range []string{"call_o/call_a", "call_o/call_b"} {
			require.ErrorIs(t, err, fnloop.ErrApproval)
			ans = store(t, ans)
			require.Len(t, ans.Waiting(), 1)
			require.NoError(t, ans.Approve(id))
			ans, err = w.outer.Continue(t.Context(), ans, "")
		}
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
		assert.EqualValues(t, 2, w.mails.Load(), "each once")
	})
	t.Run("the process dies while the handler goes on", func(t *testing.T) {
		w := build(t, innerScript[:2], outerScript)
		ans, err := w.outer.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("call_o/call_a"))
		var saved *fnloop.Answer
		w.outer.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
			saved = a
			return errors.New("died")
		}
		_, err = w.outer.Continue(t.Context(), ans, "")
		require.Error(t, err)
		saved = store(t, saved)
		assert.Empty(t, saved.Waiting(), "it may have been done")
		require.Error(t, saved.Approve("call_o/call_a"))
		w.outer.Checkpoint = nil
		ans, err = w.outer.Continue(t.Context(), saved, "")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
	})
	t.Run("the handler decides by itself", func(t *testing.T) {
		w := build(t, []rt.Reply{rt.Call("call_a", "mail", ""), rt.Text("one")}, outerScript)
		w.outer.Tools[0] = raw("ask_expert", func(ctx context.Context) (string, error) {
			ans, err := w.inner.Run(ctx, "first")
			if !errors.Is(err, fnloop.ErrApproval) {
				return "", err
			}
			if err := ans.Reject("call_a", "I may not"); err != nil {
				return "", err
			}
			ans, err = w.inner.Continue(ctx, ans, "")
			return ans.Text, err
		})
		ans, err := w.outer.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
	})
}

// A Loop that a handler leaves behind changes nothing of a run that has gone on.
func TestLoopWithinAToolLeftBehind(t *testing.T) {
	inner, _ := play(t)
	release := make(chan struct{})
	inner.Client = service(rt.NewServer(rt.Text("late")))
	outer, _ := play(t, rt.Call("call_o", "ask", ""), rt.Text("done"))
	outer.Grace = time.Millisecond
	ended := make(chan struct{})
	tool := raw("ask", func(ctx context.Context) (string, error) {
		defer close(ended)
		<-release
		_, err := inner.Run(context.WithoutCancel(ctx), "x")
		return "", err
	})
	tool.Timeout = time.Millisecond
	outer.Tools = []fnloop.Tool{tool}
	ans, err := outer.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, 1, ans.Abandoned)
	assert.Equal(t, 2, ans.Responses)
	close(release)
	<-ended
	assert.Equal(t, 2, ans.Responses)
}

// What an inner run has said survives storage whatever is in it.
func TestInnerRunIsStoredWhole(t *testing.T) {
	inner, _ := play(t, rt.Text("a\x00b\u2400c"), rt.Call("call_a", "mail", ""), rt.Text("two"))
	mail := echo("mail", "sent")
	mail.NeedsApproval = fnloop.Always
	inner.Tools = []fnloop.Tool{mail}
	outer, _ := play(t, rt.Call("call_o", "ask_expert", ""), rt.Text("done"))
	outer.Tools = []fnloop.Tool{expert(inner, "first", "second")}
	ans, err := outer.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrApproval)
	stored, err := json.Marshal(ans)
	require.NoError(t, err)
	assert.NotContains(t, string(stored), `\u0000`)
	ans = store(t, ans)
	require.NoError(t, ans.Reject("call_o/call_a", ""))
	ans, err = outer.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	require.Len(t, ans.Calls, 1)
	assert.Equal(t, "a\x00b\u2400c; two", ans.Calls[0].Text)
}
