// Package capacity simulates a chat back end: people who think and ask, a model that
// takes its time, programs and cells that want processors, sessions that end, and a
// database. What a step costs is measured (measured.json); what is simulated is how
// the steps get into each other's way.
package capacity

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

//go:embed measured.json
var measured []byte

// A Figure is one measured number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	What  string  `json:"what"`
}

// Measured are the figures that the simulation takes as given, with the machine and
// the day that they are of.
type Measured struct {
	Machine string   `json:"machine"`
	Date    string   `json:"date"`
	Figures []Figure `json:"figures"`
	Trials  []Trial  `json:"trials"`
}

// A Trial is what a real back end did with a load.
type Trial struct {
	Load   Load    `json:"load"`
	Host   Host    `json:"host"`
	Load1  float64 `json:"load1"` // of the machine, when it ended
	Result Result  `json:"result"`
}

// ReadMeasured gives the figures of measured.json.
func ReadMeasured() (m Measured, err error) {
	err = json.Unmarshal(measured, &m)
	return m, err
}

// Of is the figure of a name; one that is missing panics, as it is a fault of the
// package.
func (m Measured) Of(name string) float64 {
	for _, f := range m.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	panic(fmt.Sprintf("capacity: measured.json has no figure %q", name))
}

// ms is a figure that is milliseconds.
func (m Measured) ms(name string) time.Duration {
	return time.Duration(m.Of(name) * float64(time.Millisecond))
}

// A Load is what people do.
type Load struct {
	// Chats are open at once. Each of them waits for its user or for an answer.
	Chats int
	// Think is the mean time between an answer and the next message.
	Think time.Duration
	// Model is how long the model takes for a response that is a call, and Text for
	// one that is text, from the request to the end of the stream.
	Model, Text time.Duration
	// Deltas are the events of a text.
	Deltas int
	// Programs and Cells are how many calls of each kind a message leads to, on
	// average. A share of 0.2 means one message in five, 3 means three of each.
	Programs, Cells float64
	// Work is what a program or a cell computes by itself, beside what it costs to
	// run one.
	Work time.Duration
	// WorkMiB is the memory that a program or a busy cell takes for that, and
	// SessionMiB what a session keeps of it: data and imports.
	WorkMiB, SessionMiB float64
}

// A Host is one process of the back end on a machine.
type Host struct {
	Processors  int
	MaxPrograms int           // Runner.MaxPrograms
	MaxSessions int           // Sessions.Max
	Idle        time.Duration // Sessions.Idle
	Connections int           // of the database's pool
}

// A Result is what a host does with a load.
type Result struct {
	Messages   float64 // answered, a second
	Responses  float64 // of the model, a second
	P50, P95   time.Duration
	Wait95     time.Duration // of a program for its place
	BackEnd    float64       // processors that the back end itself keeps busy
	Programs   float64       // processors that programs and cells keep busy
	Waiting    float64       // runs that go on, on average: a request to the model and a reader each
	Sessions   float64       // that are open, on average
	Opened     float64       // sessions opened, a second
	Lost       float64       // the share of cells after the first of a chat that found their variables gone
	Statements float64       // statements of the database, a second
	WALKiB     float64       // that the database logs, a second
	MemoryMiB  float64       // of the back end, its sessions and programs, at the end of the 95th of a hundred looks
	Database   float64       // processors that the database keeps busy
}

// Simulate runs a load on a host for a time, after as long as the chats need to get
// under way, and with random numbers of a seed.
func Simulate(m Measured, l Load, h Host, length time.Duration, seed uint64) Result {
	s := &simulation{
		m: m, l: l, h: h, rng: rand.New(rand.NewPCG(seed, 1)),
		cpu:      &processors{n: float64(h.Processors)},
		programs: &places{n: h.MaxPrograms}, pool: &places{n: h.Connections},
		open: make(map[int]*session), had: make(map[int]bool),
	}
	s.cpu.sim, s.warm = s, l.Think
	if l.Cells > 0 { // sessions pile up until the first ones end
		s.warm = max(l.Think, h.Idle)
	}
	s.end = s.warm + length
	for chat := range l.Chats {
		s.after(time.Duration(s.rng.Float64()*float64(l.Think)), func() { s.message(chat) })
	}
	for i := range 100 {
		s.after(s.warm+time.Duration(float64(length)*float64(i)/100), s.look)
	}
	for len(s.events) > 0 && s.now < s.end {
		e := s.pop()
		s.now = e.at
		e.do()
	}
	return s.result(length)
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type simulation struct {
	m   Measured
	l   Load
	h   Host
	rng *rand.Rand

	now, warm, end time.Duration
	events         []event // a heap
	seq            int

	cpu      *processors
	programs *places
	pool     *places

	open    map[int]*session
	idle    []rested // sessions in the order in which they became idle
	waiting []func() // for a session, as all are busy

	had                            map[int]bool
	running                        int
	took, waited                   []time.Duration
	responses, opened, cells, lost int
	statements, wal                float64
	backEnd, work                  time.Duration
	looks                          []float64
	sumRuns, sumSessions           float64
}

// A session is a conversation's interpreter.
type session struct {
	chat int
	busy int
	turn int // counts its uses, so that an old timer does nothing
}

func (s *simulation) after(d time.Duration, do func()) {
	s.seq++
	s.events = append(s.events, event{s.now + d, s.seq, do})
	for i := len(s.events) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.events[i].before(s.events[up]) {
			break
		}
		s.events[i], s.events[up] = s.events[up], s.events[i]
		i = up
	}
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (s *simulation) pop() event {
	first := s.events[0]
	last := len(s.events) - 1
	s.events[0], s.events[last] = s.events[last], event{}
	s.events = s.events[:last]
	for i := 0; ; {
		least := i
		for _, c := range []int{2*i + 1, 2*i + 2} {
			if c < last && s.events[c].before(s.events[least]) {
				least = c
			}
		}
		if least == i {
			return first
		}
		s.events[i], s.events[least] = s.events[least], s.events[i]
		i = least
	}
}

func (s *simulation) measuring() bool { return s.now >= s.warm }

// exp is a random time of that mean.
func (s *simulation) exp(mean time.Duration) time.Duration {
	return time.Duration(s.rng.ExpFloat64() * float64(mean))
}

// times is a random number of that mean: the whole part, and one more by chance.
func (s *simulation) times(mean float64) int {
	whole, part := math.Modf(mean)
	n := int(whole)
	if s.rng.Float64() < part {
		n++
	}
	return n
}

// A step does something and calls then.
type step func(then func())

// message is a user's message with its answer, and all that follows it.
func (s *simulation) message(chat int) {
	began := s.now
	s.running++
	steps := []step{s.write("run")}
	calls := make([]bool, s.times(s.l.Programs), 8) // true for a cell
	for range s.times(s.l.Cells) {
		calls = append(calls, true)
	}
	s.rng.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	for _, cell := range calls {
		steps = append(steps, s.model(s.l.Model), s.write("call"))
		if cell {
			steps = append(steps, s.compute("cell_host_ms", 0), s.cell(chat))
		} else {
			steps = append(steps, s.compute("program_host_ms", 0), s.program())
		}
		steps = append(steps, s.write(""))
	}
	pieces := time.Duration(float64(s.l.Deltas) * s.m.Of("delta_cpu_us") * float64(time.Microsecond))
	steps = append(steps, s.model(s.l.Text), s.compute("run_cpu_ms", pieces), s.write(""))
	s.do(steps, func() {
		s.running--
		if s.measuring() {
			s.took = append(s.took, s.now-began)
		}
		s.after(s.exp(s.l.Think), func() { s.message(chat) })
	})
}

func (s *simulation) do(steps []step, then func()) {
	if len(steps) == 0 {
		then()
		return
	}
	steps[0](func() { s.do(steps[1:], then) })
}

// compute takes processor time of the back end.
func (s *simulation) compute(figure string, more time.Duration) step {
	return func(then func()) {
		d := s.m.ms(figure) + more
		if s.measuring() {
			s.backEnd += d
		}
		s.cpu.use(d, then)
	}
}

// model waits for a response.
func (s *simulation) model(takes time.Duration) step {
	return func(then func()) {
		if s.measuring() {
			s.responses++
		}
		s.after(takes, then)
	}
}

// write is a transaction of the database, for which a connection is needed. All of a
// run or a call are counted with the one that names it.
func (s *simulation) write(kind string) step {
	return func(then func()) {
		if s.measuring() && kind != "" {
			s.statements += s.m.Of(kind + "_statements")
			s.wal += s.m.Of(kind + "_wal_kib")
		}
		s.pool.enter(func() {
			s.after(s.m.ms("write_ms"), func() {
				s.pool.leave()
				then()
			})
		})
	}
}

// program runs one program in a sandbox of its own.
func (s *simulation) program() step {
	return func(then func()) {
		came := s.now
		s.programs.enter(func() {
			d := s.m.ms("program_cpu_ms") + s.l.Work
			if s.measuring() {
				s.waited = append(s.waited, s.now-came)
				s.work += d
			}
			s.cpu.use(d, func() {
				s.programs.leave()
				then()
			})
		})
	}
}

// cell runs a cell in the session of a chat, which is opened if need be.
func (s *simulation) cell(chat int) step {
	return func(then func()) {
		s.acquire(chat, func(x *session, opened bool) {
			d := s.m.ms("cell_cpu_ms") + s.l.Work
			if opened {
				d += s.m.ms("session_cpu_ms")
			}
			if s.measuring() {
				s.work += d
				if s.had[chat] {
					s.cells++
					if opened {
						s.lost++
					}
				}
				if opened {
					s.opened++
				}
			}
			s.had[chat] = true
			s.cpu.use(d, func() {
				s.release(x)
				then()
			})
		})
	}
}

func (s *simulation) acquire(chat int, then func(x *session, opened bool)) {
	x := s.open[chat]
	if x != nil {
		x.busy++
		x.turn++
		then(x, false)
		return
	}
	if len(s.open) >= s.h.MaxSessions {
		victim := s.longestIdle()
		if victim == nil {
			s.waiting = append(s.waiting, func() { s.acquire(chat, then) })
			return
		}
		delete(s.open, victim.chat)
	}
	x = &session{chat: chat, busy: 1}
	s.open[chat] = x
	then(x, true)
}

// rested is a session that became idle.
type rested struct {
	*session
	turn int
}

// still reports whether it is, and open.
func (r rested) still(s *simulation) bool {
	return r.session.turn == r.turn && s.open[r.chat] == r.session
}

func (s *simulation) longestIdle() *session {
	for len(s.idle) > 0 {
		first := s.idle[0]
		s.idle = s.idle[1:]
		if first.still(s) {
			return first.session
		}
	}
	return nil
}

func (s *simulation) release(x *session) {
	x.busy--
	x.turn++
	r := rested{x, x.turn}
	s.idle = append(s.idle, r)
	s.after(s.h.Idle, func() {
		if r.still(s) {
			delete(s.open, x.chat)
		}
	})
	if len(s.waiting) > 0 {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		next()
	}
}

// look counts the memory that is in use.
func (s *simulation) look() {
	busy := float64(s.programs.busy)
	for _, x := range s.open {
		if x.busy > 0 {
			busy++
		}
	}
	mib := s.m.Of("base_mib") + float64(s.running)*s.m.Of("chat_kib")/1024 +
		float64(len(s.open))*(s.m.Of("session_mib")+s.l.SessionMiB) + float64(s.programs.busy)*s.m.Of("program_mib") + busy*s.l.WorkMiB
	s.looks = append(s.looks, mib)
	s.sumRuns += float64(s.running)
	s.sumSessions += float64(len(s.open))
}

func (s *simulation) result(length time.Duration) Result {
	sec := length.Seconds()
	n := float64(max(len(s.looks), 1))
	slices.Sort(s.looks)
	r := Result{
		Messages: float64(len(s.took)) / sec, Responses: float64(s.responses) / sec,
		P50: quantile(s.took, 0.5), P95: quantile(s.took, 0.95), Wait95: quantile(s.waited, 0.95),
		BackEnd: s.backEnd.Seconds() / sec, Programs: s.work.Seconds() / sec,
		Waiting: s.sumRuns / n, Sessions: s.sumSessions / n, Opened: float64(s.opened) / sec,
		Statements: s.statements / sec, WALKiB: s.wal / sec,
		MemoryMiB: quantile(s.looks, 0.95),
		Database:  s.statements / sec * s.m.Of("write_cpu_ms") / 1000,
	}
	if s.cells > 0 {
		r.Lost = float64(s.lost) / float64(s.cells)
	}
	return r
}

func quantile[T cmp.Ordered](all []T, q float64) (v T) {
	if len(all) == 0 {
		return v
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// places are how many may do something at once; others wait in order.
type places struct {
	n, busy int
	queue   []func()
}

func (p *places) enter(do func()) {
	if p.busy == p.n {
		p.queue = append(p.queue, do)
		return
	}
	p.busy++
	do()
}

func (p *places) leave() {
	if len(p.queue) == 0 {
		p.busy--
		return
	}
	next := p.queue[0]
	p.queue = p.queue[1:]
	next()
}

// processors are shared in equal parts by all that want them, one each at most, as a
// kernel does.
type processors struct {
	sim  *simulation
	n    float64
	jobs []job // by how much of the work that each gets is to be done until its end
	done float64
	at   time.Duration // when done was counted
	turn int
}

type job struct {
	until float64
	then  func()
}

func (p *processors) rate() float64 {
	if len(p.jobs) == 0 {
		return 1
	}
	return min(1, p.n/float64(len(p.jobs)))
}

// count brings done up to now.
func (p *processors) count() {
	p.done += (p.sim.now - p.at).Seconds() * p.rate()
	p.at = p.sim.now
}

func (p *processors) use(d time.Duration, then func()) {
	if d <= 0 {
		then()
		return
	}
	p.count()
	j := job{p.done + d.Seconds(), then}
	i, _ := slices.BinarySearchFunc(p.jobs, j, func(a, b job) int {
		if a.until <= b.until {
			return -1
		}
		return 1
	})
	p.jobs = slices.Insert(p.jobs, i, j)
	p.plan()
}

// plan looks again when the next job is done.
func (p *processors) plan() {
	p.turn++
	if len(p.jobs) == 0 {
		return
	}
	turn := p.turn
	wait := time.Duration(math.Ceil((p.jobs[0].until - p.done) / p.rate() * float64(time.Second)))
	p.sim.after(max(wait, 0), func() {
		if p.turn != turn {
			return
		}
		p.count()
		first := p.jobs[0]
		p.jobs = slices.Delete(p.jobs, 0, 1)
		p.plan()
		first.then()
	})
}
