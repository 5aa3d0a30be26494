//go:build linux

package bubblewrap_test

import (
	"testing"

	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func BenchmarkSessions(b *testing.B) {
	runnertest.BenchmarkSessions(b, open(b, &bubblewrap.Runner{Warm: 2}))
}
