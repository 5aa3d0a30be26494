package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/runners/docker"
)

// layered makes the runners of the tests of Packages and Preload.
func layered(t *testing.T, c packagestest.Config) fnloop.Runner {
	open(t, new(docker.Runner)) // where there is no engine the test is skipped
	r := &docker.Runner{
		Image: image(), Startup: time.Minute, Warm: c.Warm,
		Packages: c.Packages, InstallNetwork: "host", Installing: c.Installing, Preload: c.Preload,
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
		if len(c.Packages) > 0 {
			removeLayers(t)
		}
	})
	return r
}

// removeLayers removes the images that the test made: it has notes of them in a
// folder of its own.
func removeLayers(t *testing.T) {
	cli, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	notes, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fnloop", "images", "*"))
	for _, note := range notes {
		_, _ = cli.ImageRemove(context.Background(), "fnloop-packages:"+filepath.Base(note), client.ImageRemoveOptions{}) // another runner may use it
	}
}

func TestPackages(t *testing.T) { packagestest.Packages(t, layered) }

func TestPreload(t *testing.T) { packagestest.Preload(t, layered) }
