// Package mcptest finds the MCP servers and the client of other makers that tests
// run. "npm ci" in its folder installs them.
package mcptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Servers that npm has, by their scripts.
const (
	Everything = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
	Filesystem = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
	Memory     = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
	// Modern is a server of the newest protocol, made with the TypeScript SDK.
	Modern = "server.mjs"
	// Conformance has the scenarios of the protocol's own project. Its later versions
	// need a newer Node.js.
	Conformance = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
	// Client drives a server with the client of that SDK.
	Client = "client.mjs"
)

// Node gives the path of Node.js and that of a script. Where they are not installed it
// skips the test, and fails it if CI is set.
func Node(t testing.TB, script string) (node, path string) {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(file)
	missing := ""
	node, err := exec.LookPath("node")
	if err != nil {
		missing = "Node.js is not installed"
	} else if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		missing = "the servers are not installed: run npm ci in internal/mcptest"
	}
	if missing != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return node, filepath.Join(dir, script)
}
