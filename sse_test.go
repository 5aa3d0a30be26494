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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func TestWriteSSE(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "ok", `{"line":"a\nb"}`), rt.Text("line one\nline two"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	rec := httptest.NewRecorder()
	require.NoError(t, fnloop.SSE{View: fnloop.View{Outputs: true}}.Write(rec, loop.Events(t.Context(), nil, "hi")))
	assert.Equal(t, "text/event-stream", rec.Header().Get("Content-Type"))
	assert.True(t, rec.Flushed)
	var names []string
	for frame := range strings.SplitSeq(strings.TrimSuffix(rec.Body.String(), "\n\n"), "\n\n") {
		lines := strings.Split(frame, "\n")
		require.Len(t, lines, 2, "a frame is two lines: %q", frame)
		name := strings.TrimPrefix(lines[0], "event: ")
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &doc))
		assert.Equal(t, name, doc["type"])
		names = append(names, name)
		switch name {
		case "call_started":
			assert.Equal(t, map[string]any{"line": "a\nb"}, doc["arguments"])
		case "call_finished":
			assert.Equal(t, "yes", doc["output"])
		case "done":
			assert.Equal(t, "line one\nline two", doc["answer"].(map[string]any)["text"])
			assert.NotContains(t, doc, "error")
		}
	}
	assert.Equal(t, "done", names[len(names)-1])

	loop, _ = play(t, rt.Error(401, "invalid_api_key", "the secret key is sk-123"))
	rec = httptest.NewRecorder()
	err := fnloop.WriteSSE(rec, loop.Events(t.Context(), nil, "hi"))
	require.Error(t, err)
	assert.Contains(t, rec.Body.String(), `"error":"request"`)
	assert.NotContains(t, rec.Body.String(), "sk-123", "the browser does not get the error's text")
}

// A brokenWriter takes so many writes.
type brokenWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errBoom
	}
	return w.ResponseRecorder.Write(p)
}

// Wherever the browser goes away, the host sees Done, and a call is made once.
func TestWriteSSEReadsOn(t *testing.T) {
	for left := range 12 {
		loop, _ := play(t, rt.Call("call_1", "pay", ""), rt.Text("paid"))
		paid := 0
		loop.Tools = []fnloop.Tool{raw("pay", func(context.Context) (string, error) { paid++; return "yes", nil })}
		var done *fnloop.Answer
		err := fnloop.WriteSSE(&brokenWriter{httptest.NewRecorder(), left}, func(yield func(fnloop.Event, error) bool) {
			for e, err := range loop.Events(t.Context(), nil, "hi") {
				if d, ok := e.(fnloop.Done); ok {
					done = d.Answer
				}
				if !yield(e, err) {
					return
				}
			}
		})
		require.NoError(t, err, "a closed tab is no error")
		require.NotNil(t, done, "after %d writes", left)
		assert.Equal(t, "paid", done.Text)
		assert.Equal(t, 1, paid)
	}
}

func TestWriteSSEReturnsTheRunsError(t *testing.T) {
	loop, _ := play(t, rt.Error(401, "x", "no"))
	err := fnloop.WriteSSE(&brokenWriter{httptest.NewRecorder(), 0}, loop.Events(t.Context(), nil, "hi"))
	require.ErrorAs(t, err, new(*fnloop.RequestError), "also when there is no browser to tell")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	loop, _ = play(t)
	require.NoError(t, fnloop.WriteSSE(httptest.NewRecorder(), loop.Events(ctx, nil, "hi")), "the tab was closed")
	ctx, cancel = context.WithTimeout(t.Context(), -1)
	defer cancel()
	require.ErrorIs(t, fnloop.WriteSSE(httptest.NewRecorder(), loop.Events(ctx, nil, "hi")), context.DeadlineExceeded)

	var odd iter.Seq2[fnloop.Event, error] = func(yield func(fnloop.Event, error) bool) {
		_ = yield(nil, errBoom) && yield(fnloop.Done{}, nil)
	}
	require.ErrorIs(t, fnloop.WriteSSE(httptest.NewRecorder(), odd), errBoom, "an iterator of somebody else's")
}

func TestWriteSSEKeepsToolStateBack(t *testing.T) {
	rec := httptest.NewRecorder()
	loop, _ := play(t, rt.Text("done"))
	from := &fnloop.Answer{ToolState: map[string]json.RawMessage{"python": json.RawMessage(`"secret-session"`)}}
	var done *fnloop.Answer
	require.NoError(t, fnloop.WriteSSE(rec, func(yield func(fnloop.Event, error) bool) {
		for e, err := range loop.Events(t.Context(), from, "hi") {
			if d, ok := e.(fnloop.Done); ok {
				done = d.Answer
			}
			yield(e, err)
		}
	}))
	assert.NotContains(t, rec.Body.String(), "secret-session")
	assert.NotEmpty(t, done.ToolState, "the host has it")
}

// A stuckWriter is a connection to a browser that takes nothing: a write blocks
// until its deadline.
type stuckWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *stuckWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

func (w *stuckWriter) Write([]byte) (int, error) {
	time.Sleep(time.Until(w.deadline))
	return 0, os.ErrDeadlineExceeded
}

func TestWriteSSEWithABrowserThatIsStuck(t *testing.T) {
	loop, _ := play(t, rt.Text("one two three four"))
	bubble(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, fnloop.WriteSSE(&stuckWriter{ResponseRecorder: httptest.NewRecorder()}, loop.Events(t.Context(), nil, "hi")))
		assert.Equal(t, 30*time.Second, time.Since(start), "it is waited for once")
	})
}

// chats is a back end with the README's handler.
type chats struct {
	byName sync.Map
	failed atomic.Int32
	ended  chan struct{} // gets one value for each request that was answered
}

type conversation struct {
	mu     sync.Mutex
	answer *fnloop.Answer
}

func (s *chats) answer(name string) *fnloop.Answer {
	found, _ := s.byName.Load(name)
	c := found.(*conversation)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer
}

func (s *chats) serve(t *testing.T, loop *fnloop.Loop, writeTimeout time.Duration) *httptest.Server {
	s.ended = make(chan struct{}, 1000)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats/{chat}", func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.ended <- struct{}{} }()
		found, _ := s.byName.LoadOrStore(r.PathValue("chat"), new(conversation))
		c := found.(*conversation)
		c.mu.Lock()
		defer c.mu.Unlock()
		events := loop.Events(r.Context(), c.answer, r.FormValue("prompt"))
		err := fnloop.WriteSSE(w, func(yield func(fnloop.Event, error) bool) {
			for event, err := range events {
				if done, ok := event.(fnloop.Done); ok {
					c.answer = done.Answer
				}
				if !yield(event, err) {
					return
				}
			}
		})
		if err != nil {
			s.failed.Add(1)
			slog.Error("chat", "error", err)
		}
	})
	back := httptest.NewUnstartedServer(mux)
	back.Config.WriteTimeout = writeTimeout
	back.Start()
	t.Cleanup(back.Close)
	return back
}

// The README's handler keeps every turn, however the browser leaves.
func TestChatHandlerKeepsEveryTurn(t *testing.T) {
	const times = 50
	// post sends a prompt and reads until so many deltas came, or to the end.
	dial := func(leave func(net.Conn)) func(t *testing.T, url, prompt string, deltas int) {
		return func(t *testing.T, url, prompt string, deltas int) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST /chats/7?prompt=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", prompt)
			lines := bufio.NewScanner(conn)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "event: text_delta") && deltas > 0 {
					if deltas--; deltas == 0 {
						leave(conn)
						return
					}
				}
			}
		}
	}
	for name, way := range map[string]struct {
		timeout time.Duration
		post    func(t *testing.T, url, prompt string, deltas int)
	}{
		"close": {0, dial(func(c net.Conn) { c.Close() })},
		"reset": {0, dial(func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() })},
		"abort": {0, func(t *testing.T, url, prompt string, deltas int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", url+"/chats/7?prompt="+prompt, nil)
			require.NoError(t, err)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "event: text_delta") && deltas > 0 {
					if deltas--; deltas == 0 {
						return
					}
				}
			}
		}},
		"write timeout": {time.Millisecond, dial(func(net.Conn) {})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range times {
				srv := rt.NewServer(rt.Text("first answer"), rt.Call("call_1", "charge", "{}"),
					rt.Text(strings.Repeat("word ", 300)).Paced(20*time.Microsecond), rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("third answer") }))
				var charged atomic.Int32
				loop := &fnloop.Loop{Client: srv.Client(), Model: "m", Tools: []fnloop.Tool{
					raw("charge", func(context.Context) (string, error) { charged.Add(1); return "charged", nil }),
				}}
				var s chats
				back := s.serve(t, loop, way.timeout)
				way.post(t, back.URL, "one", 0)
				<-s.ended
				way.post(t, back.URL, "two", 1+i%7)
				select {
				case <-s.ended:
				case <-time.After(10 * time.Second):
					t.Fatal("the handler hangs")
				}
				ans := s.answer("7")
				require.NotEqual(t, "first answer", ans.Text, "the second turn was lost, time %d", i)
				way.post(t, back.URL, "three", 0)
				<-s.ended
				require.Equal(t, "third answer", s.answer("7").Text)
				require.EqualValues(t, 1, charged.Load())
				require.Zero(t, s.failed.Load(), "none of it is an error")
				back.Close()
				srv.Close()
			}
		})
	}
}

// A run that takes longer than the server's write timeout reaches the browser.
func TestWriteTimeoutDoesNotEndTheStream(t *testing.T) {
	srv := rt.NewServer(rt.Text(strings.Repeat("word ", 30)).Paced(10 * time.Millisecond))
	defer srv.Close()
	var s chats
	back := s.serve(t, &fnloop.Loop{Client: srv.Client(), Model: "m"}, 50*time.Millisecond)
	res, err := http.Post(back.URL+"/chats/7?prompt=hi", "", nil)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), "event: done")
}

func TestTwoPromptsAtOnce(t *testing.T) {
	srv := rt.NewServer(rt.Text("hello"), rt.Text("first").After(30*time.Millisecond), rt.Text("second"))
	defer srv.Close()
	var s chats
	back := s.serve(t, &fnloop.Loop{Client: srv.Client(), Model: "m", KeepItems: true}, 0)
	post := func(prompt string) {
		res, err := http.Post(back.URL+"/chats/7?prompt="+prompt, "", nil)
		if assert.NoError(t, err) {
			_, err = io.Copy(io.Discard, res.Body)
			assert.NoError(t, errors.Join(err, res.Body.Close()))
		}
	}
	post("zero")
	var both sync.WaitGroup
	both.Go(func() { post("one") })
	both.Go(func() { post("two") })
	both.Wait()
	assert.Len(t, s.answer("7").Items, 6, "three prompts and three answers")
}
