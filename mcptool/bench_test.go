package mcptool_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

// A call over stdio, through mcptool and by go-sdk alone. The difference is what
// mcptool costs.
func BenchmarkCall(b *testing.B) {
	args := json.RawMessage(`{"path":"/a/b","n":3}`)
	s := one("arguments")
	b.Run("mcptool", func(b *testing.B) {
		act := tool(b, s.connect(b), "act")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := act.Handle(context.Background(), fnloop.Call{Arguments: args}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("go-sdk", func(b *testing.B) {
		server := s.server(b)
		client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: exec.Command(server.Command, server.Args...)}, nil)
		require.NoError(b, err)
		defer session.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "act", Arguments: args}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A list of 500 tools.
func BenchmarkTools(b *testing.B) {
	conn := connect(b, mcptool.Server{Name: "many", URL: overHTTP(b, many(500), nil)})
	b.ReportAllocs()
	for b.Loop() {
		tools, err := conn.Tools(context.Background())
		if err != nil || len(tools) != 500 {
			b.Fatal(len(tools), err)
		}
	}
}

// A result with a picture of about a megabyte.
func BenchmarkResult(b *testing.B) {
	png := picture(b, 100)
	for len(png) < 1_000_000 {
		png += png
	}
	raw := json.RawMessage(`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"` + png + `"}]}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		mcptool.Output(raw)
	}
}
