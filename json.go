package fnloop

import (
	"slices"

	"github.com/invopop/jsonschema"

	"github.com/fnloop/fnloop/internal/strict"
)

// JSON is a field of a tool's arguments that may hold any JSON, which strict
// mode has no type for: the model writes it as the text of a string, and that
// the text is one JSON value is checked before the handler runs. Read it with
// [json.Unmarshal].
//
//	type change struct {
//		Value fnloop.JSON `json:"value" jsonschema:"description=The new value."`
//	}
type JSON []byte

// JSONSchema says that JSON is a string.
func (JSON) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: "Any JSON value, as text in this string."}
}

// UnmarshalText takes text that is one JSON value without duplicate keys.
func (j *JSON) UnmarshalText(text []byte) error {
	if err := strict.Valid(text); err != nil {
		return err
	}
	*j = slices.Clone(text)
	return nil
}

// MarshalText gives the JSON, or null if there is none.
func (j JSON) MarshalText() ([]byte, error) {
	if len(j) == 0 {
		return []byte("null"), nil
	}
	return j, nil
}
