package docker_test

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
	"github.com/fnloop/fnloop/runners/docker"
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
	return func() { output(b, python, file) }
}

// dockerRun gives a function that runs fib with the docker command.
func dockerRun(b *testing.B) func() {
	b.Helper()
	if _, err := exec.LookPath("docker"); err != nil {
		b.Skip(err)
	}
	return func() { output(b, "docker", "run", "--rm", "--network", "none", image(), "python3", "-c", fib) }
}

func output(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.Command(name, args...).Output(); err != nil || string(out) != "102334155\n" {
		b.Errorf("%s: %q, %v", name, out, err)
	}
}

func call(b *testing.B, r fnloop.Runner) {
	b.Helper()
	res, err := r.Run(context.Background(), fnloop.Program{Source: fib})
	if err != nil || res.Stdout != "102334155\n" {
		b.Errorf("Run() = %+v, %v", res, err)
	}
}

// compare runs two things in turn and reports the median of each and their
// ratio.
func compare(b *testing.B, ours func(), name string, theirs func(), pause time.Duration) {
	b.Helper()
	var us, them []time.Duration
	timed := func(f func()) time.Duration {
		time.Sleep(pause)
		begin := time.Now()
		f()
		return time.Since(begin)
	}
	ours()
	for b.Loop() {
		them = append(them, timed(theirs))
		us = append(us, timed(ours))
	}
	slices.Sort(us)
	slices.Sort(them)
	u, t := us[len(us)/2], them[len(them)/2]
	b.ReportMetric(float64(u.Microseconds())/1000, "ms/call")
	b.ReportMetric(float64(t.Microseconds())/1000, "ms/"+name)
	b.ReportMetric(float64(u)/float64(t), "ratio")
}

// BenchmarkCold compares a call that makes its container with docker run.
func BenchmarkCold(b *testing.B) {
	r := open(b, new(docker.Runner))
	compare(b, func() { call(b, r) }, "docker-run", dockerRun(b), 500*time.Millisecond)
}

// BenchmarkWarm compares a call that finds its container ready with python3
// main.py without one.
func BenchmarkWarm(b *testing.B) {
	r := open(b, &docker.Runner{Warm: 2})
	compare(b, func() { call(b, r) }, "python3", bare(b), time.Second)
}

// BenchmarkLoad has 200 calls, four at a time, with the containers made behind
// them, and the same of docker run, in turns of 40: what else the machine does
// changes by the minute.
func BenchmarkLoad(b *testing.B) {
	r := open(b, &docker.Runner{Warm: 4})
	run := dockerRun(b)
	call(b, r)
	load := func(f func()) float64 {
		const calls = 40
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
	var ours, theirs []float64
	for b.Loop() {
		for range 5 {
			theirs = append(theirs, load(run))
			ours = append(ours, load(func() { call(b, r) }))
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	u, t := ours[len(ours)/2], theirs[len(theirs)/2]
	b.ReportMetric(u, "calls/s")
	b.ReportMetric(t, "docker-run/s")
	b.ReportMetric(u/t, "ratio")
}
