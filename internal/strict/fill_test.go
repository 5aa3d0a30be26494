package strict_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// fillItem and fillDoc have fields of the kinds that responses have.
type fillItem struct {
	Type string          `json:"type"`
	Args json.RawMessage `json:"args"`
	Skip int             `json:"-"`
	own  []string
}

type fillDoc struct {
	ID    string     `json:"id"`
	Items []fillItem `json:"items"`
	Usage *struct {
		Tokens int64 `json:"tokens"`
	} `json:"usage"`
	Why struct{ Reason string } `json:"why"`
	Big map[string]any          `json:"big"`
}

var fillCases = []struct {
	name, json string
	plain      bool // Fill decodes it itself
	why        string
}{
	{"plain", `{"id":"a","items":[{"type":"t","args":{"x": 1}}],"usage":{"tokens":7},"why":{"Reason":"r"},"big":{"a":[1]}}`, true, "what servers send"},
	{"unknown_members", ` {"a":1,"id":"x","b":[{"id":"y"}],"items":[{"id":"z","type":"t"}]} `, true, "types read a part of what there is"},
	{"nulls", `{"id":null,"items":null,"usage":null,"why":null,"big":null}`, true, "null leaves what is there"},
	{"null_to_raw", `{"items":[{"args":null}]}`, true, "a RawMessage is null and not nil"},
	{"null_element", `{"items":[null,{"type":"t"}]}`, true, "an element stays zero"},
	{"no_elements", `{"items":[]}`, true, "a list without elements is not nil"},
	{"escapes", `{"\u0069d":"\u00e9\n\ud83d\ude00"}`, true, "names and values may be escaped"},
	{"not_for_json", `{"Skip":1,"own":["a"],"-":2}`, true, "such fields are no members"},
	{"null_alone", `null`, true, "it leaves everything"},
	{"twice", `{"id":"a","id":"b"}`, false, "the last one counts"},
	{"twice_merged", `{"why":{"Reason":"a"},"why":{}}`, false, "objects are merged"},
	{"twice_list", `{"items":[{"type":"a"},{"type":"b"}],"items":[{}]}`, false, "elements are used again"},
	{"twice_unknown", `{"a":1,"a":2}`, true, "nobody reads it"},
	{"other_case", `{"ID":"a"}`, false, "names are compared without case"},
	{"other_case_twice", `{"id":"a","Id":"b"}`, false, "it is the same member"},
	{"folded", "{\"big\":{},\"item\u017f\":[]}", false, "a long s is an s"},
	{"wrong_type", `{"id":1}`, false, "the error names the field"},
	{"wrong_type_deep", `{"items":[{"type":{}}]}`, false, "the same"},
	{"not_whole", `{"usage":{"tokens":7.5}}`, false, "no integer"},
	{"too_large", `{"usage":{"tokens":9223372036854775808}}`, false, "does not fit"},
	{"invalid_utf8", "{\"id\":\"\xff\"}", false, "it becomes U+FFFD"},
	{"lone_surrogate", `{"id":"\ud800"}`, false, "so does this"},
	{"deep", `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, false, "encoding/json goes deeper"},
	{"list", `[]`, false, "no object"},
	{"text", `"a"`, false, "nor is this"},
	{"more", `{} {}`, false, "two values"},
	{"cut", `{"id":"a"`, false, "the text ends too early"},
	{"empty", ``, false, "nothing"},
}

// checkFill holds Fill against encoding/json, and returns what it reports.
func checkFill(t *testing.T, data []byte) bool {
	var got, want fillDoc
	filled := strict.Fill(data, &got)
	if err := json.Unmarshal(data, &want); err != nil {
		require.False(t, filled, "%s: %v", data, err)
	}
	if !filled {
		want = fillDoc{}
	}
	require.Equal(t, want, got, "%s", data)
	return filled
}

func TestFill(t *testing.T) {
	for _, c := range fillCases {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.plain, checkFill(t, []byte(c.json)), c.why)
		})
	}
	t.Run("not_zero", func(t *testing.T) {
		doc := fillDoc{ID: "a"}
		require.False(t, strict.Fill([]byte(`{"id":"b"}`), &doc), "what is there may be merged with")
		require.Equal(t, fillDoc{ID: "a"}, doc)
	})
	t.Run("other_types", func(t *testing.T) {
		var text string
		require.True(t, strict.Fill([]byte(`"a\nb"`), &text))
		require.Equal(t, "a\nb", text)
		var list []json.RawMessage
		require.True(t, strict.Fill([]byte(` [ 1 , {"a": 2}, null ] `), &list))
		require.Equal(t, []json.RawMessage{[]byte("1"), []byte(`{"a": 2}`), []byte("null")}, list)
	})
	t.Run("keeps_nothing_of_data", func(t *testing.T) {
		data := []byte(`{"id":"abc","items":[{"args":"abc"}]}`)
		var doc fillDoc
		require.True(t, strict.Fill(data, &doc))
		clear(data)
		require.Equal(t, fillDoc{ID: "abc", Items: []fillItem{{Args: []byte(`"abc"`), own: nil}}}, doc)
	})
	t.Run("many_fields", func(t *testing.T) {
		var doc struct {
			A00, A01, A02, A03, A04, A05, A06, A07, A08, A09, A10, A11, A12, A13, A14, A15, A16, A17, A18, A19, A20, A21, A22, A23, A24, A25, A26, A27, A28, A29, A30, A31, A32, A33 string
			B00, B01, B02, B03, B04, B05, B06, B07, B08, B09, B10, B11, B12, B13, B14, B15, B16, B17, B18, B19, B20, B21, B22, B23, B24, B25, B26, B27, B28, B29, B30, B31, B32, B33 string
			C00, C01, C02, C03, C04, C05, C06, C07, C08, C09, C10, C11, C12, C13, C14, C15, C16, C17, C18, C19, C20, C21, C22, C23, C24, C25, C26, C27, C28, C29, C30, C31, C32, C33 string
			D00, D01, D02, D03, D04, D05, D06, D07, D08, D09, D10, D11, D12, D13, D14, D15, D16, D17, D18, D19, D20, D21, D22, D23, D24, D25, D26, D27, D28, D29, D30, D31, D32, D33 string
		}
		require.True(t, strict.Fill([]byte(`{"D33":"a","A00":"b"}`), &doc))
		require.Equal(t, "ab", doc.D33+doc.A00)
		doc.D33, doc.A00 = "", ""
		require.False(t, strict.Fill([]byte(`{"D33":"a","D33":"b"}`), &doc))
	})
}

func FuzzFill(f *testing.F) {
	for _, c := range fillCases {
		f.Add([]byte(c.json))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkFill(t, data) })
}

func BenchmarkFill(b *testing.B) {
	var items []string
	for i := range 8 {
		items = append(items, fmt.Sprintf(`{"type":"function_call","id":"fc_%d","args":{"city":"Oslo","days":3},"status":"completed"}`, i))
	}
	data := []byte(`{"id":"resp_1","items":[` + strings.Join(items, ",") + `],"usage":{"tokens":77},"tools":[{"name":"a","parameters":{"type":"object"}}]}`)
	for _, way := range []struct {
		name   string
		decode func([]byte, any) bool
	}{
		{"fill", strict.Fill},
		{"encoding-json", func(data []byte, into any) bool { return json.Unmarshal(data, into) == nil }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !way.decode(data, new(fillDoc)) {
					b.Fatal("it cannot be decoded")
				}
			}
		})
	}
}
