package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		list, err := cli.ImageList(context.Background(), client.ImageListOptions{
			Filters: make(client.Filters).Add("label", "io.github.fnloop.key="+filepath.Base(note)),
		})
		if err != nil {
			t.Error(err)
			continue
		}
		for _, i := range list.Items {
			_, _ = cli.ImageRemove(context.Background(), i.ID, client.ImageRemoveOptions{}) // another runner may use it
		}
	}
}

func TestPackages(t *testing.T) { packagestest.Packages(t, layered) }

func TestPreload(t *testing.T) { packagestest.Preload(t, layered) }

// An image that only has the name of the one with the packages is not taken.
func TestPackages_retagged(t *testing.T) {
	packagestest.Need(t, layered(t, packagestest.Config{}))
	x := packagestest.NewIndex(t)
	wheel := x.AddWheel(t, packagestest.Numpy)
	var told []string
	for n := 1; n <= 2; n++ {
		r := layered(t, packagestest.Config{Packages: []string{"numpy"}, Installing: func(line string) { told = append(told, line) }})
		res, err := r.Run(t.Context(), fnloop.Program{Source: "import numpy; print(numpy.arange(4).sum())"})
		require.NoError(t, err)
		assert.Equal(t, "6\n", res.Stdout)
		assert.Equal(t, n, x.Fetched(wheel))
		if n == 1 {
			cli, err := client.New(client.FromEnv)
			require.NoError(t, err)
			defer cli.Close()
			notes, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fnloop", "images", "*"))
			require.Len(t, notes, 1)
			_, err = cli.ImageTag(t.Context(), client.ImageTagOptions{Source: image(), Target: "fnloop-packages:" + filepath.Base(notes[0])})
			require.NoError(t, err)
		}
	}
	assert.Contains(t, strings.Join(told, "\n"), "made again")
}
