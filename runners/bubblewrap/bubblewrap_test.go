//go:build linux

package bubblewrap_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
)

// need skips a test where there is no bubblewrap, and fails it on CI.
func need(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("bwrap")
	if err == nil && runtime.GOOS == "linux" {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("bubblewrap is needed on CI: %v", err)
	}
	t.Skipf("bubblewrap is not here: %v", err)
}

// open makes a Runner that the test closes.
func open(t testing.TB, r *bubblewrap.Runner) *bubblewrap.Runner {
	t.Helper()
	need(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	return r
}

func TestConformance(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return r })
}

func TestConformanceWarm(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Warm: 4})
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return pythonAlone{r} })
}

// A pythonAlone is a runner that does not tell of its other languages: their
// programs are run in the same way, ready or not.
type pythonAlone struct{ *bubblewrap.Runner }

func (r pythonAlone) Unwrap() fnloop.Runner { return r.Runner }

func (r pythonAlone) Inspect(ctx context.Context) (fnloop.Environment, error) {
	env, err := r.Runner.Inspect(ctx)
	env.Languages = nil
	return env, err
}

// TestLanguages keeps the tests of other languages from being skipped on CI.
func TestLanguages(t *testing.T) {
	env, err := open(t, new(bubblewrap.Runner)).Inspect(t.Context())
	require.NoError(t, err)
	var names []string
	for _, l := range env.Languages {
		names = append(names, l.Name)
		assert.Regexp(t, `[0-9]+\.[0-9]+`, l.Version, l.Name)
	}
	if os.Getenv("CI") == "" {
		t.Logf("languages that are here: %v", env.Languages)
		return
	}
	assert.Subset(t, names, []string{"python", "bash", "javascript", "typescript", "r", "java", "go"})
}

// TestPreloadAndLanguages has a process that waits with modules of Python, which
// a program of another language neither becomes nor pays for.
func TestPreloadAndLanguages(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Warm: 1, Preload: []string{"json"}})
	for range 3 {
		res, err := r.Run(t.Context(), fnloop.Program{Language: fnloop.LanguageBash, Source: "cd /proc; for p in [2-9]*; do read -r name < $p/comm && echo $name; done; exit 3"})
		require.NoError(t, err)
		assert.Equal(t, 3, *res.ExitCode)
		assert.NotContains(t, res.Stdout, "python", "what waited is still there")
	}
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import sys\nprint('json' in sys.modules)"})
	require.NoError(t, err)
	assert.Equal(t, "True\n", res.Stdout)
}
