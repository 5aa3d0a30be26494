package fnloop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fnloop/fnloop"
)

func ExampleSchemaFor() {
	type Forecast struct {
		City string `json:"city" jsonschema:"description=City and country"`
		Days *int   `json:"days" jsonschema:"minimum=1,maximum=7"`
		Unit string `json:"unit" jsonschema:"enum=celsius,enum=fahrenheit"`
	}
	schema, err := fnloop.SchemaFor[Forecast]()
	if err != nil {
		fmt.Println(err)
		return
	}
	var b bytes.Buffer
	json.Indent(&b, schema, "", "  ")
	fmt.Println(b.String())
	// Output:
	// {
	//   "type": "object",
	//   "properties": {
	//     "city": {
	//       "description": "City and country",
	//       "type": "string"
	//     },
	//     "days": {
	//       "anyOf": [
	//         {
	//           "type": "integer",
	//           "minimum": 1,
	//           "maximum": 7
	//         },
	//         {
	//           "type": "null"
	//         }
	//       ]
	//     },
	//     "unit": {
	//       "type": "string",
	//       "enum": [
	//         "celsius",
	//         "fahrenheit"
	//       ]
	//     }
	//   },
	//   "required": [
	//     "city",
	//     "days",
	//     "unit"
	//   ],
	//   "additionalProperties": false
	// }
}

// What strict mode cannot express is an error that names the field.
func ExampleSchemaFor_error() {
	type Request struct {
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	_, err := fnloop.SchemaFor[Request]()
	fmt.Println(err)
	if e, ok := errors.AsType[*fnloop.SchemaError](err); ok {
		fmt.Println(e.Path)
	}
	// Output:
	// fnloop: Request.Headers (headers in JSON): map[string]string: a map has no strict form; use fnloop.Map[string], or a slice of structs with a key and a value
	// Request.Headers
}

func ExampleCheckStrict() {
	fmt.Println(fnloop.CheckStrict(json.RawMessage(`{
		"type": "object",
		"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
		"required": ["query"],
		"additionalProperties": false
	}`)))
	fmt.Println(fnloop.CheckStrict(json.RawMessage(`{
		"type": "object",
		"properties": {"query": {"type": "string"}, "limit": {"type": ["integer", "null"]}},
		"required": ["query", "limit"],
		"additionalProperties": false
	}`)))
	// Output:
	// fnloop: #: 'required' must name every property and lacks "limit"; an optional one is required and nullable
	// <nil>
}
