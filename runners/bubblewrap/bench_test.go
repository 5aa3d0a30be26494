//go:build linux

package bubblewrap_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

const fib = "def fib(n):\n a, b = 0, 1\n for _ in range(n): a, b = b, a + b\n return a\nprint(fib(40))\n"

// bare gives a function that runs fib without any sandbox.
func bare(b *testing.B) func() {
	b.Helper()
	file := filepath.Join(b.TempDir(), "main.py")
	if err := os.WriteFile(file, []byte(fib), 0o644); err != nil {
		b.Fatal(err)
	}
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	return func() {
		if out, err := exec.Command(python, file).Output(); err != nil || string(out) != "102334155\n" {
			b.Fatalf("%q, %v", out, err)
		}
	}
}

func call(b *testing.B, r fnloop.Runner) {
	b.Helper()
	res, err := r.Run(context.Background(), fnloop.Program{Source: fib})
	if err != nil || res.Stdout != "102334155\n" {
		b.Fatalf("Run() = %+v, %v", res, err)
	}
}

// compare runs two things in turn and reports the median of each and their
// ratio.
func compare(b *testing.B, ours, theirs func(), pause time.Duration) {
	b.Helper()
	var us, them []time.Duration
	timed := func(f func()) time.Duration {
		begin := time.Now()
		f()
		return time.Since(begin)
	}
	ours()
	for b.Loop() {
		time.Sleep(pause)
		them = append(them, timed(theirs))
		time.Sleep(pause)
		us = append(us, timed(ours))
	}
	slices.Sort(us)
	slices.Sort(them)
	u, t := us[len(us)/2], them[len(them)/2]
	b.ReportMetric(float64(u.Microseconds())/1000, "ms/call")
	b.ReportMetric(float64(t.Microseconds())/1000, "ms/other")
	b.ReportMetric(float64(u)/float64(t), "ratio")
}

// BenchmarkCold compares a call that makes its sandbox with bwrap itself, which
// makes one as plain as can be for python3 main.py.
func BenchmarkCold(b *testing.B) {
	file := filepath.Join(b.TempDir(), "main.py")
	if err := os.WriteFile(file, []byte(fib), 0o644); err != nil {
		b.Fatal(err)
	}
	args := []string{"--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", file, "/tmp/main.py"}
	for _, dir := range []string{"/bin", "/lib", "/lib64"} {
		args = append(args, "--symlink", "usr"+dir, dir)
	}
	args = append(args, "/usr/bin/python3", "/tmp/main.py")
	r := open(b, new(bubblewrap.Runner))
	compare(b, func() { call(b, r) }, func() {
		if out, err := exec.Command("bwrap", args...).Output(); err != nil || string(out) != "102334155\n" {
			b.Skipf("bwrap runs no Python here: %q, %v", out, err)
		}
	}, 0)
}

// BenchmarkWarm compares a call that finds its sandbox ready with python3
// main.py without one.
func BenchmarkWarm(b *testing.B) {
	r := open(b, &bubblewrap.Runner{Warm: 2})
	compare(b, func() { call(b, r) }, bare(b), 60*time.Millisecond)
}

// manyCalls is how many calls are a load: so many that what is done in the time of
// each counts, or some where only whether they work is asked.
func manyCalls() int {
	if testing.Short() {
		return 20
	}
	return 200
}

// BenchmarkLoad has 200 calls, four at a time, with the sandboxes made behind
// them, and the same of python3 main.py.
func BenchmarkLoad(b *testing.B) {
	r := open(b, &bubblewrap.Runner{Warm: 4})
	call(b, r)
	compareLoad(b, func() { call(b, r) }, manyCalls(), bare(b), manyCalls())
}

// compareLoad runs two things so often, each four at a time, in turn, and reports how
// many of each there are in a second and their ratio.
func compareLoad(b *testing.B, ours func(), ourCalls int, theirs func(), theirCalls int) {
	b.Helper()
	load := func(f func(), calls int) float64 {
		work := make(chan struct{}, calls)
		for range calls {
			work <- struct{}{}
		}
		close(work)
		begin := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range work {
					f()
				}
			})
		}
		wg.Wait()
		return float64(calls) / time.Since(begin).Seconds()
	}
	var us, them []float64
	for b.Loop() {
		them = append(them, load(theirs, theirCalls))
		us = append(us, load(ours, ourCalls))
	}
	slices.Sort(us)
	slices.Sort(them)
	u, t := us[len(us)/2], them[len(them)/2]
	b.ReportMetric(u, "calls/s")
	b.ReportMetric(t, "python3/s")
	b.ReportMetric(u/t, "throughput/bare")
}

// BenchmarkPreload compares programs that import what is imported ahead with the same
// by python3 main.py: one at a time, with a sandbox that is ready, and four at a time.
func BenchmarkPreload(b *testing.B) {
	modules := []string{"numpy", "pandas", "matplotlib.pyplot"}
	const source = "import numpy, pandas, matplotlib.pyplot\n" + fib
	file := filepath.Join(b.TempDir(), "main.py")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		b.Fatal(err)
	}
	python := func() {
		cmd := exec.Command("/usr/bin/python3", file)
		cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1")
		if out, err := cmd.Output(); err != nil || string(out) != "102334155\n" {
			b.Skipf("the modules are not there: %q, %v", out, err)
		}
	}
	python()
	r := open(b, &bubblewrap.Runner{Warm: 4, Preload: modules})
	ours := func() {
		res, err := r.Run(context.Background(), fnloop.Program{Source: source})
		if err != nil || res.Stdout != "102334155\n" {
			b.Fatalf("Run() = %+v, %v", res, err)
		}
	}
	b.Run("latency", func(b *testing.B) { compare(b, ours, python, 200*time.Millisecond) })
	b.Run("throughput", func(b *testing.B) { compareLoad(b, ours, manyCalls(), python, 12) })
}
