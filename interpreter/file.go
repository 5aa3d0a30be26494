package interpreter

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// MaxFiles is how many files [Session.List] gives at most.
const MaxFiles = 10_000

// MaxChanges is how many changes [Execution.Files] has at most.
const MaxChanges = 200

const (
	maxName = 1024 // of a path, in bytes
	maxBase = 255  // of one of its parts, as the kernel has it
)

// CheckName reports what is wrong with the name of a file, as a [*fs.PathError]
// with [fs.ErrInvalid] in it: names are paths below the work folder with single
// slashes, and no part of one is "." or "..".
func CheckName(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "it is empty"
	case len(name) > maxName:
		reason = fmt.Sprintf("it has %d bytes, more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		reason = "it is not valid UTF-8"
	case strings.ContainsRune(name, 0):
		reason = "it has a NUL in it"
	case name[0] == '/':
		reason = "it is not below the work folder"
	case name == "." || !fs.ValidPath(name):
		reason = "a part of it is empty, \".\" or \"..\""
	}
	for part := range strings.SplitSeq(name, "/") {
		if reason == "" && len(part) > maxBase {
			reason = fmt.Sprintf("a part of it has %d bytes, more than %d", len(part), maxBase)
		}
	}
	if reason == "" {
		return nil
	}
	if len(name) > 100 {
		name = strings.ToValidUTF8(name[:100], "") + "…"
	}
	return &fs.PathError{Op: "name", Path: name, Err: fmt.Errorf("%w: %s", fs.ErrInvalid, reason)}
}
