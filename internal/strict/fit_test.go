package strict_test

import (
	"encoding/json"
	"reflect"
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

// The types below stand for others in JSON.
type (
	aliasRoot  struct{ v linkedForm }
	aliasSelf  struct{}
	aliasWrong struct{ Name int }
	aliasNil   struct{}
	aliasKnot  struct {
		Name string       `json:"name"`
		Kids []*aliasKnot `json:"kids"`
	}
)

func (aliasRoot) JSONSchemaAlias() any               { return &linkedForm{} }
func (a *aliasRoot) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &a.v) }
func (aliasSelf) JSONSchemaAlias() any               { return aliasSelf{} }
func (aliasWrong) JSONSchemaAlias() any              { return struct{ Name string }{} }
func (aliasNil) JSONSchemaAlias() any                { return nil }
func (aliasKnot) JSONSchemaAlias() any {
	return struct {
		Name string      `json:"name"`
		Kids []aliasKnot `json:"kids"`
	}{}
}

func TestSchemaOfAlias(t *testing.T) {
	t.Parallel()
	own, err := strict.Schema(of[linkedForm]())
	require.NoError(t, err)
	root, err := strict.Schema(of[aliasRoot]())
	require.NoError(t, err)
	require.Equal(t, string(own), string(root))
	_, err = strict.Schema(of[struct{ A []aliasRoot }]())
	require.NoError(t, err)
	knot, err := strict.Schema(of[struct{ K aliasKnot }]())
	require.NoError(t, err)
	require.NoError(t, strict.Check(knot))
	d, err := strict.Compile(knot)
	require.NoError(t, err)
	var got struct{ K aliasKnot }
	require.NoError(t, d.Decode([]byte(`{"K":{"name":"a","kids":[{"name":"b","kids":[]}]}}`), &got))
	require.Equal(t, "b", got.K.Kids[0].Name)
	_, err = strict.Schema(of[aliasKnot]())
	require.NoError(t, err)

	for typ, want := range map[reflect.Type]string{
		of[aliasSelf]():               "leads nowhere",
		of[struct{ A aliasSelf }]():   "no finite value",
		of[aliasWrong]():              "cannot decode",
		of[struct{ A *aliasWrong }](): "cannot decode",
		of[aliasNil]():                "returns nil",
		of[struct{ A [2]aliasNil }](): "returns nil",
	} {
		_, err := strict.Schema(typ)
		require.ErrorContains(t, err, want, typ)
	}
}
