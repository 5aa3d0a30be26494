package mcptool

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// killMarked kills the processes with the mark in their environment: those that have
// left the group of the process that started them. It looks until it finds none,
// since one may have been starting another.
func killMarked(mark string) {
	const most = 20 // a process that forks without end may have to be outrun
	for range most {
		found := false
		environments, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range environments {
			env, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
				found = true
			}
		}
		if !found {
			return
		}
	}
}

// unread is how many bytes of its input the process has not read, and whether that
// is known.
func (p *process) unread() (n int, known bool) {
	conn, err := p.stdin.SyscallConn()
	if err != nil {
		return 0, false
	}
	controlled := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, controlled == nil && err == nil
}
