package mcptool_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/mcptest"
	"github.com/fnloop/fnloop/mcptool"
	"github.com/fnloop/fnloop/responsestest"
)

// stranger is a server that npm has.
func stranger(t testing.TB, script string, args ...string) mcptool.Server {
	t.Helper()
	node, script := mcptest.Node(t, script)
	return mcptool.Server{Name: "npm", Command: node, Args: append([]string{script}, args...)}
}

// strangerHTTP starts a server that listens on a port, which comes after args or is
// the environment's PORT.
func strangerHTTP(t *testing.T, script string, args ...string) mcptool.Server {
	t.Helper()
	node, script := mcptest.Node(t, script)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	require.NoError(t, listener.Close())
	cmd := exec.Command(node, append([]string{script}, append(args, port)...)...)
	cmd.Env = append(os.Environ(), "PORT="+port)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		c.Close()
		return true
	}, time.Minute, 20*time.Millisecond)
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(client.CloseIdleConnections)
	return mcptool.Server{Name: "npm", URL: "http://" + address + "/mcp", HTTPClient: client}
}

func TestStrangers_everything(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(*testing.T) mcptool.Server
	}{
		{"stdio", func(t *testing.T) mcptool.Server { return stranger(t, mcptest.Everything, "stdio") }},
		{"http", func(t *testing.T) mcptool.Server { return strangerHTTP(t, mcptest.Everything, "streamableHttp") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, c.server(t))
			tools, err := conn.Tools(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(tools), 13)
			accepted(t, tools)
			byName := make(map[string]fnloop.Tool)
			for _, tool := range tools {
				byName[strings.TrimPrefix(tool.Name, "npm__")] = tool
			}
			call := func(name, args string) fnloop.Output {
				t.Helper()
				require.Contains(t, byName, name)
				out, err := byName[name].Handle(t.Context(), fnloop.Call{Name: name, Arguments: json.RawMessage(args)})
				require.NoError(t, err)
				return out
			}
			assert.Equal(t, "Echo: größer", call("echo", `{"message":"größer"}`).Text)
			assert.Contains(t, call("get-sum", `{"a":2,"b":40}`).Text, "42")
			bad := call("get-sum", `{"a":"two"}`)
			assert.True(t, bad.IsError, "%+v", bad)
			assert.Contains(t, bad.Text, "a")
			image := call("get-tiny-image", ``)
			require.Len(t, image.Content, 3)
			assert.True(t, strings.HasPrefix(image.Content[1].ImageURL, "data:image/png;base64,"))
			assert.Contains(t, call("get-resource-reference", `{"resourceType":"Blob","resourceId":1}`).Content[1].Text, "Resource 1")
			assert.Contains(t, call("get-resource-links", `{"count":2}`).Content[1].Text, "[link: demo://")
			assert.Contains(t, call("get-structured-content", `{"location":"New York"}`).Text, "temperature")
			if c.name == "stdio" {
				assert.NotContains(t, call("get-env", ``).Text, "GOFLAGS")
			}
		})
	}
}

func TestStrangers_memory(t *testing.T) {
	t.Parallel()
	s := stranger(t, mcptest.Memory)
	s.Env = []string{"MEMORY_FILE_PATH=" + filepath.Join(t.TempDir(), "memory.json")}
	conn := connect(t, s)
	out, err := tool(t, conn, "create_entities").Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"entities":[{"name":"Ada","entityType":"person","observations":["wrote the first program"]}]}`)})
	require.NoError(t, err)
	require.False(t, out.IsError, "%+v", out)
	out, err = tool(t, conn, "search_nodes").Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"query":"first program"}`)})
	require.NoError(t, err)
	assert.Contains(t, out.Text, "Ada")
}

// The newest protocol, as another maker speaks it.
func TestStrangers_modern(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(*testing.T) mcptool.Server
	}{
		{"stdio", func(t *testing.T) mcptool.Server { return stranger(t, mcptest.Modern) }},
		{"http", func(t *testing.T) mcptool.Server { return strangerHTTP(t, mcptest.Modern) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, c.server(t))
			add := tool(t, conn, "add")
			assert.Contains(t, string(add.Parameters), `"properties":{"b":{"type":"number"},"a":{"type":"number"}}`, "in the server's order")
			out, err := add.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"b":40,"a":2}`)})
			require.NoError(t, err)
			assert.Equal(t, fnloop.Output{Text: "42"}, out)
			out, err = add.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"b":"x"}`)})
			assert.True(t, out.IsError, "%+v, %v", out, err)
		})
	}
}

// A whole conversation: the model lists a folder, reads a file and edits it.
func TestStrangers_conversation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "poem.txt")
	require.NoError(t, os.WriteFile(name, []byte("Roses are red,\nviolets are green.\n"), 0o600))
	s := stranger(t, mcptest.Filesystem, dir)
	s.Name = "files"
	s.NeedsApproval = func(_ context.Context, c fnloop.Call) bool { return c.Name == mcptool.ToolName("files", "edit_file") }
	conn := connect(t, s)
	tools, err := conn.Tools(t.Context())
	require.NoError(t, err)

	said := func(want string, next responsestest.Reply) responsestest.Reply {
		return responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
			assert.Contains(t, string(turn.New[0]), want)
			return next
		})
	}
	path := strconv.Quote(name)
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "files__list_directory", `{"path":`+strconv.Quote(dir)+`}`),
		said("[FILE] poem.txt", responsestest.Call("call_2", "files__read_text_file", `{"path":`+path+`}`)),
		said("violets are green", responsestest.Call("call_3", "files__edit_file", `{"path":`+path+`,"edits":[{"oldText":"green","newText":"blue"}],"dryRun":false}`)),
		said("+violets are blue", responsestest.Text("It is blue now.")),
	)
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: tools}
	answer, err := loop.Run(t.Context(), "Mend the poem.")
	require.ErrorIs(t, err, fnloop.ErrApproval)
	require.NoError(t, answer.Approve(answer.Waiting()[0].ID))
	answer, err = loop.Continue(t.Context(), answer, "")
	require.NoError(t, err)
	require.NoError(t, srv.Err())
	assert.Equal(t, "It is blue now.", answer.Text)
	poem, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "Roses are red,\nviolets are blue.\n", string(poem))
}
