package runtimecloud

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fnloop/fnloop/interpreter"
)

// answers is a transport that answers a cell with a text, and asks for anything
// else with another.
type answers struct {
	t    *testing.T
	text io.Reader
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.Reader(strings.NewReader("value"))
	switch {
	case strings.HasSuffix(r.URL.Path, "/interpreter:run"):
		body = a.text
	case !strings.HasPrefix(r.URL.Path, "/v1/sandboxes/sb/interpreter/contexts/ctx/results/"), strings.Contains(r.URL.Path, ".."):
		a.t.Errorf("it asks for %s", r.URL.Path)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
}

// shown is what a cell shows.
type shown struct {
	out, err strings.Builder
	displays []interpreter.Display
}

func (s *shown) Stdout(p []byte)               { s.out.Write(p) }
func (s *shown) Stderr(p []byte)               { s.err.Write(p) }
func (s *shown) Background([]byte)             {}
func (s *shown) Display(d interpreter.Display) { s.displays = append(s.displays, d) }

// follow has a new cell read streams, one after the other, and gives what it shows.
func followAll(t *testing.T, texts ...io.Reader) (*cellRun, *shown, error) {
	t.Helper()
	show := new(shown)
	c := &cellRun{
		s: &session{sandbox: "sb", context: "ctx"}, events: show, done: make(chan struct{}), begun: make(chan struct{}),
		stop: make(chan struct{}), taken: make(map[string]int),
	}
	var err error
	for _, text := range texts {
		client, fault := newClient("http://localhost", "key", answers{t, text}, newLimiter(1e9, 1e9), slog.New(slog.DiscardHandler))
		if fault != nil {
			t.Fatal(fault)
		}
		c.s.client = client
		call := &request{op: "cell", sandbox: "sb", method: http.MethodPost, path: "/v1/sandboxes/sb/interpreter:run", answer: answerTimeout}
		if _, err = c.follow(context.Background(), call); err == nil {
			break
		}
	}
	return c, show, err
}

const cellStream = `{"k":"start","n":1,"status":"busy","error":"none"}
{"k":"stdout","text":"ab"}
{"k":"result","main":false,"data":{"text/plain":"v","image/png":"AQI=","application/json":{"a":[1]}},"refs":{}}
{"k":"stderr","text":"é"}
{"k":"stdout","text":"cd"}
{"k":"result","main":true,"data":{},"refs":{"text/html":{"path":"/workspace/.runtime/interpreter/ctx/out/1-2","bytes":5,"sha256":""}}}
{"k":"end"}
{"k":"execution","execution":{"status":"ok","stdout":"abcd","stderr":"é","results":[{"main":false,"data":{"text/plain":"v"}},{"main":true,"refs":{}}],"durationMs":3}}
`

// Wherever a stream breaks, and whether or not the next has all events once more,
// everything comes once.
func TestCellResumes(t *testing.T) {
	lines := strings.SplitAfter(cellStream, "\n")
	end := lines[7]
	for cut := 0; cut < len(cellStream); cut += 7 {
		for name, second := range map[string]string{"all once more": cellStream, "the end alone": end, "without a start": strings.Join(lines[1:], "")} {
			_, got, err := followAll(t, strings.NewReader(cellStream[:cut]), strings.NewReader(second))
			if err != nil || got.out.String() != "abcd" || got.err.String() != "é" || len(got.displays) == 0 {
				t.Fatalf("cut at %d, %s: %q, %q, %v, %v", cut, name, got.out.String(), got.err.String(), got.displays, err)
			}
			if d := got.displays[0]; d.Main || string(d.Data["text/plain"]) != "v" {
				t.Fatalf("cut at %d, %s: %v", cut, name, d)
			}
			if name != "the end alone" && (len(got.displays) != 2 || string(got.displays[1].Data["text/html"]) != "value" || string(got.displays[0].Data["application/json"]) != `{"a":[1]}`) {
				t.Fatalf("cut at %d, %s: %v", cut, name, got.displays)
			}
		}
	}
}

// What a reference names is fetched only if it is a result of this interpreter.
func TestCellReferences(t *testing.T) {
	for path, want := range map[string]bool{
		"/workspace/.runtime/interpreter/ctx/out/1-2":    true,
		"/workspace/.runtime/interpreter/ctx/out/a b%2f": true,
		"/workspace/.runtime/interpreter/ctx/out/":       false,
		"/workspace/.runtime/interpreter/ctx/out/..":     false,
		"/workspace/.runtime/interpreter/ctx/out/../x":   false,
		"/workspace/.runtime/interpreter/ctx/out/a/b":    false,
		"/workspace/.runtime/interpreter/other/out/1":    false,
		"/etc/passwd": false, "": false,
	} {
		for n, size := range map[int]bool{5: true, 4: false, 6: false, -1: false, maxRefs + 1: false} {
			result, _ := json.Marshal(map[string]any{"k": "result", "refs": map[string]any{"text/html": map[string]any{"path": path, "bytes": n}}})
			c, got, _ := followAll(t, strings.NewReader(string(result)+"\n"))
			if there := len(got.displays) == 1; there != (want && size) || c.omitted == 1 == there {
				t.Errorf("%q of %d bytes: fetched %v", path, n, there)
			}
		}
	}
	for sum, want := range map[string]bool{
		"cd42404d52ad55ccfa9aca4adc828aa5800ad9d385a0671fbcbf724118320619": true, "00": false,
	} {
		_, got, _ := followAll(t, strings.NewReader(`{"k":"result","refs":{"text/html":{"path":"/workspace/.runtime/interpreter/ctx/out/1","bytes":5,"sha256":"`+sum+`"}}}`+"\n"))
		if there := len(got.displays) == 1; there != want {
			t.Errorf("the checksum %s: fetched %v", sum, there)
		}
	}
}

// Whatever comes, reading ends, shows no more than there was, and the same bytes
// in other pieces show the same.
func FuzzCellStream(f *testing.F) {
	for _, s := range []string{
		cellStream, `{"k":"failure","code":"busy","message":"m","status":503}`, `{"error":{"code":"host_unavailable"}}`,
		`{"k":"execution"}`, `{"k":"execution","execution":{"status":"lost","stdout":"x","error":{"name":"E","value":"v","traceback":["a","b"]}}}`,
		`{"k":"result","data":{"image/png":"!!","text/plain":1,"a/b":null},"refs":{"x":{}}}`, "\x00\n[]\nnull\n",
		`{"k":"error","name":"E","value":"v","traceback":"t"}` + "\n" + `{"k":"error","error":{"code":1}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		one, whole, err := followAll(t, strings.NewReader(s))
		two, pieces, again := followAll(t, iotest.OneByteReader(strings.NewReader(s)))
		if whole.out.String() != pieces.out.String() || len(whole.displays) != len(pieces.displays) || (err == nil) != (again == nil) {
			t.Errorf("%q: %v, %v and %v, %v", s, whole, err, pieces, again)
		}
		if n := whole.out.Len() + whole.err.Len(); n > 3*len(s) || one.results > len(s) || two.omitted > len(s) {
			t.Errorf("%q: %d bytes, %d results", s, n, one.results)
		}
		if err == nil && one.answer == nil {
			t.Errorf("%q: an end without an answer", s)
		}
	})
}
