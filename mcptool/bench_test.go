package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
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

// A list of 500 tools over HTTP, through mcptool and by go-sdk alone.
func BenchmarkTools(b *testing.B) {
	var page []string
	for i := range 500 {
		page = append(page, fmt.Sprintf(`{"name":"tool_%03d","description":"Does what the others do, with a path and a number.","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"A path below the folder."},"n":{"type":"integer","default":3,"minimum":0}},"required":["path"],"$schema":"http://json-schema.org/draft-07/schema#"}}`, i))
	}
	url := listing(b, strings.Join(page, ","))
	b.Run("mcptool", func(b *testing.B) {
		conn := connect(b, mcptool.Server{Name: "many", URL: url})
		b.ReportAllocs()
		for b.Loop() {
			tools, err := conn.Tools(context.Background())
			if err != nil || len(tools) != 500 {
				b.Fatal(len(tools), err)
			}
		}
	})
	b.Run("go-sdk", func(b *testing.B) {
		client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		session, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
		require.NoError(b, err)
		defer session.Close()
		b.ReportAllocs()
		for b.Loop() {
			res, err := session.ListTools(context.Background(), nil)
			if err != nil || len(res.Tools) != 500 {
				b.Fatal(err)
			}
		}
	})
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
