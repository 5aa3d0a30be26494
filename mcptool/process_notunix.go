//go:build !unix

package mcptool

import (
	"os/exec"
	"strconv"
)

func setGroup(*exec.Cmd) {}

// terminate does nothing: Windows has no such signal.
func terminate(int) {}

// killAll ends the process and those below it. It was not tried on Windows.
func killAll(pid int, _ string) {
	_ = exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(pid)).Run()
}
