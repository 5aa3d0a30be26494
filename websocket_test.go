package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// noLeaks fails the test when a goroutine is left at its end, that of its
// subtests included.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, before)
	})
}

// connect starts a stand-in with a script and a Loop that talks to it over
// WebSockets. The test fails when the script was not played to its end.
func connect(t *testing.T, script ...rt.Reply) (*fnloop.Loop, *rt.Server) {
	t.Helper()
	srv := rt.NewServer(script...)
	t.Cleanup(func() {
		srv.Close()
		require.NoError(t, srv.Err())
	})
	return &fnloop.Loop{Client: srv.Client(), Model: "gpt-test", Instructions: "Be brief.", WebSocket: true}, srv
}

// turns are the requests for responses that srv got, however they came.
func turns(srv *rt.Server) []rt.Request {
	return slices.DeleteFunc(srv.Requests(), func(r rt.Request) bool { return !r.WebSocket && r.Method == "GET" })
}

// body is a request as JSON.
func body(t *testing.T, r rt.Request) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal(r.Body, &m))
	return m
}

// asked runs a Loop by Run or by Events.
func asked(t *testing.T, loop *fnloop.Loop, events bool, prompt string) (*fnloop.Answer, error) {
	t.Helper()
	if !events {
		return loop.Run(t.Context(), prompt)
	}
	_, ans, err := watch(t, loop.Events(t.Context(), nil, prompt))
	return ans, err
}

func manner(events bool) string {
	if events {
		return "Events"
	}
	return "Run"
}

func TestWebSocket(t *testing.T) {
	noLeaks(t)
	loop, srv := connect(t,
		rt.Join(rt.Reasoning("I add"), rt.Commentary("Let me add"), rt.Call("call_1", "add", `{"a":2,"b":3}`), rt.Call("call_2", "add", `{"a":4,"b":5}`)),
		rt.Call("call_3", "add", `{"a":5,"b":9}`).Edited(rt.Noise),
		rt.Text("14 <naïvely>"), rt.Text("Welcome."),
	)
	loop.Tools = []fnloop.Tool{adder()}
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		p.Temperature = param.NewOpt(0.5)
		p.Background = param.NewOpt(false)
		return nil
	}
	seen, ans, err := watch(t, loop.Events(t.Context(), nil, "Add."))
	require.NoError(t, err)
	assert.Equal(t, "14 <naïvely>", ans.Text)
	assert.Equal(t, 2, ans.Turns)
	assert.Equal(t, 3, ans.Responses)
	assert.Equal(t, "Let me add", said(seen, "commentary"))
	assert.Equal(t, ans.Text, said(seen, ""))

	reqs := turns(srv)
	require.Len(t, reqs, 3)
	for i, r := range reqs {
		assert.True(t, r.WebSocket)
		m := body(t, r)
		assert.Equal(t, "response.create", m["type"])
		assert.Equal(t, "Be brief.", m["instructions"])
		assert.EqualValues(t, 0.5, m["temperature"], "BeforeRequest applies")
		assert.Len(t, m["tools"], 1)
		assert.NotContains(t, m, "stream")
		assert.NotContains(t, m, "background")
		assert.NotContains(t, m, "stream_id")
		if i > 0 {
			assert.Equal(t, reqs[i-1].ResponseID, m["previous_response_id"])
		}
	}
	assert.Equal(t, []string{"call_1", "5", "call_2", "9"}, outputs(t, body(t, reqs[1])))
	assert.Equal(t, 1, srv.Connections(), "a run has one connection")

	_, err = loop.Continue(t.Context(), ans, "Thanks.")
	require.NoError(t, err)
	assert.Equal(t, 2, srv.Connections(), "the next has its own")
}

func TestWebSocketIsClosed(t *testing.T) {
	loop, _ := connect(t, rt.Text("done"), rt.Incomplete("max_output_tokens"), rt.Error(400, "", "no"))
	before := goleak.IgnoreCurrent()
	for _, want := range []fnloop.StopReason{fnloop.StopAnswered, fnloop.StopTruncated, fnloop.StopRequest} {
		start := time.Now()
		ans, _ := loop.Run(t.Context(), "hi")
		assert.Equal(t, want, ans.Stop)
		assert.Less(t, time.Since(start), 2*time.Second)
		goleak.VerifyNone(t, before) // although the server goes on
	}
}

// Whatever a run comes to over HTTP, it comes to over a WebSocket.
func TestWebSocketIsInvisible(t *testing.T) {
	noLeaks(t)
	call := rt.Call("call_1", "add", `{"a":2,"b":3}`)
	fault := rt.Failed("server_error", "sorry")
	for _, tt := range []struct {
		name, why string
		script    []rt.Reply
	}{
		{"answer", "the plain case", []rt.Reply{rt.Join(rt.Reasoning("hm"), rt.Commentary("so"), call), rt.Text("five")}},
		{"turn limit", "it is the loop's own", []rt.Reply{call, call, call}},
		{"refusal", "a kind of message", []rt.Reply{rt.Refusal("no")}},
		{"incomplete", "another end of a response", []rt.Reply{call, rt.Incomplete("max_output_tokens", rt.Text("fi"))}},
		{"filtered", "another", []rt.Reply{rt.Incomplete("content_filter", rt.Text("fi"))}},
		{"failed for good", "another", []rt.Reply{rt.Failed("invalid_prompt", "no")}},
		{"failed once", "it is tried again", []rt.Reply{fault, rt.Text("five")}},
		{"rate limit", "the wait is in the message's headers", []rt.Reply{call, rt.RateLimited(10 * time.Millisecond), rt.Text("five")}},
		{"long rate limit", "no user waits for that", []rt.Reply{rt.RateLimited(3 * time.Hour)}},
		{"no quota", "a 429 that stays", []rt.Reply{rt.Error(429, "insufficient_quota", "no money")}},
		{"server error once", "it is tried again", []rt.Reply{call, rt.ServerError(), rt.Text("five")}},
		{"proxy", "no JSON in the error", []rt.Reply{rt.HTTP(502, "<html>bad gateway</html>"), rt.Text("five")}},
		{"refused", "a 400 is final", []rt.Reply{call, rt.Error(400, "invalid_prompt", "no")}},
		{"told to try again", "so the headers say", []rt.Reply{rt.Error(400, "", "no", "x-should-retry", "true", "retry-after-ms", "1"), rt.Text("five")}},
		{"unsupported item", "it stops the run", []rt.Reply{rt.Item(`{"type":"computer_call","call_id":"call_9"}`)}},
		{"dropped once", "it is tried again", []rt.Reply{call, rt.Drop(), rt.Text("five")}},
	} {
		for _, events := range []bool{false, true} {
			t.Run(tt.name+" by "+manner(events), func(t *testing.T) {
				t.Parallel()
				type outcome struct {
					Stop                                fnloop.StopReason
					Text, Partial, Code, Message, Param string
					Turns, Responses, Unmetered         int
					Calls, Pending, Status, Attempts    int
					MaybeDelivered, Error               bool
					OutputTokens                        int64
					Events, Said                        string
					Requests                            int
				}
				run := func(over bool) outcome {
					loop, srv := connect(t, tt.script...)
					loop.WebSocket = over
					loop.MaxTurns = 2
					loop.Tools = []fnloop.Tool{adder()}
					var seen []fnloop.Event
					var ans *fnloop.Answer
					var err error
					if events {
						seen, ans, err = watch(t, loop.Events(t.Context(), nil, "2+3?"))
					} else {
						ans, err = loop.Run(t.Context(), "2+3?")
					}
					o := outcome{
						Stop: ans.Stop, Text: ans.Text, Partial: ans.Partial, Turns: ans.Turns, Responses: ans.Responses, Unmetered: ans.Unmetered,
						Calls: len(ans.Calls), Pending: len(ans.Pending), OutputTokens: ans.Usage.OutputTokens,
						Events: outline(seen), Said: said(seen, "") + "|" + said(seen, "commentary"), Error: err != nil, Requests: len(turns(srv)),
					}
					if e, ok := errors.AsType[*fnloop.RequestError](err); ok {
						o.Code, o.Message, o.Param, o.Status = e.Code, e.Message, e.Param, e.StatusCode
						o.Attempts, o.MaybeDelivered = e.Attempts, e.MaybeDelivered
						if e.StatusCode != 0 {
							api, ok := errors.AsType[*responses.Error](err)
							require.True(t, ok, "openai-go's own error is within")
							assert.Equal(t, e.StatusCode, api.StatusCode)
							assert.NotPanics(t, func() { api.DumpRequest(false); api.DumpResponse(true) })
						}
					}
					if over {
						for _, r := range turns(srv) {
							assert.True(t, r.WebSocket)
						}
					} else {
						assert.Zero(t, srv.Connections())
					}
					return o
				}
				assert.Equal(t, run(false), run(true), tt.why)
			})
		}
	}
}

func TestWebSocketNeedsTheService(t *testing.T) {
	noLeaks(t)
	loop, _ := connect(t)
	loop.Client = &wrapped{inner: loop.Client}
	ans, err := loop.Run(t.Context(), "hi")
	e, ok := err.(*fnloop.ConfigError)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Loop.WebSocket", e.Field)
	assert.Equal(t, fnloop.StopInvalid, ans.Stop)
}

// The server keeps the latest response of a connection, stored or not.
func TestWebSocketStateless(t *testing.T) {
	noLeaks(t)
	first := rt.Join(rt.Reasoning(""), rt.Item(`{ "type":"message", "role":"assistant", "phase":"commentary", "content":[{"type":"output_text","text":"<a> & é"}] }`),
		rt.Call("call_1", "add", `{"a":2,"b":3}`))
	second := rt.Call("call_2", "add", `{"a":4,"b":5}`)
	drop := func(p *responses.ResponseNewParams) { p.Input.OfInputItemList = p.Input.OfInputItemList[:0] }
	for _, tt := range []struct {
		name, why string
		script    []rt.Reply
		edit      func(p *responses.ResponseNewParams)
		input     []int  // of each request, the number of items
		chained   []bool // and whether it names the response before
		sockets   int
	}{
		{"one connection", "only what is new is sent", []rt.Reply{first, second, rt.Text("9")}, nil,
			[]int{1, 1, 1}, []bool{false, true, true}, 1},
		{"hung up", "the items go again, and then only what is new", []rt.Reply{first.Broken(rt.HangUp, 0), second, rt.Text("9")}, nil,
			[]int{1, 5, 1}, []bool{false, false, true}, 2},
		{"limit", "the items go again", []rt.Reply{first, rt.ConnectionLimit(), second, rt.Text("9")}, nil,
			[]int{1, 1, 5, 1}, []bool{false, true, false, true}, 2},
		{"refused and tried again", "what a refused request continues is lost", []rt.Reply{first, rt.RateLimited(time.Millisecond), second, rt.Text("9")}, nil,
			[]int{1, 1, 5, 1}, []bool{false, true, false, true}, 1},
		{"failed and tried again", "it is not relied on", []rt.Reply{first, rt.Failed("rate_limit_exceeded", "Please try again in 0.001s"), second, rt.Text("9")}, nil,
			[]int{1, 1, 5, 1}, []bool{false, true, false, true}, 1},
		{"forgotten", "the items go at once", []rt.Reply{first, rt.Error(400, "previous_response_not_found", "gone"), second, rt.Text("9")}, nil,
			[]int{1, 1, 5, 1}, []bool{false, true, false, true}, 1},
		{"a setting", "it leaves the items alone", []rt.Reply{first, second, rt.Text("9")},
			func(p *responses.ResponseNewParams) { p.Temperature = param.NewOpt(0.5) },
			[]int{1, 1, 1}, []bool{false, true, true}, 1},
		{"other items", "they are not those that the server has", []rt.Reply{first, rt.Text("9")},
			func(p *responses.ResponseNewParams) {
				if items := p.Input.OfInputItemList; len(items) > 1 {
					drop(p)
					p.Input.OfInputItemList = append([]responses.ResponseInputItemUnionParam{
						responses.ResponseInputItemParamOfMessage("in short", responses.EasyInputMessageRoleUser),
					}, items[1:]...)
				}
			},
			[]int{1, 5}, []bool{false, false}, 1},
	} {
		for _, events := range []bool{false, true} {
			t.Run(tt.name+" by "+manner(events), func(t *testing.T) {
				loop, srv := connect(t, tt.script...)
				loop.State = fnloop.Stateless
				loop.Attempts = 2
				loop.Tools = []fnloop.Tool{fnloop.MustTool("add", "Adds.", func(ctx context.Context, in addInput) (int, error) {
					return in.A + in.B, nap(ctx, 20*time.Millisecond) // long enough to notice a lost connection
				})}
				if tt.edit != nil {
					loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
						tt.edit(p)
						return nil
					}
				}
				ans, err := asked(t, loop, events, "2+3?")
				require.NoError(t, err)
				assert.Equal(t, "9", ans.Text)
				var input []int
				var chained []bool
				for _, r := range turns(srv) {
					m := body(t, r)
					assert.Equal(t, false, m["store"])
					assert.Contains(t, m["include"], "reasoning.encrypted_content")
					input = append(input, len(m["input"].([]any)))
					chained = append(chained, m["previous_response_id"] != nil)
				}
				assert.Equal(t, tt.input, input, tt.why)
				assert.Equal(t, tt.chained, chained, tt.why)
				assert.Equal(t, tt.sockets, srv.Connections())
				if tt.edit == nil {
					assert.Len(t, ans.Items, 8, "the Answer holds all of it")
				}
				store(t, ans)
			})
		}
	}
}

func TestWebSocketReconnects(t *testing.T) {
	noLeaks(t)
	call := rt.Call("call_1", "wait", "")
	for _, tt := range []struct {
		name, why string
		script    []rt.Reply
		requests  int
	}{
		{"limit", "the request is sent on the next connection", []rt.Reply{call, rt.ConnectionLimit(), rt.Text("done")}, 3},
		{"hung up", "the connection was lost while the handler ran", []rt.Reply{call.Broken(rt.HangUp, 0), rt.Text("done")}, 2},
	} {
		for _, events := range []bool{false, true} {
			t.Run(tt.name+" by "+manner(events), func(t *testing.T) {
				loop, srv := connect(t, tt.script...)
				loop.Attempts = 1 // this is no retry
				ran := 0
				loop.Tools = []fnloop.Tool{raw("wait", func(ctx context.Context) (string, error) { ran++; return "yes", nap(ctx, 50*time.Millisecond) })}
				ans, err := asked(t, loop, events, "hi")
				require.NoError(t, err, tt.why)
				assert.Equal(t, "done", ans.Text)
				assert.Equal(t, 1, ran)
				reqs := turns(srv)
				require.Len(t, reqs, tt.requests)
				last := body(t, reqs[len(reqs)-1])
				assert.Equal(t, reqs[0].ResponseID, last["previous_response_id"], "the chain goes on by its id")
				assert.Equal(t, []string{"call_1", "yes"}, outputs(t, last))
				assert.Equal(t, 2, reqs[len(reqs)-1].Connection)
			})
		}
	}
	t.Run("limit of a new connection", func(t *testing.T) {
		loop, srv := connect(t)
		srv.MaxAge = 0
		_, err := loop.Run(t.Context(), "hi")
		var e *fnloop.RequestError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "websocket_connection_limit_reached", e.Code, "it does not go on for ever")
		assert.Len(t, turns(srv), 1)
	})
}

func TestWebSocketForgotten(t *testing.T) {
	noLeaks(t)
	loop, srv := connect(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
	loop.KeepItems = true
	loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) {
		srv.Forget(turns(srv)[0].ResponseID)
		return "yes", nil
	})}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	reqs := turns(srv)
	require.Len(t, reqs, 3)
	assert.NotContains(t, body(t, reqs[2]), "previous_response_id")
	assert.Len(t, body(t, reqs[2])["input"], 3)
	assert.Equal(t, 1, srv.Connections())
}

func TestWebSocketInConversation(t *testing.T) {
	noLeaks(t)
	loop, srv := connect(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
	loop.State = fnloop.InConversation
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/v1/conversations", strings.NewReader("{}"))
	req.Header.Set("Authorization", "Bearer test")
	srv.ServeHTTP(rec, req)
	var conversation struct{ ID string }
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &conversation))
	id := conversation.ID
	ans, err := loop.Continue(t.Context(), &fnloop.Answer{Conversation: id}, "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	assert.Equal(t, id, body(t, turns(srv)[2])["conversation"])
}

// A client of a type that openai-go does not know cannot be upgraded.
type doer struct{ *http.Client }

func TestWebSocketFallsBack(t *testing.T) {
	noLeaks(t)
	call := rt.Call("call_1", "wait", "")
	answer := func(r rt.Reply) func(int) rt.Reply { return func(int) rt.Reply { return r } }
	for _, tt := range []struct {
		name, why string
		handshake func(n int) rt.Reply
		setup     func(loop *fnloop.Loop, srv *rt.Server)
		first     rt.Reply
		sockets   int
	}{
		{"401", "the key is not good for it", answer(rt.Error(401, "invalid_api_key", "no")), nil, call, 0},
		{"404", "a compatible server without it", answer(rt.HTTP(404, "not found")), nil, call, 0},
		{"426", "an old proxy", answer(rt.HTTP(426, "")), nil, call, 0},
		{"200", "no upgrade", answer(rt.HTTP(200, "{}")), nil, call, 0},
		{"503", "it is overloaded", answer(rt.Error(503, "", "busy")), nil, call, 0},
		{"dropped", "a proxy that does not like it", answer(rt.Drop()), nil, call, 0},
		{"frozen", "a proxy that does not know what to do", answer(rt.Text("").After(time.Hour)),
			func(loop *fnloop.Loop, _ *rt.Server) { loop.IdleTimeout = time.Second }, call, 0},
		{"client", "it cannot be upgraded", nil, func(loop *fnloop.Loop, srv *rt.Server) {
			c := responses.NewResponseService(option.WithBaseURL(srv.URL), option.WithAPIKey("test"), option.WithHTTPClient(doer{http.DefaultClient}))
			loop.Client = &c
		}, call, 0},
		{"in process", "there is no connection", nil, func(loop *fnloop.Loop, srv *rt.Server) { loop.Client = service(srv) }, call, 0},
		{"on reconnecting", "the rest goes over HTTP", func(n int) rt.Reply {
			if n > 1 {
				return rt.HTTP(404, "not found")
			}
			return rt.Reply{}
		}, nil, call.Broken(rt.HangUp, 0), 1},
	} {
		for _, state := range []fnloop.State{fnloop.Chained, fnloop.Stateless} {
			for _, events := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s by %s, state %d", tt.name, manner(events), state), func(t *testing.T) {
					t.Parallel()
					loop, srv := connect(t, tt.first, rt.Call("call_2", "wait", ""), rt.Text("done"))
					srv.Handshake = tt.handshake
					loop.State = state
					loop.Attempts = 1
					loop.Tools = []fnloop.Tool{raw("wait", func(ctx context.Context) (string, error) { return "yes", nap(ctx, 20*time.Millisecond) })}
					var log bytes.Buffer
					loop.Logger = slog.New(slog.NewTextHandler(&log, nil))
					if tt.setup != nil {
						tt.setup(loop, srv)
					}
					ans, err := asked(t, loop, events, "hi")
					require.NoError(t, err, tt.why)
					assert.Equal(t, "done", ans.Text)
					assert.Equal(t, tt.sockets, srv.Connections())
					reqs := turns(srv)
					require.Len(t, reqs, 3)
					for i, r := range reqs {
						assert.Equal(t, i < tt.sockets, r.WebSocket)
						if m := body(t, r); state == fnloop.Stateless {
							assert.NotContains(t, m, "previous_response_id")
							assert.Len(t, m["input"], 1+2*i)
						} else if i > 0 {
							assert.Equal(t, reqs[i-1].ResponseID, m["previous_response_id"])
						}
					}
					assert.Equal(t, 1, strings.Count(log.String(), "level=INFO"), "said once: %s", &log)
				})
			}
		}
	}
	t.Run("wrong key", func(t *testing.T) {
		loop, srv := connect(t)
		srv.Key = "other"
		_, err := loop.Run(t.Context(), "hi")
		var e *fnloop.RequestError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 401, e.StatusCode)
		assert.Equal(t, "invalid_api_key", e.Code)
	})
}

func TestWebSocketBreaks(t *testing.T) {
	noLeaks(t)
	touch := rt.Join(rt.Commentary("let me see"), rt.Call("call_9", "touch", ""))
	const silent, spoken = 2, 6 // events, before and after the first words
	for _, tt := range []struct {
		name, why string
		reply     rt.Reply
		run       fnloop.StopReason // by Run, with one attempt
		events    fnloop.StopReason // by Events, with one attempt
		retried   [2]bool           // with more, by Run and by Events
		maybe     bool
		is        error
	}{
		{"dropped", "nothing came", rt.Drop(), fnloop.StopRequest, fnloop.StopRequest, [2]bool{true, true}, true, io.EOF},
		{"unsent", "the response was made", touch.Broken(rt.Unsent, 0), fnloop.StopRequest, fnloop.StopRequest, [2]bool{true, true}, true, io.EOF},
		{"reset before the words", "nothing was seen", touch.Broken(rt.Reset, silent), fnloop.StopStream, fnloop.StopStream, [2]bool{true, true}, false, fnloop.ErrIncompleteStream},
		{"reset after the words", "they cannot be taken back", touch.Broken(rt.Reset, spoken), fnloop.StopStream, fnloop.StopStream, [2]bool{true, false}, false, fnloop.ErrIncompleteStream},
		{"end", "a closing handshake is no end of a response", touch.Broken(rt.EOF, spoken), fnloop.StopStream, fnloop.StopStream, [2]bool{true, false}, false, fnloop.ErrIncompleteStream},
		{"half an event", "it is no JSON", touch.Broken(rt.HalfLine, spoken), fnloop.StopStream, fnloop.StopStream, [2]bool{true, false}, false, fnloop.ErrIncompleteStream},
		{"page", "it will not become a response", rt.HTTP(200, "<html>"), fnloop.StopStream, fnloop.StopStream, [2]bool{}, false, fnloop.ErrIncompleteStream},
		{"frozen", "IdleTimeout ends it", touch.Broken(rt.Freeze, silent), fnloop.StopStream, fnloop.StopStream, [2]bool{}, false, fnloop.ErrIdleStream},
		{"silent", "from the begin on", touch.After(time.Hour), fnloop.StopStream, fnloop.StopStream, [2]bool{}, false, fnloop.ErrIdleStream},
		{"flat error", "what follows of that response is not for the next request", touch.Broken(rt.FlatError, silent), fnloop.StopFailed, fnloop.StopFailed, [2]bool{true, true}, false, nil},
		{"nested error after the words", "they cannot be taken back", touch.Broken(rt.NestedError, spoken), fnloop.StopFailed, fnloop.StopFailed, [2]bool{true, false}, false, nil},
		{"failed", "after an error event", touch.Broken(rt.FailedEvent, silent), fnloop.StopFailed, fnloop.StopFailed, [2]bool{true, true}, false, nil},
	} {
		for i, events := range []bool{false, true} {
			for _, attempts := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s by %s, %d attempts", tt.name, manner(events), attempts), func(t *testing.T) {
					t.Parallel()
					loop, srv := connect(t, rt.Call("call_1", "ok", ""), tt.reply, rt.Text("done"))
					loop.Attempts = attempts
					if tt.is == fnloop.ErrIdleStream {
						loop.IdleTimeout = 400 * time.Millisecond
					}
					touched := false
					loop.Tools = []fnloop.Tool{echo("ok", "yes"), raw("touch", func(context.Context) (string, error) { touched = true; return "", nil })}
					ans, err := asked(t, loop, events, "hi")
					if attempts > 1 && tt.retried[i] {
						require.NoError(t, err, tt.why)
					} else {
						require.Error(t, err, tt.why)
						want := tt.run
						if events {
							want = tt.events
						}
						assert.Equal(t, want, ans.Stop, "%v", err)
						if tt.is != nil {
							require.ErrorIs(t, err, tt.is)
						}
						switch want {
						case fnloop.StopStream:
							var e *fnloop.StreamError
							require.ErrorAs(t, err, &e)
						case fnloop.StopRequest:
							var e *fnloop.RequestError
							require.ErrorAs(t, err, &e)
							assert.Equal(t, tt.maybe, e.MaybeDelivered)
						}
						assert.Equal(t, turns(srv)[0].ResponseID, ans.ID, "the head does not move")
						assert.Equal(t, []string{"call_1"}, ans.Open)
						ans, err = loop.Continue(t.Context(), store(t, ans), "")
						require.NoError(t, err)
					}
					assert.Equal(t, "done", ans.Text)
					assert.False(t, touched, "nothing of it is run")
					assert.Equal(t, []string{"call_1", "yes"}, outputs(t, body(t, turns(srv)[2])))
				})
			}
		}
	}
}

// brokenPipe is a connection that cannot be written to once broken is set.
type brokenPipe struct {
	net.Conn
	broken *atomic.Bool
}

var errPipe = errors.New("broken pipe")

func (c brokenPipe) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errPipe
	}
	return c.Conn.Write(p)
}

func TestWebSocketWriteFails(t *testing.T) {
	noLeaks(t)
	loop, srv := connect(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
	var broken atomic.Bool
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return brokenPipe{conn, &broken}, err
	}}
	c := responses.NewResponseService(option.WithBaseURL(srv.URL), option.WithAPIKey("test"), option.WithHTTPClient(&http.Client{Transport: transport}))
	loop.Client = &c
	loop.Attempts = 1
	loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { broken.Store(true); return "yes", nil })}
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, errPipe)
	var e *fnloop.RequestError
	require.ErrorAs(t, err, &e)
	assert.True(t, e.MaybeDelivered, "how much of it was written is not known")
	broken.Store(false)
	ans, err = loop.Continue(t.Context(), ans, "")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
}

func TestWebSocketCancel(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		name  string
		reply rt.Reply
	}{
		{"before the first event", rt.Text("never").After(time.Hour)},
		{"between events", rt.Text("never").Broken(rt.Freeze, 2)},
		{"between words", rt.Text(strings.Repeat("never ", 100)).Paced(10 * time.Millisecond)},
	} {
		for _, events := range []bool{false, true} {
			t.Run(tt.name+" by "+manner(events), func(t *testing.T) {
				loop, srv := connect(t, rt.Call("call_1", "ok", ""), tt.reply)
				loop.Tools = []fnloop.Tool{echo("ok", "yes")}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				start := time.Now()
				var ans *fnloop.Answer
				var err error
				if events {
					_, ans, err = watch(t, loop.Events(ctx, nil, "hi"))
				} else {
					ans, err = loop.Run(ctx, "hi")
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, time.Since(start), 2*time.Second)
				assert.Equal(t, fnloop.StopDeadline, ans.Stop)
				require.Len(t, turns(srv), 2, "the second response has begun")
				assert.Equal(t, turns(srv)[0].ResponseID, ans.ID)
				require.Eventually(t, func() bool { return turns(srv)[1].Disconnected }, 5*time.Second, time.Millisecond, "the response is abandoned")
			})
		}
	}
	t.Run("during the handshake", func(t *testing.T) {
		loop, srv := connect(t)
		srv.SetupDelay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, fnloop.StopDeadline, ans.Stop)
	})
	t.Run("by breaking off", func(t *testing.T) {
		loop, srv := connect(t, rt.Text(strings.Repeat("never ", 100)).Paced(time.Millisecond))
		for e := range loop.Events(t.Context(), nil, "hi") {
			if e.Type() == "text_delta" {
				break
			}
		}
		require.Eventually(t, func() bool { return turns(srv)[0].Disconnected }, 5*time.Second, time.Millisecond)
	})
	t.Run("by a panic of the reader", func(t *testing.T) {
		loop, _ := connect(t, rt.Text(strings.Repeat("never ", 100)).Paced(time.Millisecond))
		require.PanicsWithValue(t, "reader", func() {
			for e := range loop.Events(t.Context(), nil, "hi") {
				if e.Type() == "text_delta" {
					panic("reader")
				}
			}
		})
	})
}

// An event that comes after the end of its response is not the next one's.
func TestWebSocketEventTooMany(t *testing.T) {
	noLeaks(t)
	twice := func(events []rt.Event) []rt.Event { return append(events, events[len(events)-1]) }
	loop, _ := connect(t, rt.Call("call_1", "ok", "").Edited(twice), rt.Text("done"))
	ran := 0
	loop.Tools = []fnloop.Tool{raw("ok", func(ctx context.Context) (string, error) { ran++; return "yes", nap(ctx, 10*time.Millisecond) })}
	ans, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, "done", ans.Text)
	assert.Equal(t, 1, ran)
}

func TestWebSocketConcurrentRuns(t *testing.T) {
	noLeaks(t)
	const runs = 20
	script := rt.PerConversation(rt.Call("", "add", `{"a":2,"b":3}`), rt.Call("", "add", `{"a":4,"b":5}`), rt.Text("done"))
	loop, srv := connect(t, script)
	loop.Tools = []fnloop.Tool{adder()}
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			ans, err := asked(t, loop, i%2 == 0, fmt.Sprint("hi ", i))
			assert.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
		})
	}
	wg.Wait()
	assert.Equal(t, runs, srv.Connections())
	assert.Len(t, turns(srv), 3*runs)
}

// Whatever breaks and wherever a run is stopped, its Answer goes on: nothing is
// refused, and no call that has finished is run again.
func TestWebSocketAnyEndCanBeContinued(t *testing.T) {
	noLeaks(t)
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11))
			calls := 0
			turn := func() rt.Reply { // made here, since scripts are played in another goroutine
				if rng.IntN(4) == 0 {
					return rt.Join(rt.Reasoning(""), rt.Text("done"))
				}
				all := []rt.Reply{rt.Reasoning("")}
				for range 1 + rng.IntN(3) {
					calls++
					all = append(all, rt.Call(fmt.Sprint("call_", calls), []string{"ok", "fail", "nap"}[rng.IntN(3)], ""))
				}
				return rt.Join(all...)
			}
			var script []rt.Reply
			for range 60 {
				reply := turn()
				switch rng.IntN(16) {
				case 0:
					reply = rt.ServerError()
				case 1:
					reply = rt.ConnectionLimit()
				case 2:
					reply = rt.Drop()
				case 3:
					reply = rt.HTTP(200, "<html>")
				case 4:
					reply = rt.Failed("server_error", "x")
				case 5:
					reply = rt.Incomplete("max_output_tokens", rt.Call("call_x", "ok", "{"))
				case 6:
					cuts := []rt.Cut{rt.EOF, rt.HalfLine, rt.Reset, rt.FlatError, rt.NestedError, rt.FailedEvent, rt.Unsent}
					reply = reply.Broken(cuts[rng.IntN(len(cuts))], 1+rng.IntN(5))
				case 7, 8, 9:
					reply = reply.Broken(rt.HangUp, 0)
				case 10:
					reply = reply.Paced(time.Millisecond)
				}
				script = append(script, reply)
			}
			srv := rt.NewServer(append(script, rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("done") }))...)
			defer srv.Close()
			refuse := rng.IntN(8)
			srv.Handshake = func(n int) rt.Reply {
				if n%8 == refuse {
					return rt.HTTP(404, "")
				}
				return rt.Reply{}
			}

			var mu sync.Mutex
			finished := make(map[string]int)
			tool := func(name string, h func(context.Context) error) fnloop.Tool {
				return fnloop.Tool{Name: name, Handle: func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) {
					if err := h(ctx); err != nil {
						return fnloop.Output{}, err
					}
					mu.Lock()
					defer mu.Unlock()
					finished[c.ID]++
					return fnloop.Output{Text: name}, nil
				}}
			}
			loop := &fnloop.Loop{
				Client: srv.Client(), Model: "m", WebSocket: true, MaxTurns: 4, Attempts: 1, KeepItems: rng.IntN(2) == 0,
				Tools: []fnloop.Tool{
					tool("ok", func(context.Context) error { return nil }),
					tool("fail", func(context.Context) error { return errBoom }),
					tool("nap", func(ctx context.Context) error { return nap(ctx, 3*time.Millisecond) }),
				},
			}
			if rng.IntN(2) == 0 {
				loop.State = fnloop.Stateless
			}
			ans := new(fnloop.Answer)
			for i := range 25 {
				ctx, cancel := context.WithCancel(t.Context())
				if i < 20 && rng.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
				}
				var err error
				if rng.IntN(2) == 0 {
					ans, err = loop.Continue(ctx, ans, "next")
				} else {
					_, ans, err = watch(t, loop.Events(ctx, ans, "next"))
				}
				cancel()
				if e, ok := errors.AsType[*fnloop.RequestError](err); ok && e.Code != "websocket_connection_limit_reached" {
					require.NotEqual(t, 400, e.StatusCode, "refused: %v", err)
				}
				ans = store(t, ans)
			}
			for id, n := range finished {
				assert.Equal(t, 1, n, "call %s ran %d times", id, n)
			}
		})
	}
}

// BenchmarkWebSocket runs 20 calls one after the other over HTTP and over a
// WebSocket, against a stand-in that lets every HTTP request and every
// handshake wait for 5 ms. It reports how long a run takes over each, and what
// the WebSocket saves as a share of what it should: 20 of the 21 waits.
func BenchmarkWebSocket(b *testing.B) {
	const calls = 20
	const setup = 5 * time.Millisecond
	var script []rt.Reply
	for i := range calls {
		script = append(script, rt.Call(fmt.Sprintf("call_%d", i), "add", `{"a":2,"b":3}`))
	}
	srv := rt.NewServer(rt.PerConversation(append(script, rt.Text("done"))...))
	defer srv.Close()
	srv.SetupDelay = setup
	loop := fnloop.Loop{Client: srv.Client(), Model: "m", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}, MaxTurns: calls}
	socket := loop
	socket.WebSocket = true
	for _, manner := range []struct {
		name string
		run  func(*fnloop.Loop, string) error
	}{
		{"Run", func(l *fnloop.Loop, prompt string) error {
			_, err := l.Run(b.Context(), prompt)
			return err
		}},
		{"Events", func(l *fnloop.Loop, prompt string) (err error) {
			for _, err = range l.Events(b.Context(), nil, prompt) {
			}
			return err
		}},
	} {
		b.Run(manner.name, func(b *testing.B) {
			var took [2]time.Duration
			n := 0
			for b.Loop() {
				for i, l := range []*fnloop.Loop{&loop, &socket} {
					start := time.Now()
					if err := manner.run(l, fmt.Sprint("hi ", n)); err != nil {
						b.Fatal(err)
					}
					took[i] += time.Since(start)
				}
				n++
			}
			perRun := func(d time.Duration) float64 { return float64(d) / float64(n) / float64(time.Millisecond) }
			predicted := calls * setup * time.Duration(n)
			b.ReportMetric(perRun(took[0]), "http-ms/run")
			b.ReportMetric(perRun(took[1]), "websocket-ms/run")
			b.ReportMetric(float64(took[0])/float64(took[1]), "http/websocket")
			b.ReportMetric(float64(took[0]-took[1])/float64(predicted), "saved/predicted")
		})
	}
}
