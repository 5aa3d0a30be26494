package main_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop/responsestest"
)

// However often a session is killed, it gets to its end, and no call has two
// outputs: each program prints something else each time it runs.
func TestSessionKilled(t *testing.T) {
	needSandbox(t)
	const program = `{"code":"import os\nprint('ran', os.urandom(8).hex())"}`
	server := responsestest.NewServer(responsestest.Always(func(turn *responsestest.Turn) responsestest.Reply {
		if turn.Round < 12 {
			return responsestest.Join(responsestest.Call("", "python", program), responsestest.Call("", "python", program))
		}
		return responsestest.Text("Done.")
	}))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "chat.json")
	invoke := func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, append([]string{"--quiet", "--runner", "bubblewrap", "--max-turns", "20", "--session", file}, args...)...)
		cmd.Args[0] = "askpy"
		cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+server.Key, "OPENAI_BASE_URL="+server.URL, "GORACE=atexit_sleep_ms=0")
		return cmd
	}
	kills := 0
	for begun := false; ; {
		var args []string
		if !begun {
			args = []string{"Do it."}
		}
		cmd := invoke(args...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		patience := time.Duration(rand.Int64N(int64(300 * time.Millisecond)))
		if kills == 20 {
			patience = time.Minute
		}
		killer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		killer.Stop()
		data, _ := os.ReadFile(file)
		begun = len(data) > 0
		if err == nil {
			if stdout.String() != "Done.\n" {
				t.Errorf("the answer is %q", stdout.String())
			}
			break
		}
		if kills++; cmd.ProcessState.Exited() || begun && !json.Valid(data) {
			t.Fatalf("%v\n%s\n%s", err, stderr.String(), data)
		}
	}
	outputs := map[string]string{}
	for _, r := range server.Requests() {
		var request struct {
			Input []struct {
				CallID string `json:"call_id"`
				Output string
			}
		}
		if err := json.Unmarshal(r.Body, &request); err != nil {
			t.Fatal(err)
		}
		if r.Status != http.StatusOK && r.Status != 0 { // zero where nobody waited for the answer
			t.Errorf("a request was answered with %d: %s", r.Status, r.Body)
		}
		for _, item := range request.Input {
			if item.CallID == "" {
				continue
			}
			if before, ok := outputs[item.CallID]; ok && before != item.Output {
				t.Errorf("call %s has the outputs %q and %q", item.CallID, before, item.Output)
			}
			outputs[item.CallID] = item.Output
		}
	}
	t.Logf("%d kills, %d outputs", kills, len(outputs))
}
