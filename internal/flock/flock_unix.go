//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package flock

import (
	"os"
	"syscall"
)

// Supported reports whether files can be locked here.
const Supported = true

// Exclusive locks f if nobody else has a lock on it, and reports whether it did.
func Exclusive(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// Shared locks f if nobody has an exclusive lock on it, and reports whether it
// did. A lock of f's own is replaced.
func Shared(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}
