package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/fnloop/fnloop"
)

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
		Stop: fnloop.StopRequest, Turns: 2, Open: []string{"b", "c"},
		Calls: []fnloop.CallResult{result(2, "b"), result(2, "c")},
	}
	sent := &fnloop.Answer{
		Stop: fnloop.StopApproval, Turns: 4, Responses: 2, Usage: fnloop.Usage{TotalTokens: 5},
		Calls:   []fnloop.CallResult{result(2, "c"), result(3, "c"), result(4, "d")}, // an ID can come again
		Pending: []fnloop.Call{call(4, "e")},
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

func TestSplitPackages(t *testing.T) {
	for in, want := range map[string][]string{
		"numpy":                        {"numpy"},
		"numpy,pandas":                 {"numpy", "pandas"},
		"numpy>=1,<2, pandas":          {"numpy>=1,<2", "pandas"},
		"requests[socks,security],six": {"requests[socks,security]", "six"},
		"a,--pre":                      {"a", "--pre"},
		"":                             {""},
	} {
		if got := splitPackages(in); !slices.Equal(got, want) {
			t.Errorf("splitPackages(%q) = %q, want %q", in, got, want)
		}
	}
}
