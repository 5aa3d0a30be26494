package mcptool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/mcptest"
	"github.com/fnloop/fnloop/mcptool"
)

// The scenarios of the protocol's own project. Those of a client that a busy machine
// fails, by its time, were tried by hand, and those of the authorization of go-sdk's
// are not ours.
func TestStrangers_conformance(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		self, err := os.Executable()
		require.NoError(t, err)
		for _, scenario := range []string{"initialize", "tools_call"} {
			conformance(t, "client", "--command", self+" conform", "--scenario", scenario)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		h, err := mcptool.Handler(t.Context(), mcptool.ServeOptions{}, conforming(t)...)
		require.NoError(t, err)
		srv := httptest.NewServer(h)
		defer srv.Close()
		others := filepath.Join(t.TempDir(), "others.yml")
		require.NoError(t, os.WriteFile(others, []byte(notOffered), 0o600))
		conformance(t, "server", "--url", srv.URL, "--expected-failures", others)
		conformance(t, "server", "--url", srv.URL, "--scenario", "json-schema-2020-12")
	})
}

func conformance(t *testing.T, args ...string) {
	t.Helper()
	node, script := mcptest.Node(t, mcptest.Conformance)
	cmd := exec.CommandContext(t.Context(), node, append([]string{script}, args...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// notOffered are the scenarios of what a server of tools does not offer.
const notOffered = `server:
  - completion-complete
  - tools-call-audio
  - tools-call-with-logging
  - tools-call-sampling
  - tools-call-elicitation
  - elicitation-sep1034-defaults
  - elicitation-sep1330-enums
  - resources-read-text
  - resources-read-binary
  - resources-templates-read
  - resources-subscribe
  - resources-unsubscribe
  - prompts-get-simple
  - prompts-get-with-args
  - prompts-get-embedded-resource
  - prompts-get-with-image
`

// conforming are the tools that the scenarios ask for.
func conforming(t *testing.T) []fnloop.Tool {
	t.Helper()
	image := fnloop.Content{ImageURL: "data:image/png;base64," + picture(t, 1)}
	file := fnloop.Content{FileName: "a.txt", FileData: "data:text/plain;base64,aGk="}
	var tools []fnloop.Tool
	for name, out := range map[string]fnloop.Output{
		"test_simple_text":            {Text: "This is a simple text response for testing."},
		"test_image_content":          {Content: []fnloop.Content{image}},
		"test_embedded_resource":      {Content: []fnloop.Content{file}},
		"test_multiple_content_types": {Content: []fnloop.Content{{Text: "Multiple content types test:"}, image, file}},
		"test_error_handling":         {Text: "This tool intentionally returns an error for testing", IsError: true},
	} {
		tools = append(tools, fnloop.MustTool(name, "A test.", func(context.Context, struct{}) (fnloop.Output, error) { return out, nil }))
	}
	progress := fnloop.MustTool("test_tool_with_progress", "A test.", func(ctx context.Context, _ struct{}) (string, error) {
		out, _ := fnloop.LiveOutput(ctx)
		for i := range 4 {
			if out != nil {
				fmt.Fprintln(out, i)
			}
			time.Sleep(300 * time.Millisecond) // a client is told so often and no more
		}
		return "done", nil
	})
	schema := fnloop.Tool{
		Name: "json_schema_2020_12_tool", Description: "A test.", NonStrict: true,
		Parameters: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
			`"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},` +
			`"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`),
		Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) { return fnloop.Output{}, nil },
	}
	return append(tools, progress, schema)
}

// conform is the client of a scenario: it calls all tools.
func conform(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := mcptool.Connect(ctx, mcptool.Server{Name: "c", URL: url})
	if err != nil {
		return err
	}
	defer c.Close()
	tools, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	for _, t := range tools {
		out, err := t.Handle(ctx, fnloop.Call{Name: t.Name, Arguments: json.RawMessage(`{"a":2,"b":3}`)})
		if err != nil || !strings.Contains(out.Text, "5") {
			return fmt.Errorf("%s: %+v, %w", t.Name, out, err)
		}
	}
	return nil
}
