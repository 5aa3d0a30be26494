package fnloop

import "strings"

// A PackageError says why a sandbox cannot have the packages that its runner or
// session asks for, or the modules that are to be imported ahead. No program was
// run.
type PackageError struct {
	// Field is what asks for it: "Packages" or "Preload".
	Field string
	// Reason says what is wrong and, where that is known, what to do about it.
	Reason string
	// Output are the last lines that the installer printed, without credentials.
	// It is empty where none was run.
	Output string
}

func (e *PackageError) Error() string {
	s := e.Field + ": " + e.Reason
	if e.Output != "" {
		s += ":\n" + strings.TrimRight(e.Output, "\n")
	}
	return s
}
