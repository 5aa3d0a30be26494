//go:build linux

package bubblewrap_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

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
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return r })
}
