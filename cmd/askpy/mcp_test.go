package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/mcptest"
	"github.com/fnloop/fnloop/mcptool"
)

// What the client of another maker finds of askpy mcp, over both transports: it lists
// the tools, runs a program, cancels one, and keeps an interpreter that shows a
// picture, until askpy is started again.
func TestMCP(t *testing.T) {
	needSandbox(t)
	askpy, err := exec.LookPath("askpy")
	require.NoError(t, err)
	for _, c := range []struct {
		name, mode string
		protocol   string
	}{{"stdio", "auto", "2026-07-28"}, {"older stdio", "legacy", "2025-11-25"}, {"http", "auto", "2026-07-28"}, {"older http", "legacy", "2025-11-25"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := mcptest.Drive(t)
			stop := func() {}
			connect := func() {
				t.Helper()
				target := &mcptest.Target{Command: askpy, Args: []string{"mcp", "--runner", "bubblewrap", "--timeout", "60s"}}
				if strings.HasSuffix(c.name, "http") {
					target.URL, stop = listenMCP(t, askpy)
					target.Command, target.Args = "", nil
					target.Headers = map[string]string{"Authorization": "Bearer secret"}
				}
				var connected struct{ Protocol string }
				require.Empty(t, d.Do(mcptest.Step{Do: "connect", Server: target, Mode: c.mode}, &connected))
				assert.Equal(t, c.protocol, connected.Protocol)
			}
			call := func(name string, args map[string]any) mcptest.Result {
				t.Helper()
				var res mcptest.Result
				require.Empty(t, d.Do(mcptest.Step{Do: "call", Name: name, Arguments: args}, &res))
				require.NotEmpty(t, res.Content)
				return res
			}
			connect()
			var list struct {
				Tools []struct {
					Name, Description string
					OutputSchema      json.RawMessage
				}
			}
			require.Empty(t, d.Do(mcptest.Step{Do: "list"}, &list))
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				if tool.Name == "run_python" {
					assert.Contains(t, string(tool.OutputSchema), "exit_code")
					assert.Contains(t, tool.Description, "There is no network")
				}
			}
			assert.Subset(t, names, []string{"run_python", "run_code", "python_open", "python_run", "python_close"})

			res := call("run_python", map[string]any{"code": "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint(6*7)\nraise SystemExit(3)"})
			assert.False(t, res.IsError, "a program that fails is a result")
			var result struct {
				ExitCode int `json:"exit_code"`
				Stdout   string
			}
			require.NoError(t, json.Unmarshal(res.Structured, &result))
			assert.Equal(t, 3, result.ExitCode)
			assert.Equal(t, "begun\n42\n", result.Stdout)
			assert.NotEmpty(t, res.Progress)

			res = call("run_code", map[string]any{"language": "bash", "code": "echo $((6*7))\nexit 4"})
			assert.False(t, res.IsError)
			assert.JSONEq(t, `{"exit_code":4,"timed_out":false,"stdout":"42\n","stderr":""}`, string(res.Structured))

			mark := fmt.Sprintf("cancelled_%d_%s", time.Now().UnixNano(), strings.ReplaceAll(c.name, " ", "_"))
			failed := d.Do(mcptest.Step{Do: "call", Name: "run_python", Arguments: map[string]any{"code": "import subprocess\nsubprocess.run(['sh', '-c', 'sleep 1000; : " + mark + "'])"}, After: 1500}, nil)
			assert.Contains(t, failed, "cancelled")
			require.Eventually(t, func() bool { return exec.Command("pgrep", "-f", mark).Run() != nil }, 20*time.Second, 50*time.Millisecond, "the program goes with its call")

			var opened struct {
				ID string `json:"session_id"`
			}
			require.NoError(t, json.Unmarshal([]byte(call("python_open", nil).Content[0].Text), &opened))
			call("python_run", map[string]any{"session_id": opened.ID, "code": "x = 41"})
			res = call("python_run", map[string]any{"session_id": opened.ID, "code": "import matplotlib.pyplot as plt\nplt.plot([x, x+1])\nplt.show()\nx + 1"})
			assert.Contains(t, res.Content[0].Text, "42")
			require.Len(t, res.Content, 2)
			assert.Equal(t, "image/png", res.Content[1].MIMEType)
			assert.Equal(t, "\x89PNG", string(res.Content[1].Data[:4]))

			require.Empty(t, d.Do(mcptest.Step{Do: "close"}, nil))
			stop()
			connect()
			res = call("python_run", map[string]any{"session_id": opened.ID, "code": "x"})
			assert.True(t, res.IsError)
			assert.Contains(t, res.Content[0].Text, "or askpy was started again; open another with python_open")
			require.NoError(t, json.Unmarshal([]byte(call("python_open", nil).Content[0].Text), &opened))
			assert.Equal(t, "closed", call("python_close", map[string]any{"session_id": opened.ID}).Content[0].Text)
			assert.True(t, call("python_close", map[string]any{"session_id": opened.ID}).IsError)
			require.Empty(t, d.Do(mcptest.Step{Do: "close"}, nil))
			stop()
		})
	}
}

// listenMCP starts askpy mcp --http.
func listenMCP(t *testing.T, askpy string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(askpy, "mcp", "--http", "127.0.0.1:0", "--runner", "bubblewrap", "--timeout", "60s")
	cmd.Env = append(cmd.Environ(), "ASKPY_MCP_TOKEN=secret")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		if m := regexp.MustCompile(`listening on (http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	require.NotEmpty(t, url)
	return url, func() {
		t.Helper()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		for lines.Scan() {
			t.Log(lines.Text())
		}
		require.NoError(t, cmd.Wait())
	}
}

// The README shows how other programs are told of askpy mcp. Each of the files does
// what it says.
func TestMCP_readme(t *testing.T) {
	needSandbox(t)
	askpy, err := exec.LookPath("askpy")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllSubmatch(readme, -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		servers, err := mcptool.ReadServers(b[1], os.LookupEnv)
		require.NoError(t, err)
		require.Len(t, servers, 1)
		require.Equal(t, "askpy", filepath.Base(servers[0].Command))
		servers[0].Command, servers[0].Only = askpy, []string{"run_python"}
		conn, err := mcptool.Connect(t.Context(), servers[0])
		require.NoError(t, err)
		tools, err := conn.Tools(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "python__run_python", tools[0].Name)
		out, err := tools[0].Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"code":"print(6*7)"}`)})
		require.NoError(t, err)
		assert.JSONEq(t, `{"exit_code":0,"timed_out":false,"stdout":"42\n","stderr":""}`, out.Text)
		require.NoError(t, conn.Close())
	}
}
