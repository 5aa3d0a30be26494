package fnloop_test

import (
	"context"
	"encoding/json"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

// Types that the errors below say to write.
type (
	MyInt   struct{ big.Int }
	MyStamp struct{ stamp }
	stamp   struct{ time.Time } // in place of somebody else's type
	item    struct {
		Key   string `json:"key"`
		Value int    `json:"value"`
	}
	point struct{ X, Y float64 }
)

func (MyInt) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer"} }
func (MyStamp) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "date-time"}
}
func (*stamp) UnmarshalJSON([]byte) error { return nil }

// TestTypeAdviceWorks makes a tool of each type that an error says to use.
func TestTypeAdviceWorks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		advice string
		better func() error
	}{
		{"map", schemaErr[struct{ M map[string]int }](), "fnloop.Map[int]", schemaErr[struct{ M fnloop.Map[int] }]},
		{"map of own", schemaErr[struct{ M map[string]*point }](), "fnloop.Map[*fnloop_test.point]", schemaErr[struct{ M fnloop.Map[*point] }]},
		{"map of any", schemaErr[struct{ M map[string]any }](), "fnloop.Map[fnloop.JSON]", schemaErr[struct{ M fnloop.Map[fnloop.JSON] }]},
		{"map of raw", schemaErr[struct{ M map[string]json.RawMessage }](), "fnloop.Map[fnloop.JSON]", schemaErr[struct{ M fnloop.Map[fnloop.JSON] }]},
		{"url.Values", schemaErr[struct{ V url.Values }](), "fnloop.Map[[]string]", schemaErr[struct{ V fnloop.Map[[]string] }]},
		{"map of numbers", schemaErr[struct{ M map[int]int }](), "a slice of structs with a key and a value", schemaErr[struct{ M []item }]},
		{"any", schemaErr[struct{ A any }](), "fnloop.JSON", schemaErr[struct{ A fnloop.JSON }]},
		{"raw", schemaErr[struct{ A json.RawMessage }](), "fnloop.JSON", schemaErr[struct{ A fnloop.JSON }]},
		{"whole map", schemaErr[map[string]int](), "a struct with a field of type fnloop.Map[int]", schemaErr[struct{ Field fnloop.Map[int] }]},
		{"whole any", schemaErr[any](), "a struct with a field of type fnloop.JSON", schemaErr[struct{ Field fnloop.JSON }]},
		{"whole raw", schemaErr[json.RawMessage](), "a struct with a field of type fnloop.JSON", schemaErr[struct{ Field fnloop.JSON }]},
		{"whole slice", schemaErr[[]item](), "a struct with a field for each", schemaErr[struct{ Items []item }]},
		{"whole time", schemaErr[time.Time](), "a struct with a field of this type", schemaErr[struct{ T time.Time }]},
		{"big.Int", schemaErr[struct{ I *big.Int }](), "type MyInt struct{ big.Int }", schemaErr[struct{ I *MyInt }]},
		{"own method", schemaErr[struct{ T []stamp }](), "type Mystamp struct{ fnloop_test.stamp }", schemaErr[struct{ T []MyStamp }]},
		{"embedded", schemaErr[struct {
			time.Time
			Zone string
		}](), "a named field in its place", schemaErr[struct {
			At   time.Time
			Zone string
		}]},
		{"url", schemaErr[struct{ U *url.URL }](), "use a string", schemaErr[struct{ U *string }]},
		{"complex", schemaErr[struct{ C complex128 }](), "a struct with two numbers", schemaErr[struct{ C point }]},
		{"func", schemaErr[struct{ F func() }](), `json:"-"`, schemaErr[struct {
			F func() `json:"-"`
		}]},
		{"string option", schemaErr[struct {
			S string `json:",string"`
		}](), "leave the option out", schemaErr[struct{ S string }]},
		{"mutex", schemaErr[struct{ E struct{} }](), "drop the field", schemaErr[struct{}]},
	} {
		require.ErrorContains(t, c.err, c.advice, c.name)
		require.NoError(t, c.better(), c.name)
	}
	var got *MyInt
	tool := fnloop.MustTool("f", "", func(_ context.Context, in struct {
		I *MyInt `json:"i"`
	}) (string, error) {
		got = in.I
		return "", nil
	})
	_, err := tool.Handle(t.Context(), fnloop.Call{Arguments: json.RawMessage(`{"i":123456789012345678901234567890}`)})
	require.NoError(t, err)
	require.Equal(t, "123456789012345678901234567890", got.String())
}

func schemaErr[T any]() error {
	_, err := fnloop.NewTool("f", "", func(context.Context, T) (string, error) { return "", nil })
	return err
}
