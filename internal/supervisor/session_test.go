package supervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/interpreter"
)

func TestSessionSourceIsPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	for _, source := range []string{sessionSource, workerSource} {
		cmd := exec.Command(python, "-c", "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 8))")
		cmd.Stdin = strings.NewReader(source)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		assert.Equal(t, byte('\n'), source[0], "what tells source from what was compiled")
	}
}

// A sink takes in what a cell shows.
type sink struct {
	stdout, stderr, background bytes.Buffer
	displays                   []interpreter.Display
}

func (s *sink) Stdout(p []byte)               { s.stdout.Write(p) }
func (s *sink) Stderr(p []byte)               { s.stderr.Write(p) }
func (s *sink) Background(p []byte)           { s.background.Write(p) }
func (s *sink) Display(d interpreter.Display) { s.displays = append(s.displays, d) }

// stage opens a session on a puppet.
func stage(t *testing.T, p *puppet) *Session {
	t.Helper()
	go p.send(kindReady, "python=3.12.4\n")
	c, err := Connect(p)
	require.NoError(t, err)
	return c.NewSession(SessionConfig{
		Limits: limits, Grace: time.Second, Copy: true, Compiled: new(Compiled), Remove: func() {},
	})
}

func claim(key byte, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{key}, uint32(len(text)))) + text
}

func TestSession_whatEndedACell(t *testing.T) {
	frames := func(kv ...string) (b []byte) {
		for i := 0; i < len(kv); i += 2 {
			b = appendFrame(b, kv[i][0], kv[i+1])
		}
		return b
	}
	const end = "cell=1\nus=1500\n"
	for _, c := range []struct {
		why    string
		frames []byte
		ooms   int64
		want   interpreter.Execution
	}{
		{"a claim of success", frames("c", claim('s', "ok")+claim('g', "x\ny")+claim('h', "2"), "Z", end+"why=\nprocesses=3\n"), 0,
			interpreter.Execution{Status: interpreter.StatusOK, Names: []string{"x", "y"}, Threads: 2, Processes: 3}},
		{"a claim of an error", frames("c", claim('s', "error")+claim('n', "E")+claim('v', "\xff")+claim('t', "T"), "Z", end+"why=\n"), 0,
			interpreter.Execution{Status: interpreter.StatusError, Error: &interpreter.Error{Name: "E", Value: "�", Traceback: "T"}}},
		{"what stopped it counts more than what it says", frames("c", claim('s', "ok"), "Z", end+"why=timeout\n"), 0,
			interpreter.Execution{Status: interpreter.StatusTimeout}},
		{"the end of the context", frames("c", claim('s', "ok"), "Z", end+"why=cancel\n"), 0,
			interpreter.Execution{Status: interpreter.StatusInterrupted}},
		{"claims without end or sense", frames("c", claim('h', "-5")+claim('a', "99999999999999")+"n\xff\xff\xff\xffx", "Z", end+"why=\n"), 0,
			interpreter.Execution{Status: interpreter.StatusOK}},
		{"a signal, and the copy took over", frames("Z", end+"why=\nstatus=11\nrestored=1\n"), 0,
			interpreter.Execution{Status: interpreter.StatusError, Cause: interpreter.CauseSignal, Restored: true,
				Error: &interpreter.Error{Name: "Crash", Value: "the interpreter ended under the cell: SIGSEGV"}}},
		{"SIGKILL with a kill for want of memory", frames("Z", end+"why=\nstatus=9\nrestored=1\n"), 1,
			interpreter.Execution{Status: interpreter.StatusError, Cause: interpreter.CauseMemory, Restored: true,
				Error: &interpreter.Error{Name: "MemoryError", Value: "the session ran out of its 64 MiB of memory"}}},
		{"SIGKILL of somebody, when the copy was killed for want of memory", frames("Z", end+"why=\nstatus=9\nlost=1\ncopies=1\n"), 1,
			interpreter.Execution{Status: interpreter.StatusLost, Cause: interpreter.CauseSignal,
				Loss: &interpreter.Loss{Cause: interpreter.CauseSignal, Detail: "SIGKILL", FilesKept: true}}},
		{"an exit without a copy", frames("Z", end+"why=\nstatus=768\nlost=1\n"), 0,
			interpreter.Execution{Status: interpreter.StatusLost, Cause: interpreter.CauseExit,
				Loss: &interpreter.Loss{Cause: interpreter.CauseExit, Detail: "exit status 3", FilesKept: true}}},
		{"a kill at the limit without a copy", frames("Z", end+"why=timeout\nstatus=9\nlost=1\n"), 0,
			interpreter.Execution{Status: interpreter.StatusTimeout, Cause: interpreter.CauseTimeout,
				Loss: &interpreter.Loss{Cause: interpreter.CauseTimeout, FilesKept: true}}},
		{"a death between two cells", frames("c", claim('s', "ok"), "Z", end+"why=\nbefore=15\n"), 0,
			interpreter.Execution{Status: interpreter.StatusOK,
				Loss: &interpreter.Loss{Cause: interpreter.CauseSignal, Detail: "SIGTERM", FilesKept: true}}},
		{"a child was killed for want of memory", frames("c", claim('s', "ok"), "Z", end+"why=\n"), 2,
			interpreter.Execution{Status: interpreter.StatusOK, MemoryKills: 2}},
		{"files", frames("L", "n\x00\x00\x00\x00\x00\x00\x00\x05a/b", "c", claim('s', "ok"), "Z", end+"why=\nmore=7\n"), 0,
			interpreter.Execution{Status: interpreter.StatusOK, MoreFiles: 7,
				Files: []interpreter.FileChange{{Name: "a/b", Size: 5, Change: interpreter.FileNew}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPuppet()
			p.ooms, p.known = c.ooms, true
			s := stage(t, p)
			go func() {
				time.Sleep(time.Second)
				_, _ = p.out.Write(c.frames)
			}()
			e, err := s.Run(t.Context(), interpreter.Cell{Source: "1"}, new(sink))
			require.NoError(t, err)
			assert.Equal(t, 1500*time.Microsecond, e.Duration)
			c.want.Duration, c.want.Limits = e.Duration, limits
			assert.Equal(t, c.want, e, c.why)
			assert.NoError(t, s.Close())
		})
	}
}

func TestSession_silentSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet()
		s := stage(t, p)
		begin := time.Now()
		e, err := s.Run(t.Context(), interpreter.Cell{Source: "1"}, new(sink))
		require.NoError(t, err)
		assert.Equal(t, interpreter.StatusTimeout, e.Status)
		assert.Equal(t, &interpreter.Loss{Cause: interpreter.CauseTimeout}, e.Loss)
		assert.Equal(t, limits.Time+time.Second+backstop, time.Since(begin), "the sandbox is killed by the host's clock")
		_, err = s.Run(t.Context(), interpreter.Cell{Source: "1"}, new(sink))
		assert.ErrorIs(t, err, interpreter.ErrGone)
		_, err = s.List(t.Context())
		assert.ErrorIs(t, err, interpreter.ErrGone)
		assert.ErrorIs(t, s.Restart(t.Context()), interpreter.ErrGone)
		assert.NoError(t, s.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		s := stage(t, newPuppet())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, err := s.Run(ctx, interpreter.Cell{Source: "1"}, new(sink))
		require.NoError(t, err)
		assert.Equal(t, interpreter.StatusInterrupted, e.Status)
		require.NotNil(t, e.Loss)
		assert.NoError(t, s.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		s := stage(t, newPuppet())
		begin := time.Now()
		_, err := s.List(t.Context())
		assert.ErrorContains(t, err, "no answer within")
		assert.Equal(t, answerGrace, time.Since(begin))
		assert.NoError(t, s.Close())
	})
}

// A supervisor that is not itself any more ends the session and nothing else.
func TestSession_nonsense(t *testing.T) {
	for _, frames := range []string{
		"Q", "Z", "Zcell=9\n", "L", "Lxxx", "f", "Fbroken", "K", "Ks" + strings.Repeat("x", 100), "R", "S", "X",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPuppet()
			s := stage(t, p)
			s.started = true
			go func() { time.Sleep(time.Second); p.send(frames[0], frames[1:]) }()
			e, err := s.Run(t.Context(), interpreter.Cell{Source: "1"}, new(sink))
			require.NoError(t, err)
			assert.Equal(t, interpreter.StatusLost, e.Status, frames)
			assert.NoError(t, s.Close())
		})
	}
}

func TestSession_displays(t *testing.T) {
	show := func(pieces ...string) *sink {
		out := new(sink)
		c := &cell{events: out}
		for i, p := range pieces {
			c.show([]byte(p), i == len(pieces)-1)
		}
		for range c.e.Omitted {
			out.stderr.WriteString("omitted")
		}
		return out
	}
	out := show("1\ntext/plain 2\nimage", "/png 3\n\nhiabc")
	require.Len(t, out.displays, 1)
	assert.Equal(t, interpreter.Display{Main: true, Data: map[string][]byte{"text/plain": []byte("hi"), "image/png": []byte("abc")}}, out.displays[0])
	assert.Equal(t, "omitted", show("no head").stderr.String())
	assert.Empty(t, show("0\ntext/plain -1\n\nx").displays[0].Data)
	assert.Empty(t, show("0\ntext/plain 99\n\nx").displays[0].Data)
	big := strings.Repeat("x", 1<<20)
	assert.Equal(t, "omitted", show(big, big, big, big, big, big, big, big, big, "1\n\n").stderr.String())
}

func FuzzSession(f *testing.F) {
	f.Add([]byte("V\x00\x00\x00\x141\ntext/plain 2\n\nhi..."), []byte(claim('s', "error")))
	f.Add(appendFrame(nil, kindEnd, "cell=1\nus=5\nwhy=\nstatus=9\n"), []byte("n\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b, said []byte) {
		p := newPuppet()
		s := &Session{conn: &Conn{sandbox: p}, config: SessionConfig{Limits: limits, Compiled: new(Compiled)}, number: 1, gone: make(chan struct{})}
		out := new(sink)
		c := &cell{events: out, done: make(chan struct{}), claim: said, facts: map[string]string{}}
		s.cell = c
		d := newDecoder(bytes.NewReader(b))
		for {
			kind, payload, err := d.next()
			if err != nil || s.take(kind, payload) != nil {
				break
			}
		}
		e := c.e
		s.conclude(c, &e)
		if len(e.Names) > maxNames || len(e.Files) > interpreter.MaxChanges || e.Status == "" {
			t.Errorf("%+v", e)
		}
	})
}

// A script for what files are asked of, with the errors of the inside.
func TestSession_fileErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet()
		s := stage(t, p)
		defer s.Close()
		answer := func(call uint32, kind, rest string) {
			p.send(kindFile, string(binary.BigEndian.AppendUint32(nil, call))+kind+rest)
		}
		asked := func(f func()) { // once the session waits for it
			go func() {
				synctest.Wait()
				f()
			}()
		}
		asked(func() { answer(1, "e", "\x00\x00\x00\x1cno space") })
		_, err := s.Get(t.Context(), "a")
		assert.ErrorContains(t, err, "get a: no space")
		asked(func() { answer(2, "m", "short"); answer(2, "k", "") })
		_, err = s.List(t.Context())
		assert.Error(t, err)
		asked(func() {
			answer(3, "m", strings.Repeat("\x00", 7)+"\x01"+strings.Repeat("\x00", 7)+"\x04")
			answer(3, "m", "data")
			answer(3, "k", "")
		})
		f, err := s.Get(t.Context(), "b")
		require.NoError(t, err)
		buf := make([]byte, 3)
		n, err := f.Read(buf)
		assert.Equal(t, "dat", string(buf[:n]), "%v", err)
		assert.NoError(t, f.Close())
		_, err = f.Read(buf)
		assert.Error(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, s.Put(ctx, "c", strings.NewReader("")), context.Canceled)
		failed := errors.New("the disk is gone")
		asked(func() { answer(5, "k", ""); answer(5, "k", "") })
		err = s.Put(t.Context(), "d", io.MultiReader(failingReader{failed}))
		assert.ErrorIs(t, err, failed, fmt.Sprint(err))
	})
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

var _ interpreter.Driver = (*Session)(nil)
