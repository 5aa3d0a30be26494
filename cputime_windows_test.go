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
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		b.Fatal(err)
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		b.Fatal(err)
	}
	const tick = 100 * time.Nanosecond
	ticks := func(t syscall.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32 + int64(t.LowDateTime))
	}
	return (ticks(kernel) + ticks(user)) * tick
}
