package docker_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

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
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return r })
}
