package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// nap waits like a handler that honours its context.
func nap(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func napper(name string, d time.Duration) fnloop.Tool {
	return raw(name, func(ctx context.Context) (string, error) { return name, nap(ctx, d) })
}

func TestOutputsAreInCallOrder(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "slow", ""), rt.Call("call_2", "fast", "")), rt.Text("done"))
	loop.Tools = []fnloop.Tool{napper("slow", 50*time.Millisecond), napper("fast", 0)}
	bubble(t, func(t *testing.T) {
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	})
	assert.Equal(t, []string{"call_1", "slow", "call_2", "fast"}, outputs(t, posts(t, srv)[1]))
}

func TestParallel(t *testing.T) {
	calls := func(n int, name string) rt.Reply {
		var all []rt.Reply
		for i := range n {
			all = append(all, rt.Call(fmt.Sprintf("call_%d", i), name, ""))
		}
		return rt.Join(all...)
	}
	for _, tt := range []struct {
		name     string
		calls    int
		parallel int
		serial   bool
		want     time.Duration
	}{
		{"default", 8, 0, false, 100 * time.Millisecond},
		{"two at once", 8, 2, false, 400 * time.Millisecond},
		{"in order", 3, 1, false, 300 * time.Millisecond},
		{"serial tool", 3, 8, true, 300 * time.Millisecond},
		{"more than the limit", 9, 0, false, 200 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, _ := play(t, calls(tt.calls, "nap"), rt.Text("done"))
			tool := napper("nap", 100*time.Millisecond)
			tool.Serial = tt.serial
			loop.Tools, loop.Parallel = []fnloop.Tool{tool}, tt.parallel
			bubble(t, func(t *testing.T) {
				start := time.Now()
				_, err := loop.Run(t.Context(), "hi")
				require.NoError(t, err)
				assert.Equal(t, tt.want, time.Since(start))
			})
		})
	}
}

func TestSerialRunsBesideNoOther(t *testing.T) {
	loop, _ := play(t, rt.Join(
		rt.Call("call_1", "read", ""), rt.Call("call_2", "read", ""), rt.Call("call_3", "write", ""),
		rt.Call("call_4", "read", ""), rt.Call("call_5", "write", ""), rt.Call("call_6", "write", "")), rt.Text("done"))
	var mu sync.Mutex
	running := map[string]int{}
	track := func(name string, serial bool) fnloop.Tool {
		tool := raw(name, func(ctx context.Context) (string, error) {
			mu.Lock()
			running[name]++
			if running["write"] > 1 || running["write"] == 1 && running["read"] > 0 {
				t.Errorf("beside each other: %v", running)
			}
			mu.Unlock()
			err := nap(ctx, 10*time.Millisecond)
			mu.Lock()
			running[name]--
			mu.Unlock()
			return "", err
		})
		tool.Serial = serial
		return tool
	}
	loop.Tools = []fnloop.Tool{track("read", false), track("write", true)}
	bubble(t, func(t *testing.T) {
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	})
}

func TestToolErrors(t *testing.T) {
	netErr := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")}
	var logs bytes.Buffer
	for _, tt := range []struct {
		name, why string
		handle    func(context.Context) (string, error)
		want      string
		panicked  bool
	}{
		{"error", "the model reads an ordinary error", func(context.Context) (string, error) { return "", errBoom }, "boom", false},
		{"network error", "a tool's network is not ours to retry", func(context.Context) (string, error) { return "", netErr }, netErr.Error(), false},
		{"own deadline", "it is not the tool's limit", func(context.Context) (string, error) {
			return "", fmt.Errorf("fetch: %w", context.DeadlineExceeded)
		}, "fetch: context deadline exceeded", false},
		{"own cancel", "nor the caller's", func(context.Context) (string, error) { return "", context.Canceled }, "context canceled", false},
		{"empty error", "the model needs some text", func(context.Context) (string, error) { return "", errors.New("") }, "the tool failed", false},
		{"text for the model", "the error is for the host then", func(context.Context) (string, error) { return "try later", errBoom }, "try later", false},
		{"panic", "no stack reaches the model", func(context.Context) (string, error) {
			var m map[string]int
			m["a"] = 1
			return "", nil
		}, "the tool failed because of an internal error", true},
		{"nil panic", "like any other", func(context.Context) (string, error) { panic(nil) }, "the tool failed because of an internal error", true},
		{"abort handler", "net/http's special value is none here", func(context.Context) (string, error) { panic(http.ErrAbortHandler) }, "the tool failed because of an internal error", true},
		{"error that panics", "its text is asked for", func(context.Context) (string, error) { return "", (*hostileError)(nil) }, "the tool failed because of an internal error", true},
		{"goexit", "what t.FailNow does", func(context.Context) (string, error) { runtime.Goexit(); return "", nil }, "the tool failed because of an internal error", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t, rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_2", "bad", ""), rt.Call("call_3", "ok", "")), rt.Text("done"))
			loop.Tools = []fnloop.Tool{echo("ok", "yes"), raw("bad", tt.handle)}
			logs.Reset()
			loop.Logger = slog.New(slog.NewTextHandler(&logs, nil))
			ans, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err, tt.why)
			assert.Equal(t, []string{"call_1", "yes", "call_2", tt.want, "call_3", "yes"}, outputs(t, posts(t, srv)[1]))
			require.Len(t, ans.Calls, 3)
			assert.True(t, ans.Calls[1].IsError)
			var p *fnloop.PanicError
			assert.Equal(t, tt.panicked, errors.As(ans.Calls[1].Err, &p))
			if tt.panicked {
				assert.Contains(t, string(p.Stack), "round_test.go", "the caller gets the stack")
				assert.Contains(t, logs.String(), "round_test.go", "and so does the log")
			}
			store(t, ans)
		})
	}
}

type hostileError struct{ text string }

func (e *hostileError) Error() string { return e.text }

func TestUnknownTool(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "run_pyhton", "{}").Force(), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("run_python", ""), echo("other", "")}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, []string{"call_1", `unknown tool "run_pyhton"; the tools are: run_python, other`}, outputs(t, posts(t, srv)[1]))
}

func TestBadCallsStop(t *testing.T) {
	for name, call := range map[string]rt.Reply{
		"unknown tool":  rt.Call("", "run_pyhton", "{}").Force(),
		"bad arguments": rt.Call("", "add", `{"a":"one"}`),
	} {
		t.Run(name, func(t *testing.T) {
			loop, srv := play(t, call, call, call, call, rt.Text("done"))
			loop.Tools = []fnloop.Tool{adder()}
			ans, err := loop.Run(t.Context(), "hi")
			require.ErrorIs(t, err, fnloop.ErrBadCalls)
			assert.Equal(t, fnloop.StopBadCalls, ans.Stop)
			assert.Less(t, ans.Turns, fnloop.DefaultMaxTurns, "before the limit of turns")
			ans, err = loop.Continue(t.Context(), store(t, ans), "")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
			assert.Len(t, outputs(t, posts(t, srv)[4]), 2)
		})
	}
	t.Run("a good call between", func(t *testing.T) {
		good := rt.Call("", "add", `{"a":1,"b":1}`)
		bad := rt.Call("", "add", `{}`)
		loop, _ := play(t, bad, bad, bad, good, bad, bad, bad, rt.Text("done"))
		loop.Tools = []fnloop.Tool{adder()}
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	})
}

func TestRepeating(t *testing.T) {
	call := rt.Call("", "ok", `{}`)
	loop, _ := play(t, call, call, call)
	loop.Tools, loop.MaxRepeats = []fnloop.Tool{echo("ok", "same")}, 1
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrRepeating)
	assert.Equal(t, fnloop.StopRepeating, ans.Stop)

	loop, _ = play(t, call, call, call, call, rt.Text("done"))
	n := 0
	loop.Tools, loop.MaxRepeats = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { n++; return fmt.Sprint(n), nil })}, 1
	_, err = loop.Run(t.Context(), "hi")
	require.NoError(t, err, "other outputs are progress")
}

func TestAbort(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_2", "abort", ""), rt.Call("call_3", "slow", ""), rt.Call("call_4", "after", "")), rt.Text("done"))
	after := echo("after", "")
	after.Serial = true
	ran := 0
	loop.Tools = []fnloop.Tool{
		raw("ok", func(context.Context) (string, error) { ran++; return "yes", nil }),
		raw("abort", func(ctx context.Context) (string, error) {
			nap(ctx, time.Second)
			return "", fmt.Errorf("wrapped: %w", fnloop.Abort(errBoom))
		}),
		napper("slow", time.Hour), after,
	}
	bubble(t, func(t *testing.T) {
		start := time.Now()
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, errBoom)
		var tool *fnloop.ToolError
		require.ErrorAs(t, err, &tool)
		assert.Equal(t, "call_2", tool.Call.ID)
		assert.Equal(t, time.Second, time.Since(start), "siblings are cancelled and waited for")
		assert.Equal(t, fnloop.StopAborted, ans.Stop)
		require.Len(t, ans.Calls, 1, "what finished is kept")
		require.Len(t, ans.Pending, 3)
		assert.Equal(t, []string{"call_1", "call_2", "call_3", "call_4"}, ans.Open)

		_, err = loop.Continue(t.Context(), store(t, ans), "and now?")
		require.NoError(t, err)
		assert.Equal(t, 1, ran, "finished calls are not run again")
	})
	const interrupted = "interrupted: the run ended while this call was running; it has no output, and what it did is not known"
	assert.Equal(t, []string{"call_1", "yes", "call_2", interrupted, "call_3", interrupted,
		"call_4", "not run: the run ended before this call was started"}, outputs(t, posts(t, srv)[1]))
	assert.NotContains(t, string(srv.Requests()[1].Body), "boom", "the model never reads the error")
}

func TestAbortNil(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "abort", ""))
	loop.Tools = []fnloop.Tool{raw("abort", func(context.Context) (string, error) { return "", fnloop.Abort(nil) })}
	ans, err := loop.Run(t.Context(), "hi")
	require.Error(t, err)
	assert.Equal(t, fnloop.StopAborted, ans.Stop)
}

func TestClocks(t *testing.T) {
	obedient := func(ctx context.Context) (string, error) { return "", nap(ctx, time.Hour) }
	deaf := func(context.Context) (string, error) { time.Sleep(5 * time.Second); return "too late", nil }
	for _, tt := range []struct {
		name, why string
		limit     time.Duration
		ctx       func(context.Context) (context.Context, context.CancelFunc)
		handle    func(context.Context) (string, error)
		output    string // "" means that nothing is posted
		is        error
		stop      fnloop.StopReason
		took      time.Duration
		abandoned int
	}{
		{"tool limit", "a result for the model", 50 * time.Millisecond, nil, obedient,
			"the tool timed out after 50ms", nil, fnloop.StopAnswered, 50 * time.Millisecond, 0},
		{"tool limit, deaf handler", "it is left behind after the grace period", 50 * time.Millisecond, nil, deaf,
			"the tool timed out after 50ms", nil, fnloop.StopAnswered, 50*time.Millisecond + fnloop.DefaultGrace, 1},
		{"tool limit, result all the same", "what it has counts", 50 * time.Millisecond, nil,
			func(ctx context.Context) (string, error) { <-ctx.Done(); return "partial", nil }, "partial", nil, fnloop.StopAnswered, 50 * time.Millisecond, 0},
		{"caller cancels", "the end of the run", time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}, obedient, "", context.Canceled, fnloop.StopCancelled, 10 * time.Millisecond, 0},
		{"caller cancels with a cause", "the cause is the caller's own word", time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(10*time.Millisecond, func() { cancel(errBoom) })
			return ctx, func() { cancel(nil) }
		}, obedient, "", errBoom, fnloop.StopCancelled, 10 * time.Millisecond, 0},
		{"caller's deadline", "shorter than the tool's limit", time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		}, obedient, "", context.DeadlineExceeded, fnloop.StopDeadline, 10 * time.Millisecond, 0},
		{"caller cancels a deaf handler", "the run does not wait for ever", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		}, deaf, "", context.DeadlineExceeded, fnloop.StopDeadline, 10*time.Millisecond + fnloop.DefaultGrace, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t, rt.Call("call_1", "nap", ""), rt.Text("done"))
			tool := raw("nap", tt.handle)
			tool.Timeout = tt.limit
			loop.Tools = []fnloop.Tool{tool}
			bubble(t, func(t *testing.T) {
				ctx, cancel := t.Context(), func() {}
				if tt.ctx != nil {
					ctx, cancel = tt.ctx(ctx)
				}
				defer cancel()
				defer time.Sleep(10 * time.Second) // until the deaf handler is done
				start := time.Now()
				ans, err := loop.Run(ctx, "hi")
				assert.Equal(t, tt.took, time.Since(start), tt.why)
				assert.Equal(t, tt.stop, ans.Stop)
				assert.Equal(t, tt.abandoned, ans.Abandoned)
				if tt.is == nil {
					require.NoError(t, err)
					assert.Equal(t, []string{"call_1", tt.output}, outputs(t, posts(t, srv)[1]))
					return
				}
				require.ErrorIs(t, err, tt.is)
				require.ErrorIs(t, err, ctx.Err())
				require.Len(t, srv.Requests(), 1, "no output is posted")
				require.Len(t, ans.Pending, 1)
				assert.True(t, ans.Pending[0].Started)
				_, err = loop.Continue(t.Context(), store(t, ans), "hi again")
				require.NoError(t, err)
			})
		})
	}
}

func TestCancelKeepsWhatFinished(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "slow", ""), rt.Call("call_2", "fast", ""), rt.Call("call_3", "slow", "")), rt.Text("done"))
	loop.Tools, loop.Parallel = []fnloop.Tool{napper("slow", time.Hour), napper("fast", 0)}, 2
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = loop.Continue(t.Context(), store(t, ans), "hi")
		require.NoError(t, err)
	})
	got := outputs(t, posts(t, srv)[1])
	require.Len(t, got, 6)
	assert.Contains(t, got[1], "interrupted")
	assert.Equal(t, []string{"call_2", "fast"}, got[2:4], "in call order")
	assert.Contains(t, got[5], "interrupted")
}

// A run that is cancelled while many handlers finish leaves nothing behind.
func TestCancelRace(t *testing.T) {
	var calls []rt.Reply
	for range 8 {
		calls = append(calls, rt.Call("", "nap", ""))
	}
	srv := rt.NewServer(rt.PerConversation(rt.Join(calls...), rt.Text("done")))
	defer srv.Close()
	loop := &fnloop.Loop{Client: service(srv), Model: "m", Tools: []fnloop.Tool{napper("nap", time.Millisecond)}}
	for range 300 {
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			ans, err := loop.Run(ctx, "hi")
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 8, len(ans.Pending)+len(ans.Calls))
				_, err = loop.Continue(t.Context(), ans, "again")
			}
			require.NoError(t, err)
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "big", ""), rt.Call("call_2", "bad", ""), rt.Call("call_3", "none", "")), rt.Text("done"))
	loop.Tools = []fnloop.Tool{
		echo("big", "HEAD"+strings.Repeat("€", 7<<20)+"TAIL"),
		echo("bad", "a\xffb"),
		echo("none", ""),
	}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	out := outputs(t, posts(t, srv)[1])
	big := out[1]
	assert.LessOrEqual(t, len(big), fnloop.DefaultMaxOutput)
	assert.True(t, strings.HasPrefix(big, "HEAD€") && strings.HasSuffix(big, "€TAIL"))
	assert.Contains(t, big, "bytes left out")
	assert.NotContains(t, big, "\ufffd")
	assert.Equal(t, "a\ufffdb", out[3])
	assert.Equal(t, "", out[5], "an empty output is sent, not left out")
	assert.Len(t, ans.Calls[0].Text, len(big))
}

func TestCallIDIsNotTheItemID(t *testing.T) {
	loop, srv := play(t, rt.Item(`{"type":"function_call","id":"fc_9","call_id":"call_1","name":"ok","arguments":"{}"}`), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "")}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "call_1", outputs(t, posts(t, srv)[1])[0])
	assert.NotContains(t, string(srv.Requests()[1].Body), "fc_9")
}

func TestAnswerJSON(t *testing.T) {
	loop, _ := play(t,
		rt.Join(
			rt.Call("call_1", "ok", `{ "code" : "print(1 < 2 && \"\\u003c\")\n# é"}`),
			rt.Call("call_2", "ok", `{"code":`),
			rt.Call("call_3", "ok", `["not an object"]`),
			rt.Call("call_4", "ok", ``),
			rt.Call("call_5", "ok", `"a string"`),
		),
		rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "<yes>")}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	store(t, ans)
	b, err := json.Marshal(ans)
	require.NoError(t, err)
	var doc struct {
		Calls []map[string]any `json:"calls"`
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	assert.ElementsMatch(t, []string{"turn", "id", "name", "arguments", "output", "is_error", "duration_ms"}, keys(doc.Calls[3]))
	assert.Contains(t, doc.Calls[0], "arguments_text", "its white space would be lost")
	assert.IsType(t, map[string]any{}, doc.Calls[0]["arguments"], "an object is an object")
	assert.Equal(t, `{"code":`, doc.Calls[1]["arguments"], "anything else is a string of its text")
	b, err = json.Marshal(fnloop.Call{Turn: 1, ID: "call_1", Name: "ok", Arguments: []byte("{}")})
	require.NoError(t, err)
	assert.JSONEq(t, `{"turn":1,"id":"call_1","name":"ok","arguments":{}}`, string(b))
}

func keys(m map[string]any) (ks []string) {
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

// Calls that run side by side start in the order in which the model wrote them.
func TestCallsStartInOrder(t *testing.T) {
	for _, parallel := range []int{0, 3, 1} {
		var calls []rt.Reply
		var want []string
		for i := range 9 {
			id := fmt.Sprint("call_", i)
			calls, want = append(calls, rt.Call(id, "nap", "")), append(want, id)
		}
		loop, _ := play(t, rt.Join(calls...), rt.Text("done"))
		loop.Parallel = parallel
		var mu sync.Mutex
		var ran []string
		loop.Tools = []fnloop.Tool{{Name: "nap", Handle: func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) {
			mu.Lock()
			ran = append(ran, c.ID)
			mu.Unlock()
			return fnloop.Output{}, nap(ctx, time.Second)
		}}}
		bubble(t, func(t *testing.T) {
			var started []string
			for e := range loop.Events(t.Context(), nil, "hi") {
				if c, ok := e.(fnloop.CallStarted); ok {
					started = append(started, c.ID)
				}
			}
			assert.Equal(t, want, started)
			assert.ElementsMatch(t, want, ran)
		})
	}
}

// What a handler's goroutines still print when it has returned comes before the
// call's end or not at all.
func TestNothingComesAfterACallFinished(t *testing.T) {
	for range 50 {
		loop, _ := play(t, rt.Join(rt.Call("call_1", "leaks", ""), rt.Call("call_2", "works", "")), rt.Text("done"))
		var writers sync.WaitGroup
		returned := make(chan struct{})
		loop.Tools = []fnloop.Tool{
			raw("leaks", func(ctx context.Context) (string, error) {
				defer close(returned)
				for range 4 {
					writers.Go(func() {
						out, _ := fnloop.LiveOutput(ctx)
						for range 20 {
							io.WriteString(out, "x")
						}
					})
					writers.Go(func() { fnloop.Emit(ctx, fnloop.CallOutput{ID: "call_1", Text: "y"}) })
				}
				return "", nil
			}),
			raw("works", func(ctx context.Context) (string, error) {
				<-returned
				writers.Wait()
				return "", nil
			}),
		}
		over := false
		for e, err := range loop.Events(t.Context(), nil, "hi") {
			require.NoError(t, err)
			switch e := e.(type) {
			case fnloop.CallFinished:
				over = over || e.ID == "call_1"
			case fnloop.CallOutput:
				require.False(t, over, "output came after its call had finished")
			}
		}
	}
}
