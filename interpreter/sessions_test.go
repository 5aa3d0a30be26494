package interpreter_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// definer is a fake whose cells define the names that their source lists, and
// print all names that there are.
func definer() *fake.Runner {
	var mu sync.Mutex
	names := make(map[*fake.Interpreter][]string)
	return &fake.Runner{Cells: func(ctx context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
		mu.Lock()
		defer mu.Unlock()
		names[i] = append(names[i], strings.Fields(c.Source)...)
		return interpreter.Execution{Stdout: strings.Join(names[i], " "), Names: names[i]}, nil
	}}
}

func managed(t *testing.T, s *interpreter.Sessions) *interpreter.Sessions {
	t.Helper()
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// asks makes a Loop whose model makes one call of the tool for each code, and then
// answers, once for each of the conversations that are played.
func asks(t *testing.T, s *interpreter.Sessions, replies ...rt.Reply) *fnloop.Loop {
	t.Helper()
	srv := rt.NewServer(replies...)
	t.Cleanup(func() {
		srv.Close()
		require.NoError(t, srv.Err())
	})
	return &fnloop.Loop{Client: srv.Client(), Model: "gpt-test", Tools: []fnloop.Tool{s.Tool()}}
}

func code(source string) string {
	b, _ := json.Marshal(map[string]string{"code": source})
	return string(b)
}

func python(id, source string) rt.Reply { return rt.Call(id, "python", code(source)) }

// result decodes what the model reads.
func result(t *testing.T, c fnloop.CallResult) (doc struct{ Status, Notice, Stdout, Result string }) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(c.Text), &doc), c.Text)
	return doc
}

// restarted is an Answer as another process reads it.
func restarted(t *testing.T, a *fnloop.Answer) *fnloop.Answer {
	t.Helper()
	b, err := json.Marshal(a)
	require.NoError(t, err)
	back := new(fnloop.Answer)
	require.NoError(t, json.Unmarshal(b, back))
	return back
}

func TestSessionsKeepVariables(t *testing.T) {
	r := definer()
	s := managed(t, &interpreter.Sessions{Runner: r})
	loop := asks(t, s,
		rt.Join(python("c1", "a"), python("c2", "b"), python("c3", "c")), rt.Text("one"),
		python("c4", "d"), rt.Text("two"),
		python("c5", "z"), rt.Text("other"))
	first, err := loop.Run(t.Context(), "Go.")
	require.NoError(t, err)
	assert.Equal(t, "a b c", result(t, first.Calls[2]).Stdout, "calls of one response run in their order")
	assert.Empty(t, result(t, first.Calls[2]).Notice)
	second, err := loop.Continue(t.Context(), restarted(t, first), "On.")
	require.NoError(t, err)
	assert.Equal(t, "a b c d", result(t, second.Calls[0]).Stdout, "the session is found through the stored Answer")
	assert.Empty(t, result(t, second.Calls[0]).Notice)
	other, err := loop.Run(t.Context(), "Somebody else.")
	require.NoError(t, err)
	assert.Equal(t, "z", result(t, other.Calls[0]).Stdout, "another conversation has another session")
	assert.Equal(t, 2, s.Len())

	for _, a := range []*fnloop.Answer{first, second, other} {
		var st struct{ Ref string }
		require.NoError(t, json.Unmarshal(a.ToolState["python"], &st))
		require.NotEmpty(t, st.Ref)
		for _, c := range a.Calls {
			assert.NotContains(t, c.Text, st.Ref, "the model never reads what finds a session")
		}
	}
}

func TestSessionsLost(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		lose      func(*interpreter.Sessions) *interpreter.Sessions
		notice    string
	}{
		{"idle", "the place was given up", func(s *interpreter.Sessions) *interpreter.Sessions {
			time.Sleep(21 * time.Minute)
			synctest.Wait()
			return s
		}, "nobody had used it for long"},
		{"restart of the host", "another process knows nothing", func(s *interpreter.Sessions) *interpreter.Sessions {
			require.NoError(t, s.Close())
			return &interpreter.Sessions{Runner: s.Runner}
		}, "restarted"},
		{"not idle", "nineteen minutes are fine", func(s *interpreter.Sessions) *interpreter.Sessions {
			time.Sleep(19 * time.Minute)
			return s
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &interpreter.Sessions{Runner: definer()}
				a := new(fnloop.Answer)
				cell := cells(t, a)
				assert.Equal(t, "alpha beta", cell(s, "alpha beta").Stdout)
				s = tt.lose(s)
				defer func() { require.NoError(t, s.Close()) }()
				got := cell(s, "gamma")
				if tt.notice == "" {
					assert.Empty(t, got.Notice, tt.why)
					assert.Equal(t, "alpha beta gamma", got.Stdout)
					return
				}
				assert.Equal(t, "gamma", got.Stdout)
				assert.Contains(t, got.Notice, tt.notice, tt.why)
				assert.Contains(t, got.Notice, "alpha, beta", "what is gone is named")
				assert.Contains(t, got.Notice, "so are files")
				assert.Empty(t, cell(s, "delta").Notice, "it is told once")
			})
		})
	}
}

// cells runs cells in the conversation of an Answer, without a server: the Loop's
// transport makes the calls.
func cells(t *testing.T, a *fnloop.Answer) func(s *interpreter.Sessions, source string) struct{ Status, Notice, Stdout, Result string } {
	n := 0
	return func(s *interpreter.Sessions, source string) struct{ Status, Notice, Stdout, Result string } {
		n++
		loop := scripted(s, n, source)
		next, err := loop.Continue(t.Context(), a, "Go.")
		require.NoError(t, err)
		*a = *next
		return result(t, next.Calls[len(next.Calls)-1])
	}
}

func TestSessionsDiverge(t *testing.T) {
	s := managed(t, &interpreter.Sessions{Runner: definer()})
	loop := asks(t, s,
		python("c1", "base"), rt.Text("1"),
		python("c2", "left"), rt.Text("2"),
		python("c3", "right"), rt.Text("3"))
	base, err := loop.Run(t.Context(), "Go.")
	require.NoError(t, err)
	left, err := loop.Continue(t.Context(), base, "Left.")
	require.NoError(t, err)
	assert.Empty(t, result(t, left.Calls[0]).Notice)
	right, err := loop.Continue(t.Context(), base, "Right.")
	require.NoError(t, err)
	notice := result(t, right.Calls[0]).Notice
	assert.Contains(t, notice, "Another branch", "two branches never mix in silence")
	assert.Contains(t, notice, "left", "what the other branch has defined is named")
	assert.NotContains(t, notice, "base")
}

func TestSessionsMax(t *testing.T) {
	s := managed(t, &interpreter.Sessions{Runner: definer(), Max: 2})
	answers := make([]*fnloop.Answer, 3)
	for i := range answers {
		answers[i] = new(fnloop.Answer)
		_, release, err := s.Session(t.Context(), answers[i])
		require.NoError(t, err)
		if i < 2 {
			release()
		} else {
			defer release()
		}
	}
	assert.Equal(t, 2, s.Len())
	again, release, err := s.Session(t.Context(), answers[1])
	require.NoError(t, err)
	defer release()
	assert.NotNil(t, again)

	t.Run("a busy one is never closed", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
		defer cancel()
		_, _, err := s.Session(ctx, new(fnloop.Answer))
		require.ErrorContains(t, err, "all 2 sessions are busy: enough")
	})
	t.Run("who waits gets the next that is free", func(t *testing.T) {
		got := make(chan error)
		go func() {
			_, release, err := s.Session(t.Context(), new(fnloop.Answer))
			if err == nil {
				release()
			}
			got <- err
		}()
		release()
		require.NoError(t, <-got)
	})
	t.Run("the evicted conversation is told", func(t *testing.T) {
		st := fmt.Sprintf(`{"ref":"gone","cells":3,"names":["df"]}`)
		a := &fnloop.Answer{ToolState: map[string]json.RawMessage{"python": json.RawMessage(st)}}
		assert.Contains(t, cells(t, a)(s, "x").Notice, "df")
	})
}

func TestSessionsUploads(t *testing.T) {
	s := managed(t, &interpreter.Sessions{Runner: definer()})
	a := new(fnloop.Answer)
	session, release, err := s.Session(t.Context(), a)
	require.NoError(t, err)
	require.NoError(t, session.Put(t.Context(), "data.csv", strings.NewReader("a,b\n1,2\n")))
	release()
	release() // once more does nothing
	a = restarted(t, a)
	assert.Empty(t, cells(t, a)(s, "x").Notice, "a session that has run nothing has lost nothing")
	session, release, err = s.Session(t.Context(), a)
	require.NoError(t, err)
	defer release()
	files, err := session.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, files, 1, "the upload is in the session of the conversation")

	_, _, err = s.Session(t.Context(), nil)
	require.ErrorContains(t, err, "the Answer is nil")
	_, _, err = s.Session(t.Context(), &fnloop.Answer{ToolState: map[string]json.RawMessage{"python": json.RawMessage(`7`)}})
	require.ErrorContains(t, err, "cannot be read")
}

func noise(t *testing.T, side int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, side, side))
	_, _ = rand.NewChaCha8([32]byte{}).Read(m.Pix) // it does not fail
	m.Set(0, 0, color.Black)
	var buf bytes.Buffer
	require.NoError(t, png.Encode(&buf, m))
	return buf.Bytes()
}

func TestSessionsImages(t *testing.T) {
	small, large := noise(t, 100), noise(t, 520) // 40 KB and 1.08 MB
	require.Greater(t, len(large), interpreter.MaxImageBytes)
	show := func(images ...[]byte) *fake.Runner {
		return &fake.Runner{Cells: func(context.Context, *fake.Interpreter, interpreter.Cell) (interpreter.Execution, error) {
			var e interpreter.Execution
			for _, png := range images {
				e.Displays = append(e.Displays, interpreter.Display{Data: map[string][]byte{"image/png": png, "text/plain": []byte("<Figure>")}})
			}
			return e, nil
		}}
	}
	for _, tt := range []struct {
		name, why string
		sessions  *interpreter.Sessions
		want      int // images that the model is sent
		note      string
	}{
		{"small ones", "they go inline", &interpreter.Sessions{Runner: show(small, small)}, 2, ""},
		{"a large one", "bytes must not pile up", &interpreter.Sessions{Runner: show(small, large)}, 1, "You cannot see 1 of them"},
		{"none wanted", "the model cannot see", &interpreter.Sessions{Runner: show(small), NoImages: true}, 0, "1 of them"},
		{"uploads", "any size goes elsewhere", &interpreter.Sessions{Runner: show(large), Upload: func(_ context.Context, mime string, data []byte) (fnloop.Content, error) {
			assert.Equal(t, "image/png", mime)
			assert.Equal(t, large, data)
			return fnloop.Content{ImageID: "file_7"}, nil
		}}, 1, ""},
		{"uploads that fail", "the answer goes on without", &interpreter.Sessions{Runner: show(small), Upload: func(context.Context, string, []byte) (fnloop.Content, error) {
			return fnloop.Content{}, errors.New("no")
		}}, 0, "1 of them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := managed(t, tt.sessions)
			loop := asks(t, s, python("c1", "plot"), rt.Text("Look."))
			var shown []interpreter.Shown
			var answer *fnloop.Answer
			for e, err := range loop.Events(t.Context(), nil, "Plot.") {
				require.NoError(t, err)
				switch e := e.(type) {
				case interpreter.Shown:
					shown = append(shown, e)
				case fnloop.Done:
					answer = e.Answer
				}
			}
			call := answer.Calls[0]
			images := 0
			for _, part := range call.Content {
				if part.ImageURL != "" || part.ImageID != "" {
					images++
				}
			}
			assert.Equal(t, tt.want, images, tt.why)
			assert.Contains(t, result(t, call).Notice, tt.note)
			assert.NotEmpty(t, shown, "the user sees every image as it is shown")
			for _, e := range shown {
				assert.Equal(t, "c1", e.Call)
			}
		})
	}
	t.Run("a long conversation", func(t *testing.T) {
		medium := noise(t, 450) // 0.8 MB
		s := managed(t, &interpreter.Sessions{Runner: show(medium)})
		a := new(fnloop.Answer)
		cell := cells(t, a)
		sent := 0
		for range 15 {
			cell(s, "plot")
			sent += len(a.Calls[len(a.Calls)-1].Content) / 2
		}
		assert.Equal(t, interpreter.MaxConversationImageBytes/len(medium), sent, "there is a bound for all of it")
	})
}

// unable is a runner that has the method and cannot do it.
type unable struct{ *fake.Runner }

func (unable) OpenInterpreter(context.Context, interpreter.Config) (interpreter.Driver, error) {
	return nil, errors.New("no sandbox here")
}

func TestSessionsOfBrokenRunners(t *testing.T) {
	_, _, err := (&interpreter.Sessions{Runner: oneShot{}}).Session(t.Context(), new(fnloop.Answer))
	require.ErrorIs(t, err, interpreter.ErrUnsupported)

	s := managed(t, &interpreter.Sessions{Runner: unable{definer()}, Max: 1})
	loop := asks(t, s, rt.Join(python("c1", "a"), python("c2", "b")))
	a, err := loop.Run(t.Context(), "Go.")
	require.ErrorContains(t, err, "no sandbox here", "the second in a row is the host's trouble")
	_, stopped := errors.AsType[*fnloop.ToolError](err)
	assert.True(t, stopped)
	for _, c := range a.Calls {
		assert.NotContains(t, c.Text, "no sandbox here", "the model cannot mend it")
	}
	assert.Zero(t, s.Len(), "a place that was not used is free again")
}

type oneShot struct{}

func (oneShot) Run(context.Context, fnloop.Program) (fnloop.Result, error) {
	return fnloop.Result{}, nil
}

func TestSessionsOnCell(t *testing.T) {
	r := definer()
	var saved []string
	s := managed(t, &interpreter.Sessions{Runner: r, OnCell: func(ctx context.Context, s *interpreter.Session, e interpreter.Execution) error {
		for _, f := range e.Files {
			saved = append(saved, f.Name)
		}
		if len(e.Names) > 1 {
			return errors.New("disk full")
		}
		return nil
	}})
	loop := asks(t, s, python("c1", "a"), python("c2", "b"))
	_, err := loop.Run(t.Context(), "Go.")
	require.ErrorContains(t, err, "disk full", "the host's trouble ends the run")
}

// TestSessionsCrowd: many conversations at once, more than there may be sessions,
// of which none sees the variables of another without being told of it.
func TestSessionsCrowd(t *testing.T) {
	s := managed(t, &interpreter.Sessions{Runner: definer(), Max: 5, Idle: time.Millisecond})
	var told, kept atomic.Int32
	var wg sync.WaitGroup
	for i := range 25 {
		wg.Go(func() {
			a := new(fnloop.Answer)
			cell := cells(t, a)
			var want []string
			for n := range 8 {
				name := fmt.Sprintf("v%d_%d", i, n)
				got := cell(s, name)
				if strings.Contains(got.Notice, "are gone") {
					told.Add(1)
					want = nil
				} else {
					kept.Add(1)
				}
				want = append(want, name)
				assert.Equal(t, strings.Join(want, " "), got.Stdout)
			}
		})
	}
	wg.Wait()
	assert.Positive(t, kept.Load())
}

// A sandbox that takes the place of one that was lost has the files too, and the
// model is told so.
func TestSessions_onOpenAgain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		kill    string // the cell that the sandbox is lost in, or before
		away    int    // how often the store fails after the first time
		notices []string
	}{
		{"between two cells", "before two", 0, []string{"", "files are kept", ""}},
		{"in a cell", "in two", 0, []string{"", "files are kept", ""}},
		{"in a cell, while the store is away", "in two", 1, []string{"", "and so are files", ""}},
		{"between two cells, while the store is away", "before two", 1, []string{"", "not run", "files are kept"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runner := &fake.Runner{}
			runner.Cells = func(ctx context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
				if tt.kill == "in "+c.Source {
					i.Kill()
					<-ctx.Done()
				}
				files, err := i.List(ctx)
				if err != nil {
					return interpreter.Execution{}, err
				}
				return interpreter.Execution{Stdout: fmt.Sprint(len(files)), Names: []string{c.Source}}, nil
			}
			opened := 0
			s := managed(t, &interpreter.Sessions{Runner: runner, OnOpen: func(ctx context.Context, s *interpreter.Session) error {
				if opened++; opened > 1 && opened <= 1+tt.away {
					return errors.New("the store is away")
				}
				return s.Put(ctx, "data.csv", strings.NewReader("a,b\n"))
			}})
			loop := asks(t, s, rt.PerConversation(python("call_1", "one"), rt.Text("1"), python("call_2", "two"), rt.Text("2"), python("call_3", "three"), rt.Text("3")))
			var a *fnloop.Answer
			for n, prompt := range []string{"one", "two", "three"} {
				if n == 1 && tt.kill == "before two" {
					runner.Interpreters()[0].Kill()
				}
				var err error
				a, err = loop.Continue(t.Context(), cmp.Or(a, new(fnloop.Answer)), prompt)
				require.NoError(t, err)
				if want := tt.notices[n]; want == "" {
					assert.NotContains(t, a.Calls[0].Text, "notice", prompt)
				} else {
					assert.Contains(t, a.Calls[0].Text, want, prompt)
				}
			}
			assert.Equal(t, "1", result(t, a.Calls[0]).Stdout, "the file is there")
		})
	}
}

func TestSessions_onOpen(t *testing.T) {
	var opened int
	s := managed(t, &interpreter.Sessions{
		Runner: definer(),
		OnOpen: func(ctx context.Context, s *interpreter.Session) error {
			if opened++; opened == 3 {
				return errors.New("the store is away")
			}
			return s.Put(ctx, "data.csv", strings.NewReader("a,b\n"))
		},
		Idle: time.Nanosecond, // so that each call needs another session
	})
	loop := asks(t, s, rt.PerConversation(python("call_1", "alpha"), rt.Text("one"), python("call_2", "beta"), rt.Text("two"), python("call_3", "gamma"), rt.Text("three")))
	a, err := loop.Run(t.Context(), "a")
	require.NoError(t, err)
	assert.Empty(t, result(t, a.Calls[0]).Notice)
	require.Eventually(t, func() bool { return s.Len() == 0 }, 5*time.Second, time.Millisecond)

	a, err = loop.Continue(t.Context(), a, "b")
	require.NoError(t, err)
	assert.Equal(t, 2, opened)
	notice := result(t, a.Calls[0]).Notice
	assert.Contains(t, notice, "(alpha)")
	assert.Contains(t, notice, "files are kept", "OnOpen has put them back")
	require.Eventually(t, func() bool { return s.Len() == 0 }, 5*time.Second, time.Millisecond)

	a, err = loop.Continue(t.Context(), a, "c")
	require.NoError(t, err)
	require.ErrorContains(t, a.Calls[0].Err, "the files of the conversation: the store is away")
	assert.Contains(t, a.Calls[0].Text, "the cell was not run", "and the model is not told of the host's store")
	assert.Zero(t, s.Len(), "a session without its files is not kept")
}
