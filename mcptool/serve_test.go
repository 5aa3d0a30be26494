package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/mcptest"
	"github.com/fnloop/fnloop/mcptool"
	"github.com/fnloop/fnloop/runners/fake"
)

type greeting struct {
	Name string `json:"name"`
}

// offered are tools of all kinds.
func offered(t *testing.T) []fnloop.Tool {
	t.Helper()
	png := picture(t, 3)
	tool := func(name string, fn func(context.Context, greeting) (fnloop.Output, error)) fnloop.Tool {
		return fnloop.MustTool(name, "Does "+name+".", fn)
	}
	asks := tool("asks", func(context.Context, greeting) (fnloop.Output, error) { return fnloop.Output{Text: "ran"}, nil })
	asks.NeedsApproval = fnloop.Always
	slow := tool("slow", func(ctx context.Context, _ greeting) (fnloop.Output, error) {
		out, _ := fnloop.LiveOutput(ctx)
		for i := 0; ; i++ {
			if out != nil {
				fmt.Fprintf(out, "step %d\n", i)
			}
			select {
			case <-ctx.Done():
				return fnloop.Output{}, ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			if i == 10 {
				return fnloop.Output{Text: "done"}, nil
			}
		}
	})
	fails := tool("fails", func(context.Context, greeting) (fnloop.Output, error) {
		return fnloop.Output{}, errors.New("no such person")
	})
	aborts := tool("aborts", func(context.Context, greeting) (fnloop.Output, error) {
		return fnloop.Output{}, fnloop.Abort(errors.New("password of the database"))
	})
	custom := fnloop.Tool{Name: "custom", Description: "Takes text.", Custom: true, Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
		return fnloop.Output{Text: "<" + string(c.Arguments) + ">"}, nil
	}}
	parts := tool("parts", func(context.Context, greeting) (fnloop.Output, error) {
		return fnloop.Output{Content: []fnloop.Content{
			{Text: "a"}, {ImageURL: "data:image/png;base64," + png}, {FileName: "a b.txt", FileData: "data:text/plain;base64,aGk="}, {ImageURL: "https://example.com/a.png"}, {FileID: "file_1"},
		}}, nil
	})
	code := 0
	python := fnloop.PythonTool(&fake.Runner{Results: []fnloop.Result{{ExitCode: &code, Stdout: "<42>\n"}}}, fnloop.Limits{})
	return []fnloop.Tool{
		tool("greet", func(_ context.Context, in greeting) (fnloop.Output, error) {
			return fnloop.Output{Text: "hello " + in.Name}, nil
		}),
		asks, slow, fails, aborts, custom, parts, python,
	}
}

var results = map[string]json.RawMessage{
	"run_python": json.RawMessage(`{"type":"object","properties":{"exit_code":{"type":["integer","null"]},"timed_out":{"type":"boolean"},"stdout":{"type":"string"},"stderr":{"type":"string"}},"required":["exit_code","timed_out","stdout","stderr"]}`),
}

// piped serves tools and connects a client of go-sdk's with them.
func piped(t *testing.T, tools []fnloop.Tool, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	hereR, thereW := io.Pipe()
	thereR, hereW := io.Pipe()
	opts := mcptool.ServeOptions{Stdin: thereR, Stdout: thereW, Instructions: "Be kind."}
	if tools[len(tools)-1].Name == "run_python" {
		opts.Results = results
	}
	served := make(chan error, 1)
	go func() { served <- mcptool.Serve(context.Background(), opts, tools...) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, o).Connect(t.Context(), &mcp.IOTransport{Reader: hereR, Writer: hereW}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		session.Close()
		require.NoError(t, <-served, "the end of the input is no error")
	})
	return session
}

func TestServe(t *testing.T) {
	session := piped(t, offered(t), nil)
	assert.Equal(t, "Be kind.", session.InitializeResult().Instructions)
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list.Tools, 8)
	for _, c := range []struct {
		tool, args string
		want       string // the content as JSON
		bad        bool
	}{
		{"greet", `{"name":"Ada"}`, `[{"type":"text","text":"hello Ada"}]`, false},
		{"greet", `{"nam":"Ada"}`, `[{"type":"text","text":"nam: unknown property, expected name; name: missing, expected string"}]`, true},
		{"asks", `{"name":""}`, `[{"type":"text","text":"not run: the call needs the approval of a person, who cannot be asked here"}]`, true},
		{"fails", `{"name":""}`, `[{"type":"text","text":"no such person"}]`, true},
		{"aborts", `{"name":""}`, `[{"type":"text","text":"the tool failed"}]`, true},
		{"custom", `{"input":"a\nb"}`, `[{"type":"text","text":"<a\nb>"}]`, false},
		{"custom", `{}`, `[{"type":"text","text":"input: expected a string"}]`, true},
		{"parts", `{"name":""}`, `[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"` + picture(t, 3) + `"},{"type":"resource","resource":{"uri":"file:///a%20b.txt","mimeType":"text/plain","blob":"aGk="}},{"type":"resource_link","uri":"https://example.com/a.png","name":"image"},{"type":"text","text":"[a file that only the API of the tool's owner can read: file_1]"}]`, false},
	} {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
		require.NoError(t, err)
		got, err := json.Marshal(res.Content)
		require.NoError(t, err)
		if c.tool == "greet" && c.bad {
			assert.Contains(t, string(got), "nam")
		} else {
			assert.JSONEq(t, c.want, string(got))
		}
		assert.Equal(t, c.bad, res.IsError, c.tool)
	}
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: json.RawMessage(`{"code":"print(42)"}`)})
	require.NoError(t, err)
	structured, err := json.Marshal(res.StructuredContent)
	require.NoError(t, err)
	assert.JSONEq(t, `{"exit_code":0,"timed_out":false,"stdout":"<42>\n","stderr":""}`, string(structured))
	assert.JSONEq(t, string(structured), res.Content[0].(*mcp.TextContent).Text)
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nobody"})
	require.ErrorContains(t, err, "nobody")
}

func TestServe_progress(t *testing.T) {
	var told atomic.Int32
	var last atomic.Value
	last.Store(0.0)
	session := piped(t, offered(t), &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		told.Add(1)
		assert.Greater(t, req.Params.Progress, last.Swap(req.Params.Progress))
		assert.Contains(t, req.Params.Message, "step")
	}})
	params := &mcp.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"name":""}`)}
	params.SetProgressToken("t")
	res, err := session.CallTool(t.Context(), params)
	require.NoError(t, err)
	assert.Equal(t, "done", res.Content[0].(*mcp.TextContent).Text)
	assert.Positive(t, told.Load())
	before := told.Load()
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"name":""}`)})
	require.NoError(t, err)
	assert.Equal(t, before, told.Load(), "who did not ask is not told")
}

// When the client cancels a call, or goes, its handler's context ends.
func TestServe_cancel(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	wait := fnloop.MustTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return "", ctx.Err()
	})
	for _, c := range []struct {
		name    string
		session func(*testing.T) *mcp.ClientSession
	}{
		{"stdio", func(t *testing.T) *mcp.ClientSession { return piped(t, []fnloop.Tool{wait}, nil) }},
		{"http", func(t *testing.T) *mcp.ClientSession {
			h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{}, wait)
			require.NoError(t, err)
			srv := httptest.NewServer(h)
			t.Cleanup(srv.Close)
			client := &http.Client{Transport: new(http.Transport)}
			t.Cleanup(client.CloseIdleConnections)
			session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: client}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { session.Close() })
			return session
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			session := c.session(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-started
				cancel()
			}()
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
			require.ErrorIs(t, err, context.Canceled)
			<-ended
		})
	}
}

// A client of an older revision cancels its call over HTTP with a message, or goes.
// Another client, who may have a request of the same ID, cancels nothing.
func TestHandler_cancelOlder(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	wait := fnloop.MustTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return "", ctx.Err()
	})
	h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{MaxRequest: 1000}, wait)
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	post := func(ctx context.Context, session, body string) (status int, own string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	}
	const (
		initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		call       = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait","arguments":{}}}`
		cancelled  = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	)
	_, session := post(t.Context(), "", initialize)
	_, other := post(t.Context(), "", initialize)
	require.NotEmpty(t, session)
	require.NotEqual(t, session, other)
	for _, c := range []struct {
		name, session string
		gone          bool // the client
	}{{"message", session, false}, {"gone", session, true}, {"gone without a session", "", true}} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			post(ctx, c.session, call)
		}()
		<-started
		for _, wrong := range []string{other, ""} {
			post(t.Context(), wrong, cancelled)
		}
		select {
		case <-ended:
			t.Error(c.name, "a client has cancelled the call of another")
		case <-time.After(50 * time.Millisecond):
		}
		if c.gone {
			cancel()
		} else {
			status, _ := post(t.Context(), session, cancelled)
			assert.Equal(t, http.StatusAccepted, status)
		}
		<-ended
		<-answered
		cancel()
	}
	status, _ := post(t.Context(), session, `{"jsonrpc":"2.0","id":8,"method":"`+strings.Repeat("x", 1000)+`"}`)
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
}

// Serial calls run alone, and ordered ones one after the other.
func TestServe_order(t *testing.T) {
	var running, most atomic.Int32
	tool := func(name string) fnloop.Tool {
		return fnloop.MustTool(name, "Counts.", func(context.Context, struct{}) (string, error) {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			return "", nil
		})
	}
	serial, ordered := tool("serial"), tool("ordered")
	serial.Serial, ordered.Ordered = true, true
	session := piped(t, []fnloop.Tool{serial, ordered}, nil)
	done := make(chan error)
	for i := range 10 {
		go func() {
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: []string{"serial", "ordered"}[i%2]})
			done <- err
		}()
	}
	for range 10 {
		require.NoError(t, <-done)
	}
	assert.EqualValues(t, 1, most.Load())
}

// No more calls than are allowed run at once, over all clients. One that waits can be
// cancelled.
func TestHandler_parallel(t *testing.T) {
	running, goOn := make(chan bool, 10), make(chan bool)
	wait := fnloop.MustTool("wait", "Waits.", func(context.Context, struct{}) (string, error) {
		running <- true
		<-goOn
		return "done", nil
	})
	h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{Parallel: 2}, wait)
	require.NoError(t, err)
	var calls atomic.Int32 // that are answered now
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("tools/call")) {
			calls.Add(1)
			defer calls.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	call := func(ctx context.Context) error {
		client := &http.Client{Transport: new(http.Transport)}
		defer client.CloseIdleConnections()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: client}, nil)
		if err != nil {
			return err
		}
		defer session.Close()
		_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "wait"})
		return err
	}
	done := make(chan error, 4)
	for range 3 {
		go func() { done <- call(t.Context()) }()
	}
	<-running
	<-running
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
	require.Eventually(t, func() bool { return calls.Load() == 3 }, 10*time.Second, time.Millisecond, "the server finds out that the client has gone")
	require.Empty(t, running, "two run, and the others wait")
	close(goOn)
	for range 3 {
		require.NoError(t, <-done)
	}
	require.Len(t, running, 1, "the third one ran, and the one that was cancelled did not")
}

func TestServe_errors(t *testing.T) {
	tools := offered(t)
	for _, c := range []struct {
		name  string
		o     mcptool.ServeOptions
		tools []fnloop.Tool
		want  string
	}{
		{"two of a name", mcptool.ServeOptions{}, []fnloop.Tool{tools[0], tools[0]}, `"greet" is the name of`},
		{"no runner", mcptool.ServeOptions{}, []fnloop.Tool{fnloop.PythonTool(nil, fnloop.Limits{})}, "the runner is nil"},
		{"no type", mcptool.ServeOptions{}, []fnloop.Tool{{Name: "a", NonStrict: true, Parameters: json.RawMessage(`{}`), Handle: tools[0].Handle}}, `tool "a": its schema needs "type": "object"`},
		{"results of no tool", mcptool.ServeOptions{Results: results}, tools[:1], `Results["run_python"]: there is no such tool`},
	} {
		err := mcptool.Serve(t.Context(), c.o, c.tools...)
		require.ErrorContains(t, err, c.want, c.name)
		_, err = mcptool.Handler(t.Context(), c.o, c.tools...)
		require.ErrorContains(t, err, c.want, c.name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, w := io.Pipe()
	defer w.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	require.ErrorIs(t, mcptool.Serve(ctx, mcptool.ServeOptions{Stdin: in, Stdout: io.Discard}, tools...), context.Canceled)
	in.Close()
}

func TestHandler(t *testing.T) {
	h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{Token: "secret"}, offered(t)[0])
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, c := range []struct {
		name   string
		header map[string]string
		host   string
		status int
	}{
		{"good", map[string]string{"Authorization": "Bearer secret"}, "", 200},
		{"no token", nil, "", 401},
		{"another token", map[string]string{"Authorization": "Bearer secret2"}, "", 401},
		{"another scheme", map[string]string{"Authorization": "Basic secret"}, "", 401},
		{"another site", map[string]string{"Authorization": "Bearer secret", "Origin": "https://evil.example"}, "", 403},
		{"another site, by its word", map[string]string{"Authorization": "Bearer secret", "Sec-Fetch-Site": "cross-site"}, "", 403},
		{"another name", map[string]string{"Authorization": "Bearer secret"}, "evil.example", 403},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		if c.host != "" {
			req.Host = c.host
		}
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, c.status, resp.StatusCode, c.name)
	}
}

// The tools over both transports, as a client of another maker finds them, in both
// eras of the protocol.
func TestStrangers_client(t *testing.T) {
	h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{Token: "secret", Results: results}, offered(t)...)
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, mode := range []any{"legacy", "auto", mcptest.Pin{Revision: "2026-07-28"}} {
		d := mcptest.Drive(t)
		var connected struct{ Protocol string }
		target := &mcptest.Target{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer secret"}}
		require.Empty(t, d.Do(mcptest.Step{Do: "connect", Server: target, Mode: mode}, &connected))
		if mode == "legacy" {
			assert.Equal(t, "2025-11-25", connected.Protocol)
		} else {
			assert.Equal(t, "2026-07-28", connected.Protocol)
		}
		var list struct{ Tools []struct{ Name string } }
		require.Empty(t, d.Do(mcptest.Step{Do: "list"}, &list))
		assert.Len(t, list.Tools, 8)
		var res mcptest.Result
		require.Empty(t, d.Do(mcptest.Step{Do: "call", Name: "run_python", Arguments: map[string]any{"code": "print(42)"}}, &res))
		assert.JSONEq(t, `{"exit_code":0,"timed_out":false,"stdout":"<42>\n","stderr":""}`, string(res.Structured))
		require.Empty(t, d.Do(mcptest.Step{Do: "call", Name: "parts", Arguments: greeting{}}, &res))
		require.GreaterOrEqual(t, len(res.Content), 2)
		assert.Equal(t, "image/png", res.Content[1].MIMEType)
		require.Empty(t, d.Do(mcptest.Step{Do: "call", Name: "slow", Arguments: greeting{}}, &res))
		assert.NotEmpty(t, res.Progress)
		assert.Contains(t, d.Do(mcptest.Step{Do: "call", Name: "slow", Arguments: greeting{}, After: 150}, nil), "cancelled")
		require.Empty(t, d.Do(mcptest.Step{Do: "call", Name: "greet", Arguments: greeting{Name: "Ada"}}, &res))
		assert.Equal(t, "hello Ada", res.Content[0].Text)
	}
	d := mcptest.Drive(t)
	assert.NotEmpty(t, d.Do(mcptest.Step{Do: "connect", Server: &mcptest.Target{URL: srv.URL}, Mode: "auto"}, nil), "without the token")
}
