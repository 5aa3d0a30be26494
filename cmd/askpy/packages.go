package main

import (
	"regexp"
	"strings"

	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// next is where a list of packages goes on: a comma before a name, and not before
// another condition on a version.
var next = regexp.MustCompile(`,\s*[A-Za-z0-9-]`)

// splitPackages splits a list of requirements. The names of extras stay together.
func splitPackages(s string) (packages []string) {
	start := 0
	for _, at := range next.FindAllStringIndex(s, -1) {
		if strings.Count(s[start:at[0]], "[") > strings.Count(s[start:at[0]], "]") {
			continue
		}
		packages = append(packages, strings.TrimSpace(s[start:at[0]]))
		start = at[0] + 1
	}
	return append(packages, strings.TrimSpace(s[start:]))
}

// installing shows how an install of packages goes on: that there is one in a line
// of its own, what is done as it is done, and with --verbose all of it.
func installing(p *terminal.Progress) func(string) {
	said := false
	return func(line string) {
		if p.Start(line); said {
			p.Detail(line)
			return
		}
		said = true
		p.Note(line)
	}
}
