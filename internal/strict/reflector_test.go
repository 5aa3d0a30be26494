package strict_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// reflected is the type that a Reflector's schema stands for.
var reflected reflect.Type

// Reflected says of itself what the jsonschema package makes of reflected.
type Reflected struct{}

func (Reflected) UnmarshalJSON([]byte) error { return nil }

func (Reflected) JSONSchema() *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true}
	return r.ReflectFromType(reflected)
}

// TestReflectorAsFirstPass has the Reflector of the jsonschema package make the
// schemas of the golden files and of the odd types, with this package's second
// pass behind it, and says of some what is wrong with them. It is why no
// Reflector is used.
func TestReflectorAsFirstPass(t *testing.T) {
	cases := slices.Clone(accepted)
	for _, c := range oddTypes() {
		if c.want[0] != '!' {
			cases = append(cases, typeCase{name: c.name, typ: c.typ})
		}
	}
	same := 0
	verdicts := map[string]string{}
	for _, c := range cases {
		if c.name == "selfish" { // it exhausts the stack, which no recover catches
			continue
		}
		verdict := reflectorVerdict(t, c)
		if verdict == "same" {
			same++
		}
		verdicts[c.name] = verdict
	}
	t.Logf("%d of %d types have the same schema", same, len(cases))
	require.Less(t, same, len(cases)*2/3, "look at it again: the Reflector has become better")
	for name, want := range map[string]string{
		"pointers":     "refuses good arguments", // a pointer is never nullable
		"enums":        "refuses good arguments", // those of booleans and of elements of arrays
		"bytes":        "refuses good arguments", // a named []byte beside a description is a reference
		"outer_first":  "refuses good arguments", // the embedded field wins over the one before it
		"same_name":    "refuses good arguments", // two types of one name are one
		"two_packages": "refuses good arguments",
		"json_number":  "refuses good arguments", // a string
		"texts":        "refused",                // UnmarshalText is not looked at
		"integers":     "refused",                // it panics for a uintptr
		"generic":      "refused",                // names with brackets and slashes
		"recursive":    "refused",                // the root is a reference
	} {
		assert.Equal(t, want, verdicts[name], name)
	}
}

func reflectorVerdict(t *testing.T, c typeCase) (verdict string) {
	ours, err := strict.Schema(c.typ)
	require.NoError(t, err)
	reflected = c.typ
	theirs, err := strict.Schema(of[Reflected]())
	if err != nil {
		return "refused"
	}
	if canonical(t, ours) == canonical(t, theirs) {
		return "same"
	}
	d, err := strict.Compile(theirs)
	require.NoError(t, err)
	for _, args := range c.good {
		if d.Decode([]byte(args), nil) != nil {
			return "refuses good arguments"
		}
	}
	decodes := func(args string) bool { return d.Decode([]byte(args), reflect.New(c.typ).Interface()) == nil }
	if slices.ContainsFunc(c.bad, decodes) {
		return "takes bad arguments"
	}
	return "differs"
}
