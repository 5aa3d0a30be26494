package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/fnloop/fnloop/interpreter"
)

// The numbers of Linux's errors, whatever the host is.
const enoent = 2

// pieceSize is how much of a file goes into one frame.
const pieceSize = 32 << 10

// maxAnswer is how many parts one answer has at most.
const maxAnswer = 1024

// newCall makes a number for something to do with files, and the place for the
// answer.
func (s *Session) newCall() (uint32, chan answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	c := make(chan answer, maxAnswer)
	s.answers[s.calls] = c
	return s.calls, c
}

func (s *Session) endCall(call uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answers, call)
}

// ask has the supervisor do something and gives the parts of its answer.
func (s *Session) ask(ctx context.Context, call uint32, to chan answer, op byte, body []byte) ([][]byte, error) {
	b := binary.BigEndian.AppendUint32(nil, call)
	b = append(append(b, op), body...)
	if isClosed(s.gone) {
		return nil, s.isGone()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.send(appendFrame(nil, kindFile, string(b))); err != nil {
		s.conn.sandbox.Kill()
		<-s.gone
		return nil, s.isGone()
	}
	clock := time.NewTimer(answerGrace)
	defer clock.Stop()
	var parts [][]byte
	for {
		select {
		case a := <-to:
			switch a.kind {
			case 'm':
				parts = append(parts, a.data)
			case 'k':
				return parts, nil
			default:
				return nil, fileError(a.data)
			}
		case <-s.gone:
			return nil, s.isGone()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-clock.C:
			return nil, fmt.Errorf("no answer within %v", answerGrace)
		}
	}
}

// fileError is what went wrong inside.
func fileError(data []byte) error {
	if len(data) < 4 {
		return errors.New("an error without a number")
	}
	if binary.BigEndian.Uint32(data) == enoent {
		return fs.ErrNotExist
	}
	return errors.New(string(data[4:]))
}

// path makes an error about a file.
func path(op, name string, err error) error {
	if err == nil || errors.Is(err, interpreter.ErrGone) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// List implements [interpreter.Driver].
func (s *Session) List(ctx context.Context) ([]interpreter.File, error) {
	call, to := s.newCall()
	defer s.endCall(call)
	parts, err := s.ask(ctx, call, to, 'l', nil)
	if err != nil {
		return nil, path("list", ".", err)
	}
	var files []interpreter.File
	for _, b := range parts {
		for len(b) > 0 {
			if len(b) < 4 {
				return nil, errors.New("supervisor: a bad list of files")
			}
			n := int(binary.BigEndian.Uint32(b))
			if n < 0 || n > len(b)-20 {
				return nil, errors.New("supervisor: a bad list of files")
			}
			files = append(files, interpreter.File{
				Name:     string(b[4 : 4+n]),
				Size:     int64(binary.BigEndian.Uint64(b[4+n:])),
				Modified: time.Unix(0, int64(binary.BigEndian.Uint64(b[12+n:]))).UTC(),
			})
			b = b[20+n:]
		}
	}
	return files, nil
}

// Remove implements [interpreter.Driver].
func (s *Session) Remove(ctx context.Context, name string) error {
	call, to := s.newCall()
	defer s.endCall(call)
	_, err := s.ask(ctx, call, to, 'd', []byte(name))
	return path("remove", name, err)
}

// Put implements [interpreter.Driver].
func (s *Session) Put(ctx context.Context, name string, r io.Reader) (err error) {
	call, to := s.newCall()
	defer s.endCall(call)
	defer func() {
		if err != nil && !isClosed(s.gone) { // the reader's error, or an answer that did not come
			_, _ = s.ask(context.WithoutCancel(ctx), call, to, 'x', nil)
		}
	}()
	if _, err := s.ask(ctx, call, to, 'p', []byte(name)); err != nil {
		return path("put", name, err)
	}
	buf := make([]byte, pieceSize)
	for {
		n, rerr := io.ReadFull(r, buf)
		if n > 0 {
			if _, err := s.ask(ctx, call, to, 'w', buf[:n]); err != nil {
				return path("put", name, err)
			}
		}
		switch rerr {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			_, err := s.ask(ctx, call, to, 'e', nil)
			return path("put", name, err)
		default:
			return path("put", name, rerr)
		}
	}
}

// Get implements [interpreter.Driver].
func (s *Session) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f := &reader{s: s, ctx: ctx, name: name}
	if err := f.more(); err != nil && err != io.EOF {
		return nil, err
	}
	return f, nil
}

// A reader reads a file in pieces. Between them nothing is open inside.
type reader struct {
	s      *Session
	ctx    context.Context
	name   string
	inode  uint64
	offset uint64
	parts  [][]byte
	closed bool
}

// more asks for the next pieces. Its error is io.EOF at the end of the file.
func (f *reader) more() error {
	call, to := f.s.newCall()
	defer f.s.endCall(call)
	body := binary.BigEndian.AppendUint64(nil, f.offset)
	body = binary.BigEndian.AppendUint64(body, f.inode)
	parts, err := f.s.ask(f.ctx, call, to, 'g', append(body, f.name...))
	if err != nil {
		return path("get", f.name, err)
	}
	if len(parts) == 0 || len(parts[0]) != 16 {
		return path("get", f.name, errors.New("supervisor: a bad answer about a file"))
	}
	f.inode = binary.BigEndian.Uint64(parts[0])
	for _, p := range parts[1:] {
		if len(p) > 0 {
			f.offset += uint64(len(p))
			f.parts = append(f.parts, p)
		}
	}
	if len(f.parts) == 0 {
		return io.EOF
	}
	return nil
}

// Read implements [io.Reader].
func (f *reader) Read(p []byte) (int, error) {
	if f.closed {
		return 0, path("get", f.name, fs.ErrClosed)
	}
	if len(f.parts) == 0 {
		if err := f.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.parts[0])
	if f.parts[0] = f.parts[0][n:]; len(f.parts[0]) == 0 {
		f.parts = f.parts[1:]
	}
	return n, nil
}

// Close implements [io.Closer].
func (f *reader) Close() error {
	f.closed, f.parts = true, nil
	return nil
}
