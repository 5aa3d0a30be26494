package runtimecloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fnloop/fnloop/interpreter"
)

// MaxFile is the size of the largest file that is put into a session.
const MaxFile = 256 << 20

const (
	// wholeFile is how large a file may be that is read at once, so that it can be
	// asked for again when its answer is cut.
	wholeFile = 4 << 20
	// stall is how long a file that is read may bring nothing.
	stall = time.Minute
)

// Put implements [interpreter.Driver]. A larger file than one request takes is
// kept in a temporary file of the host first, as the service wants its checksum.
func (s *session) Put(ctx context.Context, name string, r io.Reader) error {
	select {
	case s.puts <- struct{}{}:
		defer func() { <-s.puts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var head bytes.Buffer
	n, err := io.CopyN(&head, r, maxFile+1)
	if err != nil && err != io.EOF {
		return fmt.Errorf("put %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.touch(name)
	path := workspace + "/" + name
	if n <= maxFile {
		err = s.client.write(ctx, newRunID(), s.sandbox, path, head.Bytes())
	} else {
		err = s.putLarge(ctx, path, io.MultiReader(&head, r))
	}
	return s.fileError(ctx, "put", name, err)
}

func (s *session) putLarge(ctx context.Context, path string, r io.Reader) error {
	f, err := os.CreateTemp("", "fnloop-upload-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, MaxFile+1))
	switch {
	case err != nil:
		return err
	case n > MaxFile:
		return fmt.Errorf("the file is larger than %d MiB", MaxFile>>20)
	}
	return s.client.upload(ctx, newRunID(), s.sandbox, path, f, n, hex.EncodeToString(sum.Sum(nil)))
}

// touch notes a file that is changed from here, and by no cell.
func (s *session) touch(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.touched == nil {
		s.touched = make(map[string]bool)
	}
	s.touched[name] = true
	s.stale = true
}

// fileError says what a failure means for one file.
func (s *session) fileError(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := asError(err)
	switch {
	case !ok:
		return fmt.Errorf("%s %s: %w", op, name, err)
	case e.Code == "file_not_found" || e.Code == "not_a_directory":
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return fmt.Errorf("%s %s: %w", op, name, s.judge(ctx, err))
}

// Get implements [interpreter.Driver]. The end of the reader checks the file's
// length and checksum, as far as the service tells them.
func (s *session) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	call := &request{
		op: "get", sandbox: s.sandbox, method: http.MethodGet, accept: "application/octet-stream",
		path: sandboxPath(s.sandbox, "/files/content?path="+url.QueryEscape(workspace+"/"+name)), answer: time.Minute,
	}
	for again := 2; ; again-- {
		x, err := s.client.open(ctx, call)
		if err != nil {
			return nil, s.fileError(ctx, "get", name, err)
		}
		d := newDownload(x)
		if d.size < 0 || d.size > wholeFile {
			return d, nil
		}
		b, err := io.ReadAll(d)
		d.Close()
		switch {
		case err == nil:
			return io.NopCloser(bytes.NewReader(b)), nil
		case again == 0 || ctx.Err() != nil:
			return nil, fmt.Errorf("get %s: %w", name, err)
		}
	}
}

// A download is the body of an answer that is a file.
type download struct {
	x    *exchange
	size int64 // negative: it was not told
	read int64
	want string // checksum
	sum  hash.Hash
}

func newDownload(x *exchange) *download {
	d := &download{x: x, size: -1, want: x.resp.Header.Get("x-content-sha256"), sum: sha256.New()}
	if n, err := strconv.ParseInt(x.resp.Header.Get("x-content-length"), 10, 64); err == nil {
		d.size = n
	}
	return d
}

func (d *download) Read(p []byte) (int, error) {
	d.x.timer.Reset(stall)
	n, err := d.x.resp.Body.Read(p)
	d.read += int64(n)
	d.sum.Write(p[:n])
	switch {
	case err == nil:
	case err != io.EOF:
		err = d.x.cause(err)
	case d.size >= 0 && d.read != d.size:
		err = fmt.Errorf("%w: %d of %d bytes", io.ErrUnexpectedEOF, d.read, d.size)
	case d.want != "" && hex.EncodeToString(d.sum.Sum(nil)) != d.want:
		err = errors.New("the file is not what its checksum says")
	}
	return n, err
}

func (d *download) Close() error {
	d.x.close()
	return nil
}

// download gets at most so many bytes, and once more where the answer is cut.
func (c *client) download(ctx context.Context, r *request, most int) ([]byte, error) {
	for again := 2; ; again-- {
		x, err := c.open(ctx, r)
		if err != nil {
			return nil, err
		}
		d := newDownload(x)
		b, err := io.ReadAll(io.LimitReader(d, int64(most)+1))
		d.Close()
		if err == nil || again == 0 || ctx.Err() != nil {
			return b, err
		}
	}
}

// A fileEntry is a file as the API lists it.
type fileEntry struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"`
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modifiedAt"`
}

// list gives the files of the work folder, by name.
func (s *session) list(ctx context.Context) (map[string]interpreter.File, error) {
	query := url.Values{"path": {workspace}, "depth": {"64"}, "hidden": {"false"}, "limit": {strconv.Itoa(interpreter.MaxFiles)}}
	var list struct{ Data []fileEntry }
	err := s.client.do(ctx, &request{
		op: "list", sandbox: s.sandbox, method: http.MethodGet, path: sandboxPath(s.sandbox, "/files/list?"+query.Encode()),
		answer: time.Minute, budget: 2 * time.Minute,
	}, &list)
	if err != nil {
		if isCode(err, "file_not_found") { // code can remove all of it
			return nil, nil
		}
		return nil, s.judge(ctx, err)
	}
	files := make(map[string]interpreter.File, len(list.Data))
	for _, f := range list.Data {
		name := strings.TrimPrefix(strings.TrimPrefix(f.Path, workspace), "/")
		if f.Type != "file" || interpreter.CheckName(name) != nil || hidden(name) || len(files) == interpreter.MaxFiles {
			continue
		}
		files[name] = interpreter.File{Name: name, Size: f.Size, Modified: f.ModifiedAt}
	}
	return files, nil
}

// hidden reports whether a file is nothing to tell of.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' || part == "__pycache__" {
			return true
		}
	}
	return false
}

// List implements [interpreter.Driver].
func (s *session) List(ctx context.Context) ([]interpreter.File, error) {
	found, err := s.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list .: %w", err)
	}
	files := make([]interpreter.File, 0, len(found))
	for _, f := range found {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b interpreter.File) int { return cmp.Compare(a.Name, b.Name) })
	return files, nil
}

// Remove implements [interpreter.Driver].
func (s *session) Remove(ctx context.Context, name string) error {
	s.touch(name)
	var answer struct{ Removed bool }
	err := s.client.do(ctx, &request{
		op: "remove", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, "/files:remove"), key: newKey(),
		body: encode(map[string]any{"path": workspace + "/" + name, "recursive": true}), answer: time.Minute,
	}, &answer)
	if err == nil && !answer.Removed {
		err = &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
		return err
	}
	return s.fileError(ctx, "remove", name, err)
}

// changes compares the work folder with what it was before the cell. What was
// changed from here meanwhile is left out.
func (s *session) changes(ctx context.Context) (changed []interpreter.FileChange, more int) {
	now, err := s.list(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stale = true // the next cell begins with a list
		return nil, 0
	}
	add := func(name, change string, size int64) {
		for touched := range s.touched {
			if name == touched || strings.HasPrefix(name, touched+"/") {
				return
			}
		}
		changed = append(changed, interpreter.FileChange{Name: name, Change: change, Size: size})
	}
	for name, f := range now {
		switch old, there := s.files[name]; {
		case !there:
			add(name, interpreter.FileNew, f.Size)
		case old.Size != f.Size || !old.Modified.Equal(f.Modified):
			add(name, interpreter.FileChanged, f.Size)
		}
	}
	for name := range s.files {
		if _, there := now[name]; !there {
			add(name, interpreter.FileRemoved, 0)
		}
	}
	s.files = now
	slices.SortFunc(changed, func(a, b interpreter.FileChange) int { return cmp.Compare(a.Name, b.Name) })
	if more = len(changed) - interpreter.MaxChanges; more > 0 {
		return changed[:interpreter.MaxChanges], more
	}
	return changed, 0
}
