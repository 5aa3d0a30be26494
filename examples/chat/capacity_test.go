package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/internal/capacity"
	"github.com/fnloop/fnloop/internal/pgtest"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

var (
	capacityFile  = flag.String("capacity", "", "where TestCapacity writes what it has measured: internal/capacity/measured.json")
	capacityCPU   = flag.String("processor", "", "what the machine is, for that file")
	capacityRuns  = flag.Int("capacityruns", 0, "how many runs of a kind are measured; zero takes the figures that there are")
	capacityChats = flag.Int("capacitychats", 4, "how many chats there are at once in a trial; zero is no trial")
	capacityTime  = flag.Duration("capacitytime", 2*time.Second, "how long a trial takes, after its beginning")
	capacityThink = flag.Duration("capacitythink", time.Second, "how long people think, on average")
)

// loaded is a back end in a process of its own, so that what it costs can be told
// from what its users and its model cost.
type loaded struct {
	DSN, Model            string
	MaxSessions, MaxConns int
	Idle                  time.Duration
}

// serveLoaded serves until standard input ends.
func serveLoaded() {
	var l loaded
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(json.Unmarshal([]byte(os.Getenv("CHAT_TEST_LOADED")), &l))
	conns, err := pgx.ParseConfig(l.DSN)
	check(err)
	count := new(statements)
	conns.Tracer = count
	db := stdlib.OpenDB(*conns)
	db.SetMaxOpenConns(l.MaxConns)
	db.SetMaxIdleConns(l.MaxConns)
	store := &chatstore.Store{DB: db, View: view}
	check(store.Migrate(context.Background()))
	_, err = db.Exec(shop)
	check(err)
	runner := &bubblewrap.Runner{}
	defer runner.Close()
	sessions := &interpreter.Sessions{Runner: runner, Max: l.MaxSessions, Idle: l.Idle}
	defer sessions.Close()
	store.KeepFiles(sessions)
	client := responses.NewResponseService(option.WithBaseURL(l.Model+"/v1"), option.WithAPIKey("test"))
	s := &server{store: store, hub: &fnloop.Hub{}, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), loop: &fnloop.Loop{
		Client: &client, Model: "gpt-test", State: fnloop.Stateless,
		Tools: []fnloop.Tool{sessions.Tool(), fnloop.PythonTool(runner, fnloop.Limits{}), ordersTool(store.DB)},
	}}
	store.Running, store.Logger = s.hub.Running, s.log
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println("http://" + listener.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("/", s.handler())
	mux.HandleFunc("GET /statements", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, count.n.Load()) })
	go func() { _ = http.Serve(listener, mux) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// statements counts those that go to the database.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A rig is a back end that is measured.
type rig struct {
	t   *testing.T
	db  *sql.DB
	cmd *exec.Cmd
	url string
}

// newRig starts a back end with a database.
func newRig(t *testing.T, model string, l loaded) *rig {
	l.DSN, l.Model = pgtest.Start(t), model
	db, err := sql.Open("pgx", l.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	config, err := json.Marshal(l)
	require.NoError(t, err)
	r := &rig{t: t, db: db, cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), "CHAT_TEST_LOADED="+string(config))
	r.cmd.Stderr = os.Stderr
	stdin, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		r.cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	r.url = strings.TrimSpace(line)
	return r
}

// A meter is what was used until a moment.
type meter struct {
	backEnd, sandboxes, database, own time.Duration // of processors
	statements                        int64
	walKiB                            float64
}

// A stat is a line of /proc.
type stat struct {
	id, parent  int
	name        string
	own, waited time.Duration // of processors, by itself and by what it has waited for
	rssKiB      int64
}

func stats() map[int]stat {
	all := make(map[int]stat)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), "(")
		at := strings.LastIndex(rest, ")")
		f := strings.Fields(rest[at+1:])
		tick := func(i int) time.Duration {
			n, _ := strconv.ParseInt(f[i], 10, 64)
			return time.Duration(n) * 10 * time.Millisecond
		}
		s := stat{id: id, name: rest[:at], own: tick(11) + tick(12), waited: tick(13) + tick(14)}
		s.parent, _ = strconv.Atoi(f[1])
		pages, _ := strconv.ParseInt(f[21], 10, 64)
		s.rssKiB = pages * int64(os.Getpagesize()) / 1024
		all[id] = s
	}
	return all
}

// below gives a process and those that it has started.
func below(all map[int]stat, root int) (list []stat) {
	children := make(map[int][]int)
	for _, s := range all {
		children[s.parent] = append(children[s.parent], s.id)
	}
	var visit func(int)
	visit = func(id int) {
		list = append(list, all[id])
		for _, c := range children[id] {
			visit(c)
		}
	}
	visit(root)
	return list
}

func (r *rig) read() meter {
	r.t.Helper()
	var m meter
	require.NoError(r.t, r.db.QueryRow(`SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn) / 1024.0`).Scan(&m.walKiB))
	res, err := http.Get(r.url + "/statements")
	require.NoError(r.t, err)
	defer res.Body.Close()
	_, err = fmt.Fscan(res.Body, &m.statements)
	require.NoError(r.t, err)
	all := stats()
	for _, s := range below(all, os.Getpid()) {
		switch {
		case s.id == os.Getpid():
			m.own = s.own
		case s.name == "postgres":
			m.database += s.own + s.waited
		case s.id == r.cmd.Process.Pid:
			m.backEnd += s.own
			m.sandboxes += s.waited
		default:
			m.sandboxes += s.own + s.waited
		}
	}
	return m
}

// sandboxMiB is the memory of all processes of sandboxes, with their share of what
// they have together.
func (r *rig) sandboxMiB() float64 {
	var kib int64
	for _, s := range below(stats(), r.cmd.Process.Pid)[1:] {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.id))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				kib += n
			}
		}
	}
	return float64(kib) / 1024
}

func (r *rig) rssMiB() float64 { return float64(stats()[r.cmd.Process.Pid].rssKiB) / 1024 }

// atRest waits until sessions have ended: no sandbox has come or gone for a second.
func (r *rig) atRest() {
	var last string
	var since time.Time
	require.Eventually(r.t, func() bool {
		var ids []int
		for _, s := range below(stats(), r.cmd.Process.Pid) {
			ids = append(ids, s.id)
		}
		slices.Sort(ids)
		if now := fmt.Sprint(ids); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	}, time.Minute, 50*time.Millisecond)
}

// A person is a user with one chat.
type person struct {
	*visitor
	chat    string
	version int
	head    string
}

func (r *rig) people(n int) (all []*person) {
	for range n {
		v := visit(r.t, r.url)
		all = append(all, &person{visitor: v, chat: v.newChat()})
	}
	return all
}

// ask sends a message and reads the answer to its end. It gives the number of texts
// that came.
func (p *person) ask(text string) int {
	a := p.send(p.chat, nil, "version", strconv.Itoa(p.version), "parent", p.head, "text", text)
	require.Equal(p.t, http.StatusAccepted, a.status, a.body)
	var begun struct{ Run string }
	require.NoError(p.t, json.Unmarshal([]byte(a.body), &begun))
	p.version, p.head = p.version+1, begun.Run
	events := p.get("/chats/" + p.chat + "/events").body
	require.Contains(p.t, events, `"stop":"answered"`)
	return strings.Count(events, "event: text_delta")
}

// each lets people ask once, four at a time.
func each(people []*person, text string) (deltas int) {
	var work sync.WaitGroup
	var some atomic.Int64
	next := make(chan *person, len(people)) // with room for all, should one fail
	for range 4 {
		work.Go(func() {
			for p := range next {
				some.Store(int64(p.ask(text)))
			}
		})
	}
	for _, p := range people {
		next <- p
	}
	close(next)
	work.Wait()
	return int(some.Load())
}

// What a run of each kind costs, and what many chats at once do, for
// internal/capacity. docs/capacity.md has the results.
func TestCapacity(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	needs(t, "bwrap")
	if !pgtest.Installed() {
		t.Skip("PostgreSQL is not installed")
	}
	m, err := capacity.ReadMeasured()
	require.NoError(t, err)
	if b, err := os.ReadFile(*capacityFile); err == nil { // as another trial has left it
		require.NoError(t, json.Unmarshal(b, &m))
	}
	if *capacityRuns > 0 {
		m.Machine, m.Date, m.Figures = *capacityCPU, time.Now().UTC().Format(time.DateOnly), calibrate(t)
	}
	if *capacityChats > 0 {
		trial := try(t, *capacityChats)
		m.Trials = slices.DeleteFunc(m.Trials, func(o capacity.Trial) bool { return o.Load.Chats == trial.Load.Chats })
		m.Trials = append(m.Trials, trial)
		slices.SortFunc(m.Trials, func(a, b capacity.Trial) int { return a.Load.Chats - b.Load.Chats })
	}
	for i := range m.Trials {
		tr := &m.Trials[i]
		sim := capacity.Simulate(m, tr.Load, tr.Host, 10*time.Minute, 1)
		t.Logf("%d chats\nreal      %+v\nsimulated %+v", tr.Load.Chats, tr.Result, sim)
	}
	for _, f := range m.Figures {
		t.Logf("%-16s %8.3f %s", f.Name, f.Value, f.Unit)
	}
	if *capacityFile != "" {
		b, err := json.MarshalIndent(m, "", "\t")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*capacityFile, append(b, '\n'), 0o644))
	}
}

// figure is one that this test measures.
func figure(name string, value float64, unit, what string) capacity.Figure {
	return capacity.Figure{Name: name, Value: math.Round(value*1000) / 1000, Unit: unit, What: what}
}

func calibrate(t *testing.T) (all []capacity.Figure) {
	service := &longModel{play: drill}
	model := service.serve(t)
	n := *capacityRuns
	r := newRig(t, model, loaded{MaxSessions: 100, MaxConns: 20, Idle: 200 * time.Millisecond})
	each(r.people(n), "say 20\npace 0\n"+callLine("run_python", "code", "1")+callLine("python", "code", "1")) // pools fill
	r.atRest()
	base := r.rssMiB()
	type cost struct {
		meter
		deltas int
	}
	run := func(text string) (c cost) {
		people := r.people(n)
		r.atRest()
		before := r.read()
		c.deltas = each(people, "pace 0\n"+text)
		r.atRest()
		after := r.read()
		per := func(d time.Duration) time.Duration { return d / time.Duration(n) }
		c.backEnd, c.sandboxes = per(after.backEnd-before.backEnd), per(after.sandboxes-before.sandboxes)
		c.database, c.own = per(after.database-before.database), per(after.own-before.own)
		c.statements, c.walKiB = after.statements-before.statements, (after.walKiB-before.walKiB)/float64(n)
		return c
	}
	orders := "call orders {\"customer\":\"mina\"}\n"
	short, long := run("say 20"), run("say 400")
	calls, program := run("say 20\n"+strings.Repeat(orders, 4)), run("say 20\n"+callLine("run_python", "code", "print(1)"))
	cell := run("say 20\n" + callLine("python", "code", "x = 1"))
	cells := run("say 20\n" + strings.Repeat(callLine("python", "code", "x = 1"), 6))
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	delta := ms(long.backEnd-short.backEnd) / float64(max(long.deltas-short.deltas, 1))
	perCell := func(now, before time.Duration) float64 { return ms(now-before) / 5 }
	cellHost, cellCPU := perCell(cells.backEnd, cell.backEnd), perCell(cells.sandboxes, cell.sandboxes)
	session := ms(cell.backEnd+cell.sandboxes-short.backEnd-short.sandboxes) - cellHost - cellCPU
	all = []capacity.Figure{
		figure("run_cpu_ms", ms(short.backEnd)-float64(short.deltas)*delta, "ms of CPU", "a message without calls: its POST, its reader, its response, the start and the end of the run"),
		figure("delta_cpu_us", delta*1000, "µs of CPU", "a piece of the text, from the model to the browser"),
		figure("function_host_ms", ms(calls.backEnd-short.backEnd)/4, "ms of CPU", "a call of a Go function that asks the database: its response, both checkpoints"),
		figure("program_host_ms", ms(program.backEnd-short.backEnd), "ms of CPU", "a call that runs a program, in the back end's process"),
		figure("program_cpu_ms", ms(program.sandboxes-short.sandboxes), "ms of CPU", "and in its sandbox: of bubblewrap without Warm, with a program that does next to nothing, until nothing is left of it"),
		figure("cell_host_ms", cellHost, "ms of CPU", "a call that runs a cell, in the back end's process"),
		figure("cell_cpu_ms", cellCPU, "ms of CPU", "and in its session: a cell that does next to nothing, with the copy of the interpreter"),
		figure("session_cpu_ms", session, "ms of CPU", "the opening and closing of a session"),
		figure("run_statements", float64(short.statements)/float64(n), "statements", "a message, those that read included"),
		figure("call_statements", float64(calls.statements-short.statements)/float64(4*n), "statements", "a call: the checkpoint before it and the one after it, and the look-up that it makes itself"),
		figure("run_wal_kib", short.walKiB, "KiB of WAL", "a message of a new conversation"),
		figure("call_wal_kib", (calls.walKiB-short.walKiB)/4, "KiB of WAL", "a call, in a conversation of a few items"),
		figure("write_cpu_ms", ms(calls.database)*float64(n)/float64(calls.statements), "ms of CPU", "a statement, of PostgreSQL's processes"),
		figure("test_cpu_ms", ms(calls.own-short.own)/4, "ms of CPU", "a response, of the model's stand-in and the users in the test: no part of a back end"),
		figure("base_mib", base, "MiB", "the process of the back end at rest"),
	}
	all = append(all, latency(t, r.db), turnsWAL(r, n))
	return append(all, held(t, model, n)...)
}

// held is the memory of what waits.
func held(t *testing.T, model string, n int) (all []capacity.Figure) {
	r := newRig(t, model, loaded{MaxSessions: 200, MaxConns: 20, Idle: time.Hour})
	people := r.people(2 * n)
	all = append(all, figure("chat_kib", 45, "KiB", "a chat whose run waits and has a reader, heap and stacks: `go test -run '^$' -bench Chats .`"))
	some := people[:min(len(people), 20)]
	before := r.sandboxMiB()
	each(some, "say 5\npace 0\n"+callLine("python", "code", "x = 1"))
	all = append(all, figure("session_mib", (r.sandboxMiB()-before)/float64(len(some)), "MiB", "a session that waits, before imports, with its sandbox's processes (PSS)"))
	before = r.sandboxMiB()
	done := make(chan bool)
	go func() {
		each(people[:4], "say 5\npace 0\n"+callLine("run_python", "code", "import time; time.sleep(3)"))
		close(done)
	}()
	time.Sleep(2 * time.Second)
	all = append(all, figure("program_mib", (r.sandboxMiB()-before)/4, "MiB", "a program that waits, with its sandbox's processes (PSS)"))
	<-done
	return all
}

// latency is how long one writer waits for a transaction.
func latency(t *testing.T, db *sql.DB) capacity.Figure {
	var took []time.Duration
	for range 200 {
		began := time.Now()
		_, err := db.Exec(`UPDATE fnloop_chats SET title = title WHERE id = (SELECT MIN(id) FROM fnloop_chats)`)
		require.NoError(t, err)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return figure("write_ms", float64(took[len(took)/2])/float64(time.Millisecond), "ms", "half of the statements that write take less, over a Unix socket without fsync")
}

// turnsWAL is what the twentieth message of a stateless conversation writes.
func turnsWAL(r *rig, n int) capacity.Figure {
	people := r.people(max(n/10, 2))
	for range 19 {
		each(people, "say 20\npace 0")
	}
	before := r.read()
	each(people, "say 20\npace 0")
	after := r.read()
	return figure("late_wal_kib", (after.walKiB-before.walKiB)/float64(len(people)), "KiB of WAL", "the twentieth message of a conversation with State Stateless, whose Answer has all items")
}

// try lets many people chat with a back end for a while.
func try(t *testing.T, chats int) capacity.Trial {
	service := &longModel{play: drill}
	h := capacity.Host{Processors: runtime.NumCPU(), MaxPrograms: 4 * runtime.NumCPU(), MaxSessions: 20, Idle: 10 * time.Second, Connections: 20}
	l := capacity.Load{Chats: chats, Think: *capacityThink, Model: time.Second, Programs: 0.2, Cells: 0.2}
	r := newRig(t, service.serve(t), loaded{MaxSessions: h.MaxSessions, MaxConns: h.Connections, Idle: h.Idle})
	people := r.people(chats)
	const say = "wait 1000\nsay 20\npace 50\n"
	alone := r.people(1)[0]
	l.Deltas = alone.ask(say)
	asked := time.Now()
	alone.ask(say)
	l.Text = time.Since(asked).Round(10 * time.Millisecond)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var mu sync.Mutex
	var took []time.Duration
	counting := false
	var work sync.WaitGroup
	for i, p := range people {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			pause := time.Duration(rng.Float64() * float64(l.Think))
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				text := say
				if rng.Float64() < l.Programs {
					text += callLine("run_python", "code", "print(1)")
				}
				if rng.Float64() < l.Cells {
					text += callLine("python", "code", "x = 1")
				}
				began := time.Now()
				p.ask(text)
				mu.Lock()
				if counting {
					took = append(took, time.Since(began))
				}
				mu.Unlock()
				pause = time.Duration(rng.ExpFloat64() * float64(l.Think))
			}
		})
	}
	time.Sleep(l.Think + 2*time.Second)
	before := r.read()
	mu.Lock()
	counting = true
	mu.Unlock()
	began := time.Now()
	var looks []float64
	for time.Since(began) < *capacityTime {
		time.Sleep(*capacityTime / 10)
		looks = append(looks, r.rssMiB()+r.sandboxMiB())
	}
	mu.Lock()
	counting = false
	mu.Unlock()
	sec := time.Since(began).Seconds()
	after := r.read()
	end()
	work.Wait()
	slices.Sort(took)
	slices.Sort(looks)
	require.NotEmpty(t, took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)))] }
	load1, _, _ := bytes.Cut(must(os.ReadFile("/proc/loadavg")), []byte(" "))
	trial := capacity.Trial{Load: l, Host: h}
	trial.Load1, _ = strconv.ParseFloat(string(load1), 64)
	per := func(d time.Duration) float64 { return d.Seconds() / sec }
	trial.Result = capacity.Result{
		Messages: float64(len(took)) / sec, P50: at(0.5), P95: at(0.95),
		BackEnd: per(after.backEnd - before.backEnd), Programs: per(after.sandboxes - before.sandboxes), Database: per(after.database - before.database),
		Statements: float64(after.statements-before.statements) / sec, WALKiB: (after.walKiB - before.walKiB) / sec, MemoryMiB: looks[len(looks)*95/100],
	}
	return trial
}

func must(b []byte, _ error) []byte { return b }
