package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/fake"
)

func TestLoop_Call(t *testing.T) {
	type input struct {
		Name string `json:"name"`
	}
	tool := func(fn func(context.Context, input) (string, error)) fnloop.Tool {
		return fnloop.MustTool("greet", "Greets.", fn)
	}
	hello := tool(func(ctx context.Context, in input) (string, error) {
		if w, _ := fnloop.LiveOutput(ctx); w != nil {
			io.WriteString(w, "thinking\n")
		}
		return "hello " + in.Name, nil
	})
	waits, asks := hello, hello
	waits.Timeout = time.Second
	waits.Handle = func(ctx context.Context, _ fnloop.Call) (fnloop.Output, error) {
		<-ctx.Done()
		return fnloop.Output{}, ctx.Err()
	}
	asks.NeedsApproval = fnloop.Always
	yes := &fnloop.Decision{Approve: true}
	for _, c := range []struct {
		name string
		tool fnloop.Tool
		call fnloop.Call
		want string
		bad  bool
		err  error
	}{
		{"result", hello, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":"Ada"}`)}, "hello Ada", false, nil},
		{"arguments", hello, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":7}`)}, "name: expected string, got number 7", true, nil},
		{"unknown", hello, fnloop.Call{Name: "great"}, `unknown tool "great"; the tools are: greet`, true, nil},
		{"error", tool(func(context.Context, input) (string, error) { return "", errors.New("not today") }), fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":""}`)}, "not today", true, nil},
		{"panic", tool(func(context.Context, input) (string, error) { panic("secret") }), fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":""}`)}, "the tool failed because of an internal error", true, nil},
		{"abort", tool(func(context.Context, input) (string, error) { return "", fnloop.Abort(io.ErrShortWrite) }), fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":""}`)}, "", false, io.ErrShortWrite},
		{"timeout", waits, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":""}`)}, "the tool timed out after 1s", true, nil},
		{"approval", asks, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":""}`)}, "", false, fnloop.ErrApproval},
		{"approved", asks, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":"Ada"}`), Decision: yes}, "hello Ada", false, nil},
		{"rejected", hello, fnloop.Call{Name: "greet", Arguments: json.RawMessage(`{"name":"Ada"}`), Decision: new(fnloop.Decision)}, "", false, fnloop.ErrApproval},
		{"no runner", fnloop.PythonTool(nil, fnloop.Limits{}), fnloop.Call{Name: "run_python"}, "", false, new(fnloop.ConfigError)},
	} {
		synctest.Test(t, func(t *testing.T) {
			loop := &fnloop.Loop{Tools: []fnloop.Tool{c.tool}}
			var events []fnloop.Event
			res, err := loop.Call(t.Context(), c.call, func(e fnloop.Event) { events = append(events, e) })
			if _, config := c.err.(*fnloop.ConfigError); config {
				require.ErrorAs(t, err, new(*fnloop.ConfigError), c.name)
				return
			}
			require.ErrorIs(t, err, c.err, c.name)
			assert.Equal(t, c.want, res.Text, c.name)
			assert.Equal(t, c.bad, res.IsError, c.name)
			if c.want == "hello Ada" {
				assert.Equal(t, []fnloop.Event{fnloop.CallOutput{Stream: "stdout", Text: "thinking\n"}}, events)
			}
		})
	}
}

// What a call within a handler emits to nobody reaches the reader of the outer call,
// before it ends and after.
func TestLoop_Call_within(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := func(ctx context.Context, text string) {
			if w, _ := fnloop.LiveOutput(ctx); w != nil {
				io.WriteString(w, text)
			}
		}
		inner := &fnloop.Loop{Tools: []fnloop.Tool{raw("inner", func(ctx context.Context) (string, error) {
			say(ctx, "within")
			return "in", nil
		})}}
		outer := &fnloop.Loop{Tools: []fnloop.Tool{raw("outer", func(ctx context.Context) (string, error) {
			res, err := inner.Call(ctx, fnloop.Call{ID: "2", Name: "inner"}, nil)
			say(ctx, "after")
			call, _ := fnloop.CallFrom(ctx)
			return res.Text + " " + call.Name, err
		})}}
		var events []fnloop.Event
		res, err := outer.Call(t.Context(), fnloop.Call{ID: "1", Name: "outer"}, func(e fnloop.Event) { events = append(events, e) })
		require.NoError(t, err)
		assert.Equal(t, "in outer", res.Text)
		assert.Equal(t, []fnloop.Event{
			fnloop.CallOutput{ID: "1", Stream: "stdout", Text: "within"}, fnloop.CallOutput{ID: "1", Stream: "stdout", Text: "after"},
		}, events)
	})
}

// The end of the caller's context ends a call, and is no result.
func TestLoop_Call_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &fnloop.Loop{Tools: []fnloop.Tool{fnloop.PythonTool(&fake.Runner{Delay: time.Hour}, fnloop.Limits{Time: 2 * time.Hour})}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := loop.Call(ctx, fnloop.Call{Name: "run_python", Arguments: json.RawMessage(`{"code":"pass"}`)}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

func TestLoop_DescribeTools(t *testing.T) {
	plain := fnloop.Tool{Name: "plain", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) { return fnloop.Output{}, nil }}
	loop := &fnloop.Loop{Tools: []fnloop.Tool{fnloop.PythonTool(&fake.Runner{}, fnloop.Limits{Time: time.Second}), plain}}
	tools, err := loop.DescribeTools(t.Context())
	require.NoError(t, err)
	assert.Contains(t, tools[0].Description, "A program may run for 1s.")
	assert.JSONEq(t, `{"type":"object","properties":{},"required":[],"additionalProperties":false}`, string(tools[1].Parameters))
	assert.Nil(t, loop.Tools[1].Parameters, "the Loop's own are not changed")

	code := &fnloop.Loop{Tools: []fnloop.Tool{fnloop.CodeTool(&fake.Runner{Env: fnloop.Environment{Languages: someLanguages}}, fnloop.Limits{})}}
	tools, err = code.DescribeTools(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(tools[0].Parameters), `"bash"`, "the languages are the runner's")

	loop.Tools[1].Name = "run_python"
	_, err = loop.DescribeTools(t.Context())
	require.ErrorContains(t, err, `"run_python" is the name of Tools[0] too`)
}
