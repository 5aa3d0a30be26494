//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Used is the CPU time that this process has used, that of its garbage
// collector too.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // of a process about itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
