package docker_test

import (
	"testing"
	"time"

	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func BenchmarkSessions(b *testing.B) {
	runnertest.BenchmarkSessions(b, open(b, &docker.Runner{Startup: time.Minute, Warm: 2}))
}
