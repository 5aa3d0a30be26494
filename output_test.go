package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// answerOf is what becomes of an output of a tool in a Loop.
func answerOf(t *testing.T, edit func(*fnloop.Loop), out fnloop.Output) fnloop.CallResult {
	t.Helper()
	loop, _ := play(t, rt.Call("c1", "f", "{}"), rt.Text("done"))
	loop.Tools = []fnloop.Tool{{Name: "f", Handle: func(context.Context, fnloop.Call) (fnloop.Output, error) { return out, nil }}}
	edit(loop)
	a, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	require.Len(t, a.Calls, 1)
	return a.Calls[0]
}

func limit(n int) func(*fnloop.Loop) { return func(l *fnloop.Loop) { l.MaxOutput = n } }

func TestMaxOutputKeepsJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	rows := strings.TrimSuffix(strings.Repeat(`{"id":1,"name":"row"},`, 2000), ",")
	for _, c := range []struct {
		name, doc string
		limit     int
		has       []string // of what is sent
	}{
		{"string in object", `{"a":1,"b":"` + long + `","c":[true]}`, 500, []string{`"a":1`, `"c":[true]`, "bytes left out", `xxx"`}},
		{"two strings", `{"a":"` + long + `","b":"` + long + `","c":"short"}`, 800, []string{`"c":"short"`, `"a":"xx`, `"b":"xx`}},
		{"nested", `{"a":{"b":[{"c":"` + long + `"}]},"z":0}`, 400, []string{`{"a":{"b":[{"c":"x`, `"z":0`}},
		{"rows", "[" + rows + "]", 1000, []string{`[{"id":1,"name":"row"},`, "elements left out", `{"id":1,"name":"row"}]`}},
		{"rows in object", `{"rows":[` + rows + `],"total":2000}`, 1000, []string{`"total":2000`, "elements left out"}},
		{"numbers", "[" + strings.Repeat("1,", 100000) + "2]", 300, []string{"[1,1,", "elements left out", ",2]"}},
		{"members", "{" + manyMembers(5000) + `"last":true}`, 600, []string{`{"k0":0`, "elements left out", `"last":true}`}},
		{"white space", "{" + strings.Repeat(" ", 5000) + `"a":1}`, 300, []string{`{"a":1}`}},
		{"text", `"` + long + `"`, 300, []string{`"xxx`, `bytes left out`}},
		{"escapes", `{"a":"` + strings.Repeat(`\"\\\u0001é`, 2000) + `"}`, 400, []string{`\"\\\u0001é`}},
		{"html", `{"a":"` + strings.Repeat(`<&>`, 2000) + `"}`, 400, []string{`<&>`}},
		{"deep", strings.Repeat("[", 500) + `"` + long + `"` + strings.Repeat("]", 500), 1200, nil},
		{"key", `{"` + long + `":1,"b":2}`, 300, nil},
		{"brackets in strings", `[` + strings.Repeat(`"a]b,\"{",`, 500) + `1]`, 400, []string{`"a]b,\"{"`}},
		{"small limit", `{"a":"` + long + `"}`, 70, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.True(t, json.Valid([]byte(c.doc)), "the test's own document")
			for _, field := range []string{"text", "content"} {
				out := fnloop.Output{Text: c.doc}
				if field == "content" {
					out = fnloop.Output{Content: []fnloop.Content{{Text: c.doc}}}
				}
				got := answerOf(t, limit(c.limit), out)
				text := got.Text
				if field == "content" {
					require.Len(t, got.Content, 1)
					text = got.Content[0].Text
				}
				require.LessOrEqual(t, len(text), c.limit)
				require.True(t, json.Valid([]byte(text)), text)
				require.True(t, utf8.ValidString(text))
				require.Equal(t, c.name != "white space", got.Truncated)
				for _, part := range c.has {
					require.Contains(t, text, part)
				}
				again := answerOf(t, limit(c.limit), fnloop.Output{Text: text})
				require.Equal(t, text, again.Text, "what fits is left alone")
			}
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	return b.String()
}

// TestMaxOutputOfText has texts that are no JSON, and a document with room.
func TestMaxOutputOfText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		limit      int
		truncated  bool
	}{
		{"fits", "abc", 3, false},
		{"text", strings.Repeat("a", 1000), 500, true},
		{"looks like JSON", "{" + strings.Repeat("a", 1000), 500, true},
		{"two documents", `{"a":1}` + strings.Repeat(" ", 1000) + `{"b":2}`, 500, true},
		{"invalid UTF-8 that grows", strings.Repeat("\xff", 300), 500, true},
		{"invalid UTF-8 with room", "a\xffb", 500, false},
		{"invalid UTF-8 in JSON", `{"a":"` + strings.Repeat("\xff", 300) + `"}`, 500, true},
		{"no limit", strings.Repeat("a", fnloop.DefaultMaxOutput+1), -1, false},
	} {
		got := answerOf(t, limit(c.limit), fnloop.Output{Text: c.text})
		assert.Equal(t, c.truncated, got.Truncated, c.name)
		assert.True(t, utf8.ValidString(got.Text), c.name)
		assert.Equal(t, c.truncated, strings.Contains(got.Text, "left out"), c.name)
		if c.limit > 0 {
			assert.LessOrEqual(t, len(got.Text), c.limit, c.name)
		}
	}
}

// TestMaxOutputReachesResult looks at run_python and at a tool of one's own that
// returns a Result, whose marker has to count bytes of the program's output.
func TestMaxOutputReachesResult(t *testing.T) {
	t.Parallel()
	printed := strings.Repeat("0123456789", 50_000)
	run := func(context.Context, fnloop.Program) (fnloop.Result, error) {
		zero := 0
		var out, err fnloop.Capture
		out.Write([]byte(printed))
		err.Write([]byte("\n[... 7 bytes left out ...]\nwarning"))
		r := fnloop.Result{ExitCode: &zero, End: fnloop.EndExit}
		r.SetOutput(&out, &err)
		return r, nil
	}
	runner := runnerFunc(run)
	for _, tool := range []fnloop.Tool{
		fnloop.PythonTool(runner, fnloop.Limits{}),
		fnloop.CustomPythonTool(runner, fnloop.Limits{}),
		fnloop.MustTool("run_python", "", func(ctx context.Context, _ struct{}) (fnloop.Result, error) {
			return run(ctx, fnloop.Program{})
		}),
		fnloop.MustTool("run_python", "", func(ctx context.Context, _ struct{}) (*fnloop.Result, error) {
			r, err := run(ctx, fnloop.Program{})
			return &r, err
		}),
	} {
		for _, limit := range []int{300, 1000, 4096, 65536, 1 << 20, -1} {
			args := `{}`
			if strings.Contains(string(tool.Parameters), "code") {
				args = `{"code":"x"}`
			}
			turn := rt.Call("c1", "run_python", args)
			if tool.Custom {
				turn = rt.CustomCall("c1", "run_python", "x")
			}
			loop, _ := play(t, turn, rt.Text("done"))
			loop.MaxOutput = limit
			loop.Tools = []fnloop.Tool{tool}
			a, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			got := a.Calls[0]
			require.NoError(t, got.Err)
			var doc struct {
				ExitCode       *int `json:"exit_code"`
				Stdout, Stderr string
			}
			require.NoError(t, json.Unmarshal([]byte(got.Text), &doc), got.Text)
			require.Equal(t, 0, *doc.ExitCode)
			require.True(t, got.Truncated)
			require.Equal(t, "\n[... 7 bytes left out ...]\nwarning", doc.Stderr, "what is short is whole")
			head, rest, ok := strings.Cut(doc.Stdout, "\n[... ")
			require.True(t, ok)
			number, tail, _ := strings.Cut(rest, " bytes left out ...]\n")
			var gone int
			_, err = fmt.Sscan(number, &gone)
			require.NoError(t, err)
			require.Equal(t, len(printed), len(head)+gone+len(tail), "%s limit %d %.200s: one marker, which counts what the program printed", tool.Parameters, limit, got.Text)
			require.NotContains(t, tail, "left out")
			if limit > 0 {
				require.LessOrEqual(t, len(got.Text), limit)
				require.Greater(t, len(got.Text), min(limit, 65536)*8/10, "the room is used")
			}
		}
	}
}

func TestMaxMedia(t *testing.T) {
	t.Parallel()
	image := func(n int) fnloop.Content {
		return fnloop.Content{ImageURL: "data:image/png;base64," + strings.Repeat("A", n)}
	}
	file := func(n int) fnloop.Content {
		return fnloop.Content{FileData: "data:application/pdf;base64," + strings.Repeat("A", n), FileName: "a.pdf"}
	}
	words := func(s string) fnloop.Content { return fnloop.Content{Text: s} }
	media := func(n int) func(*fnloop.Loop) { return func(l *fnloop.Loop) { l.MaxMedia, l.MaxOutput = n, 200 } }
	for _, c := range []struct {
		name  string
		media int
		parts []fnloop.Content
		want  []fnloop.Content
		whole bool
	}{
		{"fits", 1000, []fnloop.Content{image(400), words("a"), file(400)}, []fnloop.Content{image(400), words("a"), file(400)}, true},
		{"too large", 1000, []fnloop.Content{words("a"), image(2000), words("b")}, []fnloop.Content{words("a"), words("[left out: 1 image of 2022 bytes]"), words("b")}, false},
		{"later one fits", 1000, []fnloop.Content{image(2000), image(3000), file(2000), image(500)}, []fnloop.Content{words("[left out: 2 images of 5044 bytes, 1 file of 2028 bytes]"), image(500)}, false},
		{"second too much", 1000, []fnloop.Content{image(600), image(600)}, []fnloop.Content{image(600), words("[left out: 1 image of 622 bytes]")}, false},
		{"no limit", -1, []fnloop.Content{image(1 << 20)}, []fnloop.Content{image(1 << 20)}, true},
		{"by name", 100, []fnloop.Content{{ImageURL: "https://example.com/a.png"}, {FileID: "file_1"}}, []fnloop.Content{{ImageURL: "https://example.com/a.png"}, {FileID: "file_1"}}, true},
		{"default", 0, []fnloop.Content{image(21 << 20)}, []fnloop.Content{words("[left out: 1 image of 22020118 bytes]")}, false},
		{"short text beside a long one", 0, []fnloop.Content{words(strings.Repeat("a", 200)), words("important")}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := answerOf(t, media(c.media), fnloop.Output{Content: c.parts})
			require.Equal(t, !c.whole, got.Truncated)
			if c.want != nil {
				require.Equal(t, c.want, got.Content)
				return
			}
			require.Equal(t, words("important"), got.Content[1])
			require.Contains(t, got.Content[0].Text, "left out")
		})
	}

	many := make([]fnloop.Content, 1000)
	for i := range many {
		many[i] = words(strings.Repeat("b", 100))
	}
	got := answerOf(t, media(0), fnloop.Output{Content: many})
	require.True(t, got.Truncated)
	size := 0
	for _, p := range got.Content {
		require.NotEmpty(t, p.Text, "nothing is left out without a word")
		size += len(p.Text)
	}
	require.Less(t, size, 300)
	require.Contains(t, got.Content[len(got.Content)-1].Text, "texts of")
}

func TestOutputKeepsItsTextBesideAnError(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret dsn")
	said := fnloop.Output{Text: "for the model"}
	for name, tool := range map[string]fnloop.Tool{
		"value":   fnloop.MustTool("f", "", func(context.Context, struct{}) (fnloop.Output, error) { return said, secret }),
		"pointer": fnloop.MustTool("f", "", func(context.Context, struct{}) (*fnloop.Output, error) { return &said, secret }),
		"any":     fnloop.MustTool("f", "", func(context.Context, struct{}) (any, error) { return &said, secret }),
	} {
		loop, _ := play(t, rt.Call("c1", "f", "{}"), rt.Text("done"))
		loop.Tools = []fnloop.Tool{tool}
		a, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		assert.Equal(t, "for the model", a.Calls[0].Text, name)
		assert.ErrorIs(t, a.Calls[0].Err, secret, name)
		assert.True(t, a.Calls[0].IsError, name)
	}
	tool := fnloop.MustTool("f", "", func(context.Context, struct{}) (*fnloop.Output, error) { return nil, secret })
	_, err := tool.Handle(t.Context(), fnloop.Call{})
	require.ErrorIs(t, err, secret, "a nil Output says nothing")
}

type (
	ring  *ring
	chain []chain
	deep  map[string]deep
)

func TestResultsOfRecursiveTypes(t *testing.T) {
	t.Parallel()
	_, err := fnloop.NewTool("f", "", func(context.Context, struct{}) (ring, error) { return nil, nil })
	require.ErrorContains(t, err, "pointer without end")
	_, err = fnloop.NewTool("f", "", func(context.Context, struct{ R ring }) (string, error) { return "", nil })
	require.ErrorContains(t, err, "pointer without end")
	_, err = fnloop.NewTool("f", "", func(context.Context, struct{}) (chain, error) { return nil, nil })
	require.NoError(t, err)
	_, err = fnloop.NewTool("f", "", func(context.Context, struct{}) (*deep, error) { return nil, nil })
	require.NoError(t, err)
}
