// Package session keeps a conversation in a file, from one invocation to the next.
package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fnloop/fnloop"
)

// ErrHeld means that another process holds the file.
var ErrHeld = errors.New("another askpy is using it; wait until it has ended, or name another file")

// A Session is a conversation that a file keeps: where it got to, as JSON. The
// file is held while the session is open.
//
// It is replaced rather than written over, so that it is whole at any moment. A
// lock on it goes with the old file then, so the new one is held before it
// takes the name.
type Session struct {
	// Answer is where the conversation got to before. It is nil in a new one.
	Answer *fnloop.Answer
	// Notes are kept beside the Answer.
	Notes Notes

	path  string // of the file itself, where the name is a link's
	held  *os.File
	fresh bool // the file was made here and has nothing in it yet
}

// Notes are what askpy remembers of a conversation beside its Answer: what was asked
// for last, and what is taken for the next prompt too.
type Notes struct {
	Model       string   `json:"model,omitempty"`
	System      string   `json:"system,omitempty"`
	Effort      string   `json:"effort,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	Image       string   `json:"image,omitempty"`
	Python      string   `json:"python,omitempty"`
	Packages    []string `json:"packages,omitempty"`
	Languages   []string `json:"languages,omitempty"`
	Title       string   `json:"title,omitempty"` // the first prompt, cut
	// Files are those of the conversation on this machine, by their names in the
	// interpreter's folder.
	Files map[string]string `json:"files,omitempty"`
	Marks []Mark            `json:"marks,omitempty"` // the last ones, the newest at the end
}

// A Mark is where a conversation was before a prompt, to go back to.
type Mark struct {
	Prompt string         `json:"prompt"`
	Before *fnloop.Answer `json:"before"` // without what grows with the conversation
	Items  int            `json:"items"`  // how many there were
}

// maxMarks is how many prompts can be taken back.
const maxMarks = 50

// Mark remembers where the conversation is, which is nil at its beginning.
func (n *Notes) Mark(prompt string, a *fnloop.Answer) {
	before := fnloop.Answer{Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}
	items := 0
	if a != nil {
		items = len(a.Items)
		before = *a
		before.Text, before.Items, before.ToolState, before.Calls = "", nil, nil, []fnloop.CallResult{}
		before.Citations, before.Hosted, before.Files = nil, nil, nil
		for _, c := range a.Calls {
			if slices.Contains(a.Open, c.ID) { // which is to be sent yet
				before.Calls = append(before.Calls, c)
			}
		}
	}
	n.Marks = append(n.Marks, Mark{prompt, &before, items})
	if more := len(n.Marks) - maxMarks; more > 0 {
		n.Marks = slices.Clone(n.Marks[more:])
	}
}

// Undo gives the newest mark and forgets it. What tools remember stays: nothing
// takes back what a program has done. It reports false where there is no mark.
func (n *Notes) Undo(a *fnloop.Answer) (m Mark, ok bool) {
	last := len(n.Marks) - 1
	if last < 0 {
		return m, false
	}
	m, n.Marks = n.Marks[last], n.Marks[:last]
	before := *m.Before
	if a != nil {
		before.ToolState = a.ToolState
		if m.Items <= len(a.Items) {
			before.Items = slices.Clip(a.Items[:m.Items])
		}
	}
	m.Before = &before
	return m, true
}

// patience is how long a file that is held is tried again. One that was killed
// lets it go a moment later, with the last process that it was about to start.
const patience = time.Second

// Open opens the session of a file, which need not exist. The error is ErrHeld
// where another process has it.
func Open(name string) (*Session, error) { return open(name, patience) }

// TryOpen is Open without any wait for a file that is held.
func TryOpen(name string) (*Session, error) { return open(name, 0) }

func open(name string, patience time.Duration) (*Session, error) {
	path, err := followed(name)
	if err != nil {
		return nil, err
	}
	s := &Session{path: path}
	for begun := time.Now(); s.held == nil; {
		err := s.open()
		switch {
		case errors.Is(err, ErrHeld) && time.Since(begun) < patience:
			time.Sleep(10 * time.Millisecond)
		case err != nil:
			return nil, err
		}
	}
	data, err := os.ReadFile(s.path)
	if err == nil && len(bytes.TrimSpace(data)) > 0 {
		s.Answer, s.Notes, err = read(data)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// followed is the file that a name stands for, which need not exist where a
// link points to.
func followed(name string) (string, error) {
	const most = 40 // as Linux has it
	for range most {
		if path, err := filepath.EvalSymlinks(name); err == nil {
			return path, nil
		}
		to, err := os.Readlink(name)
		if err != nil {
			return name, nil // no link; what keeps it from being opened is told then
		}
		if !filepath.IsAbs(to) { // not cleaned, since what comes before a ".." may be a link
			to = filepath.Dir(name) + string(filepath.Separator) + to
		}
		name = to
	}
	return "", errors.New("too many symbolic links")
}

// open tries to hold the file. It leaves s.held nil where the file was replaced
// meanwhile.
func (s *Session) open() error {
	if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() { // to open a pipe would wait
		return errors.New("this is no regular file")
	}
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		f, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := hold(f); err != nil {
		f.Close()
		return err
	}
	mine, err := f.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Stat(s.path); err == nil && os.SameFile(mine, named) {
			s.held, s.fresh = f, fresh
			return nil
		}
	}
	f.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read reads what Save wrote.
func read(data []byte) (*fnloop.Answer, Notes, error) {
	var notes Notes
	const foreign = "the file is not a session of askpy"
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, notes, fmt.Errorf("%s: %w", foreign, err)
	}
	for _, name := range []string{"text", "stop", "id", "turns", "usage", "pending", "calls"} {
		if members[name] == nil {
			return nil, notes, fmt.Errorf("%s: it has no %q", foreign, name)
		}
	}
	answer := new(fnloop.Answer)
	if err := json.Unmarshal(data, answer); err != nil {
		return nil, notes, fmt.Errorf("%s: %w", foreign, err)
	}
	for i := range answer.Pending {
		// What was approved may have run since; what was not begun is asked again.
		answer.Pending[i].Decision = nil
	}
	if own := members["askpy"]; own != nil {
		if err := json.Unmarshal(own, &notes); err != nil {
			return nil, notes, fmt.Errorf("%s: %w", foreign, err)
		}
	}
	return answer, notes, nil
}

// Read reads the session of a file without holding it.
func Read(name string) (*fnloop.Answer, Notes, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, Notes{}, err
	}
	return read(data)
}

// Save puts an answer into the file.
func (s *Session) Save(answer *fnloop.Answer) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	notes, err := json.Marshal(s.Notes)
	if err != nil {
		return err
	}
	data = slices.Concat(data[:len(data)-1], []byte(`,"askpy":`), notes, []byte("}")) // an Answer has members
	// Nobody else writes under this name, since the session is held; what is
	// there is of one that was killed.
	next := filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.path)+".askpy")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), hold(f))
	if err == nil {
		err = rename(f, s.held, s.path)
	}
	if err != nil {
		f.Close()
		os.Remove(next)
		return err
	}
	s.held, s.fresh = f, false
	return nil
}

// Close lets the file go. One that has nothing in it is removed.
func (s *Session) Close() {
	if s.fresh {
		os.Remove(s.path)
	}
	s.held.Close()
}

// Unfinished says what the run before left. Repeatable says whether the Loop runs
// again what was interrupted.
func Unfinished(a *fnloop.Answer, prompt string, repeatable bool) []string {
	var lines []string
	for _, c := range a.Pending {
		what := "was not run"
		switch {
		case c.Started:
			what = "was running when the last run ended; it is run again"
			if !repeatable || a.Stop == fnloop.StopCancelled && prompt != "" || neededApproval(c) {
				what = "was running when the last run ended; it is not run again"
			}
		case c.Waiting():
			what = "waits for approval"
		}
		lines = append(lines, fmt.Sprintf("not finished: %s (%s) %s", c.Name, c.ID, what))
	}
	if n := len(a.Open) - len(a.Pending); n > 0 {
		lines = append(lines, fmt.Sprintf("not finished: %d outputs of calls were not sent yet", n))
	}
	if a.Prompt != "" && prompt == "" {
		lines = append(lines, fmt.Sprintf("not finished: the prompt %.100q is sent again", a.Prompt))
	}
	return lines
}

// neededApproval reports whether a call was not to run before it was approved.
// What was approved counts for one run.
func neededApproval(c fnloop.Call) bool {
	c.Started = false
	return c.Waiting()
}

// Resumable reports whether there is something to send without a prompt.
func Resumable(a *fnloop.Answer) bool {
	return a != nil && (a.Paused || a.Prompt != "" || len(a.Parts) > 0 || len(a.Earlier) > 0 || len(a.Open) > 0 || len(a.Pending) > 0)
}
