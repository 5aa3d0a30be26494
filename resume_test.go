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
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// killed is where a run had got to when its process died, at its nth checkpoint.
func killed(t *testing.T, loop *fnloop.Loop, n int) (stored *fnloop.Answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
		if n--; n == 0 {
			stored = store(t, a)
			return errors.New("power cut")
		}
		return nil
	}
	_, err := loop.Run(ctx, "hi")
	require.Error(t, err)
	require.NotNil(t, stored)
	loop.Checkpoint = nil
	return stored
}

func TestRepeatableCallIsRunAgain(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "read", "{}"), rt.Call("call_2", "pay", "{}"), rt.Call("call_3", "read", "{}")), rt.Text("done"))
	var ran []string
	record := func(name string) fnloop.Tool {
		return fnloop.Tool{Name: name, Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
			ran = append(ran, fmt.Sprintf("%s %t", c.ID, c.Repeated))
			return fnloop.Output{Text: "from " + name}, nil
		}}
	}
	read, pay := record("read"), record("pay")
	read.Repeatable = true
	loop.Tools, loop.Parallel = []fnloop.Tool{read, pay}, 2
	stored := killed(t, loop, 1)
	ran = nil

	seen, ans, err := watch(t, loop.Events(t.Context(), stored, ""))
	require.NoError(t, err)
	assert.Equal(t, []string{"call_1 true"}, ran, "what pays is not run again, and what waited for its turn never ran")
	assert.Equal(t, 1, ans.Turns)
	var again []string
	for _, e := range seen {
		if s, ok := e.(fnloop.CallStarted); ok {
			again = append(again, s.ID)
			assert.True(t, s.Repeated)
			raw, err := json.Marshal(s)
			require.NoError(t, err)
			assert.Contains(t, string(raw), `"repeated":true`)
		}
	}
	assert.Equal(t, []string{"call_1"}, again)
	out := outputs(t, posts(t, srv)[1])
	assert.Equal(t, "from read", out[1])
	assert.Contains(t, out[3], "interrupted")
	assert.Contains(t, out[5], "not run")
}

func TestRepeatableAndInterruptedAgain(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "read", "{}"), rt.Text("done"))
	runs := 0
	loop.Tools = []fnloop.Tool{raw("read", func(context.Context) (string, error) { runs++; return "yes", nil })}
	loop.Tools[0].Repeatable = true
	stored := killed(t, loop, 1)
	for range 3 {
		var next *fnloop.Answer
		loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
			next = store(t, a)
			return errBoom
		}
		_, err := loop.Continue(t.Context(), stored, "")
		require.ErrorIs(t, err, errBoom)
		stored = next
	}
	loop.Checkpoint = nil
	ans, err := loop.Continue(t.Context(), stored, "")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	assert.Equal(t, 1, runs, "the checkpoint came first")
}

// A user who stopped a call and asks for something else does not want it back.
func TestRepeatableAfterAStop(t *testing.T) {
	for _, tt := range []struct {
		prompt string
		runs   int
	}{{"something else", 1}, {"", 2}} {
		loop, srv := play(t, rt.Call("call_1", "read", "{}"), rt.Text("done"))
		runs := 0
		ctx, cancel := context.WithCancel(t.Context())
		loop.Tools = []fnloop.Tool{raw("read", func(ctx context.Context) (string, error) {
			if runs++; runs == 1 {
				cancel()
				return "", ctx.Err()
			}
			return "yes", nil
		})}
		loop.Tools[0].Repeatable = true
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.Canceled)
		_, err = loop.Continue(t.Context(), store(t, ans), tt.prompt)
		require.NoError(t, err)
		assert.Equal(t, tt.runs, runs)
		assert.Equal(t, tt.runs == 1, strings.Contains(outputs(t, posts(t, srv)[1])[1], "interrupted"))
	}
}

// An approval is of the call, so one that was approved may be run again, and one
// that was not is not.
func TestRepeatableAndApproval(t *testing.T) {
	for _, kept := range []bool{true, false} {
		loop, srv := play(t, rt.Call("call_1", "read", "{}"), rt.Text("done"))
		runs := 0
		loop.Tools = []fnloop.Tool{raw("read", func(context.Context) (string, error) { runs++; return "yes", nil })}
		loop.Tools[0].Repeatable, loop.Tools[0].NeedsApproval = true, fnloop.Always
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("call_1"))
		var stored *fnloop.Answer
		loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error { stored = store(t, a); return errBoom }
		_, err = loop.Continue(t.Context(), ans, "")
		require.ErrorIs(t, err, errBoom)
		loop.Checkpoint = nil
		if !kept {
			stored.Pending[0].Decision = nil
		}
		_, err = loop.Continue(t.Context(), stored, "")
		require.NoError(t, err)
		assert.Equal(t, kept, runs == 1)
		assert.Equal(t, !kept, strings.Contains(outputs(t, posts(t, srv)[1])[1], "interrupted"))
	}
}

// A crash between a checkpoint and the stop for approval decides nothing.
func TestApprovalAfterACrash(t *testing.T) {
	for _, checkpoint := range []int{1, 2} { // before the other call of the round, and after it
		loop, srv := play(t, rt.Join(rt.Call("call_1", "read", "{}"), rt.Call("call_2", "pay", "{}")), rt.Text("done"))
		reads, paid := 0, 0
		read := raw("read", func(context.Context) (string, error) { reads++; return "yes", nil })
		pay := raw("pay", func(context.Context) (string, error) { paid++; return "paid", nil })
		read.Repeatable, pay.NeedsApproval = true, fnloop.Always
		loop.Tools = []fnloop.Tool{read, pay}
		stored := killed(t, loop, checkpoint)
		reads = 0

		ans, err := loop.Continue(t.Context(), stored, "")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		assert.Contains(t, err.Error(), "pay (call_2)")
		assert.Equal(t, fnloop.StopApproval, ans.Stop)
		require.Len(t, srv.Requests(), 1, "nothing is sent until it is decided")
		assert.Equal(t, 2-checkpoint, reads, "what has finished is not run again")
		require.NoError(t, ans.Approve("call_2"))
		ans, err = loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
		assert.Equal(t, 1, paid)
		assert.Equal(t, []string{"call_1", "yes", "call_2", "paid"}, outputs(t, posts(t, srv)[1]))

		// Who writes something else instead has not approved it.
		loop, srv = play(t, rt.Call("call_1", "pay", "{}"), rt.Text("done"))
		loop.Tools = []fnloop.Tool{pay}
		_, err = loop.Continue(t.Context(), killed(t, loop, 1), "never mind")
		require.NoError(t, err)
		assert.Contains(t, outputs(t, posts(t, srv)[1])[1], "not run: this call needs approval")
	}
}

func TestPythonIsRepeatable(t *testing.T) {
	assert.True(t, fnloop.PythonTool(nil, fnloop.Limits{}).Repeatable)
	assert.True(t, fnloop.CustomPythonTool(nil, fnloop.Limits{}).Repeatable)
	assert.False(t, adder().Repeatable)
}

// A run that goes on after an approval counts its turns on.
func TestTurnsAcrossApprovals(t *testing.T) {
	ask := func(id string) rt.Reply { return rt.Call(id, "ask", "{}") }
	loop, _ := play(t, ask("call_1"), ask("call_2"), ask("call_3"), ask("call_4"), rt.Text("done"))
	loop.Tools, loop.MaxTurns = []fnloop.Tool{echo("ask", "yes")}, 3
	loop.Tools[0].NeedsApproval = fnloop.Always
	ans, err := loop.Run(t.Context(), "hi")
	for i := 1; i <= 3; i++ {
		require.ErrorIs(t, err, fnloop.ErrApproval)
		assert.Equal(t, i, ans.Turns)
		waiting := ans.Waiting()
		require.Len(t, waiting, 1)
		assert.Equal(t, i, waiting[0].Turn)
		require.NoError(t, ans.Approve(waiting[0].ID))
		ans, err = loop.Continue(t.Context(), store(t, ans), "")
	}
	require.ErrorIs(t, err, fnloop.ErrMaxTurns, "an approval does not begin the count anew")
	assert.Equal(t, 3, ans.Turns)
	assert.Equal(t, 4, ans.Pending[0].Turn)
	ans, err = loop.Continue(t.Context(), store(t, ans), "go on")
	require.NoError(t, err)
	assert.Equal(t, 0, ans.Turns, "a prompt does")

	loop, _ = play(t, ask("call_1"), rt.Call("call_2", "ok", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ask", "yes"), echo("ok", "yes")}
	loop.Tools[0].NeedsApproval = fnloop.Always
	ans, _ = loop.Run(t.Context(), "hi")
	require.NoError(t, ans.Approve("call_1"))
	ans, err = loop.Continue(t.Context(), ans, "and hurry")
	require.NoError(t, err)
	assert.Equal(t, 2, ans.Turns)
	assert.Equal(t, []int{2}, []int{ans.Calls[len(ans.Calls)-1].Turn}, "no two turns have one number")
}

func TestDigestSeesEveryCharacter(t *testing.T) {
	for shown, run := range map[string]string{
		`{"p":"\ud800"}`:       `{"p":"\udfff"}`,
		`{"p":"\udc00"}`:       `{"p":"\ufffd"}`,
		`{"p":"\ud800\ud800"}`: `{"p":"\ud800"}`,
		`{"\ud800":1}`:         `{"\ud801":1}`,
		`{"p":"\ud83d\ude00"}`: `{"p":"\ud83d\ude01"}`,
	} {
		loop, _ := play(t, rt.Call("call_1", "f", shown), rt.Text("done"))
		loop.Tools = []fnloop.Tool{echo("f", "ran")}
		loop.Tools[0].NeedsApproval = fnloop.Always
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		ans = store(t, ans)
		assert.Equal(t, shown, string(ans.Pending[0].Arguments))
		require.NoError(t, ans.Approve("call_1"))
		other := store(t, ans)
		other.Pending[0].Arguments = json.RawMessage(run)
		_, err = loop.Continue(t.Context(), other, "")
		require.ErrorAs(t, err, new(*fnloop.ConfigError), shown)
		_, err = loop.Continue(t.Context(), ans, "")
		require.NoError(t, err, "what was shown is run")
	}
}

func TestMaxCalls(t *testing.T) {
	var calls []rt.Reply
	for i := range 6 {
		calls = append(calls, rt.Call(fmt.Sprint("call_", i), []string{"ok", "ask"}[i%2], "{}"))
	}
	for _, approval := range []bool{false, true} {
		loop, srv := play(t, rt.Join(calls...), rt.Text("done"))
		var ran atomic.Int32
		count := func(context.Context) (string, error) { ran.Add(1); return "yes", nil }
		loop.Tools, loop.MaxCalls = []fnloop.Tool{raw("ok", count), raw("ask", count)}, 4
		if approval {
			loop.Tools[1].NeedsApproval = fnloop.Always
		}
		seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		if approval {
			require.ErrorIs(t, err, fnloop.ErrApproval, "someone has to decide first")
			assert.Len(t, ans.Waiting(), 2)
			require.NoError(t, ans.Approve("call_1"))
			require.NoError(t, ans.Approve("call_3"))
		} else {
			require.ErrorIs(t, err, fnloop.ErrMaxCalls)
			assert.Equal(t, fnloop.StopMaxCalls, ans.Stop)
			assert.Empty(t, ans.Pending)
			assert.Contains(t, outline(seen), "call_finished done", "each of them is told")
		}
		ans, err = loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err)
		assert.EqualValues(t, 4, ran.Load())
		out := outputs(t, posts(t, srv)[1])
		require.Len(t, out, 12)
		for i := 0; i < 12; i += 2 {
			assert.Equal(t, fmt.Sprint("call_", i/2), out[i], "in order")
			assert.Equal(t, i >= 8, strings.HasPrefix(out[i+1], "not run"))
		}
		assert.Equal(t, "done", ans.Text)
	}

	loop, _ := play(t, rt.Join(calls...), rt.Text("done"))
	loop.Tools, loop.MaxCalls = []fnloop.Tool{echo("ok", ""), echo("ask", "")}, -1
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
}

func TestMaxTokens(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", "{}"), rt.Call("call_2", "ok", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	used := ans.Usage.TotalTokens
	require.Positive(t, used)

	loop, srv = play(t, rt.Call("call_1", "ok", "{}"), rt.Call("call_2", "ok", "{}"), rt.Text("done"))
	loop.Tools, loop.MaxTokens = []fnloop.Tool{echo("ok", "yes")}, 1
	ans, err = loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrMaxTokens)
	assert.Equal(t, fnloop.StopMaxTokens, ans.Stop)
	assert.Len(t, ans.Calls, 1)
	assert.Len(t, srv.Requests(), 1)
	ans, err = loop.Continue(t.Context(), store(t, ans), "")
	require.ErrorIs(t, err, fnloop.ErrMaxTokens, "each run has its own")
	loop.MaxTokens = used
	_, err = loop.Continue(t.Context(), store(t, ans), "")
	require.NoError(t, err)
	assert.Equal(t, []string{"call_2", "yes"}, outputs(t, posts(t, srv)[2]))
}

// Tokens that other runs use meanwhile count too.
func TestOtherTokens(t *testing.T) {
	for _, tt := range []struct {
		name     string
		most     int64
		others   []int64
		requests int
		used     string // in the error, empty if there is none
	}{
		{"none", 1000, []int64{0, 0}, 2, ""},
		{"used up before the run", 1000, []int64{1000}, 0, "1000 of 1000"},
		{"used up in the meantime", 1000, []int64{900, 990}, 1, "1005 of 1000"},
		{"without a bound nobody asks", 0, nil, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
				reply := rt.Text("done")
				if len(turn.Outputs()) == 0 {
					reply = rt.Call("call_1", "ok", "{}")
				}
				reply.Usage = &rt.Usage{InputTokens: 10, OutputTokens: 5}
				return reply
			}))
			asked := 0
			loop.Tools, loop.MaxTokens = []fnloop.Tool{echo("ok", "yes")}, tt.most
			loop.OtherTokens = func(context.Context) (int64, error) {
				asked++
				return tt.others[asked-1], nil
			}
			ans, err := loop.Run(t.Context(), "hi")
			assert.Len(t, srv.Requests(), tt.requests)
			assert.Equal(t, len(tt.others), asked)
			if tt.used == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fnloop.ErrMaxTokens)
			require.ErrorContains(t, err, tt.used)
			assert.Equal(t, fnloop.StopMaxTokens, ans.Stop)
		})
	}
	loop, srv := play(t)
	loop.MaxTokens, loop.OtherTokens = 10, func(context.Context) (int64, error) { return 0, errors.New("no database") }
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorContains(t, err, "OtherTokens: no database")
	assert.Equal(t, fnloop.StopAborted, ans.Stop)
	assert.Equal(t, "hi", ans.Prompt, "which the next Continue sends")
	assert.Empty(t, srv.Requests())

	// A run that is stopped while it asks was stopped, and the database has not failed.
	ctx, stop := context.WithCancel(t.Context())
	loop.OtherTokens = func(ctx context.Context) (int64, error) {
		stop()
		return 0, ctx.Err()
	}
	ans, err = loop.Run(ctx, "hi")
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, fnloop.StopCancelled, ans.Stop)
}

func TestItemsOfALoopThatStopsKeepingThem(t *testing.T) {
	loop, srv := play(t, rt.Text("one"), rt.Error(400, "x", "no"), rt.Text("two"), rt.Text("three"))
	loop.KeepItems = true
	kept, err := loop.Run(t.Context(), "first")
	require.NoError(t, err)
	off := *loop
	off.KeepItems = false
	failed, err := off.Continue(t.Context(), kept, "second")
	require.Error(t, err)
	assert.Len(t, failed.Items, 2, "nothing was added, so they are whole yet")
	ans, err := off.Continue(t.Context(), store(t, failed), "")
	require.NoError(t, err)
	assert.Empty(t, ans.Items)
	srv.Forget(ans.ID)
	_, err = loop.Continue(t.Context(), store(t, ans), "third")
	require.Error(t, err, "a conversation with a hole is not sent for the whole")
	srv.Forget(kept.ID)
	_, err = off.Continue(t.Context(), kept, "again")
	require.NoError(t, err, "what is whole is")
}

// fieldwise is a Responder whose responses were made field by field.
type fieldwise struct {
	replies  []responses.Response
	requests []string
}

func (b *fieldwise) New(_ context.Context, p responses.ResponseNewParams, _ ...option.RequestOption) (*responses.Response, error) {
	body, err := json.Marshal(p)
	b.requests = append(b.requests, string(body))
	res := b.replies[len(b.requests)-1]
	return &res, err
}

func TestStatelessWithResponsesMadeByHand(t *testing.T) {
	b := &fieldwise{replies: []responses.Response{
		{ID: "resp_1", Status: "completed", Output: []responses.ResponseOutputItemUnion{
			{Type: "reasoning", ID: "rs_1", EncryptedContent: "sealed", Summary: []responses.ResponseReasoningItemSummary{{Type: "summary_text", Text: "I think"}}},
			{Type: "message", ID: "msg_1", Role: "assistant", Status: "completed", Phase: "commentary", Content: []responses.ResponseOutputMessageContentUnion{{Type: "output_text", Text: "Let me see"}}},
			{Type: "function_call", ID: "fc_1", CallID: "call_1", Name: "ok", Arguments: responses.ResponseOutputItemUnionArguments{OfString: "{}"}, Status: "completed"},
			{Type: "custom_tool_call", ID: "ctc_1", CallID: "call_2", Name: "odd", Input: "one two"},
			{Type: "function_call", CallID: "call_3", Name: "ok"},
		}},
		{ID: "resp_2", Status: "completed", Output: []responses.ResponseOutputItemUnion{
			{Type: "message", Content: []responses.ResponseOutputMessageContentUnion{{Type: "output_text", Text: "done"}}},
		}},
		{ID: "resp_3", Status: "completed", Output: []responses.ResponseOutputItemUnion{
			{Type: "message", Content: []responses.ResponseOutputMessageContentUnion{{Type: "output_text", Text: "more"}}},
		}},
	}}
	loop := &fnloop.Loop{Client: b, Model: "m", State: fnloop.Stateless, Tools: []fnloop.Tool{echo("ok", "yes"), {Name: "odd", Custom: true, Handle: echo("", "so").Handle}}}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	_, err = loop.Continue(t.Context(), store(t, ans), "and?")
	require.NoError(t, err)

	// A stand-in that refuses what the service refuses takes the conversation.
	srv := rt.NewServer(rt.Text("fine"))
	defer srv.Close()
	real := &fnloop.Loop{Client: service(srv), Model: "m", State: fnloop.Stateless}
	_, err = real.Continue(t.Context(), store(t, ans), "and?")
	require.NoError(t, err)
	body := string(srv.Requests()[0].Body)
	for _, part := range []string{`"encrypted_content":"sealed"`, "I think", "Let me see", `"phase":"commentary"`, `"call_id":"call_1"`, `"input":"one two"`, `"done"`} {
		assert.Contains(t, body, part)
	}
}
