package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

// asDatabase does to a document what a database that knows JSON does: it refuses
// U+0000 and halves of surrogate pairs, as Postgres does, keeps the last of two
// members of one name, orders members anew, and spells strings in its own way.
func asDatabase(t testing.TB, data []byte, ascii bool) []byte {
	t.Helper()
	escapes := bytes.ReplaceAll(data, []byte(`\\`), nil) // what is left begins one
	require.NotContains(t, string(escapes), `\u0000`)
	for rest := escapes; ; {
		i := bytes.Index(rest, []byte(`\ud`))
		if i < 0 {
			break
		}
		var pair string
		require.NoError(t, json.Unmarshal([]byte(`"`+string(rest[i:min(len(rest), i+12)])+`"`), &pair), "half of a pair in %.80s", rest[i:])
		require.NotContains(t, pair, "\ufffd", "half of a pair")
		rest = rest[i+12:]
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc any
	require.NoError(t, dec.Decode(&doc))
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	if !ascii {
		return out
	}
	var b strings.Builder // as Python's json module writes it
	for _, r := range string(out) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return []byte(b.String())
}

// oddTexts are what some database does not take, or what looks like its escape.
var oddTexts = []string{
	"", "plain", "a\x00b", "\x00", "\u2400", "\u24000", "\u2400\u2400", "\x00\u2400\x000", "\u2400d800", `\u0000`, `\\u0000`, "\u2028", "\ufffd", "😀", "<&>", "naïve \u2400 €",
}

func TestStoredTextGoesThroughDatabases(t *testing.T) {
	for _, text := range oddTexts {
		for _, ascii := range []bool{false, true} {
			a := &fnloop.Answer{
				Text: text, Prompt: text, Partial: text, Interrupted: true, Stop: fnloop.StopCancelled,
				Pending: []fnloop.Call{{ID: "call_1", Name: text, Custom: true, Arguments: json.RawMessage(text)}},
				Calls:   []fnloop.CallResult{{Call: fnloop.Call{ID: "call_2"}, Output: fnloop.Output{Text: text, Content: []fnloop.Content{{Text: text}}}}},
				Earlier: []fnloop.Message{{Role: "user", Text: text}},
				Open:    []string{"call_1", "call_2"},
			}
			data, err := json.Marshal(a)
			require.NoError(t, err)
			var back fnloop.Answer
			require.NoError(t, json.Unmarshal(asDatabase(t, data, ascii), &back))
			assert.Equal(t, text, back.Text)
			assert.Equal(t, text, back.Prompt)
			assert.Equal(t, text, back.Partial)
			assert.Equal(t, text, back.Pending[0].Name)
			assert.Equal(t, text, string(back.Pending[0].Arguments))
			assert.Equal(t, text, back.Calls[0].Text)
			assert.Equal(t, text, back.Calls[0].Content[0].Text)
			assert.Equal(t, text, back.Earlier[0].Text)
			again, err := json.Marshal(back)
			require.NoError(t, err)
			assert.Equal(t, string(data), string(again))
		}
	}
}

func TestStoredJSONGoesThroughDatabases(t *testing.T) {
	for _, raw := range []string{
		`{"a":"\u0000"}`, `{"\u0000":"\ud800"}`, `{"a":"\ud800\udc00"}`, `{"a":"\udc00\ud800"}`, `{"a":"\uD800x"}`, `{"a":"\\ud800"}`, `{"a":"\\\ud800"}`,
		`{"a":1,"a":2}`, `{"\ud800":1,"\ud801":2}`, `{"n":12345678901234567890123}`, `{"n":1e999}`, `{"n":9007199254740993}`, `{"n":0.1}`, `{"n":-5e3}`,
		`{"deep":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "{\"a\":\"\xff\"}", `{"a":"␀0"}`, `{"a":"\u2400"}`,
	} {
		a := &fnloop.Answer{
			Pending:   []fnloop.Call{{ID: "call_1", Arguments: json.RawMessage(raw)}},
			Items:     []json.RawMessage{json.RawMessage(raw)},
			ToolState: map[string]json.RawMessage{"x": json.RawMessage(`"\u0000"`)},
		}
		data, err := json.Marshal(a)
		require.NoError(t, err, raw)
		var back fnloop.Answer
		require.NoError(t, json.Unmarshal(asDatabase(t, data, false), &back), raw)
		if strings.ToValidUTF8(raw, "") != raw {
			continue // it has no meaning to keep
		}
		for _, got := range []string{string(back.Pending[0].Arguments), string(back.Items[0])} {
			assert.Equal(t, meaning(t, raw), meaning(t, got))
			if strings.Contains(raw, `"a":1,"a":2`) && got == string(back.Pending[0].Arguments) {
				assert.Equal(t, raw, got)
			}
		}
		assert.Equal(t, `"\u0000"`, string(back.ToolState["x"]))
	}
}

// meaning is JSON in one spelling, with the escapes that decoding would lose.
func meaning(t *testing.T, raw string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(strings.NewReplacer(`\\`, `\\`, `\ud800\udc00`, "\U00010000", `\u2400`, "␀", `\ud800`, "[d800]", `\uD800`, "[d800]", `\ud801`, "[d801]", `\udc00`, "[dc00]", `\u0000`, "[0000]").Replace(raw)))
	dec.UseNumber()
	var v any
	require.NoError(t, dec.Decode(&v), raw)
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

func TestStoredVersion(t *testing.T) {
	for doc, fails := range map[string]bool{
		`{"version":1,"text":"a␀0b"}`:    false,
		`{"text":"a␀0b"}`:                false,
		`{"version":2,"text":""}`:        true,
		`{"version":-1,"text":""}`:       true,
		`{"version":"1","text":""}`:      true,
		`{"version":1,"items":["x"]}`:    false,
		`{"version":1,"items":[1,"{}"`:   true,
		`{"version":1,"pending":[null]}`: false,
		`[]`:                             true,
	} {
		var a fnloop.Answer
		err := json.Unmarshal([]byte(doc), &a)
		assert.Equal(t, fails, err != nil, "%s: %v", doc, err)
		if !fails && strings.Contains(doc, "text") {
			assert.Equal(t, strings.Contains(doc, "version"), a.Text == "a\x00b", "only what has a version has escapes")
		}
	}
	var a fnloop.Answer
	require.ErrorContains(t, json.Unmarshal([]byte(`{"version":7}`), &a), "version 7")
}

// Every version reads what the ones before it wrote, and goes on from it. Files
// of older versions are never written again.
func TestStoredAnswersOfEarlierVersions(t *testing.T) {
	names, err := filepath.Glob("testdata/answers/v*.json")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			stored := new(fnloop.Answer)
			require.NoError(t, json.Unmarshal(data, stored))
			kind := strings.SplitN(strings.TrimSuffix(filepath.Base(name), ".json"), "-", 2)[1]
			for _, c := range stored.Waiting() {
				assert.JSONEq(t, `{"to":"a <b>","n":7}`, string(c.Arguments))
				require.NoError(t, stored.Approve(c.ID), "its digest holds yet")
			}
			ran := 0
			var body string
			loop := &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
				sent, err := io.ReadAll(req.Body)
				body = string(sent)
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Request: req, Body: io.NopCloser(strings.NewReader(
					`{"id":"resp_new","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}]}`))}, err
			}))}
			loop.Tools = []fnloop.Tool{raw("pay", func(context.Context) (string, error) { ran++; return "paid", nil })}
			loop.Tools[0].NonStrict = true
			if kind == "stateless" {
				loop.State = fnloop.Stateless
			}
			ans, err := loop.Continue(t.Context(), stored, "and now?")
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
			for _, part := range map[string][]string{
				"approval":  {`"paid"`, "and now?"},
				"failed":    {"Summarise it", "and now?"},
				"stateless": {"remember blue", "and now?"},
				"killed":    {"interrupted", "and now?"},
			}[kind] {
				assert.Contains(t, body, part)
			}
			if kind == "approval" {
				assert.Equal(t, 1, ran)
			}
		})
	}
}

// Whatever a database gives back, reading it does not panic, and what was read is
// written and read again without a change.
func FuzzStoredAnswer(f *testing.F) {
	names, err := filepath.Glob("testdata/answers/v*.json")
	require.NoError(f, err)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, text := range oddTexts {
		data, err := json.Marshal(&fnloop.Answer{Text: text, Items: []json.RawMessage{json.RawMessage(`{"a":1,"a":1e999}`)}})
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a fnloop.Answer
		if json.Unmarshal(data, &a) != nil {
			return
		}
		first, err := json.Marshal(&a)
		if err != nil {
			return // an Answer with raw JSON that is none
		}
		var b fnloop.Answer
		require.NoError(t, json.Unmarshal(first, &b))
		second, err := json.Marshal(&b)
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = (&fnloop.Loop{Client: strange{func() {}}, Model: "m", Attempts: 1}).Continue(ended, &a, "hi")
		require.Error(t, err)
	})
}
