//go:build unix

package mcptool_test

import (
	"os/exec"
	"syscall"
)

// leaveGroup starts the command in a session of its own.
func leaveGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
