package strict_test

import (
	"encoding/json"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// lossy says a property that it has not, without an UnmarshalJSON to keep it.
type lossy struct {
	A string `json:"a"`
	B struct {
		C []int `json:"c"`
	} `json:"b"`
}

var lossySchema string

func (lossy) JSONSchema() *jsonschema.Schema {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(lossySchema), s); err != nil {
		panic(err)
	}
	return s
}

func TestSchemaOfMethodMustFitTheFields(t *testing.T) {
	object := func(props string, names ...string) string {
		required, _ := json.Marshal(names)
		return `{"type":"object","properties":{` + props + `},"required":` + string(required) + `}`
	}
	for _, c := range []struct{ schema, want string }{
		{object(`"z":{"type":"integer"}`, "z"), `has the property "z"`},
		{object(`"a":{"type":"integer"}`, "a"), "JSONSchema at a describes a integer"},
		{object(`"b":`+object(`"d":{"type":"string"}`, "d"), "b"), `JSONSchema at b has the property "d"`},
		{object(`"b":`+object(`"c":{"type":"array","items":{"type":"string"}}`, "c"), "b"), "JSONSchema at b.c[] describes a string"},
		{`{"$defs":{"x":` + object(`"z":{"type":"string"}`, "z") + `},"type":"object","properties":{"b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/x"}]}},"required":["b"]}`, `JSONSchema at b has the property "z"`},
	} {
		lossySchema = c.schema
		_, err := strict.Schema(of[struct{ L lossy }]())
		require.ErrorContains(t, err, c.want, c.schema)
		_, err = strict.Schema(of[lossy]())
		require.ErrorContains(t, err, c.want, "as the root")
		_, err = strict.Describe(of[struct{ L lossy }]())
		require.NoError(t, err, "whoever decodes by hand may")
	}
	lossySchema = object(`"a":{"type":"string","enum":["x"]}`, "a") // a part of the fields will do
	_, err := strict.Schema(of[struct{ L lossy }]())
	require.NoError(t, err)
}
