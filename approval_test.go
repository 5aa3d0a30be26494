package fnloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func TestApproval(t *testing.T) {
	type mail struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	calls := rt.Join(
		rt.Call("call_1", "count", `{}`),
		rt.Call("call_2", "send_mail", `{"to":"bob","text":"a <b> & c"}`),
		rt.Call("call_3", "send_mail", `{"to":"me","text":"x"}`),
		rt.Call("call_4", "send_mail", `{"to":"eve","text":"y"}`),
	)
	start := func(t *testing.T) (*fnloop.Loop, *rt.Server, *fnloop.Answer, func() (int, []string)) {
		loop, srv := play(t, calls, rt.Text("done"))
		counted, sent := 0, []string(nil)
		send := fnloop.MustTool("send_mail", "Sends a mail.", func(_ context.Context, m mail) (string, error) {
			sent = append(sent, m.To)
			return "sent", nil
		})
		send.Serial = true
		send.NeedsApproval = func(_ context.Context, c fnloop.Call) bool {
			return !strings.Contains(string(c.Arguments), `"me"`)
		}
		loop.Tools = []fnloop.Tool{send, raw("count", func(context.Context) (string, error) { counted++; return "1", nil })}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		assert.Contains(t, err.Error(), "send_mail (call_2)")
		assert.Equal(t, fnloop.StopApproval, ans.Stop)
		require.Len(t, ans.Pending, 2)
		assert.Equal(t, []string{"me"}, sent, "the others of the round have run")
		require.Len(t, srv.Requests(), 1, "nothing is sent until all are decided")
		return loop, srv, store(t, ans), func() (int, []string) { return counted, sent }
	}
	t.Run("approve and reject", func(t *testing.T) {
		loop, srv, ans, ran := start(t)
		require.NoError(t, ans.Approve("call_2"))
		require.NoError(t, ans.Reject("call_4", "never eve"))
		ans, err := loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
		n, sent := ran()
		assert.Equal(t, 1, n, "a finished call is not run again")
		assert.Equal(t, []string{"me", "bob"}, sent)
		assert.Equal(t, []string{"call_1", "1", "call_2", "sent", "call_3", "sent",
			"call_4", "rejected: this call was not approved and was not run: never eve"}, outputs(t, posts(t, srv)[1]), "all in one request")
	})
	t.Run("undecided", func(t *testing.T) {
		loop, srv, ans, ran := start(t)
		require.NoError(t, ans.Approve("call_2"))
		_, err := loop.Continue(t.Context(), ans, "never mind the other")
		require.NoError(t, err)
		_, sent := ran()
		assert.Equal(t, []string{"me", "bob"}, sent)
		assert.Equal(t, "not run: this call needs approval, and none was given", outputs(t, posts(t, srv)[1])[7])
	})
	t.Run("changed arguments", func(t *testing.T) {
		loop, srv, ans, ran := start(t)
		require.NoError(t, ans.Approve("call_2"))
		ans.Pending[0].Arguments = json.RawMessage(`{"to":"eve","text":"a <b> & c"}`)
		again, err := loop.Continue(t.Context(), store(t, ans), "")
		var config *fnloop.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Contains(t, config.Field, "call_2")
		_, sent := ran()
		assert.Equal(t, []string{"me"}, sent)
		require.Len(t, srv.Requests(), 1)
		require.NoError(t, again.Reject("call_2", ""))
		_, err = loop.Continue(t.Context(), again, "")
		require.NoError(t, err, "nothing is lost")
	})
	t.Run("other white space", func(t *testing.T) {
		loop, _, ans, ran := start(t)
		require.NoError(t, ans.Approve("call_2"))
		ans.Pending[0].Arguments = json.RawMessage("{ \"text\": \"a \\u003cb> & c\",\n\"to\": \"bob\" }")
		_, err := loop.Continue(t.Context(), ans, "")
		require.NoError(t, err, "what storage does to JSON is no change")
		_, sent := ran()
		assert.Equal(t, []string{"me", "bob"}, sent)
	})
	t.Run("what cannot be decided", func(t *testing.T) {
		first, _, ans, _ := start(t)
		defer first.Continue(t.Context(), ans, "finish")
		var config *fnloop.ConfigError
		require.ErrorAs(t, ans.Approve("call_9"), &config)
		require.ErrorAs(t, ans.Reject("call_1", ""), &config, "it is not pending")
		require.ErrorAs(t, (&fnloop.Answer{Pending: []fnloop.Call{{ID: "call_1"}}}).Approve("call_1"), &config, "it did not ask")
		loop, _ := play(t)
		_, err := loop.Continue(t.Context(), &fnloop.Answer{ID: "resp_1", Pending: []fnloop.Call{{ID: "call_1", Decision: &fnloop.Decision{Approve: true}}}}, "")
		require.ErrorAs(t, err, &config, "a decision cannot be made up")
	})
	t.Run("the request fails", func(t *testing.T) {
		loop, srv := play(t, rt.Call("call_1", "danger", `{}`), rt.Error(400, "x", "no"), rt.Text("done"))
		n := 0
		danger := raw("danger", func(context.Context) (string, error) { n++; return "bang", nil })
		danger.NeedsApproval = fnloop.Always
		loop.Tools = []fnloop.Tool{danger}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("call_1"))
		ans, err = loop.Continue(t.Context(), store(t, ans), "")
		require.Error(t, err)
		_, err = loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err)
		assert.Equal(t, 1, n, "approved once, run once")
		assert.Equal(t, []string{"call_1", "bang"}, outputs(t, posts(t, srv)[2]))
	})
}

// What was approved is run as long as it means the same, however a store has
// spelled it; anything else is refused.
func TestApprovalHoldsForTheSameCall(t *testing.T) {
	for _, tt := range []struct {
		name, asked, stored string
		same                bool
	}{
		{"as it was", `{"a":1,"b":[2]}`, `{"a":1,"b":[2]}`, true},
		{"other white space and order", `{"a":1,"b":[2]}`, "{\n \"b\" : [ 2 ], \"a\" : 1 }", true},
		{"other escapes", `{"a":"é<"}`, `{"a":"\u00e9\u003c"}`, true},
		{"another value", `{"a":1}`, `{"a":2}`, false},
		{"another order in a list", `{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{"one more", `{"a":1}`, `{"a":1,"b":2}`, false},
		{"a repeated member", `{"a":1}`, `{"a":1,"a":1}`, false},
		{"another half of a character", `{"a":"\ud83d"}`, `{"a":"\ud83e"}`, false},
		{"half of a character replaced", `{"a":"\ud83d"}`, `{"a":"\ufffd"}`, false},
		{"digits that a float cannot hold", `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := []rt.Reply{rt.Call("call_1", "x", tt.asked)}
			if tt.same {
				script = append(script, rt.Text("done"))
			}
			loop, _ := play(t, script...)
			ran := 0
			loop.Tools = []fnloop.Tool{raw("x", func(context.Context) (string, error) { ran++; return "", nil })}
			loop.Tools[0].NeedsApproval = fnloop.Always
			answer, err := loop.Run(t.Context(), "hi")
			require.ErrorIs(t, err, fnloop.ErrApproval)
			answer.Pending[0].Arguments = json.RawMessage(tt.stored)
			require.NoError(t, answer.Approve("call_1"))
			_, err = loop.Continue(t.Context(), answer, "")
			if tt.same {
				require.NoError(t, err)
				assert.Equal(t, 1, ran)
				return
			}
			var refused *fnloop.ConfigError
			require.ErrorAs(t, err, &refused)
			assert.Zero(t, ran)
		})
	}
}

// A tool of an MCP server that the API calls is approved like any other.
func TestApprovalOfHostedCalls(t *testing.T) {
	const asks = `{"type":"mcp_approval_request","id":"mcpr_%d","name":"roll","arguments":"{\"n\":%d}","server_label":"dice"}`
	for _, state := range []fnloop.State{fnloop.Chained, fnloop.Stateless} {
		t.Run(fmt.Sprint(state), func(t *testing.T) {
			loop, srv := play(t,
				rt.Join(rt.Item(fmt.Sprintf(asks, 1, 1)), rt.Call("call_1", "ok", ""), rt.Item(fmt.Sprintf(asks, 2, 2)), rt.Item(fmt.Sprintf(asks, 3, 3)), rt.Call("call_2", "pay", "")),
				rt.Text("done"))
			loop.State = state
			ran := 0
			pay := raw("pay", func(context.Context) (string, error) { ran++; return "paid", nil })
			pay.NeedsApproval = fnloop.Always
			loop.Tools = []fnloop.Tool{echo("ok", "yes"), pay}
			seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.ErrorIs(t, err, fnloop.ErrApproval)
			var asked []string
			for _, e := range seen {
				if a, ok := e.(fnloop.ApprovalRequested); ok {
					asked = append(asked, a.ID)
				}
			}
			assert.Equal(t, []string{"mcpr_1", "mcpr_2", "mcpr_3", "call_2"}, asked)

			ans = store(t, ans)
			waiting := ans.Waiting()
			require.Len(t, waiting, 4)
			assert.Equal(t, "roll", waiting[0].Name)
			assert.Equal(t, "dice", waiting[0].Namespace)
			assert.JSONEq(t, `{"n":1}`, string(waiting[0].Arguments))
			assert.True(t, waiting[0].Hosted)
			require.NoError(t, ans.Approve("mcpr_1"))
			require.NoError(t, ans.Reject("mcpr_2", "too many dice"))
			require.NoError(t, ans.Approve("call_2"))
			ans, err = loop.Continue(t.Context(), store(t, ans), "")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
			assert.Equal(t, 1, ran)
			assert.Empty(t, ans.Pending)
			var answers []string
			for _, it := range posts(t, srv)[1]["input"].([]any) {
				switch it := it.(map[string]any); it["type"] {
				case "mcp_approval_response":
					answers = append(answers, fmt.Sprint(it["approval_request_id"], it["approve"], it["reason"]))
				case "function_call_output":
					answers = append(answers, fmt.Sprint(it["call_id"], it["output"]))
				}
			}
			assert.Equal(t, []string{"mcpr_1true <nil>", "call_1yes", "mcpr_2falsetoo many dice", "mcpr_3falsenobody has decided", "call_2paid"}, answers, "in the order of the calls")
		})
	}
	t.Run("what was approved is what was shown", func(t *testing.T) {
		loop, _ := play(t, rt.Item(fmt.Sprintf(asks, 1, 1)))
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("mcpr_1"))
		ans.Pending[0].Arguments = []byte(`{"n":100}`)
		_, err = loop.Continue(t.Context(), ans, "")
		var bad *fnloop.ConfigError
		require.ErrorAs(t, err, &bad)
	})
	t.Run("a decision outlives a request that fails", func(t *testing.T) {
		loop, srv := play(t, rt.Item(fmt.Sprintf(asks, 1, 1)), rt.Error(400, "invalid_prompt", "no"), rt.Text("done"))
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("mcpr_1"))
		ans, err = loop.Continue(t.Context(), ans, "")
		require.Error(t, err)
		_, err = loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err)
		assert.Contains(t, string(srv.Requests()[2].Body), `"approve":true`)
	})
}
