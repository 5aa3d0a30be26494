package fnloop

import (
	"encoding/json"
	"errors"
	"reflect"
	"sync"

	"github.com/fnloop/fnloop/internal/strict"
)

// SchemaFor returns a JSON Schema for T that OpenAI accepts for a function
// tool with strict: true. T is a struct, or a pointer to one, and its schema
// describes what encoding/json decodes into it:
//
//   - Every field is required. A pointer, and a field with omitempty,
//     omitzero or jsonschema:"nullable", may be null instead;
//     jsonschema:"required" takes that back.
//   - The tags jsonschema and jsonschema_description, in the syntax of
//     github.com/invopop/jsonschema, describe and bound a field:
//     `jsonschema:"enum=celsius,enum=kelvin,description=Unit of the answer."`.
//     The tag description says the same as jsonschema_description.
//   - A method JSONSchema() *jsonschema.Schema, on either receiver, stands for
//     the type, and JSONSchemaAlias() any names a type that does. A type with
//     UnmarshalText is a string. [NewTool] and [RunAs] want more of it: that
//     what it describes can be decoded into the type.
//   - [Map] takes the place of a map, and [JSON] of what may be any JSON.
//   - A type that is used several times is defined once where that is shorter.
//
// What strict mode cannot express is an error and never a schema that the API
// refuses or that means less than the type says: maps, interfaces,
// [json.RawMessage], types with an UnmarshalJSON and no JSONSchema, tags that
// are unknown, contradict the type or are those of other libraries, sizes beyond
// the documented limits. The error is a [*SchemaError] that names the field.
//
// The result is the same for every call. Its properties are in the order of
// the fields, which is the order in which the model writes them.
func SchemaFor[T any]() (json.RawMessage, error) {
	schema, err := strict.Describe(reflect.TypeFor[T]())
	if err != nil {
		return nil, schemaError(err)
	}
	return schema, nil
}

// A goType is the strict schema of a Go type, in the forms in which it is used.
type goType struct {
	schema  string
	top     map[string]any // its first level; not to be changed
	decoder *strict.Decoder
}

// goTypes has the goType of each type that was asked for.
var goTypes sync.Map // reflect.Type to *goType

// goTypeOf returns the schema of t and what decodes into it. It also refuses a
// type whose JSONSchema describes what encoding/json cannot decode.
func goTypeOf(t reflect.Type) (*goType, error) {
	if known, ok := goTypes.Load(t); ok {
		return known.(*goType), nil
	}
	schema, decoder, err := strict.Typed(t)
	if err != nil {
		return nil, schemaError(err)
	}
	top, err := topLevel(schema)
	if err != nil {
		return nil, err
	}
	known, _ := goTypes.LoadOrStore(t, &goType{string(schema), top, decoder})
	return known.(*goType), nil
}

// CheckStrict reports whether OpenAI accepts schema as the parameters of a
// function tool with strict: true. It returns nil, or a [*SchemaError] for the
// first rule that is broken.
//
// It goes by what is documented and known to be accepted, so it also refuses
// what some deployments take and others do not, such as default and minLength.
func CheckStrict(schema json.RawMessage) error {
	if err := strict.Check(schema); err != nil {
		return schemaError(err)
	}
	return nil
}

// A SchemaError says why a type has no strict schema, or why a schema is not
// strict. Correct the program: nothing was sent.
type SchemaError struct {
	// Path is where the trouble lies. For a Go type it is in Go's notation,
	// such as Order.Items[].Meta; for a schema it is a JSON pointer, such as
	// #/properties/items.
	Path string
	// Type is the Go type at fault, such as map[string]any. It is empty for a
	// schema.
	Type string
	// Reason says what is wrong and what to use instead.
	Reason string

	text string
}

// Error returns the path, the type and the reason.
func (e *SchemaError) Error() string {
	if e.text != "" {
		return e.text
	}
	if e.Type == "" {
		return "fnloop: " + e.Path + ": " + e.Reason
	}
	return "fnloop: " + e.Path + ": " + e.Type + ": " + e.Reason
}

// schemaError gives an error of package strict its public form.
func schemaError(err error) error {
	if e, ok := errors.AsType[*strict.TypeError](err); ok {
		s := &SchemaError{Path: e.Path, Reason: e.Reason, text: "fnloop: " + e.Error()}
		if e.Type != nil {
			s.Type = strict.TypeName(e.Type)
		}
		return s
	}
	if e, ok := errors.AsType[*strict.Error](err); ok {
		return &SchemaError{Path: e.Pointer(), Reason: e.Reason}
	}
	return err
}
