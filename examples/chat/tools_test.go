package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

// The tools of a server are there although another one is down, and ask.
func TestServerTools(t *testing.T) {
	hello := fnloop.MustTool("hello", "Says hello.", func(context.Context, struct{}) (string, error) { return "hello", nil })
	handler, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{}, hello)
	require.NoError(t, err)
	srv := httptest.NewServer(handler)
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "servers.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"mcpServers":{"greeter":{"url":"`+srv.URL+`"},"down":{"command":"/no-such-server"}}}`), 0o600))
	tools, end, err := serverTools(t.Context(), file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer end()
	require.Len(t, tools, 1)
	out, err := tools[0].Handle(t.Context(), fnloop.Call{})
	require.NoError(t, err)
	require.Equal(t, "hello", out.Text)
	require.True(t, tools[0].NeedsApproval(t.Context(), fnloop.Call{}))

	tools, end, err = serverTools(t.Context(), "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Empty(t, tools)
	end()
	_, _, err = serverTools(t.Context(), "none.json", nil)
	require.ErrorContains(t, err, "the servers of -mcp: open none.json")
}
