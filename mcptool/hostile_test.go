package mcptool_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

// many is a server of go-sdk's with n tools.
func many(n int) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "many", Version: "1"}, &mcp.ServerOptions{PageSize: 10_000})
	for i := range n {
		server.AddTool(&mcp.Tool{
			Name: fmt.Sprintf("tool_%05d", i), Description: "Does what the others do.",
			InputSchema: raw(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","default":3}},"required":["path"]}`),
		}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	return server
}

// pair connects go-sdk's client with a server in this process.
func pair(t testing.TB, server *mcp.Server) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	served, err := server.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		session.Close()
		served.Close()
	})
	return session
}

func TestHostile_tools(t *testing.T) {
	t.Parallel()
	var page []string
	for i := range 10_000 {
		page = append(page, fmt.Sprintf(`{"name":"tool_%05d","inputSchema":{"type":"object","properties":{"a":{}}}}`, i))
	}
	url := listing(t, strings.Join(page, ","))
	conn := connect(t, mcptool.Server{Name: "many", URL: url})
	tools, err := conn.Tools(t.Context())
	require.ErrorContains(t, err, "what comes after the first 1000 tools")
	assert.Len(t, tools, 1000)

	few := connect(t, mcptool.Server{Name: "many", URL: url, Only: []string{"tool_09999", "tool_00001"}})
	tools, err = few.Tools(t.Context())
	require.NoError(t, err)
	assert.Len(t, tools, 2)
}

func TestHostile_result(t *testing.T) {
	t.Parallel()
	conn := one("large 100000000").connect(t)
	act := tool(t, conn, "act")
	out, err := act.Handle(t.Context(), fnloop.Call{})
	require.Error(t, err)
	assert.Equal(t, "the call was made, but the answer was left out: a message of 100000074 bytes is larger than the 33554432 that are taken", out.Text)
	_, err = conn.Tools(t.Context())
	require.NoError(t, err, "the session goes on")
}

// Many small things take far more memory than their text, so that not all of them are
// taken.
func TestHostile_many(t *testing.T) {
	t.Parallel()
	zeros := strings.TrimSuffix(strings.Repeat("0,", 30_000), ",")
	out, err := tool(t, result(`{"content":[`+zeros+`]}`).connect(t), "act").Handle(t.Context(), fnloop.Call{})
	require.NoError(t, err)
	require.Len(t, out.Content, 1001)
	assert.Equal(t, "[what comes after the first 1000 parts of the result, not shown]", out.Content[1000].Text)

	for _, page := range []string{zeros, strings.Repeat(`{"name":"a","inputSchema":{}},`, 30_000) + `{"name":"b","inputSchema":{}}`} {
		tools, err := connect(t, mcptool.Server{Name: "many", URL: listing(t, page)}).Tools(t.Context())
		var left *mcptool.LeftOutError
		require.ErrorAs(t, err, &left)
		assert.Less(t, len(left.Tools), 1010)
		assert.LessOrEqual(t, len(tools), 1)
	}
	_, err = connect(t, mcptool.Server{Name: "many", Only: []string{"b"}, URL: listing(t, strings.Repeat(`{"name":"a","inputSchema":{}},`, 30_000)+`{"name":"b","inputSchema":{}}`)}).Tools(t.Context())
	require.ErrorContains(t, err, "what comes after the first 20000 of a page")
}

func TestHostile_names(t *testing.T) {
	t.Parallel()
	names := []string{"поиск", "検索", "بحث", "🔎", "naïve.tool/2", "a b\tc", "x\u202ey", "read_file", "A", "a"}
	var page []string
	s := script{Calls: map[string]string{}}
	for _, n := range names {
		page = append(page, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, n))
		s.Calls[n] = fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, n)
	}
	s.Pages = [][]string{page}
	tools, err := s.connect(t).Tools(t.Context())
	require.NoError(t, err)
	require.Len(t, tools, len(names))
	accepted(t, tools)
	for i, tool := range tools {
		out, err := tool.Handle(t.Context(), fnloop.Call{})
		require.NoError(t, err)
		assert.Equal(t, names[i], out.Text, "a call reaches the tool of its name")
	}
}

// A list that changes while a run goes on: the run keeps its tools, and the next one
// has the new ones. It is asked for each time, and is the same where nothing changed.
func TestTools_change(t *testing.T) {
	t.Parallel()
	server := many(1)
	conn := connect(t, mcptool.Server{Name: "many", URL: overHTTP(t, server, &mcp.StreamableHTTPOptions{Stateless: true})})
	names := func() (names []string) {
		tools, err := conn.Tools(t.Context())
		require.NoError(t, err)
		for _, tool := range tools {
			names = append(names, tool.Name+string(tool.Parameters))
		}
		return names
	}
	before := names()
	require.Equal(t, before, names())
	server.AddTool(&mcp.Tool{Name: "new", InputSchema: raw(`{"type":"object"}`)}, nil)
	assert.Len(t, names(), 2)
	server.RemoveTools("new")
	assert.Equal(t, before, names())
}

// A session of somebody else's.
func TestTools_session(t *testing.T) {
	t.Parallel()
	server := many(2)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: raw(`{"type":"object","properties":{"b":{},"a":{"description":"<x>"}}}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}, &mcp.ImageContent{Data: []byte("?"), MIMEType: "image/png"}}, IsError: true}, nil
	})
	session := pair(t, server)
	tools, err := mcptool.Tools(t.Context(), session, mcptool.Server{Name: "own", Except: []string{"tool_00000"}})
	require.NoError(t, err)
	require.Len(t, tools, 2)
	assert.Equal(t, "own__echo", tools[0].Name)
	assert.Equal(t, `{"properties":{"a":{"description":"<x>"},"b":{}},"type":"object"}`, string(tools[0].Parameters))
	out, err := tools[0].Handle(t.Context(), fnloop.Call{Arguments: []byte(`{"n":9007199254740993}`)})
	require.NoError(t, err)
	assert.True(t, out.IsError)
	assert.Equal(t, `{"n":9007199254740993}`, out.Content[0].Text)

	server.RemoveTools("echo")
	out, err = tools[0].Handle(t.Context(), fnloop.Call{})
	require.Error(t, err)
	assert.Contains(t, out.Text, "the server refused the call", "a tool that is gone")
	require.NoError(t, session.Close())
	out, err = tools[0].Handle(t.Context(), fnloop.Call{})
	require.Error(t, err)
	assert.Contains(t, out.Text, "failed before the call was made")

	_, err = mcptool.Tools(t.Context(), session, mcptool.Server{Name: "own", URL: "http://x/"})
	require.ErrorContains(t, err, "use Connect")
	_, err = mcptool.Tools(t.Context(), nil, mcptool.Server{Name: "own"})
	require.ErrorContains(t, err, "is nil")
}
