package runtimecloud

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// A programKind is how programs of a language are run.
type programKind struct {
	file string
	argv []string
}

// kinds are by language. What the service's own image has is run as a command;
// r, java and go are there only after the service has installed them for an
// interpreter, and where their commands are then is not documented. So a program
// in them is the only cell of an interpreter, unless an image of the user's has
// the commands.
var kinds = map[string]programKind{
	fnloop.LanguagePython:     {"main.py", []string{"python3", "main.py"}},
	fnloop.LanguageJavaScript: {"main.js", []string{"node", "main.js"}},
	fnloop.LanguageTypeScript: {"main.ts", []string{"bun", "main.ts"}},
	fnloop.LanguageBash:       {"main.sh", []string{"bash", "main.sh"}},
	fnloop.LanguageR:          {"main.R", []string{"Rscript", "main.R"}},
	fnloop.LanguageJava:       {"Main.java", []string{"java", "Main.java"}},
	fnloop.LanguageGo:         {"main.go", []string{"go", "run", "main.go"}},
}

// languages are those of programs and sessions, with the versions of the
// service's own image.
var languages = []fnloop.Language{
	{Name: fnloop.LanguagePython, Version: "3.12"}, {Name: fnloop.LanguageBash},
	{Name: fnloop.LanguageJavaScript, Version: "Node.js 24.21.0"}, {Name: fnloop.LanguageTypeScript, Version: "Bun 1.4.0"},
	{Name: fnloop.LanguageR}, {Name: fnloop.LanguageJava}, {Name: fnloop.LanguageGo},
}

// ownImage reports whether sandboxes begin with the service's own image.
func (r *Runner) ownImage() bool { return r.Image == "" && r.Snapshot == "" }

// installs reports whether the language has to be installed first, for which the
// whole internet is needed: from where it comes is not documented.
func (r *Runner) installs(language string) bool {
	return r.ownImage() && slices.Contains([]string{fnloop.LanguageR, fnloop.LanguageJava, fnloop.LanguageGo}, language)
}

// cell runs a program as the only cell of an interpreter. There is no exit status:
// it is 0, or 1 after an error, which stands at the end of stderr.
func (j *job) cell(p fnloop.Program, name, process string, res fnloop.Result) (fnloop.Result, error) {
	s := j.runner.newSession(j.client, interpreter.Config{Grace: time.Second}, j.limits, j.plan.language)
	s.sandbox, s.context, s.process = j.sandbox.ID, name, process
	var stdout, stderr fnloop.Capture
	events := programEvents{}
	var closeOut, closeErr func()
	events.stdout, closeOut = live(&stdout, p.Stdout)
	events.stderr, closeErr = live(&stderr, p.Stderr)
	res.Startup = time.Since(j.began)
	e, err := s.run(j.ctx, p.Source, j.limits, events)
	if e.Error != nil {
		fmt.Fprintln(events.stderr, cmp.Or(e.Error.Traceback, e.Error.Error()))
	}
	closeOut()
	closeErr()
	res.Duration = e.Duration
	switch {
	case j.ctx.Err() != nil:
		res.End, err = fnloop.EndCancelled, j.client.describe(j.ctx, &request{op: "cell", sandbox: s.sandbox}, nil)
	case err != nil:
	case e.Cause == interpreter.CauseOutput || e.Error != nil && e.Error.Name == "OutputLimit":
		res.End = fnloop.EndOutput
	case e.Status == interpreter.StatusTimeout:
		res.End, res.TimedOut = fnloop.EndTimeout, true
	case e.Status == interpreter.StatusOK, e.Status == interpreter.StatusError && e.Cause == "":
		res.End, res.ExitCode = fnloop.EndExit, new(int)
		if e.Status == interpreter.StatusError {
			*res.ExitCode = 1
		}
	case e.Cause == interpreter.CauseMemory:
		res.End, res.OOM = fnloop.EndMemory, fnloop.EvidenceYes
	case e.Loss != nil && !e.Loss.FilesKept:
		res.End = fnloop.EndLost
		if !j.ownFault() {
			err = &Error{Op: "cell", Code: codeStream, Message: e.Loss.Detail, Sandbox: s.sandbox}
		}
	}
	res.SetOutput(&stdout, &stderr)
	if e.Truncated {
		res.StdoutTruncated, res.StderrTruncated = true, true
	}
	return res, err
}

// programEvents print what a cell shows as a program would.
type programEvents struct{ stdout, stderr io.Writer }

func (e programEvents) Stdout(p []byte)   { e.stdout.Write(p) } //nolint:errcheck // a Capture and a relay take everything
func (e programEvents) Stderr(p []byte)   { e.stderr.Write(p) } //nolint:errcheck // a Capture and a relay take everything
func (e programEvents) Background([]byte) {}
func (e programEvents) Display(d interpreter.Display) {
	if text := d.Data["text/plain"]; len(text) > 0 {
		fmt.Fprintf(e.stdout, "%s\n", text)
	}
}
