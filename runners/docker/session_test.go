package docker_test

import (
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func TestSessions(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

func TestSessionsWarm(t *testing.T) {
	r := open(t, &docker.Runner{Startup: time.Minute, Warm: 2})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}
