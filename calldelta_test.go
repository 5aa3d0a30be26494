package fnloop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// written streams a call whose arguments come in pieces, and gives its deltas.
func written(t *testing.T, custom bool, pieces ...string) []fnloop.CallDelta {
	t.Helper()
	kind, member, event := "function_call", "arguments", "response.function_call_arguments.delta"
	if custom {
		kind, member, event = "custom_tool_call", "input", "response.custom_tool_call_input.delta"
	}
	quote := func(s string) string {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		return string(b)
	}
	item := fmt.Sprintf(`{"type":%q,"id":"fc_1","call_id":"call_1","name":"run",%q:%s}`, kind, member, quote(strings.Join(pieces, "")))
	events := []string{created, `{"type":"response.output_item.added","output_index":0,"item":{"type":"` + kind + `","id":"fc_1","call_id":"call_1","name":"run"}}`}
	for _, p := range pieces {
		events = append(events, fmt.Sprintf(`{"type":%q,"output_index":0,"item_id":"fc_1","delta":%s}`, event, quote(p)))
	}
	events = append(events, `{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[`+item+`]}}`)
	loop := sse(t, "text/event-stream", frames(events...), frames(completed))
	seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	var out []fnloop.CallDelta
	for _, e := range seen {
		if d, ok := e.(fnloop.CallDelta); ok {
			assert.Equal(t, "call_1", d.ID)
			out = append(out, d)
		}
	}
	return out
}

// A program can be shown while the model writes it.
func TestCallDeltas(t *testing.T) {
	for _, tt := range []struct {
		why   string
		args  string
		want  map[string]string
		exact bool
	}{
		{"a program", `{"code":"import math\nprint(\"a\\tb\")"}`, map[string]string{"code": "import math\nprint(\"a\\tb\")"}, true},
		{"two texts", `{"a":"one","b" : "two"}`, map[string]string{"a": "one", "b": "two"}, true},
		{"what is no text between", `{"n":[1,{"x":"]}"}],"t":true,"z":null,"s":"x","o":{"s":"inner"},"e":""}`, map[string]string{"s": "x"}, true},
		{"every escape", `{"s":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`, map[string]string{"s": "\"\\/\b\f\n\r\té😀"}, true},
		{"halves of pairs", `{"s":"\ud83dx\ude00\ud83d\ud83d\ude00\ud83d"}`, map[string]string{"s": "\ufffdx\ufffd\ufffd😀\ufffd"}, true},
		{"a key with an escape", `{"c\u006fde":"x"}`, map[string]string{"code": "x"}, true},
		{"letters of many bytes", `{"s":"Hällo 😀"}`, map[string]string{"s": "Hällo 😀"}, true},
		{"no object", `["x"]`, map[string]string{}, true},
		{"cut short", `{"s":"abc`, map[string]string{"s": "abc"}, true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			for size := 1; size <= len(tt.args); size++ {
				var pieces []string
				for rest := tt.args; rest != ""; {
					n := min(size, len(rest))
					for n < len(rest) && !utf8.RuneStart(rest[n]) {
						n++
					}
					pieces, rest = append(pieces, rest[:n]), rest[n:]
				}
				text, got := "", map[string]string{}
				for _, d := range written(t, false, pieces...) {
					text += d.Text
					if d.Property != "" {
						got[d.Property] += d.Value
					} else {
						assert.Empty(t, d.Value)
					}
				}
				delete(got, "e") // which is empty, and may be told or not
				assert.Equal(t, tt.args, text, "the texts make up the arguments")
				assert.Equal(t, tt.want, got, "in pieces of %d", size)
			}
		})
	}
	t.Run("free text", func(t *testing.T) {
		got := written(t, true, `print("`, `x")`)
		assert.Equal(t, []fnloop.CallDelta{{ID: "call_1", Text: `print("`, Value: `print("`}, {ID: "call_1", Text: `x")`, Value: `x")`}}, got)
	})
}

// Calls whose pieces interleave are told apart, and one that came whole is told
// whole.
func TestCallDeltasOfManyCalls(t *testing.T) {
	added := func(i int) string {
		return fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","id":"fc_%d","call_id":"call_%d","name":"run"}}`, i, i, i)
	}
	piece := func(index int, item, text string) string {
		return fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"item_id":%q,"delta":%q}`, index, item, text)
	}
	item := func(i int, args string) string {
		return fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"call_%d","name":"run","arguments":%q}`, i, i, args)
	}
	end := `{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[` + item(0, `{"a":0}`) + "," + item(1, `{"a":1}`) + "," + item(2, `{"a":2}`) + `]}}`
	for why, events := range map[string][]string{
		"by index":     {added(0), added(1), added(2), piece(1, "rotated", `{"a":`), piece(0, "other", `{"a":0}`), piece(1, "again", `1}`)},
		"by ID":        {added(0), added(1), added(2), piece(0, "fc_1", `{"a":`), piece(0, "fc_0", `{"a":0}`), piece(0, "fc_1", `1}`)},
		"without any":  {added(0)},
		"only the end": {},
	} {
		t.Run(why, func(t *testing.T) {
			loop := sse(t, "", frames(append(append([]string{created}, events...), end)...), frames(completed))
			seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.NoError(t, err)
			announced := map[string]bool{}
			args := map[string]string{}
			for _, e := range seen {
				switch e := e.(type) {
				case fnloop.CallAnnounced:
					assert.False(t, announced[e.ID], "once")
					announced[e.ID] = true
				case fnloop.CallDelta:
					assert.True(t, announced[e.ID], "first it is announced")
					args[e.ID] += e.Text
				}
			}
			assert.Equal(t, map[string]string{"call_0": `{"a":0}`, "call_1": `{"a":1}`, "call_2": `{"a":2}`}, args)
		})
	}
}

// Whatever the arguments and the pieces are, the texts make up the arguments and
// the values those of the properties.
func FuzzCallDeltas(f *testing.F) {
	f.Add(`{"code":"print(1)\n","n":3}`, uint8(3))
	f.Add(`{"a":"\ud83d\ude00","b":["\"]"],"a":"x"}`, uint8(1))
	f.Add(`{"a":"\u12`, uint8(2))
	f.Add(`{{"":"","":""}`, uint8(5))
	f.Fuzz(func(t *testing.T, args string, size uint8) {
		if !utf8.ValidString(args) || len(args) > 500 {
			t.Skip("deltas are valid UTF-8")
		}
		var pieces []string
		for rest := args; rest != ""; {
			n := min(int(size%40)+1, len(rest))
			for n < len(rest) && !utf8.RuneStart(rest[n]) {
				n++
			}
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		text, got := "", map[string]string{}
		for _, d := range written(t, false, pieces...) {
			text += d.Text
			got[d.Property] += d.Value
		}
		require.Equal(t, args, text)
		dec := json.NewDecoder(bytes.NewReader([]byte(args)))
		var object map[string]any
		if json.Valid([]byte(args)) && dec.Decode(&object) == nil {
			for name, value := range object {
				if s, ok := value.(string); ok && strings.Count(args, `"`+name+`"`) == 1 && name != "" {
					require.Equal(t, s, got[name], "%q", name)
				}
			}
		}
	})
}
