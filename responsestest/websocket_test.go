package responsestest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

// A wire is a client in WebSocket mode that reads and writes messages as they are.
type wire struct {
	t    *testing.T
	conn *websocket.Conn
}

func dial(t *testing.T, srv *responsestest.Server) *wire {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), srv.URL+"/responses", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + srv.Key}},
	})
	require.NoError(t, err)
	require.NotEmpty(t, resp.Header.Get("X-Request-Id"))
	conn.SetReadLimit(-1)
	t.Cleanup(func() { conn.CloseNow() })
	return &wire{t, conn}
}

// send sends a response.create with these members.
func (w *wire) send(members string) {
	w.t.Helper()
	w.write(`{"type":"response.create","model":"m",` + members + `}`)
}

func (w *wire) write(message string) {
	w.t.Helper()
	require.NoError(w.t, w.conn.Write(w.t.Context(), websocket.MessageText, []byte(message)))
}

// read returns the next message, or nil when the connection has ended.
func (w *wire) read() document {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	kind, data, err := w.conn.Read(ctx)
	require.NoError(w.t, ctx.Err(), "no message came")
	if err != nil {
		return nil
	}
	require.Equal(w.t, websocket.MessageText, kind)
	var d document
	require.NoError(w.t, json.Unmarshal(data, &d), "%s", data)
	return d
}

// response reads the events of a response to the last one, with the given stream_id in each.
func (w *wire) response(streamID string) []document {
	w.t.Helper()
	var all []document
	for {
		d := w.read()
		require.NotNil(w.t, d, "the connection ended after %d events", len(all))
		require.EqualValues(w.t, len(all), d["sequence_number"], "%v", d)
		if streamID == "" {
			require.NotContains(w.t, d, "stream_id")
		} else {
			require.Equal(w.t, streamID, d["stream_id"])
		}
		all = append(all, d)
		switch d["type"] {
		case "response.completed", "response.incomplete", "response.failed":
			return all
		}
	}
}

// create sends a response.create and returns the response.
func (w *wire) create(members string) document {
	w.t.Helper()
	w.send(members)
	all := w.response("")
	d, _ := all[len(all)-1].at("response").(map[string]any)
	return d
}

// refused sends a response.create that has to be refused and returns the error message.
func (w *wire) refused(members string) document {
	w.t.Helper()
	w.send(members)
	return w.error()
}

func (w *wire) error() document {
	w.t.Helper()
	d := w.read()
	require.Equal(w.t, "error", d["type"], "%v", d)
	require.NotContains(w.t, d, "sequence_number")
	for _, key := range []string{"message", "type", "param", "code"} {
		require.Contains(w.t, d["error"], key)
	}
	return d
}

const addCall = `{"a":2}`

func output(id, text string) string {
	return `"input":[{"type":"function_call_output","call_id":"` + id + `","output":"` + text + `"}]`
}

func TestWebSocket(t *testing.T) {
	srv := serve(t,
		responsestest.Join(responsestest.Reasoning(""), responsestest.Call("call_1", "add", addCall)),
		responsestest.Text("done"), responsestest.Text("streamed"))
	w := dial(t, srv)
	w.send(`"input":"hi",` + tools("add"))
	all := w.response("")
	require.True(t, strings.HasPrefix(types(all), "created in_progress output_item.added output_item.done output_item.added function_call_arguments.delta"), types(all))
	first := document(all[len(all)-1].at("response").(map[string]any))
	second := w.create(`"previous_response_id":"` + first.id() + `",` + output("call_1", "5"))
	require.Equal(t, "done", second.at("output", 0, "content", 0, "text"))
	status, d := do(t, srv, "GET", "/responses/"+second.id(), "")
	require.Equal(t, http.StatusOK, status, "what is stored is stored")
	require.Equal(t, second["output"], d["output"])

	overHTTP := events(t, srv, `{"model":"m","input":"hi","stream":true}`)
	require.Equal(t, strings.Split(types(overHTTP), " ")[:3], strings.Split(types(all), " ")[:3])

	reqs := srv.Requests()
	require.Equal(t, 101, reqs[0].Status)
	require.Equal(t, 1, reqs[0].Connection)
	require.False(t, reqs[0].WebSocket)
	for _, r := range reqs[1:3] {
		require.True(t, r.WebSocket)
		require.Equal(t, 1, r.Connection)
		require.Equal(t, 200, r.Status)
		require.Equal(t, "/v1/responses", r.Path)
		require.Contains(t, string(r.Body), `"response.create"`)
	}
	require.Equal(t, second.id(), reqs[2].ResponseID)
	require.False(t, reqs[4].WebSocket)
	require.Zero(t, reqs[4].Connection)
	require.Equal(t, 1, srv.Connections())
	require.NoError(t, srv.Err())
}

// The SDK's connection finds what it expects.
func TestWebSocketClient(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"), responsestest.RateLimited(time.Second))
	conn, err := srv.Client().Connect(t.Context(), responses.ResponseConnectionOptions{})
	require.NoError(t, err)
	defer conn.Close()
	lane, err := conn.Lane("a")
	require.NoError(t, err)
	require.NoError(t, conn.SendRaw(t.Context(), json.RawMessage(`{"type":"response.create","model":"m","input":"hi","stream_id":"a"}`)))
	resp, err := lane.FinalResponse(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", resp.OutputText())
	require.NoError(t, conn.SendRaw(t.Context(), json.RawMessage(`{"type":"response.create","model":"m","input":"hi"}`)))
	_, err = conn.FinalResponse(t.Context())
	var e *responses.ResponseProtocolError
	require.ErrorAs(t, err, &e)
	failed := e.Event.OfResponsesServerEventResponseWsError
	require.EqualValues(t, 429, failed.Status)
	require.Equal(t, "rate_limit_exceeded", failed.Error.Code)
	require.Contains(t, e.Event.RawJSON(), `"retry-after-ms":"1000"`)
}

func TestWebSocketRefusals(t *testing.T) {
	srv := serve(t, responsestest.Call("call_1", "add", addCall))
	w := dial(t, srv)
	first := w.create(`"input":"hi",` + tools("add"))
	for _, tt := range []struct {
		name, why   string
		message     string
		status      float64
		code, param any
	}{
		{"no JSON", "nothing can be read of it", `{`, 400, nil, nil},
		{"no type", "it says what it is", `{"model":"m","input":"hi"}`, 400, "missing_required_parameter", "type"},
		{"other type", "steering is not served", `{"type":"response.steer"}`, 400, "invalid_value", "type"},
		{"no model", "the checks are those of HTTP", `{"type":"response.create","input":"hi"}`, 400, "missing_required_parameter", "model"},
		{"unknown member", "they are", `{"type":"response.create","model":"m","input":"hi","foo":1}`, 400, "unknown_parameter", "foo"},
		{"stream", "there is nothing else", `{"type":"response.create","model":"m","input":"hi","stream":true}`, 400, "unsupported_parameter", "stream"},
		{"background", "nor is there that", `{"type":"response.create","model":"m","input":"hi","background":false}`, 400, "unsupported_parameter", "background"},
		{"empty stream_id", "documented", `{"type":"response.create","model":"m","input":"hi","stream_id":""}`, 400, "invalid_stream_id", "stream_id"},
		{"long stream_id", "documented", `{"type":"response.create","model":"m","input":"hi","stream_id":"` + strings.Repeat("x", 257) + `"}`, 400, "invalid_stream_id", "stream_id"},
		{"wrong generate", "it is a boolean", `{"type":"response.create","model":"m","input":"hi","generate":1}`, 400, "invalid_type", "generate"},
		{"unknown response", "documented", `{"type":"response.create","model":"m","input":"hi","previous_response_id":"resp_x"}`, 400, "previous_response_not_found", "previous_response_id"},
		{"open call", "the pairing is that of HTTP", `{"type":"response.create","model":"m","input":"hi","previous_response_id":"` + first.id() + `"}`, 400, nil, "input"},
		{"script used up", "an error of the test", `{"type":"response.create","model":"m","input":"hi"}`, 500, "script_exhausted", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			w.write(tt.message)
			d := w.error()
			require.Equal(t, tt.status, d["status"], tt.why)
			require.Equal(t, tt.code, d.at("error", "code"), "%v", d)
			require.Equal(t, tt.param, d.at("error", "param"))
			require.NotContains(t, d, "stream_id")
		})
	}
	w.t = t
	require.NoError(t, w.conn.Write(t.Context(), websocket.MessageBinary, []byte("{}")))
	require.Nil(t, w.read(), "messages are text")
	_, e := refused(t, srv, `{"model":"m","input":"hi","stream_id":"a"}`)
	require.Equal(t, "unknown_parameter", e["code"], "lanes are of WebSockets alone")
}

func TestWebSocketCache(t *testing.T) {
	const store = `"store":false,`
	next := func(d document) string { return store + `"input":"go on","previous_response_id":"` + d.id() + `"` }
	script := func() []responsestest.Reply {
		return []responsestest.Reply{responsestest.Always(func(turn *responsestest.Turn) responsestest.Reply {
			return responsestest.Text(fmt.Sprintf("%d items, round %d", len(turn.Input), turn.Round))
		})}
	}
	text := func(d document) any { return d.at("output", 0, "content", 0, "text") }
	gone := func(t *testing.T, d document) {
		t.Helper()
		require.Equal(t, "previous_response_not_found", d.at("error", "code"), "%v", d)
	}
	t.Run("goes on what is not stored", func(t *testing.T) {
		w := dial(t, serve(t, script()...))
		first := w.create(store + `"input":"hi"`)
		second := w.create(next(first))
		require.Equal(t, "3 items, round 1", text(second))
		gone(t, w.refused(next(first)))
		require.Equal(t, "5 items, round 2", text(w.create(next(second))), "only the latest is kept, and that is not touched")
	})
	t.Run("not on another connection", func(t *testing.T) {
		srv := serve(t, script()...)
		first := dial(t, srv).create(store + `"input":"hi"`)
		gone(t, dial(t, srv).refused(next(first)))
		_, e := refused(t, srv, `{"model":"m","input":"hi","previous_response_id":"`+first.id()+`"}`)
		require.Equal(t, "previous_response_not_found", e["code"])
	})
	t.Run("not after a refusal", func(t *testing.T) {
		w := dial(t, serve(t, script()...))
		first := w.create(store + `"input":"hi"`)
		require.Equal(t, "invalid_type", w.refused(`"temperature":"hot",`+next(first)).at("error", "code"))
		gone(t, w.refused(next(first)))
	})
	t.Run("nor after an error in the stream", func(t *testing.T) {
		w := dial(t, serve(t, responsestest.Text("hi"), responsestest.Text("hi").Broken(responsestest.NestedError, 2)))
		first := w.create(store + `"input":"hi"`)
		w.send(next(first))
		for w.read()["type"] != "error" {
		}
		gone(t, w.refused(next(first)))
	})
	t.Run("but what is stored is found again", func(t *testing.T) {
		w := dial(t, serve(t, script()...))
		first := w.create(`"input":"hi"`)
		w.refused(`"temperature":"hot",` + next(first))
		require.Equal(t, "3 items, round 1", text(w.create(next(first))))
	})
	t.Run("a failed fork keeps the parent", func(t *testing.T) {
		w := dial(t, serve(t, script()...))
		first := w.create(store + `"input":"hi"`)
		d := w.refused(`"stream_id":"fork","temperature":"hot",` + next(first))
		require.Equal(t, "fork", d["stream_id"])
		w.send(`"stream_id":"fork",` + next(first))
		w.response("fork")
		require.Equal(t, "3 items, round 1", text(w.create(next(first))))
	})
	t.Run("forgotten", func(t *testing.T) {
		srv := serve(t, script()...)
		w := dial(t, srv)
		first := w.create(store + `"input":"hi"`)
		srv.Forget(first.id())
		gone(t, w.refused(next(first)))
	})
	t.Run("generate false", func(t *testing.T) {
		srv := serve(t, responsestest.Text("hello"))
		w := dial(t, srv)
		first := w.create(store + `"input":"hi","generate":false`)
		require.Empty(t, first["output"])
		require.EqualValues(t, 0, first.at("usage", "output_tokens"))
		second := w.create(next(first))
		require.Equal(t, "hello", text(second))
		require.NoError(t, srv.Err(), "it takes no reply")
	})
}

func TestWebSocketLanes(t *testing.T) {
	release := make(chan struct{})
	srv := serve(t, responsestest.Always(func(turn *responsestest.Turn) responsestest.Reply {
		if turn.Prompt() == "slow" {
			<-release
		}
		return responsestest.Text(turn.Prompt())
	}))
	srv.MaxInFlight, srv.MaxLanes = 3, 4
	w := dial(t, srv)
	w.send(`"input":"slow","stream_id":"a"`)
	w.send(`"input":"quick","stream_id":"a"`)
	w.send(`"input":"quick","stream_id":"b"`)
	w.response("b")
	w.send(`"input":"slow","stream_id":"b"`)
	w.send(`"input":"slow","stream_id":"c"`)
	require.Eventually(t, func() bool { return len(srv.Requests()) == 6 }, 5*time.Second, time.Millisecond)
	w.send(`"input":"quick","stream_id":"d"`) // three are being made
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, srv.Requests()[6].ResponseID, "more wait")
	w.send(`"input":"quick","stream_id":"e"`)
	require.Equal(t, "websocket_stream_limit_reached", w.error().at("error", "code"))
	close(release)
	last := make(map[any]any)
	for n := 0; n < 5; {
		d := w.read()
		if d["type"] == "response.completed" {
			n++
			last[d["stream_id"]] = d.at("response", "output", 0, "content", 0, "text")
		}
	}
	require.Equal(t, map[any]any{"a": "quick", "b": "slow", "c": "slow", "d": "quick"}, last, "a lane is answered in order")
}

func TestWebSocketAge(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"), responsestest.ConnectionLimit())
	w := dial(t, srv)
	w.create(`"input":"hi"`)
	scripted := w.refused(`"input":"hi"`)
	srv = serve(t)
	srv.MaxAge = 0
	d := dial(t, srv).refused(`"input":"hi"`)
	require.Equal(t, "websocket_connection_limit_reached", d.at("error", "code"))
	require.EqualValues(t, 400, d["status"])
	require.Equal(t, scripted.at("error", "code"), d.at("error", "code"))
	require.Equal(t, "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.", scripted.at("error", "message"))
}

func TestWebSocketCuts(t *testing.T) {
	hello := responsestest.Text("hello")
	status := func(err error) websocket.StatusCode { return websocket.CloseStatus(err) }
	for _, tt := range []struct {
		name, why string
		reply     responsestest.Reply
		events    string
		status    websocket.StatusCode
		stored    bool
	}{
		{"end", "the connection is closed in good order", hello.Broken(responsestest.EOF, 2), "response.created response.in_progress", 1001, false},
		{"half an event", "the last message is no JSON", hello.Broken(responsestest.HalfLine, 1), "response.created bad", 1001, false},
		{"reset", "there is no closing handshake", hello.Broken(responsestest.Reset, 1), "response.created", -1, false},
		{"unsent", "it is stored all the same", hello.Broken(responsestest.Unsent, 0), "", -1, true},
		{"dropped", "nothing is", responsestest.Drop(), "", -1, false},
		{"hung up", "the answer is whole", responsestest.Incomplete("max_output_tokens").Broken(responsestest.HangUp, 0), "response.created response.in_progress response.incomplete", 1001, true},
		{"page", "as it is", responsestest.HTTP(200, "<html>"), "bad", 0, false},
		{"page of a proxy", "as an error", responsestest.HTTP(502, "<html>"), "error", 0, false},
		{"flat error", "the connection stays", hello.Broken(responsestest.FlatError, 1), "response.created error", 0, false},
		{"failed event", "the connection stays", hello.Broken(responsestest.FailedEvent, 1), "response.created error response.failed", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := serve(t, tt.reply, hello)
			w := dial(t, srv)
			w.send(`"input":"hi"`)
			var got []string
			var err error
			for range strings.Fields(tt.events) {
				var data []byte
				_, data, err = w.conn.Read(t.Context())
				require.NoError(t, err)
				var d document
				if json.Unmarshal(data, &d) != nil {
					got = append(got, "bad")
				} else {
					got = append(got, d["type"].(string))
				}
			}
			require.Equal(t, tt.events, strings.Join(got, " "))
			if tt.status == 0 {
				w.create(`"input":"again"`)
			} else {
				_, _, err = w.conn.Read(t.Context())
				require.Equal(t, tt.status, status(err), "%s: %v", tt.why, err)
			}
			id := srv.Requests()[1].ResponseID
			if id == "" {
				id = "resp_none"
			}
			code, _ := do(t, srv, "GET", "/responses/"+id, "")
			require.Equal(t, tt.stored, code == http.StatusOK)
		})
	}
	t.Run("frozen", func(t *testing.T) {
		srv := serve(t, hello.Broken(responsestest.Freeze, 1), responsestest.Text("late").After(time.Hour))
		for range 2 {
			w := dial(t, srv)
			w.send(`"input":"hi"`)
			if srv.Connections() == 1 {
				w.read()
			}
			time.Sleep(20 * time.Millisecond)
			w.conn.CloseNow()
		}
		require.Eventually(t, func() bool {
			reqs := srv.Requests()
			return reqs[1].Disconnected && reqs[3].Disconnected
		}, 5*time.Second, time.Millisecond)
	})
	t.Run("over HTTP", func(t *testing.T) {
		srv := serve(t, hello.Broken(responsestest.HangUp, 0))
		req, err := http.NewRequest("POST", srv.URL+"/responses", strings.NewReader(streamed))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer test")
		tr := new(http.Transport)
		defer tr.CloseIdleConnections()
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), "response.completed")
		require.True(t, resp.Close)
	})
}

func TestWebSocketHandshake(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"))
	srv.Handshake = func(n int) responsestest.Reply {
		return []responsestest.Reply{
			responsestest.Drop(), // the first, since net/http tries again on a connection that it has used before
			responsestest.Error(404, "", "not here"),
			responsestest.HTTP(426, "upgrade"),
			{},
			{},
		}[n-1]
	}
	shake := func(key string) (int, error) {
		conn, resp, err := websocket.Dial(t.Context(), srv.URL+"/responses", &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + key}},
		})
		if err != nil {
			if resp == nil {
				return 0, err
			}
			return resp.StatusCode, nil
		}
		conn.CloseNow()
		return 101, nil
	}
	for _, want := range []int{0, 404, 426, 101} {
		got, err := shake("test")
		require.Equal(t, want, got)
		require.Equal(t, want == 0, err != nil)
	}
	resp, _ := send(t, srv, "GET", "/responses", "", "Upgrade", "websocket") // without the rest of a handshake
	require.GreaterOrEqual(t, resp.StatusCode, 400)
	got, _ := shake("wrong")
	require.Equal(t, http.StatusUnauthorized, got)
	require.Equal(t, 1, srv.Connections())
	status, d := do(t, srv, "GET", "/responses", "")
	require.Equal(t, http.StatusNotFound, status, "%v", d)

	req := httptest.NewRequest("GET", "/v1/responses", nil)
	req.Header.Set("Authorization", "Bearer test")
	req.Header.Set("Upgrade", "websocket")
	rec := httptest.NewRecorder()
	srv.ServeHTTP(rec, req)
	require.Equal(t, http.StatusNotImplemented, rec.Code, "there is no connection to upgrade")
}

func TestCloseEndsWebSockets(t *testing.T) {
	srv := responsestest.NewServer(responsestest.Text("never").After(time.Hour), responsestest.Text("never").Broken(responsestest.Freeze, 1))
	for _, stage := range []string{"idle", "waiting", "frozen"} {
		w := dial(t, srv)
		if stage != "idle" {
			w.send(`"input":"hi"`)
			require.Eventually(t, func() bool { r := srv.Requests(); return r[len(r)-1].ResponseID != "" }, 5*time.Second, time.Millisecond)
		}
	}
	start := time.Now()
	srv.Close()
	require.Less(t, time.Since(start), 3*time.Second)
	for _, r := range srv.Requests() {
		require.False(t, r.Disconnected, "no client went away")
	}
	srv.Close()
}

// Neither a client that stops in the middle of its request nor a function of the script that does not
// return keeps Close.
func TestCloseDoesNotHang(t *testing.T) {
	t.Run("half a request", func(t *testing.T) {
		srv := responsestest.NewServer()
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(srv.URL, "http://"), "/v1"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
		srv.Close()
	})
	t.Run("a function", func(t *testing.T) {
		defer responsestest.SetCloseWait(50 * time.Millisecond)()
		release := make(chan struct{})
		srv := responsestest.NewServer(responsestest.Func(func(*responsestest.Turn) responsestest.Reply {
			<-release
			return responsestest.Text("late")
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := srv.Client().New(ctx, ask("hi"))
			done <- err
		}()
		require.Eventually(t, func() bool { return len(srv.Requests()) == 1 }, 5*time.Second, time.Millisecond)
		srv.Close()
		require.ErrorContains(t, srv.Err(), "did not return")
		cancel()
		require.Error(t, <-done)
		close(release)
		srv.Close()
	})
}

// In a bubble of testing/synctest a delay takes no time, the server being outside of it or not.
func TestDelayInBubble(t *testing.T) {
	srv := serve(t, responsestest.Text("hello").After(time.Hour))
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"hi"}`))
		req.Header.Set("Authorization", "Bearer test")
		rec := httptest.NewRecorder()
		srv.ServeHTTP(rec, req)
		require.Equal(t, 200, rec.Code)
		require.Equal(t, time.Hour, time.Since(start))
	})
}
