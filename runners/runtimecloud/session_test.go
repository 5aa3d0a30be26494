package runtimecloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/fake"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// A guest runs cells such as "set x 1", "get x" and "sleep 5s", and counts those
// that it was given.
type guest struct {
	fake.Runner
	mu   sync.Mutex
	vars map[*fake.Interpreter]map[string]string
	ran  []string
}

func newGuest() *guest {
	g := &guest{vars: make(map[*fake.Interpreter]map[string]string)}
	g.Runner.Cells = g.cell
	for _, name := range []string{"python", "r", "java", "go", "bash", "javascript", "typescript"} {
		g.Env.Languages = append(g.Env.Languages, fnloop.Language{Name: name})
	}
	return g
}

func (g *guest) cells() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

func (g *guest) cell(ctx context.Context, i *fake.Interpreter, c interpreter.Cell) (e interpreter.Execution, err error) {
	g.mu.Lock()
	if g.vars[i] == nil {
		g.vars[i] = make(map[string]string)
	}
	vars := g.vars[i]
	g.mu.Unlock()
	switch {
	case strings.Contains(c.Source, "globals()"):
		e.Stdout = strings.Join(slices.Sorted(maps.Keys(vars)), "\n")
		return e, nil
	case strings.Contains(c.Source, "import missing"):
		e.Status, e.Error = interpreter.StatusError, &interpreter.Error{Name: "ModuleNotFoundError", Value: "No module named 'missing'"}
		return e, nil
	case strings.Contains(c.Source, "_fnloop()"):
		return e, nil
	case strings.Contains(c.Source, "seed("):
		vars["seeded"] = "anew"
		return e, nil
	}
	g.mu.Lock()
	g.ran = append(g.ran, c.Source)
	g.mu.Unlock()
	word := append(strings.Fields(c.Source), "", "", "")
	switch word[0] {
	case "set":
		vars[word[1]] = word[2]
	case "get":
		e.Displays = []interpreter.Display{{Main: true, Data: map[string][]byte{"text/plain": []byte(vars[word[1]])}}}
	case "print":
		e.Stdout, e.Stderr = word[1], word[2]
	case "write":
		i.Write(word[1], word[2])
	case "show":
		for range 3 {
			e.Displays = append(e.Displays, interpreter.Display{Data: map[string][]byte{
				"text/html": []byte("<b>" + strings.Repeat(word[1], 8<<20/len(word[1])) + "</b>"), "text/plain": []byte("small"),
			}})
		}
	case "sleep":
		d, _ := time.ParseDuration(word[1])
		select {
		case <-ctx.Done():
		case <-time.After(d):
			e.Stdout = "slept"
		}
	case "raise":
		e.Status, e.Error = interpreter.StatusError, &interpreter.Error{Name: "E", Value: "v", Traceback: "Traceback: E: v"}
	case "exit":
		g.mu.Lock()
		delete(g.vars, i)
		g.mu.Unlock()
		e.Status, e.Cause = interpreter.StatusLost, interpreter.CauseExit
		e.Loss = &interpreter.Loss{Cause: interpreter.CauseExit, Detail: "exit status 3", FilesKept: true}
	case "deaf": // it does not stop
		time.Sleep(time.Hour)
	}
	return e, nil
}

// sessionBubble is a bubble with a guest.
func sessionBubble(t *testing.T, test func(*testing.T, *bench, *guest)) {
	t.Helper()
	bubble(t, func(t *testing.T, b *bench) {
		g := newGuest()
		b.Python = g
		test(t, b, g)
	})
}

func openSession(t *testing.T, b *bench, c interpreter.Config) *interpreter.Session {
	t.Helper()
	s, err := interpreter.Open(t.Context(), b.runner, c)
	if err != nil {
		t.Fatalf("Open() error = %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return s
}

func runCell(t *testing.T, s *interpreter.Session, source string) interpreter.Execution {
	t.Helper()
	e, err := s.Run(t.Context(), interpreter.Cell{Source: source})
	if err != nil {
		t.Fatalf("Run(%q) error = %v", source, err)
	}
	return e
}

func value(e interpreter.Execution) string {
	d, _ := e.Main()
	return string(d.Data["text/plain"])
}

// gives checks the value of a cell and that nothing is lost.
func gives(t *testing.T, s *interpreter.Session, source, want string) {
	t.Helper()
	e := runCell(t, s, source)
	if e.Status != interpreter.StatusOK || value(e) != want || e.Loss != nil {
		t.Errorf("%s: %s, loss %+v; want %q", source, e.Text(), e.Loss, want)
	}
}

// steps are the requests that came, by their kind.
func (b *bench) steps() (all []string) {
	for _, r := range b.Requests() {
		all = append(all, string(r.Step))
	}
	return all
}

func (b *bench) count(step runtimetest.Step) int { return len(b.Requests(step)) }

// A model asks for one cell and then answers.
type model struct {
	source string
	n      int
}

func (m *model) New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error) {
	m.n++
	arguments, _ := json.Marshal(map[string]string{"code": m.source})
	item := fmt.Sprintf(`{"type":"function_call","id":"fc_1","call_id":"call_%d","name":"python","arguments":%q,"status":"completed"}`, m.n, arguments)
	if m.n%2 == 0 {
		item = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"ok","annotations":[]}]}`
	}
	r := new(responses.Response)
	return r, json.Unmarshal([]byte(`{"id":"resp_1","object":"response","status":"completed","model":"gpt-test","output":[`+item+`]}`), r)
}

// ask continues a conversation by one cell, and gives the Answer as another process
// reads it and what the model read.
func ask(t *testing.T, s *interpreter.Sessions, a *fnloop.Answer, source string) (*fnloop.Answer, string) {
	t.Helper()
	loop := &fnloop.Loop{Client: &model{source: source}, Model: "gpt-test", Tools: []fnloop.Tool{s.Tool()}}
	next, err := loop.Continue(t.Context(), a, "Go on.")
	if err != nil {
		t.Fatalf("Continue() error = %v", err)
	}
	stored, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	read := new(fnloop.Answer)
	if err := json.Unmarshal(stored, read); err != nil {
		t.Fatal(err)
	}
	return read, next.Calls[len(next.Calls)-1].Text
}

// A conversation survives a pause, a new process and a fork. The wire has what it
// takes, and nothing else.
func TestConversation(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		process := func() (*runtimecloud.Runner, *interpreter.Sessions) {
			r := newRunner(b.Server, b.log)
			r.Keep = 30 * 24 * time.Hour
			return r, &interpreter.Sessions{Runner: r}
		}
		stop := func(r *runtimecloud.Runner, s *interpreter.Sessions) {
			if err := errors.Join(s.Close(), r.Close()); err != nil {
				t.Error(err)
			}
		}
		wire := 0
		came := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			all := b.steps()
			got := all[wire:]
			wire = len(all)
			sorted := func(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }
			if !slices.Equal(sorted(got), sorted(want)) { // two of them go side by side
				t.Errorf("%s: the wire had %q, want %q", what, got, want)
			}
		}
		reads := func(text, want string) {
			t.Helper()
			if !strings.Contains(text, `"status":"ok"`) || !strings.Contains(text, want) || strings.Contains(text, "gone") {
				t.Errorf("the model reads %s, want %s", text, want)
			}
		}

		r, s := process()
		a, text := ask(t, s, new(fnloop.Answer), "set x 1")
		reads(text, "")
		came("the first cell", "create", "retention", "context", "files", "cell", "cell", "files")
		a, text = ask(t, s, a, "get x")
		reads(text, `"result":"1"`)
		came("another", "cell", "cell", "files")

		time.Sleep(3 * time.Hour) // both sides have let go
		synctest.Wait()
		if n := s.Len(); n != 0 || len(b.Live()) != 1 {
			t.Errorf("%d sessions, sandboxes %q", n, b.Live())
		}
		a, text = ask(t, s, a, "get x")
		reads(text, `"result":"1"`)
		came("after a pause", "contexts", "files", "cell", "cell", "files")

		stop(r, s)
		came("the end of the process")
		time.Sleep(20 * 24 * time.Hour)
		r, s = process()
		a, text = ask(t, s, a, "get x")
		reads(text, `"result":"1"`)
		came("a new process, three weeks later", "contexts", "files", "cell", "cell", "files")

		other, err := s.Fork(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		came("a fork", "fork", "retention", "contexts", "cell")
		a, _ = ask(t, s, a, "set x 2")
		other, _ = ask(t, s, other, "set x 3")
		stop(r, s)
		r, s = process()
		a, text = ask(t, s, a, "get x")
		reads(text, `"result":"2"`)
		other, text = ask(t, s, other, "get x")
		reads(text, `"result":"3"`)
		if n := b.Created(); n != 2 || len(b.Live()) != 2 {
			t.Errorf("%d sandboxes were made, there are %q", n, b.Live())
		}
		cost, err := r.Cost(t.Context(), refOf(t, a))
		if err != nil || cost.Micros < 5000 || cost.Micros > 50_000 || cost.Estimate {
			t.Errorf("Cost() = %+v, %v", cost, err)
		}
		if err := errors.Join(s.End(t.Context(), a), s.End(t.Context(), other)); err != nil {
			t.Error(err)
		}
		stop(r, s)
	})
}

func refOf(t *testing.T, a *fnloop.Answer) string {
	t.Helper()
	var st struct{ Kept string }
	if err := json.Unmarshal(a.ToolState["python"], &st); err != nil || st.Kept == "" {
		t.Fatalf("%s, %v", a.ToolState["python"], err)
	}
	return st.Kept
}

// What a session costs in time: the round trips in series.
func TestSessionRoundTrips(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		b.Delay = 100 * time.Millisecond
		trips := func(what string, want int, do func()) {
			t.Helper()
			began := time.Now()
			do()
			if got := int(time.Since(began) / b.Delay); got != want {
				t.Errorf("%s takes %d round trips, want %d", what, got, want)
			}
		}
		var s *interpreter.Session
		trips("open", 3, func() { s = openSession(t, b, interpreter.Config{}) })
		trips("the first cell", 3, func() { runCell(t, s, "set x 1") })
		trips("a cell", 2, func() { runCell(t, s, "set x 1") })
		trips("put", 1, func() { s.Put(t.Context(), "f", strings.NewReader("x")) })
		trips("a cell after it", 3, func() { runCell(t, s, "set x 1") })
		trips("get", 1, func() { s.Get(t.Context(), "f") })
	})
}

// What is asked of the service when a session is made.
func TestSessionCreate(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*runtimecloud.Runner)
		want string
		keep string
	}{
		{"defaults", func(*runtimecloud.Runner) {},
			`"timeoutSeconds":86400,"onLeaseEnd":"delete","idlePauseSeconds":600,"maxTotalCostMicros":1000000,"network":{"internet":false}}`, `{"days":1}`},
		{"kept", func(r *runtimecloud.Runner) { r.Keep, r.Idle, r.SessionMaxCostMicros = 36*time.Hour, time.Minute, 5 },
			`"timeoutSeconds":0,"onLeaseEnd":"pause","idlePauseSeconds":60,"maxTotalCostMicros":5,"network":{"internet":false}}`, `{"days":2}`},
		{"awake", func(r *runtimecloud.Runner) { r.Idle, r.SessionMaxCostMicros = -1, -1 },
			`"timeoutSeconds":86400,"onLeaseEnd":"delete","idlePauseSeconds":0,"network":{"internet":false}}`, `{"days":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
				c.set(b.runner)
				openSession(t, b, interpreter.Config{})
				if body := string(b.Requests(runtimetest.StepCreate)[0].Body); !strings.HasSuffix(body, c.want) {
					t.Errorf("create: %s\nwant %s", body, c.want)
				}
				if body := string(b.Requests(runtimetest.StepRetention)[0].Body); body != c.keep {
					t.Errorf("retention: %s, want %s", body, c.keep)
				}
			})
		})
	}
}

// A cell runs once and its session goes on, whatever goes wrong on the way.
func TestCellFaults(t *testing.T) {
	type faults = []runtimetest.Fault
	many := func(n int, f runtimetest.Fault) (list faults) {
		for range n {
			list = append(list, f)
		}
		return list
	}
	for _, c := range []struct {
		name   string
		faults faults
		most   time.Duration // zero means 30 seconds
		why    string
	}{
		{"lost before", faults{{Drop: true}}, 0, "sent again"},
		{"lost after", faults{{After: true, Drop: true}, {After: true, Drop: true}}, 0, "the cell goes on, and is not run twice"},
		{"frozen", faults{{After: true, Freeze: true}}, 2 * time.Minute, "the answer is there to be had again"},
		{"late", faults{{Late: true, Stream: runtimetest.StreamFreeze, Events: 99}}, 0, "a late answer that is a stream is one"},
		{"late error", faults{{Late: true, Status: 503, Code: "host_unavailable"}}, 0, "status 200 and an error is an error"},
		{"429 with a wait", faults{{Status: 429, Code: "rate_limited", RetryAfterMs: 400}}, 0, "the service says when to come back"},
		{"429 without", many(5, runtimetest.Fault{Status: 429, Code: "rate_limited"}), 0, "nothing ran"},
		{"429 at length", many(9, runtimetest.Fault{Status: 429, Code: "rate_limited", RetryAfter: "1"}), time.Minute, "nothing ran"},
		{"503 busy", many(6, runtimetest.Fault{Status: 503, Code: "guest_busy"}), 0, "nothing ran"},
		{"500", faults{{Status: 500, Code: "internal_error"}}, 0, "the key makes it safe to ask again"},
		{"500 after", faults{{After: true, Status: 500, Code: "internal_error"}}, 0, "the key makes it safe to ask again"},
		{"502 with HTML", faults{{After: true, Status: 502, Body: "<html>"}}, 0, "a proxy's hiccup"},
		{"wake fails once", faults{{Status: 503, Code: "host_unavailable", RetryAfter: "1"}}, 0, "a sandbox that did not wake may do so yet"},
		{"cut at once", faults{{Stream: runtimetest.StreamCut}}, 0, "taken up"},
		{"cut", faults{{Stream: runtimetest.StreamCut, Events: 1}, {Stream: runtimetest.StreamCut, Events: 2}, {Stream: runtimetest.StreamCut, Events: 3}}, 0, "taken up, and nothing twice"},
		{"reset", faults{{Stream: runtimetest.StreamReset, Events: 2}}, 0, "taken up"},
		{"half a line", faults{{Stream: runtimetest.StreamHalf, Events: 2}}, 0, "taken up"},
		{"garbage", faults{{Stream: runtimetest.StreamGarbage, Events: 1}}, 0, "taken up"},
		{"frozen stream", faults{{Stream: runtimetest.StreamFreeze, Events: 2}}, 2 * time.Minute, "a stream that says nothing is asked for anew"},
		{"failure of the host", faults{{Stream: runtimetest.StreamError, Events: 2}}, 0, "the cell goes on"},
		{"paused in the middle", faults{{Stream: runtimetest.StreamError, Events: 1, Status: 409, Code: "sandbox_paused"}}, 0, "the next request wakes it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
				s := openSession(t, b, interpreter.Config{Limits: fnloop.Limits{Time: 20 * time.Second}})
				runCell(t, s, "set x 1")
				b.Fail(runtimetest.StepCell, c.faults...)
				began := time.Now()
				e := runCell(t, s, "print out err")
				if e.Status != interpreter.StatusOK || e.Stdout != "out" || e.Stderr != "err" || e.Loss != nil {
					t.Errorf("%s: %s", e.Text(), c.why)
				}
				if took := time.Since(began); took > max(c.most, 30*time.Second) {
					t.Errorf("it took %v", took)
				}
				if ran := g.cells(); len(ran) != 2 {
					t.Errorf("the cells %q ran: %s", ran, c.why)
				}
				if n := b.Unused(); n > 0 {
					t.Errorf("%d faults were not met", n)
				}
				gives(t, s, "get x", "1")
				key := make(map[string]string)
				for _, r := range b.Requests(runtimetest.StepCell) {
					k := r.Header.Get("Idempotency-Key")
					if body, known := key[k]; known && body != string(r.Body) {
						t.Errorf("the key %s has two bodies", k)
					}
					key[k] = string(r.Body)
				}
			})
		})
	}
}

// What cannot be mended is told, and leaves no sandbox and no second one.
func TestCellFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(*bench)
		cell  string
		check func(*testing.T, interpreter.Execution, error)
		after func(*testing.T, *bench, *interpreter.Session)
	}{
		{
			"deleted from outside, between two cells", func(b *bench) { b.delete(b.Live()[0]) }, "set y 2",
			func(t *testing.T, e interpreter.Execution, err error) {
				if err != nil || e.Status != interpreter.StatusOK || e.Loss == nil || e.Loss.Cause != interpreter.CauseSandbox || e.Loss.FilesKept || !slices.Contains(e.Loss.Names, "x") {
					t.Errorf("%s %+v, %v", e.Text(), e.Loss, err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) { gives(t, s, "get y", "2") },
		},
		{
			"deleted from outside, in a cell", func(b *bench) {
				go func() { time.Sleep(time.Second); b.delete(b.Live()[0]) }()
			}, "sleep 10s",
			func(t *testing.T, e interpreter.Execution, err error) {
				if err != nil || e.Status != interpreter.StatusLost || e.Loss == nil || e.Loss.FilesKept {
					t.Errorf("%s %+v, %v", e.Text(), e.Loss, err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) { gives(t, s, "get x", "") },
		},
		{
			"money used up", func(b *bench) { b.End(b.Live()[0], "lifetime_cap") }, "set y 2",
			func(t *testing.T, e interpreter.Execution, err error) {
				if !errors.Is(err, runtimecloud.ErrSpent) || errors.Is(err, interpreter.ErrGone) || !strings.Contains(err.Error(), "lifetime_cap") {
					t.Errorf("%s, %v", e.Text(), err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) {
				if _, err := s.Run(t.Context(), interpreter.Cell{Source: "set y 2"}); !errors.Is(err, runtimecloud.ErrSpent) || b.Created() != 1 {
					t.Errorf("%v, %d sandboxes: another would be a way around the bound", err, b.Created())
				}
			},
		},
		{
			"it cannot be told", func(b *bench) {
				for range 40 {
					b.Fail(runtimetest.StepCell, runtimetest.Fault{Status: 503, Code: "host_unavailable"})
				}
			}, "set y 2",
			func(t *testing.T, e interpreter.Execution, err error) {
				if err != nil || e.Status != interpreter.StatusError || !strings.Contains(e.Error.Value, "may have run, and was not run again") {
					t.Errorf("%s, %v", e.Text(), err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) {
				b.runner.Sweep(t.Context(), 0) //nolint:errcheck // it has nothing to do
				if n := b.Created(); n != 1 {
					t.Errorf("%d sandboxes", n)
				}
			},
		},
		{
			"refused", func(b *bench) { b.Fail(runtimetest.StepCell, runtimetest.Fault{Status: 402, Code: "payment_required"}) }, "set y 2",
			func(t *testing.T, e interpreter.Execution, err error) {
				f, ok := errors.AsType[*runtimecloud.Error](err)
				if !ok || f.Code != "payment_required" || e.Status != "" {
					t.Errorf("%s, %v", e.Text(), err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) { gives(t, s, "get x", "1") },
		},
		{
			"an end of the interpreter", func(*bench) {}, "exit",
			func(t *testing.T, e interpreter.Execution, err error) {
				if err != nil || e.Status != interpreter.StatusLost || e.Loss == nil || e.Loss.Cause != interpreter.CauseExit ||
					e.Loss.Detail != "exit status 3" || !e.Loss.FilesKept || !slices.Contains(e.Loss.Names, "x") {
					t.Errorf("%s %+v, %v", e.Text(), e.Loss, err)
				}
			},
			func(t *testing.T, b *bench, s *interpreter.Session) { gives(t, s, "get x", "") },
		},
		{
			"a cell that does not stop", func(*bench) {}, "deaf",
			func(t *testing.T, e interpreter.Execution, err error) {
				if err != nil || e.Status != interpreter.StatusTimeout || e.Loss == nil || e.Loss.Cause != interpreter.CauseTimeout {
					t.Errorf("%s %+v, %v", e.Text(), e.Loss, err)
				}
			},
			func(*testing.T, *bench, *interpreter.Session) { time.Sleep(2 * time.Hour) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
				s := openSession(t, b, interpreter.Config{})
				runCell(t, s, "set x 1")
				c.do(b)
				e, err := s.Run(t.Context(), interpreter.Cell{Source: c.cell})
				c.check(t, e, err)
				if strings.Contains(e.Text(), "3d0c4c1e-") {
					t.Errorf("the model reads the ID of a sandbox: %s", e.Text())
				}
				c.after(t, b, s)
				if n := len(b.Live()); n != 1 {
					t.Errorf("%d sandboxes are left before the end", n)
				}
			})
		})
	}
}

// delete deletes a sandbox as somebody else would, on the website.
func (b *bench) delete(id string) {
	r := newRunner(b.Server, b.log)
	defer r.Close()
	ref := "sandbox=" + id
	if err := interpreter.End(context.Background(), r, ref); err != nil {
		panic(err)
	}
}

// A stop by the caller is one by the service, and costs no variable.
func TestCellStops(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		s := openSession(t, b, interpreter.Config{})
		runCell(t, s, "set x 1")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the user left"))
		defer cancel()
		began := time.Now()
		e, err := s.Run(ctx, interpreter.Cell{Source: "sleep 20s"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the user left") || e.Status != interpreter.StatusInterrupted || time.Since(began) > 2*time.Second {
			t.Errorf("Run() = %s, %v after %v", e.Text(), err, time.Since(began))
		}
		if e, err := s.Run(ctx, interpreter.Cell{Source: "set x 2"}); !errors.Is(err, context.DeadlineExceeded) || e.Status != "" {
			t.Errorf("Run() = %s, %v", e.Text(), err)
		}
		gives(t, s, "get x", "1")
		go func() {
			time.Sleep(time.Second)
			if ran, err := s.Interrupt(t.Context()); !ran || err != nil {
				t.Errorf("Interrupt() = %v, %v", ran, err)
			}
		}()
		if e := runCell(t, s, "sleep 20s"); e.Status != interpreter.StatusInterrupted || e.Loss != nil {
			t.Errorf("%s", e.Text())
		}
		if ran, err := s.Interrupt(t.Context()); ran || err != nil {
			t.Errorf("Interrupt() between cells = %v, %v", ran, err)
		}
		if e := runCell(t, s, "sleep 1m"); e.Status != interpreter.StatusTimeout || e.Loss != nil {
			t.Errorf("%s", e.Text())
		}
		gives(t, s, "get x", "1")
	})
}

// A pause in the middle of a cell is a pause, and not its end.
func TestPauseInMidCell(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		s := openSession(t, b, interpreter.Config{})
		go func() {
			time.Sleep(time.Second)
			b.Pause(b.Live()[0])
		}()
		if e := runCell(t, s, "sleep 10s"); e.Status != interpreter.StatusOK || e.Stdout != "slept" {
			t.Errorf("%s", e.Text())
		}
		if n := len(g.cells()); n != 1 {
			t.Errorf("the cell ran %d times", n)
		}
		if err := s.Pause(t.Context()); err != nil {
			t.Errorf("Pause() = %v", err)
		}
		if err := s.Pause(t.Context()); err != nil {
			t.Errorf("Pause() of a paused one = %v", err)
		}
		gives(t, s, "get x", "")
	})
}

// Gone is what is certain to be. Everything else makes no second sandbox.
func TestSessionResume(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*bench, string)
		gone bool
		err  bool
		loss interpreter.Cause // of the first cell, in the same sandbox
	}{
		{"there", func(*bench, string) {}, false, false, ""},
		{"deleted", func(b *bench, id string) { b.delete(id) }, true, false, ""},
		{"its host was lost", func(b *bench, id string) { b.End(id, "host_lost") }, true, false, ""},
		{"its pause failed", func(b *bench, id string) { b.End(id, "pause_failed") }, true, false, ""},
		{"its days are over", func(*bench, string) { time.Sleep(33 * 24 * time.Hour) }, true, false, ""},
		{"its money is used up", func(b *bench, id string) { b.End(id, "insufficient_funds") }, false, true, ""},
		{"500", func(b *bench, _ string) {
			b.Fail(runtimetest.StepContexts, runtimetest.Fault{Status: 500, Code: "internal_error"})
		}, false, true, ""},
		{"it does not wake", func(b *bench, _ string) {
			for range 9 {
				b.Fail(runtimetest.StepContexts, runtimetest.Fault{Status: 503, Code: "host_unavailable"})
			}
		}, false, true, ""},
		{"no answer", func(b *bench, _ string) {
			for range 9 {
				b.Fail(runtimetest.StepContexts, runtimetest.Fault{Freeze: true})
			}
		}, false, true, ""},
		{"404 that is not the sandbox's", func(b *bench, _ string) {
			b.Fail(runtimetest.StepContexts, runtimetest.Fault{Status: 404, Code: "not_found"})
		}, false, true, ""},
		{"404, and no word on the sandbox", func(b *bench, _ string) {
			b.Fail(runtimetest.StepContexts, runtimetest.Fault{Status: 404, Code: "not_found"})
			for range 9 {
				b.Fail(runtimetest.StepRead, runtimetest.Fault{Status: 503, Code: "host_unavailable"})
			}
		}, false, true, ""},
		{"another process", func(b *bench, id string) {
			r := newRunner(b.Server, b.log)
			s, err := interpreter.Resume(context.Background(), r, interpreter.Config{}, "sandbox="+id)
			if err == nil {
				_, err = s.Run(context.Background(), interpreter.Cell{Source: "exit"})
			}
			if err := errors.Join(err, s.Release(), r.Close()); err != nil {
				panic(err)
			}
		}, false, false, interpreter.CauseExit},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
				b.runner.Keep = 30 * 24 * time.Hour
				s := openSession(t, b, interpreter.Config{})
				runCell(t, s, "set x 1")
				ref := s.Ref()
				if err := s.Release(); err != nil {
					t.Fatal(err)
				}
				live := b.Live()
				c.do(b, live[0])
				again, err := interpreter.Resume(t.Context(), b.runner, interpreter.Config{}, ref)
				if n := b.Created(); n != 1 {
					t.Errorf("%d sandboxes were made", n)
				}
				if gone := errors.Is(err, interpreter.ErrGone); gone != c.gone || (err != nil) != (c.gone || c.err) {
					t.Fatalf("Resume() error = %v", err)
				}
				if err == nil {
					want := "1"
					e := runCell(t, again, "get x")
					if c.loss != "" {
						want = ""
					}
					if value(e) != want || (e.Loss != nil) != (c.loss != "") || e.Loss != nil && (e.Loss.Cause != c.loss || !e.Loss.FilesKept) {
						t.Errorf("%s, loss %+v", e.Text(), e.Loss)
					}
					if e := runCell(t, again, "get x"); e.Loss != nil {
						t.Errorf("it is told twice: %+v", e.Loss)
					}
					if err := again.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := interpreter.End(t.Context(), b.runner, ref); err != nil {
					t.Errorf("End() = %v", err)
				}
			})
		})
	}
}

func TestSessionBadRef(t *testing.T) {
	r := &runtimecloud.Runner{Key: secretKey, Transport: new(runtimetest.Server)}
	defer r.Close()
	for _, ref := range []string{"", "nothing", "sandbox=", "%zz"} {
		if _, err := interpreter.Resume(t.Context(), r, interpreter.Config{}, ref); !errors.As(err, new(*runtimecloud.ConfigError)) {
			t.Errorf("Resume(%q) error = %v", ref, err)
		}
	}
}

func TestFork(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault runtimetest.Fault
		after runtimetest.Step // what fails after the fork, or ""
		err   string
	}{
		{"three", runtimetest.Fault{}, "", ""},
		{"lost answer", runtimetest.Fault{After: true, Drop: true}, "", ""},
		{"late answer", runtimetest.Fault{Late: true}, "", ""},
		{"429", runtimetest.Fault{Status: 429, Code: "rate_limited", RetryAfter: "2"}, "", ""},
		{"two of three start", runtimetest.Fault{Fork: 1}, "", "startup_failed"},
		{"none starts", runtimetest.Fault{Fork: 3}, "", "startup_failed"},
		{"it fails part-way", runtimetest.Fault{After: true, Status: 500, Code: "internal_error"}, "", "internal_error"},
		{"it fails part-way, by a refusal", runtimetest.Fault{After: true, Status: 409, Code: "no_capacity"}, "", "no_capacity"},
		{"no room", runtimetest.Fault{Status: 409, Code: "no_capacity"}, "", "no_capacity"},
		{"switched off", runtimetest.Fault{Status: 503, Code: "fork_unavailable"}, "", "fork_unavailable"},
		{"a copy is not found", runtimetest.Fault{}, runtimetest.StepContexts, "internal_error"},
		{"a copy cannot be kept", runtimetest.Fault{}, runtimetest.StepRetention, "internal_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
				s := openSession(t, b, interpreter.Config{})
				runCell(t, s, "set x 1")
				b.Fail(runtimetest.StepFork, c.fault)
				if c.after != "" {
					b.Fail(c.after, runtimetest.Fault{Status: 500, Code: "internal_error"})
				}
				copies, err := s.Fork(t.Context(), 3)
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) || copies != nil {
						t.Errorf("Fork() = %v, %v", copies, err)
					}
					time.Sleep(time.Minute)
					if live := b.Live(); len(live) != 1 {
						t.Errorf("left: %q", live)
					}
				} else if err != nil || len(copies) != 3 || len(b.Live()) != 4 {
					t.Fatalf("Fork() = %v, %v; sandboxes %q", copies, err, b.Live())
				}
				for i, f := range copies {
					gives(t, f, "get x", "1")
					gives(t, f, "get seeded", "anew")
					runCell(t, f, fmt.Sprint("set x 1", i))
					if !slices.Contains(f.Names(), "x") {
						t.Errorf("names: %q", f.Names())
					}
				}
				gives(t, s, "get x", "1")
				gives(t, s, "get seeded", "")
				for i, f := range copies {
					gives(t, f, "get x", fmt.Sprint(1, i)[:1]+fmt.Sprint(i))
					if err := f.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		s := openSession(t, b, interpreter.Config{})
		for _, n := range []int{0, -1, 11} {
			if _, err := s.Fork(t.Context(), n); !errors.As(err, new(*runtimecloud.ConfigError)) {
				t.Errorf("Fork(%d) error = %v", n, err)
			}
		}
	})
}

func TestSnapshot(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		b.StartDelay = time.Second
		s := openSession(t, b, interpreter.Config{})
		runCell(t, s, "set x 1")
		ref, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		runCell(t, s, "set x 2")
		for range 2 {
			c, err := interpreter.Resume(t.Context(), b.runner, interpreter.Config{}, ref)
			if err != nil {
				t.Fatal(err)
			}
			gives(t, c, "get x", "1")
			gives(t, c, "get seeded", "anew")
			runCell(t, c, "set x 3")
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, want := range []error{nil, nil} { // once more is no error
			if err := interpreter.End(t.Context(), b.runner, ref); !errors.Is(err, want) {
				t.Errorf("End() = %v", err)
			}
		}
		if _, err := interpreter.Resume(t.Context(), b.runner, interpreter.Config{}, ref); !errors.Is(err, interpreter.ErrGone) {
			t.Errorf("Resume() error = %v", err)
		}
		// One that is made and cannot be had is removed.
		b.Fail(runtimetest.StepSnapshots, runtimetest.Fault{Status: 500, Code: "internal_error"})
		if _, err := s.Snapshot(t.Context()); err == nil {
			t.Error("Snapshot() worked")
		}
	})
}

// Values that are large come by reference, within a bound and as promised.
func TestReferences(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		s := openSession(t, b, interpreter.Config{})
		e := runCell(t, s, "show ab")
		sizes := make([]int, 0, 3)
		for _, d := range e.Displays {
			sizes = append(sizes, len(d.Data["text/html"]))
			if string(d.Data["text/plain"]) != "small" {
				t.Errorf("the small form is %q", d.Data["text/plain"])
			}
		}
		if want := []int{8<<20 + 7, 0, 0}; !slices.Equal(sizes, want) {
			t.Errorf("the forms have %d bytes, want %d: the second would be more than is shown", sizes, want)
		}
		if got := string(e.Displays[0].Data["text/html"]); !strings.HasPrefix(got, "<b>abab") || !strings.HasSuffix(got, "ab</b>") {
			t.Error("the form is another")
		}
		for _, f := range []runtimetest.Fault{{Half: true}, {Status: 503, Code: "host_unavailable"}} {
			b.Fail(runtimetest.StepResult, f)
			if e := runCell(t, s, "show ab"); len(e.Displays[0].Data["text/html"]) != 8<<20+7 {
				t.Errorf("after %+v the form is gone", f)
			}
		}
		b.Fail(runtimetest.StepResult, runtimetest.Fault{Status: 404, Code: "file_not_found"}, runtimetest.Fault{Status: 404, Code: "file_not_found"}, runtimetest.Fault{Status: 404, Code: "file_not_found"})
		if e := runCell(t, s, "show ab"); e.Status != interpreter.StatusOK || len(e.Displays) != 3 || len(e.Displays[0].Data) != 1 {
			t.Errorf("%s", e.Text())
		}
	})
}

func TestSessionFiles(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		b.ChunkBytes = 1 << 20
		s := openSession(t, b, interpreter.Config{})
		ctx := t.Context()
		large := strings.Repeat("0123456789abcdef", 1<<18)
		for name, data := range map[string]string{"a.csv": "a", "dir/ä b.txt": "", "large": large} {
			if err := s.Put(ctx, name, strings.NewReader(data)); err != nil {
				t.Fatalf("Put(%q) = %v", name, err)
			}
			f, err := s.Get(ctx, name)
			if err != nil {
				t.Fatalf("Get(%q) = %v", name, err)
			}
			if got, err := io.ReadAll(f); string(got) != data || err != nil {
				t.Errorf("Get(%q) gave %d bytes, %v", name, len(got), err)
			}
			f.Close()
		}
		if e := runCell(t, s, "write out.csv 1"); len(e.Files) != 1 || e.Files[0] != (interpreter.FileChange{Name: "out.csv", Size: 1, Change: "new"}) {
			t.Errorf("files: %+v", e.Files)
		}
		if e := runCell(t, s, "write out.csv 22"); len(e.Files) != 1 || e.Files[0].Change != "changed" {
			t.Errorf("files: %+v", e.Files)
		}
		list, err := s.List(ctx)
		if err != nil || len(list) != 4 || list[0].Name != "a.csv" || list[2].Size != int64(len(large)) {
			t.Errorf("List() = %+v, %v", list, err)
		}
		if err := errors.Join(s.Remove(ctx, "dir"), s.Remove(ctx, "large")); err != nil {
			t.Error(err)
		}
		if err := s.Remove(ctx, "dir"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Remove() = %v", err)
		}
		if _, err := s.Get(ctx, "large"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Get() = %v", err)
		}
		if e := runCell(t, s, "print x"); len(e.Files) > 0 {
			t.Errorf("files: %+v, want none: they were changed from here", e.Files)
		}
		b.Fail(runtimetest.StepFile, runtimetest.Fault{Half: true}, runtimetest.Fault{Half: true})
		if f, err := s.Get(ctx, "a.csv"); err != nil {
			t.Errorf("Get() = %v: a cut file is asked for again", err)
		} else {
			f.Close()
		}
		b.Fail(runtimetest.StepChunk, runtimetest.Fault{Status: 413, Code: "file_too_large"})
		if err := s.Put(ctx, "large", strings.NewReader(large)); err == nil || b.count(runtimetest.StepAbort) != 1 {
			t.Errorf("Put() = %v, %d aborts", err, b.count(runtimetest.StepAbort))
		}
		b.Fail(runtimetest.StepWrite, runtimetest.Fault{After: true, Drop: true})
		if err := s.Put(ctx, "again", strings.NewReader("x")); err != nil {
			t.Errorf("Put() = %v", err)
		}
	})
}

// The network is open for what is installed, and closed before any code is there.
func TestSessionPackages(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		b.runner.Packages = []string{"httpx==0.28.1"}
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			if got := strings.Join(cmd.Argv, " "); !strings.HasSuffix(got, " -- httpx==0.28.1 rich>=14,<15") || !cmd.Internet {
				t.Errorf("%s, internet %v", got, cmd.Internet)
			}
			return runtimetest.Exit{}
		}
		s := openSession(t, b, interpreter.Config{Packages: []string{"rich>=14,<15"}})
		runCell(t, s, "print x")
		want := []string{"create", "retention", "exec", "network", "context", "files", "cell"}
		if got := b.steps()[:len(want)]; !slices.Equal(got, want) {
			t.Errorf("the wire had %q, want %q", got, want)
		}
		create, closed := string(b.Requests(runtimetest.StepCreate)[0].Body), string(b.Requests(runtimetest.StepNetwork)[0].Body)
		if !strings.Contains(create, `"network":{"internet":true,"allow":["pypi.org","files.pythonhosted.org"]}`) || closed != `{"internet":false}` {
			t.Errorf("create %s\nnetwork %s", create, closed)
		}
		if env := b.runner.Environment(); !slices.Equal(env.Packages[3:], b.runner.Packages) {
			t.Errorf("packages: %q", env.Packages)
		}
	})
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		b.runner.Packages = []string{"no-such"}
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			fmt.Fprint(cmd.Stderr, "Looking in indexes: https://pypi.org/simple\nERROR: Could not find a version that satisfies the requirement no-such (from versions: none)\nERROR: No matching distribution found for no-such\n")
			return runtimetest.Exit{Code: 1}
		}
		_, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{})
		if e, ok := errors.AsType[*fnloop.PackageError](err); !ok || e.Field != "Packages" || e.Reason != "pip exited with status 1" ||
			!strings.Contains(e.Output, "Could not find a version") || !strings.HasSuffix(e.Output, "No matching distribution found for no-such") || !errors.Is(err, fnloop.ErrUnavailable) {
			t.Errorf("Open() error = %v", err)
		}
		if _, err := b.runner.Run(t.Context(), fnloop.Program{}); !errors.As(err, new(*fnloop.PackageError)) {
			t.Errorf("Run() error = %v", err)
		}
		b.runner.Packages = nil
		if _, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{Packages: []string{"-r"}}); !errors.As(err, new(*fnloop.PackageError)) {
			t.Errorf("Open() error = %v", err)
		}
		synctest.Wait()
		if live := b.Live(); len(live) > 0 || len(g.cells()) > 0 || b.count(runtimetest.StepContext) > 0 {
			t.Errorf("left: %q", live)
		}
	})
}

// Modules are imported before the first cell, and once more after a restart.
func TestSessionPreload(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
		s := openSession(t, b, interpreter.Config{Preload: []string{"numpy", "matplotlib.pyplot"}})
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		runCell(t, s, "set x 1")
		cells := b.Requests(runtimetest.StepCell)
		for i := range 2 {
			if body := string(cells[i].Body); !strings.Contains(body, "import numpy, matplotlib.pyplot") {
				t.Errorf("cell %d is %s", i, body)
			}
		}
		for module, want := range map[string]string{"missing": "No module named", "os; print(1)": "not the name of a module"} {
			_, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{Preload: []string{module}})
			if e, ok := errors.AsType[*fnloop.PackageError](err); !ok || e.Field != "Preload" || !strings.Contains(e.Reason, want) {
				t.Errorf("Open() error = %v", err)
			}
		}
		synctest.Wait()
		if live := b.Live(); len(live) != 1 {
			t.Errorf("left: %q", live)
		}
	})
}

func TestSessionLanguages(t *testing.T) {
	for _, language := range []string{"javascript", "typescript", "bash", "r", "java", "go"} {
		sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
			b.Guests = map[string]fnloop.Runner{language: g}
			b.InstallDelay = 90 * time.Second
			s := openSession(t, b, interpreter.Config{Language: language})
			runCell(t, s, "set x 1")
			gives(t, s, "get x", "1")
			opened := strings.Contains(string(b.Requests(runtimetest.StepCreate)[0].Body), `"internet":true}`)
			installs := language == "r" || language == "java" || language == "go"
			want := []string{"create", "retention", "context", "files", "cell"}
			if installs {
				want = []string{"create", "retention", "context", "network", "files", "cell"}
			}
			if got := b.steps()[:len(want)]; opened != installs || !slices.Equal(got, want) {
				t.Errorf("%s: internet %v, the wire had %q, want %q", language, opened, got, want)
			}
			if info := s.Info(); info.Python != "" {
				t.Errorf("%s: %+v", language, info)
			}
		})
	}
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		_, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{Language: "cobol"})
		if e, ok := errors.AsType[*fnloop.ProgramError](err); !ok || e.Field != "language" {
			t.Errorf("Open() error = %v", err)
		}
	})
}

// A session that cannot be made leaves no sandbox.
func TestOpenFails(t *testing.T) {
	for _, c := range []struct {
		step  runtimetest.Step
		fault runtimetest.Fault
		code  string // empty: it is opened all the same
	}{
		{runtimetest.StepCreate, runtimetest.Fault{Status: 402, Code: "insufficient_funds"}, "insufficient_funds"},
		{runtimetest.StepCreate, runtimetest.Fault{After: true, Drop: true}, ""},
		{runtimetest.StepRetention, runtimetest.Fault{Status: 400, Code: "invalid_request"}, "invalid_request"},
		{runtimetest.StepRetention, runtimetest.Fault{After: true, Drop: true}, ""},
		{runtimetest.StepContext, runtimetest.Fault{Status: 502, Code: "interpreter_failed"}, ""},
		{runtimetest.StepContext, runtimetest.Fault{Status: 500, Code: "guest_failed"}, "guest_failed"},
		{runtimetest.StepContext, runtimetest.Fault{After: true, Drop: true}, ""},
		{runtimetest.StepContext, runtimetest.Fault{Late: true}, ""},
		{runtimetest.StepContext, runtimetest.Fault{Late: true, Code: "interpreter_failed", Status: 400}, "interpreter_failed"},
	} {
		t.Run(string(c.step)+" "+c.code, func(t *testing.T) {
			sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
				b.Fail(c.step, c.fault)
				s, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{})
				if c.code == "" {
					if err != nil {
						t.Fatalf("Open() error = %v", err)
					}
					s.Close()
				} else if e, ok := errors.AsType[*runtimecloud.Error](err); !ok || e.Code != c.code {
					t.Errorf("Open() error = %v", err)
				}
				synctest.Wait()
				if n := b.Created(); n > 1 {
					t.Errorf("%d sandboxes were made", n)
				}
			})
		})
	}
}

// The runner's Close ends what is open, and lets go of what is kept.
func TestCloseWithSessions(t *testing.T) {
	for _, keep := range []bool{false, true} {
		sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
			if keep {
				b.runner.Keep = 24 * time.Hour
			}
			var charged []runtimecloud.Charge
			b.runner.Charged = func(_ context.Context, c runtimecloud.Charge) { charged = append(charged, c) }
			s, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ref := s.Ref()
			running := make(chan error)
			go func() {
				_, err := s.Run(t.Context(), interpreter.Cell{Source: "sleep 20s"})
				running <- err
			}()
			time.Sleep(10 * time.Second)
			if err := b.runner.Close(); err != nil {
				t.Error(err)
			}
			<-running
			if live := b.Live(); (len(live) == 1) != keep || (len(charged) == 0) != keep {
				t.Errorf("keep %v: sandboxes %q, charged %+v", keep, live, charged)
			}
			if !keep && (charged[0].Micros < 80 || charged[0].Estimate || charged[0].Run == "") {
				t.Errorf("charged %+v", charged)
			}
			if _, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{}); !errors.Is(err, runtimecloud.ErrClosed) {
				t.Errorf("Open() error = %v", err)
			}
			if keep {
				r := newRunner(b.Server, b.log)
				if err := errors.Join(interpreter.End(t.Context(), r, ref), r.Close()); err != nil {
					t.Error(err)
				}
			}
			s.Close()
		})
	}
}

// A sweep takes what a dead host has left, and no session that is to stay.
func TestSweepSessions(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		b.runner.Keep = 3 * 24 * time.Hour
		open := func() string {
			s, err := interpreter.Open(t.Context(), b.runner, interpreter.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Release()
			return s.Ref()
		}
		kept, spent := open(), open()
		b.End(sandboxOf(spent), "lifetime_cap")
		// What was made for a session whose host died before it said for how long.
		noted := leave(t, b.Server, secretKey, `{"app":"fnloop","run":"x","keep":"3"}`)
		dead := leave(t, b.Server, secretKey, `{"app":"fnloop","run":"y"}`)
		time.Sleep(4 * time.Hour)
		deleted, err := b.runner.Sweep(t.Context(), time.Hour)
		slices.Sort(deleted)
		want := []string{sandboxOf(spent), dead}
		slices.Sort(want)
		if err != nil || !slices.Equal(deleted, want) {
			t.Errorf("Sweep() = %q, %v; want %q", deleted, err, want)
		}
		s, err := interpreter.Resume(t.Context(), b.runner, interpreter.Config{}, kept)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(80 * time.Hour)
		if deleted, err = b.runner.Sweep(t.Context(), time.Hour); err != nil || !slices.Equal(deleted, []string{noted}) && len(b.Live()) > 1 {
			t.Errorf("Sweep() = %q, %v", deleted, err)
		}
		s.Close()
	})
}

func sandboxOf(ref string) string {
	_, after, _ := strings.Cut(ref, "sandbox=")
	id, _, _ := strings.Cut(after, "&")
	return id
}

// A failure that all programs would meet is marked as one.
func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault runtimetest.Fault
		n     int
		want  bool
	}{
		{"a bad key", runtimetest.Fault{Status: 401, Code: "unauthorized"}, 1, true},
		{"no money", runtimetest.Fault{Status: 402, Code: "insufficient_funds"}, 1, true},
		{"not allowed", runtimetest.Fault{Status: 403, Code: "forbidden"}, 1, true},
		{"switched off", runtimetest.Fault{Status: 503, Code: "unavailable"}, 1, true},
		{"no such image", runtimetest.Fault{Status: 404, Code: "image_not_found"}, 1, true},
		{"no answer, again and again", runtimetest.Fault{Drop: true}, 9, true},
		{"a service that fails", runtimetest.Fault{Status: 500, Code: "internal_error"}, 1, true},
		{"no room", runtimetest.Fault{Status: 409, Code: "no_capacity"}, 1, false},
		{"too large", runtimetest.Fault{Status: 400, Code: "no_credit_size_limit"}, 1, false},
		{"too often", runtimetest.Fault{Status: 429, Code: "rate_limited", RetryAfter: "400"}, 90, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, session := range []bool{false, true} {
				sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
					b.runner.RoomWait = -1
					for range c.n {
						b.Fail(runtimetest.StepCreate, c.fault)
					}
					var err error
					if session {
						_, err = interpreter.Open(t.Context(), b.runner, interpreter.Config{})
					} else {
						_, err = b.runner.Run(t.Context(), fnloop.Program{})
					}
					if err == nil || errors.Is(err, fnloop.ErrUnavailable) != c.want {
						t.Errorf("session %v: %v: unavailable is %v", session, err, !c.want)
					}
				})
			}
		})
	}
	r := new(runtimecloud.Runner)
	t.Setenv("RUNTIME_API_KEY", "")
	if _, err := r.Run(t.Context(), fnloop.Program{}); !errors.Is(err, fnloop.ErrUnavailable) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := r.Run(t.Context(), fnloop.Program{Language: "cobol"}); errors.Is(err, fnloop.ErrUnavailable) {
		t.Errorf("a program's own fault: %v", err)
	}
}

// Programs of each language: what the service's image has is a command, and what it
// installs for an interpreter alone is the only cell of one.
func TestProgramLanguages(t *testing.T) {
	for _, c := range []struct{ language, image, file, argv string }{
		{"", "", "main.py", "python3 main.py"},
		{"python", "", "main.py", "python3 main.py"},
		{"javascript", "", "main.js", "node main.js"},
		{"typescript", "", "main.ts", "bun main.ts"},
		{"bash", "", "main.sh", "bash main.sh"},
		{"r", "mine", "main.R", "Rscript main.R"},
		{"java", "mine", "Main.java", "java Main.java"},
		{"go", "mine", "main.go", "go run main.go"},
	} {
		bubble(t, func(t *testing.T, b *bench) {
			b.runner.Image = c.image
			b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
				source, _ := cmd.File(c.file)
				if got := strings.Join(cmd.Argv, " "); got != c.argv || string(source) != "source" || cmd.Internet {
					t.Errorf("%s: %q of %q, internet %v", c.language, got, source, cmd.Internet)
				}
				return runtimetest.Exit{Code: 4}
			}
			if res := b.run(t, fnloop.Program{Source: "source", Language: c.language, Stdin: []byte("in")}); *res.ExitCode != 4 {
				t.Errorf("%s: %s", c.language, res.Text())
			}
		})
	}
	for _, language := range []string{"r", "java", "go"} {
		sessionBubble(t, func(t *testing.T, b *bench, g *guest) {
			b.Guests, b.InstallDelay = map[string]fnloop.Runner{language: g}, time.Minute
			run := func(source string) fnloop.Result {
				return b.run(t, fnloop.Program{Source: source, Language: language, Limits: fnloop.Limits{Time: 10 * time.Second}})
			}
			if res := run("print out err"); res.Stdout != "out" || res.Stderr != "err" || *res.ExitCode != 0 || res.Duration > time.Second || res.Startup < time.Minute {
				t.Errorf("%s after %v: %s", language, res.Startup, res.Text())
			}
			want := []string{"create", "context", "network", "cell", "delete"}
			if got := b.steps(); !slices.Equal(got, want) {
				synctest.Wait()
				if got = b.steps(); !slices.Equal(got, want) {
					t.Errorf("%s: the wire had %q, want %q", language, got, want)
				}
			}
			if res := run("raise"); *res.ExitCode != 1 || res.Stderr != "Traceback: E: v\n" || res.End != fnloop.EndExit {
				t.Errorf("%s: %s", language, res.Text())
			}
			if res := run("sleep 1m"); res.End != fnloop.EndTimeout || !res.TimedOut || res.ExitCode != nil {
				t.Errorf("%s: %s", language, res.Text())
			}
			if res := run("exit"); res.ExitCode != nil || res.End != fnloop.EndUnknown {
				t.Errorf("%s: %s, %q", language, res.Text(), res.End)
			}
			if _, err := b.runner.Run(t.Context(), fnloop.Program{Language: language, Stdin: []byte("in")}); !errors.As(err, new(*fnloop.ProgramError)) {
				t.Errorf("%s: %v: it would get no input", language, err)
			}
			b.Guests = nil
			if _, err := b.runner.Run(t.Context(), fnloop.Program{Source: "x", Language: language}); err == nil || errors.Is(err, fnloop.ErrUnavailable) {
				t.Errorf("%s: %v", language, err)
			}
		})
	}
}

func TestBuildImage(t *testing.T) {
	sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
		b.InstallDelay = 40 * time.Second // of a build too
		b.Fail(runtimetest.StepImage, runtimetest.Fault{After: true, Drop: true})
		id, err := b.runner.BuildImage(t.Context(), runtimecloud.ImageRecipe{Name: "science", Pip: []string{"scipy"}, Env: map[string]string{"A": "b"}})
		if err != nil || id == "" {
			t.Fatalf("BuildImage() = %q, %v", id, err)
		}
		if body := string(b.Requests(runtimetest.StepImage)[0].Body); body != `{"name":"science","recipe":{"pip":["scipy"],"env":{"A":"b"}}}` {
			t.Errorf("the recipe is sent as %s", body)
		}
		_, err = b.runner.BuildImage(t.Context(), runtimecloud.ImageRecipe{Name: "bad", Pip: []string{"no-such-package"}})
		if e, ok := errors.AsType[*runtimecloud.Error](err); !ok || e.Code != "build_failed" || !strings.Contains(err.Error(), "No matching distribution") {
			t.Errorf("BuildImage() error = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.runner.BuildImage(ctx, runtimecloud.ImageRecipe{Name: "slow"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("BuildImage() error = %v", err)
		}
		if _, err := b.runner.BuildImage(t.Context(), runtimecloud.ImageRecipe{}); !errors.As(err, new(*runtimecloud.ConfigError)) {
			t.Errorf("BuildImage() error = %v", err)
		}
	})
}

// Every other call of a session meets the same troubles, and does what it does
// once.
func TestSessionCallFaults(t *testing.T) {
	keep := func(r *runtimecloud.Runner) { r.Keep = 24 * time.Hour }
	calls := []struct {
		name string
		step runtimetest.Step
		do   func(*testing.T, *bench, *interpreter.Session) error
	}{
		{"pause", runtimetest.StepPause, func(t *testing.T, _ *bench, s *interpreter.Session) error { return s.Pause(t.Context()) }},
		{"restart", runtimetest.StepRestart, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			if err := s.Restart(t.Context()); err != nil {
				return err
			}
			if e := runCell(t, s, "set x 1"); e.Loss == nil || e.Loss.Cause != interpreter.CauseRestart {
				t.Errorf("loss = %+v", e.Loss)
			}
			return nil
		}},
		{"resume", runtimetest.StepContexts, func(t *testing.T, b *bench, s *interpreter.Session) error {
			other, err := interpreter.Resume(t.Context(), b.runner, interpreter.Config{}, s.Ref())
			if err == nil {
				err = other.Release()
			}
			return err
		}},
		{"put", runtimetest.StepWrite, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			return s.Put(t.Context(), "f", strings.NewReader("data"))
		}},
		{"put much", runtimetest.StepChunk, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			return s.Put(t.Context(), "f", strings.NewReader(strings.Repeat("x", 3<<20)))
		}},
		{"commit", runtimetest.StepCommit, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			return s.Put(t.Context(), "f", strings.NewReader(strings.Repeat("x", 3<<20)))
		}},
		{"get", runtimetest.StepFile, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			if err := s.Put(t.Context(), "g", strings.NewReader("data")); err != nil {
				return err
			}
			f, err := s.Get(t.Context(), "g")
			if err == nil {
				var b []byte
				if b, err = io.ReadAll(f); string(b) != "data" {
					t.Errorf("Get() gave %q", b)
				}
				f.Close()
			}
			return err
		}},
		{"list", runtimetest.StepFiles, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			_, err := s.List(t.Context())
			return err
		}},
		{"remove", runtimetest.StepRemove, func(t *testing.T, _ *bench, s *interpreter.Session) error {
			if err := s.Put(t.Context(), "h", strings.NewReader("data")); err != nil {
				return err
			}
			return s.Remove(t.Context(), "h")
		}},
		{"snapshot", runtimetest.StepSnapshot, func(t *testing.T, b *bench, s *interpreter.Session) error {
			ref, err := s.Snapshot(t.Context())
			if n := len(b.Snapshots()); err == nil && n != 1 {
				t.Errorf("%d snapshots", n)
			}
			if err == nil {
				err = interpreter.End(t.Context(), b.runner, ref)
			}
			return err
		}},
		{"fork", runtimetest.StepFork, func(t *testing.T, b *bench, s *interpreter.Session) error {
			copies, err := s.Fork(t.Context(), 1)
			if n := b.Created(); n > 2 {
				t.Errorf("%d sandboxes", n)
			}
			if err == nil {
				err = copies[0].Close()
			}
			return err
		}},
		{"delete", runtimetest.StepDelete, func(t *testing.T, b *bench, s *interpreter.Session) error { return s.Close() }},
		{"cost", runtimetest.StepRead, func(t *testing.T, b *bench, s *interpreter.Session) error {
			_, err := b.runner.Cost(t.Context(), s.Ref())
			return err
		}},
	}
	faults := map[string][]runtimetest.Fault{
		"lost before":     {{Drop: true}},
		"lost after":      {{After: true, Drop: true}},
		"frozen":          {{After: true, Freeze: true}},
		"half":            {{Half: true}},
		"late":            {{Late: true}},
		"late error":      {{Late: true, Status: 503, Code: "host_unavailable"}},
		"429 with a wait": {{Status: 429, Code: "rate_limited", RetryAfterMs: 700}},
		"429 without":     {{Status: 429, Code: "rate_limited"}, {Status: 429, Code: "rate_limited"}},
		"busy":            {{Status: 503, Code: "busy", RetryAfter: "1"}},
		"502":             {{After: true, Status: 502, Body: "<html>"}},
	}
	for _, c := range calls {
		for name, list := range faults {
			if list[0].Late && c.step == runtimetest.StepFile {
				continue // a file that is late has no length, and is not one that comes late from us
			}
			t.Run(c.name+", "+name, func(t *testing.T) {
				sessionBubble(t, func(t *testing.T, b *bench, _ *guest) {
					keep(b.runner)
					s := openSession(t, b, interpreter.Config{})
					runCell(t, s, "set x 1")
					b.Fail(c.step, list...)
					if err := c.do(t, b, s); err != nil {
						t.Errorf("error = %v", err)
					}
					if n := b.Unused(); n > 0 {
						t.Errorf("%d faults were not met", n)
					}
					if c.name != "delete" {
						gives(t, s, "get x", "1")
					}
				})
			})
		}
	}
}
