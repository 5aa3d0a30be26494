package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/session"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// What is in the folder of the environment: a file for each named session, that
// of the last conversation without a name, and the path of the last one of all.
const (
	named   = "sessions"
	unnamed = "unnamed.json"
	pointer = "last"
)

// isFile reports whether the value of --session names a file.
func isFile(name string) bool {
	if strings.ContainsAny(name, `./\`) {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// sessionPath is the file of the session that the options ask for. It is empty
// where none is asked for.
func (q *question) sessionPath() (string, error) {
	switch {
	case q.opts.last:
		path, err := os.ReadFile(filepath.Join(q.env.home, pointer))
		if err == nil {
			_, err = os.Stat(string(path))
		}
		if q.env.home == "" || errors.Is(err, fs.ErrNotExist) {
			return "", usagef("there is no last conversation to go on with; ask something first")
		}
		return string(path), err
	case q.opts.session == "" || isFile(q.opts.session):
		return q.opts.session, nil
	}
	path, err := sessionFile(q.env, q.opts.session)
	if err != nil {
		return "", err
	}
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

// sessionFile is the file of a named session.
func sessionFile(env environment, name string) (string, error) {
	flaw := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	switch {
	case name == "" || strings.ContainsFunc(name, flaw):
		return "", usagef("%q is no name of a session: a name has letters, digits, - and _; one with a dot or a slash is a file's", name)
	case env.home == "":
		return "", usagef("there is no folder for named sessions; set ASKPY_HOME to one, or name a file as in --session %s.json", name)
	}
	return filepath.Join(env.home, named, name+".json"), nil
}

// sessionName is what the session is called in messages.
func (q *question) sessionName() string {
	if q.opts.last {
		return "--continue"
	}
	return "--session " + q.opts.session
}

// openSession opens the session that the options ask for, if any. Its file may
// be none that one can be kept in.
func (q *question) openSession() error {
	path, err := q.sessionPath()
	if err == nil && path != "" {
		q.session, err = session.Open(path)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return err
	}
	switch {
	case errors.Is(err, session.ErrHeld):
		return fmt.Errorf("%s: %w", q.sessionName(), err)
	case err != nil:
		return usagef("%s: %v", q.sessionName(), cause(err))
	}
	q.path = path
	if q.session != nil {
		q.last, q.notes = q.session.Answer, q.session.Notes
		q.kept.set(q.notes.Files)
	}
	return nil
}

// store puts where the conversation is into its file, if it has one. A conversation
// without a name that cannot be kept is no failure of the run.
func (q *question) store(answer *fnloop.Answer) error {
	if q.session == nil {
		return nil
	}
	q.session.Notes = q.notes
	q.session.Notes.Files = q.kept.all()
	err := q.session.Save(answer)
	if err != nil && q.nameless {
		q.notKept(err)
		return nil
	}
	return q.saved(err)
}

// notKept gives up keeping a conversation that has no name.
func (q *question) notKept(err error) {
	if q.session != nil {
		q.session.Close()
	}
	q.session, q.keeping, q.wayBack = nil, false, ""
	told := q.progress.Detail
	if q.chatting {
		told = q.progress.Note
	}
	told(fmt.Sprintf("the conversation is not kept for --continue: %v", err))
}

// saved makes an error of the session one for the user.
func (q *question) saved(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: the file could not be written: %w", q.sessionName(), cause(err))
}

// cause is err without the operation and the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// keep makes the conversation the one that --continue goes on with. One without a
// name takes the place of the last one without.
func (q *question) keep() error {
	if q.session != nil && q.wayBack == "" {
		q.wayBack = q.sessionName()
	}
	if !q.keeping || q.wayBack == "-c" {
		return nil
	}
	err := os.MkdirAll(q.env.home, 0o700)
	if err == nil && q.session == nil {
		q.nameless = true
		q.session, q.path, err = openNameless(q.env.home)
	}
	if err == nil {
		err = q.point()
	}
	switch {
	case err == nil:
		q.wayBack = "-c"
	case q.nameless:
		q.notKept(err)
	default:
		q.progress.Detail(fmt.Sprintf("--continue does not find the conversation: %v", err))
	}
	return nil
}

// openNameless opens the session of a conversation that has no name, as a new one:
// another where somebody is using the first.
func openNameless(home string) (s *session.Session, path string, err error) {
	const most = 99 // who asks so often at once does not go on with one of them
	for n := range most {
		path = filepath.Join(home, unnamed)
		if n > 0 {
			path = filepath.Join(home, fmt.Sprintf("unnamed-%d.json", n+1))
		}
		s, err = session.TryOpen(path)
		if err != nil && !errors.Is(err, session.ErrHeld) { // such as one that another version wrote
			if err = os.Remove(path); err == nil {
				s, err = session.TryOpen(path)
			}
		}
		if !errors.Is(err, session.ErrHeld) {
			break
		}
	}
	return s, path, err
}

// point says which conversation is the last one.
func (q *question) point() error {
	path, err := filepath.Abs(q.path)
	if err != nil {
		return err
	}
	next := filepath.Join(q.env.home, fmt.Sprintf(".%s.%d", pointer, os.Getpid()))
	if err := os.WriteFile(next, []byte(path), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(q.env.home, pointer))
}

// recall takes what the conversation was with for what the flags do not say, and
// notes what it is with from now on.
func (q *question) recall() {
	o, n := &q.opts, &q.notes
	n.Model = cmp.Or(o.model, n.Model, q.env.model, defaultModel)
	n.System = cmp.Or(o.system, n.System)
	n.Effort = cmp.Or(o.effort, n.Effort)
	if o.temperature != nil {
		n.Temperature = o.temperature
	}
	n.Image, n.Python = cmp.Or(o.image, n.Image), cmp.Or(o.python, n.Python)
	if strings.ContainsRune(n.Python, filepath.Separator) {
		if path, err := filepath.Abs(n.Python); err == nil {
			n.Python = path // which holds in another folder, too
		}
	}
	if len(o.packages) > 0 {
		n.Packages = elsewhere(o.packages)
	}
	if len(o.languages) > 0 {
		n.Languages = o.languages
	}
	o.model, o.system, o.effort, o.temperature = n.Model, n.System, n.Effort, n.Temperature
	o.image, o.python, o.packages, o.languages = n.Image, n.Python, n.Packages, n.Languages
	q.progress.SetModel(o.model)
}

// elsewhere gives requirements that hold in another folder too: the files that they
// name have whole paths.
func elsewhere(packages []string) []string {
	out := slices.Clone(packages)
	for i, p := range out {
		if file, ok := strings.CutPrefix(p, "-r "); ok {
			if path, err := filepath.Abs(file); err == nil {
				out[i] = "-r " + path
			}
		}
	}
	return out
}

// title is a prompt as one line of a list.
func title(prompt string) string {
	const most = 60
	line := []rune(strings.Join(strings.Fields(prompt), " "))
	if len(line) > most {
		line = append(line[:most-3], []rune("...")...)
	}
	return string(line)
}

// sessions is the command that lists named sessions and removes them.
func sessions(args []string, env environment, stdout io.Writer) error {
	if len(args) > 0 && args[0] == "rm" {
		return removeSessions(args[1:], env)
	}
	if len(args) > 0 {
		return usagef("askpy sessions lists them, and askpy sessions rm NAME removes one; it takes no %q", args[0])
	}
	files, err := filepath.Glob(filepath.Join(env.home, named, "*.json"))
	if err != nil || env.home == "" {
		return err
	}
	type line struct {
		text    string
		changed time.Time
	}
	var lines []line
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue // it was removed meanwhile
		}
		what := ""
		if _, notes, err := session.Read(file); err != nil {
			what = "cannot be read: " + cause(err).Error()
		} else {
			what = notes.Model + "\t" + notes.Title
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		lines = append(lines, line{name + "\t" + info.ModTime().Format("2006-01-02 15:04") + "\t" + what, info.ModTime()})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return b.changed.Compare(a.changed) })
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(w, terminal.Printable(l.text))
	}
	return w.Flush()
}

func removeSessions(names []string, env environment) error {
	if len(names) == 0 {
		return usagef("name the sessions to remove, as in askpy sessions rm trip")
	}
	var all []error
	for _, name := range names {
		file, err := sessionFile(env, name)
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			all = append(all, fmt.Errorf("there is no session %s; askpy sessions lists them", name))
			continue
		}
		s, err := session.Open(file) // which nobody else may have open
		if err == nil {
			err = os.Remove(file)
			s.Close()
		} else if !errors.Is(err, session.ErrHeld) {
			err = os.Remove(file) // one that cannot be read can go all the same
		}
		if err != nil {
			all = append(all, fmt.Errorf("session %s: %w", name, cause(err)))
		}
	}
	return errors.Join(all...)
}
