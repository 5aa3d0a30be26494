package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// maxData is the largest file of --file that is no picture or PDF, in bytes.
const maxData = 1 << 30

// An attachment is a file that goes with the prompt: a part of it for the model to
// see, or data for the interpreter.
type attachment struct {
	path string
	name string // in the interpreter's folder
	size int64
	part *fnloop.Content // nil for data
}

// readAttachments looks at the files of --file. Their error is a *usageError.
func readAttachments(paths []string) ([]attachment, error) {
	var all []attachment
	names := make(map[string]string)
	for _, path := range paths {
		a, err := readAttachment(path)
		if err != nil {
			return nil, usagef("--file %s: %v", path, cause(err))
		}
		if a.part == nil {
			if other, twice := names[a.name]; twice {
				return nil, usagef("--file %s and --file %s have the same name in the sandbox; rename one of them", other, path)
			}
			names[a.name] = path
		}
		all = append(all, a)
	}
	return all, nil
}

func readAttachment(path string) (a attachment, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return a, err
	}
	if !info.Mode().IsRegular() {
		return a, errors.New("it is not a file")
	}
	a = attachment{path: path, name: filepath.Base(path), size: info.Size()}
	f, err := os.Open(path)
	if err != nil {
		return a, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return a, err
	}
	mime := http.DetectContentType(head[:n])
	media := mime == "application/pdf"
	switch mime {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		media = true
	}
	if !media {
		if a.size > maxData {
			return a, fmt.Errorf("it has %d MiB, more than %d", a.size>>20, maxData>>20)
		}
		return a, interpreter.CheckName(a.name)
	}
	part, err := fnloop.OpenContent(path)
	if err != nil {
		return a, errors.New(strings.TrimPrefix(err.Error(), "fnloop: "))
	}
	a.part = &part
	return a, nil
}

// stays reports whether the model gets an interpreter that stays alive: for data,
// for what comes out of it, for a conversation that may go on, and where it had
// one in the recording.
func (q *question) stays(w wire) bool {
	if r, ok := w.(replayed); ok {
		return r.Offers(new(interpreter.Sessions).Tool().Name)
	}
	return q.chatting || q.opts.session != "" || q.opts.last || q.opts.out != "" || q.hasData()
}

func (q *question) hasData() bool {
	for _, a := range q.attached {
		if a.part == nil {
			return true
		}
	}
	return false
}

// openInterpreter makes the interpreters of this invocation, where they are wanted
// and the runner can keep one. There is one conversation, and so one of them.
func (q *question) openInterpreter(w wire) error {
	if !q.stays(w) {
		if q.hasData() || q.opts.out != "" {
			return usagef("--file and --out need an interpreter that stays alive, and what is replayed was recorded without one")
		}
		return nil
	}
	if _, can := fnloop.RunnerAs[interpreter.Opener](q.runner); !can {
		if q.hasData() || q.opts.out != "" {
			return usagef("--file and --out need an interpreter that stays alive, which this runner cannot keep; --runner bubblewrap and --runner docker can")
		}
		return nil
	}
	if q.opts.out != "" {
		if err := os.MkdirAll(q.opts.out, 0o777); err != nil {
			return usagef("--out %s: %v", q.opts.out, cause(err))
		}
	}
	q.sessions = &interpreter.Sessions{
		Runner: q.runner,
		Config: interpreter.Config{Limits: fnloop.Limits{Time: q.opts.timeout}},
		OnOpen: q.onOpen,
		OnCell: q.onCell,
	}
	return nil
}

// put brings the data of --file into the interpreter of the conversation, and says
// in the prompt what is there.
func (q *question) put(ctx context.Context, from *fnloop.Answer) error {
	if !q.hasData() {
		return nil
	}
	s, release, err := q.sessions.Session(ctx, from)
	if err != nil {
		return err
	}
	defer release()
	for _, a := range q.attached {
		if a.part != nil {
			continue
		}
		f, err := os.Open(a.path)
		if err != nil {
			return fmt.Errorf("--file %s: %w", a.path, cause(err))
		}
		err = s.Put(ctx, a.name, f)
		f.Close()
		if err != nil {
			return fmt.Errorf("--file %s: %w", a.path, err)
		}
	}
	return nil
}

// parts are the pictures and documents of --file.
func (q *question) parts() []fnloop.Content {
	var parts []fnloop.Content
	for _, a := range q.attached {
		if a.part != nil {
			parts = append(parts, *a.part)
		}
	}
	return parts
}

// withFiles adds to a prompt what the files of --file are called.
func (q *question) withFiles(prompt string) string {
	var names []string
	for _, a := range q.attached {
		if a.part == nil {
			names = append(names, fmt.Sprintf("%s (%d bytes)", a.name, a.size))
		}
	}
	if len(names) == 0 {
		return prompt
	}
	return strings.TrimSpace(prompt + "\n\nThese files of the user's are in the interpreter's current folder: " + strings.Join(names, ", ") + ".")
}

// onCell shows and keeps what a cell has made.
func (q *question) onCell(ctx context.Context, s *interpreter.Session, e interpreter.Execution) error {
	if e.Loss != nil {
		q.progress.Note("python: " + e.Notice())
	}
	for _, d := range e.Displays {
		if err := q.figure(d); err != nil {
			return err
		}
	}
	for _, f := range e.Files {
		if f.Change == interpreter.FileRemoved {
			q.kept.remove(f.Name)
			continue
		}
		if q.opts.out == "" {
			q.progress.Note(fmt.Sprintf("python: made %s (%d bytes); --out DIR keeps such files", f.Name, f.Size))
			continue
		}
		if err := q.fetch(ctx, s, f.Name); err != nil {
			return err
		}
	}
	return nil
}

// openGallery chooses the folder for figures: that of --out, else one among the
// temporary files, so that a figure can be looked at where no terminal shows it.
func (q *question) openGallery() (err error) {
	if q.gallery == "" {
		if q.gallery = q.opts.out; q.gallery == "" {
			q.gallery, err = os.MkdirTemp("", "askpy-")
		}
	}
	return err
}

// figure shows an image on a terminal that can, and keeps it elsewhere or in --out.
func (q *question) figure(d interpreter.Display) error {
	for _, form := range []struct{ mime, ending string }{{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/svg+xml", ".svg"}} {
		data := d.Data[form.mime]
		if data == nil {
			continue
		}
		q.figures++
		shown := form.mime == "image/png" && q.progress.Image(data)
		if q.opts.out == "" && shown {
			return nil
		}
		if err := q.openGallery(); err != nil {
			return err
		}
		return q.keepFile(q.gallery, fmt.Sprintf("figure-%d%s", q.figures, form.ending), bytes.NewReader(data))
	}
	return nil
}

func (q *question) fetch(ctx context.Context, s *interpreter.Session, name string) error {
	r, err := s.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	if err := q.keepFile(q.opts.out, name, r); err != nil {
		return err
	}
	q.kept.add(name, filepath.Join(q.opts.out, filepath.FromSlash(name)))
	return nil
}

// keepFile writes a file below a folder. The name is the program's: os.Root lets it
// lead nowhere else.
func (q *question) keepFile(folder, name string, r io.Reader) error {
	failed := func(err error) error { return fmt.Errorf("--out %s: %s: %w", folder, name, cause(err)) }
	root, err := os.OpenRoot(folder)
	if err != nil {
		return failed(err)
	}
	defer root.Close()
	local := filepath.FromSlash(name)
	if dir := filepath.Dir(local); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return failed(err)
		}
	}
	f, err := root.Create(local)
	if err != nil {
		return failed(err)
	}
	_, err = io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return failed(err)
	}
	q.progress.Note("python: wrote " + filepath.Join(folder, local))
	return nil
}
