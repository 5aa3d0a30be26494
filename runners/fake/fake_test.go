package fake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/fake"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func TestConformance(t *testing.T) {
	runnertest.Run(t, func(*testing.T) fnloop.Runner { return new(fake.Runner) })
}

func TestScript(t *testing.T) {
	r := &fake.Runner{
		Scripts: map[string]fnloop.Result{"print(6*7)": fake.Exit(0, "42\n")},
		Results: []fnloop.Result{fake.Exit(1, "first"), fake.Exit(2, "second")},
	}
	for _, want := range []struct {
		source, stdout string
		code           int
	}{
		{"a", "first", 1}, {"print(6*7)", "42\n", 0}, {"b", "second", 2}, {"c", "second", 2},
	} {
		res, err := r.Run(t.Context(), fnloop.Program{Source: want.source})
		if err != nil || res.Stdout != want.stdout || *res.ExitCode != want.code || res.End != fnloop.EndExit {
			t.Errorf("Run(%q) = %+v, %v", want.source, res, err)
		}
	}
	if calls := r.Calls(); len(calls) != 4 || calls[1].Source != "print(6*7)" {
		t.Errorf("Calls() = %+v", calls)
	}
}

func TestZeroRunner(t *testing.T) {
	res, err := new(fake.Runner).Run(t.Context(), fnloop.Program{Source: "whatever"})
	if err != nil || res.Text() != `{"exit_code":0,"timed_out":false,"stdout":"","stderr":""}` {
		t.Errorf("Run() = %s, %v", res.Text(), err)
	}
}

func TestClock(t *testing.T) {
	tests := []struct {
		delay, limit time.Duration
		end          fnloop.Ending
	}{
		{time.Second - time.Millisecond, time.Second, fnloop.EndExit},
		{time.Second, time.Second, fnloop.EndExit},
		{time.Second + time.Millisecond, time.Second, fnloop.EndTimeout},
		{time.Hour, 0, fnloop.EndTimeout},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fake.Runner{Delay: test.delay, Results: []fnloop.Result{fake.Exit(0, "so far")}}
				begin := time.Now()
				res, err := r.Run(t.Context(), fnloop.Program{Limits: fnloop.Limits{Time: test.limit}})
				limit := test.limit
				if limit == 0 {
					limit = fake.DefaultTime
				}
				if took, want := time.Since(begin), min(test.delay, limit); took != want || res.Duration != want {
					t.Errorf("Run() took %v and says %v, want %v", took, res.Duration, want)
				}
				if err != nil || res.End != test.end || res.TimedOut != (test.end == fnloop.EndTimeout) || res.Stdout != "so far" || res.Limits.Time != limit {
					t.Errorf("Run() = %+v, %v; want the end %q", res, err, test.end)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := &fake.Runner{Delay: time.Hour, Results: []fnloop.Result{fake.Exit(0, "so far")}, Limits: fnloop.Limits{Time: time.Hour}}
		res, err := r.Run(ctx, fnloop.Program{})
		if !errors.Is(err, context.DeadlineExceeded) || res.End != fnloop.EndCancelled || res.Stdout != "so far" || res.ExitCode != nil {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	})
}

func TestBrokenRunner(t *testing.T) {
	broken := errors.New("no engine")
	r := &fake.Runner{Func: func(context.Context, fnloop.Program) (fnloop.Result, error) { return fnloop.Result{}, broken }}
	if _, err := r.Run(t.Context(), fnloop.Program{}); !errors.Is(err, broken) {
		t.Errorf("Run() error = %v", err)
	}
}

func TestKilled(t *testing.T) {
	r := &fake.Runner{Results: []fnloop.Result{{End: fnloop.EndMemory, Limits: fnloop.Limits{}}, {Signal: "SIGSEGV"}, {TimedOut: true}}}
	for _, want := range []string{"out of memory", "SIGSEGV", "time limit"} {
		res, err := r.Run(t.Context(), fnloop.Program{})
		if err != nil || res.ExitCode != nil || !strings.Contains(res.Stderr, want) {
			t.Errorf("Run() = %+v, %v; want %q on stderr", res, err, want)
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	r := &fake.Runner{Func: func(_ context.Context, p fnloop.Program) (fnloop.Result, error) {
		return fake.Exit(0, p.Source), nil
	}}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			source := fmt.Sprint(i)
			if res, err := r.Run(t.Context(), fnloop.Program{Source: source}); err != nil || res.Stdout != source {
				t.Errorf("Run(%s) = %+v, %v", source, res, err)
			}
		})
	}
	wg.Wait()
	if n := len(r.Calls()); n != 50 {
		t.Errorf("%d calls were recorded", n)
	}
}

func ExampleRunner() {
	r := &fake.Runner{Scripts: map[string]fnloop.Result{
		"print(6 * 7)": fake.Exit(0, "42\n"),
	}}
	res, err := r.Run(context.Background(), fnloop.Program{Source: "print(6 * 7)"})
	fmt.Println(res.Text(), err)
	// Output: {"exit_code":0,"timed_out":false,"stdout":"42\n","stderr":""} <nil>
}
