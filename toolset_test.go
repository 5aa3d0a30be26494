package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/invopop/jsonschema"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func noOutput(context.Context, fnloop.Call) (fnloop.Output, error) { return fnloop.Output{}, nil }

// TestCheckReportsBeforeTheFirstRequest has one of each thing that can be wrong.
func TestCheckReportsBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	loop, srv := play(t)
	require.NoError(t, loop.Check(t.Context()))
	good := fnloop.Tool{Name: "f", Handle: noOutput}
	for _, c := range []struct {
		name  string
		edit  func(*fnloop.Loop)
		field string
	}{
		{"client", func(l *fnloop.Loop) { l.Client = nil }, "Loop.Client"},
		{"model", func(l *fnloop.Loop) { l.Model = "" }, "Loop.Model"},
		{"name", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{{Name: "a b", Handle: noOutput}} }, "Loop.Tools[0].Name"},
		{"twice", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{good, good} }, "Loop.Tools[1].Name"},
		{"handler", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{good, {Name: "g"}} }, "Loop.Tools[1] (g).Handle"},
		{"schema", func(l *fnloop.Loop) {
			l.Tools = []fnloop.Tool{{Name: "f", Handle: noOutput, Parameters: json.RawMessage(`{"type":"string"}`)}}
		}, "Loop.Tools[0] (f).Parameters"},
		{"runner", func(l *fnloop.Loop) { l.Tools = []fnloop.Tool{fnloop.PythonTool(nil, fnloop.Limits{})} }, "Loop.Tools[0] (run_python)"},
		{"too many", func(l *fnloop.Loop) {
			for i := range 129 {
				l.Tools = append(l.Tools, fnloop.Tool{Name: fmt.Sprint("f", i), Handle: noOutput})
			}
		}, "Loop.Tools"},
	} {
		l := *loop // as for one run with another field
		c.edit(&l)
		err := l.Check(t.Context())
		e, ok := errors.AsType[*fnloop.ConfigError](err)
		require.True(t, ok, "%s: %v", c.name, err)
		require.Equal(t, c.field, e.Field, c.name)
		require.Equal(t, 1, strings.Count(err.Error(), "fnloop:"), err)
		_, again := l.Run(t.Context(), "hi")
		require.EqualError(t, again, err.Error(), "a run says the same")
	}
	require.Empty(t, srv.Requests())
}

// TestToolsAreCheckedAgainWhenTheyChange edits tools of a Loop that has run.
func TestToolsAreCheckedAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	schema := func(name string) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{"` + name + `":{"type":"string"}},"required":["` + name + `"],"additionalProperties":false}`)
	}
	loop, srv := play(t, rt.Text("1"), rt.Text("2"), rt.Text("3"), rt.Text("4"), rt.Text("5"), rt.Text("6"))
	loop.Tools = []fnloop.Tool{{Name: "f", Description: "one", Parameters: schema("a"), Handle: noOutput}, {Name: "g", Handle: noOutput}}
	sent := func() string {
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		requests := srv.Requests()
		return string(requests[len(requests)-1].Body)
	}
	require.Contains(t, sent(), `"description":"one"`)
	loop.Tools[0].Description = "two"
	require.Contains(t, sent(), `"description":"two"`)
	copy(loop.Tools[0].Parameters, schema("b")) // in place
	require.Contains(t, sent(), `"properties":{"b":`)
	loop.Tools[1].NonStrict = true
	require.Contains(t, sent(), `"strict":false`)
	loop.Tools = loop.Tools[:1]
	require.NotContains(t, sent(), `"name":"g"`)
	l := *loop
	l.Instructions = "others"
	_, err := l.Run(t.Context(), "hi")
	require.NoError(t, err)
	copy(loop.Tools[0].Parameters, `{"type":"strong"`)
	require.Error(t, loop.Check(t.Context()))
	require.Error(t, l.Check(t.Context()), "the copy has the same tools")
	loop.Tools[0].Handle = nil
	require.ErrorContains(t, loop.Check(t.Context()), "Handle")
}

// TestHookEditsStayInTheirRequest edits all of a request's tools.
func TestHookEditsStayInTheirRequest(t *testing.T) {
	t.Parallel()
	loop, srv := play(t, rt.Call("c1", "f", "{}"), rt.Text("1"), rt.Text("2"))
	loop.Tools = []fnloop.Tool{
		fnloop.MustTool("f", "one", func(context.Context, struct{}) (string, error) { return "", nil }),
		{Name: "g", Custom: true, Grammar: &fnloop.Grammar{Syntax: "regex", Definition: "a+"}, Handle: noOutput},
	}
	edits := 0
	loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error {
		if edits++; edits == 1 {
			p.Tools[0].OfFunction.Description = param.NewOpt("edited")
			p.Tools[0].OfFunction.Parameters["description"] = "edited"
			p.Tools[1].OfCustom.Name = "h"
			p.Tools[1].OfCustom.Format.OfGrammar.Definition = "edited"
			p.Tools = append(p.Tools, p.Tools[0])[:2]
		}
		return nil
	}
	for range 2 {
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	}
	requests := srv.Requests()
	require.Len(t, requests, 3)
	require.Equal(t, 3, strings.Count(string(requests[0].Body), "edited"))
	for _, r := range requests[1:] {
		require.NotContains(t, string(r.Body), "edited")
		require.Contains(t, string(r.Body), `"name":"g"`)
	}
}

// TestToolsAreFreed makes sure that what is remembered of tools keeps nothing
// alive, not even by a handler that holds the Loop.
func TestToolsAreFreed(t *testing.T) {
	t.Parallel()
	var tool weak.Pointer[fnloop.Tool]
	var kept weak.Pointer[[1 << 16]byte]
	func() {
		loop, _ := play(t, rt.Text("done"))
		l := &fnloop.Loop{Client: loop.Client, Model: "m"}
		big := new([1 << 16]byte)
		l.Tools = []fnloop.Tool{{Name: "f", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) {
			return fnloop.Output{Text: fmt.Sprint(len(l.Tools), big[0])}, nil
		}}}
		_, err := l.Run(t.Context(), "hi")
		require.NoError(t, err)
		tool, kept = weak.Make(&l.Tools[0]), weak.Make(big)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return tool.Value() == nil && kept.Value() == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// inspected is a runner that has to look, and says how often it did.
type inspected struct {
	noRunner
	asked atomic.Int32
	delay time.Duration
	fail  atomic.Pointer[error]
}

var errNoEngine = errors.New("the engine does not answer")

func (r *inspected) Environment() fnloop.Environment { panic("it is an Inspector") }

func (r *inspected) Inspect(ctx context.Context) (fnloop.Environment, error) {
	r.asked.Add(1)
	select {
	case <-time.After(r.delay):
	case <-ctx.Done():
		return fnloop.Environment{}, ctx.Err()
	}
	if err := r.fail.Load(); err != nil {
		return fnloop.Environment{}, *err
	}
	return fnloop.Environment{Python: "3.13.1", Packages: []string{"numpy"}, Limits: fnloop.Limits{Time: time.Minute}}, nil
}

func TestPythonToolAsksLate(t *testing.T) {
	t.Parallel()
	for name, tool := range map[string]func(fnloop.Runner, fnloop.Limits) fnloop.Tool{"function": fnloop.PythonTool, "custom": fnloop.CustomPythonTool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &inspected{}
			loop, srv := play(t, rt.Text("1"), rt.Text("2"), rt.Text("3"))
			made := tool(r, fnloop.Limits{Memory: 64 << 20})
			require.Zero(t, r.asked.Load(), "a constructor starts nothing")
			require.NotContains(t, made.Description, "numpy")
			require.NotContains(t, made.Description, "standard library", "nothing is said that is not known")
			loop.Tools = []fnloop.Tool{made}

			r.fail.Store(&errNoEngine)
			require.ErrorIs(t, loop.Check(t.Context()), errNoEngine)
			a, err := loop.Run(t.Context(), "hi")
			require.ErrorIs(t, err, errNoEngine, "it is loud")
			require.ErrorAs(t, err, new(*fnloop.ConfigError))
			require.ErrorContains(t, err, "Loop.Tools[0] (run_python)")
			require.Equal(t, fnloop.StopInvalid, a.Stop)
			require.Empty(t, srv.Requests())

			r.fail.Store(nil)
			asked := r.asked.Load()
			_, err = loop.Continue(t.Context(), a, "")
			require.NoError(t, err, "the engine is there now")
			require.NoError(t, loop.Check(t.Context()))
			l := *loop
			l.Tools = []fnloop.Tool{made}
			_, err = l.Run(t.Context(), "hi")
			require.NoError(t, err)
			require.Equal(t, asked+1, r.asked.Load(), "an answer is kept")
			for _, req := range srv.Requests() {
				for _, part := range []string{"Runs a Python 3.13.1 program", "numpy", "run for 1m0s", "64 MiB", "cut in the middle"} {
					require.Contains(t, string(req.Body), part)
				}
			}
			loop.Tools[0].Description = "My own words."
			_, err = loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			last := srv.Requests()
			require.Contains(t, string(last[len(last)-1].Body), `"description":"My own words."`)
		})
	}
}

func TestPythonToolAsksOnceForMany(t *testing.T) {
	t.Parallel()
	r := &inspected{delay: 20 * time.Millisecond}
	loop, _ := play(t)
	loop.Tools = []fnloop.Tool{fnloop.PythonTool(r, fnloop.Limits{})}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, loop.Check(t.Context())) })
	}
	wg.Wait()
	require.Equal(t, int32(1), r.asked.Load())

	slow := &inspected{delay: time.Hour}
	loop.Tools = []fnloop.Tool{fnloop.PythonTool(slow, fnloop.Limits{})}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var ends sync.WaitGroup
	for range 2 { // one asks, one waits for it
		ends.Go(func() {
			a, err := loop.Run(ctx, "hi")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, fnloop.StopDeadline, a.Stop)
		})
	}
	ends.Wait()
}

// counted says its own schema and counts how often it was asked.
type counted struct{ A string }

var countedAsked atomic.Int32

func (counted) JSONSchema() *jsonschema.Schema {
	countedAsked.Add(1)
	props := jsonschema.NewProperties()
	props.Set("A", &jsonschema.Schema{Type: "string"})
	return &jsonschema.Schema{Type: "object", Properties: props, Required: []string{"A"}}
}

func TestRunAsReflectsOnce(t *testing.T) {
	t.Parallel()
	loop, _ := play(t, rt.Text(`{"A":"x"}`), rt.Text(`{"A":"y"}`))
	for range 2 {
		_, _, err := fnloop.RunAs[counted](t.Context(), loop, nil, "hi")
		require.NoError(t, err)
	}
	require.Equal(t, int32(1), countedAsked.Load())
}
