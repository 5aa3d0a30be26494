package mcptool_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

// openFiles counts those of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// Fifty servers that start others leave none of them, nor an open file.
func TestClose_leavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what leaves the group of its server is found on Linux alone")
	}
	s := one("arguments")
	s.Fork, s.Away = 2, 1
	s.Before = fmt.Sprintf("leaves nothing %d\n", os.Getpid()) // to be known by
	mark := strings.TrimSpace(s.Before)
	const cycles = 50
	before := openFiles(t)
	for i := range cycles {
		c, err := mcptool.Connect(t.Context(), s.server(t))
		require.NoError(t, err)
		if i == 0 {
			require.Len(t, processes(t, mark), 1)
			require.Len(t, marked(t, processes(t, mark)[0]), 4, "the server and what it has started")
		}
		server := processes(t, mark)[0]
		variable := markOf(t, server)
		require.NoError(t, c.Close())
		require.Empty(t, withMark(t, variable), "cycle %d", i)
	}
	assert.LessOrEqual(t, openFiles(t), before+2)
}

// markOf is the variable by which all that a server has started is known.
func markOf(t *testing.T, pid string) string {
	t.Helper()
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	require.NoError(t, err)
	for v := range strings.SplitSeq(string(env), "\x00") {
		if strings.HasPrefix(v, "FNLOOP_MCP_SERVER=") {
			return v
		}
	}
	t.Fatal("the process has no mark")
	return ""
}

func marked(t *testing.T, pid string) []string { return withMark(t, markOf(t, pid)) }

// withMark are the processes that have the variable and are not yet dead.
func withMark(t *testing.T, mark string) (found []string) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, d := range dirs {
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		if err == nil && strings.Contains(string(env), mark) {
			found = append(found, d.Name())
		}
	}
	return found
}

// A server that minds neither the end of its input nor SIGTERM is killed within a
// bound, and a start that is given up too.
func TestClose_bounded(t *testing.T) {
	s := one("silent")
	s.IgnoreEnd, s.Fork = true, 1
	t.Run("close", func(t *testing.T) {
		t.Parallel()
		server := s.server(t)
		c, err := mcptool.Connect(t.Context(), server)
		require.NoError(t, err)
		act := tool(t, c, "act")
		called := make(chan error, 1)
		go func() {
			_, err := act.Handle(context.Background(), fnloop.Call{})
			called <- err
		}()
		start := time.Now()
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.Error(t, <-called)
		assert.Less(t, time.Since(start), 2*server.StopTimeout+3*time.Second)
	})
	t.Run("connect", func(t *testing.T) {
		t.Parallel()
		s := s
		s.Delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := mcptool.Connect(ctx, s.server(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(start), 4*time.Second)
	})
}

// The end of what a server says of its trouble is in the error, and all of it goes
// where the host wants it.
func TestServer_Stderr(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	s := mcptool.Server{
		Name: "a", Command: "sh", Stderr: &all, StartTimeout: 5 * time.Second,
		Args: []string{"-c", `i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done >&2; printf 'last \377' >&2; exit 1`},
	}
	_, err := mcptool.Connect(t.Context(), s)
	var failed *mcptool.ServerError
	require.ErrorAs(t, err, &failed)
	assert.True(t, strings.HasSuffix(failed.Stderr, "line 1999\nlast \uFFFD"), "%q", failed.Stderr)
	assert.True(t, strings.HasPrefix(failed.Stderr, "line "), "%.20q", failed.Stderr)
	assert.Less(t, len(failed.Stderr), 5000)
	assert.Contains(t, all.String(), "line 0\n")
}

// Writing does not wait for a server that reads nothing for longer than its caller.
func TestCall_deaf(t *testing.T) {
	t.Parallel()
	s := one("sleep 1s").server(t)
	conn := connect(t, s)
	act := tool(t, conn, "act")
	ended := make(chan error, 8)
	for range cap(ended) { // the server reads the first, and the others fill the pipe
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := act.Handle(ctx, fnloop.Call{Arguments: []byte(`{"a":"` + strings.Repeat("x", 60_000) + `"}`)})
			ended <- err
		}()
	}
	start := time.Now()
	for range cap(ended) {
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	}
	assert.Less(t, time.Since(start), 900*time.Millisecond)
}
