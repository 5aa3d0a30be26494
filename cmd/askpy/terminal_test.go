package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// A terminal is a command on a terminal of its own, which script(1) makes.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser

	mu    sync.Mutex
	shown bytes.Buffer // since the last match of expect
	ended chan struct{}
}

// onTerminal starts a command of the shell, in which askpy is this program.
func onTerminal(t *testing.T, server *responsestest.Server, command string, env ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skipf("script(1) makes the terminal, and is not installed: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "askpy")); err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, cmd: exec.Command("script", "-qec", command, "/dev/null"), ended: make(chan struct{})}
	x.cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm", "GORACE=atexit_sleep_ms=0",
		"OPENAI_API_KEY="+server.Key, "OPENAI_BASE_URL="+server.URL)
	x.cmd.Env = append(x.cmd.Env, env...)
	x.cmd.Dir, x.cmd.Stdout = bin, x
	if x.in, err = x.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(x.ended); x.cmd.Wait() }()
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		<-x.ended
	})
	return x
}

func (x *terminal) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.Write(p)
}

// expect waits until what is shown matches, and gives it up to there.
func (x *terminal) expect(pattern string) string {
	x.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		x.mu.Lock()
		if at := re.FindIndex(x.shown.Bytes()); at != nil {
			got := string(x.shown.Next(at[1]))
			x.mu.Unlock()
			return got
		}
		x.mu.Unlock()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.t.Fatalf("the terminal does not show %q but %q", pattern, x.shown.String())
	return ""
}

func (x *terminal) send(text string) {
	x.t.Helper()
	if _, err := io.WriteString(x.in, text); err != nil {
		x.t.Error(err)
	}
}

// end waits for the end of the command, checks its status and gives what was
// shown since the last match.
func (x *terminal) end(status int) string {
	x.t.Helper()
	select {
	case <-x.ended:
	case <-time.After(20 * time.Second):
		x.t.Fatalf("the command does not end; the terminal shows %q", x.expect(`(?s).*`))
	}
	if got := x.cmd.ProcessState.ExitCode(); got != status {
		x.t.Errorf("the command ended with status %d, want %d", got, status)
	}
	return x.shown.String()
}

// The answer is shown as it comes, and what comes of it is told when no more
// does.
func TestStreamed(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text("One and two and three.").Broken(responsestest.Freeze, 5))
	defer server.Close()
	x := onTerminal(t, server, "askpy --runner fake 'count'")
	x.expect(`thinking`)
	x.expect(`\r\x1b\[KOne`)
	x.send("\x03")
	if got := x.end(130); !strings.Contains(got, "\r\naskpy: interrupted\r\naskpy: the text above is not the whole answer\r\naskpy: \"askpy -c\" goes on from here\r\n") {
		t.Errorf("the terminal shows %q", got)
	}
}

// A stream that ends too early is a failure, after whatever text.
func TestStreamCut(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text("One and two and three.").Broken(responsestest.HalfLine, 5))
	defer server.Close()
	x := onTerminal(t, server, "askpy --runner fake 'count'")
	x.expect(`One`)
	got := x.end(1)
	if !regexp.MustCompile(`\r\naskpy: .*stream ended.*\r\naskpy: the text above is not the whole answer\r\naskpy: "askpy -c" goes on from here\r\n$`).MatchString(got) {
		t.Errorf("the terminal shows %q", got)
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d requests were sent after text had been shown, want 1", n)
	}
}

// What was cut short is shown as far as it came, and marked.
func TestTruncated(t *testing.T) {
	server := responsestest.NewServer(responsestest.Incomplete("max_output_tokens", responsestest.Text("Once upon a time")))
	defer server.Close()
	x := onTerminal(t, server, "askpy --runner fake 'tell'")
	x.expect(`Once upon a time\r\n`)
	if got := x.end(1); !regexp.MustCompile(`^askpy: .*max_output_tokens.*\r\naskpy: the text above is not the whole answer\r\n`).MatchString(got) {
		t.Errorf("the terminal shows %q", got)
	}
}

// The wait before a request is sent again is told, and shown while it lasts.
func TestRetryWait(t *testing.T) {
	server := responsestest.NewServer(responsestest.RateLimited(2200*time.Millisecond), responsestest.Text("Hi."))
	defer server.Close()
	x := onTerminal(t, server, "askpy --runner fake 'hi'")
	x.expect(`the API answered 429 Too Many Requests; it is sent again in 2\.2s\r\n`)
	x.expect(`waiting to send the request again, 1s`)
	x.expect(`\[KHi\.\r\n`)
	x.end(0)
}

// A server that cannot stream is asked for streams all the same, and what it
// answers in one piece is shown, recorded and replayed.
func TestStreamWhole(t *testing.T) {
	const head = `{"id": "r", "object": "response", "output": [{"type": "message", "role": "assistant",` + "\n"
	for _, test := range []struct {
		name, contentType, body string
		status                  int
		shown                   string
	}{
		{"answer", "application/json", head + `"content": [{"type": "output_text", "text": "Blue."}]}], "status": "completed"}`, 0, `(\[K|\n)Blue\.\r\n`},
		{"no type", "", head + `"content": [{"type": "output_text", "text": "Blue."}]}], "status": "completed"}`, 0, `(\[K|\n)Blue\.\r\n`},
		{"incomplete", "application/json", head + `"content": [{"type": "output_text", "text": "Bl"}]}], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}`, 1, `askpy: incomplete response: .*max_output_tokens\r\n`},
		{"no response", "application/json", `{"blue": true}`, 1, `askpy: .*application/json`},
		{"a page", "text/html", "<html>", 1, `askpy: the server answered with a web page`},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{test.contentType}
				io.WriteString(w, test.body)
			}))
			defer api.Close()
			file := filepath.Join(t.TempDir(), "colour.yaml")
			for _, flag := range []string{"--record ", "--replay "} {
				x := onTerminal(t, &responsestest.Server{URL: api.URL, Key: "none"}, "askpy --runner fake "+flag+file+" 'name a colour'")
				x.expect(test.shown)
				x.end(test.status)
			}
		})
	}
}

// What a program prints is shown, dimmed, while it runs.
func TestLiveOutput(t *testing.T) {
	needSandbox(t)
	script := func() *responsestest.Server {
		return responsestest.NewServer(
			responsestest.Join(responsestest.Commentary("I will\nlook."), responsestest.Call("call_1", "run_python", `{"code":"print('first', flush=True)\nprint('\\x1b[2Jpart', end='', flush=True)\nimport time\ntime.sleep(1.2)\nprint('ed')"}`)),
			responsestest.Text("Done."),
		)
	}
	server := script()
	defer server.Close()
	x := onTerminal(t, server, "askpy 'look'")
	x.expect(`\r\x1b\[KI will\r\n`)
	x.expect(`look\.\r\n`)
	x.expect(`\x1b\[2m    stdout\| first\x1b\[0m\r\n`)
	x.expect(`program #1 is running, 1s`)
	x.expect(`    stdout\| \\x1b\[2Jparted`)
	x.expect(`\x1b\[KDone\.\r\n`)
	if rest := x.end(0); rest != "" {
		t.Errorf("after the answer the terminal shows %q", rest)
	}

	server = script()
	defer server.Close()
	x = onTerminal(t, server, "askpy 'look' >answer; cat answer", "NO_COLOR=1")
	shown := x.expect(`Done\.\r\n$`)
	if strings.Contains(shown, "stdout|") || strings.Contains(shown, "\x1b[2m") || strings.Count(shown, "look.") != 1 {
		t.Errorf("the terminal shows %q", shown)
	}
	x.end(0)
}

// The markdown of an answer is rendered for the terminal, whatever its size; a
// pipe gets it as it is, and so does a terminal without colours.
func TestMarkdown(t *testing.T) {
	const answer = "# Result\n**Two** rows:\n\n| name | what it is |\n|---|---|\n| fib | the numbers of Fibonacci |\n"
	const rendered = "\x1b[1mResult\x1b[22m\r\n\x1b[1mTwo\x1b[22m rows:\r\n\r\n\x1b[1mname\x1b[22m  \x1b[1mwhat it is\x1b[22m\r\n"
	raw := strings.ReplaceAll(answer, "\n", "\r\n")
	for _, test := range []struct {
		name, before, after string
		env                 []string
		want                string
	}{
		{"wide", "stty cols 100; ", "", nil, rendered + "────  ────────────────────────\r\nfib   the numbers of Fibonacci\r\n"},
		{"narrow", "stty cols 20; ", "", nil, rendered + "────  ──────────────\r\nfib   the numbers of\r\n      Fibonacci\r\n"},
		{"tiny", "stty cols 10; ", "", nil, "rows:\r\n\r\n\x1b[1mname\x1b[22m: fib\r\n\x1b[1mwhat it is\x1b[22m: the numbers of Fibonacci\r\n"},
		{"pipe", "", " | cat", nil, raw},
		{"no colours", "", "", []string{"NO_COLOR=1"}, raw},
		{"dumb", "", "", []string{"TERM=dumb"}, raw},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := responsestest.NewServer(responsestest.Text(answer))
			defer server.Close()
			x := onTerminal(t, server, test.before+"askpy --runner fake 'show'"+test.after, test.env...)
			x.expect(regexp.QuoteMeta(test.want) + "$")
			x.end(0)
		})
	}
}

// Code has colours, and the columns of a table fit in any size, whatever is in them.
func TestMarkdown_codeAndWide(t *testing.T) {
	const code = "```python\nif x: print('é')  # 国\n```\n"
	const table = "| 国 | 首都 |\n|--|--:|\n| 日本 👩‍👩‍👧 | 東京 |\n"
	const coloured = "\x1b[36m```python\x1b[39m\r\n\x1b[35mif\x1b[39m x: print(\x1b[32m'é'\x1b[39m)  \x1b[90m# 国\x1b[39m\r\n\x1b[36m```\x1b[39m\r\n"
	for _, test := range []struct {
		name, answer string
		columns      int
		env          []string
		want         string
	}{
		{"code", code, 80, nil, coloured},
		{"code in a narrow terminal", code, 10, nil, coloured},
		{"code without colours", code, 80, []string{"NO_COLOR=1"}, strings.ReplaceAll(code, "\n", "\r\n")},
		{"wide", table, 120, nil, "───────  ────\r\n日本 👩‍👩‍👧  東京\r\n"},
		{"just wide enough", table, 13, nil, "───────  ────\r\n日本 👩‍👩‍👧  東京\r\n"},
		{"narrow", table, 12, nil, "\x1b[1m国\x1b[22m: 日本 👩‍👩‍👧\r\n\x1b[1m首都\x1b[22m: 東京\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := responsestest.NewServer(responsestest.Text(test.answer))
			defer server.Close()
			x := onTerminal(t, server, "stty cols "+strconv.Itoa(test.columns)+"; askpy --runner fake 'show'", test.env...)
			x.expect(regexp.QuoteMeta(test.want) + "$")
			x.end(0)
		})
	}
}

// Of a long program and a flood of output a terminal gets the beginning and the
// end; --verbose shows all.
func TestFold(t *testing.T) {
	needSandbox(t)
	program := "import sys\nprint('x' * 1000)\nfor i in range(500):\n    print('line', i)\nprint('oops', file=sys.stderr)\n" + strings.Repeat("# remark\n", 20)
	arguments, err := json.Marshal(map[string]string{"code": program})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, flags string
		all         bool
	}{{"folded", "", false}, {"verbose", " --verbose", true}} {
		t.Run(test.name, func(t *testing.T) {
			server := responsestest.NewServer(responsestest.Call("call_1", "run_python", string(arguments)), responsestest.Text("Done."))
			defer server.Close()
			x := onTerminal(t, server, "askpy --runner bubblewrap"+test.flags+" 'count'")
			shown := regexp.MustCompile(`\x1b\[[0-9;]*[mK]`).ReplaceAllString(x.expect(`Done\.\r\n`), "")
			x.end(0)
			for _, want := range []string{"| for i in range(500):", "stdout| line 0\r\n", "stdout| line 499", "stderr| oops"} {
				if !strings.Contains(shown, want) {
					t.Errorf("no %q in %q", want, shown)
				}
			}
			for _, mark := range []string{"| [17 more lines; --verbose shows them]", "[the middle is not shown; --verbose shows it]", "stdout| " + strings.Repeat("x", 200) + "..."} {
				if strings.Contains(shown, mark) == test.all {
					t.Errorf("%q is shown: %v, in %q", mark, test.all, shown)
				}
			}
			for _, middle := range []string{"stdout| line 250\r\n", strings.Repeat("x", 1000)} {
				if strings.Contains(shown, middle) != test.all {
					t.Errorf("%.20q is shown: %v, in %q", middle, !test.all, shown)
				}
			}
		})
	}
}

// Each program is shown and asked for. What was decided goes to the model in
// one request, and the run is one to who asked.
func TestApprove(t *testing.T) {
	needSandbox(t)
	python := func(id, code string) responsestest.Reply {
		arguments, err := json.Marshal(map[string]string{"code": code})
		if err != nil {
			t.Fatal(err)
		}
		return responsestest.Call(id, "run_python", string(arguments))
	}
	server := responsestest.NewServer(
		responsestest.Join(python("call_a", "a = 1\n# \x1b[2J\u202e\nprint('ran', a)"), python("call_b", "print('b')")),
		python("call_c", "print('c')"),
		responsestest.Text("Done."),
	)
	defer server.Close()
	out := filepath.Join(t.TempDir(), "answer.json")
	x := onTerminal(t, server, "askpy --approve --json 'do it' >"+out)
	x.expect(`\x1b\[Krun_python wants to run this program \(1 of 2\):\r\n    1  a = 1\r\n    2  # \\x1b\[2J\\u202e\r\n    3  print\('ran', a\)\r\nRun it\? y, n, or why not: $`)
	x.send("\n")
	x.expect(`Run it\? y, n, or why not: $`)
	x.send("y\n")
	x.expect(`\(2 of 2\):\r\n    1  print\('b'\)\r\nRun it\? y, n, or why not: $`)
	x.send("b is no good\n")
	x.expect(`\(1 of 1\):\r\n    1  print\('c'\)\r\nRun it\? y, n, or why not: $`)
	x.send("n\n")
	x.end(0)
	requests := server.Requests()
	if len(requests) != 3 {
		t.Fatalf("%d requests, want 3", len(requests))
	}
	for i, want := range []string{``, `ran 1.*call_a.*not approved and was not run: b is no good.*call_b`, `not approved and was not run".*call_c`} {
		if !regexp.MustCompile(want).Match(requests[i].Body) {
			t.Errorf("request %d has no %s: %s", i+1, want, requests[i].Body)
		}
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var answer fnloop.Answer
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Turns != 2 || answer.Responses != 3 || len(answer.Calls) != 3 || answer.Calls[2].Turn != 2 || answer.Text != "Done." {
		t.Errorf("the answer is %s", data)
	}
}

// An answer that is typed twice approves one program and not the next, which
// nobody has seen yet.
func TestApproveTwice(t *testing.T) {
	server := responsestest.NewServer(
		responsestest.Join(responsestest.Call("call_a", "run_python", `{"code":"1"}`), responsestest.Call("call_b", "run_python", `{"code":"2"}`)),
		responsestest.Text("Done."),
	)
	defer server.Close()
	x := onTerminal(t, server, "askpy --approve --runner fake 'count'")
	x.expect(`1 of 2\):\r\n    1  1\r\nRun it\?.*: $`)
	x.send("y\ny\n")
	x.expect(`2 of 2\):\r\n    1  2\r\nRun it\?.*: $`)
	x.send("n\n")
	x.end(0)
	if last := server.Requests()[1]; !regexp.MustCompile(`not approved and was not run".*call_b`).Match(last.Body) {
		t.Errorf("the model was sent %s", last.Body)
	}
}

// What waits for approval waits in the session too. What was approved and has
// begun is not run again.
func TestApproveSession(t *testing.T) {
	needSandbox(t)
	server := responsestest.NewServer(
		responsestest.Call("call_a", "python", `{"code":"import time\nprint('begun', flush=True)\ntime.sleep(600)"}`),
		responsestest.Text("Never mind."),
	)
	defer server.Close()
	askpy := "askpy --approve --timeout 600s --session " + filepath.Join(t.TempDir(), "chat.json")
	x := onTerminal(t, server, askpy+" 'wait'")
	x.expect(`Run it\?.*: $`)
	x.send("\x04")
	if got := x.end(1); !strings.Contains(got, "askpy: calls need approval, and the terminal gave no answer\r\n") {
		t.Errorf("the terminal shows %q", got)
	}
	x = onTerminal(t, server, askpy)
	x.expect(`not finished: python \(call_a\) waits for approval\r\n`)
	x.expect(`Run it\?.*: $`)
	x.send("\x03")
	x.end(130)
	x = onTerminal(t, server, "echo pid $$; exec "+askpy)
	pid, err := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(x.expect(`pid \d+\r\n`)))
	if err != nil {
		t.Fatal(err)
	}
	x.expect(`Run it\?.*: $`)
	x.send("y\n")
	x.expect(`stdout\| begun`)
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Fatal("it could not be killed")
	}
	x.end(137)
	x = onTerminal(t, server, askpy)
	x.expect(`not finished: python \(call_a\) was running when the last run ended; it is not run again\r\n`)
	x.expect(`Never mind\.\r\n`)
	x.end(0)
	if last := server.Requests()[1]; !bytes.Contains(last.Body, []byte("interrupted")) {
		t.Errorf("the model was sent %s", last.Body)
	}
}

// The limit of rounds counts those before an approval too.
func TestApproveMaxTurns(t *testing.T) {
	server := responsestest.NewServer(
		responsestest.Call("call_a", "run_python", `{"code":"1"}`),
		responsestest.Call("call_b", "run_python", `{"code":"2"}`),
	)
	defer server.Close()
	x := onTerminal(t, server, "askpy --approve --runner fake --max-turns 1 'count'")
	x.expect(`Run it\?.*: $`)
	x.send("y\n")
	got := x.end(3)
	if !strings.Contains(got, "askpy: turn limit reached: 1 calls after 1 turns were not run") || strings.Contains(got, "Run it") {
		t.Errorf("the terminal shows %q", got)
	}
}

// What waits for approval is not rejected because the flag was forgotten.
func TestApproveForgotten(t *testing.T) {
	server := responsestest.NewServer(
		responsestest.Call("call_a", "python", `{"code":"1"}`),
		responsestest.Text("Never mind."),
	)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "chat.json")
	x := onTerminal(t, server, "askpy --approve --runner fake --session "+file+" 'run'")
	x.expect(`Run it\?.*: $`)
	x.send("\x04")
	x.end(1)
	env := map[string]string{"OPENAI_API_KEY": server.Key, "OPENAI_BASE_URL": server.URL}
	for _, prompt := range [][]string{nil, {"And now?"}} {
		status, stdout, stderr := askpy(t, env, append(prompt, "--runner", "fake", "--session", file)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, "the conversation waits for your word on 1 programs; --approve asks for it") {
			t.Errorf("status %d, %q\n%s", status, stdout, stderr)
		}
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
	x = onTerminal(t, server, "askpy --approve --runner fake --session "+file)
	x.expect(`not finished: python \(call_a\) waits for approval\r\n`)
	x.expect(`Run it\?.*: $`)
	x.send("n\n")
	x.expect(`Never mind\.\r\n`)
	x.end(0)
}
