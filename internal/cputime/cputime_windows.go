package cputime

import (
	"syscall"
	"time"
)

// Used is the CPU time that this process has used, that of its garbage
// collector too.
func Used() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		panic(err) // of a process about itself
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		panic(err)
	}
	const tick = 100 * time.Nanosecond
	ticks := func(t syscall.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32 + int64(t.LowDateTime))
	}
	return (ticks(kernel) + ticks(user)) * tick
}
