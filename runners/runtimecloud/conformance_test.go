package runtimecloud_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// judged is the runner as the suite sees it. It says what cannot be asked of it.
type judged struct {
	*runtimecloud.Runner
	local *timed
	lacks map[string]string
}

func (j judged) Lacks() map[string]string { return j.lacks }

// Environment has the languages whose commands this machine has. The programs of
// r, java and go are cells, which have no status of their own.
func (j judged) Environment() fnloop.Environment {
	env := j.Runner.Environment()
	here, err := j.local.Runner.(fnloop.Inspector).Inspect(context.Background())
	env.Languages = slices.DeleteFunc(env.Languages, func(l fnloop.Language) bool {
		return err != nil || l.Name == fnloop.LanguageR || l.Name == fnloop.LanguageJava || l.Name == fnloop.LanguageGo ||
			!slices.ContainsFunc(here.Languages, func(h fnloop.Language) bool { return h.Name == l.Name })
	})
	return env
}

// Run counts the start of the local sandbox as startup. A microVM that has
// started runs a command at once, but here each command has to wait for a
// sandbox of its own, for as long as a busy machine takes for one. A sandbox
// does not live for more than a day, so that a limit of weeks is refused.
func (j judged) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	p.Limits.Time = min(p.Limits.Time, 23*time.Hour)
	res, err := j.Runner.Run(ctx, p)
	res.Startup += time.Duration(j.local.slowest.Load())
	return res, err
}

// Unwrap gives the runner that it wraps.
func (r *timed) Unwrap() fnloop.Runner { return r.Runner }

// timed knows the longest startup of the runner that it wraps.
type timed struct {
	fnloop.Runner
	slowest atomic.Int64
}

func (r *timed) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	res, err := r.Runner.Run(ctx, p)
	for {
		slowest := r.slowest.Load()
		if int64(res.Startup) <= slowest || r.slowest.CompareAndSwap(slowest, int64(res.Startup)) {
			return res, err
		}
	}
}

// lacksHere gives what the sandboxes of this machine lack.
func lacksHere(local fnloop.Runner) map[string]string {
	lacks := make(map[string]string)
	if l, ok := local.(interface{ Lacks() map[string]string }); ok {
		maps.Copy(lacks, l.Lacks())
	}
	return lacks
}

// TestConformance asks the runner what every runner is asked, through the
// stand-in, whose sandboxes are those of package bubblewrap: what is said about
// isolation in them is said of that package.
func TestConformance(t *testing.T) {
	local := openLocal(t)
	srv := runtimetest.New(t)
	slow := &timed{Runner: local}
	srv.Python = slow
	srv.Rate = -1
	srv.MaxRunning = 1000
	srv.SignalStatus = true
	srv.Bandwidth = 8 << 20 // as over a network, and not what this process's memory can carry
	runner := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(t), Rate: 1000}
	t.Cleanup(func() {
		if err := runner.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	lacks := lacksHere(local)
	lacks["oom"] = "what the kernel killed beside a program that exits is not asked for: it would be one more round trip for each"
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return judged{runner, slow, lacks} })
}

// sessionLacks are the cases of the suite that the service's contract does not
// allow, with what it says. The parts of it are those of the page from which the
// stand-in was written.
var sessionLacks = map[string]string{
	"print/each":                "part 10: a key has 50 requests a second, and a cell takes three; this is a thousand cells",
	"print/nothing":             "part 10: a key has 50 requests a second, and a cell takes three; this is two hundred cells",
	"attack/tiny":               "part 10: a key has 50 requests a second, and a cell takes three; this is 1,500 cells",
	"print/background":          "part 8: nothing says what becomes of what is printed between two cells; here it is counted as lost",
	"process/left":              "part 8: the answer to a cell does not count what it left running",
	"process/asyncio":           "part 8: the answer to a cell does not count what it left running",
	"death/memory-of-a-child":   "part 5: what the kernel killed is known to the microVM alone, and is asked for only when the interpreter died",
	"attack/displays":           "part 8: the answer does not count the values that the interpreter left out",
	"figure/many":               "part 8: the answer does not count the values that the interpreter left out",
	"attack/claims-without-end": "part 8: how the interpreter is heard by the service is the service's own",
	"table/wide":                "part 8: a data frame comes as application/vnd.runtime.table+json",
	"copy":                      "part 8: an interpreter that ended has the status lost. A copy of it before each cell would be a fork of the machine, of 4.6 s",
}

// TestSessionConformance asks the sessions what all sessions are asked. Their cells
// run in local sandboxes, so that what is said of Python is said of them.
func TestSessionConformance(t *testing.T) {
	local := openLocal(t)
	srv := runtimetest.New(t)
	srv.Python = local
	srv.Rate = -1
	srv.MaxRunning = 1000
	runner := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(t), Rate: 100_000}
	t.Cleanup(func() {
		if err := runner.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	lacks := lacksHere(local)
	maps.Copy(lacks, sessionLacks)
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return lacking{runner, lacks} })
}

// lacking is the runner as the suite of sessions sees it.
type lacking struct {
	*runtimecloud.Runner
	lacks map[string]string
}

func (l lacking) Lacks() map[string]string { return l.lacks }

// openLocal gives the runner of the local sandboxes.
func openLocal(t *testing.T) *bubblewrap.Runner {
	t.Helper()
	local := new(bubblewrap.Runner)
	t.Cleanup(func() { local.Close() })
	if err := local.Probe(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no sandbox to run programs in: %v", err)
		}
		t.Skipf("no sandbox to run programs in: %v", err)
	}
	return local
}

// TestPythonSurvives has real Python go through what a conversation can meet: a
// pause, another process of the host, copies whose random numbers differ.
func TestPythonSurvives(t *testing.T) {
	srv := runtimetest.New(t)
	srv.Python = openLocal(t)
	url := srv.Start(t)
	process := func() *runtimecloud.Runner {
		r := &runtimecloud.Runner{Key: secretKey, URL: url, Keep: 24 * time.Hour}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		})
		return r
	}
	c := interpreter.Config{Limits: fnloop.Limits{Memory: 256 << 20}}
	s, err := interpreter.Open(t.Context(), process(), c)
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, s, "import random; random.seed(7); x = [random.random() for i in range(3)]; open('f.csv', 'w').write('1,2')")
	if want := []string{"x"}; !slices.Equal(s.Names(), want) {
		t.Errorf("names = %q, want %q", s.Names(), want)
	}
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref := s.Ref()
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	r := process()
	if s, err = interpreter.Resume(t.Context(), r, c, ref); err != nil {
		t.Fatal(err)
	}
	gives(t, s, "len(x), open('f.csv').read()", "(3, '1,2')")
	copies, err := s.Fork(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	numbers := make(map[string]bool)
	for _, each := range append(copies, s) {
		gives(t, each, "len(x), open('f.csv').read()", "(3, '1,2')")
		e := runCell(t, each, "random.random()")
		numbers[value(e)] = true
		if err := each.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(numbers) != 3 {
		t.Errorf("the copies have the random numbers %v", numbers)
	}
}
