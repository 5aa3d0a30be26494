package interpreter_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/fake"
)

// open opens a session on r that the test's end closes.
func open(t *testing.T, r fnloop.Runner, c interpreter.Config) *interpreter.Session {
	t.Helper()
	s, err := interpreter.Open(t.Context(), r, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func run(t *testing.T, s *interpreter.Session, source string) interpreter.Execution {
	t.Helper()
	e, err := s.Run(t.Context(), interpreter.Cell{Source: source})
	require.NoError(t, err)
	return e
}

// sleeper is a fake whose cells sleep for as long as their source says, and then
// define the name x.
func sleeper() *fake.Runner {
	return &fake.Runner{Cells: func(ctx context.Context, _ *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
		d, err := time.ParseDuration(c.Source)
		if err != nil {
			return interpreter.Execution{}, err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return interpreter.Execution{Stdout: c.Source, Names: []string{"x"}}, nil
	}}
}

type wrapper struct{ fnloop.Runner }

func (w wrapper) Unwrap() fnloop.Runner { return w.Runner }

func TestOpen(t *testing.T) {
	s := open(t, wrapper{new(fake.Runner)}, interpreter.Config{})
	assert.Equal(t, interpreter.StatusOK, run(t, s, "1").Status)

	type runner struct{ fnloop.Runner }
	_, err := interpreter.Open(t.Context(), runner{}, interpreter.Config{})
	assert.ErrorIs(t, err, interpreter.ErrUnsupported)

	_, err = interpreter.Open(t.Context(), new(fake.Runner), interpreter.Config{Limits: fnloop.Limits{Time: -1}})
	assert.ErrorContains(t, err, "limits.time")
}

func TestSession_badCells(t *testing.T) {
	s := open(t, new(fake.Runner), interpreter.Config{})
	for field, c := range map[string]interpreter.Cell{
		"source":        {Source: "a\x00"},
		"limits.time":   {Limits: fnloop.Limits{Time: -1}},
		"limits.memory": {Limits: fnloop.Limits{Memory: 1}},
	} {
		_, err := s.Run(t.Context(), c)
		bad, ok := errors.AsType[*fnloop.ProgramError](err)
		assert.True(t, ok && bad.Field == field, "%v", err)
	}
}

func TestSession_cellsRunInCallOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := sleeper()
		s := open(t, r, interpreter.Config{})
		var mu sync.Mutex
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		for _, c := range []struct {
			source string
			ctx    context.Context
		}{{"5s", t.Context()}, {"1s", t.Context()}, {"2s", ctx}, {"3s", t.Context()}} {
			go func() {
				e, err := s.Run(c.ctx, interpreter.Cell{Source: c.source})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorContains(t, err, "not started")
					order = append(order, "cancelled")
					return
				}
				order = append(order, e.Stdout)
			}()
			synctest.Wait()
		}
		cancel()
		begin := time.Now()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []string{"cancelled", "5s", "1s", "3s"}, order)
		assert.Equal(t, 10*time.Second, time.Since(begin))
	})
}

func TestSession_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sleeper(), interpreter.Config{Limits: fnloop.Limits{Time: time.Minute}})

		ran, err := s.Interrupt(t.Context())
		assert.NoError(t, err)
		assert.False(t, ran, "nothing runs")

		e := run(t, s, "2m")
		assert.Equal(t, interpreter.StatusTimeout, e.Status)
		assert.Equal(t, time.Minute, e.Limits.Time)

		go func() {
			time.Sleep(time.Second)
			ran, err := s.Interrupt(t.Context())
			assert.True(t, ran && err == nil)
		}()
		assert.Equal(t, interpreter.StatusInterrupted, run(t, s, "30s").Status)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, err = s.Run(ctx, interpreter.Cell{Source: "30s"})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, interpreter.StatusInterrupted, e.Status)
		assert.Equal(t, interpreter.StatusOK, run(t, s, "1s").Status)
	})
}

func TestSession_lossIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := sleeper()
		s := open(t, r, interpreter.Config{})
		run(t, s, "1s")
		require.NoError(t, s.Put(t.Context(), "a.csv", strings.NewReader("1")))

		// Between two cells.
		r.Interpreters()[0].Kill()
		e := run(t, s, "1s")
		require.NotNil(t, e.Loss)
		assert.Equal(t, interpreter.Loss{Cause: interpreter.CauseSandbox, Names: []string{"x"}}, *e.Loss)
		assert.Equal(t, interpreter.StatusOK, e.Status)
		assert.Contains(t, e.Notice(), "(x), and so are files")
		assert.Nil(t, run(t, s, "1s").Loss)
		_, err := s.Get(t.Context(), "a.csv")
		assert.ErrorIs(t, err, fs.ErrNotExist)

		// During one.
		go func() { time.Sleep(time.Second); r.Interpreters()[1].Kill() }()
		e = run(t, s, "5s")
		assert.Equal(t, interpreter.StatusLost, e.Status)
		require.NotNil(t, e.Loss)
		assert.Contains(t, e.Notice(), "not run again")
		r.Interpreters()[1].Kill()
		e = run(t, s, "1s")
		assert.Nil(t, e.Loss, "it was told")
		assert.Equal(t, 5, e.Count)
		assert.True(t, r.Interpreters()[1].Closed())

		// On purpose, and then by a file operation.
		require.NoError(t, s.Restart(t.Context()))
		require.NoError(t, s.Restart(t.Context()))
		r.Interpreters()[2].Kill()
		require.NoError(t, s.Put(t.Context(), "b", strings.NewReader("2")))
		e = run(t, s, "1s")
		require.NotNil(t, e.Loss)
		assert.Equal(t, []string{"x"}, e.Loss.Names)
		assert.False(t, e.Loss.FilesKept)
		assert.Nil(t, run(t, s, "1s").Loss)
	})
}

func TestSession_close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := sleeper()
		s := open(t, r, interpreter.Config{})
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				e, err := s.Run(t.Context(), interpreter.Cell{Source: "9s"})
				if err == nil && e.Status == interpreter.StatusLost {
					err = interpreter.ErrClosed
				}
				errs <- err
			}()
			synctest.Wait()
		}
		assert.NoError(t, s.Close())
		assert.ErrorIs(t, <-errs, interpreter.ErrClosed)
		assert.ErrorIs(t, <-errs, interpreter.ErrClosed)
		assert.NoError(t, s.Close())
		assert.True(t, r.Interpreters()[0].Closed())
		assert.Len(t, r.Interpreters(), 1)

		_, err := s.Run(t.Context(), interpreter.Cell{Source: "1s"})
		assert.ErrorIs(t, err, interpreter.ErrClosed)
		assert.ErrorIs(t, s.Put(t.Context(), "a", strings.NewReader("")), interpreter.ErrClosed)
		_, err = s.Interrupt(t.Context())
		assert.ErrorIs(t, err, interpreter.ErrClosed)
		assert.ErrorIs(t, s.Restart(t.Context()), interpreter.ErrClosed)
	})
}

func TestSession_files(t *testing.T) {
	s := open(t, new(fake.Runner), interpreter.Config{})
	data := string([]byte{0, 255, '\r', '\n'})
	require.NoError(t, s.Put(t.Context(), "out/ä.bin", strings.NewReader("old")))
	require.NoError(t, s.Put(t.Context(), "out/ä.bin", strings.NewReader(data)))
	list, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "out/ä.bin", list[0].Name)
	f, err := s.Get(t.Context(), "out/ä.bin")
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	assert.NoError(t, errors.Join(err, f.Close()))
	assert.Equal(t, data, string(b))
	assert.NoError(t, s.Remove(t.Context(), "out"))
	assert.ErrorIs(t, s.Remove(t.Context(), "out"), fs.ErrNotExist)
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "a/b.csv", ".hidden", "…", "a b", strings.Repeat("a", 255)} {
		assert.NoError(t, interpreter.CheckName(good), good)
	}
	for _, bad := range []string{
		"", ".", "..", "/etc/passwd", "../a", "a/../b", "a//b", "a/", "./a", "a\x00b", "a\xff",
		strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a",
	} {
		assert.ErrorIs(t, interpreter.CheckName(bad), fs.ErrInvalid, bad)
		s := open(t, new(fake.Runner), interpreter.Config{})
		assert.ErrorIs(t, s.Put(t.Context(), bad, strings.NewReader("")), fs.ErrInvalid, bad)
		assert.ErrorIs(t, s.Remove(t.Context(), bad), fs.ErrInvalid, bad)
		_, err := s.Get(t.Context(), bad)
		assert.ErrorIs(t, err, fs.ErrInvalid, bad)
	}
}

func picture(t *testing.T, w, h int) []byte {
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))))
	return b.Bytes()
}

// What a cell shows is the word of code that nobody trusts.
func TestSession_displaysAreBounded(t *testing.T) {
	many := make([]interpreter.Display, 1000)
	for i := range many {
		many[i] = interpreter.Display{Main: true, Data: map[string][]byte{"text/plain": []byte("x")}}
	}
	one := func(mime string, data []byte) []interpreter.Display {
		return []interpreter.Display{{Data: map[string][]byte{mime: data}}}
	}
	for name, c := range map[string]struct {
		shown         []interpreter.Display
		want, omitted int
	}{
		"a picture":           {one("image/png", picture(t, 4, 3)), 1, 0},
		"not a picture":       {one("image/png", []byte("<svg>")), 0, 1},
		"another picture":     {one("image/jpeg", picture(t, 4, 3)), 0, 1},
		"a huge picture":      {one("image/png", picture(t, 5000, 5000)), 0, 1},
		"not a type":          {one("image/png\n", picture(t, 4, 3)), 0, 1},
		"a text that is none": {one("text/plain", []byte("\xff")), 0, 1},
		"nothing":             {[]interpreter.Display{{}}, 0, 1},
		"too many":            {many, interpreter.MaxDisplays, 1000 - interpreter.MaxDisplays},
		"too large":           {one("text/html", make([]byte, interpreter.MaxDisplayBytes+1)), 0, 1},
		"a type of one's own": {one("application/vnd.own+json", []byte("{}")), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, &fake.Runner{Cells: func(context.Context, *fake.Interpreter, interpreter.Cell) (interpreter.Execution, error) {
				return interpreter.Execution{Displays: c.shown}, nil
			}}, interpreter.Config{})
			var live []interpreter.Display
			e, err := s.Run(t.Context(), interpreter.Cell{Display: func(d interpreter.Display) { live = append(live, d) }})
			require.NoError(t, err)
			assert.Len(t, e.Displays, c.want)
			assert.Len(t, live, c.want)
			assert.Equal(t, c.omitted, e.Omitted)
			mains := slices.DeleteFunc(slices.Clone(e.Displays), func(d interpreter.Display) bool { return !d.Main })
			assert.LessOrEqual(t, len(mains), 1)
			assert.LessOrEqual(t, len(e.Text()), fnloop.DefaultMaxOutput)
		})
	}
}
