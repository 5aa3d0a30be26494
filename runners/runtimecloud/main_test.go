package runtimecloud_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secretKey is the key of all tests. It must never be seen.
const secretKey = runtimetest.Key

// bench is what most tests work with: a stand-in, a Runner that talks to it and
// everything that it logs. At the end of the test nothing is left alive, and no
// log record holds the key.
type bench struct {
	*runtimetest.Server
	runner *runtimecloud.Runner
	log    *logBuffer
}

// newBench gives a Runner whose requests go to the stand-in without a
// connection, so that it may be used in a bubble of testing/synctest.
func newBench(t *testing.T) *bench {
	t.Helper()
	srv := runtimetest.New(t)
	log := new(logBuffer)
	b := &bench{srv, newRunner(srv, log), log}
	t.Cleanup(func() {
		if err := b.runner.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if strings.Contains(log.String(), secretKey) {
			t.Error("the log holds the key")
		}
	})
	return b
}

func newRunner(srv *runtimetest.Server, log *logBuffer) *runtimecloud.Runner {
	return &runtimecloud.Runner{
		Key: secretKey, Transport: srv,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// bubble runs a test whose time is not real, with a bench.
func bubble(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t)) })
}

func (b *bench) run(t *testing.T, p fnloop.Program) fnloop.Result {
	t.Helper()
	res, err := b.runner.Run(t.Context(), p)
	if err != nil {
		t.Fatalf("Run() = %+v, %v", res, err)
	}
	return res
}

// script gives do, and how often it was called, whatever the number of requests.
func script(do func(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit) (run func(context.Context, *runtimetest.Command) runtimetest.Exit, count func() int) {
	var mu sync.Mutex
	n := 0
	run = func(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit {
		mu.Lock()
		n++
		mu.Unlock()
		return do(ctx, cmd)
	}
	return run, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// hello prints on both streams and exits with 3.
func hello(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
	fmt.Fprintln(cmd.Stdout, "hello")
	fmt.Fprintln(cmd.Stderr, "warning")
	return runtimetest.Exit{Code: 3, Duration: 41 * time.Millisecond}
}

// hang prints a line and waits for its end.
func hang(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit {
	fmt.Fprintln(cmd.Stdout, "step 1")
	<-ctx.Done()
	return runtimetest.Exit{Signal: 9}
}

func isHello(res fnloop.Result) bool {
	return res.ExitCode != nil && *res.ExitCode == 3 && res.Stdout == "hello\n" && res.Stderr == "warning\n" &&
		res.End == fnloop.EndExit && !res.TimedOut
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
