package mcptool_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
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
	require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
	require.Eventually(t, func() bool { return syscall.Kill(n, 0) != nil }, 10*time.Second, time.Millisecond)
}

// overHTTP serves tools of go-sdk's making over HTTP.
func overHTTP(t testing.TB, server *mcp.Server, o *mcp.StreamableHTTPOptions) string {
	t.Helper()
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o))
	t.Cleanup(srv.Close)
	return srv.URL
}

// listed checks what becomes of one tool that has a schema.
func listed(t *testing.T, schema, left string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "large", Version: "1"}, nil)
	for _, name := range []string{"x", "y"} {
		s := `{"type":"object"}`
		if name == "x" {
			s = schema
		}
		server.AddTool(&mcp.Tool{Name: name, InputSchema: raw(s)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	conn := connect(t, mcptool.Server{Name: "large", URL: overHTTP(t, server, nil)})
	tools, err := conn.Tools(t.Context())
	require.ErrorContains(t, err, left)
	require.Len(t, tools, 1)
}

type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }
