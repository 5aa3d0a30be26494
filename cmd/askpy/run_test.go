package main_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	main "github.com/fnloop/fnloop/cmd/askpy"
	"github.com/fnloop/fnloop/responsestest"
)

func noEnv(string) string { return "" }

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// An answer that could not be written is a failure.
func TestOutputFails(t *testing.T) {
	needSandbox(t)
	for _, args := range [][]string{{"compute fib(40)"}, {"--json", "compute fib(40)"}} {
		var stderr bytes.Buffer
		status := main.Run(t.Context(), args, strings.NewReader(""), full{}, &stderr, noEnv)
		if status != 1 || !strings.Contains(stderr.String(), "askpy: the answer could not be written: no space left\n") {
			t.Errorf("run(%q) = %d\n%s", args, status, stderr.String())
		}
	}
}

// So is help.
func TestHelpFails(t *testing.T) {
	for _, flag := range []string{"--help", "--version"} {
		var stderr bytes.Buffer
		status := main.Run(t.Context(), []string{flag}, strings.NewReader(""), full{}, &stderr, noEnv)
		if status != 1 || stderr.String() != "askpy: it could not be written: no space left\n" {
			t.Errorf("run(%q) = %d\n%s", flag, status, stderr.String())
		}
	}
}

// A pipe that nobody reads any more ends no run at once, since sandboxes have
// to be removed. It is no failure: whoever reads has seen enough.
func TestBrokenPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such signal")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name           string
		stdout, stderr bool
		status         int
		message        string
	}{
		{"stdout", true, false, 0, ""},
		{"stderr", false, true, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := responsestest.NewServer(responsestest.Text("Hi."))
			defer server.Close()
			cmd := exec.Command(self, "--runner", "fake", "hi")
			cmd.Args[0] = "askpy"
			cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+server.Key, "OPENAI_BASE_URL="+server.URL)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			r.Close()
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if test.stdout {
				cmd.Stdout = w
			}
			if test.stderr {
				cmd.Stderr = w
			}
			err = cmd.Run()
			if status := cmd.ProcessState.ExitCode(); status != test.status || !strings.Contains(stderr.String(), test.message) {
				t.Errorf("status %d, want %d with %q (%v)\n%s", status, test.status, test.message, err, stderr.String())
			}
			if strings.Contains(stderr.String(), "askpy:") {
				t.Errorf("it complains: %s", stderr.String())
			}
			if test.stderr && stdout.String() != "Hi.\n" {
				t.Errorf("stdout is %q", stdout.String())
			}
		})
	}
}

// Without a sandbox nothing is sent, and nothing else takes its place.
func TestNoSandbox(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
	for _, runner := range []string{"auto", "bubblewrap"} {
		status, stdout, stderr := askpy(t, nil, "--json", "--verbose", "--runner", runner, "compute fib(40)")
		if status != 1 || strings.Contains(stderr, "thinking") {
			t.Errorf("status %d\n%s", status, stderr)
		}
		for _, part := range []string{`"stop":"invalid"`, `"pending":[]`, `"calls":[]`, `"prompt":"compute fib(40)"`, `"error":"`} {
			if !strings.Contains(stdout, part) {
				t.Errorf("no %s in %s", part, stdout)
			}
		}
		if !strings.Contains(stderr, "install") {
			t.Errorf("no word of how to install bubblewrap:\n%s", stderr)
		}
		if runner == "auto" && !regexp.MustCompile(`auto: did not take runtime: .*\nauto: did not take bubblewrap: .*\nauto: did not take docker: `).MatchString(stderr) {
			t.Errorf("--verbose does not say why none was taken:\n%s", stderr)
		}
	}
}

// So does the doctor.
func TestNoSandbox_doctor(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
	status, stdout, _ := askpy(t, nil, "doctor")
	for _, line := range []string{
		`missing bubblewrap  there is no bubblewrap: .*\n +-> install it: apt install bubblewrap`,
		`One of bubblewrap, docker and runtime is enough\.\n`,
		`missing sessions    there is no folder to keep conversations in\n`,
	} {
		if status != 1 || !regexp.MustCompile(line).MatchString(stdout) {
			t.Errorf("status %d, no line %q in\n%s", status, line, stdout)
		}
	}
}

// A run that waits for its prompt can be interrupted.
func TestInterruptedPrompt(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := main.Run(ctx, []string{"--json"}, r, &stdout, &stderr, noEnv)
	if status != 130 || stderr.String() != "askpy: interrupted\n" {
		t.Errorf("run = %d, %s", status, stderr.String())
	}
	if out := stdout.String(); !strings.Contains(out, `"stop":"cancelled"`) || !strings.Contains(out, `"error":"interrupted"`) {
		t.Error(out)
	}
	w.Close() // which ends the read
	r.Close()
}

// The first signal ends the run; the second ends the program, wherever it is
// stuck: here it writes to a pipe that nobody reads.
func TestSecondSignal(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text(strings.Repeat("x", 1<<20)))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "--quiet", "--runner", "fake", "hi")
	cmd.Args[0] = "askpy"
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+server.Key, "OPENAI_BASE_URL="+server.URL)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil { // it has begun to write
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 100 { // whether the first has been taken cannot be seen from here
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended as if nothing had happened")
		}
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		t.Error("it did not end")
		<-ended
	}
}

// A prompt that cannot be read is no usage error; one that cannot be sent is.
func TestPrompt(t *testing.T) {
	for _, test := range []struct {
		name, prompt string
		err          error
		status       int
		message      string
	}{
		{"broken", "", errors.New("bad disk"), 1, "reading the prompt from standard input: bad disk"},
		{"long", strings.Repeat("x", 10<<20+1), io.EOF, 2, "longer than the 10 MiB"},
		{"binary", "\xff", io.EOF, 2, "not valid UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			in := io.MultiReader(strings.NewReader(test.prompt), failing{test.err})
			status := main.Run(t.Context(), nil, in, &stdout, &stderr, noEnv)
			if status != test.status || !strings.Contains(stderr.String(), test.message) {
				t.Errorf("run = %d, want %d with %q\n%s", status, test.status, test.message, stderr.String())
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
