package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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
	"github.com/fnloop/fnloop/mcptool"
)

// counting is a server of go-sdk's with a tool that counts its calls.
func counting(calls *atomic.Int32) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "count", Version: "1"}, nil)
	schema := raw(`{"type":"object","properties":{"z":{"maximum":9007199254740993,"description":"<a&b>"},"a":{}}}`)
	server.AddTool(&mcp.Tool{Name: "count", InputSchema: schema}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n := calls.Add(1)
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "counting"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(n)}}}, nil
	})
	return server
}

func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		name string
		opts mcp.StreamableHTTPOptions
	}{
		{"events, with sessions", mcp.StreamableHTTPOptions{}},
		{"documents, with sessions", mcp.StreamableHTTPOptions{JSONResponse: true}},
		{"events, newest protocol", mcp.StreamableHTTPOptions{Stateless: true}},
		{"documents, newest protocol", mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			client := &http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			conn := connect(t, mcptool.Server{Name: "http", URL: overHTTP(t, counting(&calls), &c.opts), HTTPClient: client})
			act := tool(t, conn, "count")
			assert.Equal(t, `{"type":"object","properties":{"z":{"maximum":9007199254740993,"description":"<a&b>"},"a":{}}}`, string(act.Parameters))
			for i := range 3 {
				out, err := act.Handle(t.Context(), fnloop.Call{})
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint(i+1), out.Text)
			}
		})
	}
}

// A server that was started anew does not know the session; the call is made on a
// new one, once.
func TestHTTP_restarted(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	var calls atomic.Int32
	serve := func(l net.Listener) *http.Server {
		server := counting(&calls)
		t.Cleanup(func() { forget(server) })
		srv := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil), ReadHeaderTimeout: time.Minute}
		go srv.Serve(l)
		return srv
	}
	srv := serve(listener)
	// A call may be sent on a connection that is about to be found closed, and then
	// nobody knows whether it was made. So each request has one of its own.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	conn := connect(t, mcptool.Server{Name: "http", URL: "http://" + address, HTTPClient: client})
	act := tool(t, conn, "count")
	out, err := act.Handle(t.Context(), fnloop.Call{})
	require.NoError(t, err)
	assert.Equal(t, "1", out.Text)

	require.NoError(t, srv.Close())
	out, err = act.Handle(t.Context(), fnloop.Call{})
	require.Error(t, err, "while it is down")
	assert.True(t, out.IsError || err != nil)
	assert.Contains(t, out.Text, "the call was not made")

	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	srv = serve(listener)
	defer srv.Close()
	out, err = act.Handle(t.Context(), fnloop.Call{})
	require.NoError(t, err)
	assert.Equal(t, "2", out.Text)
}

// What a server over HTTP can answer to a call, and what becomes of it.
func TestHTTP_rude(t *testing.T) {
	const document, events = "application/json", "text/event-stream"
	text := func(s string) string {
		return `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"` + s + `"}]}}`
	}
	for _, c := range []struct {
		name, kind, body string
		status           int
		want             string
		calls            int32 // how often the call came; one if zero
	}{
		{name: "document", kind: document, body: text("a"), want: "a"},
		{name: "event", kind: events, body: "id: 1\nevent: message\ndata: " + text("a") + "\n\n", want: "a"},
		{name: "event over lines", kind: events, body: "data: {\ndata: " + text("a")[1:] + "\n\n", want: "a"},
		{name: "noise before the event", kind: events, body: ": hello\n\nevent: ping\ndata: {}\n\ndata: Server starting…\n\ndata: " + text("a") + "\n\n", want: "a"},
		{name: "hologram", kind: document, body: `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"hologram"}]}}`, want: `[a part of type "hologram", not shown]`},
		{name: "page", kind: "text/html", body: "<html>", want: `the server refused the call: the server answered with "text/html" and not with a message`},
		{name: "no message", kind: document, body: `{"hello":1}`, want: "the server refused the call: the server answered with something that is no message"},
		{name: "nothing", kind: events, body: "", want: "the connection to the server http was lost while the call ran; what it did is not known"},
		{name: "half a document", kind: document, body: "CUT" + text("a")[:30], want: "the connection to the server http was lost while the call ran; what it did is not known"},
		{name: "large document", kind: document, body: text(strings.Repeat("x", 2<<20)), want: "the call was made, but the answer was left out: a message of more than 1048576 bytes is larger than what is taken"},
		{name: "large event", kind: events, body: "data: " + text(strings.Repeat("x", 2<<20)) + "\n\n", want: "the call was made, but the answer was left out: a message of 2097232 bytes is larger than the 1048576 that are taken"},
		{name: "error", kind: "text/plain", status: 500, body: "oh", want: "the server http answered with 500 Internal Server Error; what the call did is not known"},
		{name: "forbidden", kind: "text/plain", status: 403, body: "oh", want: "the server http answered with 403 Forbidden"},
		{name: "busy", kind: "text/plain", status: 503, body: "oh", want: "the server http answered with 503 Service Unavailable; what the call did is not known"},
		{name: "unknown session", kind: "text/plain", status: 404, body: "oh", want: "the connection to the server http failed before the call was made", calls: 2},
		{name: "no such session", kind: document, status: 400, body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, want: "the connection to the server http failed before the call was made", calls: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var m struct {
					ID     json.RawMessage
					Method string
				}
				if r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
					http.Error(w, "no", http.StatusMethodNotAllowed)
					return
				}
				reply := func(kind, text string) {
					w.Header().Set("Content-Type", kind)
					w.Header().Set("Mcp-Session-Id", "s1")
					fmt.Fprint(w, strings.ReplaceAll(text, "ID", string(m.ID)))
				}
				switch m.Method {
				case "server/discover":
					http.Error(w, "no", http.StatusBadRequest)
				case "initialize":
					reply(document, `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`)
				case "tools/list":
					reply(document, `{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}}`)
				case "tools/call":
					calls.Add(1)
					if c.status != 0 {
						w.Header().Set("Content-Type", c.kind)
						w.WriteHeader(c.status)
						fmt.Fprint(w, c.body)
						return
					}
					if body, cut := strings.CutPrefix(c.body, "CUT"); cut {
						w.Header().Set("Content-Length", "1000")
						reply(c.kind, body)
						return
					}
					reply(c.kind, c.body)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			defer srv.Close()
			client := &http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			conn := connect(t, mcptool.Server{Name: "http", URL: srv.URL + "/mcp?key=SECRET", HTTPClient: client, MaxMessage: 1 << 20})
			act := tool(t, conn, "act")
			out, err := act.Handle(t.Context(), fnloop.Call{})
			assert.Equal(t, c.want, out.Text)
			if err != nil {
				assert.NotContains(t, err.Error(), "SECRET")
			}
			assert.Equal(t, max(c.calls, 1), calls.Load(), "how often the call was made")
			before := calls.Load()
			_, _ = act.Handle(t.Context(), fnloop.Call{})
			assert.Greater(t, calls.Load(), before, "the next call can be made")
		})
	}
}

// A server over HTTP that says nothing is left when the caller leaves, and Close
// does not wait for it.
func TestHTTP_silent(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: raw(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-release
		return &mcp.CallToolResult{}, nil
	})
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	conn := connect(t, mcptool.Server{Name: "http", URL: overHTTP(t, server, nil), HTTPClient: client})
	t.Cleanup(func() { close(release) })
	act := tool(t, conn, "wait")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := act.Handle(ctx, fnloop.Call{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ended := make(chan error, 1)
	go func() {
		_, err := act.Handle(t.Context(), fnloop.Call{})
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	require.NoError(t, conn.Close())
	require.Error(t, <-ended)
	assert.Less(t, time.Since(start), 4*time.Second)
}
