//go:build unix

package fnloop_test

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is the CPU time that this process has used, that of its garbage
// collector too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
