package fnloop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// ticks gives n deltas, one a second, and then Done.
func ticks(n int) func(context.Context) iter.Seq2[fnloop.Event, error] {
	return func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
		return func(yield func(fnloop.Event, error) bool) {
			for i := range n {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					yield(fnloop.Done{Answer: &fnloop.Answer{Stop: fnloop.StopCancelled}}, context.Cause(ctx))
					return
				}
				if !yield(fnloop.TextDelta{Text: fmt.Sprint(i)}, nil) {
					return
				}
			}
			yield(fnloop.Done{Answer: &fnloop.Answer{Stop: fnloop.StopAnswered}}, nil)
		}
	}
}

// follow collects what a reader gets: texts, types of other events, and the error.
func follow(events iter.Seq2[fnloop.Event, error]) (got []string, err error) {
	for e, eventErr := range events {
		switch e := e.(type) {
		case nil:
		case fnloop.TextDelta:
			got = append(got, e.Text)
		case fnloop.Missed:
			got = append(got, fmt.Sprintf("missed %d", e.Events))
		default:
			got = append(got, e.Type())
		}
		if eventErr != nil {
			err = eventErr
		}
	}
	return got, err
}

func TestHub(t *testing.T) {
	t.Run("readers early and late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{}
			request, done := context.WithCancel(t.Context())
			require.NoError(t, hub.Start(request, "chat", ticks(4)))
			done() // the request ends, and the run does not
			var wg sync.WaitGroup
			for _, late := range []time.Duration{0, 2500 * time.Millisecond, 30 * time.Second} {
				wg.Go(func() {
					time.Sleep(late)
					got, err := follow(hub.Follow(t.Context(), "chat", ""))
					assert.NoError(t, err)
					assert.Equal(t, []string{"0", "1", "2", "3", "done"}, got)
				})
			}
			wg.Wait()
			assert.False(t, hub.Running("chat"))
			time.Sleep(2 * time.Minute)
			_, err := follow(hub.Follow(t.Context(), "chat", ""))
			assert.ErrorIs(t, err, fnloop.ErrNoRun, "in the end it is forgotten")
		})
	})
	t.Run("a reader who leaves, and one who is stuck", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{}
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(5)))
			for range hub.Follow(t.Context(), "chat", "") {
				break
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, errBoom)
			defer cancel()
			got, err := follow(hub.Follow(ctx, "chat", ""))
			assert.ErrorIs(t, err, errBoom)
			assert.Equal(t, []string{"0", "1"}, got)
			for range hub.Follow(t.Context(), "chat", "") {
				time.Sleep(time.Hour) // longer than anything
				break
			}
			assert.False(t, hub.Running("chat"), "the run has not waited for it")
		})
	})
	t.Run("one run at a time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{}
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(2)))
			require.ErrorIs(t, hub.Start(t.Context(), "chat", ticks(2)), fnloop.ErrBusy, "two tabs that post at once")
			require.NoError(t, hub.Start(t.Context(), "other", ticks(1)))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(1)), "the next one may start while the last can still be followed")
			got, _ := follow(hub.Follow(t.Context(), "chat", ""))
			assert.Equal(t, []string{"0", "done"}, got)
			time.Sleep(time.Hour)
		})
	})
	t.Run("stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{}
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(1000)))
			time.Sleep(2500 * time.Millisecond)
			assert.True(t, hub.Stop("chat", errBoom))
			got, err := follow(hub.Follow(t.Context(), "chat", ""))
			assert.ErrorIs(t, err, errBoom, "every reader learns why")
			assert.Equal(t, []string{"0", "1", "done"}, got)
			assert.False(t, hub.Stop("chat", nil), "it has ended")
			assert.False(t, hub.Stop("nobody", nil))
			time.Sleep(time.Hour)
		})
	})
	t.Run("what is kept is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{Keep: 1000, Linger: time.Hour}
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(100)))
			time.Sleep(200 * time.Second)
			got, err := follow(hub.Follow(t.Context(), "chat", ""))
			require.NoError(t, err)
			assert.Regexp(t, `^missed 9\d$`, got[0], "a late reader is told what it missed")
			assert.Equal(t, "done", got[len(got)-1])
			assert.Less(t, len(got), 10)
			time.Sleep(2 * time.Hour)
		})
	})
	t.Run("a panic", func(t *testing.T) {
		hub := &fnloop.Hub{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Linger: time.Hour}
		require.NoError(t, hub.Start(t.Context(), "chat", func(context.Context) iter.Seq2[fnloop.Event, error] { panic("no database") }))
		_, err := follow(hub.Follow(t.Context(), "chat", ""))
		_, panicked := errors.AsType[*fnloop.PanicError](err)
		assert.True(t, panicked, "it takes nothing down, and readers do not wait for ever")
		rec := httptest.NewRecorder()
		hub.ServeSSE(rec, httptest.NewRequest(http.MethodGet, "/", nil), "chat", fnloop.SSE{})
		assert.Contains(t, rec.Body.String(), "event: done\n", "a browser would come again and again")
		assert.Contains(t, rec.Body.String(), `"error":"failed"`)
	})
	t.Run("not kept at all", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub := &fnloop.Hub{Linger: -1}
			require.NoError(t, hub.Start(t.Context(), "chat", ticks(1)))
			got, err := follow(hub.Follow(t.Context(), "chat", ""))
			require.NoError(t, err)
			assert.Equal(t, []string{"0", "done"}, got, "who follows already gets the end")
			synctest.Wait()
			_, err = follow(hub.Follow(t.Context(), "chat", ""))
			assert.ErrorIs(t, err, fnloop.ErrNoRun)
		})
	})
}

func TestHubDrain(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(context.Context) iter.Seq2[fnloop.Event, error]
		wait time.Duration
		want string
	}{
		{"in time", ticks(3), 10 * time.Second, ""},
		{"cut short", ticks(1000), 10 * time.Second, "context deadline exceeded"},
		{"a run that does not end", func(context.Context) iter.Seq2[fnloop.Event, error] {
			return func(func(fnloop.Event, error) bool) { time.Sleep(time.Hour) }
		}, time.Second, "1 runs have not ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := &fnloop.Hub{}
				require.NoError(t, hub.Drain(t.Context()), "there is nothing to wait for")
				hub = &fnloop.Hub{}
				require.NoError(t, hub.Start(t.Context(), "chat", tt.run))
				ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
				defer cancel()
				err := hub.Drain(ctx)
				if tt.want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, tt.want)
				}
				assert.ErrorIs(t, hub.Start(t.Context(), "new", ticks(1)), fnloop.ErrDraining)
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// idFrames are the server-sent events of a body: the ID and the data of each.
func idFrames(r io.Reader) (out [][2]string) {
	var f [2]string
	for s := bufio.NewScanner(r); s.Scan(); {
		switch line := s.Text(); {
		case strings.HasPrefix(line, "id: "):
			f[0] = line[4:]
		case strings.HasPrefix(line, "data: "):
			f[1] = line[6:]
		case line == "" && f[1] != "":
			out, f = append(out, f), [2]string{}
		}
	}
	return out
}

func TestHubServeSSE(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after those of the servers
	loop, _ := play(t, rt.Text("one two three"))
	hub := new(fnloop.Hub)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hub.ServeSSE(w, r, r.URL.Path, fnloop.SSE{})
	}))
	defer srv.Close()
	get := func(path, after string) (int, [][2]string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("Last-Event-ID", after)
		res, err := srv.Client().Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		return res.StatusCode, idFrames(res.Body)
	}
	status, _ := get("/chat", "")
	assert.Equal(t, http.StatusNoContent, status, "nothing to follow, and no reason to come again")
	require.NoError(t, hub.Start(t.Context(), "/chat", func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
		return loop.Events(ctx, nil, "Count.")
	}))
	_, all := get("/chat", "")
	require.Greater(t, len(all), 3)
	for i, f := range all {
		require.NotEmpty(t, f[0])
		_, rest := get("/chat", f[0])
		assert.Equal(t, all[i+1:], append([][2]string{}, rest...), "after %s", f[0])
	}
	for _, strange := range []string{"other-3", "-", "x", all[0][0] + "9", strings.Split(all[0][0], "-")[0] + "--1"} {
		_, rest := get("/chat", strange)
		if strange == all[0][0]+"9" {
			assert.Empty(t, rest, "an ID of the future waits for what comes, which is nothing")
			continue
		}
		assert.Equal(t, all, rest, "an ID of another run counts as none: %q", strange)
	}
}

func TestView(t *testing.T) {
	const secret = "what nobody but the model may read"
	tool := raw("look", func(ctx context.Context) (string, error) {
		out, _ := fnloop.LiveOutput(ctx)
		fmt.Fprint(out, secret)
		return secret, nil
	})
	pay := raw("pay", func(context.Context) (string, error) { return "", nil })
	pay.NeedsApproval = func(context.Context, fnloop.Call) bool { return true }
	body := func(view fnloop.View) string {
		loop, _ := play(t, rt.Join(rt.Reasoning(secret), rt.Call("c1", "look", `{}`), rt.Call("c2", "pay", `{}`)))
		loop.Tools, loop.KeepItems = []fnloop.Tool{tool, pay}, true
		rec := httptest.NewRecorder()
		err := fnloop.SSE{View: view}.Write(rec, loop.Events(t.Context(), nil, "Go."))
		require.ErrorIs(t, err, fnloop.ErrApproval)
		return rec.Body.String()
	}
	user := body(fnloop.View{})
	assert.NotContains(t, user, secret)
	for _, internal := range []string{`"digest"`, `"items"`, `"tool_state"`, `"encrypted_content"`} {
		assert.NotContains(t, user, internal)
	}
	for _, seen := range []string{`"name":"look"`, `"is_error":false`, `"error":"approval"`, `"id":"c2"`} {
		assert.Contains(t, user, seen)
	}
	assert.Contains(t, body(fnloop.View{Outputs: true}), `"stream":"stdout","text":"`+secret+`"`, "live")
	assert.Contains(t, body(fnloop.View{Outputs: true}), `"output":"`+secret+`"`, "and at the end")
	assert.Contains(t, body(fnloop.View{Reasoning: true}), `"type":"reasoning_delta"`)
	assert.NotContains(t, user, "reasoning_delta")
	all := body(fnloop.View{All: true})
	for _, internal := range []string{`"digest"`, `"items"`} {
		assert.Contains(t, all, internal)
	}
}

func TestViewOfNewEvents(t *testing.T) {
	const secret = "what nobody but the model may read"
	item := json.RawMessage(`{"found":"` + secret + `"}`)
	events := []fnloop.Event{
		fnloop.HostedProgress{ID: "h", Kind: "shell_call", Status: "running", Text: secret},
		fnloop.HostedFinished{HostedCall: fnloop.HostedCall{ID: "h", Item: item}},
		fnloop.CallEvent{ID: "c", Event: fnloop.ReasoningDelta{Text: secret}},
		fnloop.CallEvent{ID: "c", Event: fnloop.CallFinished{CallResult: fnloop.CallResult{Output: fnloop.Output{Text: secret}}}},
		fnloop.Done{Answer: &fnloop.Answer{Hosted: []fnloop.HostedCall{{ID: "h", Item: item}}, Files: []fnloop.File{{Data: []byte("x")}}, Citations: []fnloop.Citation{{Kind: "url"}}}},
	}
	for _, e := range events {
		seen := fnloop.View{}.Event(e)
		data, err := json.Marshal(seen)
		require.NoError(t, err)
		assert.NotContains(t, string(data), secret)
		data, err = json.Marshal(fnloop.View{All: true}.Event(e))
		require.NoError(t, err)
		if _, done := e.(fnloop.Done); !done {
			assert.Contains(t, string(data), secret)
		}
	}
	assert.Nil(t, fnloop.View{}.Event(events[2]), "what is left of it says nothing")
	assert.NotNil(t, events[4].(fnloop.Done).Answer.Files[0].Data, "the event is not changed")
}

// TestSSEKeepAlive: a proxy sees life while a tool works.
func TestSSEKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := httptest.NewRecorder()
		require.NoError(t, fnloop.SSE{}.Write(rec, ticks(1)(t.Context())))
		assert.NotContains(t, rec.Body.String(), ":\n\n", "a second is not long")
		slow := func(yield func(fnloop.Event, error) bool) {
			time.Sleep(50 * time.Second)
			yield(fnloop.Done{Answer: &fnloop.Answer{}}, nil)
		}
		require.NoError(t, fnloop.SSE{}.Write(rec, slow))
		assert.Equal(t, 3, strings.Count(rec.Body.String(), ":\n\n"))
		rec = httptest.NewRecorder()
		require.NoError(t, fnloop.SSE{KeepAlive: -1}.Write(rec, slow))
		assert.NotContains(t, rec.Body.String(), ":\n\n")
	})
}
