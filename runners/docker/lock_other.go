//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package docker

import "os"

// lock does nothing: containers that were left behind go by their deadline.
func lock(*os.File) bool { return false }
