package strict_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// fuzzArgs has a field of every kind that a Decoder treats differently.
type fuzzArgs struct {
	S string          `json:"s"`
	E string          `json:"e" jsonschema:"enum=a,enum=b c"`
	I int8            `json:"i"`
	U *uint64         `json:"u"`
	F float32         `json:"f" jsonschema:"multipleOf=0.5"`
	Q int             `json:"q,string"`
	B []byte          `json:"b"`
	T *json.Number    `json:"t"`
	L []Tree          `json:"l"`
	A [2]bool         `json:"a"`
	C Shape           `json:"c"`
	G Grumpy          `json:"g"`
	O struct{ X int } `json:"o,omitzero"`
}

func FuzzDecode(f *testing.F) {
	d := decoderOf[fuzzArgs](f)
	whole := `{"s":"\u00e9","e":"b c","i":-5,"u":18446744073709551615,"f":1.5,"q":"7","b":"AAEC","t":1e9,"l":[{"value":1,"children":[]}],"a":[true,false],"c":{"kind":"circle","radius":1},"g":"x","o":{"X":1}}`
	require.NoError(f, d.Decode([]byte(whole), new(fuzzArgs)))
	f.Add([]byte(whole))
	for i := range len(whole) {
		f.Add([]byte(whole[:i]))
		f.Add([]byte(whole[i:]))
	}
	for _, s := range []string{"", "null", "[]", "{}{}", `{"S":1}`, `{"s":1,"s":2}`, "```", "\xff", `{"s":"\ud800"}`, strings.Repeat("[", 300), `{"i":1e999999999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		into := new(fuzzArgs)
		err := d.Decode(data, into)
		if err != nil {
			e := requireArgumentError(t, err, string(data))
			if e.Incomplete {
				require.False(t, json.Valid(data))
			}
			return
		}
		trimmed := bytes.Trim(data, " \t\r\n")
		if len(trimmed) == 0 {
			t.Fatal("the arguments are not optional")
		}
		want := new(fuzzArgs)
		require.NoError(t, json.Unmarshal(trimmed, want))
		require.Equal(t, want, into)
		require.NoError(t, d.Decode(trimmed, nil))
	})
}

// FuzzSyntax compares what is JSON with encoding/json's view of it.
func FuzzSyntax(f *testing.F) {
	for _, s := range []string{"1", `"\ud83d\ude00"`, `[1,2.5e-3,{"a":[null,true]}]`, "01", "1.", "-", `"\u12`, "{\"a\":1,}", " [ ] ", "nul", "\"\x7f\""} {
		f.Add([]byte(s))
	}
	schema := []byte(property(`{"type":"string"}`))
	d, err := strict.Compile(schema)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		err := d.Decode(data, nil)
		if err == nil {
			return
		}
		e := requireArgumentError(t, err, string(data))
		if !strings.Contains(e.Error(), "JSON") || strings.Contains(e.Error(), "send the JSON itself") {
			return
		}
		if text := e.Problems[0]; json.Valid(data) && !strings.Contains(text, "invalid UTF-8") && !strings.Contains(text, "surrogate") && !strings.Contains(text, "levels of") {
			t.Fatalf("%q is JSON, but: %v", data, err)
		}
	})
}

// FuzzCheck judges hostile schemas and, if one passes, decodes with it.
func FuzzCheck(f *testing.F) {
	for _, c := range accepted {
		if schema, err := strict.Schema(c.typ); err == nil && len(schema) < 4000 {
			f.Add(schema, []byte(strings.Join(c.good, "")))
		}
	}
	f.Add([]byte(withDefs(`{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#"}]}`, `{"b":{"$ref":"#/$defs/b"}}`)), []byte(`{"a":{"a":1}}`))
	f.Add([]byte(property(`{"type":"number","multipleOf":1e-999999999,"minimum":1e999999999}`)), []byte(`{"a":1e1000000000}`))
	f.Add([]byte(property(`{"type":"string","pattern":"(?i)^(a|b){2,3}$"}`)), []byte(`{"a":"ab"}`))
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		d, err := strict.Compile(schema)
		require.Equal(t, err == nil, strict.Check(schema) == nil)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, json.Valid(schema))
		if err := d.Decode(args, nil); err != nil {
			requireArgumentError(t, err, string(args))
		}
	})
}

// Foreign returns whatever schema the fuzzer makes up.
type Foreign struct{}

var foreign *jsonschema.Schema

func (Foreign) JSONSchema() *jsonschema.Schema { return foreign }

// FuzzForeign feeds hostile schemas through JSONSchema.
func FuzzForeign(f *testing.F) {
	for _, s := range []string{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `{"$ref":"#"}`, `{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `{"allOf":[{"allOf":[{"type":"string"}]}]}`, `{"enum":[1,"a",null]}`, `{"properties":{"a":true},"required":["b"]}`, `true`} {
		f.Add([]byte(s))
	}
	for _, c := range accepted {
		if schema, err := strict.Schema(c.typ); err == nil && len(schema) < 4000 {
			f.Add(schema)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		foreign = new(jsonschema.Schema)
		if json.Unmarshal(data, foreign) != nil {
			return
		}
		for _, typ := range []reflect.Type{of[Foreign](), of[struct {
			F Foreign
			P *Foreign `json:",omitempty" jsonschema:"description=d"`
		}]()} {
			schema, err := strict.Schema(typ)
			if err == nil {
				require.NoError(t, strict.Check(schema))
			}
		}
	})
}

// FuzzTag puts hostile tags on fields of several kinds.
func FuzzTag(f *testing.F) {
	for _, c := range refused {
		if strings.HasPrefix(c.name, "tag_") {
			f.Add(string(c.typ.Field(0).Tag))
		}
	}
	kinds := []reflect.Type{of[string](), of[*int8](), of[float32](), of[bool](), of[[]string](), of[[2]uint](), of[[]byte](), of[Color](), of[*Tree](), of[Shape](), of[map[string]int]()}
	f.Fuzz(func(t *testing.T, tag string) {
		if len(tag) > 10000 {
			return
		}
		for _, k := range kinds {
			schema, err := strict.Schema(tagged(tag, k))
			if err == nil {
				require.NoError(t, strict.Check(schema))
				require.Empty(t, verdict(schema), "%s", schema)
			}
		}
	})
}
