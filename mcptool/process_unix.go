//go:build unix

package mcptool

import (
	"os/exec"
	"syscall"
)

// setGroup puts the process into a group of its own.
func setGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate tells the process's group to end.
func terminate(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

// killAll kills the process's group, and what else has its mark.
func killAll(pid int, mark string) {
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	killMarked(mark)
}
