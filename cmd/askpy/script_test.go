package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	main "github.com/fnloop/fnloop/cmd/askpy"
	"github.com/fnloop/fnloop/responsestest"
)

func TestMain(m *testing.M) {
	// What the tests say is not what the user who runs them goes on with.
	if filepath.Base(os.Args[0]) != "askpy" {
		home, err := os.MkdirTemp("", "askpy-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Setenv("ASKPY_HOME", home) // leakFree removes it
	}
	testscript.Main(leakFree{m}, map[string]func(){"askpy": main.Main})
}

// leakFree runs tests and then looks for goroutines and files that they left.
type leakFree struct{ *testing.M }

func (m leakFree) Run() int {
	code := m.M.Run()
	os.RemoveAll(os.Getenv("ASKPY_HOME"))
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// TestScript runs the scripts in testdata/script. Beside what testscript has,
// they can use these commands:
//
//	serve [-partial] FILE   start a stand-in for the API that plays FILE, and point askpy to it;
//	                        all of it must be played unless -partial is given
//	status N COMMAND...     run a command that ends with status N
//	start COMMAND...        run a command in the background
//	signal NAME N           send the started command a signal; it ends with status N
//	requests N              wait until the server has got N requests
//	sent [!] REGEXP         some request holds a match of the expression, or none
//	running MARK            wait until a process shows MARK in its command line, or with ! none
//	holds FILE REGEXP       wait until a file matches the expression
//	lines TYPE...           standard output has a JSON object in each line, among them those types in order
//	object                  standard output is one JSON object that an Answer can be read from
//
// and the condition [sandbox], which holds where bubblewrap can isolate
// programs and must hold in CI.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[worldKey{}] = new(world)
			env.Setenv("ASKPY_HOME", filepath.Join(env.WorkDir, ".askpy"))
			env.Setenv("GORACE", "atexit_sleep_ms=0")                        // the race detector would sleep for a second at each end
			pixel, err := os.Create(filepath.Join(env.WorkDir, "pixel.png")) // which no script can hold
			if err != nil {
				return err
			}
			defer pixel.Close()
			return png.Encode(pixel, image.NewGray(image.Rect(0, 0, 1, 1)))
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "sandbox":
				err := probe(t.Context())
				if err != nil && os.Getenv("CI") == "true" {
					return false, err
				}
				return err == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":    serve,
			"status":   status,
			"start":    start,
			"signal":   signal,
			"requests": requests,
			"sent":     sent,
			"running":  running,
			"object":   object,
			"lines":    lines,
			"holds":    holds,
		},
	})
}

// A world is the state of one script.
type world struct {
	server         *responsestest.Server
	command        *exec.Cmd
	stdout, stderr bytes.Buffer
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

func serve(ts *testscript.TestScript, neg bool, args []string) {
	partial := len(args) > 0 && args[0] == "-partial"
	if partial {
		args = args[1:]
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve [-partial] FILE")
	}
	server := responsestest.NewServer(readScript(ts, ts.ReadFile(args[0]))...)
	worldOf(ts).server = server
	ts.Defer(func() {
		server.Close()
		if err := server.Err(); err != nil && !partial {
			ts.Fatalf("%s: %v", args[0], err)
		}
	})
	ts.Setenv("OPENAI_BASE_URL", server.URL)
	ts.Setenv("OPENAI_API_KEY", server.Key)
}

// readScript reads what a server answers, a response in each line. A line that
// begins with "and" belongs to the response before it.
func readScript(ts *testscript.TestScript, script string) []responsestest.Reply {
	var replies []responsestest.Reply
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		rest, joined := strings.CutPrefix(line, "and ")
		reply := readReply(ts, rest)
		if last := len(replies) - 1; joined {
			reply = responsestest.Join(replies[last], reply)
			replies = replies[:last]
		}
		replies = append(replies, reply)
	}
	return replies
}

func readReply(ts *testscript.TestScript, line string) responsestest.Reply {
	verb, rest, _ := strings.Cut(line, " ")
	first, second, _ := strings.Cut(rest, " ")
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		ts.Check(err)
		return n
	}
	switch verb {
	case "text":
		return responsestest.Text(strings.NewReplacer(`\e`, "\x1b", `\n`, "\n").Replace(rest))
	case "comment":
		return responsestest.Commentary(rest)
	case "refuse":
		return responsestest.Refusal(rest)
	case "call": // ID NAME ARGUMENTS
		name, arguments, _ := strings.Cut(second, " ")
		return responsestest.Call(first, name, arguments).Force()
	case "python", "cell": // ID FILE
		arguments, err := json.Marshal(map[string]string{"code": ts.ReadFile(second)})
		ts.Check(err)
		tool := map[string]string{"python": "run_python", "cell": "python"}[verb]
		return responsestest.Call(first, tool, string(arguments))
	case "cut": // REASON TEXT
		return responsestest.Incomplete(first, responsestest.Text(second))
	case "error": // STATUS CODE MESSAGE
		code, message, _ := strings.Cut(second, " ")
		return responsestest.Error(number(first), code, message)
	case "http": // STATUS BODY
		return responsestest.HTTP(number(first), second)
	case "busy":
		return responsestest.RateLimited(time.Millisecond)
	case "paced": // DURATION REPLY
		d, err := time.ParseDuration(first)
		ts.Check(err)
		return readReply(ts, second).Paced(d)
	case "late": // DURATION REPLY
		d, err := time.ParseDuration(first)
		ts.Check(err)
		return readReply(ts, second).After(d)
	case "forever":
		reply := readReply(ts, rest)
		return responsestest.Always(func(*responsestest.Turn) responsestest.Reply { return reply })
	}
	ts.Fatalf("unknown reply %q", line)
	return responsestest.Reply{}
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	checkStatus(ts, ts.Exec(args[1], args[2:]...), args[0])
}

func checkStatus(ts *testscript.TestScript, err error, want string) {
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != want {
		ts.Fatalf("the command ended with status %d, want %s", got, want)
	}
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	w := worldOf(ts)
	if neg || len(args) == 0 || w.command != nil {
		ts.Fatalf("usage: start COMMAND...")
	}
	self, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(self, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = os.Environ()
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "GORACE", "ASKPY_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdout, cmd.Stderr = &w.stdout, &w.stderr
	ts.Check(cmd.Start())
	ts.Defer(func() { cmd.Process.Kill() })
	w.command = cmd
}

func signal(ts *testscript.TestScript, neg bool, args []string) {
	w := worldOf(ts)
	if neg || len(args) != 2 || w.command == nil {
		ts.Fatalf("usage: signal NAME N")
	}
	signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": os.Kill}
	ts.Check(w.command.Process.Signal(signals[args[0]]))
	checkStatus(ts, w.command.Wait(), args[1])
	io.Copy(ts.Stdout(), &w.stdout)
	io.Copy(ts.Stderr(), &w.stderr)
	w.command = nil
}

func requests(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: requests N")
	}
	n := 0
	wait(ts, func() bool {
		n = len(worldOf(ts).server.Requests())
		return strconv.Itoa(n) == args[0]
	}, func() { ts.Fatalf("the server got %d requests, want %s", n, args[0]) })
}

func sent(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sent REGEXP")
	}
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	found := false
	for _, r := range worldOf(ts).server.Requests() {
		found = found || re.Match(r.Body)
	}
	if found == neg {
		ts.Fatalf("requests match %s: %v", re, found)
	}
}

func holds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: holds FILE REGEXP")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	var data []byte
	wait(ts, func() bool {
		data, _ = os.ReadFile(ts.MkAbs(args[0]))
		return re.Match(data)
	}, func() { ts.Fatalf("%s does not match %s: %s", args[0], re, data) })
}

func running(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: running MARK")
	}
	wait(ts, func() bool { return hasProcess(args[0]) != neg }, func() { ts.Fatalf("processes with %q: %v", args[0], neg) })
}

func hasProcess(mark string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); bytes.HasPrefix(b, []byte(mark)) {
			return true
		}
	}
	return false
}

func wait(ts *testscript.TestScript, ok func() bool, otherwise func()) {
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			otherwise()
		}
	}
}

func object(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: object")
	}
	out := ts.ReadFile("stdout")
	dec := json.NewDecoder(strings.NewReader(out))
	var members map[string]json.RawMessage
	ts.Check(dec.Decode(&members))
	if _, err := dec.Token(); err != io.EOF {
		ts.Fatalf("more than one JSON value: %q", out)
	}
	for _, name := range []string{"text", "stop", "id", "turns", "usage", "pending", "calls"} {
		if members[name] == nil {
			ts.Fatalf("no member %q in %s", name, out)
		}
	}
	for _, name := range []string{"pending", "calls"} {
		if members[name][0] != '[' {
			ts.Fatalf("%s is %s, want a list", name, members[name])
		}
	}
	var answer fnloop.Answer
	ts.Check(json.Unmarshal([]byte(out), &answer))
}

func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: lines TYPE...")
	}
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var event struct{ Type string }
		ts.Check(json.Unmarshal([]byte(line), &event))
		if len(args) > 0 && event.Type == args[0] {
			args = args[1:]
		}
	}
	if len(args) > 0 {
		ts.Fatalf("no event %q in its place", args[0])
	}
}
