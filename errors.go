package fnloop

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A ProgramError says why a program was not started: it cannot be run by any
// runner of its kind, and the fault is the program's.
type ProgramError struct {
	Field  string // "source", "stdin", "limits.time", "limits.memory"
	Reason string // what is wrong with it
}

func (e *ProgramError) Error() string { return "program: " + e.Field + ": " + e.Reason }

func checkSource(source string) error {
	if i := strings.IndexByte(source, 0); i >= 0 {
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("NUL byte at offset %d", i)}
	}
	if utf8.ValidString(source) {
		return nil
	}
	for i, r := range source {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(source[i:]); size == 1 {
				return &ProgramError{Field: "source", Reason: fmt.Sprintf("invalid UTF-8 at offset %d", i)}
			}
		}
	}
	return nil
}
