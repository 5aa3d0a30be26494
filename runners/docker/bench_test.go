package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// dockerRun gives a function that runs fib with the docker command, in the same
// image, without a network, and under the same limits as a call: the memory
// without swap, the processes, the processors, the open files, and a /tmp and a
// /dev/shm of the same size.
func dockerRun(b *testing.B) func() {
	b.Helper()
	if _, err := exec.LookPath("docker"); err != nil {
		b.Skip(err)
	}
	args := []string{
		"run", "--rm", "--network", "none",
		fmt.Sprintf("--memory=%d", docker.DefaultMemory), fmt.Sprintf("--memory-swap=%d", docker.DefaultMemory),
		fmt.Sprintf("--pids-limit=%d", docker.DefaultPIDs), fmt.Sprintf("--cpus=%d", docker.DefaultCPUs),
		fmt.Sprintf("--ulimit=nofile=%d", docker.DefaultOpenFiles),
		fmt.Sprintf("--tmpfs=/tmp:size=%d", docker.DefaultTmp), fmt.Sprintf("--shm-size=%d", docker.DefaultTmp),
		image(), "python3", "-c", fib,
	}
	return func() { output(b, "docker", args...) }
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

// A side is what one of two things took.
type side struct {
	took []time.Duration
	cpu  time.Duration // of the whole machine, with what happens behind a call
	runs int
}

// median is that of what each run took.
func (s *side) median() time.Duration {
	slices.Sort(s.took)
	return s.took[len(s.took)/2]
}

func (s *side) cpuPerRun() float64 {
	return float64(s.cpu.Microseconds()) / 1000 / float64(max(1, s.runs))
}

// machine is how long the processors of this machine have been busy, with
// whatever. The work for a container is done by processes that are nobody's
// children. It is zero where that is not known.
func machine() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks time.Duration
	for i, field := range strings.Fields(line) {
		if n, err := strconv.Atoi(field); err == nil && i != 4 && i != 5 && i < 8 { // not idle, nor waiting for a disk
			ticks += time.Duration(n)
		}
	}
	return ticks * 10 * time.Millisecond
}

// compare runs two things in turn, with a pause behind each for what it leaves
// to be done, and reports the median of each, their ratio, and how long the
// machine was busy with one of them and the pause.
func compare(b *testing.B, ours func(), name string, theirs func(), pause time.Duration) {
	b.Helper()
	run := func(s *side, f func()) {
		busy, begin := machine(), time.Now()
		f()
		s.took = append(s.took, time.Since(begin))
		time.Sleep(pause)
		s.cpu += machine() - busy
		s.runs++
	}
	ours()
	time.Sleep(pause)
	var us, them side
	for b.Loop() {
		run(&them, theirs)
		run(&us, ours)
	}
	u, t := us.median(), them.median()
	b.ReportMetric(float64(u.Microseconds())/1000, "ms/call")
	b.ReportMetric(float64(t.Microseconds())/1000, "ms/"+name)
	b.ReportMetric(us.cpuPerRun(), "cpu-ms/call")
	b.ReportMetric(them.cpuPerRun(), "cpu-ms/"+name)
	b.ReportMetric(float64(u)/float64(t), "latency/"+name)
}

// BenchmarkCold compares a call that makes its container with docker run.
func BenchmarkCold(b *testing.B) {
	r := open(b, new(docker.Runner))
	compare(b, func() { call(b, r) }, "docker-run", dockerRun(b), 500*time.Millisecond)
}

// BenchmarkWarm compares a call that finds its container ready with python3
// main.py without one. The pause is for the container that is made behind it.
func BenchmarkWarm(b *testing.B) {
	r := open(b, &docker.Runner{Warm: 2})
	compare(b, func() { call(b, r) }, "bare", bare(b), time.Second)
}

// BenchmarkLoad has 200 calls, four at a time, with the containers made behind
// them, and the same of docker run, in turns of 40: what else the machine does
// changes by the minute. The clock of a turn begins when four runs have ended,
// which have used up the containers that were ready, and between turns there is
// time to make them anew. So neither the calls nor docker run do work in the
// other's time.
func BenchmarkLoad(b *testing.B) {
	const (
		atOnce = 4
		calls  = 40
		pause  = 2 * time.Second
	)
	turns := 5
	if testing.Short() {
		turns = 1
	}
	r := open(b, &docker.Runner{Warm: atOnce})
	run := dockerRun(b)
	load := func(s *side, f func()) {
		busy := machine()
		var left atomic.Int64
		left.Store(atOnce + calls)
		ends := make(chan time.Time, atOnce+calls)
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					f()
					ends <- time.Now()
				}
			})
		}
		wg.Wait()
		close(ends)
		var ended []time.Time
		for at := range ends {
			ended = append(ended, at)
		}
		slices.SortFunc(ended, time.Time.Compare)
		s.took = append(s.took, ended[len(ended)-1].Sub(ended[atOnce-1]))
		time.Sleep(pause)
		s.cpu += machine() - busy
		s.runs += atOnce + calls
	}
	call(b, r)
	time.Sleep(pause)
	var us, them side
	for b.Loop() {
		for range turns {
			load(&them, run)
			load(&us, func() { call(b, r) })
		}
	}
	u, t := calls/us.median().Seconds(), calls/them.median().Seconds()
	b.ReportMetric(u, "calls/s")
	b.ReportMetric(t, "docker-run/s")
	b.ReportMetric(us.cpuPerRun(), "cpu-ms/call")
	b.ReportMetric(them.cpuPerRun(), "cpu-ms/docker-run")
	b.ReportMetric(u/t, "throughput/docker-run")
}
