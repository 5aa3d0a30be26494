package main

import "strings"

// cliWords has advice of the runners for those who write Go, and what it is on the
// command line.
var cliWords = strings.NewReplacer(
	" with the Python field", " with --python",
	", and what else it needs with Binds", "",
	"the folder of the interpreter, those of Binds, and all above them", "the folder of the interpreter and all above it",
	"are the folder of the interpreter and those of Binds still there?", "is the folder of the interpreter still there?",
	"name the folders that they are in with the Binds field", "use a Python that has them in /usr or in its own folder",
	"; AllowUnlimited accepts it as it is", "",
	"pull it with Runner.Prepare, or docker pull", "docker pull",
	"bubblewrap: Packages: ", "--packages: ",
	"docker: Packages: ", "--packages: ",
	"; use the Docker runner", "; use --runner docker",
)

// A plainError is an error in the words of the command line.
type plainError struct{ error }

func (e plainError) Error() string { return cliWords.Replace(e.error.Error()) }

func (e plainError) Unwrap() error { return e.error }

// plain gives an error in the words of the command line.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return plainError{err}
}
