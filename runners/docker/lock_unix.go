//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package docker

import (
	"os"
	"syscall"
)

// lock locks f if nobody else has.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
