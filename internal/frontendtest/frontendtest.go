// Package frontendtest runs the clients of chat front ends, in Node.js, on the streams
// that a test has made. "npm ci" in its folder installs them.
package frontendtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// A Job is one stream to be read by one client: "ai5", "ai6", "ai7" or "agui".
type Job struct {
	Client string `json:"client"`
	Stream string `json:"stream"`
	// Message is what the client showed before: a message of the AI SDK, or the
	// messages of AG-UI. Nil means nothing.
	Message any `json:"message,omitempty"`
}

// A Reading is what a client made of a stream.
type Reading struct {
	Message  json.RawMessage `json:"message"`  // of the AI SDK
	Messages json.RawMessage `json:"messages"` // of AG-UI
	Events   []string        `json:"events"`   // of AG-UI
	Outcome  json.RawMessage `json:"outcome"`  // of AG-UI
	Errors   []string        `json:"errors"`
}

// Read has the clients read. Where Node.js or the clients are not installed it
// skips the test, and fails it if CI is set.
func Read(t *testing.T, jobs []Job) []Reading {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(file)
	missing := ""
	if _, err := exec.LookPath("node"); err != nil {
		missing = "Node.js is not installed"
	} else if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		missing = "the clients are not installed: run npm ci in internal/frontendtest"
	}
	if missing != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	var in bytes.Buffer
	for _, j := range jobs {
		if err := json.NewEncoder(&in).Encode(j); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "read.mjs")
	cmd.Dir, cmd.Stdin = dir, &in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.Bytes())
	}
	var readings []Reading
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var r Reading
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
	}
	if len(readings) != len(jobs) {
		t.Fatalf("%d of %d streams were read\n%s", len(readings), len(jobs), stderr.Bytes())
	}
	return readings
}
