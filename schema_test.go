package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

func TestSchemaFor(t *testing.T) {
	type args struct {
		Code    string `json:"code"`
		Timeout *int   `json:"timeout,omitempty"`
	}
	got, err := fnloop.SchemaFor[args]()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"code":{"type":"string"},"timeout":{"type":["integer","null"]}},` +
		`"required":["code","timeout"],"additionalProperties":false}`
	if string(got) != want {
		t.Errorf("SchemaFor() = %s, want %s", got, want)
	}
	if err := fnloop.CheckStrict(got); err != nil {
		t.Errorf("CheckStrict() = %v, want nil for what SchemaFor returns", err)
	}
	pointer, err := fnloop.SchemaFor[*args]()
	if err != nil || string(pointer) != want {
		t.Errorf("SchemaFor() of a pointer = %s, %v, want that of the struct", pointer, err)
	}
}

func TestSchemaForError(t *testing.T) {
	type Order struct {
		Items []struct {
			Meta map[string]any `json:"meta"`
		} `json:"items"`
	}
	_, err := fnloop.SchemaFor[Order]()
	e, ok := errors.AsType[*fnloop.SchemaError](err)
	if !ok {
		t.Fatalf("SchemaFor() error = %T, want *SchemaError", err)
	}
	if e.Path != "Order.Items[].Meta" || e.Type != "map[string]any" || !strings.Contains(e.Reason, "slice") {
		t.Errorf("SchemaFor() error = %+v, want the path, the type and advice", e)
	}
	for _, part := range []string{"fnloop: ", e.Path, "items[].meta", e.Type, e.Reason} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not mention %q", err, part)
		}
	}
	if _, err := fnloop.SchemaFor[any](); err == nil {
		t.Error("SchemaFor[any]() succeeded, want an error and no panic")
	}
}

func TestCheckStrictError(t *testing.T) {
	err := fnloop.CheckStrict(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array"}},"required":["a"],"additionalProperties":false}`))
	e, ok := errors.AsType[*fnloop.SchemaError](err)
	if !ok {
		t.Fatalf("CheckStrict() error = %T, want *SchemaError", err)
	}
	if e.Path != "#/properties/a" || e.Type != "" || !strings.Contains(e.Reason, "items") {
		t.Errorf("CheckStrict() error = %+v, want the pointer and the rule", e)
	}
	if got, want := e.Error(), "fnloop: #/properties/a: "+e.Reason; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

// celsius says that it is a string, but encoding/json wants an object.
type celsius struct{ Degrees float64 }

func (celsius) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

func TestSchemaThatCannotBeDecoded(t *testing.T) {
	type in struct {
		T celsius `json:"t"`
	}
	schema, err := fnloop.SchemaFor[in]()
	require.NoError(t, err, "who decodes by hand may describe it so")
	require.Contains(t, string(schema), `"t":{"type":"string"}`)
	_, err = fnloop.NewTool("x", "", func(context.Context, in) (string, error) { return "", nil })
	require.ErrorAs(t, err, new(*fnloop.SchemaError), "NewTool decodes")
}
