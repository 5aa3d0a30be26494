package fnloop_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// progress is an event of a tool's own.
type progress struct {
	Call    string `json:"call"`
	Percent int    `json:"percent"`
}

func (progress) Type() string { return "progress" }

func TestEmit(t *testing.T) {
	var after func() bool
	work := raw("work", func(ctx context.Context) (string, error) {
		call, ok := fnloop.CallFrom(ctx)
		require.True(t, ok)
		for _, p := range []int{10, 90} {
			fnloop.Emit(ctx, progress{call.ID, p})
		}
		after = func() bool { return fnloop.Emit(ctx, progress{call.ID, 100}) }
		return "done", nil
	})
	t.Run("in order, between start and finish", func(t *testing.T) {
		loop, _ := play(t, rt.Call("c1", "work", `{}`), rt.Text("ok"))
		loop.Tools = []fnloop.Tool{work}
		var types []string
		var got []fnloop.Event
		for e, err := range loop.Events(t.Context(), nil, "Go.") {
			require.NoError(t, err)
			switch e.(type) {
			case fnloop.CallStarted, progress, fnloop.CallFinished:
				types, got = append(types, e.Type()), append(got, e)
			}
		}
		require.Equal(t, []string{"call_started", "progress", "progress", "call_finished"}, types)
		assert.Equal(t, progress{"c1", 10}, got[1])
		assert.False(t, after(), "a handler that has returned has no place among the events")
	})
	t.Run("nobody reads", func(t *testing.T) {
		loop, _ := play(t, rt.Call("c1", "work", `{}`), rt.Text("ok"))
		loop.Tools = []fnloop.Tool{work}
		_, err := loop.Run(t.Context(), "Go.")
		require.NoError(t, err)
		assert.False(t, after())
		assert.False(t, fnloop.Emit(t.Context(), progress{}), "outside of a handler")
	})
	t.Run("to a browser", func(t *testing.T) {
		loop, _ := play(t, rt.Call("c1", "work", `{}`), rt.Text("ok"))
		loop.Tools = []fnloop.Tool{work}
		rec := httptest.NewRecorder()
		require.NoError(t, fnloop.WriteSSE(rec, loop.Events(t.Context(), nil, "Go.")))
		assert.Contains(t, rec.Body.String(), "event: progress\ndata: {\"type\":\"progress\",\"call\":\"c1\",\"percent\":90}\n\n")
	})
}

// TestOrdered: calls that build on each other run in call order, and hold up
// nobody else.
func TestOrdered(t *testing.T) {
	loop, _ := play(t, rt.Join(
		rt.Call("a1", "step", `{}`), rt.Call("b1", "free", `{}`), rt.Call("a2", "step", `{}`), rt.Call("a3", "step", `{}`), rt.Call("b2", "free", `{}`),
	), rt.Text("ok"))
	freed := make(chan struct{}, 2)
	var order []string // written without a lock: the race detector sees two at once
	step := fnloop.Tool{Name: "step", Ordered: true, Handle: func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) {
		if len(order) == 0 { // both calls of the other tool finish while the first step waits
			<-freed
			<-freed
		}
		order = append(order, c.ID)
		return fnloop.Output{Text: "ok"}, nil
	}}
	loop.Tools = []fnloop.Tool{step, raw("free", func(context.Context) (string, error) { freed <- struct{}{}; return "", nil })}
	a, err := loop.Run(t.Context(), "Go.")
	require.NoError(t, err)
	assert.Equal(t, []string{"a1", "a2", "a3"}, order)
	var outputs []string
	for _, c := range a.Calls {
		outputs = append(outputs, c.ID)
	}
	assert.Equal(t, []string{"a1", "b1", "a2", "a3", "b2"}, outputs, "outputs stay in call order")
}
