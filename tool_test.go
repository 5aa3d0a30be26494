package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

func call(args string) fnloop.Call {
	return fnloop.Call{ID: "call_1", Arguments: json.RawMessage(args)}
}

func TestNewToolRefuses(t *testing.T) {
	type open struct {
		Headers map[string]string `json:"headers"`
	}
	for name, err := range map[string]error{
		"empty name":   second(fnloop.NewTool("", "", add)),
		"illegal name": second(fnloop.NewTool("run python", "", add)),
		"long name":    second(fnloop.NewTool(strings.Repeat("x", 65), "", add)),
		"nil function": second(fnloop.NewTool[addInput, int]("x", "", nil)),
		"open map":     second(fnloop.NewTool("x", "", func(context.Context, open) (int, error) { return 0, nil })),
		"not a struct": second(fnloop.NewTool("x", "", func(context.Context, string) (int, error) { return 0, nil })),
		"any":          second(fnloop.NewTool("x", "", func(context.Context, any) (int, error) { return 0, nil })),
		"channel out":  second(fnloop.NewTool("x", "", func(context.Context, addInput) (chan int, error) { return nil, nil })),
		"func out":     second(fnloop.NewTool("x", "", func(context.Context, addInput) (func(), error) { return nil, nil })),
	} {
		assert.Error(t, err, name)
	}
	_, err := fnloop.NewTool("fetch", "", func(context.Context, open) (int, error) { return 0, nil })
	var schema *fnloop.SchemaError
	require.ErrorAs(t, err, &schema)
	for _, part := range []string{`"fetch"`, "Headers", "map[string]string"} {
		assert.Contains(t, err.Error(), part)
	}
	assert.Panics(t, func() { fnloop.MustTool("", "", add) })
}

func second[T any](_ T, err error) error { return err }

func TestNewToolOutput(t *testing.T) {
	type out struct {
		N int    `json:"n"`
		S string `json:"s"`
	}
	run := func(tool fnloop.Tool, err error) fnloop.Output {
		require.NoError(t, err)
		o, err := tool.Handle(t.Context(), call(`{}`))
		require.NoError(t, err)
		return o
	}
	type none struct{}
	assert.Equal(t, "plain <text>", run(fnloop.NewTool("x", "", func(context.Context, none) (string, error) { return "plain <text>", nil })).Text)
	assert.Equal(t, `{"n":1,"s":"<&>"}`, run(fnloop.NewTool("x", "", func(context.Context, none) (out, error) { return out{1, "<&>"}, nil })).Text)
	assert.Equal(t, `{"n":1,"s":""}`, run(fnloop.NewTool("x", "", func(context.Context, none) (*out, error) { return &out{N: 1}, nil })).Text)
	assert.Equal(t, `[1,2]`, run(fnloop.NewTool("x", "", func(context.Context, none) ([]int, error) { return []int{1, 2}, nil })).Text)
	assert.Equal(t, `{"raw":1}`, run(fnloop.NewTool("x", "", func(context.Context, *none) (json.RawMessage, error) { return json.RawMessage(`{"raw":1}`), nil })).Text)
	assert.Equal(t, fnloop.Output{Text: "x", IsError: true}, run(fnloop.NewTool("x", "", func(context.Context, none) (fnloop.Output, error) {
		return fnloop.Output{Text: "x", IsError: true}, nil
	})))
	assert.Equal(t, `null`, run(fnloop.NewTool("x", "", func(context.Context, none) (any, error) { return nil, nil })).Text)

	tool := fnloop.MustTool("x", "", func(context.Context, none) (any, error) { return make(chan int), nil })
	o, err := tool.Handle(t.Context(), call(`{}`))
	require.Error(t, err)
	assert.Equal(t, "the tool ran, but its result could not be encoded", o.Text)

	tool = fnloop.MustTool("x", "", func(context.Context, none) (fnloop.Output, error) {
		return fnloop.Output{Text: "for the model"}, errBoom
	})
	o, err = tool.Handle(t.Context(), call(`{}`))
	require.ErrorIs(t, err, errBoom)
	assert.Equal(t, "for the model", o.Text)
}

func TestNewToolArguments(t *testing.T) {
	type item struct {
		Count int8 `json:"count"`
	}
	type in struct {
		Code  string     `json:"code"`
		Mode  string     `json:"mode" jsonschema:"enum=fast,enum=slow"`
		Level int        `json:"level" jsonschema:"minimum=1,maximum=5"`
		Items []item     `json:"items"`
		Note  *string    `json:"note,omitempty"`
		When  *time.Time `json:"when,omitempty"`
	}
	ran := 0
	tool := fnloop.MustTool("x", "", func(context.Context, in) (string, error) { ran++; return "ok", nil })
	doc := func(replace ...string) string {
		return strings.NewReplacer(replace...).Replace(`{"code":"x","mode":"fast","level":3,"items":[{"count":1}],"note":null,"when":null}`)
	}
	_, err := tool.Handle(t.Context(), call(doc()))
	require.NoError(t, err)
	_, err = tool.Handle(t.Context(), call(doc(`,"note":null`, "", `,"when":null`, "")))
	require.NoError(t, err, "a missing key that may be null is null")
	require.Equal(t, 2, ran)
	for _, tt := range []struct{ name, args, says string }{
		{"empty", "", "code"},
		{"null", "null", "object"},
		{"array", "[]", "object"},
		{"string", `"x"`, "object"},
		{"JSON in a string", `"{\"code\":\"x\"}"`, "string"},
		{"wrong type", doc(`"x"`, `1`), "code"},
		{"unknown", doc(`"code"`, `"cod"`), "cod"},
		{"missing", doc(`"code":"x",`, ``), "code"},
		{"other case", doc(`"code"`, `"Code"`), "Code"},
		{"duplicate", doc(`"code":"x"`, `"code":"x","code":"y"`), "code"},
		{"duplicate, escaped", doc(`"code":"x"`, `"code":"x","c\u006fde":"y"`), "code"},
		{"null for a value", doc(`"x"`, `null`), "code"},
		{"trailing object", doc() + `{}`, ""},
		{"trailing text", doc() + ` thanks`, ""},
		{"fence", "```json\n" + doc() + "\n```", ""},
		{"cut", doc()[:40], ""},
		{"number in quotes", doc(`"level":3`, `"level":"3"`), "level"},
		{"out of bounds", doc(`"level":3`, `"level":9`), "level"},
		{"not in the enum", doc(`"fast"`, `"quick"`), "mode"},
		{"deep", doc(`{"count":1}`, `{"count":"2"}`), "items[0].count"},
		{"overflow", doc(`{"count":1}`, `{"count":300}`), "items[0].count"},
		{"bad time", doc(`"when":null`, `"when":"yesterday"`), "when"},
		{"invalid UTF-8", doc(`"x"`, "\"a\xff\""), ""},
		{"lone surrogate", doc(`"x"`, `"\ud83d"`), "surrogate"},
		{"NaN", doc(`"level":3`, `"level":NaN`), ""},
		{"nested without end", strings.Repeat("[", 20_000), ""},
		{"a novel", doc(`"fast"`, `"`+strings.Repeat("é", 5000)+`"`), "mode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tool.Handle(t.Context(), call(tt.args))
			var bad *fnloop.ArgumentsError
			require.ErrorAs(t, err, &bad)
			text := err.Error()
			assert.Contains(t, text, tt.says)
			assert.LessOrEqual(t, len(text), 2000)
			assert.True(t, utf8.ValidString(text))
			assert.NotContains(t, text, "\n")
			for _, word := range []string{"fnloop", "json:", "Go ", "struct", "int8", "time.Time", "unmarshal"} {
				assert.NotContains(t, text, word, "the model knows nothing of Go")
			}
		})
	}
	assert.Equal(t, 2, ran, "the function is not called with any of them")
}

func TestToolWithoutParameters(t *testing.T) {
	loop, srv := play(t, rt.Join(rt.Call("call_1", "now", ""), rt.Call("call_2", "now", "{}"), rt.Call("call_3", "now", ` {} `), rt.Call("call_4", "now", `{"x":1}`)), rt.Text("done"))
	loop.Tools = []fnloop.Tool{fnloop.MustTool("now", "", func(context.Context, struct{}) (string, error) { return "12:00", nil })}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	out := outputs(t, posts(t, srv)[1])
	assert.Equal(t, []string{"12:00", "12:00", "12:00"}, []string{out[1], out[3], out[5]})
	assert.Contains(t, out[7], "x")
}

func TestAcknowledgedOutputsAreNotSentAgain(t *testing.T) {
	loop, srv := play(t, rt.Call("call_1", "ok", ""), rt.Call("call_2", "ok", ""), rt.ServerError(), rt.Text("done"))
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	bubble(t, func(t *testing.T) {
		_, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
	})
	reqs := posts(t, srv)
	require.Len(t, reqs, 4)
	for _, body := range reqs[2:] {
		assert.Equal(t, []string{"call_2", "yes"}, outputs(t, body))
	}
}

func TestPythonTool(t *testing.T) {
	code := 1
	var got fnloop.Program
	fail := func(err error) runnerFunc {
		return func(_ context.Context, p fnloop.Program) (fnloop.Result, error) {
			got = p
			return fnloop.Result{ExitCode: &code, Stdout: "a", Stderr: strings.Repeat("<", 100_000)}, err
		}
	}
	tool := fnloop.PythonTool(fail(nil), fnloop.Limits{Time: time.Second})
	assert.Equal(t, "run_python", tool.Name)
	require.NoError(t, fnloop.CheckStrict(tool.Parameters))
	out, err := tool.Handle(t.Context(), call(`{"code":"print(1)"}`))
	require.NoError(t, err)
	assert.Equal(t, "print(1)", got.Source)
	assert.Equal(t, time.Second, got.Limits.Time)
	assert.False(t, out.IsError, "a program that fails is a result")
	assert.LessOrEqual(t, len(out.Text), fnloop.DefaultMaxOutput)
	assert.True(t, strings.HasPrefix(out.Text, `{"exit_code":1,"timed_out":false,"stdout":"a","stderr":"<<<`))

	secret := errors.New("dial unix /var/run/secret.sock: connection refused")
	out, err = fnloop.PythonTool(fail(secret), fnloop.Limits{}).Handle(t.Context(), call(`{"code":"x"}`))
	require.ErrorIs(t, err, secret, "the host learns what broke")
	assert.NotContains(t, out.Text, "secret", "the model does not")
	assert.NotContains(t, out.Text, "exit_code", "and takes it for no result of Python's")

	out, err = fnloop.PythonTool(fail(fmt.Errorf("x: %w", &fnloop.ProgramError{Field: "source", Reason: "NUL byte at offset 3"})), fnloop.Limits{}).Handle(t.Context(), call(`{"code":"x"}`))
	require.Error(t, err)
	assert.Equal(t, "the program was not run: source: NUL byte at offset 3", out.Text)
}

type described struct {
	noRunner
	env fnloop.Environment
}

func (d described) Environment() fnloop.Environment { return d.env }

type wrapper struct {
	noRunner
	inner fnloop.Runner
}

func (w wrapper) Unwrap() fnloop.Runner { return w.inner }

func TestPythonToolDescription(t *testing.T) {
	d := described{env: fnloop.Environment{Python: "3.12.4", Packages: []string{"numpy"}, Writable: "/tmp (64 MiB)", Limits: fnloop.Limits{Time: 10 * time.Second, Memory: 512 << 20}}}
	for _, r := range []fnloop.Runner{d, wrapper{inner: d}} {
		text := fnloop.PythonTool(r, fnloop.Limits{Time: 3 * time.Second}).Description
		for _, part := range []string{"Python 3.12.4", "numpy", "/tmp (64 MiB)", "no network", "3s", "512 MiB"} {
			assert.Contains(t, text, part)
		}
		assert.NotContains(t, text, "10s")
	}
	d.env.Network = true
	assert.NotContains(t, fnloop.PythonTool(d, fnloop.Limits{}).Description, "no network")
	text := fnloop.PythonTool(noRunner{}, fnloop.Limits{}).Description
	for _, part := range []string{"network", "MiB", "/tmp", "standard library"} {
		assert.NotContains(t, text, part, "what is not known is not said")
	}
}

func TestProgramCheck(t *testing.T) {
	for _, tt := range []struct {
		name, field string
		p           fnloop.Program
	}{
		{"NUL", "source", fnloop.Program{Source: "a\x00b"}},
		{"invalid UTF-8", "source", fnloop.Program{Source: "a\xff"}},
		{"encoded surrogate", "source", fnloop.Program{Source: "\xed\xa0\x80"}},
		{"too large", "source", fnloop.Program{Source: strings.Repeat("x", fnloop.MaxSource+1)}},
		{"negative time", "limits.time", fnloop.Program{Limits: fnloop.Limits{Time: -1}}},
		{"negative memory", "limits.memory", fnloop.Program{Limits: fnloop.Limits{Memory: -1}}},
	} {
		var bad *fnloop.ProgramError
		require.ErrorAs(t, tt.p.Check(), &bad, tt.name)
		assert.Equal(t, tt.field, bad.Field)
	}
	assert.NoError(t, fnloop.Program{Source: "print('\ufffd é')"}.Check())
}

func FuzzCallJSON(f *testing.F) {
	f.Add([]byte(`{"a":"<\u003c"}`), false)
	f.Add([]byte("{ \"a\" : 1 }\n"), false)
	f.Add([]byte(`"x"`), true)
	f.Fuzz(func(t *testing.T, args []byte, custom bool) {
		if !utf8.Valid(args) {
			t.Skip("no JSON holds it")
		}
		want := fnloop.Call{Turn: 1, ID: "call_1", Name: "x", Arguments: args, Custom: custom}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got fnloop.Call
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Arguments) != string(args) {
			t.Fatalf("%q became %q through %s", args, got.Arguments, b)
		}
	})
}

// A schema that was written elsewhere goes out as it is, down to what strict
// mode refuses, and the model's arguments reach the handler as they came.
func TestNonStrictTool(t *testing.T) {
	properties := `{"z": {"type":"object","additionalProperties":{"type":"string"}}, "a":{"type":"number","default":1e3,"description":"a < b & é \u00e9"}}`
	schema := `{ "type":"object", "properties":` + properties + `, "$schema":"http://json-schema.org/draft-07/schema#"}`
	loop, srv := play(t, rt.Call("call_1", "open", `{"z":{"k":"v"},"other":[1,2]}`), rt.Text("done"))
	var got string
	loop.Tools = []fnloop.Tool{{Name: "open", NonStrict: true, Parameters: json.RawMessage(schema), Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
		got = string(c.Arguments)
		return fnloop.Output{Text: "ok"}, nil
	}}}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, `{"z":{"k":"v"},"other":[1,2]}`, got)
	tool := posts(t, srv)[0]["tools"].([]any)[0].(map[string]any)
	assert.Equal(t, false, tool["strict"], "it is sent, since the API takes an absent one for true where it can")
	assert.Contains(t, string(srv.Requests()[0].Body), properties, "to the byte")
	sent, err := json.Marshal(tool["parameters"])
	require.NoError(t, err)
	assert.JSONEq(t, schema, string(sent))
}

func TestNonStrictToolArguments(t *testing.T) {
	for _, tt := range []struct{ name, args, handler, model string }{
		{"an object", ` {"a":1, "b":[]} `, ` {"a":1, "b":[]} `, "ok"},
		{"nothing", "", "{}", "ok"},
		{"white space", " \n", "{}", "ok"},
		{"a list", "[1]", "", "expected object, got array"},
		{"null", "null", "", "expected object, got null"},
		{"an object in a string", `"{}"`, "", "expected object"},
		{"two objects", "{}{}", "", "not JSON"},
		{"cut", `{"a":`, "", "incomplete JSON"},
		{"prose", "path=/tmp", "", "not JSON"},
		{"half a character", `{"a":"\ud83d"}`, "", "surrogate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			tool := fnloop.Tool{Name: "open", NonStrict: true, NeedsApproval: fnloop.Always, Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
				got = string(c.Arguments)
				return fnloop.Output{Text: "ok"}, nil
			}}
			script := []rt.Reply{rt.Call("call_1", "open", tt.args), rt.Text("done")}
			loop, srv := play(t, script...)
			loop.Tools = []fnloop.Tool{tool}
			answer, err := loop.Run(t.Context(), "hi")
			if tt.handler != "" {
				require.ErrorIs(t, err, fnloop.ErrApproval)
				require.NoError(t, answer.Approve("call_1"))
				_, err = loop.Continue(t.Context(), answer, "")
			}
			require.NoError(t, err, "nobody is asked to approve what cannot be run")
			assert.Equal(t, tt.handler, got)
			assert.Contains(t, outputs(t, posts(t, srv)[1])[1], tt.model)
		})
	}
}

func TestNonStrictToolRefuses(t *testing.T) {
	handle := func(context.Context, fnloop.Call) (fnloop.Output, error) { return fnloop.Output{}, nil }
	for name, tool := range map[string]fnloop.Tool{
		"no JSON":   {Parameters: json.RawMessage(`{"type":`)},
		"a list":    {Parameters: json.RawMessage(`[]`)},
		"empty":     {Parameters: json.RawMessage(``)},
		"true":      {Parameters: json.RawMessage(`true`)},
		"free text": {Custom: true},
	} {
		tool.Name, tool.Handle, tool.NonStrict = "open", handle, true
		loop, _ := play(t)
		loop.Tools = []fnloop.Tool{tool}
		answer, err := loop.Run(t.Context(), "hi")
		var bad *fnloop.ConfigError
		require.ErrorAs(t, err, &bad, name)
		assert.Contains(t, bad.Field, "Loop.Tools[0] (open).", name)
		assert.Equal(t, fnloop.StopInvalid, answer.Stop)
	}
}

func TestCallFrom(t *testing.T) {
	_, ok := fnloop.CallFrom(t.Context())
	assert.False(t, ok, "there is no call")

	var mu sync.Mutex
	ids := make(map[string]string)
	note := func(ctx context.Context, args string) {
		type key struct{}
		call, ok := fnloop.CallFrom(context.WithValue(ctx, key{}, 1))
		require.True(t, ok)
		require.Equal(t, args, string(call.Arguments))
		clear(call.Arguments) // a copy
		mu.Lock()
		defer mu.Unlock()
		ids[call.ID] = call.Name
	}
	loop, _ := play(t,
		rt.Join(rt.Call("call_1", "typed", `{"a":1,"b":2}`), rt.Call("call_2", "typed", `{"a":3,"b":4}`), rt.Call("call_3", "raw", "")),
		rt.Text("done"),
	)
	loop.Tools = []fnloop.Tool{
		fnloop.MustTool("typed", "", func(ctx context.Context, in addInput) (string, error) {
			args := fmt.Sprintf(`{"a":%d,"b":%d}`, in.A, in.B)
			note(ctx, args)
			note(ctx, args)
			return "", nil
		}),
		{Name: "raw", Handle: func(ctx context.Context, call fnloop.Call) (fnloop.Output, error) {
			note(ctx, "")
			return fnloop.Output{}, nil
		}},
	}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"call_1": "typed", "call_2": "typed", "call_3": "raw"}, ids)

	_, err = loop.Tools[0].Handle(t.Context(), fnloop.Call{ID: "call_4", Name: "typed", Arguments: json.RawMessage(`{"a":5,"b":6}`)})
	require.NoError(t, err)
	assert.Equal(t, "typed", ids["call_4"], "without a Loop too")
}
