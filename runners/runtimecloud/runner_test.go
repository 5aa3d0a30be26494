package runtimecloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

func TestRun(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = hello
		b.Delay = 100 * time.Millisecond
		start := time.Now()
		res := b.run(t, fnloop.Program{Source: "print('hello')\n", Stdin: []byte("in\x00put")})
		if took := time.Since(start); took > 400*time.Millisecond {
			t.Errorf("Run() took %v of answers that take 100ms, want at most four in series", took)
		}
		if !isHello(res) {
			t.Errorf("Run() = %+v", res)
		}
		if res.Duration != 41*time.Millisecond || res.Startup != 300*time.Millisecond || res.StdoutBytes != 6 || res.StderrBytes != 8 {
			t.Errorf("Run() = %+v, want what the service said of it", res)
		}
		if res.Limits != (fnloop.Limits{Time: runtimecloud.DefaultTime, Memory: runtimecloud.DefaultMemory}) {
			t.Errorf("Limits = %+v, want the defaults", res.Limits)
		}
		synctest.Wait()
		time.Sleep(time.Second)

		var steps []string
		keys := map[string]bool{}
		for _, r := range b.Requests() {
			steps = append(steps, string(r.Step))
			key := r.Header.Get("Idempotency-Key")
			if keys[key] {
				t.Errorf("%s has the key of another step", r.Step)
			}
			keys[key] = true
			if got := r.Header.Get("X-Runtime-Client"); got != "http/2026-10-04" {
				t.Errorf("%s: X-Runtime-Client = %q", r.Step, got)
			}
			if strings.Contains(r.Path, secretKey) {
				t.Errorf("%s has the key in its path", r.Step)
			}
		}
		if got := strings.Join(steps, " "); got != "create write exec delete" {
			t.Errorf("requests: %s", got)
		}
		requests := b.Requests()
		if got := requests[1].Path; !strings.HasSuffix(got, "/files/content?path=%2Fworkspace%2Fmain.py") {
			t.Errorf("write to %s", got)
		}
		if got := string(requests[1].Body); got != "print('hello')\n" {
			t.Errorf("wrote %q", got)
		}
		want := `{"argv":["python3","main.py"],"cwd":"/workspace","env":{"PYTHONUNBUFFERED":"1"},"stdinBase64":"aW4AcHV0","timeoutMs":30000,"stream":true}`
		if got := string(requests[2].Body); got != want {
			t.Errorf("exec\n%s\nwant\n%s", got, want)
		}
	})
}

// Fields that are left out of a create get defaults that cost money or open the
// network, so the bytes are what counts.
func TestCreateBody(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(*runtimecloud.Runner)
		limits fnloop.Limits
		want   string
		why    string
	}{
		{
			"defaults", func(*runtimecloud.Runner) {}, fnloop.Limits{},
			`{"labels":{"app":"fnloop","run":"RUN"},"timeoutSeconds":300,"onLeaseEnd":"delete","idlePauseSeconds":0,"maxTotalCostMicros":50000,"network":{"internet":false}}`,
			"no network, deleted at its limit, never paused, a bound on the cost, and the size that is kept ready",
		},
		{
			"everything", func(r *runtimecloud.Runner) {
				r.VCPU, r.Memory, r.DiskMiB, r.Region, r.Image = 4, 1<<30+1, 8192, "us-east", "science:3"
				r.Network = runtimecloud.Network{Internet: true, Allow: []string{"api.example.com"}, Deny: []string{"10.0.0.0/8"}}
				r.Env, r.Labels, r.App = map[string]string{"A": "<&>"}, map[string]string{"team": "red"}, "shop"
				r.TimeLimit, r.MaxCostMicros = 10*time.Minute, 70_000
			}, fnloop.Limits{},
			`{"labels":{"app":"shop","run":"RUN","team":"red"},"env":{"A":"<&>"},"vcpu":4,"memoryMiB":1025,"diskMiB":8192,"timeoutSeconds":600,"onLeaseEnd":"delete","idlePauseSeconds":0,"maxTotalCostMicros":70000,"network":{"internet":true,"allow":["api.example.com"],"deny":["10.0.0.0/8"]},"image":"science:3","region":"us-east"}`,
			"every option is sent",
		},
		{
			"long program", func(r *runtimecloud.Runner) { r.MaxCostMicros = -1 }, fnloop.Limits{Time: time.Hour, Memory: 1},
			`{"labels":{"app":"fnloop","run":"RUN"},"memoryMiB":128,"timeoutSeconds":3660,"onLeaseEnd":"delete","idlePauseSeconds":0,"network":{"internet":false}}`,
			"the sandbox lives longer than its program may, and has the least memory there is",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				c.set(b.runner)
				b.run(t, fnloop.Program{Limits: c.limits})
				body := b.Requests(runtimetest.StepCreate)[0].Body
				var sent struct{ Labels map[string]string }
				if err := json.Unmarshal(body, &sent); err != nil {
					t.Fatal(err)
				}
				if got := strings.Replace(string(body), sent.Labels["run"], "RUN", 1); got != c.want {
					t.Errorf("create\n%s\nwant\n%s\n%s", got, c.want, c.why)
				}
			})
		})
	}
}

func TestEndings(t *testing.T) {
	signal := func(n int) func(context.Context, *runtimetest.Command) runtimetest.Exit {
		return func(context.Context, *runtimetest.Command) runtimetest.Exit { return runtimetest.Exit{Signal: n} }
	}
	status := func(n int) func(context.Context, *runtimetest.Command) runtimetest.Exit {
		return func(context.Context, *runtimetest.Command) runtimetest.Exit { return runtimetest.Exit{Code: n} }
	}
	for _, c := range []struct {
		name   string
		exec   func(context.Context, *runtimetest.Command) runtimetest.Exit
		asCode bool
		end    fnloop.Ending
		signal string
		code   int // negative: null
		why    string
	}{
		{"success", status(0), false, fnloop.EndExit, "", 0, "zero is a status"},
		{"failure", status(1), false, fnloop.EndExit, "", 1, "a failed program is a result"},
		{"137", status(137), true, fnloop.EndExit, "", 137, "a program may exit with any status"},
		{"124", status(124), false, fnloop.EndExit, "", 124, "only the service says that time was up"},
		{"killed", signal(9), false, fnloop.EndUnknown, "", -1, "no status is not success"},
		{"killed by a number", signal(11), true, fnloop.EndSignal, "SIGSEGV", -1, "the state tells it from a status"},
		{"out of memory", func(context.Context, *runtimetest.Command) runtimetest.Exit {
			return runtimetest.Exit{Signal: 9, OOM: true}
		}, false, fnloop.EndMemory, "", -1, "the guest's kernel knows"},
		{"timeout", hang, false, fnloop.EndTimeout, "", -1, "what was printed is kept"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.Exec, b.SignalStatus = c.exec, c.asCode
				res := b.run(t, fnloop.Program{Limits: fnloop.Limits{Time: 2 * time.Second}})
				if res.End != c.end || res.Signal != c.signal || res.TimedOut != (c.end == fnloop.EndTimeout) {
					t.Errorf("Run() = %+v: %s", res, c.why)
				}
				if (res.OOM == fnloop.EvidenceYes) != (c.end == fnloop.EndMemory) || c.end == fnloop.EndMemory && !strings.Contains(res.Stderr, "out of memory") {
					t.Errorf("OOM = %q, Stderr = %q: %s", res.OOM, res.Stderr, c.why)
				}
				if c.code < 0 && res.ExitCode != nil || c.code >= 0 && (res.ExitCode == nil || *res.ExitCode != c.code) {
					t.Errorf("ExitCode = %v: %s", res.ExitCode, c.why)
				}
				if c.end == fnloop.EndTimeout && (res.Stdout != "step 1\n" || !strings.Contains(res.Stderr, "time limit of 2s") || res.Duration != 2*time.Second) {
					t.Errorf("Run() = %+v: %s", res, c.why)
				}
			})
		})
	}
}

// The answer in one piece would have the head alone.
func TestLongOutput(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			io.WriteString(cmd.Stdout, "HEAD"+strings.Repeat("x", 10_000_000)+"TAIL")
			return runtimetest.Exit{}
		}
		res := b.run(t, fnloop.Program{})
		if !strings.HasPrefix(res.Stdout, "HEADx") || !strings.HasSuffix(res.Stdout, "xTAIL") || res.StdoutBytes != 10_000_008 ||
			!res.StdoutTruncated || res.StderrTruncated || len(res.Text()) > fnloop.DefaultMaxOutput {
			t.Errorf("Stdout has %d of %d bytes and begins %.20q", len(res.Stdout), res.StdoutBytes, res.Stdout)
		}
	})
}

func TestEndlessOutput(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			for line := strings.Repeat("A", 1<<20); ; {
				if _, err := io.WriteString(cmd.Stdout, line); err != nil {
					return runtimetest.Exit{Signal: 9}
				}
			}
		}
		res := b.run(t, fnloop.Program{})
		if res.End != fnloop.EndOutput || res.ExitCode != nil || !res.StdoutTruncated {
			t.Errorf("End = %q, ExitCode = %v", res.End, res.ExitCode)
		}
	})
}

// Bytes that are not UTF-8 come beside the text; a rune may be cut by an event.
func TestBytes(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			for _, part := range []string{"ok\xff\xfe\x00", "\xe2\x82", "\xac", "end"} {
				io.WriteString(cmd.Stdout, part)
			}
			return runtimetest.Exit{}
		}
		res := b.run(t, fnloop.Program{})
		if want := "ok\ufffd\ufffd\x00€end"; res.Stdout != want || res.StdoutBytes != 11 {
			t.Errorf("Stdout = %q (%d bytes), want %q", res.Stdout, res.StdoutBytes, want)
		}
	})
}

func TestLargeSource(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		var got []byte
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			got, _ = cmd.File("main.py")
			return runtimetest.Exit{}
		}
		source := "x=\"" + strings.Repeat("a", 5<<19) + "\""
		b.Fail(runtimetest.StepChunk, runtimetest.Fault{After: true, Drop: true})
		b.run(t, fnloop.Program{Source: source})
		if string(got) != source {
			t.Errorf("the sandbox got %d bytes of %d", len(got), len(source))
		}
	})
}

func TestStart(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*bench)
	}{
		{"the answer waits", func(b *bench) { b.StartDelay = 20 * time.Second }},
		{"the answer does not wait", func(b *bench) { b.StartDelay, b.Hasty = 70*time.Second, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				c.set(b)
				b.Exec = hello
				if res := b.run(t, fnloop.Program{}); !isHello(res) || res.Startup < 20*time.Second {
					t.Errorf("Run() = %+v", res)
				}
			})
		})
	}
}

func TestStartFails(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.StartDelay, b.Hasty = 10*time.Second, true
		go func() {
			time.Sleep(5 * time.Second)
			b.End(b.Live()[0], "startup_failed")
		}()
		_, err := b.runner.Run(t.Context(), fnloop.Program{})
		e, ok := errors.AsType[*runtimecloud.Error](err)
		if !ok || e.Code != "start_failed" || !strings.Contains(e.Message, "startup_failed") || e.Sandbox == "" {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// A program that is refused never costs a sandbox.
func TestProgramErrors(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for field, p := range map[string]fnloop.Program{
			"source":        {Source: "\x00"},
			"limits.time":   {Limits: fnloop.Limits{Time: 24 * time.Hour}},
			"limits.memory": {Limits: fnloop.Limits{Memory: 1 << 40}},
		} {
			_, err := b.runner.Run(t.Context(), p)
			if e, ok := errors.AsType[*fnloop.ProgramError](err); !ok || e.Field != field {
				t.Errorf("Run() error = %v, want one about %s", err, field)
			}
		}
		if n := len(b.Requests()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestLiveOutput(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			for i := range 3 {
				fmt.Fprintf(cmd.Stdout, "%d €\n", i)
				time.Sleep(time.Second)
			}
			fmt.Fprint(cmd.Stderr, "done")
			return runtimetest.Exit{}
		}
		start := time.Now()
		var stdout, stderr timedWriter
		b.run(t, fnloop.Program{Stdout: &stdout, Stderr: &stderr})
		if got, want := fmt.Sprint(stdout), "[0s 0 €\n 1s 1 €\n 2s 2 €\n]"; stdout.since(start) != "0s 0 €\n1s 1 €\n2s 2 €\n" {
			t.Errorf("live output: %s, want %s", got, want)
		}
		if got := stderr.since(start); got != "3s done" {
			t.Errorf("live errors: %q", got)
		}
	})
}

// A writer that blocks costs the program nothing.
func TestLiveWriterBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = hello
		blocked := make(chan struct{})
		defer close(blocked)
		start := time.Now()
		res := b.run(t, fnloop.Program{Stdout: blockingWriter(blocked)})
		if took := time.Since(start); !isHello(res) || took > 2*time.Second {
			t.Errorf("Run() = %+v after %v", res, took)
		}
	})
}

type blockingWriter chan struct{}

func (w blockingWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

type timedWriter []struct {
	at   time.Time
	text string
}

func (w *timedWriter) Write(p []byte) (int, error) {
	*w = append(*w, struct {
		at   time.Time
		text string
	}{time.Now(), string(p)})
	return len(p), nil
}

func (w *timedWriter) since(start time.Time) string {
	var b strings.Builder
	for _, e := range *w {
		fmt.Fprintf(&b, "%v %s", e.at.Sub(start).Truncate(time.Second), e.text)
	}
	return b.String()
}

func TestCloseRefusesPrograms(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		if err := b.runner.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.runner.Run(t.Context(), fnloop.Program{}); !errors.Is(err, runtimecloud.ErrClosed) {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// Close comes back only when nothing is left, be it the caller's program or a
// delete that takes its time.
func TestCloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = func(context.Context, *runtimetest.Command) runtimetest.Exit {
			time.Sleep(10 * time.Second)
			return runtimetest.Exit{}
		}
		b.Fail(runtimetest.StepDelete, runtimetest.Fault{Status: 500, Code: "internal_error"})
		go b.runner.Run(t.Context(), fnloop.Program{})
		synctest.Wait()
		if len(b.Live()) != 1 {
			t.Fatal("nothing runs")
		}
		if err := b.runner.Close(); err != nil {
			t.Error(err)
		}
		if live := b.Live(); len(live) > 0 {
			t.Errorf("left after Close: %q", live)
		}
	})
}

func TestEnvironment(t *testing.T) {
	r := &runtimecloud.Runner{}
	if env := r.Environment(); env.Network || env.Python != "3.12" || env.Limits.Time != runtimecloud.DefaultTime {
		t.Errorf("Environment() = %+v", env)
	}
	r = &runtimecloud.Runner{Image: "mine", Network: runtimecloud.Network{Internet: true}, Time: time.Minute}
	if env := r.Environment(); !env.Network || env.Python != "" || len(env.Packages) > 0 || env.Limits.Time != time.Minute {
		t.Errorf("Environment() = %+v", env)
	}
}

func TestProbe(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		if err := b.runner.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		b.runner = &runtimecloud.Runner{Key: "rtcloud_wrong", Transport: b.Server}
		err := b.runner.Probe(t.Context())
		if e, ok := errors.AsType[*runtimecloud.Error](err); !ok || e.Status != 401 || e.Code != "unauthorized" || e.RequestID == "" {
			t.Errorf("Probe() = %v", err)
		}
	})
}
