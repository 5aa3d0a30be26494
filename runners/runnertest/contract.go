package runnertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
)

// refused makes a case of a program that no runner may start.
func refused(name, why, field string, p fnloop.Program) testCase {
	return testCase{name: name, why: why, anywhere: true, do: func(t *testing.T, r fnloop.Runner) {
		res, err := r.Run(t.Context(), p)
		pe, ok := errors.AsType[*fnloop.ProgramError](err)
		if !ok || pe.Field != field {
			t.Errorf("Run() = %+v, %v; want a ProgramError about %q", res, err, field)
		}
	}}
}

// A recorder is a writer that keeps what it gets and when.
type recorder struct {
	mu     sync.Mutex
	chunks []string
	first  time.Time
}

func (w *recorder) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chunks == nil {
		w.first = time.Now()
	}
	w.chunks = append(w.chunks, string(p))
	return len(p), nil
}

func (w *recorder) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chunks
}

// A stuck is a writer that never returns before it is released.
type stuck chan struct{}

func (w stuck) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

// contract has the cases about [fnloop.Runner] itself.
var contract = []testCase{
	refused("refuse/nul", "a NUL byte ends a source early somewhere on its way", "source",
		fnloop.Program{Source: "print(1)\x00"}),
	refused("refuse/utf8", "a source that is not UTF-8 would be changed on its way", "source",
		fnloop.Program{Source: "print('\xff')"}),
	refused("refuse/language", "a program in a language that is not there would be run as another", "language",
		fnloop.Program{Source: "print(1)", Language: "no such language"}),
	refused("refuse/size", "a source without bound costs memory before anything runs", "source",
		fnloop.Program{Source: strings.Repeat("#", fnloop.MaxSource+1)}),
	refused("refuse/time", "a negative limit is a mistake and not no limit", "limits.time",
		fnloop.Program{Source: "pass", Limits: fnloop.Limits{Time: -1}}),
	refused("refuse/memory", "a negative limit is a mistake and not no limit", "limits.memory",
		fnloop.Program{Source: "pass", Limits: fnloop.Limits{Memory: -1}}),
	{
		name: "refuse/too-much-memory", why: "a limit above what the machine has limits nothing", lack: []string{"memory"},
		do: func(t *testing.T, r fnloop.Runner) {
			res, err := r.Run(t.Context(), fnloop.Program{Source: "pass", Limits: fnloop.Limits{Memory: 1 << 60}})
			if _, ok := errors.AsType[*fnloop.ProgramError](err); !ok {
				t.Errorf("Run() = %+v, %v; want a ProgramError", res, err)
			}
		},
	},
	{
		name: "cancel/before", why: "a context that has ended starts nothing", anywhere: true,
		do: func(t *testing.T, r fnloop.Runner) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if res, err := r.Run(ctx, fnloop.Program{Source: "print(1)"}); !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %+v, %v; want context.Canceled", res, err)
			}
		},
	},
	{
		name: "cancel/during", why: "a cancelled call ends at once with the context's error, and keeps what was printed",
		do: func(t *testing.T, r fnloop.Runner) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := new(recorder)
			call := start(ctx, r, fnloop.Program{Source: "import time\nprint('begun')\ntime.sleep(60)", Stdout: w})
			for deadline := time.Now().Add(15 * time.Second); !strings.Contains(strings.Join(w.all(), ""), "\n") && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
			begin := time.Now()
			a := <-call
			if took := time.Since(begin); took > slack {
				t.Errorf("Run() took %v to return after the cancel", took)
			}
			if !errors.Is(a.err, context.Canceled) {
				t.Errorf("Run() error = %v, want context.Canceled", a.err)
			}
			if a.res.End != fnloop.EndCancelled || a.res.ExitCode != nil || a.res.TimedOut || a.res.Stdout != "begun\n" {
				t.Errorf("Run() = %+v, want a cancelled Result with what was printed", a.res)
			}
		},
	},
	{
		name: "cancel/any-time", why: "whenever a call is cancelled, its error is the context's and its cause", lack: []string{"fast"},
		do: func(t *testing.T, r fnloop.Runner) {
			why := errors.New("the user left")
			for after := time.Duration(0); after <= 120*time.Millisecond; after += 5 * time.Millisecond {
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(after, func() { cancel(why) })
				res, err := r.Run(ctx, fnloop.Program{Source: "import time; time.sleep(60)"})
				timer.Stop()
				if !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled after %v: Run() = %+v, %v; want context.Canceled", after, res, err)
				}
				cancel(nil)
			}
		},
	},
	{
		name: "cancel/deadline", why: "the caller's deadline is the end of the call and not the program's time limit",
		do: func(t *testing.T, r fnloop.Runner) {
			// The first call may have to find out about the host.
			if _, err := r.Run(t.Context(), fnloop.Program{Source: "pass"}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			res, err := r.Run(ctx, fnloop.Program{Source: "import time; time.sleep(60)", Limits: fnloop.Limits{Time: time.Minute}})
			if !errors.Is(err, context.DeadlineExceeded) || res.TimedOut {
				t.Errorf("Run() = %+v, %v; want context.DeadlineExceeded and not timed out", res, err)
			}
		},
	},
	{
		name: "live/during", why: "output comes while the program runs", lack: []string{"live"},
		do: func(t *testing.T, r fnloop.Runner) {
			out, err := new(recorder), new(recorder)
			res, rerr := r.Run(t.Context(), fnloop.Program{
				Source: "import sys, time\nprint('now')\nprint('err', file=sys.stderr)\ntime.sleep(1.5)\nprint('later')",
				Stdout: out, Stderr: err,
			})
			end := time.Now()
			if rerr != nil || res.Stdout != "now\nlater\n" {
				t.Fatalf("Run() = %+v, %v", res, rerr)
			}
			if got := strings.Join(out.all(), ""); got != res.Stdout {
				t.Errorf("the live copy is %q, the result %q", got, res.Stdout)
			}
			if got := strings.Join(err.all(), ""); got != "err\n" {
				t.Errorf("the live copy of stderr is %q", got)
			}
			if early := end.Sub(out.first); early < time.Second {
				t.Errorf("the first output came only %v before the result", early)
			}
		},
	},
	{
		name: "live/runes", why: "no chunk of live output ends within a rune", lack: []string{"live"},
		do: func(t *testing.T, r fnloop.Runner) {
			out := new(recorder)
			const source = "import os, time\nfor b in '€😀'.encode() * 20: os.write(1, bytes([b])); time.sleep(.003)\n"
			if res, err := r.Run(t.Context(), fnloop.Program{Source: source, Stdout: out}); err != nil || res.End != fnloop.EndExit {
				t.Fatalf("Run() = %+v, %v", res, err)
			}
			for _, c := range out.all() {
				if !utf8.ValidString(c) {
					t.Errorf("a chunk is %q", c)
				}
			}
			if got, want := strings.Join(out.all(), ""), strings.Repeat("€😀", 20); got != want {
				t.Errorf("the live copy is %q, want %q", got, want)
			}
		},
	},
	{
		name: "live/stuck", why: "a writer that never returns delays nobody", lack: []string{"live"},
		do: func(t *testing.T, r fnloop.Runner) {
			w := make(stuck)
			defer close(w)
			begin := time.Now()
			res, err := r.Run(t.Context(), fnloop.Program{
				Source: "while True: print('x' * 100)", Stdout: w, Limits: fnloop.Limits{Time: time.Second},
			})
			if err != nil || res.End != fnloop.EndTimeout && res.End != fnloop.EndOutput {
				t.Errorf("Run() = %+v, %v", res, err)
			}
			if took := time.Since(begin) - res.Startup; took > time.Second+slack {
				t.Errorf("Run() took %v", took)
			}
		},
	},
	{
		name: "live/behind", why: "a writer that fell behind misses what is in the middle and gets the end", lack: []string{"live"},
		do: func(t *testing.T, r fnloop.Runner) {
			w := &late{wait: 500 * time.Millisecond}
			res, err := r.Run(t.Context(), fnloop.Program{
				Source: "import time\nprint('first')\nprint('x' * 3_000_000)\nprint('answer: 42')\ntime.sleep(1.5)", Stdout: w,
			})
			if err != nil || res.End != fnloop.EndExit {
				t.Fatalf("Run() = %+v, %v", res, err)
			}
			got := strings.Join(w.all(), "")
			if !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "x\nanswer: 42\n") {
				t.Errorf("the live copy is %q", abridge(got))
			}
		},
	},
}

// A late is a recorder that takes its time for the first chunk.
type late struct {
	recorder
	wait time.Duration
}

func (w *late) Write(p []byte) (int, error) {
	time.Sleep(w.wait)
	w.wait = 0
	return w.recorder.Write(p)
}
