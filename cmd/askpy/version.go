package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version says what was built, and with what.
func version() string {
	name := "(devel)"
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && name == "(devel)" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("askpy %s%s %s %s/%s", name, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
