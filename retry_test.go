package fnloop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

const locked = `{"error":{"message":"Another process is currently operating on this conversation.","type":"invalid_request_error","param":"conversation","code":"conversation_locked"}}`

func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		replies   []rt.Reply
		posts     int
		ok        bool
		wait      time.Duration // at least
	}{
		{"503 once", "the handler is not run again", []rt.Reply{rt.Error(503, "slow_down", "busy")}, 2, true, 375 * time.Millisecond},
		{"500 for ever", "it gives up with the last error", []rt.Reply{rt.ServerError(), rt.ServerError(), rt.ServerError()}, 3, false, time.Second},
		{"HTML 502", "a proxy's page", []rt.Reply{rt.HTTP(502, "<html>bad gateway</html>")}, 2, true, 375 * time.Millisecond},
		{"429 with a wait", "the API says when", []rt.Reply{rt.RateLimited(7 * time.Second)}, 2, true, 7 * time.Second},
		{"429 with a wait in its text", "or says it there", []rt.Reply{rt.Error(429, "rate_limit_exceeded", "Please try again in 4.628s.")}, 2, true, 4628 * time.Millisecond},
		{"429 with a wait of hours", "no user waits for that", []rt.Reply{rt.RateLimited(3 * time.Hour)}, 1, false, 0},
		{"429 without quota", "waiting does not help", []rt.Reply{rt.Error(429, "insufficient_quota", "no money")}, 1, false, 0},
		{"400", "it would be refused again", []rt.Reply{rt.Error(400, "invalid_prompt", "no")}, 1, false, 0},
		{"401", "nor does the key change", []rt.Reply{rt.Error(401, "invalid_api_key", "wrong key")}, 1, false, 0},
		{"conversation locked", "somebody else is at it", []rt.Reply{rt.HTTP(400, locked)}, 2, true, 375 * time.Millisecond},
		{"x-should-retry false", "the server knows better", []rt.Reply{rt.Error(500, "", "no", "x-should-retry", "false")}, 1, false, 0},
		{"x-should-retry true", "the server knows better", []rt.Reply{rt.Error(400, "", "again", "x-should-retry", "true")}, 2, true, 375 * time.Millisecond},
		{"connection cut", "nothing came", []rt.Reply{rt.Drop()}, 2, true, 375 * time.Millisecond},
		{"failed inside a 200", "the same as a 500", []rt.Reply{rt.Failed("server_error", "sorry")}, 2, true, 375 * time.Millisecond},
		{"rate limit inside a 200", "the wait is in its text alone", []rt.Reply{rt.Failed("rate_limit_exceeded", "Please try again in 11.054s.")}, 2, true, 11 * time.Second},
		{"failed for ever inside a 200", "it gives up", []rt.Reply{rt.Failed("server_error", "1"), rt.Failed("server_error", "2"), rt.Failed("server_error", "3")}, 3, false, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := append([]rt.Reply{rt.Call("call_1", "ok", "")}, tt.replies...)
			loop, srv := play(t, append(script, rt.Text("done"))...)
			ran := 0
			loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { ran++; return "yes", nil })}
			bubble(t, func(t *testing.T) {
				start := time.Now()
				ans, err := loop.Run(t.Context(), "hi")
				took := time.Since(start)
				assert.GreaterOrEqual(t, took, tt.wait, tt.why)
				assert.Less(t, took, tt.wait+4*time.Second)
				reqs := srv.Requests()
				require.Len(t, reqs, 1+tt.posts)
				for _, r := range reqs[2:] {
					assert.Equal(t, string(reqs[1].Body), string(r.Body), "a retry sends the same bytes")
				}
				if tt.ok {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
					if tt.name == "429 with a wait of hours" {
						assert.ErrorContains(t, err, "asks to wait 3h0m0s")
					}
					assert.Equal(t, srv.Requests()[0].ResponseID, ans.ID)
					assert.Equal(t, []string{"call_1"}, ans.Open)
					ans, err = loop.Continue(t.Context(), store(t, ans), "")
					require.NoError(t, err)
					assert.Equal(t, []string{"call_1", "yes"}, outputs(t, posts(t, srv)[1+tt.posts]), "the output is not lost")
				}
				assert.Equal(t, "done", ans.Text)
				assert.Equal(t, 1, ran)
			})
		})
	}
}

func TestAttempts(t *testing.T) {
	loop, srv := play(t, rt.ServerError(), rt.Text("done"))
	loop.Attempts = 1
	ans, err := loop.Run(t.Context(), "hello")
	var request *fnloop.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, 1, request.Attempts)
	assert.True(t, request.MaybeDelivered)
	require.Len(t, srv.Requests(), 1)
	assert.Equal(t, fnloop.StopRequest, ans.Stop)
	assert.Equal(t, "hello", ans.Prompt)
	ans, err = loop.Continue(t.Context(), store(t, ans), "")
	require.NoError(t, err)
	assert.Contains(t, string(srv.Requests()[1].Body), "hello", "a prompt that nobody took in is sent again")
	assert.Empty(t, ans.Prompt)
}

func TestAPIErrorSaysWhatTheAPISaid(t *testing.T) {
	loop, _ := play(t, rt.Text("hi"))
	ans, err := loop.Continue(t.Context(), &fnloop.Answer{ID: "resp_unknown"}, "hi")
	require.Error(t, err)
	var api *responses.Error
	require.ErrorAs(t, err, &api, "openai-go's own error is within")
	assert.Equal(t, 400, api.StatusCode)
	var request *fnloop.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, "previous_response_not_found", request.Code)
	assert.Equal(t, "previous_response_id", request.Param)
	assert.NotEmpty(t, request.RequestID)
	assert.False(t, request.MaybeDelivered)
	for _, part := range []string{"previous_response_not_found", "resp_unknown", "400"} {
		assert.Contains(t, err.Error(), part)
	}
	assert.Equal(t, fnloop.StopRequest, ans.Stop)
	assert.Equal(t, "resp_unknown", ans.ID, "nothing is resent on its own")
	ans.ID = ""
	_, err = loop.Continue(t.Context(), ans, "hi")
	require.NoError(t, err)
}

func TestUnusableAnswers(t *testing.T) {
	const call = `{"type":"function_call","id":"fc_%d","call_id":%q,"name":"ok","arguments":"{}","status":%q}`
	done := func(items ...string) rt.Reply {
		return rt.HTTP(200, `{"id":"resp_x","object":"response","status":"completed","output":[`+strings.Join(items, ",")+`]}`)
	}
	for _, tt := range []struct {
		name  string
		reply rt.Reply
		stop  fnloop.StopReason
		says  string
	}{
		{"HTML", rt.HTTP(200, "<html>login</html>"), fnloop.StopProtocol, "<html>login"},
		{"empty body", rt.HTTP(200, ""), fnloop.StopProtocol, "empty body"},
		{"half a body", rt.HTTP(200, `{"id":"resp_x","status":"comple`), fnloop.StopProtocol, "resp_x"},
		{"array", rt.HTTP(200, `[]`), fnloop.StopProtocol, "[]"},
		{"null", rt.HTTP(200, `null`, "content-type", "application/json"), fnloop.StopProtocol, "no status"},
		{"empty object", rt.HTTP(200, `{}`), fnloop.StopProtocol, "no status"},
		{"error object", rt.HTTP(200, `{"error":{"code":"x","message":"inside"}}`), fnloop.StopFailed, "inside"},
		{"no status", rt.HTTP(200, `{"id":"resp_x","output":[]}`), fnloop.StopProtocol, "no status"},
		{"unknown status", rt.HTTP(200, `{"id":"resp_x","status":"pondering","output":[]}`), fnloop.StopProtocol, "pondering"},
		{"queued", rt.HTTP(200, `{"id":"resp_x","status":"queued","output":[]}`), fnloop.StopProtocol, "queued"},
		{"no id", rt.HTTP(200, `{"status":"completed","output":[]}`), fnloop.StopProtocol, "no id"},
		{"no call_id", done(fmt.Sprintf(call, 1, "call_1", "completed"), fmt.Sprintf(call, 2, "", "completed")), fnloop.StopProtocol, "call_id"},
		{"same call_id", done(fmt.Sprintf(call, 1, "call_1", "completed"), fmt.Sprintf(call, 2, "call_1", "completed")), fnloop.StopProtocol, "call_1"},
		{"call cut short", done(fmt.Sprintf(call, 1, "call_1", "completed"), fmt.Sprintf(call, 2, "call_2", "incomplete")), fnloop.StopTruncated, "incomplete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop, srv := play(t, rt.Call("call_0", "ok", ""), tt.reply, rt.Text("done"))
			ran := 0
			loop.Tools = []fnloop.Tool{raw("ok", func(context.Context) (string, error) { ran++; return "yes", nil })}
			ans, err := loop.Run(t.Context(), "hi")
			require.Error(t, err)
			assert.Equal(t, tt.stop, ans.Stop, err.Error())
			assert.Contains(t, err.Error(), tt.says)
			assert.Equal(t, 1, ran)
			assert.Equal(t, srv.Requests()[0].ResponseID, ans.ID)
			ans, err = loop.Continue(t.Context(), store(t, ans), "go on")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
			assert.Equal(t, 1, ran, "no handler is run twice")
			assert.Equal(t, []string{"call_0", "yes"}, outputs(t, posts(t, srv)[2]))
		})
	}
}

func TestCancelDuringRequest(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	n := 0
	loop.Client = service(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 2 { // the model thinks and thinks
			<-r.Context().Done()
			return
		}
		srv.ServeHTTP(w, r)
	}))
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, fnloop.StopDeadline, ans.Stop)
		assert.Equal(t, srv.Requests()[0].ResponseID, ans.ID)
		ans, err = loop.Continue(t.Context(), store(t, ans), "go on")
		require.NoError(t, err)
		assert.Equal(t, "done", ans.Text)
	})
	assert.Equal(t, []string{"call_1", "yes"}, outputs(t, posts(t, srv)[1]))
}

func TestCancelBeforeAndBetween(t *testing.T) {
	loop, srv := play(t, rt.ServerError(), rt.Text("done"))
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ans, err := loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, "hi", ans.Prompt)
		assert.Empty(t, srv.Requests(), "a context that has ended sends nothing")

		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ans, err = loop.Run(ctx, "hi")
		require.ErrorIs(t, err, context.DeadlineExceeded, "nor does a retry after it")
		require.Len(t, srv.Requests(), 1)
		_, err = loop.Continue(t.Context(), ans, "")
		require.NoError(t, err)
	})
}

func TestDelivery(t *testing.T) {
	fail := func(err error) fnloop.Responder {
		s := responses.NewResponseService(option.WithBaseURL("http://model.invalid/v1"), option.WithAPIKey("k"),
			option.WithHTTPClient(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, err })}))
		return &s
	}
	for _, tt := range []struct {
		name     string
		err      error
		maybe    bool
		attempts int
	}{
		{"no such host", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}, false, 3},
		{"connection refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, false, 3},
		{"reset", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true, 3},
		{"cut", io.ErrUnexpectedEOF, true, 3},
		{"client's own timeout", context.DeadlineExceeded, true, 3},
		{"bad header", errors.New(`net/http: invalid header field value for "Authorization"`), false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				loop := &fnloop.Loop{Client: fail(tt.err), Model: "m"}
				_, err := loop.Run(t.Context(), "hi")
				var request *fnloop.RequestError
				require.ErrorAs(t, err, &request)
				require.ErrorIs(t, err, tt.err)
				assert.Equal(t, tt.maybe, request.MaybeDelivered)
				assert.Equal(t, tt.maybe, strings.Contains(err.Error(), "may have been delivered"))
				assert.Equal(t, tt.attempts, request.Attempts)
			})
		})
	}
	t.Run("stored, then lost", func(t *testing.T) {
		lost := rt.Text("lost")
		lost.Cut = rt.Unsent
		loop, srv := play(t, lost, lost, lost)
		bubble(t, func(t *testing.T) {
			_, err := loop.Run(t.Context(), "hi")
			var request *fnloop.RequestError
			require.ErrorAs(t, err, &request)
			assert.True(t, request.MaybeDelivered)
			assert.Len(t, srv.Requests(), 3, "the loop's attempts and no more")
		})
	})
	t.Run("a stand-in's own error", func(t *testing.T) {
		loop := &fnloop.Loop{Client: responder(func() (*responses.Response, error) { return nil, errBoom }), Model: "m"}
		_, err := loop.Run(t.Context(), "hi")
		var request *fnloop.RequestError
		require.ErrorAs(t, err, &request)
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, 1, request.Attempts)
	})
	t.Run("neither", func(t *testing.T) {
		loop := &fnloop.Loop{Client: responder(func() (*responses.Response, error) { return nil, nil }), Model: "m"}
		_, err := loop.Run(t.Context(), "hi")
		var protocol *fnloop.ProtocolError
		require.ErrorAs(t, err, &protocol)
	})
	t.Run("error body of another shape", func(t *testing.T) {
		for body, says := range map[string]string{`{"error":"just text"}`: "just text", `{"detail":"not found"}`: "not found", `{"x":1}`: `{"x":1}`, `nonsense`: "nonsense", ``: "404"} {
			loop, _ := play(t, rt.HTTP(404, body, "content-type", "application/json"))
			_, err := loop.Run(t.Context(), "hi")
			var request *fnloop.RequestError
			require.ErrorAs(t, err, &request)
			assert.Equal(t, 404, request.StatusCode)
			assert.Contains(t, err.Error(), "404")
			assert.Contains(t, strings.ReplaceAll(err.Error(), `\"`, `"`), says, "what came is in the text")
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type responder func() (*responses.Response, error)

func (f responder) New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error) {
	return f()
}

type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.n += int64(len(p))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (*endless) Close() error { return nil }

func TestEndlessBodies(t *testing.T) {
	for _, contentType := range []string{"application/json", "text/html", "text/event-stream"} {
		for _, status := range []int{200, 400} {
			body := new(endless)
			loop := &fnloop.Loop{Model: "m", Attempts: 1, Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: body, Request: req}, nil
			}))}
			_, err := loop.Run(t.Context(), "hi")
			require.ErrorContains(t, err, "larger than")
			_, _, err = watch(t, loop.Events(t.Context(), nil, "hi"))
			require.Error(t, err)
			assert.Less(t, body.n, int64(600<<20), "a server cannot fill the memory")
		}
	}
}
