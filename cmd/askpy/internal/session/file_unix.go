//go:build unix && !aix && !solaris

package session

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// hold locks f for this process; the lock ends with it. Its error is ErrHeld
// where another process has it.
func hold(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return os.NewSyscallError("flock", err)
}

// rename gives f the name of the file old, which it closes.
func rename(f, old *os.File, name string) error {
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	old.Close()
	if dir, err := os.Open(filepath.Dir(name)); err == nil {
		dir.Sync() // as far as the file system can
		dir.Close()
	}
	return nil
}
