package responsestest_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

// recordings is where recorded exchanges with the service are looked for. They are not part of the module.
const recordings = "../../shared/recordings"

type recording struct {
	Fidelity  string
	Exchanges []struct {
		Request struct {
			Method, Path string
			Body         json.RawMessage
		}
		Response struct {
			Status   int
			Body     json.RawMessage
			BodyText string `json:"body_text"`
		}
	}
}

func readRecordings(t *testing.T) map[string]recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no recordings of the service in %s: not checked against them", recordings)
	}
	all := make(map[string]recording, len(files))
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var r recording
		require.NoError(t, json.Unmarshal(b, &r), name)
		all[filepath.Base(name)] = r
	}
	return all
}

// What the service accepted, the server has to accept.
func TestRecordedRequests(t *testing.T) {
	checked := 0
	for name, r := range readRecordings(t) {
		for i, e := range r.Exchanges {
			if r.Fidelity != "raw" && r.Fidelity != "normalised" || e.Request.Method != "POST" || e.Request.Path != "/v1/responses" ||
				e.Response.Status != 200 {
				continue
			}
			if refusal := responsestest.CheckShape(e.Request.Body); refusal != nil {
				t.Errorf("%s, request %d: %s", name, i, refusal)
			}
			checked++
		}
	}
	t.Logf("%d requests", checked)
	require.Greater(t, checked, 50)
}

// What the service refused for its shape, the server refuses with the same words.
func TestRecordedRefusals(t *testing.T) {
	all := readRecordings(t)
	e := all["error-400-invalid-json-schema.json"].Exchanges[0]
	require.JSONEq(t, string(e.Response.Body), string(responsestest.CheckShape(e.Request.Body)))

	srv := serve(t)
	for name, r := range all {
		for i, e := range r.Exchanges {
			if e.Response.Status < 400 {
				continue
			}
			var body struct{ Error map[string]any }
			require.NoError(t, json.Unmarshal(e.Response.Body, &body))
			_, ours := refused(t, srv, `{}`)
			require.Equal(t, keys(ours), keys(body.Error), "%s, exchange %d", name, i)
		}
	}
	lost := all["error-400-previous-response-not-found.json"].Exchanges[0]
	_, ours := do(t, srv, "POST", "/responses", string(lost.Request.Body))
	require.JSONEq(t, string(lost.Response.Body), compactJSON(t, ours))
	gone := all["error-404-response-not-stored.json"].Exchanges[1]
	status, ours := do(t, srv, "GET", strings.TrimPrefix(gone.Request.Path, "/v1"), "")
	require.Equal(t, gone.Response.Status, status)
	require.JSONEq(t, string(gone.Response.Body), compactJSON(t, ours))
}

// A response has every member that every recorded response has, of the same JSON type.
func TestRecordedResponses(t *testing.T) {
	var common map[string]bool
	for _, r := range readRecordings(t) {
		for _, e := range r.Exchanges {
			var d document
			if json.Unmarshal(e.Response.Body, &d) != nil || d["object"] != "response" {
				continue
			}
			if common == nil {
				common = make(map[string]bool)
				for k := range d {
					common[k] = true
				}
			}
			for k := range common {
				if _, ok := d[k]; !ok {
					delete(common, k)
				}
			}
		}
	}
	srv := serve(t, responsestest.Text("hello"))
	d := create(t, srv, `{"model":"m","input":"hi"}`)
	require.Subset(t, keys(d), slices.Sorted(maps.Keys(common)))
}

// The events of a response come in the recorded order, with the recorded members.
func TestRecordedStreams(t *testing.T) {
	seen := make(map[string]map[string]bool) // the members that every recorded event of a type has
	next := make(map[string]map[string]bool) // the types that follow a type
	for name, r := range readRecordings(t) {
		if strings.HasPrefix(name, "compat-") || strings.HasPrefix(name, "azure-") || strings.Contains(name, "early-2025") {
			continue
		}
		for _, e := range r.Exchanges {
			last := ""
			for line := range strings.Lines(e.Response.BodyText) {
				data, ok := strings.CutPrefix(line, "data: ")
				if !ok {
					continue
				}
				var d document
				require.NoError(t, json.Unmarshal([]byte(data), &d), name)
				typ, _ := d["type"].(string)
				if seen[typ] == nil {
					seen[typ], next[typ] = make(map[string]bool), make(map[string]bool)
					for k := range d {
						seen[typ][k] = true
					}
				}
				for k := range seen[typ] {
					if _, ok := d[k]; !ok {
						delete(seen[typ], k)
					}
				}
				if last != "" {
					next[last][typ] = true
				}
				last = typ
			}
		}
	}
	srv := serve(t,
		responsestest.Join(responsestest.Reasoning(""), responsestest.Text("One moment."), responsestest.Call("call_1", "f", `{"a":1}`)).Force(),
		responsestest.Join(responsestest.CustomCall("call_2", "c", "text")).Force(),
		responsestest.Refusal("I will not."),
		responsestest.Incomplete("max_output_tokens", responsestest.Text("One mo")),
	)
	for range 4 {
		last := ""
		for _, e := range events(t, srv, `{"model":"m","input":"hi","stream":true}`) {
			typ, _ := e["type"].(string)
			require.Contains(t, seen, typ, "an event that was never recorded")
			require.Subset(t, keys(e), slices.Sorted(maps.Keys(seen[typ])), typ)
			if last != "" {
				require.Contains(t, next[last], typ, "after %s", last)
			}
			last = typ
		}
	}
}

func keys(d map[string]any) []string { return slices.Sorted(maps.Keys(d)) }
