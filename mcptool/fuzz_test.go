package mcptool_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/fnloop/fnloop/mcptool"
)

// Whatever a server answers is text for the model, or parts.
func FuzzResult(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"image","data":"?"}],"isError":true}`,
		`{"content":{"type":"resource","resource":{"uri":"a","blob":"AAA"}},"structuredContent":[1]}`,
		`{"content":[null,{"type":7}]}`, `[]`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out := mcptool.Output(data)
		if out.Text == "" && len(out.Content) == 0 {
			t.Error("the model reads nothing")
		}
	})
}

// The elements of a list are those that encoding/json finds.
func FuzzElements(f *testing.F) {
	for _, s := range []string{`[]`, `[ ]`, `[1]`, `[1, "a,]\"\\" ,{"b":[1,2],"]":null}, [ [] ]]`, `null`, `{}`, `"[1]"`, `["\\","\\\"",""]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var raw json.RawMessage
		if json.Unmarshal(data, &raw) != nil {
			return
		}
		var want []json.RawMessage
		wrong := json.Unmarshal(raw, &want) != nil
		got, more, err := mcptool.Elements(raw, len(want))
		assert.Equal(t, wrong, err != nil, "%v", err)
		assert.False(t, more)
		if !wrong && len(want) > 0 {
			assert.Equal(t, want, got)
			got, more, err = mcptool.Elements(raw, len(want)-1)
			assert.NoError(t, err)
			assert.True(t, more)
			assert.Len(t, got, len(want)-1)
		}
	})
}

// A schema is changed by nothing but what is missing, or refused.
func FuzzParameters(f *testing.F) {
	for _, s := range []string{`{}`, `{"type":"object"}`, `{"properties":{"b":1,"a":{}}}`, `{"type":"object","properties":{}} `, `null`, `[`, `{"a":"}"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		params, _, err := mcptool.Parameters(data)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if len(bytes.TrimSpace(data)) == 0 {
			data = []byte("null")
		}
		if json.Unmarshal(data, &before) != nil || json.Unmarshal(params, &after) != nil {
			t.Fatalf("%s became %s", data, params)
		}
		for name, value := range before {
			if !bytes.Equal(after[name], value) {
				t.Errorf("%s was %s and is %s", name, value, after[name])
			}
		}
		if after["type"] == nil || after["properties"] == nil {
			t.Errorf("%s lacks what the API wants", params)
		}
	})
}

// Lines are found whatever comes, and the ID of a message in those that are too long.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\n\nc", 10)
	f.Add(`{"result":{"id":1,"a":"`+strings.Repeat("x", 100)+`"},"id":7}`+"\nnext\n", 20)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(1, most%1000)
		n := 0
		mcptool.Lines(strings.NewReader(text), most, func(line, _ []byte) {
			n++
			if len(line) > most {
				t.Errorf("a line of %d bytes, of at most %d", len(line), most)
			}
		})
		if want := strings.Count(text, "\n"); n != want && n != want+1 {
			t.Errorf("%d lines, want %d or one more", n, want)
		}
	})
}

func TestLines_id(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":7,"result":"` + long + `"}`, "7"},
		{`{"result":"` + long + `","jsonrpc":"2.0","id":7}`, "7"},
		{`{"result":{"id":1,"x":[{"id":2}],"t":"\"id\":3 ` + long + `"}, "id" : "a,b" }`, `"a,b"`},
		{`{"result":"` + long + `"}`, ""},
		{`[{"id":1,"result":"` + long + `"}]`, ""},
		{long, ""},
	} {
		found := false
		mcptool.Lines(strings.NewReader(c.line+"\nnext\n"), 1000, func(line, id []byte) {
			if line == nil {
				assert.Equal(t, c.want, string(id))
				found = true
			} else {
				assert.Equal(t, "next", string(line))
			}
		})
		assert.True(t, found)
		assert.True(t, utf8.ValidString(c.line))
	}
}
