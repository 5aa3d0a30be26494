package fnloop_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

func TestTranscript(t *testing.T) {
	text := func(item int, s string) fnloop.TextDelta { return fnloop.TextDelta{Text: s, Item: item} }
	code := func(id, s string) fnloop.CallDelta {
		return fnloop.CallDelta{ID: id, Text: s, Property: "code", Value: s}
	}
	out := func(id, stream, s string) fnloop.CallOutput {
		return fnloop.CallOutput{ID: id, Stream: stream, Text: s}
	}
	call := fnloop.Call{ID: "call_1", Name: "python", Arguments: json.RawMessage(`{"code":"1"}`)}
	for _, tt := range []struct {
		name   string
		view   fnloop.View
		events []fnloop.Event
		want   string
	}{
		{"empty", fnloop.View{}, nil, `[]`},
		{"pieces of one text", fnloop.View{}, []fnloop.Event{text(0, "a"), text(0, "b"), text(1, "c")},
			`[{"type":"text_delta","text":"ab","item":0},{"type":"text_delta","text":"c","item":1}]`},
		{"what is not seen does not part a text", fnloop.View{}, []fnloop.Event{text(0, "a"), fnloop.ReasoningDelta{Text: "hm"}, fnloop.RequestStarted{Request: 2}, text(0, "b")},
			`[{"type":"text_delta","text":"ab","item":0}]`},
		{"reasoning by paragraph", fnloop.View{Reasoning: true}, []fnloop.Event{fnloop.ReasoningDelta{Text: "a"}, fnloop.ReasoningDelta{Text: "b"}, fnloop.ReasoningDelta{Text: "c", Part: 1}},
			`[{"type":"reasoning_delta","text":"ab","item":0,"part":0},{"type":"reasoning_delta","text":"c","item":0,"part":1}]`},
		{"arguments that are being written", fnloop.View{}, []fnloop.Event{code("call_1", "x"), code("call_1", "y"), code("call_2", "z")},
			`[{"type":"call_delta","id":"call_1","text":"xy","property":"code","value":"xy"},{"type":"call_delta","id":"call_2","text":"z","property":"code","value":"z"}]`},
		{"arguments that are complete", fnloop.View{}, []fnloop.Event{code("call_1", "1"), code("call_2", "2"), fnloop.CallStarted{Call: call}},
			`[{"type":"call_delta","id":"call_2","text":"2","property":"code","value":"2"},{"type":"call_started","turn":0,"id":"call_1","name":"python","arguments":{"code":"1"}}]`},
		{"output by stream and call", fnloop.View{Outputs: true}, []fnloop.Event{out("call_1", "stdout", "1"), out("call_1", "stdout", "2"), out("call_1", "stderr", "3"), out("call_2", "stderr", "4")},
			`[{"type":"call_output","id":"call_1","stream":"stdout","text":"12"},{"type":"call_output","id":"call_1","stream":"stderr","text":"3"},{"type":"call_output","id":"call_2","stream":"stderr","text":"4"}]`},
		{"output that is not seen", fnloop.View{}, []fnloop.Event{out("call_1", "stdout", "1")}, `[]`},
		{"an event of a handler's own", fnloop.View{}, []fnloop.Event{custom{7}}, `[{"type":"custom","percent":7}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transcript := fnloop.Transcript{View: tt.view}
			for _, e := range tt.events {
				transcript.Add(e)
			}
			got, err := json.Marshal(&transcript)
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
}

// The calls are told by events of their own, and what is stored has no items.
func TestTranscript_done(t *testing.T) {
	answer := &fnloop.Answer{
		Text: "Done.", Stop: fnloop.StopAnswered, Items: []json.RawMessage{json.RawMessage(`{"secret":1}`)},
		Calls: []fnloop.CallResult{{Call: fnloop.Call{ID: "call_1", Name: "f"}}},
	}
	var transcript fnloop.Transcript
	transcript.Add(fnloop.Done{Answer: answer})
	got, err := json.Marshal(&transcript)
	require.NoError(t, err)
	assert.Contains(t, string(got), `"text":"Done."`)
	assert.NotContains(t, string(got), "call_1")
	assert.NotContains(t, string(got), "secret")
	assert.Len(t, answer.Calls, 1, "the Answer itself is left alone")
}

type custom struct {
	Percent int `json:"percent"`
}

func (custom) Type() string { return "custom" }

// The events of a run that another process goes on with stay as they were stored,
// also where the database has ordered their members anew.
func TestTranscript_goesOn(t *testing.T) {
	stored := `[{"text":"a","item":0,"type":"text_delta"},{"kind":{"deep":[1]},"type":"of a handler"}]`
	transcript := fnloop.Transcript{View: fnloop.View{Reasoning: true}}
	transcript.Add(fnloop.TextDelta{Text: "what was here before"})
	require.NoError(t, json.Unmarshal([]byte(stored), &transcript))
	transcript.Add(fnloop.TextDelta{Text: "b", Item: 0})
	transcript.Add(fnloop.TextDelta{Text: "c", Item: 0})
	got, err := json.Marshal(&transcript)
	require.NoError(t, err)
	assert.JSONEq(t, stored[:len(stored)-1]+`,{"type":"text_delta","text":"bc","item":0}]`, string(got))

	for _, bad := range []string{`{}`, `[1]`, `["x"]`, `[{"type":1}]`} {
		assert.Error(t, json.Unmarshal([]byte(bad), &transcript), bad)
	}
}
