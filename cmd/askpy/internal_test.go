package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fnloop/fnloop"
)

func TestDifferences(t *testing.T) {
	for _, test := range []struct {
		name           string
		recorded, made string // bodies
		want           []difference
	}{
		{"order and spelling mean nothing", `{"a":1,"b":"x"}`, ` { "b" : "\u0078", "a" : 1.0 } `, nil},
		{"big numbers", `{"a":9007199254740993}`, `{"a":9007199254740992}`, []difference{{"a", "9007199254740993", "9007199254740992"}}},
		{"types", `{"a":1}`, `{"a":"1"}`, []difference{{"a", "1", `"1"`}}},
		{"null is not nothing", `{"a":null}`, `{}`, []difference{{"a", "null", nothing}}},
		{"more", `[1]`, `[1,{"b":true}]`, []difference{{"[1]", nothing, `{"b":true}`}}},
		{"order of lists", `{"a":[1,2]}`, `{"a":[2,1]}`, []difference{{"a[0]", "1", "2"}, {"a[1]", "2", "1"}}},
		{"odd names", `{"a b":{"":1}}`, `{"a b":{"":2}}`, []difference{{`["a b"][""]`, "1", "2"}}},
		{"documents in strings", `{"o":"{\"x\":1}"}`, `{"o":"{\"x\":2}"}`, []difference{{"o.x", "1", "2"}}},
		{"white space in strings counts", `{"o":"{\"x\":1}"}`, `{"o":"{\"x\": 1}"}`, []difference{{"o", `"{\"x\":1}"`, `"{\"x\": 1}"`}}},
		{"descriptions of tools are the runner's", `{"tools":[{"name":"a","description":"x"}]}`, `{"tools":[{"name":"a"}]}`, nil},
		{"other descriptions are not", `{"description":"x"}`, `{"description":"y"}`, []difference{{"description", `"x"`, `"y"`}}},
		{"no JSON", `a`, `b`, []difference{{"the body", `"a"`, `"b"`}}},
		{"trailing data", `{} {}`, `{}`, []difference{{"the body", `"{} {}"`, `"{}"`}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := differences(exchange{"POST", "responses", test.recorded}, exchange{"POST", "responses", test.made})
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("differences = %q, want %q", got, test.want)
			}
		})
	}
	got := differences(exchange{"POST", "responses", "{}"}, exchange{"GET", "models", "{}"})
	if want := []difference{{"the method", "POST", "GET"}, {"the path", "responses", "models"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("differences = %q, want %q", got, want)
	}
}

// Of long texts the part is shown in which they differ.
func TestClip(t *testing.T) {
	a := strings.Repeat("é", 500) + "A" + strings.Repeat("é", 500)
	b := strings.Replace(a, "A", "B", 1)
	got := compare(nil, "x", a, b)
	if len(got) != 1 || !strings.Contains(got[0].recorded, "A") || !strings.Contains(got[0].made, "B") || len(got[0].made) > 200 {
		t.Errorf("compare = %q", got)
	}
	if !strings.HasPrefix(got[0].made, `..."é`) || !strings.HasSuffix(got[0].made, `é"...`) {
		t.Errorf("the clipped text is %s", got[0].made)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext é 日本 👩‍🚀":      "plain\n\ttext é 日本 👩‍🚀",
		"\x1b[31mred\x07":             `\x1b[31mred\a`,
		"over\rwrite\b\x7f":           `over\rwrite\b\x7f`,
		"\u009b31m":                   `\u009b31m`,
		"if admin\u202e {\u2066":      `if admin\u202e {\u2066`,
		"bad \xff\x9b bytes":          "bad \uFFFD bytes",
		"bad \xff\x9b bytes, \x1b[2J": "bad \uFFFD\uFFFD bytes, \\x1b[2J",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestScrubber(t *testing.T) {
	s := newScrubber([]string{"test", "k1", "", "sk-123", `a"b<c/d&1234`})
	for in, want := range map[string]string{
		"the latest test of k1":                         "the latest test of k1", // words are no secrets
		"is sk-123 it?":                                 "is SCRUBBED it?",
		`{"x":"a\"b<c/d&1234"}`:                         `{"x":"SCRUBBED"}`,
		`{"x":"a\"b\u003cc/d\u00261234"}`:               `{"x":"SCRUBBED"}`,
		`{"x":"{\"y\":\"a\\\"b<c/d&1234\"}"}`:           `{"x":"{\"y\":\"SCRUBBED\"}"}`,
		"/?key=a%22b%3Cc%2Fd%261234":                    "/?key=SCRUBBED",
		"task-0123456789abcdef0123 org-anisation":       "task-0123456789abcdef0123 org-anisation",
		"sk-proj-0123456789abcdef of proj_0123456789ab": "SCRUBBED of proj_0123456789ab",
	} {
		if got := s.clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// A secret that comes in pieces is one all the same.
func TestCleanStream(t *testing.T) {
	s := newScrubber([]string{"sk-very-secret"})
	const stream = `event: response.output_text.delta
data: {"type":"response.output_text.delta","output_index":0,"delta":"It is sk-ve"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"plain "}

data: {"type":"response.output_text.delta","output_index":0,"delta":"ry-sec"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"text"}

data: {"type":"response.output_text.delta","output_index":0,"delta":"ret."}

data: {"type":"response.completed","text":"It is sk-very-secret."}

`
	const want = `event: response.output_text.delta
data: {"delta":"It is SCRUBBED.","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"plain "}

data: {"delta":"","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.output_text.delta","output_index":1,"delta":"text"}

data: {"delta":"","output_index":0,"type":"response.output_text.delta"}

data: {"type":"response.completed","text":"It is SCRUBBED."}

`
	if got := s.cleanStream(stream); got != want {
		t.Errorf("cleanStream = %s", got)
	}
	if !streamEnded([]byte(stream)) || streamEnded([]byte(stream[:len(stream)-80])) {
		t.Error("streamEnded does not tell where the stream ends")
	}
}

// Lines of programs that run side by side tell whose they are; what was shown
// while they ran is not shown again, and floods are cut.
func TestPrintouts(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, &out, options{verbose: true}, environment{})
	result := func(id, stdout string) fnloop.CallFinished {
		text := fmt.Sprintf(`{"exit_code":0,"timed_out":false,"stdout":%q,"stderr":""}`, stdout)
		return fnloop.CallFinished{CallResult: fnloop.CallResult{Call: fnloop.Call{ID: id, Name: "run_python"}, Output: fnloop.Output{Text: text}}}
	}
	for _, e := range []fnloop.Event{
		fnloop.CallStarted{Call: fnloop.Call{ID: "a", Name: "run_python"}},
		fnloop.CallOutput{ID: "a", Stream: "stdout", Text: "one\ntw"},
		fnloop.CallStarted{Call: fnloop.Call{ID: "b", Name: "run_python"}},
		fnloop.CallOutput{ID: "b", Stream: "stderr", Text: "three\n"},
		fnloop.CallOutput{ID: "a", Stream: "stdout", Text: "o"},
		result("a", "one\ntwo\nfour"),
		result("b", "unseen\n"),
		fnloop.CallStarted{Call: fnloop.Call{ID: "c", Name: "run_python"}},
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: strings.Repeat("x", maxPrintout)},
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: "yy"},
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: "zz"},
		result("c", "x...z"),
	} {
		p.event(e)
	}
	p.stop()
	const want = `run_python #1: running
    stdout| one
run_python #2: running
    #2 stderr| three
    #1 stdout| two
    #1 stdout| four
run_python #1: exit 0 after 0s
    stdout| unseen
run_python #2: exit 0 after 0s
run_python #3: running
    stdout| ...
    stdout| [more is not shown]
run_python #3: exit 0 after 0s
`
	got := strings.ReplaceAll(out.String(), strings.Repeat("x", maxPrintout), "...")
	if got = strings.ReplaceAll(got, "    | \n", ""); got != want {
		t.Errorf("progress = %s", got)
	}
}

// What a runner could not do is told in any mode, since the model does not
// learn it.
func TestRunnerFails(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, &out, options{quiet: true}, environment{})
	for _, err := range []error{errors.New("the disk is full"), &fnloop.ArgumentsError{Reason: "no code"}, nil} {
		call := fnloop.Call{ID: "call_1", Name: "run_python"}
		p.event(fnloop.CallStarted{Call: call})
		p.event(fnloop.CallFinished{CallResult: fnloop.CallResult{Call: call, Output: fnloop.Output{IsError: err != nil}, Err: err}})
	}
	call := fnloop.Call{ID: "call_2", Name: "run_pyhton"}
	p.event(fnloop.CallStarted{Call: call})
	p.event(fnloop.CallFinished{CallResult: fnloop.CallResult{Call: call, Err: errors.New("unknown tool")}})
	p.stop()
	if got, want := out.String(), "askpy: run_python #1: the disk is full\n"; got != want {
		t.Errorf("progress = %q, want %q", got, want)
	}
}

// A run and the one that continues it are one to who asked.
func TestJoined(t *testing.T) {
	call := func(turn int, id string) fnloop.Call { return fnloop.Call{Turn: turn, ID: id} }
	result := func(turn int, id string) fnloop.CallResult { return fnloop.CallResult{Call: call(turn, id)} }
	earlier := &fnloop.Answer{
		Stop: fnloop.StopApproval, Turns: 2, Responses: 2, Usage: fnloop.Usage{TotalTokens: 10},
		Calls:   []fnloop.CallResult{result(1, "a"), result(2, "b")},
		Pending: []fnloop.Call{call(2, "c")},
		Open:    []string{"b", "c"},
	}
	unsent := &fnloop.Answer{ // it ended before it could send the outputs
		Stop: fnloop.StopRequest, Open: []string{"b", "c"},
		Calls: []fnloop.CallResult{result(2, "b"), result(2, "c")},
	}
	sent := &fnloop.Answer{
		Stop: fnloop.StopApproval, Turns: 2, Responses: 2, Usage: fnloop.Usage{TotalTokens: 5},
		Calls:   []fnloop.CallResult{result(2, "c"), result(1, "c"), result(2, "d")}, // an ID can come again
		Pending: []fnloop.Call{call(2, "e")},
		Open:    []string{"d", "e"},
	}
	for _, test := range []struct {
		name  string
		later *fnloop.Answer
		want  *fnloop.Answer
	}{
		{"unsent", unsent, &fnloop.Answer{
			Stop: fnloop.StopRequest, Turns: 2, Responses: 2, Usage: fnloop.Usage{TotalTokens: 10}, Open: unsent.Open,
			Calls: []fnloop.CallResult{result(1, "a"), result(2, "b"), result(2, "c")},
		}},
		{"sent", sent, &fnloop.Answer{
			Stop: fnloop.StopApproval, Turns: 4, Responses: 4, Usage: fnloop.Usage{TotalTokens: 15}, Open: sent.Open,
			Calls:   []fnloop.CallResult{result(1, "a"), result(2, "b"), result(2, "c"), result(3, "c"), result(4, "d")},
			Pending: []fnloop.Call{call(4, "e")},
		}},
	} {
		if got := joined(earlier, test.later); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: joined = %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestReadEnvironment(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"OPENAI_API_KEY", "sk-secret\n", "OPENAI_API_KEY has a line break in it; set it again without"},
		{"OPENAI_API_KEY", "sk\tsecret", "OPENAI_API_KEY has a blank in it; set it again without"},
		{"OPENAI_API_KEY", "sk\u00a0secret", "OPENAI_API_KEY has a blank in it; set it again without"},
		{"OPENAI_API_KEY", "sk-sécret", "OPENAI_API_KEY has a character that is not ASCII in it; set it again without"},
		{"OPENAI_API_KEY", "sk-\x00secret", "OPENAI_API_KEY has a control character in it; set it again without"},
		{"OPENAI_ORG_ID", "org secret", "OPENAI_ORG_ID has a blank in it; set it again without"},
		{"OPENAI_PROJECT_ID", "proj\rsecret", "OPENAI_PROJECT_ID has a line break in it; set it again without"},
		{"OPENAI_BASE_URL", "http://a:secret", "OPENAI_BASE_URL is not a URL; it should look like https://api.openai.com/v1"},
		{"OPENAI_BASE_URL", "secret:8080/v1", "OPENAI_BASE_URL has no scheme http:// or https://; it should look like https://api.openai.com/v1"},
		{"OPENAI_BASE_URL", "ftp://secret/v1", "OPENAI_BASE_URL has no scheme http:// or https://; it should look like https://api.openai.com/v1"},
		{"OPENAI_BASE_URL", "https:secret", "OPENAI_BASE_URL has no host; it should look like https://api.openai.com/v1"},
		{"OPENAI_BASE_URL", "https://host/v1?key=secret", "OPENAI_BASE_URL has a query or a fragment; it should look like https://api.openai.com/v1"},
	} {
		_, err := readEnvironment(func(name string) string {
			if name == test.name {
				return test.value
			}
			return ""
		})
		if _, ok := errors.AsType[*usageError](err); !ok || err.Error() != test.want {
			t.Errorf("%s=%q: %v, want %s", test.name, test.value, err, test.want)
		}
	}
}
