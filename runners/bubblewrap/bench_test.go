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
	b.ReportMetric(float64(t.Microseconds())/1000, "ms/bare")
	b.ReportMetric(float64(u)/float64(t), "ratio")
}

// BenchmarkCold compares a call that makes its sandbox with python3 main.py
// without one.
func BenchmarkCold(b *testing.B) {
	r := open(b, new(bubblewrap.Runner))
	compare(b, func() { call(b, r) }, bare(b), 0)
}

// BenchmarkWarm compares a call that finds its sandbox ready with python3
// main.py without one.
func BenchmarkWarm(b *testing.B) {
	r := open(b, &bubblewrap.Runner{Warm: 2})
	compare(b, func() { call(b, r) }, bare(b), 60*time.Millisecond)
}

// BenchmarkLoad has 200 calls, four at a time, with the sandboxes made behind
// them, and the same of python3 main.py.
func BenchmarkLoad(b *testing.B) {
	r := open(b, &bubblewrap.Runner{Warm: 4})
	call(b, r)
	load := func(f func()) float64 {
		const calls = 200
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
		return calls / time.Since(begin).Seconds()
	}
	python := bare(b)
	var ours, theirs []float64
	for b.Loop() {
		theirs = append(theirs, load(python))
		ours = append(ours, load(func() { call(b, r) }))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	u, t := ours[len(ours)/2], theirs[len(theirs)/2]
	b.ReportMetric(u, "calls/s")
	b.ReportMetric(t, "python3/s")
	b.ReportMetric(u/t, "ratio")
}
