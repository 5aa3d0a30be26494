// Package dbtest tests package chatstore on SQLite and PostgreSQL, whose drivers
// are no requirement of the library's.
package dbtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/internal/pgtest"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// A database is one that several processes open.
type database struct {
	t           *testing.T
	driver, dsn string
}

// open gives the store of one more process.
func (d database) open() *chatstore.Store {
	d.t.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { db.Close() })
	s := &chatstore.Store{DB: db}
	require.NoError(d.t, s.Migrate(d.t.Context()))
	return s
}

// onEach runs a test on each database. Each test has names of its own, so that they
// can share one.
func onEach(t *testing.T, f func(t *testing.T, d database)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, database{t, "sqlite", "file:" + filepath.Join(t.TempDir(), "chat.db") + "?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)"})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, database{t, "pgx", pgtest.Start(t)})
	})
}

func play(t *testing.T, replies ...rt.Reply) *fnloop.Loop {
	srv := rt.NewServer(replies...)
	t.Cleanup(srv.Close)
	return &fnloop.Loop{Client: srv.Client(), Model: "gpt-test", State: fnloop.Stateless}
}

// do does a run to its end.
func do(t *testing.T, r *chatstore.Run, loop *fnloop.Loop) (a *fnloop.Answer, events []fnloop.Event, err error) {
	t.Helper()
	for e, failed := range r.Events(t.Context(), loop) {
		events = append(events, e)
		if done, ok := e.(fnloop.Done); ok {
			a, err = done.Answer, failed
		}
	}
	require.NotNil(t, a)
	return a, events, err
}

// ask posts to the end of a chat.
func ask(t *testing.T, s *chatstore.Store, c chatstore.Chat, text string) *chatstore.Run {
	t.Helper()
	now, err := s.Chat(t.Context(), c.Owner, c.ID)
	require.NoError(t, err)
	r, err := s.Post(t.Context(), c.Owner, c.ID, chatstore.Message{Version: now.Version, Parent: now.Head, Text: text})
	require.NoError(t, err)
	return r
}

func newChat(t *testing.T, s *chatstore.Store, owner string) chatstore.Chat {
	t.Helper()
	c, err := s.NewChat(t.Context(), owner)
	require.NoError(t, err)
	return c
}

func TestStore(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply { return rt.Text("You said: " + turn.Prompt()) }))
		c := newChat(t, s, "ann")
		list, err := s.Chats(t.Context(), "ann", 10)
		require.NoError(t, err)
		assert.Empty(t, list, "which nobody has written in")

		long := strings.Repeat("Grüße, ", 20) + "\nsecond line \x00 \U0001F600 \xff"
		a, _, err := do(t, ask(t, s, c, long), loop)
		require.NoError(t, err)
		assert.Contains(t, a.Text, "second line  \U0001F600 \ufffd")
		_, _, err = do(t, ask(t, s, c, "two"), loop)
		require.NoError(t, err)

		c, err = d.open().Chat(t.Context(), "ann", c.ID)
		require.NoError(t, err)
		assert.Equal(t, int64(2), c.Version)
		assert.Equal(t, []rune("Grüße, ")[0], []rune(c.Title)[0])
		assert.Len(t, []rune(c.Title), 61)
		runs, err := s.Runs(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, runs, 2)
		assert.Equal(t, runs[0].ID, runs[1].Parent)
		assert.Equal(t, "two", runs[1].Prompt.Text)
		assert.True(t, runs[0].Ended)
		assert.Contains(t, string(runs[1].Seen), `"type":"done"`)

		// A front end of another kind sends pictures as parts.
		pictures := play(t, rt.Always(func(turn *rt.Turn) rt.Reply { return rt.Text(string(turn.New[len(turn.New)-1])) }))
		withPart, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 2, Parent: c.Head, Parts: []fnloop.Content{{ImageURL: "https://x.example/a.png"}}})
		require.NoError(t, err)
		a, _, err = do(t, withPart, pictures)
		require.NoError(t, err)
		assert.Contains(t, a.Text, "https://x.example/a.png")

		// The first message is edited: the chat forks.
		edited, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 3, Text: "one"})
		require.NoError(t, err)
		a, _, err = do(t, edited, loop)
		require.NoError(t, err)
		assert.Equal(t, "You said: one", a.Text)
		c, err = s.Chat(t.Context(), "ann", c.ID)
		require.NoError(t, err)
		runs, err = s.Runs(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		list, err = s.Chats(t.Context(), "ann", 10)
		require.NoError(t, err)
		assert.Equal(t, []chatstore.Chat{c}, list)

		for _, owner := range []string{"bob", "", "ann\x00", "an\xffn"} {
			_, err = s.Chat(t.Context(), owner, c.ID)
			assert.ErrorIs(t, err, chatstore.ErrNotFound, "%q", owner)
			_, err = s.Post(t.Context(), owner, c.ID, chatstore.Message{Version: 4, Text: "hi"})
			assert.ErrorIs(t, err, chatstore.ErrNotFound, "%q", owner)
		}
	})
}

func TestStore_refusedMessages(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		s.MaxFile, s.MaxFiles = 10, 25
		loop := play(t, rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("yes") }))
		c := newChat(t, s, "ann")
		other := ask(t, s, newChat(t, s, "ann"), "elsewhere")
		first := ask(t, s, c, "hi")
		_, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 1, Parent: first.ID, Text: "hi"})
		require.ErrorIs(t, err, fnloop.ErrBusy, "a run that has not ended waits for a process")
		_, _, err = do(t, first, loop)
		require.NoError(t, err)
		_, _, err = do(t, ask(t, s, c, "and?"), loop)
		require.NoError(t, err)
		c, err = s.Chat(t.Context(), "ann", c.ID)
		require.NoError(t, err)

		ten := []byte("0123456789")
		approve := map[string]fnloop.Decision{"call_1": {Approve: true}}
		for _, tt := range []struct {
			name    string
			m       chatstore.Message
			is      error
			input   string // what the owner is told
			because string
		}{
			{"an old version", chatstore.Message{Version: 1, Parent: c.Head, Text: "x"}, chatstore.ErrConflict, "", "another tab has written"},
			{"a version of the future", chatstore.Message{Version: 3, Parent: c.Head, Text: "x"}, chatstore.ErrConflict, "", "nobody has seen it"},
			{"an unknown parent", chatstore.Message{Version: 2, Parent: "nothing", Text: "x"}, chatstore.ErrNotFound, "", "there is nothing to go on from"},
			{"a parent that is no text", chatstore.Message{Version: 2, Parent: "\x00\xff", Text: "x"}, chatstore.ErrNotFound, "", "the database must not see it"},
			{"a parent of another chat", chatstore.Message{Version: 2, Parent: other.ID, Text: "x"}, chatstore.ErrNotFound, "", "conversations must not mix"},
			{"nothing", chatstore.Message{Version: 2, Parent: c.Head}, nil, "The message is empty.", "there is nothing to go on with"},
			{"nothing but what is left out", chatstore.Message{Version: 2, Parent: c.Head, Text: " \x00\n"}, nil, "The message is empty.", "it is nothing in the end"},
			{"a text without end", chatstore.Message{Version: 2, Parent: c.Head, Text: strings.Repeat("x", chatstore.MaxText+1)}, nil, "The text has more than 1 MiB. Send it as a file.", "the API would refuse this and all that follows"},
			{"nothing, earlier", chatstore.Message{Version: 2, Parent: first.ID}, nil, "Only the last message can be decided on or continued.", "that would repeat what followed"},
			{"a decision on what does not wait", chatstore.Message{Version: 2, Parent: c.Head, Decisions: approve}, chatstore.ErrConflict, "", "approvals are used once"},
			{"a decision and a text", chatstore.Message{Version: 2, Parent: c.Head, Text: "x", Decisions: approve}, chatstore.ErrConflict, "", "neither may get lost"},
			{"a decision earlier", chatstore.Message{Version: 2, Parent: first.ID, Text: "x", Decisions: approve}, nil, "Only the last message can be decided on or continued.", "the call could run twice"},
			{"a large file", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "a", Data: append(ten, 'x')}}}, nil, "The file a cannot be taken: it may have at most 10 bytes.", "it could not be kept"},
			{"a hidden file", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: ".profile", Data: ten}}}, nil, `The file ".profile" cannot be taken: it needs a plain name.`, "nobody would see it"},
			{"a path out", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: `..\..`, Data: ten}}}, nil, `The file ".." cannot be taken: it needs a plain name.`, "it is no name"},
			{"a name that is no text", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "a\xff", Data: ten}}}, nil, `The file "a\xff" cannot be taken: it needs a plain name.`, "the database refuses it"},
			{"two of a name", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "a", Data: ten}, {Name: "x/a", Data: ten}}}, nil, "Two files are named a.", "one would be lost"},
			{"a picture that is none", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "a.PNG", Data: ten}}}, nil, "The picture a.PNG cannot be sent: image: the data is text/plain, and the API takes PNG, JPEG, WebP and GIF.", "the API refuses it for ever"},
			{"too many files", chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "a", Data: ten}, {Name: "b", Data: ten}, {Name: "c", Data: ten}}}, nil, "The files of a chat may have 25 bytes together.", "the database is not endless"},
		} {
			_, err := s.Post(t.Context(), "ann", c.ID, tt.m)
			if tt.is != nil {
				assert.ErrorIs(t, err, tt.is, "%s: %s", tt.name, tt.because)
				continue
			}
			var input *chatstore.InputError
			if assert.ErrorAs(t, err, &input, "%s: %s", tt.name, tt.because) {
				assert.Equal(t, tt.input, input.Reason, tt.name)
			}
		}
		now, err := s.Chat(t.Context(), "ann", c.ID)
		require.NoError(t, err)
		assert.Equal(t, c, now, "nothing has changed")
		r, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 2, Parent: c.Head, Files: []chatstore.File{{Name: "scan.tiff", Data: ten}, {Name: "x.svg", Data: ten}}})
		require.NoError(t, err)
		assert.Equal(t, []string{"scan.tiff", "x.svg"}, r.Prompt.Files, "pictures that only code can read are files")
		_, err = s.File(t.Context(), c, "a")
		assert.ErrorIs(t, err, chatstore.ErrNotFound)
	})
}

// Of messages that come at once, over several processes, one begins a run.
func TestStore_postsAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		stores := []*chatstore.Store{d.open(), d.open(), d.open()}
		c := newChat(t, stores[0], "ann")
		for round := range 5 {
			now, err := stores[0].Chat(t.Context(), "ann", c.ID)
			require.NoError(t, err)
			var begun, refused atomic.Int64
			var wg sync.WaitGroup
			for i := range 9 {
				wg.Go(func() {
					s := *stores[i%3]
					s.Running = func(string) bool { return false }
					_, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: now.Version, Parent: now.Head, Text: fmt.Sprint(i)})
					if err == nil {
						begun.Add(1)
					} else if assert.ErrorIs(t, err, chatstore.ErrConflict) {
						refused.Add(1)
					}
				})
			}
			wg.Wait()
			require.Equal(t, int64(1), begun.Load(), round)
			require.Equal(t, int64(8), refused.Load(), round)
		}
	})
}

// A worker that has lost its run stores nothing more and starts no further call,
// and the one that took it over makes no call twice.
func TestStore_taken(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		first, second := d.open(), d.open()
		var ran sync.Map // counts by call
		started, goOn := make(chan bool, 1), make(chan bool)
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if n := len(turn.Outputs()); n < 3 {
				reply := rt.Call(fmt.Sprintf("call_%d", n), "step", "{}")
				reply.Usage = &rt.Usage{InputTokens: 10, OutputTokens: 1}
				return reply
			}
			return rt.Text(strings.Join(turn.Outputs(), "; "))
		}))
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(ctx context.Context, _ struct{}) (string, error) {
			call, _ := fnloop.CallFrom(ctx)
			n, _ := ran.LoadOrStore(call.ID, new(atomic.Int64))
			if n.(*atomic.Int64).Add(1); call.ID == "call_1" {
				started <- true
				<-goOn
			}
			return call.ID + " of " + chatstore.ChatID(ctx)[:3], nil
		})}
		c := newChat(t, first, "ann")
		slow := ask(t, first, c, "go")
		type end struct {
			a      *fnloop.Answer
			events []fnloop.Event
			err    error
		}
		ended := make(chan end)
		go func() {
			a, events, err := do(t, slow, loop)
			ended <- end{a, events, err}
		}()
		<-started

		taken, err := second.Take(t.Context(), slow.ID)
		require.NoError(t, err)
		assert.Contains(t, string(taken.Seen), `"call_finished"`, "what the owner has seen of it")
		a, _, err := do(t, taken, loop)
		require.NoError(t, err)
		assert.Contains(t, a.Text, "call_0 of "+c.ID[:3])
		assert.Contains(t, a.Text, "interrupted", "what the second call did is not known")

		close(goOn)
		late := <-ended
		require.ErrorIs(t, late.err, chatstore.ErrTaken)
		assert.Equal(t, chatstore.Problem{Code: "taken", Message: "The chat has gone on elsewhere. Load it again."}, late.events[len(late.events)-2])
		ran.Range(func(id, n any) bool {
			assert.Equal(t, int64(1), n.(*atomic.Int64).Load(), id)
			return true
		})

		c, err = first.Chat(t.Context(), "ann", c.ID)
		require.NoError(t, err)
		runs, err := first.Runs(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		var seen []struct{ Type, ID, Text string }
		require.NoError(t, json.Unmarshal(runs[0].Seen, &seen))
		finished := map[string]int{}
		for _, e := range seen {
			if e.Type == "call_finished" {
				finished[e.ID]++
			}
		}
		assert.Equal(t, map[string]int{"call_0": 1, "call_2": 1}, finished, "told by both processes together; of the second call nobody saw an end")
		used, err := first.Tokens(t.Context(), "ann")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, used, int64(33), "by both of them")

		for name, id := range map[string]string{"ended": slow.ID} {
			_, err = second.Take(t.Context(), id)
			assert.ErrorIs(t, err, chatstore.ErrTaken, name)
		}
		for _, id := range []string{"", "nothing", "\x00"} {
			_, err = second.Take(t.Context(), id)
			assert.ErrorIs(t, err, chatstore.ErrNotFound, "%q", id)
		}
	})
}

// A message that follows a run which was left behind takes the run's place: nobody
// can take it, or store it, any more. One that goes on from what has just been
// overtaken is refused.
func TestStore_superseded(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if strings.HasPrefix(turn.Prompt(), "call") && len(turn.Outputs()) == 0 {
				return rt.Call("call_1", "step", "{}")
			}
			return rt.Text("done")
		}))
		c := newChat(t, s, "ann")
		left := ask(t, s, c, "call, please")
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(context.Context, struct{}) (string, error) { return "ok", nil })}
		// The reader of the state is overtaken by a checkpoint.
		other := d.open()
		overtake := true
		other.Running = func(string) bool {
			if overtake {
				overtake = false
				next, stop := context.WithCancel(t.Context())
				defer stop()
				for e := range left.Events(next, loop) {
					if _, ok := e.(fnloop.CallStarted); ok {
						break // as a process that dies would
					}
				}
			}
			return false
		}
		m := chatstore.Message{Version: 1, Parent: left.ID, Text: "instead"}
		_, err := other.Post(t.Context(), "ann", c.ID, m)
		require.ErrorIs(t, err, chatstore.ErrConflict, "what it has read is not what there is")
		next, err := other.Post(t.Context(), "ann", c.ID, m)
		require.NoError(t, err)

		_, err = s.Take(t.Context(), left.ID)
		require.ErrorIs(t, err, chatstore.ErrTaken)
		_, events, err := do(t, left, loop)
		require.ErrorIs(t, err, chatstore.ErrTaken)
		assert.Len(t, events, 1, "a Run is done once")
		shown, err := s.Run(t.Context(), c, left.ID)
		require.NoError(t, err)
		_, _, err = do(t, shown, loop)
		require.ErrorIs(t, err, chatstore.ErrTaken, "and only by whom it was given to")
		_, _, err = do(t, next, loop)
		require.NoError(t, err)

		// So does one that is written anew further up.
		left = ask(t, s, c, "call, once more")
		_, err = other.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 3, Text: "from the beginning"})
		require.NoError(t, err)
		_, err = s.Take(t.Context(), left.ID)
		require.ErrorIs(t, err, chatstore.ErrTaken)
		_, events, err = do(t, left, loop)
		require.ErrorIs(t, err, chatstore.ErrTaken)
		for _, e := range events {
			assert.NotEqual(t, "call_started", e.Type(), "it has made no call")
		}
	})
}

// What several runs of one owner use at the same time counts together.
func TestStore_budget(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s, other := d.open(), d.open()
		s.Budget, other.Budget = 100, 100
		waits, goOn := make(chan bool, 10), make(chan bool)
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			reply := rt.Text("done")
			if len(turn.Outputs()) < 2 {
				reply = rt.Call("", turn.Prompt(), "{}")
			}
			reply.Usage = &rt.Usage{InputTokens: 25, OutputTokens: 5}
			return reply
		}))
		ok := func(context.Context, struct{}) (string, error) { return "ok", nil }
		loop.Tools = []fnloop.Tool{
			fnloop.MustTool("fast", "Does it.", ok),
			fnloop.MustTool("slow", "Waits.", func(ctx context.Context, in struct{}) (string, error) {
				waits <- true
				<-goOn
				return ok(ctx, in)
			}),
		}
		slow := ask(t, s, newChat(t, s, "ann"), "slow")
		ended := make(chan fnloop.StopReason)
		go func() {
			a, _, _ := do(t, slow, loop)
			ended <- a.Stop
		}()
		<-waits // with 30 tokens
		a, _, err := do(t, ask(t, other, newChat(t, other, "ann"), "fast"), loop)
		require.NoError(t, err)
		assert.Equal(t, int64(90), a.Usage.TotalTokens, "the last request found 90 of 100, in both runs")
		close(goOn)
		assert.Equal(t, fnloop.StopMaxTokens, <-ended)
		used, err := s.Tokens(t.Context(), "ann")
		require.NoError(t, err)
		assert.Equal(t, int64(120), used)
		var over *chatstore.BudgetError
		_, err = s.Post(t.Context(), "ann", newChat(t, s, "ann").ID, chatstore.Message{Text: "hi"})
		require.ErrorAs(t, err, &over)
		assert.Equal(t, chatstore.BudgetError{Used: 120, Budget: 100}, *over)

		_, _, err = do(t, ask(t, s, newChat(t, s, "bob"), "fast"), loop)
		require.NoError(t, err, "whose tokens are his own")
		low := *loop
		low.MaxTokens = 50
		s.Budget = 1000
		a, _, err = do(t, ask(t, s, newChat(t, s, "cid"), "fast"), &low)
		require.ErrorIs(t, err, fnloop.ErrMaxTokens, "the Loop's own bound holds too")
		assert.Equal(t, int64(60), a.Usage.TotalTokens)
		low.MaxTokens, low.OtherTokens = 200, func(context.Context) (int64, error) { return 150, nil }
		a, _, err = do(t, ask(t, s, newChat(t, s, "dan"), "fast"), &low)
		require.ErrorIs(t, err, fnloop.ErrMaxTokens, "and what others have used of it")
		assert.Equal(t, int64(60), a.Usage.TotalTokens)
	})
}

// A job is added in the transaction that begins the run.
func TestStore_onBegin(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		_, err := s.DB.ExecContext(t.Context(), "CREATE TABLE jobs (run TEXT NOT NULL)")
		require.NoError(t, err)
		full := errors.New("the queue is full")
		fail := true
		s.OnBegin = func(ctx context.Context, tx *sql.Tx, r *chatstore.Run) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO jobs VALUES ($1)", r.ID); err != nil {
				return err
			}
			if fail {
				return full
			}
			return nil
		}
		c := newChat(t, s, "ann")
		_, err = s.Post(t.Context(), "ann", c.ID, chatstore.Message{Text: "hi"})
		require.ErrorIs(t, err, full)
		fail = false
		r, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Text: "hi"})
		require.NoError(t, err)
		rows, err := s.DB.QueryContext(t.Context(), "SELECT run FROM jobs")
		require.NoError(t, err)
		defer rows.Close()
		var jobs []string
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			jobs = append(jobs, id)
		}
		assert.Equal(t, []string{r.ID}, jobs)
		// Another process does it.
		taken, err := d.open().Take(t.Context(), jobs[0])
		require.NoError(t, err)
		a, _, err := do(t, taken, play(t, rt.Text("hello")))
		require.NoError(t, err)
		assert.Equal(t, "hello", a.Text)
	})
}

// The files of a chat outlive the interpreter.
func TestStore_files(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))))
		picture := b.String()
		s := d.open()
		s.MaxFile, s.MaxFiles = 100, 300
		runner := &fake.Runner{Cells: func(ctx context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
			var e interpreter.Execution
			switch name, data, _ := strings.Cut(c.Source, "="); name {
			case "show":
				e.Displays = []interpreter.Display{{Data: map[string][]byte{"image/png": []byte(picture), "text/plain": []byte("<Figure>")}}, {Data: map[string][]byte{"text/html": []byte("<b>1</b>")}}}
			case "list":
				files, err := i.List(ctx)
				if err != nil {
					return e, err
				}
				for _, f := range files {
					e.Stdout += f.Name + " "
				}
			case "remove":
				e.Files = []interpreter.FileChange{{Name: data, Change: interpreter.FileRemoved}}
			default:
				i.Write(name, data)
			}
			return e, nil
		}}
		sessions := &interpreter.Sessions{Runner: runner}
		defer sessions.Close()
		s.KeepFiles(sessions)
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if outputs := turn.Outputs(); len(outputs) > 0 {
				return rt.Text(outputs[0])
			}
			prompt, _, _ := strings.Cut(turn.Prompt(), "\n")
			code, _ := json.Marshal(map[string]string{"code": prompt})
			return rt.Call("", "python", string(code))
		}))
		loop.Tools = []fnloop.Tool{sessions.Tool()}
		c := newChat(t, s, "ann")
		run := func(code string, files ...chatstore.File) (*fnloop.Answer, []fnloop.Event) {
			t.Helper()
			now, err := s.Chat(t.Context(), "ann", c.ID)
			require.NoError(t, err)
			r, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: now.Version, Parent: now.Head, Text: code, Files: files})
			require.NoError(t, err)
			a, events, err := do(t, r, loop)
			require.NoError(t, err)
			return a, events
		}
		read := func(name string) string {
			t.Helper()
			f, err := s.File(t.Context(), c, name)
			if errors.Is(err, chatstore.ErrNotFound) {
				return "none"
			}
			require.NoError(t, err)
			return string(f.Data)
		}

		a, _ := run("list", chatstore.File{Name: "data.bin", Data: []byte("\x00\xff")})
		assert.Contains(t, a.Text, "data.bin")
		run("out/made.txt=by code")
		assert.Equal(t, "by code", read("out/made.txt"))
		run("out/made.txt=anew")
		assert.Equal(t, "anew", read("out/made.txt"))
		run("removed.txt=soon")
		run("remove=removed.txt")
		assert.Equal(t, "none", read("removed.txt"))
		run("grows.txt=small")
		run("grows.txt=" + strings.Repeat("x", 101))
		assert.Equal(t, "none", read("grows.txt"), "what is kept is never an old form")
		run("a.txt=" + strings.Repeat("x", 100))
		run("b.txt=" + strings.Repeat("x", 100))
		run("c.txt=" + strings.Repeat("x", 100))
		assert.Equal(t, "none", read("c.txt"), "beyond what a chat may have")
		_, events := run("show")
		var figures []chatstore.Figure
		for _, e := range events {
			if f, ok := e.(chatstore.Figure); ok {
				figures = append(figures, f)
			}
		}
		require.Len(t, figures, 2)
		assert.Equal(t, picture, read(figures[0].Picture))
		assert.Equal(t, "<b>1</b>", figures[1].HTML)
		run("c.txt=")
		s.MaxFiles = 10
		_, events = run("show")
		full := 0
		for _, e := range events {
			if p, ok := e.(chatstore.Problem); ok {
				full++
				assert.Equal(t, "figure", p.Code)
				assert.Contains(t, p.Message, "A figure is not shown. The files of a chat may have")
			}
		}
		assert.Equal(t, 1, full)

		// The sandbox goes away, and another one has the files.
		for _, i := range runner.Interpreters() {
			i.Kill()
		}
		a, _ = run("list")
		assert.Contains(t, a.Text, "files are kept")
		for _, name := range []string{"data.bin", "out/made.txt", "a.txt", "b.txt"} {
			assert.Contains(t, a.Text, name)
		}
		assert.NotContains(t, a.Text, "figure-", "pictures are for people")

		for name, want := range map[string][]string{
			"out/made.txt":     {"application/octet-stream", `attachment; filename=made.txt`, "anew"},
			figures[0].Picture: {"image/png", "", picture},
		} {
			w := httptest.NewRecorder()
			require.NoError(t, s.ServeFile(w, httptest.NewRequest("GET", "/", nil), c, name))
			assert.Equal(t, want, []string{w.Header().Get("Content-Type"), w.Header().Get("Content-Disposition"), w.Body.String()})
			assert.Contains(t, w.Header().Get("Content-Security-Policy"), "sandbox")
			assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		}
		for _, name := range []string{"", "nothing", "../made.txt", "\x00", "out/made.txt\xff"} {
			w := httptest.NewRecorder()
			assert.ErrorIs(t, s.ServeFile(w, httptest.NewRequest("GET", "/", nil), c, name), chatstore.ErrNotFound, "%q", name)
			assert.Empty(t, w.Body.String())
		}
	})
}

// A process that has lost its run in the middle of a cell puts none of its files in the
// place of those that the next one has made.
func TestStore_filesTaken(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		c := newChat(t, s, "ann")
		var picture bytes.Buffer
		require.NoError(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 1, 1))))
		model := play(t, rt.Call("call_1", "python", `{"code":"old"}`), rt.Call("call_2", "python", `{"code":"new"}`), rt.Text("done"))
		// work is a process whose calls write what the code is into a file.
		work := func(during func()) *fnloop.Loop {
			store := *s
			sessions := &interpreter.Sessions{Runner: &fake.Runner{Cells: func(_ context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
				during()
				i.Write("a.txt", c.Source)
				return interpreter.Execution{Displays: []interpreter.Display{{Data: map[string][]byte{"image/png": picture.Bytes()}}}}, nil
			}}}
			t.Cleanup(func() { sessions.Close() })
			store.KeepFiles(sessions)
			loop := *model
			loop.Tools = []fnloop.Tool{sessions.Tool()}
			return &loop
		}
		first := ask(t, s, c, "go")
		_, events, err := do(t, first, work(func() {
			next, err := d.open().Take(t.Context(), first.ID)
			require.NoError(t, err)
			_, _, err = do(t, next, work(func() {}))
			require.NoError(t, err)
		}))
		require.ErrorIs(t, err, chatstore.ErrTaken)
		for _, e := range events {
			assert.NotEqual(t, "figure", e.Type())
		}
		f, err := s.File(t.Context(), c, "a.txt")
		require.NoError(t, err)
		assert.Equal(t, "new", string(f.Data))
	})
}

// An answer that cannot be stored is said, and the run can be gone on with.
func TestStore_databaseAway(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		s.Patience = -1
		r := ask(t, s, newChat(t, s, "ann"), "hi")
		loop := play(t, rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("hello") }))
		require.NoError(t, s.DB.Close())
		a, events, err := do(t, r, loop)
		require.NoError(t, err, "the answer is there")
		assert.Equal(t, "hello", a.Text)
		p, ok := events[len(events)-2].(chatstore.Problem)
		require.True(t, ok)
		assert.Equal(t, "not_stored", p.Code)

		taken, err := d.open().Take(t.Context(), r.ID)
		require.NoError(t, err)
		assert.Equal(t, "hi", taken.Answer.Prompt)
		_, _, err = do(t, taken, loop)
		require.NoError(t, err)
	})
}

// A run that a process leaves behind at its end is done by the next one.
func TestStore_drain(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		r := ask(t, s, newChat(t, s, "ann"), "hi")
		draining := true
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if len(turn.Outputs()) == 0 {
				return rt.Call("call_1", "step", "{}")
			}
			reply := rt.Text("What I have to say is long.")
			if draining {
				reply.Pause = 200 * time.Millisecond
			}
			return reply
		}))
		var ran atomic.Int64
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(context.Context, struct{}) (string, error) {
			ran.Add(1)
			return "ok", nil
		})}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var a *fnloop.Answer
		for e := range r.Events(ctx, loop) {
			switch e := e.(type) {
			case fnloop.TextDelta:
				cancel(fnloop.ErrDraining)
			case fnloop.Done:
				a = e.Answer
			}
		}
		require.Equal(t, fnloop.StopCancelled, a.Stop)
		draining = false
		taken, err := d.open().Take(t.Context(), r.ID)
		require.NoError(t, err)
		assert.NotContains(t, string(taken.Seen), "What I", "half an answer is not shown twice")
		assert.Contains(t, string(taken.Seen), `"call_finished"`)
		a, _, err = do(t, taken, loop)
		require.NoError(t, err)
		assert.Equal(t, "What I have to say is long.", a.Text)
		assert.Equal(t, int64(1), ran.Load())

		// What a user stops has ended.
		r = ask(t, s, newChat(t, s, "ann"), "hi")
		stopped, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		for range r.Events(stopped, loop) {
			stop(errors.New("the user has seen enough"))
		}
		_, err = s.Take(t.Context(), r.ID)
		require.ErrorIs(t, err, chatstore.ErrTaken)
	})
}

// A database that is away for a moment costs neither a run nor a call.
func TestStore_databaseComesBack(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		rename := func(from, to string) {
			t.Helper()
			_, err := s.DB.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
			assert.NoError(t, err)
		}
		r := ask(t, s, newChat(t, s, "ann"), "hi")
		loop := play(t, rt.Call("call_1", "step", "{}"), rt.Call("call_2", "step", "{}"), rt.Text("done"))
		var ran atomic.Int64
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(context.Context, struct{}) (string, error) {
			if ran.Add(1) == 1 {
				rename("fnloop_runs", "away")
				time.AfterFunc(300*time.Millisecond, func() { rename("away", "fnloop_runs") })
			}
			return "ok", nil
		})}
		a, events, err := do(t, r, loop)
		require.NoError(t, err)
		assert.Equal(t, "done", a.Text)
		assert.Equal(t, int64(2), ran.Load())
		for _, e := range events {
			assert.NotEqual(t, "problem", e.Type())
		}
		_, err = s.Take(t.Context(), r.ID)
		require.ErrorIs(t, err, chatstore.ErrTaken, "it has ended")

		// A run that is stopped waits no longer.
		r = ask(t, s, newChat(t, s, "ann"), "hi")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		loop = play(t, rt.Call("call_1", "step", "{}"))
		loop.Grace = -1
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(context.Context, struct{}) (string, error) {
			rename("fnloop_runs", "away")
			time.AfterFunc(200*time.Millisecond, stop)
			time.AfterFunc(600*time.Millisecond, func() { rename("away", "fnloop_runs") })
			return "ok", nil
		})}
		for range r.Events(ctx, loop) {
		}
		shown, err := s.Run(t.Context(), chatstore.Chat{ID: r.Chat}, r.ID)
		require.NoError(t, err)
		assert.True(t, shown.Ended)
		assert.Equal(t, "ok", shown.Answer.Calls[0].Text, "what was done is kept")
	})
}

// Chats that many workers take from each other at random all end, with no call that
// was made twice.
func TestStore_manyWorkers(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		const chats, calls, workers = 8, 4, 4
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if n := len(turn.Outputs()); n < calls {
				return rt.Call(fmt.Sprintf("call_%d", n), "step", "{}")
			}
			return rt.Text("done")
		}))
		var ran sync.Map
		loop.Tools = []fnloop.Tool{fnloop.MustTool("step", "Takes a step.", func(ctx context.Context, _ struct{}) (string, error) {
			call, _ := fnloop.CallFrom(ctx)
			n, _ := ran.LoadOrStore(chatstore.ChatID(ctx)+call.ID, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			time.Sleep(time.Millisecond)
			return "ok", nil
		})}
		main := d.open()
		var ids []string
		for i := range chats {
			ids = append(ids, ask(t, main, newChat(t, main, fmt.Sprint("owner", i)), "go").ID)
		}
		var wg sync.WaitGroup
		var taken atomic.Int64
		for w := range workers {
			s := d.open()
			wg.Go(func() {
				for i := range ids {
					r, err := s.Take(t.Context(), ids[(i+w*2)%len(ids)])
					if errors.Is(err, chatstore.ErrTaken) {
						continue
					}
					if !assert.NoError(t, err) {
						return
					}
					taken.Add(1)
					for range r.Events(t.Context(), loop) {
					}
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			r, err := main.Take(t.Context(), id)
			if err == nil { // the last one to take it lost it to nobody, so it has ended
				t.Errorf("run %s has not ended: %s", id, r.Seen)
				continue
			}
			assert.ErrorIs(t, err, chatstore.ErrTaken)
		}
		count := 0
		ran.Range(func(id, n any) bool {
			count++
			assert.Equal(t, int64(1), n.(*atomic.Int64).Load(), "%v was made twice", id)
			return true
		})
		assert.Equal(t, chats*calls, count)
		t.Log(taken.Load(), "times a run was taken")
	})
}
