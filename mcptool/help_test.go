package mcptool_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// accepted checks that a request with the tools is one that the API takes.
func accepted(t *testing.T, tools []fnloop.Tool) {
	t.Helper()
	answer := run(t, tools, responsestest.Text("ok"))
	assert.Equal(t, "ok", answer.Text)
}

// run runs a Loop with the tools against a script.
func run(t *testing.T, tools []fnloop.Tool, replies ...responsestest.Reply) *fnloop.Answer {
	t.Helper()
	srv := responsestest.NewServer(replies...)
	defer srv.Close()
	client := srv.Client()
	loop := &fnloop.Loop{Client: client, Model: "gpt-6-astra", Tools: tools}
	answer, err := loop.Run(t.Context(), "go on")
	require.NoError(t, err)
	require.NoError(t, srv.Err())
	return answer
}

// kill kills a process and waits until it is gone.
func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	p, err := os.FindProcess(n)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return p.Signal(syscall.Signal(0)) != nil }, 10*time.Second, time.Millisecond)
}

// forget ends the sessions whose clients did not.
func forget(server *mcp.Server) {
	for s := range server.Sessions() {
		s.Close()
	}
}

// listing serves a list of tools, as JSON, over HTTP and does no more.
func listing(t testing.TB, tools string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m rudeMessage
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		reply := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		switch m.Method {
		case "server/discover":
			w.WriteHeader(http.StatusNotFound)
		case "initialize":
			reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case "tools/list":
			reply(`{"tools":[` + tools + `]}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// overHTTP serves tools of go-sdk's making over HTTP.
func overHTTP(t testing.TB, server *mcp.Server, o *mcp.StreamableHTTPOptions) string {
	t.Helper()
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o))
	t.Cleanup(func() {
		srv.Close()
		forget(server)
	})
	return srv.URL
}

type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }
