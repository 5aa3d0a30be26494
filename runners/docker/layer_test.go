package docker_test

import (
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/runners/docker"
)

// layered makes the runners of the tests of Packages and Preload.
func layered(t *testing.T, c packagestest.Config) fnloop.Runner {
	open(t, new(docker.Runner)) // where there is no engine the test is skipped
	r := &docker.Runner{Image: image(), Startup: time.Minute, Preload: c.Preload, Warm: c.Warm}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	return r
}

func TestPreload(t *testing.T) { packagestest.Preload(t, layered) }
