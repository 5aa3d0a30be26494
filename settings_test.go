package fnloop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// calls are replies that each call a tool once.
func calls(n int, tool string) []rt.Reply {
	out := make([]rt.Reply, n)
	for i := range out {
		out[i] = rt.Call(fmt.Sprintf("call_%d", i+1), tool, "")
	}
	return out
}

// A negative number is none of what the field sets, and so is a negative
// duration.
func TestNegativeIsNone(t *testing.T) {
	t.Run("MaxTurns", func(t *testing.T) {
		n := 3 * fnloop.DefaultMaxTurns
		loop, _ := play(t, append(calls(n, "ok"), rt.Text("done"))...)
		loop.Tools = []fnloop.Tool{echo("ok", "yes")}
		loop.MaxTurns, loop.FinalAnswer = -1, true
		answer, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, n, answer.Turns)
	})
	t.Run("MaxRepeats", func(t *testing.T) {
		loop, _ := play(t, append(calls(6, "ok"), rt.Text("done"))...)
		loop.Tools = []fnloop.Tool{echo("ok", "yes")}
		loop.MaxRepeats = -1
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	})
	t.Run("Parallel", func(t *testing.T) {
		n := 3 * fnloop.DefaultParallel
		loop, _ := play(t, rt.Join(calls(n, "meet")...), rt.Text("done"))
		loop.Parallel = -1
		bubble(t, func(t *testing.T) {
			came, all := make(chan struct{}, n), make(chan struct{})
			loop.Tools = []fnloop.Tool{raw("meet", func(context.Context) (string, error) {
				if came <- struct{}{}; len(came) == n {
					close(all)
				}
				<-all // with fewer at once the bubble would be stuck
				return "", nil
			})}
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
		})
	})
	t.Run("MaxOutput", func(t *testing.T) {
		long := strings.Repeat("x", 2*fnloop.DefaultMaxOutput)
		for text, want := range map[string]string{long: long, long + "\xff": long + "\ufffd"} {
			loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
			loop.Tools = []fnloop.Tool{echo("ok", text)}
			loop.MaxOutput = -1
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, want, outputs(t, posts(t, srv)[1])[1])
		}
	})
	t.Run("Grace", func(t *testing.T) {
		loop, _ := play(t, rt.Call("call_1", "deaf", ""), rt.Text("done"))
		loop.Grace = -1
		bubble(t, func(t *testing.T) {
			tool := raw("deaf", func(context.Context) (string, error) { time.Sleep(time.Minute); return "", nil })
			tool.Timeout = time.Second
			loop.Tools = []fnloop.Tool{tool}
			start := time.Now()
			answer, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, time.Second, time.Since(start))
			assert.Equal(t, 1, answer.Abandoned)
			time.Sleep(time.Minute) // the bubble waits for all that it started
		})
	})
	t.Run("Tool.Timeout", func(t *testing.T) {
		loop, _ := play(t, rt.Call("call_1", "slow", ""), rt.Text("done"))
		bubble(t, func(t *testing.T) {
			tool := raw("slow", func(ctx context.Context) (string, error) { return "yes", nap(ctx, 24*time.Hour) })
			tool.Timeout = -1
			loop.Tools = []fnloop.Tool{tool}
			answer, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, "yes", answer.Calls[0].Text)
		})
	})
	t.Run("Attempts", func(t *testing.T) {
		loop, srv := play(t, rt.ServerError())
		loop.Attempts = -1
		_, err := loop.Run(t.Context(), "hi")
		var failed *fnloop.RequestError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 1, failed.Attempts)
		assert.Len(t, srv.Requests(), 1)
	})
	t.Run("MaxRetryWait", func(t *testing.T) {
		loop, _ := play(t, rt.RateLimited(10*time.Hour), rt.Text("done"))
		loop.MaxRetryWait = -1
		bubble(t, func(t *testing.T) {
			start := time.Now()
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, 10*time.Hour, time.Since(start))
		})
	})
	t.Run("IdleTimeout", func(t *testing.T) {
		loop, _ := play(t, rt.Text("done").After(10*time.Hour))
		loop.IdleTimeout = -1
		bubble(t, func(t *testing.T) {
			_, answer, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.NoError(t, err)
			assert.Equal(t, "done", answer.Text)
		})
	})
}
