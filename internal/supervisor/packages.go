package supervisor

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/fnloop/fnloop"
)

// PreloadList is the value of [Preload] for modules, each of them once. Its error
// is a [*fnloop.PackageError].
func PreloadList(modules ...string) (string, error) {
	var list []string
	for _, m := range modules {
		for part := range strings.SplitSeq(m, ".") {
			if part == "" || unicode.IsDigit([]rune(part)[0]) || strings.ContainsFunc(part, func(r rune) bool {
				return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
			}) {
				return "", &fnloop.PackageError{Field: "Preload", Reason: fmt.Sprintf("%q is not the name of a module, as numpy or matplotlib.pyplot are", m)}
			}
		}
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return strings.Join(list, ","), nil
}

// Packages is a program that prints which packages there are beside the standard
// library, one a line: the name, the version, and the name to import where it is
// another, as in "numpy 1.26.4" and "pillow 10.2.0 (import PIL)". First come those
// that were asked for, then those that programs ask for most. It prints 40 at
// most.
//
//go:embed packages.py
var Packages string

// packageLine is a line that [Packages] prints. Packages can have it print others,
// and the model reads them.
var packageLine = regexp.MustCompile(`^[\w.-]{1,60}( [\w.+!~-]{1,60})?( \(import \w{1,60}\))?$`)

// Lines are the lines of what [Packages] prints, without those that name no package.
func Lines(output string) []string {
	lines := strings.FieldsFunc(output, func(r rune) bool { return r == '\n' })
	lines = slices.DeleteFunc(lines, func(line string) bool { return !packageLine.MatchString(line) })
	return lines[:min(len(lines), 40)]
}
