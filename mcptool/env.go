package mcptool

import (
	"os"
	"runtime"
	"strings"
)

// inherited are the variables that every server gets.
func inherited() []string {
	if runtime.GOOS == "windows" {
		return []string{
			"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES",
			"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
		}
	}
	return []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
}

// environment is that of a server's process.
func (s *Server) environment() []string {
	var env []string
	for _, name := range inherited() {
		// A value that begins so is a function of a shell, which would run it.
		if v, ok := os.LookupEnv(name); ok && !strings.HasPrefix(v, "()") {
			env = append(env, name+"="+v)
		}
	}
	return append(env, s.Env...)
}
