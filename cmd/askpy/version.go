package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	versions "github.com/fnloop/fnloop/internal/version"
)

// version says what was built, and with what. What is no release has its commit.
func version() string {
	text := "askpy " + versions.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && strings.TrimPrefix(info.Main.Version, "v") != versions.Version:
				text += " " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				text += " modified"
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
