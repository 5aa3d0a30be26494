package interpreter_test

import (
	"context"
	"errors"
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

// keeper is a definer whose interpreters stay, and whose copies know what they
// are copies of.
func keeper() *fake.Runner {
	var mu sync.Mutex
	names := make(map[*fake.Interpreter][]string)
	return &fake.Runner{
		Keep: true,
		Cells: func(_ context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
			mu.Lock()
			defer mu.Unlock()
			names[i] = append(names[i], strings.Fields(c.Source)...)
			return interpreter.Execution{Stdout: strings.Join(names[i], " "), Names: names[i]}, nil
		},
		Copied: func(from, to *fake.Interpreter) {
			mu.Lock()
			defer mu.Unlock()
			names[to] = append([]string{}, names[from]...)
		},
	}
}

// flaky is a runner whose interpreters cannot be found for a while.
type flaky struct {
	*fake.Runner
	err error
}

func (f *flaky) ResumeInterpreter(ctx context.Context, c interpreter.Config, ref string) (interpreter.Driver, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Runner.ResumeInterpreter(ctx, c, ref)
}

func TestSessionsFoundAgain(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		lose      func(*testing.T, *interpreter.Sessions) *interpreter.Sessions
	}{
		{"idle", "the session is let go and not closed", func(t *testing.T, s *interpreter.Sessions) *interpreter.Sessions {
			time.Sleep(21 * time.Minute)
			synctest.Wait()
			assert.Zero(t, s.Len())
			return s
		}},
		{"restart of the host", "the Answer has what finds it", func(t *testing.T, s *interpreter.Sessions) *interpreter.Sessions {
			require.NoError(t, s.Close())
			return &interpreter.Sessions{Runner: s.Runner}
		}},
		{"another place", "at the bound it is let go too", func(t *testing.T, s *interpreter.Sessions) *interpreter.Sessions {
			s.Max = 1
			_, release, err := s.Session(t.Context(), new(fnloop.Answer))
			require.NoError(t, err)
			release()
			return s
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := keeper()
				s := &interpreter.Sessions{Runner: r}
				a := new(fnloop.Answer)
				cell := cells(t, a)
				assert.Equal(t, "alpha", cell(s, "alpha").Stdout)
				s = tt.lose(t, s)
				defer func() { require.NoError(t, s.Close()) }()
				a = restarted(t, a)
				got := cells(t, a)(s, "beta")
				assert.Equal(t, "alpha beta", got.Stdout, tt.why)
				assert.Empty(t, got.Notice, "nothing is lost")
				assert.False(t, r.Interpreters()[0].Closed())
			})
		})
	}
}

func TestSessionsGone(t *testing.T) {
	r := &flaky{Runner: keeper()}
	s := &interpreter.Sessions{Runner: r}
	a := new(fnloop.Answer)
	cell := cells(t, a)
	cell(s, "alpha")
	require.NoError(t, s.Close())

	s = managed(t, &interpreter.Sessions{Runner: r})
	r.err = errors.New("503")
	got := func() string {
		next, err := scripted(s, 7, "beta").Continue(t.Context(), a, "Go.")
		require.NoError(t, err)
		*a = *next
		return next.Calls[len(next.Calls)-1].Text
	}()
	assert.Contains(t, got, "the sandbox failed", "it cannot be told whether it is there")
	assert.Len(t, r.Interpreters(), 1, "so there is no other")
	assert.Zero(t, s.Len())

	r.err = nil
	assert.Equal(t, "alpha gamma", cell(s, "gamma").Stdout, "it was there")
	require.NoError(t, s.Close())
	s = managed(t, &interpreter.Sessions{Runner: r})
	r.Interpreters()[0].Kill()
	lost := cell(s, "delta")
	assert.Equal(t, "delta", lost.Stdout)
	assert.Contains(t, lost.Notice, "alpha, gamma", "what is gone is named")
	assert.Empty(t, cell(s, "epsilon").Notice, "it is told once")
}

// Two calls of one conversation look for its session once.
func TestSessionsFoundOnce(t *testing.T) {
	r := keeper()
	s := &interpreter.Sessions{Runner: r}
	a := new(fnloop.Answer)
	cells(t, a)(s, "alpha")
	require.NoError(t, s.Close())
	s = managed(t, &interpreter.Sessions{Runner: r})
	var wg sync.WaitGroup
	found := make([]*interpreter.Session, 10)
	for i := range found {
		b := restarted(t, a)
		wg.Go(func() {
			session, release, err := s.Session(t.Context(), b)
			if assert.NoError(t, err) {
				defer release()
				found[i] = session
			}
		})
	}
	wg.Wait()
	for _, session := range found {
		assert.Same(t, found[0], session)
	}
	assert.Equal(t, 1, s.Len())
}

func TestSessionsFork(t *testing.T) {
	for _, keep := range []bool{true, false} {
		r := keeper()
		r.Keep = keep
		s := managed(t, &interpreter.Sessions{Runner: r})
		a := new(fnloop.Answer)
		b, err := s.Fork(t.Context(), a)
		require.NoError(t, err)
		assert.Empty(t, r.Interpreters(), "without a session there is nothing to copy")
		assert.NotSame(t, a, b)

		cells(t, a)(s, "base")
		b, err = s.Fork(t.Context(), a)
		require.NoError(t, err)
		left, right := cells(t, a)(s, "left"), cells(t, b)(s, "right")
		assert.Equal(t, "base left", left.Stdout)
		assert.Equal(t, "base right", right.Stdout)
		assert.Empty(t, left.Notice+right.Notice, "no branch meets the other")
		assert.Equal(t, "base right more", cells(t, b)(s, "more").Stdout)

		late, err := s.Fork(t.Context(), &fnloop.Answer{ToolState: a.ToolState})
		require.NoError(t, err)
		assert.Equal(t, "base left last", cells(t, late)(s, "last").Stdout)
	}
}

func TestSessionsEnd(t *testing.T) {
	r := keeper()
	s := managed(t, &interpreter.Sessions{Runner: r})
	require.NoError(t, s.End(t.Context(), new(fnloop.Answer)))
	require.Error(t, s.End(t.Context(), nil))
	for i, before := range []func(){func() {}, func() { require.NoError(t, s.Close()); s = managed(t, &interpreter.Sessions{Runner: r}) }} {
		a := new(fnloop.Answer)
		cells(t, a)(s, "x")
		before()
		require.NoError(t, s.End(t.Context(), a))
		assert.True(t, r.Interpreters()[i].Closed())
		assert.Empty(t, a.ToolState)
		assert.Zero(t, s.Len())
	}
}

func TestSessionResume(t *testing.T) {
	r := keeper()
	s, err := interpreter.Open(t.Context(), r, interpreter.Config{})
	require.NoError(t, err)
	run := func(s *interpreter.Session, source string) string {
		e, err := s.Run(t.Context(), interpreter.Cell{Source: source})
		require.NoError(t, err)
		return e.Stdout
	}
	run(s, "a")
	require.NoError(t, s.Pause(t.Context()))
	assert.Equal(t, 1, r.Interpreters()[0].Pauses())
	ref, snapshot := s.Ref(), ""
	require.NotEmpty(t, ref)
	snapshot, err = s.Snapshot(t.Context())
	require.NoError(t, err)
	copies, err := s.Fork(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, s.Release())
	require.NoError(t, s.Release(), "once more does nothing")
	_, err = s.Run(t.Context(), interpreter.Cell{Source: "b"})
	require.ErrorIs(t, err, interpreter.ErrClosed)

	again, err := interpreter.Resume(t.Context(), r, interpreter.Config{}, ref)
	require.NoError(t, err)
	assert.Equal(t, "a b", run(again, "b"))
	for _, c := range copies {
		assert.Equal(t, "a c", run(c, "c"))
		require.NoError(t, c.Close())
	}
	for range 2 {
		other, err := interpreter.Resume(t.Context(), r, interpreter.Config{}, snapshot)
		require.NoError(t, err)
		assert.Contains(t, run(other, "d"), "a")
		assert.NotEqual(t, ref, other.Ref())
		require.NoError(t, other.Close())
	}
	require.NoError(t, interpreter.End(t.Context(), r, snapshot))
	_, err = interpreter.Resume(t.Context(), r, interpreter.Config{}, snapshot)
	require.ErrorIs(t, err, interpreter.ErrGone)
	require.NoError(t, again.Close())
	_, err = interpreter.Resume(t.Context(), r, interpreter.Config{}, ref)
	require.ErrorIs(t, err, interpreter.ErrGone)
}

// bare is a runner that can keep an interpreter alive and no more.
type bare struct{ r *fake.Runner }

func (b bare) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	return b.r.Run(ctx, p)
}

type bareDriver struct{ interpreter.Driver }

func (b bare) OpenInterpreter(ctx context.Context, c interpreter.Config) (interpreter.Driver, error) {
	d, err := b.r.OpenInterpreter(ctx, c)
	return bareDriver{d}, err
}

func TestKeptUnsupported(t *testing.T) {
	r := bare{keeper()}
	s, err := interpreter.Open(t.Context(), r, interpreter.Config{})
	require.NoError(t, err)
	assert.Empty(t, s.Ref())
	_, err = s.Fork(t.Context(), 1)
	require.ErrorIs(t, err, interpreter.ErrUnsupported)
	_, err = s.Snapshot(t.Context())
	require.ErrorIs(t, err, interpreter.ErrUnsupported)
	require.ErrorIs(t, s.Pause(t.Context()), interpreter.ErrUnsupported)
	_, err = interpreter.Resume(t.Context(), r, interpreter.Config{}, "x")
	require.ErrorIs(t, err, interpreter.ErrUnsupported)
	require.ErrorIs(t, interpreter.End(t.Context(), r, "x"), interpreter.ErrUnsupported)
	require.NoError(t, s.Release())
	assert.True(t, r.r.Interpreters()[0].Closed(), "what cannot be kept is closed")
	_, err = interpreter.Open(t.Context(), r, interpreter.Config{Language: "cobol"})
	bad, ok := errors.AsType[*fnloop.ProgramError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "language", bad.Field)
}

// A tool of another language says which.
func TestSessionsLanguage(t *testing.T) {
	r := keeper()
	r.Env.Languages = []fnloop.Language{{Name: "python"}, {Name: "r"}}
	s := managed(t, &interpreter.Sessions{Runner: r, Config: interpreter.Config{Language: "r"}})
	tool := s.Tool()
	assert.Equal(t, "r", tool.Name)
	assert.Contains(t, tool.Description, "in the language r ")
	assert.NotContains(t, tool.Description+string(tool.Parameters), "Python")
	assert.Equal(t, "python", (&interpreter.Sessions{Runner: r}).Tool().Name)
	assert.Equal(t, "calc", (&interpreter.Sessions{Runner: r, Name: "calc", Config: s.Config}).Tool().Name)
	_, release, err := s.Session(t.Context(), new(fnloop.Answer))
	require.NoError(t, err)
	release()
}
