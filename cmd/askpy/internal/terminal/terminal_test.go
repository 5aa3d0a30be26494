package terminal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

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
		if got := terminal.Printable(in); got != want {
			t.Errorf("terminal.Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// Lines of programs that run side by side tell whose they are; what was shown
// while they ran is not shown again, and floods are cut.
func TestPrintouts(t *testing.T) {
	const maxShown = 64 << 10 // of a stream, in bytes
	var out strings.Builder
	p := terminal.NewProgress(&out, &out, terminal.Options{Verbose: true})
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
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: strings.Repeat("x", maxShown)},
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: "yy"},
		fnloop.CallOutput{ID: "c", Stream: "stdout", Text: "zz"},
		result("c", "x...z"),
	} {
		p.Event(e)
	}
	p.Stop()
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
	got := strings.ReplaceAll(out.String(), strings.Repeat("x", maxShown), "...")
	if got = strings.ReplaceAll(got, "    | \n", ""); got != want {
		t.Errorf("progress = %s", got)
	}
}

// What a runner could not do is told in any mode, since the model does not
// learn it.
func TestRunnerFails(t *testing.T) {
	var out strings.Builder
	p := terminal.NewProgress(&out, &out, terminal.Options{Quiet: true})
	for _, err := range []error{errors.New("the disk is full"), &fnloop.ArgumentsError{Reason: "no code"}, nil} {
		call := fnloop.Call{ID: "call_1", Name: "run_python"}
		p.Event(fnloop.CallStarted{Call: call})
		p.Event(fnloop.CallFinished{CallResult: fnloop.CallResult{Call: call, Output: fnloop.Output{IsError: err != nil}, Err: err}})
	}
	call := fnloop.Call{ID: "call_2", Name: "run_pyhton"}
	p.Event(fnloop.CallStarted{Call: call})
	p.Event(fnloop.CallFinished{CallResult: fnloop.CallResult{Call: call, Err: errors.New("unknown tool")}})
	p.Stop()
	if got, want := out.String(), "askpy: run_python #1: the disk is full\n"; got != want {
		t.Errorf("progress = %q, want %q", got, want)
	}
}

// Where a request is sent again, it is told why and when.
func TestRetry(t *testing.T) {
	for _, test := range []struct {
		name  string
		event fnloop.Retry
		want  string
	}{
		{"status", fnloop.Retry{StatusCode: 503, Wait: 1500 * time.Millisecond}, "the API answered 503 Service Unavailable; it is sent again in 1.5s\n"},
		{"odd status", fnloop.Retry{StatusCode: 599, Wait: 20 * time.Second}, "the API answered 599; it is sent again in 20s\n"},
		{"within a response", fnloop.Retry{Code: "server_is_overloaded"}, "the API answered server_is_overloaded; it is sent again at once\n"},
		{"network", fnloop.Retry{Err: errors.New("fnloop: dial: refused"), Wait: 523456 * time.Microsecond}, "the request failed: dial: refused; it is sent again in 523ms\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			p := terminal.NewProgress(&out, &out, terminal.Options{})
			p.Event(test.event)
			p.Stop()
			if got := out.String(); got != test.want {
				t.Errorf("progress = %q, want %q", got, test.want)
			}
		})
	}
}
