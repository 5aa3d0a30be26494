package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	main "github.com/fnloop/fnloop/cmd/askpy"
	"github.com/fnloop/fnloop/fixtures"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

var update = flag.Bool("update", false, "write the recorded conversations of fixtures anew")

// fibHeader says how the conversation was made. What it says is what
// TestFixtures does.
const fibHeader = `# How this was made: by "go generate ./fixtures", with no model and no key. The
# service is its stand-in, the package responsestest, and the model's two answers
# are written by hand in cmd/askpy/fixtures_test.go. The requests are those that
# askpy made, and the output of the program is what it printed in the sandbox.
#
`

const fibProgram = `def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

print(fib(40))
`

// TestFixtures makes the recorded conversations again and compares them with
// those in fixtures.
func TestFixtures(t *testing.T) {
	needSandbox(t)
	arguments, err := json.Marshal(map[string]string{"code": fibProgram})
	if err != nil {
		t.Fatal(err)
	}
	call := responsestest.Call("call_fib", "run_python", string(arguments))
	answer := responsestest.Text("fib(40) = 102334155")
	// An estimate would depend on the description of the Python at hand.
	call.Usage = &responsestest.Usage{InputTokens: 240, OutputTokens: 80}
	answer.Usage = &responsestest.Usage{InputTokens: 340, OutputTokens: 20}
	server := responsestest.NewServer(call, answer)
	defer server.Close()

	file := filepath.Join(t.TempDir(), "fib40.yaml")
	env := map[string]string{"OPENAI_API_KEY": server.Key, "OPENAI_BASE_URL": server.URL}
	var stdout, stderr bytes.Buffer
	args := []string{"--runner", "bubblewrap", "--record", file, fixtures.FibPrompt}
	status := main.Run(t.Context(), args, strings.NewReader(""), &stdout, &stderr, func(name string) string { return env[name] })
	if status != 0 || stdout.String() != "fib(40) = 102334155\n" {
		t.Fatalf("run(%q) = %d, %q\n%s", args, status, stdout.String(), stderr.String())
	}
	if err := server.Err(); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := fibHeader + string(recorded)
	if *update {
		if err := os.WriteFile("../../fixtures/fib40.yaml", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := stable(got), stable(fixtures.Fib); got != want {
		t.Errorf("fixtures/fib40.yaml is not what is recorded now; if that is meant, run go generate ./fixtures\n%s", firstDifference(got, want))
	}
}

// stable gives a recording without what depends on the time and on the Python
// of the machine.
func stable(recording string) string {
	for _, member := range []string{`"(created|completed)_at": ?[0-9.]+`, `"description": ?"Runs a Python(\\.|[^"\\])*"`, `content_length: [0-9]+`} {
		recording = regexp.MustCompile(member).ReplaceAllString(recording, "...")
	}
	return recording
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got:  " + g[i] + "\nwant: " + w[i]
		}
	}
	return "one of them ends early"
}

// needSandbox skips where bubblewrap cannot isolate programs, and fails there
// in CI.
func needSandbox(t *testing.T) {
	t.Helper()
	err := new(bubblewrap.Runner).Probe(t.Context())
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
