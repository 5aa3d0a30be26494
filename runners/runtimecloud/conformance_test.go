package runtimecloud_test

import (
	"maps"
	"os"
	"testing"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// lacking says what cannot be asked of a runner.
type lacking struct {
	*runtimecloud.Runner
	lacks map[string]string
}

func (l lacking) Lacks() map[string]string { return l.lacks }

// lacksHere gives what the sandboxes of this machine lack.
func lacksHere(local fnloop.Runner) map[string]string {
	lacks := make(map[string]string)
	if l, ok := local.(interface{ Lacks() map[string]string }); ok {
		maps.Copy(lacks, l.Lacks())
	}
	return lacks
}

// TestConformance asks the runner what every runner is asked, through the
// stand-in, whose sandboxes are those of package bubblewrap: what is said about
// isolation in them is said of that package.
func TestConformance(t *testing.T) {
	local := new(bubblewrap.Runner)
	t.Cleanup(func() { local.Close() })
	if err := local.Probe(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no sandbox to run programs in: %v", err)
		}
		t.Skipf("no sandbox to run programs in: %v", err)
	}
	srv := runtimetest.New(t)
	srv.Python = local
	srv.Rate = -1
	srv.MaxRunning = 1000
	srv.SignalStatus = true
	srv.Bandwidth = 8 << 20 // as over a network, and not what this process's memory can carry
	runner := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(t), Rate: 1000}
	t.Cleanup(func() {
		if err := runner.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	lacks := lacksHere(local)
	lacks["oom"] = "what the kernel killed beside a program that exits is not asked for: it would be one more round trip for each"
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return lacking{runner, lacks} })
}
