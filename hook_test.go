package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// strange is a Client that does something else than to answer.
type strange struct{ do func() }

func (s strange) New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error) {
	s.do()
	return nil, errBoom
}

type strangeStream struct{ strange }

func (s strangeStream) NewStreaming(context.Context, responses.ResponseNewParams, ...option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	s.do()
	return nil
}

// A strangeDecoder is a stream whose next event does not come.
type strangeDecoder struct{ do func() }

func (d strangeDecoder) Next() bool             { d.do(); return false }
func (d strangeDecoder) Event() ssestream.Event { return ssestream.Event{} }
func (d strangeDecoder) Close() error           { return nil }
func (d strangeDecoder) Err() error             { return nil }

type strangeEvents struct{ strange }

func (s strangeEvents) NewStreaming(context.Context, responses.ResponseNewParams, ...option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	return ssestream.NewStream[responses.ResponseStreamEventUnion](strangeDecoder{s.do}, nil)
}

// places are where code that is not ours is called in a run.
var places = map[string]func(*fnloop.Loop, func()){
	"BeforeRequest": func(l *fnloop.Loop, do func()) {
		l.BeforeRequest = func(context.Context, *responses.ResponseNewParams) error { do(); return nil }
	},
	"BeforeRequest, later": func(l *fnloop.Loop, do func()) {
		l.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
			if p.PreviousResponseID.Valid() {
				do()
			}
			return nil
		}
	},
	"Checkpoint": func(l *fnloop.Loop, do func()) {
		l.Checkpoint = func(context.Context, *fnloop.Answer) error { do(); return nil }
	},
	"Checkpoint, later": func(l *fnloop.Loop, do func()) {
		l.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
			if len(a.Calls) > 0 {
				do()
			}
			return nil
		}
	},
	"NeedsApproval": func(l *fnloop.Loop, do func()) {
		l.Tools[0].NeedsApproval = func(context.Context, fnloop.Call) bool { do(); return false }
	},
	"handler": func(l *fnloop.Loop, do func()) {
		l.Tools[0].Handle = func(context.Context, fnloop.Call) (fnloop.Output, error) { do(); return fnloop.Output{}, nil }
	},
	"client": func(l *fnloop.Loop, do func()) { l.Client = strange{do} },
	"stream": func(l *fnloop.Loop, do func()) { l.Client = strangeStream{strange{do}} },
	"events": func(l *fnloop.Loop, do func()) { l.Client = strangeEvents{strange{do}} },
}

// Whatever hangs, a run returns when the caller's deadline and Grace have passed.
func TestNothingHoldsARun(t *testing.T) {
	for name, set := range places {
		for _, streamed := range []bool{false, true} {
			loop, _ := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
				if turn.Round == 0 {
					return rt.Join(rt.Call("call_1", "ok", "{}"), rt.Call("call_2", "ok", "{}"))
				}
				return rt.Text("done")
			}))
			loop.Tools, loop.Grace = []fnloop.Tool{echo("ok", "yes")}, 500*time.Millisecond
			bubble(t, func(t *testing.T) {
				release := make(chan struct{})
				set(loop, func() { <-release })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				ans, err := runEither(ctx, loop, streamed)
				assert.LessOrEqual(t, time.Since(start), 1500*time.Millisecond, name)
				require.Error(t, err, name)
				close(release)
				time.Sleep(time.Second) // what was left behind ends, and changes nothing
				store(t, ans)
				for _, id := range ans.Open {
					assert.True(t, holds(ans, id), "%s: call %s is lost", name, id)
				}
			})
		}
	}
}

// holds reports whether the call is pending or has an output.
func holds(a *fnloop.Answer, id string) bool {
	for _, c := range a.Pending {
		if c.ID == id {
			return true
		}
	}
	for _, c := range a.Calls {
		if c.ID == id {
			return true
		}
	}
	return false
}

func runEither(ctx context.Context, loop *fnloop.Loop, streamed bool) (ans *fnloop.Answer, err error) {
	if !streamed {
		return loop.Run(ctx, "hi")
	}
	for e, runErr := range loop.Events(ctx, nil, "hi") {
		if done, ok := e.(fnloop.Done); ok {
			ans, err = done.Answer, runErr
		}
	}
	return ans, err
}

// Whatever panics or leaves its goroutine, the process stays.
func TestNothingPanicsThroughARun(t *testing.T) {
	for name, set := range places {
		for how, do := range map[string]func(){"panic": func() { panic(errBoom) }, "exit": runtime.Goexit} {
			for _, streamed := range []bool{false, true} {
				loop, _ := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
					if turn.Round == 0 {
						return rt.Call("call_1", "ok", "{}")
					}
					return rt.Text("done")
				}))
				loop.Tools, loop.Attempts = []fnloop.Tool{echo("ok", "yes")}, 1
				set(loop, do)
				ans, err := runEither(t.Context(), loop, streamed)
				switch {
				case name == "handler":
					require.NoError(t, err)
				case name == "NeedsApproval":
					require.ErrorIs(t, err, fnloop.ErrApproval, "what cannot be asked needs approval")
				case (name == "stream" || name == "events") && !streamed: // the Client's New
					require.Error(t, err)
				default:
					require.ErrorAs(t, err, new(*fnloop.PanicError), "%s, %s, streamed %t", name, how, streamed)
					assert.Equal(t, how == "panic", errors.Is(err, errBoom), name)
				}
				store(t, ans)
			}
		}
	}
}

// A run without a deadline waits as long as a hook needs.
func TestSlowHookIsWaitedFor(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "ok", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	bubble(t, func(t *testing.T) {
		loop.Checkpoint = func(ctx context.Context, _ *fnloop.Answer) error { return nap(ctx, time.Hour) }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		_, err := loop.Run(ctx, "hi")
		require.NoError(t, err)
	})
}

// A Checkpoint that honours its context is told when its time is over.
func TestCheckpointIsToldOfTheEnd(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "ok", "{}"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	type key struct{}
	bubble(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		start := time.Now()
		loop.Checkpoint = func(ctx context.Context, _ *fnloop.Answer) error {
			assert.Equal(t, "value", ctx.Value(key{}))
			<-ctx.Done()
			ended <- time.Since(start)
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer cancel()
		_, err := loop.Run(ctx, "hi")
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, <-ended, "the deadline and Grace")
	})
}

// What a hook breaks after calls have run is no *ConfigError, which says that
// nothing was done.
func TestHookBreaksALaterRequest(t *testing.T) {
	breaks := map[string]func(*responses.ResponseNewParams){
		"store":        func(p *responses.ResponseNewParams) { p.Store = param.NewOpt(false) },
		"model":        func(p *responses.ResponseNewParams) { p.Model = "" },
		"background":   func(p *responses.ResponseNewParams) { p.Background = param.NewOpt(true) },
		"input":        func(p *responses.ResponseNewParams) { p.Input = responses.ResponseNewParamsInputUnion{} },
		"conversation": func(p *responses.ResponseNewParams) { p.Conversation.OfString = param.NewOpt("conv_1") },
	}
	for field, edit := range breaks {
		loop, srv := play(t, rt.Call("call_1", "pay", "{}"), rt.Text("done"))
		loop.Tools = []fnloop.Tool{echo("pay", "paid")}
		broken := true
		loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
			if p.PreviousResponseID.Valid() && broken {
				edit(p)
			}
			return nil
		}
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorContains(t, err, "BeforeRequest: "+field)
		assert.NotErrorAs(t, err, new(*fnloop.ConfigError))
		assert.Equal(t, fnloop.StopAborted, ans.Stop)
		require.Len(t, srv.Requests(), 1)
		broken = false
		_, err = loop.Continue(t.Context(), store(t, ans), "")
		require.NoError(t, err, "the output is not lost")
		assert.Equal(t, []string{"call_1", "paid"}, outputs(t, posts(t, srv)[1]))
	}

	// The same after a call that was approved, before any request of the run.
	loop, srv := play(t, rt.Call("call_1", "pay", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("pay", "paid")}
	loop.Tools[0].NeedsApproval = fnloop.Always
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrApproval)
	require.NoError(t, ans.Approve("call_1"))
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { p.Model = ""; return nil }
	ans, err = loop.Continue(t.Context(), ans, "")
	assert.NotErrorAs(t, err, new(*fnloop.ConfigError))
	assert.Equal(t, fnloop.StopAborted, ans.Stop)
	loop.BeforeRequest = nil
	_, err = loop.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	assert.Equal(t, []string{"call_1", "paid"}, outputs(t, posts(t, srv)[1]))
}

// What a host does to the values that it gets changes nothing in the run.
func TestHostValuesShareNothing(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "ok", `{"a":1}`), rt.Call("call_2", "ok", `{"a":2}`)), rt.Text("done"), rt.Text("more"))
	loop.State, loop.Tools = fnloop.Stateless, []fnloop.Tool{{Name: "ok", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) {
		time.Sleep(time.Millisecond)
		return fnloop.Output{Content: []fnloop.Content{{Text: "for the model"}}}, nil
	}, NonStrict: true}}
	spoil := func(calls []fnloop.CallResult, pending []fnloop.Call, items []json.RawMessage) {
		for i := range calls {
			for j := range calls[i].Content {
				calls[i].Content[j].Text = "spoilt"
			}
			for j := range calls[i].Arguments {
				calls[i].Arguments[j] = '!'
			}
		}
		for i := range pending {
			for j := range pending[i].Arguments {
				pending[i].Arguments[j] = '!'
			}
		}
		for i := range items {
			for j := range items[i] {
				items[i][j] = '!'
			}
		}
	}
	var later sync.WaitGroup
	loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
		later.Go(func() { spoil(a.Calls, a.Pending, a.Items) })
		return nil
	}
	ans := &fnloop.Answer{}
	for e, err := range loop.Events(t.Context(), nil, "hi") {
		require.NoError(t, err)
		switch e := e.(type) {
		case fnloop.CallStarted:
			later.Go(func() { spoil(nil, []fnloop.Call{e.Call}, nil) })
		case fnloop.CallFinished:
			later.Go(func() { spoil([]fnloop.CallResult{e.CallResult}, nil, nil) })
		case fnloop.Done:
			ans = e.Answer
		}
	}
	later.Wait()
	next, err := loop.Continue(t.Context(), ans, "more?")
	require.NoError(t, err)
	spoil(ans.Calls, ans.Pending, ans.Items)
	assert.NotContains(t, string(next.Items[0]), "!", "Answers of one conversation have each their own")
	for _, r := range srv.Requests() {
		assert.NotContains(t, string(r.Body), "spoilt")
		assert.NotContains(t, string(r.Body), "!!")
	}
}

// Events of calls that run side by side begin in the order of the calls, and a
// call that waits for its turn has not started.
func TestCallsThatWaitHaveNotStarted(t *testing.T) {
	var calls []rt.Reply
	for range 7 {
		calls = append(calls, rt.Call("", "ok", "{}"))
	}
	for range 5 {
		loop, _ := play(t, rt.Join(calls...), rt.Text("done"))
		var running, most atomic.Int32
		loop.Parallel = 3
		loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Millisecond)
			running.Add(-1)
			return "", nil
		})}
		loop.Checkpoint = func(_ context.Context, a *fnloop.Answer) error {
			started := 0
			for _, c := range a.Pending {
				if c.Started {
					started++
				}
			}
			assert.Equal(t, min(3, len(a.Pending)), started, "of %d pending", len(a.Pending))
			return nil
		}
		var ids []string
		seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.NoError(t, err)
		for _, e := range seen {
			if s, ok := e.(fnloop.CallStarted); ok {
				ids = append(ids, s.ID)
			}
		}
		for i, c := range ans.Calls {
			assert.Equal(t, c.ID, ids[i])
			assert.False(t, c.Started)
		}
		assert.LessOrEqual(t, most.Load(), int32(3))
	}
}
