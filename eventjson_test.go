package fnloop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// golden compares data with a file of testdata.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *updateGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, data, 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(data), "run the test with -update if the change is meant")
}

// one is an event of each type, with all its fields set.
func one() []fnloop.Event {
	call := fnloop.Call{Turn: 1, ID: "call_1", Name: "lookup", Namespace: "crm", Arguments: json.RawMessage(`{"q":"a < b"}`)}
	hosted := fnloop.HostedCall{ID: "ws_1", Kind: "web_search_call", Status: "in_progress"}
	searched := hosted
	searched.Status, searched.Item = "completed", json.RawMessage(`{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"oslo"}}`)
	usage := fnloop.Usage{InputTokens: 10, CachedTokens: 4, CacheWriteTokens: 2, OutputTokens: 5, ReasoningTokens: 1, TotalTokens: 15}
	return []fnloop.Event{
		fnloop.RequestStarted{Request: 1},
		fnloop.Retry{Request: 1, Attempt: 2, Wait: 1500 * time.Millisecond, StatusCode: 429, Code: "rate_limit_exceeded", Err: errors.New("for the host")},
		fnloop.ReasoningDelta{Text: "I should look.", Item: 0, Part: 1, Raw: true},
		fnloop.TextDelta{Text: "It is cold.", Phase: "final_answer", Item: 2, Refusal: true},
		fnloop.CallAnnounced{ID: "call_1", Name: "lookup", Namespace: "crm", Custom: true},
		fnloop.CallDelta{ID: "call_1", Text: `{"q":"a <`, Property: "q", Value: "a <"},
		fnloop.HostedStarted{HostedCall: hosted},
		fnloop.HostedProgress{ID: "ws_1", Kind: "web_search_call", Status: "searching", Text: "x", Image: "aGVsbG8="},
		fnloop.HostedFinished{HostedCall: searched},
		fnloop.FileAdded{File: fnloop.File{Call: "ig_1", Name: "a.png", MediaType: "image/png", Data: []byte("hello"), URL: "https://x.example/a", FileID: "file_1", ContainerID: "cntr_1"}},
		fnloop.CitationAdded{Citation: fnloop.Citation{Kind: "url", URL: "https://x.example", Title: "X", FileID: "file_1", FileName: "a.pdf", ContainerID: "cntr_1", Start: 0, End: 2, Text: "It"}, Item: 2},
		fnloop.ResponseFinished{Request: 1, Usage: usage, ID: "resp_1", Model: "m-1", ServiceTier: "default"},
		fnloop.ApprovalRequested{Call: call},
		fnloop.CallStarted{Call: call},
		fnloop.CallOutput{ID: "call_1", Stream: "stdout", Text: "one\n"},
		fnloop.CallEvent{ID: "call_1", Event: fnloop.TextDelta{Text: "inner"}},
		fnloop.CallFinished{CallResult: fnloop.CallResult{Call: call, Output: fnloop.Output{Text: "found", IsError: true}, Duration: 2 * time.Millisecond}},
		fnloop.Done{Answer: &fnloop.Answer{Text: "It is cold.", Stop: fnloop.StopAnswered, ID: "resp_1", Usage: usage, Pending: []fnloop.Call{}, Calls: []fnloop.CallResult{}}, Value: 7},
	}
}

// The JSON of an event is public: browsers and stores read it.
func TestEventJSON(t *testing.T) {
	var all bytes.Buffer
	enc := json.NewEncoder(&all)
	enc.SetEscapeHTML(false)
	for _, e := range one() {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		var head struct{ Type string }
		require.NoError(t, json.Unmarshal(data, &head))
		assert.Equal(t, e.Type(), head.Type)
		assert.Equal(t, 1, strings.Count(string(data), `"type":"`+e.Type()+`"`))
		require.NoError(t, enc.Encode(e))
	}
	golden(t, "events.jsonl", all.Bytes())
}

// docs/events.md lists every type of event with all members of its JSON.
func TestEventsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/events.md")
	require.NoError(t, err)
	for _, e := range one() {
		row := regexp.MustCompile("(?m)^\\| `" + e.Type() + "` \\| `" + strings.TrimPrefix(typeName(e), "fnloop.") + "` \\|.*$").FindString(string(page))
		if !assert.NotEmpty(t, row, "%s has no row", e.Type()) {
			continue
		}
		data, err := json.Marshal(e)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(data, &members))
		for name := range members {
			if name != "type" {
				assert.Contains(t, row, "`"+name+"`", e.Type())
			}
		}
	}
}
