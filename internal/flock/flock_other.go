//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package flock

import "os"

// Supported reports whether files can be locked here.
const Supported = false

// Exclusive locks nothing here.
func Exclusive(*os.File) bool { return false }

// Shared locks nothing here.
func Shared(*os.File) bool { return false }
