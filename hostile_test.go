package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// An approved call that was started has had its chance, whatever became of it.
func TestApprovedCallIsStartedOnce(t *testing.T) {
	for _, die := range []string{"cancel", "checkpoint"} {
		t.Run(die, func(t *testing.T) {
			loop, srv := play(t, rt.Call("call_1", "pay", "{}"), rt.Text("done"))
			paid := 0
			pay := raw("pay", func(ctx context.Context) (string, error) { paid++; return "", nap(ctx, time.Hour) })
			pay.NeedsApproval = fnloop.Always
			loop.Tools = []fnloop.Tool{pay}
			bubble(t, func(t *testing.T) {
				ans, err := loop.Run(t.Context(), "hi")
				require.ErrorIs(t, err, fnloop.ErrApproval)
				require.Len(t, ans.Waiting(), 1)
				require.NoError(t, ans.Approve("call_1"))
				var stored *fnloop.Answer
				loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error { stored = a; return nil }
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				ans, err = loop.Continue(ctx, ans, "")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				if die == "checkpoint" {
					ans = stored
				}
				require.Error(t, ans.Approve("call_1"), "it cannot be approved again")
				assert.Empty(t, ans.Waiting())
				_, err = loop.Continue(t.Context(), store(t, ans), "what happened?")
				require.NoError(t, err)
			})
			assert.Equal(t, 1, paid)
			assert.Contains(t, outputs(t, posts(t, srv)[1])[1], "interrupted")
		})
	}
}

func TestApprovalIsAskedForSensibly(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "add", `{"a":"x"}`), rt.Call("call_2", "odd", `[]`)), rt.Text("done"))
	checked := adder()
	checked.NeedsApproval = fnloop.Always
	odd := echo("odd", "yes")
	odd.NeedsApproval = func(_ context.Context, c fnloop.Call) bool {
		var v any
		json.Unmarshal(c.Arguments, &v)
		return v.(map[string]any)["to"] == "me"
	}
	loop.Tools = []fnloop.Tool{checked, odd}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrApproval)
	require.Len(t, ans.Waiting(), 1, "nobody is asked about a call that cannot be made")
	assert.Equal(t, "call_2", ans.Waiting()[0].ID, "a predicate that panics asks")
	require.NoError(t, ans.Approve("call_2"))
	_, err = loop.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	assert.Equal(t, "yes", outputs(t, posts(t, srv)[1])[3])
}

func TestForcedChoiceIsNotForcedAfterApproval(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", "{}"), rt.Text("done"))
	ok := echo("ok", "yes")
	ok.NeedsApproval = fnloop.Always
	loop.Tools = []fnloop.Tool{ok}
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptionsRequired)
		return nil
	}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrApproval)
	require.NoError(t, ans.Approve("call_1"))
	_, err = loop.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	assert.Equal(t, "auto", posts(t, srv)[1]["tool_choice"])
}

func TestApprovedArgumentsHaveNoSecondReading(t *testing.T) {
	for _, tampered := range []string{`{"to":"eve","to":"bob"}`, `{"to":"bob"}}`, `{"to":"bob"} `, `{"to":"bob"}[]`} {
		loop, _ := play(t, rt.Call("call_1", "send", `{"to":"bob"}`), rt.Text("done"))
		send := echo("send", "sent")
		send.NeedsApproval = fnloop.Always
		loop.Tools = []fnloop.Tool{send}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.NoError(t, ans.Approve("call_1"))
		ans.Pending[0].Arguments = []byte(tampered)
		_, err = loop.Continue(t.Context(), ans, "")
		if strings.TrimSpace(tampered) == `{"to":"bob"}` {
			require.NoError(t, err)
			continue
		}
		require.ErrorAs(t, err, new(*fnloop.ConfigError), tampered)
		require.NoError(t, ans.Reject("call_1", ""))
		_, err = loop.Continue(t.Context(), ans, "")
		require.NoError(t, err)
	}
}

func TestWaitInText(t *testing.T) {
	for text, wait := range map[string]time.Duration{
		"try again in 500ms.": 500 * time.Millisecond, "try again in 86ms": 86 * time.Millisecond, "try again in 1s420ms.": 1420 * time.Millisecond,
		"try again in 6m0s.": 6 * time.Minute, "try again in 11.054s": 11054 * time.Millisecond, "try again in 1h2m3s.": time.Hour + 2*time.Minute + 3*time.Second,
	} {
		loop, _ := play(t, rt.Error(429, "rate_limit_exceeded", "Rate limit reached. Please "+text+" Visit us."), rt.Text("done"))
		loop.MaxRetryWait = 2 * time.Hour
		bubble(t, func(t *testing.T) {
			start := time.Now()
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, wait, time.Since(start), text)
		})
	}
}

func TestMaxRetryWaitBelowTheBackoff(t *testing.T) {
	loop, _ := play(t, rt.ServerError(), rt.Text("done"))
	loop.MaxRetryWait = 100 * time.Millisecond
	bubble(t, func(t *testing.T) {
		start := time.Now()
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

// chained is an error with a method that fails on its nil value.
type chained struct{ inner error }

func (e *chained) Error() string { return "bad" }
func (e *chained) Unwrap() error { return e.inner }

func TestHostileErrors(t *testing.T) {
	for name, handle := range map[string]func(context.Context) (string, error){
		"typed nil":       func(context.Context) (string, error) { var e *chained; return "", e },
		"panic with it":   func(context.Context) (string, error) { var e *chained; panic(e) },
		"aborted with it": func(context.Context) (string, error) { var e *chained; return "", fnloop.Abort(e) },
	} {
		t.Run(name, func(t *testing.T) {
			loop, _ := play(t, rt.Call("call_1", "bad", ""), rt.Text("done"))
			loop.Tools = []fnloop.Tool{raw("bad", handle)}
			ans, err := loop.Run(t.Context(), "hi")
			if name == "aborted with it" {
				require.Error(t, err)
				assert.Equal(t, fnloop.StopAborted, ans.Stop)
				ans, err = loop.Continue(t.Context(), ans, "")
			}
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
		})
	}
}

func TestStopIsTheRunsOwn(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "sub", ""))
	loop.Tools = []fnloop.Tool{raw("sub", func(context.Context) (string, error) {
		return "", fnloop.Abort(fmt.Errorf("sub: %w", fnloop.ErrMaxTurns))
	})}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrMaxTurns)
	assert.Equal(t, fnloop.StopAborted, ans.Stop)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fnloop.ErrMaxTurns)
	loop, _ = play(t)
	ans, _ = loop.Run(ctx, "hi")
	assert.Equal(t, fnloop.StopCancelled, ans.Stop)
}

func TestNothingStartsAfterTheEnd(t *testing.T) {
	var calls []rt.Reply
	for range 8 {
		calls = append(calls, rt.Call("", "touch", ""))
	}
	loop, _ := play(t, rt.Join(calls...))
	var started atomic.Int32
	loop.Tools = []fnloop.Tool{raw("touch", func(context.Context) (string, error) { started.Add(1); return "", nil })}
	for e := range loop.Events(t.Context(), nil, "hi") {
		if e.Type() == "call_started" {
			time.Sleep(20 * time.Millisecond)
			break
		}
	}
	assert.Zero(t, started.Load(), "the reader can still keep a call from starting")
}

func TestCheckpointPanics(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "ok", ""))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	n := 0
	loop.Checkpoint = func(context.Context, *fnloop.Answer) error {
		if n++; n == 2 {
			panic(errBoom)
		}
		return nil
	}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, errBoom)
	assert.Equal(t, fnloop.StopAborted, ans.Stop)
	assert.Len(t, ans.Calls, 1)
}

func TestHiddenToolsAreNotRun(t *testing.T) {
	for name, hide := range map[string]func(*responses.ResponseNewParams){
		"left out": func(p *responses.ResponseNewParams) { p.Tools = p.Tools[:1] },
		"not allowed": func(p *responses.ResponseNewParams) {
			p.ToolChoice.OfAllowedTools = &responses.ToolChoiceAllowedParam{Mode: "auto", Tools: []map[string]any{{"type": "function", "name": "ok"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, rt.Call("call_1", "admin", "").Force(), rt.Text("done"))
			loop.Tools = []fnloop.Tool{echo("ok", ""), raw("admin", func(context.Context) (string, error) { t.Error("ran"); return "", nil })}
			loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { hide(p); return nil }
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, `unknown tool "admin"; the tools are: ok`, outputs(t, posts(t, srv)[1])[1])
		})
	}
}

func TestSharedContent(t *testing.T) {
	loop, _ := play(t, rt.Join(rt.Call("", "x", ""), rt.Call("", "x", ""), rt.Call("", "x", "")), rt.Text("done"))
	shared := []fnloop.Content{{Text: strings.Repeat("x", 100)}}
	loop.MaxOutput = 80
	loop.Tools = []fnloop.Tool{{Name: "x", Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
		for i := range c.Arguments { // its own copy
			c.Arguments[i] = 'x'
		}
		return fnloop.Output{Content: shared}, nil
	}}}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Len(t, shared[0].Text, 100)
	assert.True(t, ans.Calls[0].Truncated)
	assert.LessOrEqual(t, len(ans.Calls[0].Content[0].Text), 80)
}

func TestContentThatTheAPIRefuses(t *testing.T) {
	for _, c := range []fnloop.Content{
		{FileData: "data:,"}, {FileName: "a.txt"}, {Text: "x", ImageURL: "y"}, {ImageURL: "x", ImageID: "y"},
	} {
		loop, srv := play(t, rt.Call("call_1", "x", ""), rt.Text("done"))
		loop.Tools = []fnloop.Tool{{Name: "x", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) {
			return fnloop.Output{Content: []fnloop.Content{c}}, nil
		}}}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Contains(t, outputs(t, posts(t, srv)[1])[1], "part 0 of the output", "an output that is refused would be sent again for ever")
	}
}

func TestItemsKeptLate(t *testing.T) {
	loop, srv := play(t, rt.Text("one"), rt.Text("two"))
	ans, err := loop.Run(t.Context(), "remember blue")
	require.NoError(t, err)
	loop.KeepItems = true
	ans, err = loop.Continue(t.Context(), ans, "more")
	require.NoError(t, err)
	assert.Empty(t, ans.Items, "a part is not sent for the whole")
	srv.Forget(ans.ID)
	_, err = loop.Continue(t.Context(), ans, "and?")
	var request *fnloop.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, "previous_response_not_found", request.Code)
}

func TestFallbackIsNoAttempt(t *testing.T) {
	loop, srv := play(t, rt.Text("one"), rt.ServerError(), rt.Text("two"))
	loop.KeepItems, loop.Attempts = true, 2
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	srv.Forget(ans.ID)
	bubble(t, func(t *testing.T) {
		ans, err = loop.Continue(t.Context(), ans, "and?")
		require.NoError(t, err)
		assert.Equal(t, "two", ans.Text)
	})
}

func TestPartialOfABrokenStream(t *testing.T) {
	loop := sse(t, "text/event-stream", frames(created, delta, delta))
	_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
	assert.Equal(t, "The answer isThe answer is", ans.Partial)
	assert.Empty(t, ans.Text)
	assert.Equal(t, 1, ans.Responses)
	assert.Equal(t, 1, ans.Unmetered)
	var stream *fnloop.StreamError
	require.ErrorAs(t, err, &stream)
	assert.True(t, stream.MaybeDelivered)
	assert.Equal(t, 1, stream.Attempts)
}

func TestDeadlineDuringBackoff(t *testing.T) {
	loop, _ := play(t, rt.Error(503, "slow_down", "too busy"))
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, fnloop.StopDeadline, ans.Stop)
		var request *fnloop.RequestError
		require.ErrorAs(t, err, &request, "the last error is not lost")
		assert.Equal(t, "slow_down", request.Code)
		assert.True(t, request.MaybeDelivered)
	})
}

func TestProgramsGoOn(t *testing.T) {
	program := rt.Item(`{"type":"program","call_id":"call_p","code":"x","fingerprint":"f"}`)
	ended := rt.Item(`{"type":"program_output","call_id":"call_p","result":"1","status":"completed"}`)
	loop, _ := play(t, program, ended, rt.Text("done"))
	loop.BeforeRequest = func(context.Context, *responses.ResponseNewParams) error { return nil }
	loop.Tools = []fnloop.Tool{echo("ok", "")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)

	loop, _ = play(t, program, program, rt.Text("done"))
	loop.MaxTurns = 1
	ans, err = loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrMaxTurns)
	assert.True(t, ans.Paused)
	ans, err = loop.Continue(t.Context(), store(t, ans), "")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
}

func TestOutputThatCannotBeRead(t *testing.T) {
	for _, output := range []string{`{"type":"message"}`, `"text"`, `[{"type":7}]`, `[7]`} {
		loop, _ := play(t, rt.HTTP(200, `{"id":"resp_bad","status":"completed","output":`+output+`}`), rt.Text("done"))
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorAs(t, err, new(*fnloop.ProtocolError), output)
		assert.Empty(t, ans.ID)
		_, err = loop.Continue(t.Context(), ans, "")
		require.NoError(t, err)
	}
	ran := false
	loop, _ := play(t, rt.HTTP(200, `{"id":"resp_1","status":"completed","output":[{"type":"function_call","call_id":"call_1","name":"x","arguments":"{}","status":"in_progress"}]}`))
	loop.Tools = []fnloop.Tool{raw("x", func(context.Context) (string, error) { ran = true; return "", nil })}
	_, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrTruncated)
	assert.False(t, ran, "a call that is not finished is not run")
}

func TestKeepAliveCommentsAreLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		loop := &fnloop.Loop{Model: "m", IdleTimeout: 300 * time.Millisecond, Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, frames(created))
				for range 40 {
					time.Sleep(50 * time.Millisecond)
					io.WriteString(w, ": keep-alive\n\n")
				}
				io.WriteString(w, frames(completed))
				w.Close()
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
		}))}
		_, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.NoError(t, err)
	})
}

func TestRunAsLosesNothing(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "ok", ""), rt.Error(400, "x", "no"), rt.Text(`{"n":1}`))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	ans, err := loop.Run(t.Context(), "hi")
	require.Error(t, err)
	_, ans, err = fnloop.RunAs[map[string]int](t.Context(), loop, ans, "")
	require.ErrorAs(t, err, new(*fnloop.ConfigError))
	require.ErrorAs(t, err, new(*fnloop.SchemaError))
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.Text = responses.ResponseTextConfigParam{Verbosity: "low"}
		return nil
	}
	got, _, err := fnloop.RunAs[struct {
		N int `json:"n"`
	}](t.Context(), loop, ans, "")
	require.NoError(t, err, "the format is there whatever the hook does")
	assert.Equal(t, 1, got.N)
}

func TestHookReplacesTheInput(t *testing.T) {
	loop, srv := play(t)
	loop.State = fnloop.Stateless
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.Input = responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("other")}
		return nil
	}
	_, err := loop.Run(t.Context(), "hi")
	require.ErrorAs(t, err, new(*fnloop.ConfigError))
	assert.Empty(t, srv.Requests())
}

func TestLiveOutputKeepsRunesWhole(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "print", ""), rt.Text("done"))
	loop.Tools = []fnloop.Tool{raw("print", func(ctx context.Context) (string, error) {
		stdout, _ := fnloop.LiveOutput(ctx)
		for _, b := range []byte("né€🙂") {
			stdout.Write([]byte{b})
		}
		return "", nil
	})}
	seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	var all []string
	for _, e := range seen {
		if o, ok := e.(fnloop.CallOutput); ok {
			all = append(all, o.Text)
		}
	}
	assert.Equal(t, []string{"n", "é", "€", "🙂"}, all)
}

func TestUnusableResponseInAConversation(t *testing.T) {
	for name, reply := range map[string]rt.Reply{
		"incomplete":  rt.Incomplete("max_output_tokens", rt.Call("call_1", "ok", "{")),
		"unsupported": rt.Join(rt.Call("call_1", "ok", "{}"), rt.Item(`{"type":"tool_search_call","execution":"client","call_id":"call_2","arguments":{},"status":"completed"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, reply, rt.Text("done").Force())
			loop.State, loop.Tools = fnloop.InConversation, []fnloop.Tool{echo("ok", "yes")}
			ans, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: newConversation(t, srv)}, "hi")
			require.Error(t, err)
			assert.Equal(t, []string{"call_1"}, ans.Open, "the conversation holds the call all the same")
			ans, err = loop.Continue(t.Context(), store(t, ans), "go on")
			if name == "incomplete" {
				require.NoError(t, err)
				assert.Equal(t, "done", ans.Text)
			} else {
				require.Error(t, err, "what no Loop can answer stays open")
				_, err = http.Get(srv.URL) // leave the script's last reply to be
				require.NoError(t, err)
				loop.State = fnloop.Chained
				_, err = loop.Run(t.Context(), "start anew")
				require.NoError(t, err)
			}
		})
	}
}

func newConversation(t *testing.T, srv *rt.Server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://model.invalid/v1/conversations", strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer test")
	res, err := inProcess{srv}.RoundTrip(req)
	require.NoError(t, err)
	var doc struct{ ID string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&doc))
	require.NotEmpty(t, doc.ID)
	return doc.ID
}

func TestTypedNilClient(t *testing.T) {
	var client *responses.ResponseService
	_, err := (&fnloop.Loop{Client: client, Model: "m"}).Run(t.Context(), "hi")
	var config *fnloop.ConfigError
	require.True(t, errors.As(err, &config))
	assert.Equal(t, "Loop.Client", config.Field)
}
