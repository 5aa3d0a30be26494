package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func TestSessions(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

func TestSessionsWarm(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute, Warm: 2})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

func TestSessionWhoseContainerIsKilled(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute})
	cli := engine(t)
	before := containers(t, cli)
	s, err := interpreter.Open(t.Context(), r, interpreter.Config{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	kill := func() {
		for id := range containers(t, cli) {
			if before[id] == "" {
				_, _ = cli.ContainerKill(context.Background(), id, client.ContainerKillOptions{Signal: "KILL"})
			}
		}
	}
	e, err := s.Run(t.Context(), interpreter.Cell{Source: "x = 1"})
	require.NoError(t, err)
	require.Equal(t, interpreter.StatusOK, e.Status)
	go func() { time.Sleep(300 * time.Millisecond); kill() }()
	e, err = s.Run(t.Context(), interpreter.Cell{Source: "print('begun', flush=True); import time; time.sleep(60)"})
	require.NoError(t, err)
	assert.Equal(t, interpreter.StatusLost, e.Status)
	assert.Equal(t, "begun\n", e.Stdout)
	require.NotNil(t, e.Loss)
	assert.Equal(t, interpreter.Loss{Cause: interpreter.CauseSandbox, Names: []string{"x"}}, *e.Loss)
	e, err = s.Run(t.Context(), interpreter.Cell{Source: "'x' in globals()"})
	require.NoError(t, err)
	d, _ := e.Main()
	assert.Equal(t, "False", string(d.Data["text/plain"]))
	assert.Nil(t, e.Loss)
}

// The same cells have the same outcome, to the byte, whatever made the sandbox.
func TestSessionsAreTheSame(t *testing.T) {
	d := open(t, &docker.Runner{Startup: time.Minute})
	b := new(bubblewrap.Runner)
	defer b.Close()
	if err := b.Probe(t.Context()); err != nil {
		t.Skipf("bubblewrap is not here: %v", err)
	}
	if x, y := d.Environment(), b.Environment(); x.Python != y.Python {
		t.Skipf("the image has Python %s, the host %s", x.Python, y.Python)
	}
	config := interpreter.Config{Limits: fnloop.Limits{Time: 20 * time.Second, Memory: 256 << 20}, Grace: time.Second}
	one, err := interpreter.Open(t.Context(), d, config)
	require.NoError(t, err)
	defer one.Close()
	two, err := interpreter.Open(t.Context(), b, config)
	require.NoError(t, err)
	defer two.Close()
	for _, source := range []string{
		"1 + 1", "x = [1]\nprint('é')", "1/0", "def f():\n    return g()\nf()", "x = (", "x", "import os; os._exit(3)",
		"x", "os.kill(os.getpid(), 11)", "a = []\nwhile True: a.append(bytearray(10**7))", "!echo hi; echo err >&2",
		"input('?')", "exit(2)", "open('a/b', 'w')", "os.mkdir('a'); open('a/b', 'w').write('x' * 1000)", "print('x' * 200_000)",
		"import warnings; warnings.warn('w')", "await f()", "os.listdir('/tmp'), os.getcwd(), os.environ['HOME']", "x.append(2); x",
		"import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.show(); plt.title('t')",
		"sorted(k for k in os.environ)", "import sys; sys.argv, sys.path[0], __name__", "display(*range(100))",
	} {
		first, err := one.Run(t.Context(), interpreter.Cell{Source: source})
		require.NoError(t, err)
		second, err := two.Run(t.Context(), interpreter.Cell{Source: source})
		require.NoError(t, err)
		first.Duration, first.Startup, second.Duration, second.Startup = 0, 0, 0, 0
		assert.Equal(t, second, first, source)
	}
}
