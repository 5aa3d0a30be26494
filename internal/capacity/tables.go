package capacity

import (
	"fmt"
	"strings"
	"time"
)

// A scenario is a load of the page.
type scenario struct {
	name, is string
	load     Load
}

// scenarios are what the page tells of. The times of the model and the work of
// programs are assumptions: put your own in their place.
var scenarios = []scenario{
	{"talk", "no tools", Load{Think: time.Minute, Model: 2 * time.Second, Text: 8 * time.Second, Deltas: 200}},
	{"mixed", "a cell in every second message, a program in every fifth, each with 0.2 s of work", Load{
		Think: time.Minute, Model: 2 * time.Second, Text: 8 * time.Second, Deltas: 200,
		Programs: 0.2, Cells: 0.5, Work: 200 * time.Millisecond, WorkMiB: 50, SessionMiB: 20,
	}},
	{"analysis", "three cells in every message, each with 1 s of work, on data and imports of 150 MiB", Load{
		Think: time.Minute, Model: 3 * time.Second, Text: 8 * time.Second, Deltas: 200,
		Cells: 3, Work: time.Second, WorkMiB: 100, SessionMiB: 150,
	}},
}

// The host of the page.
const (
	hostProcessors = 16
	hostGiB        = 64
	tokensResponse = 3000 // of input and output, an assumption
)

func pageHost(sessions int) Host {
	return Host{Processors: hostProcessors, MaxPrograms: 4 * hostProcessors, MaxSessions: sessions, Idle: 20 * time.Minute, Connections: 20}
}

// Tables are the tables of docs/capacity.md by name.
func (m Measured) Tables() map[string]string {
	return map[string]string{"figures": m.figures(), "trials": m.trials(), "loads": loads(), "host": m.host(), "fleet": m.fleet()}
}

// rows writes a table of Markdown.
func rows(head string, all ...string) string {
	return head + "\n|" + strings.Repeat(" --- |", strings.Count(head, "|")-1) + "\n" + strings.Join(all, "\n") + "\n"
}

func (m Measured) figures() string {
	var all []string
	for _, f := range m.Figures {
		all = append(all, fmt.Sprintf("| `%s` | %s | %s %s |", f.Name, f.What, number(f.Value), f.Unit))
	}
	return fmt.Sprintf("Of %s, %s.\n\n", m.Date, m.Machine) + rows("| figure | of | measured |", all...)
}

// number has three digits that count.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func seconds(d time.Duration) string { return number(d.Seconds()) + " s" }

func (m Measured) trials() string {
	var all []string
	row := func(what string, r Result) {
		all = append(all, fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", what, number(r.Messages), seconds(r.P50), seconds(r.P95),
			number(r.BackEnd), number(r.Programs), number(r.Database), number(r.Statements), number(r.WALKiB), number(r.MemoryMiB)))
	}
	for _, t := range m.Trials {
		row(fmt.Sprintf("%d, real (%s)", t.Load.Chats, number(t.Load1)), t.Result)
		row(fmt.Sprintf("%d, simulated", t.Load.Chats), Simulate(m, t.Load, t.Host, 10*time.Minute, 1))
	}
	return rows("| chats | messages/s | half within | 95% within | back end | sandboxes | database | statements/s | WAL KiB/s | MiB |", all...)
}

func loads() string {
	var all []string
	for _, s := range scenarios {
		all = append(all, fmt.Sprintf("| %s | %s | %v | %v, %v | %d |", s.name, s.is, s.load.Think, s.load.Model, s.load.Text, s.load.Deltas))
	}
	return rows("| load | what a message leads to | think | a call, a text of the model | pieces |", all...)
}

func (m Measured) host() string {
	var all []string
	for _, c := range []struct {
		load, chats, sessions int
	}{
		{0, 1000, 100}, {0, 5000, 100}, {0, 10_000, 100}, {0, 20_000, 100},
		{1, 500, 100}, {1, 2000, 100}, {1, 2000, 1500}, {1, 4000, 1500},
		{2, 100, 100}, {2, 200, 200}, {2, 400, 200},
	} {
		l := scenarios[c.load].load
		l.Chats = c.chats
		r := Simulate(m, l, pageHost(c.sessions), time.Minute, 1)
		all = append(all, fmt.Sprintf("| %s | %d | %d | %s | %s | %.1f | %.1f | %.0f%% | %.0f | %s |", scenarios[c.load].name, c.chats, c.sessions,
			seconds(r.P50), seconds(r.P95), r.BackEnd+r.Programs, r.MemoryMiB/1024, 100*r.Lost, r.Statements, first(r)))
	}
	return rows("| load | chats | `Max` | half within | 95% within | processors | GiB | variables lost | statements/s | first bottleneck |", all...)
}

// first is what is short first on the host of the page.
func first(r Result) string {
	switch {
	case r.BackEnd+r.Programs > 0.7*hostProcessors:
		return "processors"
	case r.MemoryMiB > 0.75*hostGiB*1024:
		return "memory"
	case r.Lost > 0.05:
		return "`Sessions.Max`"
	}
	return ""
}

func (m Measured) fleet() string {
	var all []string
	for _, c := range []struct{ load, hosts, chats, sessions int }{
		{0, 2, 10_000, 100}, {1, 5, 10_000, 1500}, {2, 50, 10_000, 200},
		{0, 100, 1_000_000, 100}, {1, 500, 1_000_000, 1500}, {2, 5000, 1_000_000, 200},
	} {
		l := scenarios[c.load].load
		l.Chats = c.chats / c.hosts
		h := pageHost(c.sessions)
		r := Simulate(m, l, h, time.Minute, 1)
		n := float64(c.hosts)
		all = append(all, fmt.Sprintf("| %s | %s | %s | %.0f | %.0f | %s | %s | %.1f | %s | %.1f | %.1f | %s |", count(c.chats), scenarios[c.load].name,
			count(c.hosts), n*(r.BackEnd+r.Programs), n*r.MemoryMiB/1024, count(int(n*r.Waiting)), count(int(n*r.Responses)),
			n*r.Responses*60*tokensResponse/1e6, count(int(n*r.Statements)), n*r.WALKiB/1024, n*r.Database, count(c.hosts*h.Connections)))
	}
	return rows("| chats | load | hosts | processors busy | GiB | streams at once | responses/s | million tokens/min | statements/s | WAL MiB/s | database's processors | its connections |", all...)
}

// count has commas between thousands.
func count(n int) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
