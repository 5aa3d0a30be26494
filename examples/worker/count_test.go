package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/pgtest"
	rt "github.com/fnloop/fnloop/responsestest"
)

// A counter is a service of somebody else's, that lives through the deaths of workers: it
// counts what is done, and knows what must not be done any more.
type counter struct {
	mu      sync.Mutex
	n       int            // of reports
	begun   map[string]int // by process and run: the report in which the process took the run
	stored  map[string]int // by call: the first report in which it had an output that was stored
	made    map[string]int // by call: how often it was made
	repeats []string       // calls that were made by a process which took the run after they were stored
	finish  int            // how many checkpoints were stored
}

// ServeHTTP takes a report.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var args []string
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	taker := rest + " " + args[0]
	c.mu.Lock()
	c.n++
	switch {
	case strings.HasPrefix(r.URL.Path, "/begun/"):
		c.begun[taker] = c.n
	case strings.HasPrefix(r.URL.Path, "/stored/"):
		c.finish++
		for _, call := range args[1:] {
			if c.stored[call] == 0 {
				c.stored[call] = c.n
			}
		}
	case strings.HasPrefix(r.URL.Path, "/call/"):
		call := args[1]
		if c.made[call]++; c.stored[call] > 0 && c.stored[call] < c.begun[taker] {
			c.repeats = append(c.repeats, call)
		}
		c.mu.Unlock()
		time.Sleep(time.Duration(30+rand.IntN(200)) * time.Millisecond)
		fmt.Fprint(w, "done")
		return
	}
	c.mu.Unlock()
}

// steps are the calls of an answer, response by response.
var steps = [][]string{{"look", "pay"}, {"pay"}, {"book", "look"}, {"ask"}, {"pay", "look", "book"}}

// plan is a model that makes the same calls whenever it is asked the same.
func plan(t *rt.Turn) rt.Reply {
	round := t.Round % (len(steps) + 1)
	if round == len(steps) {
		return rt.Text("All is done.").Paced(time.Millisecond)
	}
	calls := []rt.Reply{rt.Commentary(fmt.Sprintf("Step %d.", round))}
	for i, name := range steps[round] {
		calls = append(calls, rt.Call(fmt.Sprintf("%s-%d-%d", name, t.Round, i), name, "{}"))
	}
	return rt.Join(calls...).Paced(2 * time.Millisecond)
}

// Workers are killed, and stopped so that they come back when others have their runs,
// while they answer. In the end all is answered; what has finished was done once; what may
// be repeated was done; and of what was cut short the model knows.
func TestWorker_kills(t *testing.T) {
	const (
		chats         = 12
		workers       = 4
		kills, stalls = 6, 2
		patience      = 2 * time.Minute
	)
	dsn := pgtest.Start(t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(bookings)
	require.NoError(t, err)
	c := &counter{begun: map[string]int{}, stored: map[string]int{}, made: map[string]int{}}
	counting := httptest.NewServer(c)
	defer counting.Close()
	model := rt.NewServer(rt.Always(plan))
	defer model.Close()
	start := func() *process {
		return launch(t, "WORKER_TEST_MODEL="+model.URL, "WORKER_TEST_KEY="+model.Key, "WORKER_TEST_COUNTER="+counting.URL, "WORKER_TEST_DB="+dsn, "WORKER_TEST_DRAIN=1s")
	}

	var mu sync.Mutex
	var alive, all []*process
	for range workers {
		p := start()
		alive, all = append(alive, p), append(all, p)
	}
	some := func() *process {
		mu.Lock()
		defer mu.Unlock()
		return alive[rand.IntN(len(alive))]
	}
	// replace starts a worker in the place of one, which nobody asks any more.
	replace := func(i int) (gone *process) {
		next := start()
		mu.Lock()
		defer mu.Unlock()
		gone, alive[i] = alive[i], next
		all = append(all, next)
		return gone
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// Users, each of whom asks whichever process is there.
	var users sync.WaitGroup
	var calm atomic.Bool // nobody is killed any more
	ids, prompts := make([]string, chats), make([]int, chats)
	for i := range chats {
		owner := fmt.Sprint("user ", i)
		ids[i] = some().newChat(t, owner).ID
		users.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				seen, err := some().show(owner, ids[i])
				if err != nil || seen.Running {
					continue
				}
				prompts[i] = answered(seen)
				fields := []string{"text", fmt.Sprint("prompt ", prompts[i])}
				if n := len(seen.Runs); n > 0 {
					decisions := map[string]fnloop.Decision{}
					for _, call := range pending(t, seen.Runs[n-1].Seen) {
						decisions[call] = fnloop.Decision{Approve: true}
					}
					if len(decisions) > 0 {
						text, _ := json.Marshal(decisions)
						fields = []string{"decisions", string(text)}
					} else if calm.Load() {
						return
					}
				}
				some().post(owner, seen.Chat, fields...) // what becomes of it is seen in the next round
			}
			t.Errorf("chat %d is not answered after %v", i, patience)
		})
	}

	for n := range kills + stalls {
		time.Sleep(time.Duration(200+rand.IntN(500)) * time.Millisecond)
		p := replace(rand.IntN(workers))
		if n%4 != 1 {
			require.NoError(t, p.cmd.Process.Kill())
			continue
		}
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		time.AfterFunc(3*time.Second, func() { p.cmd.Process.Signal(syscall.SIGCONT) })
	}
	calm.Store(true)
	users.Wait()
	refused := func() (n int) {
		for _, p := range all {
			n += strings.Count(p.output(), "an answer was not stored")
		}
		return n
	}
	assert.Eventually(t, func() bool { return refused() > 0 }, 10*time.Second, 50*time.Millisecond, "a process that comes back is refused")

	// What the model was told of each call is what there is to be counted.
	var unknown, calls, asked int
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range ids {
		var text string
		require.NoError(t, db.QueryRow(`SELECT answer FROM fnloop_runs r JOIN fnloop_chats c ON c.head = r.id WHERE c.id = $1`, id).Scan(&text))
		var a fnloop.Answer
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		assert.Equal(t, fnloop.StopAnswered, a.Stop, "chat %d", i)
		outputs := outputsOf(t, a.Items)
		asked += prompts[i]
		for prompt := range prompts[i] {
			for round, names := range steps {
				for k, name := range names {
					calls++
					call := fmt.Sprintf("%s-%d-%d", name, prompt*(len(steps)+1)+round, k)
					made := c.made[id+"/"+call]
					if name == "book" {
						require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM bookings WHERE call = $1`, id+"/"+call).Scan(&made))
					}
					switch output, interrupted := outputs[call], strings.Contains(outputs[call], "interrupted"); {
					case output == "done" && made == 1, interrupted && name != "look" && made <= 1:
					case output == "done" && name == "look" && made > 1: // it was cut short before
					default:
						t.Errorf("chat %d: %s was made %d times, and the model was told %q", i, call, made, output)
					}
					if strings.Contains(outputs[call], "interrupted") {
						unknown++
					}
				}
			}
		}
	}
	again := 0
	for call, n := range c.made {
		if strings.Contains(call, "look") {
			again += n - 1
		}
	}
	assert.Empty(t, c.repeats, "calls that had finished")
	t.Logf("%d prompts in %d conversations, %d calls, %d checkpoints; %d processes were killed and %d stalled;"+
		" %d calls ended as not known, repeatable ones were made %d times again, what processes had to say that had lost a run was refused %d times",
		asked, chats, calls, c.finish, kills, stalls, unknown, again, refused())
}

// answered counts the prompts that have an answer.
func answered(c chat) (n int) {
	for _, r := range c.Runs {
		if strings.Contains(string(r.Seen), "All is done.") {
			n++
		}
	}
	return n
}

// pending are the calls that wait at the end of a run.
func pending(t *testing.T, seen json.RawMessage) (ids []string) {
	var events []struct {
		Type   string
		Answer struct{ Pending []struct{ ID string } }
	}
	if !assert.NoError(t, json.Unmarshal(seen, &events)) || len(events) == 0 {
		return nil
	}
	for _, call := range events[len(events)-1].Answer.Pending {
		ids = append(ids, call.ID)
	}
	return ids
}

// outputsOf are what the model was told of each call, by its ID. A second output of a call is a
// failure.
func outputsOf(t *testing.T, items []json.RawMessage) map[string]string {
	outputs := map[string]string{}
	for _, raw := range items {
		var item struct {
			Type   string
			CallID string `json:"call_id"`
			Output string
		}
		require.NoError(t, json.Unmarshal(raw, &item))
		if item.Type == "function_call_output" {
			assert.NotContains(t, outputs, item.CallID)
			outputs[item.CallID] = item.Output
		}
	}
	return outputs
}
