package runnertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// BenchmarkSessions measures what users of a session wait for: an open, a cell,
// the bytes that it prints, an interrupt, and a cell after the copy that was made
// behind another, by how much memory there was to copy.
func BenchmarkSessions(b *testing.B, r fnloop.Runner) {
	open := func(b *testing.B, c interpreter.Config) *interpreter.Session {
		b.Helper()
		s, err := interpreter.Open(b.Context(), r, c)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	run := func(b *testing.B, s *interpreter.Session, source string) interpreter.Execution {
		b.Helper()
		e, err := s.Run(b.Context(), interpreter.Cell{Source: source})
		if err != nil || e.Status != interpreter.StatusOK {
			b.Fatalf("Run() = %s, %v", e.Text(), err)
		}
		return e
	}
	// cells runs a cell b.N times and reports the quantiles.
	cells := func(b *testing.B, s *interpreter.Session, source string, pause time.Duration) {
		b.Helper()
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			begin := time.Now()
			run(b, s, source)
			took = append(took, time.Since(begin))
			if pause > 0 {
				b.StopTimer()
				time.Sleep(pause)
				b.StartTimer()
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	b.Run("open+cell", func(b *testing.B) {
		for b.Loop() {
			s := open(b, interpreter.Config{})
			run(b, s, "1")
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // for the one that is made behind it
			b.StartTimer()
		}
	})
	b.Run("cell", func(b *testing.B) {
		s := open(b, interpreter.Config{})
		defer s.Close()
		run(b, s, "x = 0")
		cells(b, s, "x += 1", 0)
	})
	b.Run("cell-after-a-pause", func(b *testing.B) {
		s := open(b, interpreter.Config{})
		defer s.Close()
		run(b, s, "x = 0")
		cells(b, s, "x += 1", 5*time.Millisecond)
	})
	b.Run("cell-without-copy", func(b *testing.B) {
		s := open(b, interpreter.Config{NoCopy: true})
		defer s.Close()
		run(b, s, "x = 0")
		cells(b, s, "x += 1", 0)
	})
	b.Run("print-1MB", func(b *testing.B) {
		s := open(b, interpreter.Config{})
		defer s.Close()
		b.SetBytes(1_000_000)
		cells(b, s, "print('x' * 999_999)", 0)
	})
	b.Run("interrupt", func(b *testing.B) {
		s := open(b, interpreter.Config{Limits: fnloop.Limits{Time: time.Minute}})
		defer s.Close()
		run(b, s, "import time")
		var total time.Duration
		n := 0
		for b.Loop() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = s.Run(context.WithoutCancel(b.Context()), interpreter.Cell{Source: "time.sleep(60)"})
			}()
			time.Sleep(20 * time.Millisecond)
			begin := time.Now()
			if ran, err := s.Interrupt(b.Context()); !ran || err != nil {
				b.Fatalf("Interrupt() = %v, %v", ran, err)
			}
			<-done
			total += time.Since(begin)
			n++
		}
		b.ReportMetric(float64(total.Microseconds())/float64(n), "µs/interrupt")
	})
	for _, mib := range []int{20, 200, 1024} {
		b.Run(fmt.Sprintf("copy-%dMiB", mib), func(b *testing.B) {
			s := open(b, interpreter.Config{Limits: fnloop.Limits{Time: time.Minute, Memory: 3 << 30}})
			defer s.Close()
			run(b, s, fmt.Sprintf("b = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nx = 0", mib))
			// Two cells in a row: the second waits for the copy behind the first.
			cells(b, s, "x += 1", 0)
			before := copyTime(b, s)
			b.ReportMetric(before, "copy-ms")
		})
	}
	b.Run("memory-of-25", func(b *testing.B) {
		for b.Loop() {
			var all []*interpreter.Session
			var total int64
			for range 25 {
				s := open(b, interpreter.Config{})
				all = append(all, s)
				run(b, s, "x = 1")
			}
			for _, s := range all {
				e := run(b, s, pss)
				var n int64
				if _, err := fmt.Sscan(strings.TrimSpace(e.Stdout), &n); err != nil {
					b.Fatal(err)
				}
				total += n
			}
			for _, s := range all {
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(total)/25/1024, "MiB/session")
		}
	})
}

// copyTime is how long the worker is away after a cell, in milliseconds.
func copyTime(b *testing.B, s *interpreter.Session) float64 {
	b.Helper()
	e, err := s.Run(b.Context(), interpreter.Cell{Source: "import time; t = time.monotonic()"})
	if err == nil {
		e, err = s.Run(b.Context(), interpreter.Cell{Source: "print((time.monotonic() - t) * 1000)"})
	}
	var ms float64
	if err == nil {
		_, err = fmt.Sscan(e.Stdout, &ms)
	}
	if err != nil {
		b.Fatal(err)
	}
	return ms
}

// pss prints what the interpreter and its copy hold in memory, in KiB, each page
// once. The first process does not let anybody look; it is as large as the
// worker is at first, and shares most of it.
const pss = `import os
n = 0
for p in os.listdir('/proc'):
    if p.isdigit():
        try: n += sum(int(l.split()[1]) for l in open(f'/proc/{p}/smaps_rollup') if l.startswith('Pss:'))
        except OSError: pass
print(n)`
