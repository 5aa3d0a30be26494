package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/internal/pgtest"
	rt "github.com/fnloop/fnloop/responsestest"
)

// A system is a database, a model, and what workers need to know of them.
type system struct {
	t     *testing.T
	model *rt.Server
	db    *sql.DB
	env   []string
}

func newSystem(t *testing.T, reply func(*rt.Turn) rt.Reply) *system {
	s := &system{t: t}
	dsn := pgtest.Start(t)
	var err error
	s.db, err = sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { s.db.Close() })
	_, err = s.db.Exec(bookings)
	require.NoError(t, err)
	s.model = rt.NewServer(rt.Always(reply))
	t.Cleanup(s.model.Close)
	s.env = []string{"WORKER_TEST_MODEL=" + s.model.URL, "WORKER_TEST_KEY=" + s.model.Key, "WORKER_TEST_DB=" + dsn, "WORKER_TEST_DRAIN=200ms"}
	return s
}

// start starts a worker, or with WORKER_TEST_JOBS=0 a process that only serves.
func (s *system) start(env ...string) *process {
	return launch(s.t, append(s.env, env...)...)
}

const serves = "WORKER_TEST_JOBS=0"

// ask posts a text at the end of a chat, and gives the chat as it was before.
func (s *system) ask(p *process, owner string, id string, text string) {
	s.t.Helper()
	seen, err := p.show(owner, id)
	require.NoError(s.t, err)
	status, said, err := p.post(owner, seen.Chat, "text", text)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusAccepted, status, said)
}

// ended waits for the end of a chat's last run.
func (s *system) ended(p *process, owner, id string) (last chatstore.Run) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		seen, err := p.show(owner, id)
		if err != nil || seen.Running {
			return false
		}
		last = seen.Runs[len(seen.Runs)-1]
		return true
	}, 30*time.Second, 20*time.Millisecond)
	return last
}

// A told is an event as a page gets it.
type told struct {
	Type, Text, Name string
	Answer           struct{ Stop, Text string }
}

// read follows a chat until the stream ends, and calls each for the messages, unless
// it returns false. It gives the ID of the last one.
func (s *system) read(p *process, owner, chat, after string, each func([]told) bool) (last string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "GET", p.url+"/chats/"+chat+"/events", nil)
	require.NoError(s.t, err)
	r.Header.Set("User", owner)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = id
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var events []told
			require.NoError(s.t, json.Unmarshal([]byte(data), &events))
			if !each(events) {
				return last
			}
		}
	}
	return last
}

// A page is what somebody sees who shows all events.
type page struct {
	text     string
	messages int
	resumed  int
	stop     string
}

func (p *page) add(events []told) bool {
	p.messages++
	for _, e := range events {
		switch e.Type {
		case "resumed":
			*p = page{messages: p.messages, resumed: p.resumed + 1}
		case "text_delta":
			p.text += e.Text
		case "done":
			p.stop = e.Answer.Stop
		}
	}
	return true
}

// long is an answer of many pieces.
var long = strings.TrimSpace(strings.Repeat("word after word ", 40))

// Readers on any machine see the same, from wherever they begin.
func TestWorker_events(t *testing.T) {
	t.Parallel()
	s := newSystem(t, func(*rt.Turn) rt.Reply { return rt.Text(long).Paced(20 * time.Millisecond) })
	door, works := s.start(serves), s.start()
	c := door.newChat(t, "ann")
	s.ask(door, "ann", c.ID, "go")
	var first, again page
	last := s.read(door, "ann", c.ID, "", func(events []told) bool { return first.add(events) && first.messages < 4 })
	assert.Empty(t, first.stop, "it is still being written")
	assert.NotEmpty(t, first.text)
	again = first
	s.read(works, "ann", c.ID, last, again.add)
	assert.Equal(t, long, again.text, "a reader comes again, elsewhere")
	assert.Equal(t, "answered", again.stop)
	assert.Zero(t, again.resumed)
	assert.Less(t, again.messages, strings.Count(long, " "), "pieces are joined")

	var late, later page
	s.read(door, "ann", c.ID, "", late.add)
	assert.Equal(t, page{long, late.messages, 0, "answered"}, late)
	n, err := open(t.Context(), config{db: strings.TrimPrefix(s.env[2], "WORKER_TEST_DB="), dead: time.Minute, log: slog.New(slog.DiscardHandler)}, nil)
	require.NoError(t, err)
	defer n.pool.Close()
	rows := func() (rows int) {
		require.NoError(t, s.db.QueryRow(`SELECT COUNT(*) FROM worker_events`).Scan(&rows))
		return rows
	}
	require.NoError(t, n.clean(t.Context(), time.Hour))
	assert.Positive(t, rows(), "readers may have been away")
	require.NoError(t, n.clean(t.Context(), 0))
	assert.Zero(t, rows())
	s.read(door, "ann", c.ID, last, later.add)
	assert.Equal(t, page{long, 1, 1, "answered"}, later, "from what chatstore has")
}

// A deploy in mid-run ends the run elsewhere: the calls that have finished are not made
// again, and readers see one answer.
func TestWorker_deploy(t *testing.T) {
	t.Parallel()
	s := newSystem(t, func(turn *rt.Turn) rt.Reply {
		if len(turn.Outputs()) == 0 {
			return rt.Call("call_1", "book", "{}")
		}
		return rt.Text(long).Paced(20 * time.Millisecond)
	})
	door, old := s.start(serves), s.start()
	c := door.newChat(t, "ann")
	s.ask(door, "ann", c.ID, "go")
	var seen page
	s.read(door, "ann", c.ID, "", func(events []told) bool {
		seen.add(events)
		if seen.text != "" && old != nil {
			require.NoError(t, old.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, old.cmd.Wait(), old.output())
			old = nil
			s.start()
		}
		return true
	})
	assert.Equal(t, page{long, seen.messages, 1, "answered"}, seen)
	var booked int
	require.NoError(t, s.db.QueryRow(`SELECT COUNT(*) FROM bookings`).Scan(&booked))
	assert.Equal(t, 1, booked)
	var rows int
	require.NoError(t, s.db.QueryRow(`SELECT COUNT(*) FROM worker_runs`).Scan(&rows))
	assert.Zero(t, rows)
}

// What users are told of what cannot be done.
func TestWorker_refuses(t *testing.T) {
	t.Parallel()
	s := newSystem(t, func(turn *rt.Turn) rt.Reply {
		if strings.Contains(turn.Prompt(), "slowly") {
			return rt.Text(long).Paced(time.Second)
		}
		reply := rt.Text("yes")
		reply.Usage = &rt.Usage{InputTokens: 90, OutputTokens: 10}
		return reply
	})
	s.env = append(s.env, "WORKER_TEST_BUDGET=150")
	door := s.start(serves)
	c := door.newChat(t, "ann")
	s.ask(door, "ann", c.ID, "slowly")
	seen, err := door.show("ann", c.ID)
	require.NoError(t, err)
	says := func(want int, text, owner string, c chatstore.Chat) {
		t.Helper()
		status, said, err := door.post(owner, c, "text", "and?")
		require.NoError(t, err)
		assert.Equal(t, want, status)
		assert.Contains(t, said, text)
	}
	says(http.StatusConflict, "The last message is still being answered; wait for it, or stop it.", "ann", seen.Chat)
	says(http.StatusConflict, "The chat has gone on elsewhere", "ann", c)
	says(http.StatusNotFound, "There is no such chat", "bob", seen.Chat)
	status, said, err := request("", "POST", door.url+"/chats", "", nil, nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, status, said)
	stop := func(want int) {
		t.Helper()
		status, said, err := request("ann", "POST", door.url+"/chats/"+c.ID+"/stop", "", nil, nil)
		require.NoError(t, err)
		assert.Equal(t, want, status, said)
	}

	// Stop a run that nobody has begun, and one that is being answered.
	stop(http.StatusAccepted)
	s.start()
	assert.Contains(t, string(s.ended(door, "ann", c.ID).Seen), `"stop":"cancelled"`)
	assert.Empty(t, s.model.Requests())
	stop(http.StatusConflict)
	s.ask(door, "ann", c.ID, "slowly, again")
	require.Eventually(t, func() bool { return len(s.model.Requests()) == 1 }, 10*time.Second, 10*time.Millisecond)
	stop(http.StatusAccepted)
	assert.Contains(t, string(s.ended(door, "ann", c.ID).Seen), `"stop":"cancelled"`)

	// The budget is for all chats of a user, and for no one else.
	for _, owner := range []string{"ann", "ann", "bob"} {
		c := door.newChat(t, owner)
		s.ask(door, owner, c.ID, "quickly")
		assert.Contains(t, string(s.ended(door, owner, c.ID).Seen), `"stop":"answered"`)
	}
	says(http.StatusTooManyRequests, "You have used 200 tokens in the last day, of 150. Come back later.", "ann", door.newChat(t, "ann"))
}

// A run that takes its processes with it is given up, and its chat goes on.
func TestWorker_givesUp(t *testing.T) {
	t.Parallel()
	s := newSystem(t, func(turn *rt.Turn) rt.Reply {
		if turn.Prompt() == "die" {
			return rt.Call(fmt.Sprint("call_", turn.Round), "die", "{}")
		}
		return rt.Text("yes")
	})
	s.env = append(s.env, "WORKER_TEST_DEATHS=1")
	door := s.start(serves)
	c := door.newChat(t, "ann")
	s.ask(door, "ann", c.ID, "die")
	for range 2 {
		p := s.start()
		require.Error(t, p.cmd.Wait(), "it dies")
	}
	s.start()
	assert.Contains(t, string(s.ended(door, "ann", c.ID).Seen), `"stop":"cancelled"`)
	s.ask(door, "ann", c.ID, "live")
	assert.Contains(t, string(s.ended(door, "ann", c.ID).Seen), `"stop":"answered"`)
}

func TestRun_flags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ flag, value, want, because string }{
		{"-jobs", "many", "invalid value", "it is no number"},
		{"-dead", "0s", "-dead is 0s", "every process would be dead"},
	} {
		require.ErrorContains(t, run(t.Context(), []string{tt.flag, tt.value}, io.Discard), tt.want, tt.because)
	}
}
