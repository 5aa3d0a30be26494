package docker_test

import (
	"context"
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runnertest"
)

// image is what the tests run in. The script .ci/image makes it.
func image() string {
	if name := os.Getenv("FNLOOP_TEST_IMAGE"); name != "" {
		return name
	}
	return "fnloop-test:latest"
}

// open gives r the test image and has the test close it. It skips the test
// where there is no engine or no image, and fails it on CI.
func open(t testing.TB, r *docker.Runner) *docker.Runner {
	t.Helper()
	if r.Image == "" {
		r.Image = image()
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	if err := r.Probe(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("Docker is needed on CI: %v", err)
		}
		t.Skipf("Docker is not here: %v", err)
	}
	return r
}

func TestMain(m *testing.M) {
	if help() {
		return
	}
	// Who waits for the engine needs no processor.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute})
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return r })
}

func TestConformanceWarm(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute, Warm: 4})
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return pythonAlone{r} })
}

// A pythonAlone is a runner that does not tell of its other languages: their
// programs are run in the same way, ready or not.
type pythonAlone struct{ *docker.Runner }

func (r pythonAlone) Unwrap() fnloop.Runner { return r.Runner }

func (r pythonAlone) Inspect(ctx context.Context) (fnloop.Environment, error) {
	env, err := r.Runner.Inspect(ctx)
	env.Languages = nil
	return env, err
}

// TestLanguages keeps the tests of other languages from being skipped on CI.
func TestLanguages(t *testing.T) {
	env, err := open(t, &docker.Runner{Startup: time.Minute}).Inspect(t.Context())
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
