package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/pgtest"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

var soakMinutes = flag.Float64("minutes", 0, "how many minutes TestSoak takes; zero means some seconds")

// soakUsers is how many people chat at once.
const soakUsers = 6

// Days of a back end in short: people chat, run programs, stop them, go away and
// read slowly, while the model's server fails, sandboxes are killed and handlers
// panic. Whatever happens, what the process holds afterwards is what it held before.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	needs(t, "bwrap")
	d := newSoak(t)
	rounds, length := 2, time.Second
	if *soakMinutes > 0 {
		rounds = 12
		length = max(time.Duration(*soakMinutes*float64(time.Minute))/time.Duration(rounds+1), length)
	}
	var all []reading
	defer func() { t.Log("\n" + table(all) + d.told()) }()
	d.round(length) // pools, caches and warm sandboxes fill
	d.round(length / 2)
	for range rounds {
		d.round(length)
		var first *reading
		if len(all) > 0 {
			first = &all[0]
		}
		all = append(all, d.read(first))
	}
	first, last := all[0], all[len(all)-1]
	for _, s := range last.problems(first) {
		t.Error(s)
	}
	if t.Failed() {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		t.Logf("%s\n%s", stacks.String(), strings.Join(d.processes(), "\n"))
	}
}

// A reading is what the process holds while nothing is asked of it.
type reading struct {
	at   time.Duration
	runs int // that were done until then
	held map[string]int64
}

// What a reading counts, and how much more of it there may be at the end than
// after the first round. What is in the middle of being replaced, such as a warm
// sandbox, was waited for.
var soakBounds = []struct {
	what   string
	bound  int64
	reason string
}{
	{"heap KiB", 2 << 10, "what lives is caches and pools, which have a size"},
	{"RSS MiB", 40, "the heap's garbage comes and goes, and is given back late"},
	{"goroutines", 0, "those of requests, runs and programs end with them"},
	{"descriptors", 0, "connections to the database are not counted here"},
	{"processes", 0, "there are the warm sandbox's and no session's"},
	{"zombies", 0, "each process is waited for"},
	{"cgroups", 0, "each sandbox that there is has one"},
	{"mounts", 0, "they are in the sandboxes' own namespaces"},
	{"temp files", 0, "what a sandbox or an upload needed is removed"},
	{"sessions", 0, "all were idle for longer than Idle"},
	{"connections", 2, "the pool has a size"},
	{"in use", 0, "rows and transactions are closed"},
	{"in transaction", 0, "the server sees none that is left open"},
	{"runs left", 0, "each run has ended in the database, or another one goes on with it"},
}

// problems says where last holds more than first and the bounds allow.
func (last reading) problems(first reading) (all []string) {
	for _, b := range soakBounds {
		was, is := first.held[b.what], last.held[b.what]
		if is-was > b.bound {
			all = append(all, fmt.Sprintf("%s: %d after the first round, %d after the last, may grow by %d: %s", b.what, was, is, b.bound, b.reason))
		}
	}
	return all
}

func table(all []reading) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "time\truns\t")
	for _, c := range soakBounds {
		fmt.Fprint(w, c.what, "\t")
	}
	for _, r := range all {
		fmt.Fprintf(w, "\n%v\t%d\t", r.at.Round(time.Second), r.runs)
		for _, c := range soakBounds {
			fmt.Fprint(w, r.held[c.what], "\t")
		}
	}
	fmt.Fprintln(w)
	w.Flush()
	return b.String()
}

func TestSoak_bounds(t *testing.T) {
	held := func() map[string]int64 {
		m := make(map[string]int64)
		for _, b := range soakBounds {
			m[b.what] = 10
		}
		return m
	}
	first := reading{held: held()}
	assert.Empty(t, first.problems(first), "the same is no problem")
	for _, b := range soakBounds {
		last := reading{held: held()}
		last.held[b.what] += b.bound
		assert.Empty(t, last.problems(first), "%s: the bound itself is allowed", b.what)
		last.held[b.what]++
		assert.Len(t, last.problems(first), 1, "%s: one more is a leak", b.what)
	}
}

// A soak is a back end with its users.
type soak struct {
	*server
	t        *testing.T
	url      string
	sessions *interpreter.Sessions
	postgres bool
	temp     string
	began    time.Time

	mu   sync.Mutex
	done map[string]int // scenarios and how their runs ended
	runs int

	waiting atomic.Int32 // runs that nobody may go on with, as the budget is used up
}

func newSoak(t *testing.T) *soak {
	d := &soak{t: t, temp: t.TempDir(), began: time.Now(), done: make(map[string]int)}
	dsn := database(t)
	if d.postgres = pgtest.Installed(); d.postgres {
		dsn = pgtest.Start(t)
	} else {
		t.Log("PostgreSQL is not installed; SQLite takes its place")
	}
	t.Setenv("TMPDIR", d.temp)
	runner := &bubblewrap.Runner{Warm: 1, MaxPrograms: 4}
	t.Cleanup(func() { runner.Close() })
	d.server = withinOn(t, runner, dsn)
	d.store.DB.SetMaxOpenConns(8)
	d.store.DB.SetMaxIdleConns(8)
	d.store.Budget, d.store.Patience = 10_000, 5*time.Second
	d.hub.Linger = 100 * time.Millisecond
	// withinOn's own sessions are never used: these end soon, and are few.
	d.sessions = &interpreter.Sessions{Runner: runner, Idle: 500 * time.Millisecond, Max: 3}
	t.Cleanup(func() { d.sessions.Close() })
	d.store.KeepFiles(d.sessions)
	d.loop.Client = (&longModel{play: drill}).start(t)
	d.loop.IdleTimeout, d.loop.Grace = 300*time.Millisecond, 500*time.Millisecond
	d.loop.Tools = []fnloop.Tool{
		d.sessions.Tool(), fnloop.PythonTool(runner, fnloop.Limits{Time: 2 * time.Second, Memory: 128 << 20}),
		ordersTool(d.store.DB), refundTool(d.store.DB),
		fnloop.MustTool("panic", "Panics.", func(context.Context, struct{}) (string, error) { panic("on purpose") }),
		fnloop.MustTool("hang", "Hangs.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}),
	}
	web := httptest.NewServer(d.handler())
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	d.url = web.URL
	return d
}

// round lets the users chat for a while, and then everything come to rest.
func (d *soak) round(length time.Duration) {
	ctx, end := context.WithTimeout(d.t.Context(), length)
	defer end()
	var users, vandal sync.WaitGroup
	seed := uint64(d.runs)
	for n := range soakUsers {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			u := &soakUser{visitor: visit(d.t, d.url), soak: d, rng: rng}
			names := slices.Sorted(maps.Keys(scenarios))
			for i := n; ctx.Err() == nil; i++ { // each begins elsewhere, so that all come soon
				name := names[(i*soakUsers+n+rng.IntN(3))%len(names)]
				if err := scenarios[name](u); err != nil {
					d.t.Errorf("%s: %v", name, err)
				}
				if u.refused {
					u.visitor, u.refused = visit(d.t, d.url), false // another owner, with another budget
				}
				d.count("did "+name, 1)
			}
		})
	}
	vandal.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(400 * time.Millisecond):
				d.killOne()
			}
		}
	})
	users.Wait()
	vandal.Wait()
}

func (d *soak) count(what string, runs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[what]++
	d.runs += runs
}

// told is what was done, and how the runs ended.
func (d *soak) told() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(d.done)) {
		fmt.Fprintf(&b, "%s: %d; ", what, d.done[what])
	}
	return b.String()
}

// killOne kills any process of any sandbox, as a machine without memory does.
func (d *soak) killOne() {
	all := d.processes()
	if len(all) == 0 {
		return
	}
	pid, _, _ := strings.Cut(all[rand.IntN(len(all))], " ")
	if n, _ := strconv.Atoi(pid); n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL)
		d.count("killed a process", 0)
	}
}

// read waits until all is at rest, and tells what is held then. What is more than
// first has is given a while to go.
func (d *soak) read(first *reading) reading {
	now := d.held()
	same := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && same < 5; {
		time.Sleep(100 * time.Millisecond)
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		next := d.held()
		switch {
		case first == nil && maps.Equal(now, next), first != nil && len(reading{held: next}.problems(*first)) == 0:
			same++
		default:
			same = 0
		}
		now = next
	}
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	now["heap KiB"] = int64(m.HeapAlloc >> 10)
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(d.t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(d.t, err)
	now["RSS MiB"] = pages * int64(os.Getpagesize()) >> 20
	d.mu.Lock()
	defer d.mu.Unlock()
	return reading{time.Since(d.began), d.runs, now}
}

func (d *soak) held() map[string]int64 {
	held := map[string]int64{
		"goroutines": int64(runtime.NumGoroutine()),
		"sessions":   int64(d.sessions.Len()),
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	held["descriptors"] = int64(len(entries))
	for _, p := range d.processes() {
		held["processes"]++
		if strings.HasSuffix(p, " Z") {
			held["zombies"]++
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	held["mounts"] = int64(bytes.Count(mounts, []byte("\n")))
	own := fmt.Sprintf(".%d.", os.Getpid()) // a part of the names of this process's cgroups
	_ = filepath.WalkDir("/sys/fs/cgroup", func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(e.Name(), own) {
			held["cgroups"]++
		}
		return nil
	})
	_ = filepath.WalkDir(d.temp, func(name string, _ fs.DirEntry, _ error) error {
		if name != d.temp {
			held["temp files"]++
		}
		return nil
	})
	stats := d.store.DB.Stats()
	held["connections"], held["in use"] = int64(stats.OpenConnections), int64(stats.InUse)
	held["descriptors"] -= int64(stats.OpenConnections)
	var left int64
	if err := d.store.DB.QueryRow(`SELECT COUNT(*) FROM fnloop_runs WHERE NOT ended AND writer <> ''`).Scan(&left); err != nil {
		d.t.Error(err)
	}
	held["runs left"] = left - int64(d.waiting.Load())
	if d.postgres {
		var n int64
		if err := d.store.DB.QueryRow(`SELECT COUNT(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'`).Scan(&n); err != nil {
			d.t.Error(err)
		}
		held["in transaction"] = n
	}
	return held
}

// processes are those of sandboxes: all below this process but a database's, each
// as its ID, its name and its state.
func (d *soak) processes() (all []string) {
	type process struct{ id, parent, name, state string }
	children := make(map[string][]process)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		head, rest, _ := strings.Cut(string(stat), "(")
		at := strings.LastIndex(rest, ")")
		f := strings.Fields(rest[at+1:])
		p := process{strings.TrimSpace(head), f[1], rest[:at], f[0]}
		children[p.parent] = append(children[p.parent], p)
	}
	var visit func(id string)
	visit = func(id string) {
		for _, p := range children[id] {
			if p.name != "postgres" {
				all = append(all, p.id+" "+p.name+" "+p.state)
				visit(p.id)
			}
		}
	}
	visit(strconv.Itoa(os.Getpid()))
	return all
}

// A soakUser is one of the people.
type soakUser struct {
	*visitor
	soak    *soak
	rng     *rand.Rand
	refused bool // a message, as the budget was used up: nothing is said until the scenario is over
}

// say sends a message, and follows the run to its end unless begun is not nil:
// that is called instead, once the run goes on.
func (u *soakUser) say(chat, text string, begun func(), files ...upload) error {
	if u.refused {
		return nil
	}
	s := u.state(chat)
	r := u.send(chat, files, "version", fmt.Sprint(s.Chat.Version), "parent", s.Chat.Head, "text", text)
	return u.after(chat, r, begun)
}

func (u *soakUser) after(chat string, r answered, begun func()) error {
	if r.status == http.StatusTooManyRequests {
		u.soak.count("refused: budget", 0)
		u.refused = true
		return nil
	}
	if r.status != http.StatusAccepted {
		return fmt.Errorf("the message got %d: %s", r.status, r.body)
	}
	if begun != nil {
		begun()
	}
	return u.end(chat)
}

// end follows a run to its end.
func (u *soakUser) end(chat string) error {
	r := u.get("/chats/" + chat + "/events")
	if strings.Contains(r.body, `"code":"not_stored"`) {
		return errors.New("the answer was not stored")
	}
	if strings.Contains(r.body, `"code":"files"`) { // its sandbox was killed: the run waits, as the page says
		u.soak.count("went on: files", 1)
		s := u.state(chat)
		err := u.after(chat, u.send(chat, nil, "version", fmt.Sprint(s.Chat.Version), "parent", s.Chat.Head), nil)
		if u.refused {
			u.soak.waiting.Add(1)
		}
		return err
	}
	stop := "unseen" // it had ended before
	if at := strings.LastIndex(r.body, "data: {"); at >= 0 {
		var done struct {
			Type   string
			Answer struct{ Stop string }
		}
		data, _, _ := strings.Cut(r.body[at+len("data: "):], "\n")
		if err := json.Unmarshal([]byte(data), &done); err != nil || done.Type != "done" {
			return fmt.Errorf("the last event is %.200s", data)
		}
		stop = done.Answer.Stop
	}
	u.soak.count("ended: "+stop, 1)
	for began := time.Now(); u.soak.hub.Running(chat); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			return errors.New("the run goes on")
		}
	}
	return nil
}

// stopSoon stops the run after a moment.
func (u *soakUser) stopSoon(chat string) func() {
	return func() {
		time.Sleep(time.Duration(u.rng.IntN(150)) * time.Millisecond)
		if r := u.do(http.MethodPost, "/chats/"+chat+"/stop", "", nil); r.status != http.StatusNoContent && r.status != http.StatusConflict {
			u.t.Errorf("stop got %d: %s", r.status, r.body)
		}
	}
}

// leave reads a little of the run's events on a connection of its own, and is gone.
func (u *soakUser) leave(chat string, slowly bool) func() {
	return func() {
		conn, err := net.Dial("tcp", strings.TrimPrefix(u.url, "http://"))
		if err != nil {
			u.t.Error(err)
			return
		}
		defer conn.Close()
		if slowly {
			_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
		}
		var cookies []string
		req, _ := http.NewRequest(http.MethodGet, u.url, nil)
		for _, c := range u.Jar.Cookies(req.URL) {
			cookies = append(cookies, c.Name+"="+c.Value)
		}
		fmt.Fprintf(conn, "GET /chats/%s/events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: %s\r\n\r\n", chat, strings.Join(cookies, "; "))
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if !slowly {
			_, _ = io.ReadFull(conn, make([]byte, 300))
			return
		}
		for range 20 {
			if _, err := conn.Read(make([]byte, 40)); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// scenarios are what users do.
var scenarios = map[string]func(*soakUser) error{
	"talk": func(u *soakUser) error {
		chat := u.newChat()
		return errors.Join(u.say(chat, "say 20", nil), u.say(chat, "say 40\ncall orders {\"customer\":\"mina\"}", nil))
	},
	"program": func(u *soakUser) error {
		return u.say(u.newChat(), callLine("run_python", "code", "print(sum(range(100000)))"), nil)
	},
	"session": func(u *soakUser) error {
		chat := u.newChat()
		err := errors.Join(
			u.say(chat, callLine("python", "code", "n = len(open('data.csv').read())"), nil, upload{"data.csv", make([]byte, 20_000)}),
			u.say(chat, callLine("python", "code", "open('out.txt', 'w').write(str(n)); n")+callLine("python", "code", "n + 1"), nil))
		if r := u.get("/chats/" + chat + "/files/out.txt"); r.status != 200 && r.status != 404 { // the cell may have been killed
			err = errors.Join(err, fmt.Errorf("the file got %d: %s", r.status, r.body))
		}
		return err
	},
	"stop in a stream": func(u *soakUser) error { c := u.newChat(); return u.say(c, "say 200", u.stopSoon(c)) },
	"stop in a program": func(u *soakUser) error {
		c := u.newChat()
		return u.say(c, callLine("run_python", "code", "import time; time.sleep(60)"), u.stopSoon(c))
	},
	"stop in a cell": func(u *soakUser) error {
		c := u.newChat()
		return u.say(c, callLine("python", "code", "import time; time.sleep(60)"), u.stopSoon(c))
	},
	"stop in a handler": func(u *soakUser) error { c := u.newChat(); return u.say(c, "call hang {}", u.stopSoon(c)) },
	"stop, then go on": func(u *soakUser) error {
		c := u.newChat()
		return errors.Join(u.say(c, "say 200", u.stopSoon(c)), u.say(c, "say 5", nil))
	},
	"crash of a program": func(u *soakUser) error {
		return u.say(u.newChat(), callLine("run_python", "code", "import os; os.kill(os.getpid(), 11)"), nil)
	},
	"crash of a cell": func(u *soakUser) error {
		c := u.newChat()
		return errors.Join(
			u.say(c, callLine("python", "code", "x = 1")+callLine("python", "code", "import os; os.kill(os.getpid(), 9)"), nil),
			u.say(c, callLine("python", "code", "x"), nil))
	},
	"memory": func(u *soakUser) error {
		return u.say(u.newChat(), callLine("run_python", "code", "x = bytearray(1 << 30)"), nil)
	},
	"fork bomb": func(u *soakUser) error {
		return u.say(u.newChat(), callLine("run_python", "code", "import os\nfor _ in range(20): os.fork()"), nil)
	},
	"panic":  func(u *soakUser) error { return u.say(u.newChat(), "call panic {}", nil) },
	"busy":   func(u *soakUser) error { return u.say(u.newChat(), "fault busy", nil) },
	"down":   func(u *soakUser) error { return u.say(u.newChat(), "fault down", nil) },
	"cut":    func(u *soakUser) error { return u.say(u.newChat(), "fault cut", nil) },
	"reset":  func(u *soakUser) error { return u.say(u.newChat(), "fault reset", nil) },
	"silent": func(u *soakUser) error { return u.say(u.newChat(), "fault silent", nil) },
	"failed": func(u *soakUser) error { return u.say(u.newChat(), "fault failed", nil) },
	"gone":   func(u *soakUser) error { c := u.newChat(); return u.say(c, "say 60", u.leave(c, false)) },
	"slow":   func(u *soakUser) error { c := u.newChat(); return u.say(c, "say 60", u.leave(c, true)) },
	"approval": func(u *soakUser) error {
		c := u.newChat()
		if err := u.say(c, `call refund {"order":"A-1001"}`, nil); err != nil {
			return err
		}
		s := u.state(c)
		if len(s.Runs) == 0 || u.soak.hub.Running(c) || !strings.Contains(string(s.Runs[0].Seen), "approval_requested") {
			return nil // the budget was used up
		}
		_, call, _ := strings.Cut(string(s.Runs[0].Seen), `"id":"call_`)
		call, _, _ = strings.Cut(call, `"`)
		decisions := fmt.Sprintf(`{"call_%s":{"approve":%v}}`, call, u.rng.IntN(2) == 0)
		return u.after(c, u.send(c, nil, "version", fmt.Sprint(s.Chat.Version), "parent", s.Chat.Head, "decisions", decisions), nil)
	},
	"picture": func(u *soakUser) error { return u.say(u.newChat(), "say 5", nil, upload{"a.png", picture(u.t)}) },
}
