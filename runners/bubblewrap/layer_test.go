//go:build linux

package bubblewrap_test

import (
	"testing"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// layered makes the runners of the tests of Packages and Preload.
func layered(t *testing.T, c packagestest.Config) fnloop.Runner {
	return open(t, &bubblewrap.Runner{Packages: c.Packages, Installing: c.Installing, Preload: c.Preload, Warm: c.Warm})
}

func TestPackages(t *testing.T) { packagestest.Packages(t, layered) }

func TestPreload(t *testing.T) { packagestest.Preload(t, layered) }
