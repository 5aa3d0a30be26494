package main_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	main "github.com/fnloop/fnloop/cmd/askpy"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// sums has a model that computes something and then answers.
func sums(t *testing.T, code string) (env map[string]string) {
	t.Helper()
	server := responsestest.NewServer(responsestest.Call("call_1", "run_python", `{"code":"`+code+`"}`), responsestest.Text("42"))
	t.Cleanup(server.Close)
	return map[string]string{"OPENAI_API_KEY": server.Key, "OPENAI_BASE_URL": server.URL}
}

// newRuntime starts a stand-in for Runtime Cloud, which fails the test if a
// sandbox is left at its end. Its programs run in bubblewrap.
func newRuntime(t *testing.T, env map[string]string) *runtimetest.Server {
	needSandbox(t)
	local := new(bubblewrap.Runner)
	t.Cleanup(func() { local.Close() })
	srv := runtimetest.New(t)
	srv.Python = local
	env["RUNTIME_API_URL"] = srv.Start(t)
	env["RUNTIME_API_KEY"] = runtimetest.Key
	return srv
}

func TestRuntime(t *testing.T) {
	for _, runner := range []string{"runtime", "auto"} {
		env := sums(t, "print(6*7)")
		srv := newRuntime(t, env)
		status, stdout, stderr := askpy(t, env, "--verbose", "--runner", runner, "compute")
		if status != 0 || stdout != "42\n" || !strings.Contains(stderr, "    stdout| 42\n") {
			t.Errorf("--runner %s: status %d, %q\n%s", runner, status, stdout, stderr)
		}
		if n := strings.Count(stderr, "runtime: sandbox "); n != 2 { // the first one ran a program that does nothing
			t.Errorf("--verbose tells what %d sandboxes cost, want 2:\n%s", n, stderr)
		}
		if srv.Created() != 2 || len(srv.Live()) != 0 {
			t.Errorf("%d sandboxes were made, and left are %q", srv.Created(), srv.Live())
		}
		if (runner == "auto") != strings.Contains(stderr, "auto: took runtime: a first program ran there\n") {
			t.Errorf("--runner %s says\n%s", runner, stderr)
		}
	}
}

// A time limit that no sandbox can grant is wrong usage, and no failure of the
// model's program.
func TestRuntimeTimeout(t *testing.T) {
	env := sums(t, "print(6*7)")
	srv := newRuntime(t, env)
	status, stdout, stderr := askpy(t, env, "--runner", "runtime", "--timeout", "100h", "compute")
	if status != 2 || stdout != "" || !strings.Contains(stderr, "askpy: --timeout: 100h0m0s is more than the 23h0m0s of a sandbox\n") {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
	if n := srv.Created(); n != 0 {
		t.Errorf("%d sandboxes were made", n)
	}
	if status, _, stderr := askpy(t, env, "--runner", "runtime", "--timeout", "22h", "compute"); status != 0 {
		t.Errorf("status %d\n%s", status, stderr)
	}
}

// Packages are installed into each sandbox, and files of the host are not.
func TestRuntimePackages(t *testing.T) {
	env := sums(t, "print(6*7)")
	srv := newRuntime(t, env)
	status, stdout, stderr := askpy(t, env, "--runner", "runtime", "--packages", "numpy,httpx==0.28.1", "compute")
	if status != 0 || stdout != "42\n" {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
	if body := string(srv.Requests(runtimetest.StepExec)[0].Body); !strings.Contains(body, `"numpy","httpx==0.28.1"`) {
		t.Errorf("the first command is %s", body)
	}
	if status, _, stderr := askpy(t, env, "--runner", "runtime", "--requirements", "list.txt", "compute"); status != 1 || !strings.Contains(stderr, `list.txt" is no requirement that can be installed there`) {
		t.Errorf("status %d\n%s", status, stderr)
	}
}

// A key that is no good is told, without the key; auto goes on to the next.
func TestRuntimeRefuses(t *testing.T) {
	env := sums(t, "print(6*7)")
	newRuntime(t, env)
	env["RUNTIME_API_KEY"] = "rtcloud_wrong_0123456789"
	status, stdout, stderr := askpy(t, env, "--runner", "runtime", "compute")
	if status != 1 || stdout != "" || strings.Contains(stderr, "thinking") {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
	status, _, more := askpy(t, env, "compute")
	if status != 0 || !strings.Contains(more, "auto: did not take runtime: ") {
		t.Errorf("status %d\n%s", status, more)
	}
	if strings.Contains(stderr+more, "0123456789") {
		t.Errorf("the key is shown:\n%s%s", stderr, more)
	}
}

// A run that is interrupted leaves no sandbox, which costs money.
func TestRuntimeInterrupted(t *testing.T) {
	env := sums(t, "import time; time.sleep(600)")
	srv := newRuntime(t, env)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for end := time.Now().Add(20 * time.Second); len(srv.Requests(runtimetest.StepExec)) < 2 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	status, _, stderr := askpyContext(ctx, env, "--runner", "runtime", "wait")
	if status != 130 || len(srv.Live()) != 0 {
		t.Errorf("status %d, left are %q\n%s", status, srv.Live(), stderr)
	}
}

func TestDocker(t *testing.T) {
	image := cmp.Or(os.Getenv("FNLOOP_TEST_IMAGE"), "fnloop-test:latest") // the script .ci/image makes it
	r := &docker.Runner{Image: image}
	err := r.Probe(t.Context())
	if e := r.Close(); e != nil {
		t.Error(e)
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	for _, runner := range []string{"docker", "auto"} { // an image is for no other
		env := sums(t, "print(6*7)")
		status, stdout, stderr := askpy(t, env, "--verbose", "--runner", runner, "--image", image, "compute")
		if status != 0 || stdout != "42\n" || !strings.Contains(stderr, "    stdout| 42\n") {
			t.Errorf("--runner %s: status %d, %q\n%s", runner, status, stdout, stderr)
		}
	}
}

// Where nothing else is left, auto pulls the image as docker does.
func TestDockerPulls(t *testing.T) {
	for _, runner := range []string{"docker", "auto"} {
		t.Run(runner, func(t *testing.T) {
			var mu sync.Mutex
			var pulled []string
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Api-Version", "1.44")
				w.Header().Set("Content-Type", "application/json")
				switch {
				case strings.HasSuffix(r.URL.Path, "/_ping"), strings.HasSuffix(r.URL.Path, "/info"), strings.HasSuffix(r.URL.Path, "/version"):
					io.WriteString(w, `{"OSType":"linux","SecurityOptions":["name=seccomp,profile=default"],"MemoryLimit":true,"OomKillDisable":true,"PidsLimit":true,"CpuCfsQuota":true}`)
				case strings.HasSuffix(r.URL.Path, "/images/create"):
					mu.Lock()
					pulled = append(pulled, r.URL.Query().Get("fromImage"))
					mu.Unlock()
					w.WriteHeader(http.StatusInternalServerError)
					io.WriteString(w, `{"message":"no route to the registry"}`)
				default:
					w.WriteHeader(http.StatusNotFound)
					io.WriteString(w, `{"message":"No such image"}`)
				}
			}))
			defer engine.Close()
			t.Setenv("PATH", t.TempDir()) // without bubblewrap
			t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
			status, stdout, stderr := askpy(t, map[string]string{"OPENAI_API_KEY": "test"}, "--runner", runner, "compute")
			if status != 1 || stdout != "" || !strings.Contains(stderr, "no route to the registry") {
				t.Errorf("status %d, %q\n%s", status, stdout, stderr)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(pulled) == 0 || !strings.Contains(pulled[0], "python") {
				t.Errorf("pulled %q\n%s", pulled, stderr)
			}
		})
	}
}

// Without an engine the error says what to do, and nothing is sent.
func TestNoDocker(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
	status, stdout, stderr := askpy(t, map[string]string{"OPENAI_API_KEY": "test"}, "--runner", "docker", "compute")
	if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "askpy: docker: ") {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
}

// What runners advise is put into the words of the command line: no field of theirs
// and no method is named.
func TestAdvice(t *testing.T) {
	var fields []string
	for _, typ := range []reflect.Type{reflect.TypeFor[bubblewrap.Runner](), reflect.TypeFor[docker.Runner]()} {
		for f := range typ.Fields() {
			if f.IsExported() && f.Name != "Python" && f.Name != "Image" { // which are words, too
				fields = append(fields, f.Name)
			}
		}
	}
	goNames := regexp.MustCompile(`\b(` + strings.Join(fields, "|") + `)\b|\bfield\b|Runner\.`)
	advice := regexp.MustCompile(`(?i:advice):\s+((?:"(?:[^"\\]|\\.)*"[\s+]*)+)`)
	found := 0
	for _, pattern := range []string{"../../runners/bubblewrap/*.go", "../../runners/docker/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range advice.FindAllSubmatch(data, -1) {
				found++
				text := regexp.MustCompile(`"[\s+]*"`).ReplaceAllString(string(m[1]), "")
				text = regexp.MustCompile(`, or in the Cgroup field.*|with the Cgroup field.*`).ReplaceAllString(text, "") // askpy sets none
				if got := main.CLIWords.Replace(text); goNames.MatchString(got) {
					t.Errorf("%s advises %s", file, got)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d texts were found", found)
	}
}
