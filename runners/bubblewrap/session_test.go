//go:build linux

package bubblewrap_test

import (
	"testing"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func TestSessions(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

func TestSessionsWarm(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Warm: 2})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}
