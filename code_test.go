package fnloop_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

var someLanguages = []fnloop.Language{
	{Name: fnloop.LanguagePython, Version: "3.12.4"}, {Name: fnloop.LanguageBash}, {Name: fnloop.LanguageJava, Version: "openjdk 21"},
}

// polyglot is a runner that has to look for its languages.
type polyglot struct {
	*fake.Runner
	fail error
}

func (p *polyglot) Inspect(context.Context) (fnloop.Environment, error) {
	return p.Runner.Environment(), p.fail
}

// languageEnum is the enum of the tool's schema.
func languageEnum(t *testing.T, schema json.RawMessage) (enum []string) {
	t.Helper()
	var s struct {
		Properties struct{ Language struct{ Enum []string } }
	}
	require.NoError(t, json.Unmarshal(schema, &s))
	return s.Properties.Language.Enum
}

func TestCodeToolSchema(t *testing.T) {
	for _, test := range []struct {
		why  string
		r    fnloop.Runner
		want []string
	}{
		{"a runner that says nothing has Python", noRunner{}, []string{"python"}},
		{"so has one that names no languages", &fake.Runner{}, []string{"python"}},
		{"the enum is what the runner has", &fake.Runner{Env: fnloop.Environment{Languages: someLanguages}}, []string{"python", "bash", "java"}},
		{"a language of its own too, and no Python", &fake.Runner{Env: fnloop.Environment{Languages: []fnloop.Language{{Name: `perl "5"`}}}}, []string{`perl "5"`}},
	} {
		tool := fnloop.CodeTool(test.r, fnloop.Limits{})
		assert.Equal(t, test.want, languageEnum(t, tool.Parameters), test.why)
		assert.NoError(t, fnloop.CheckStrict(tool.Parameters), test.why)
		assert.True(t, tool.Repeatable)
	}
}

func TestCodeToolDescription(t *testing.T) {
	r := &fake.Runner{Env: fnloop.Environment{
		Python: "3.12.4", Packages: []string{"numpy 2.1.0"}, Writable: "/tmp (64 MiB)", Languages: someLanguages, Limits: fnloop.Limits{Time: 10 * time.Second, Memory: 512 << 20},
	}}
	text := fnloop.CodeTool(r, fnloop.Limits{Time: 3 * time.Second}).Description
	for _, part := range []string{
		"Runs a program in a fresh sandbox", "written in python (3.12.4), bash, java (openjdk 21).", "Of Java, the first class in the file has main.",
		"Python has these packages: numpy 2.1.0", "no network", "/tmp (64 MiB)", "for 3s", "Compiling is part of its time.", "512 MiB", "exit_code is null",
	} {
		assert.Contains(t, text, part)
	}
	assert.NotContains(t, text, "Go is", "what is not there is not explained")
	text = fnloop.CodeTool(noRunner{}, fnloop.Limits{}).Description
	for _, part := range []string{"network", "MiB", "/tmp", "standard librar", "Compiling"} {
		assert.NotContains(t, text, part, "what is not known is not said")
	}
}

func TestCodeToolCalls(t *testing.T) {
	r := &fake.Runner{Env: fnloop.Environment{Languages: someLanguages}, Results: []fnloop.Result{fake.Exit(0, "hi\n")}}
	tool := fnloop.CodeTool(r, fnloop.Limits{Time: time.Second})
	for _, test := range []struct {
		why, arguments, want string
		started              bool
	}{
		{"the language and the text reach the runner", `{"language":"bash","code":"echo hi"}`, `{"exit_code":0,"timed_out":false,"stdout":"hi\n","stderr":""}`, true},
		{"what is not there names what is", `{"language":"ruby","code":"puts 1"}`,
			`the program was not run: language: "ruby" is not there; this runner has python, bash, java`, false},
		{"no language has a source with NUL", `{"language":"java","code":"class A {}\u0000"}`, "the program was not run: source: NUL byte at offset 10", false},
	} {
		before := len(r.Calls())
		out, err := tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(test.arguments)})
		assert.Equal(t, test.want, out.Text, test.why)
		assert.Equal(t, test.started, err == nil, test.why)
		if last := r.Calls(); test.started {
			assert.Equal(t, fnloop.LanguageBash, last[before].Language, test.why)
			assert.Equal(t, time.Second, last[before].Limits.Time, test.why)
		}
	}
	for _, arguments := range []string{`{"code":"x"}`, `{"language":"bash"}`, `{"language":null,"code":"x"}`, `{"language":"bash","code":"\ud800"}`} {
		out, err := tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(arguments)})
		if err == nil {
			t.Errorf("Handle(%s) = %s", arguments, out.Text)
		}
	}
}

// A runner that has to look is asked when the tool is first used, and what the
// user wrote over the tool's words stays.
func TestCodeToolAsksLate(t *testing.T) {
	r := &polyglot{Runner: &fake.Runner{Env: fnloop.Environment{Languages: someLanguages}}, fail: errNoEngine}
	loop, srv := play(t, rt.Call("call_1", "run_code", `{"language":"java","code":"class A {}"}`), rt.Text("done"), rt.Text("again"))
	tool := fnloop.CodeTool(r, fnloop.Limits{})
	require.Equal(t, []string{"python"}, languageEnum(t, tool.Parameters))
	tool.Description += " Prefer Java."
	loop.Tools = []fnloop.Tool{tool}
	require.ErrorIs(t, loop.Check(t.Context()), errNoEngine)

	r.fail = nil
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	require.Equal(t, fnloop.LanguageJava, r.Calls()[0].Language)
	sent := posts(t, srv)[0]["tools"].([]any)[0].(map[string]any)
	schema, _ := json.Marshal(sent["parameters"])
	assert.Equal(t, []string{"python", "bash", "java"}, languageEnum(t, schema))
	assert.Equal(t, true, sent["strict"])
	assert.Regexp(t, "openjdk 21.*cut in the middle. Prefer Java.$", sent["description"])

	own := json.RawMessage(`{"type":"object","properties":{"language":{"type":"string","enum":["java"]},"code":{"type":"string"}},"required":["language","code"],"additionalProperties":false}`)
	loop.Tools[0].Parameters = own
	_, err = loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	all := posts(t, srv)
	schema, _ = json.Marshal(all[len(all)-1]["tools"].([]any)[0].(map[string]any)["parameters"])
	assert.JSONEq(t, string(own), string(schema))
}
