package fnloop_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

type pathKey struct{}

func pathOf(ctx context.Context) string {
	s, _ := ctx.Value(pathKey{}).(string)
	return s
}

// A pathObserver notes the path of each operation, and how it ended.
type pathObserver struct {
	mu           sync.Mutex
	began, ended []string
	runs         []fnloop.RunInfo
	responses    []fnloop.ResponseEnd
	calls        map[string]fnloop.CallEnd
}

func (o *pathObserver) begin(ctx context.Context, name string) context.Context {
	name = strings.TrimPrefix(pathOf(ctx)+"/"+name, "/")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = append(o.began, name)
	return context.WithValue(ctx, pathKey{}, name)
}

func (o *pathObserver) end(ctx context.Context, note func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, pathOf(ctx))
	note()
}

func (o *pathObserver) ObserveRun(ctx context.Context, info fnloop.RunInfo) (context.Context, func(*fnloop.Answer, error)) {
	ctx = o.begin(ctx, "run")
	o.runs = append(o.runs, info)
	return ctx, func(*fnloop.Answer, error) { o.end(ctx, func() {}) }
}

func (o *pathObserver) ObserveResponse(ctx context.Context, info fnloop.ResponseInfo) (context.Context, func(fnloop.ResponseEnd)) {
	ctx = o.begin(ctx, "response")
	return ctx, func(e fnloop.ResponseEnd) { o.end(ctx, func() { o.responses = append(o.responses, e) }) }
}

func (o *pathObserver) ObserveCall(ctx context.Context, info fnloop.CallInfo) (context.Context, func(fnloop.CallEnd)) {
	ctx = o.begin(ctx, info.Name)
	return ctx, func(e fnloop.CallEnd) { o.end(ctx, func() { o.calls[info.ID] = e }) }
}

// observed plays a script to a Loop whose transport notes the path that each
// request is sent in.
func observed(t *testing.T, tools []fnloop.Tool, script ...rt.Reply) (*fnloop.Loop, *pathObserver, func() []string) {
	t.Helper()
	loop, srv := play(t, script...)
	var mu sync.Mutex
	var sent []string
	service := client(roundTrip(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		sent = append(sent, pathOf(req.Context()))
		mu.Unlock()
		return inProcess{srv}.RoundTrip(req)
	}))
	service.Options = append(service.Options, option.WithMaxRetries(0))
	obs := &pathObserver{calls: make(map[string]fnloop.CallEnd)}
	loop.Client, loop.Tools, loop.Observer = service, tools, obs
	return loop, obs, func() []string { return sent }
}

func TestObserver(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		inner, _ := play(t, rt.Text("4"))
		var inHandler sync.Map
		handler := func(name string, err error) fnloop.Tool {
			return raw(name, func(ctx context.Context) (string, error) {
				inHandler.Store(name, pathOf(ctx))
				return "ok", err
			})
		}
		tools := []fnloop.Tool{handler("one", nil), handler("two", errBoom), raw("sub", func(ctx context.Context) (string, error) {
			a, err := inner.Run(ctx, "2+2?")
			return a.Text, err
		})}
		loop, obs, sent := observed(t, tools,
			rt.Join(rt.Call("c1", "one", `{}`), rt.Call("c2", "two", `{}`), rt.Call("c3", "sub", `{}`)),
			rt.Text("Done."))
		inner.Observer = obs
		run := func() (a *fnloop.Answer, err error) {
			if !streamed {
				return loop.Run(t.Context(), "Go.")
			}
			for e, eventErr := range loop.Events(t.Context(), nil, "Go.") {
				if done, ok := e.(fnloop.Done); ok {
					a, err = done.Answer, eventErr
				}
			}
			return a, err
		}
		a, err := run()
		require.NoError(t, err)
		assert.Equal(t, "Done.", a.Text)

		want := []string{"run", "run/response", "run/one", "run/two", "run/sub", "run/sub/run", "run/sub/run/response", "run/response"}
		assert.ElementsMatch(t, want, obs.began, "a run within a handler stands below its call")
		assert.ElementsMatch(t, obs.began, obs.ended, "each operation ends once")
		assert.Equal(t, []string{"run/response", "run/response"}, sent(), "requests are sent in the context of their response")
		one, _ := inHandler.Load("one")
		assert.Equal(t, "run/one", one, "a handler has the context of its call")

		assert.Equal(t, "ok", obs.calls["c1"].Result.Text)
		assert.ErrorIs(t, obs.calls["c2"].Result.Err, errBoom)
		outer := obs.responses[0]
		assert.True(t, slices.IsSortedFunc(outer.Calls, func(x, y fnloop.Call) int { return strings.Compare(x.ID, y.ID) }))
		assert.Len(t, outer.Calls, 3)
		assert.Equal(t, "completed", outer.Status)
		assert.Equal(t, 1, outer.Attempts)
		assert.Positive(t, outer.Usage.TotalTokens)
		assert.Equal(t, streamed, outer.FirstEvent > 0, "only a stream has a first event")
		assert.Equal(t, "Done.", obs.responses[len(obs.responses)-1].Text)
	}
}

func TestObserverOfFailures(t *testing.T) {
	t.Run("retries are within one response", func(t *testing.T) {
		loop, obs, sent := observed(t, nil, rt.Error(503, "server_error", "busy"), rt.Text("ok"))
		bubble(t, func(t *testing.T) {
			_, err := loop.Run(t.Context(), "Go.")
			require.NoError(t, err)
			assert.Equal(t, []string{"run", "run/response"}, obs.began)
			assert.Len(t, sent(), 2)
			assert.Equal(t, 2, obs.responses[0].Attempts)
			assert.NoError(t, obs.responses[0].Err)
		})
	})
	t.Run("a request that fails", func(t *testing.T) {
		loop, obs, _ := observed(t, nil, rt.Error(400, "invalid_value", "no"))
		_, err := loop.Run(t.Context(), "Go.")
		require.Error(t, err)
		assert.Equal(t, err, obs.responses[0].Err)
		assert.Empty(t, obs.responses[0].ID)
	})
	t.Run("a tool that stops the run", func(t *testing.T) {
		stop := raw("stop", func(context.Context) (string, error) { return "", fnloop.Abort(errBoom) })
		loop, obs, _ := observed(t, []fnloop.Tool{stop}, rt.Call("c1", "stop", `{}`))
		_, err := loop.Run(t.Context(), "Go.")
		require.ErrorIs(t, err, errBoom)
		assert.Nil(t, obs.calls["c1"].Result)
		assert.ErrorIs(t, obs.calls["c1"].Err, errBoom)
	})
	t.Run("a caller that cancels", func(t *testing.T) {
		cause := errors.New("closed the tab")
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := raw("wait", func(ctx context.Context) (string, error) { cancel(cause); <-ctx.Done(); return "", ctx.Err() })
		loop, obs, _ := observed(t, []fnloop.Tool{wait}, rt.Call("c1", "wait", `{}`))
		_, err := loop.Run(ctx, "Go.")
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, obs.calls["c1"].Err, cause)
		assert.ElementsMatch(t, obs.began, obs.ended)
	})
	t.Run("a run that sends nothing", func(t *testing.T) {
		loop, obs, sent := observed(t, nil)
		_, err := loop.Run(t.Context(), "")
		require.Error(t, err)
		assert.Equal(t, []string{"run"}, obs.ended)
		assert.Empty(t, sent())
	})
}

// careless is an Observer that panics wherever it can, and returns no context.
type careless struct{}

func (careless) ObserveRun(context.Context, fnloop.RunInfo) (context.Context, func(*fnloop.Answer, error)) {
	return nil, func(*fnloop.Answer, error) { panic("run") }
}
func (careless) ObserveResponse(context.Context, fnloop.ResponseInfo) (context.Context, func(fnloop.ResponseEnd)) {
	panic("response")
}
func (careless) ObserveCall(context.Context, fnloop.CallInfo) (context.Context, func(fnloop.CallEnd)) {
	return nil, func(fnloop.CallEnd) { panic("call") }
}

func TestObserverThatPanics(t *testing.T) {
	loop, _ := play(t, rt.Call("c1", "add", `{"a":1,"b":2}`), rt.Text("3"))
	var log strings.Builder
	loop.Tools, loop.Observer = []fnloop.Tool{adder()}, careless{}
	loop.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := loop.Run(t.Context(), "1+2?")
	require.NoError(t, err)
	assert.Equal(t, "3", a.Text)
	assert.Equal(t, 4, strings.Count(log.String(), "Observer panicked"), "a run, two responses and a call")
}

type nothing struct{}

func (nothing) ObserveRun(ctx context.Context, _ fnloop.RunInfo) (context.Context, func(*fnloop.Answer, error)) {
	return ctx, nil
}
func (nothing) ObserveResponse(ctx context.Context, _ fnloop.ResponseInfo) (context.Context, func(fnloop.ResponseEnd)) {
	return ctx, nil
}
func (nothing) ObserveCall(ctx context.Context, _ fnloop.CallInfo) (context.Context, func(fnloop.CallEnd)) {
	return ctx, nil
}

// BenchmarkObserver is a conversation with and without an Observer that does
// nothing.
func BenchmarkObserver(b *testing.B) {
	for name, obs := range map[string]fnloop.Observer{"none": nil, "empty": nothing{}} {
		b.Run(name, func(b *testing.B) {
			loop := &fnloop.Loop{Client: client(newCanned(b)), Model: "gpt-test", Tools: []fnloop.Tool{adder()}, Observer: obs,
				Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := loop.Run(b.Context(), "2+3?"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
