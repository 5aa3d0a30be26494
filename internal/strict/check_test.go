package strict_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// property wraps a schema as the only property of a strict root.
func property(schema string) string {
	return `{"type":"object","properties":{"a":` + schema + `},"required":["a"],"additionalProperties":false}`
}

// withDefs is property with definitions.
func withDefs(schema, defs string) string {
	return strings.TrimSuffix(property(schema), "}") + `,"$defs":` + defs + `}`
}

func closed(props string, names ...string) string {
	required, _ := json.Marshal(append([]string{}, names...))
	return `{"type":"object","properties":{` + props + `},"required":` + string(required) + `,"additionalProperties":false}`
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, schema, reason string }{
		{"no_arguments", closed(""), "agents SDKs send it"},
		{"schema_keyword", `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","type":"object","properties":{},"required":[],"additionalProperties":false}`, "tolerated at the root"},
		{"title", `{"title":"T","description":"D","type":"object","properties":{},"required":[],"additionalProperties":false}`, "allowed anywhere"},
		{"scalar_null", property(`{"type":["string","null"]}`), "documented"},
		{"null_scalar", property(`{"type":["null","integer"]}`), "the order does not matter"},
		{"null", property(`{"type":"null"}`), "a type like others"},
		{"any_of", property(`{"description":"d","title":"t","anyOf":[{"type":"string"},{"type":"array","items":{"type":"number"}},{"type":"null"}]}`), "below the root"},
		{"nullable_enum", property(`{"type":["string","null"],"enum":["a",null]}`), "null is in the enum"},
		{"const", property(`{"type":"string","const":"a"}`), "with a type"},
		{"numbers", property(`{"type":"number","minimum":-1.5,"exclusiveMaximum":1e3,"multipleOf":0.5}`), "supported"},
		{"items", property(`{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1}`), "supported"},
		{"pattern", property(`{"type":"string","pattern":"(?i)^[a-z\\d]+(?:x|(?P<n>y))[^\\]]$"}`), "known to both engines"},
		{"format", property(`{"type":"string","format":"ipv6"}`), "supported"},
		{"ref", withDefs(`{"$ref":"#/$defs/b.c-D_1"}`, `{"b.c-D_1":{"type":"string"}}`), "to a definition"},
		{"ref_ref", withDefs(`{"$ref":"#/$defs/b"}`, `{"b":{"$ref":"#/$defs/c"},"c":{"type":"string"}}`), "through another"},
		{"ref_root", property(`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`), "recursion through the root"},
		{"ref_array", withDefs(`{"$ref":"#/$defs/b"}`, `{"b":{"type":"array","items":{"$ref":"#/$defs/b"}}}`), "an empty array ends it"},
		{"ref_wrapped", withDefs(`{"description":"d","anyOf":[{"$ref":"#/$defs/b"}]}`, `{"b":{"type":"string"}}`), "the way to describe a reference"},
		{"unused_definition", withDefs(`{"type":"string"}`, `{"b":{"type":"string"}}`), "not forbidden"},
		{"discriminated", property(`{"anyOf":[` + closed(`"k":{"type":"string","const":"x"}`, "k") + `,` + closed(`"k":{"type":"string","enum":["y","z"]}`, "k") + `]}`), "a constant tells them apart"},
		{"escaped", property(`{"type":"string","enum":["\u00e9","\\","\""]}`), "escapes are read"},
		{"250_long", property(`{"type":"string","enum":` + longValues(250, 100) + `}`), "the limit on text begins above 250 values"},
		{"ten_deep", deep(10), "ten objects were accepted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, strict.Check([]byte(c.schema)), c.reason)
			_, err := strict.Compile([]byte(c.schema))
			require.NoError(t, err)
			independent(t, []byte(c.schema))
		})
	}
}

func longValues(n, size int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%0*d", size, i)
	}
	b, _ := json.Marshal(list)
	return string(b)
}

func deep(n int) string {
	s := `{"type":"string"}`
	for range n {
		s = closed(`"a":`+s, "a")
	}
	return s
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, schema string
		rule         strict.Rule
		path         string // with dots
		about        string // Name
	}{
		{"empty", ``, strict.RuleJSON, "", ""},
		{"not_json", `{`, strict.RuleJSON, "", ""},
		{"trailing", closed("") + "{}", strict.RuleJSON, "", ""},
		{"duplicate", `{"type":"object","type":"object"}`, strict.RuleJSON, "", "type"},
		{"utf8", "{\"type\":\"\xff\"}", strict.RuleJSON, "", ""},
		{"true", `true`, strict.RuleRoot, "", "None"},
		{"array", `[]`, strict.RuleRoot, "", "None"},
		{"no_type", `{}`, strict.RuleRoot, "", "None"},
		{"root_ref", `{"$ref":"#/$defs/a","$defs":{"a":` + closed("") + `}}`, strict.RuleRoot, "", "None"},
		{"root_any_of", `{"anyOf":[` + closed("") + `]}`, strict.RuleRoot, "", "None"},
		{"root_type_list", `{"type":["object"],"properties":{},"required":[],"additionalProperties":false}`, strict.RuleRoot, "", `["object"]`},
		{"root_nullable", `{"type":["object","null"],"properties":{}}`, strict.RuleRoot, "", `["object","null"]`},
		{"root_string", `{"type":"string"}`, strict.RuleRoot, "", "string"},
		{"root_enum", `{"type":"object","properties":{},"required":[],"additionalProperties":false,"enum":[{}]}`, strict.RuleKeyword, "", "enum"},
		{"root_typed_any_of", `{"type":"object","properties":{},"required":[],"additionalProperties":false,"anyOf":[]}`, strict.RuleKeyword, "", "anyOf"},
		{"no_properties", `{"type":"object","required":[],"additionalProperties":false}`, strict.RuleProperties, "", ""},
		{"no_required", `{"type":"object","properties":{},"additionalProperties":false}`, strict.RuleRequired, "", ""},
		{"required_lacks", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`, strict.RuleRequired, "", "b"},
		{"required_extra", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a","b"],"additionalProperties":false}`, strict.RuleExtra, "", "b"},
		{"required_twice", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a","a"],"additionalProperties":false}`, strict.RuleUnique, "", "required"},
		{"required_true", `{"type":"object","properties":{"a":{"type":"string","required":true}},"required":["a"],"additionalProperties":false}`, strict.RuleKeyword, "properties.a", "required"},
		{"open", `{"type":"object","properties":{},"required":[]}`, strict.RuleClosed, "", "additionalProperties"},
		{"open_true", `{"type":"object","properties":{},"required":[],"additionalProperties":true}`, strict.RuleClosed, "", "additionalProperties"},
		{"open_schema", property(`{"type":"object","properties":{},"required":[],"additionalProperties":{"type":"string"}}`), strict.RuleClosed, "properties.a", "additionalProperties"},
		{"open_in_items", property(`{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}`), strict.RuleClosed, "properties.a.items", "additionalProperties"},
		{"open_in_branch", property(`{"anyOf":[{"type":"null"},{"type":"object","properties":{},"required":[]}]}`), strict.RuleClosed, "properties.a.anyOf.1", "additionalProperties"},
		{"open_in_definition", withDefs(`{"type":"string"}`, `{"d":{"type":"object","properties":{},"required":[]}}`), strict.RuleClosed, "$defs.d", "additionalProperties"},
		{"empty_object", property(closed("")), strict.RuleCaution, "properties.a", "empty object"},
		{"empty_schema", property(`{}`), strict.RuleType, "properties.a", ""},
		{"true_schema", property(`true`), strict.RuleSchema, "properties.a", ""},
		{"enum_alone", property(`{"enum":["a"]}`), strict.RuleType, "properties.a", ""},
		{"const_alone", property(`{"const":"a"}`), strict.RuleType, "properties.a", ""},
		{"unknown_type", property(`{"type":"text"}`), strict.RuleType, "properties.a", "text"},
		{"two_types", property(`{"type":["string","integer"]}`), strict.RuleType, "properties.a", `["string","integer"]`},
		{"one_type", property(`{"type":["string"]}`), strict.RuleType, "properties.a", `["string"]`},
		{"array_null", property(`{"type":["array","null"],"items":{"type":"string"}}`), strict.RuleType, "properties.a", `["array","null"]`},
		{"object_null", property(`{"type":["object","null"],"properties":{},"required":[],"additionalProperties":false}`), strict.RuleType, "properties.a", `["object","null"]`},
		{"nullable", property(`{"type":"string","nullable":true}`), strict.RuleKeyword, "properties.a", "nullable"},
		{"no_items", property(`{"type":"array"}`), strict.RuleItems, "properties.a", ""},
		{"items_list", property(`{"type":"array","items":[{"type":"string"}]}`), strict.RuleSchema, "properties.a.items", ""},
		{"prefix_items", property(`{"type":"array","prefixItems":[],"items":{"type":"string"}}`), strict.RuleKeyword, "properties.a", "prefixItems"},
		{"unique_items", property(`{"type":"array","items":{"type":"string"},"uniqueItems":true}`), strict.RuleKeyword, "properties.a", "uniqueItems"},
		{"one_of", property(`{"oneOf":[{"type":"string"}]}`), strict.RuleKeyword, "properties.a", "oneOf"},
		{"all_of", property(`{"allOf":[{"type":"string"}]}`), strict.RuleKeyword, "properties.a", "allOf"},
		{"not", property(`{"type":"string","not":{"type":"null"}}`), strict.RuleKeyword, "properties.a", "not"},
		{"if", property(`{"type":"string","if":{"type":"null"}}`), strict.RuleKeyword, "properties.a", "if"},
		{"pattern_properties", property(`{"type":"object","patternProperties":{}}`), strict.RuleKeyword, "properties.a", "patternProperties"},
		{"min_length", property(`{"type":"string","minLength":1}`), strict.RuleKeyword, "properties.a", "minLength"},
		{"default", property(`{"type":"string","default":"x"}`), strict.RuleKeyword, "properties.a", "default"},
		{"comment", property(`{"type":"string","$comment":"x"}`), strict.RuleKeyword, "properties.a", "$comment"},
		{"nested_id", property(`{"type":"string","$id":"x"}`), strict.RuleKeyword, "properties.a", "$id"},
		{"nested_defs", property(`{"type":"string","$defs":{}}`), strict.RuleKeyword, "properties.a", "$defs"},
		{"wrong_place", property(`{"type":"string","minimum":1}`), strict.RuleKeyword, "properties.a", "minimum"},
		{"items_on_string", property(`{"type":"string","items":{"type":"string"}}`), strict.RuleKeyword, "properties.a", "items"},
		{"enum_on_null", property(`{"type":"null","enum":[null]}`), strict.RuleKeyword, "properties.a", "enum"},
		{"enum_on_array", property(`{"type":"array","items":{"type":"string"},"enum":[[]]}`), strict.RuleKeyword, "properties.a", "enum"},
		{"enum_empty", property(`{"type":"string","enum":[]}`), strict.RuleValue, "properties.a", "enum"},
		{"enum_type", property(`{"type":"integer","enum":[1,1.5]}`), strict.RuleValue, "properties.a", "enum"},
		{"enum_string", property(`{"type":"integer","enum":["1"]}`), strict.RuleValue, "properties.a", "enum"},
		{"enum_twice", property(`{"type":"number","enum":[1,1.0]}`), strict.RuleUnique, "properties.a", "enum"},
		{"enum_without_null", property(`{"type":["string","null"],"enum":["a"]}`), strict.RuleCaution, "properties.a", "null enum"},
		{"const_type", property(`{"type":"integer","const":"a"}`), strict.RuleValue, "properties.a", "const"},
		{"const_not_in_enum", property(`{"type":"string","const":"a","enum":["b"]}`), strict.RuleValue, "properties.a", "const"},
		{"format", property(`{"type":"string","format":"uri"}`), strict.RuleValue, "properties.a", "format"},
		{"pattern_broken", property(`{"type":"string","pattern":"["}`), strict.RuleValue, "properties.a", "pattern"},
		{"pattern_type", property(`{"type":"string","pattern":1}`), strict.RuleValue, "properties.a", "pattern"},
		{"look_ahead", property(`{"type":"string","pattern":"^(?!x)"}`), strict.RuleValue, "properties.a", "pattern"},
		{"look_behind", property(`{"type":"string","pattern":"(?<=x)y"}`), strict.RuleValue, "properties.a", "pattern"},
		{"back_reference", property(`{"type":"string","pattern":"(a)\\1"}`), strict.RuleValue, "properties.a", "pattern"},
		{"unicode_class", property(`{"type":"string","pattern":"\\p{Lu}"}`), strict.RuleValue, "properties.a", "pattern"},
		{"end_of_text", property(`{"type":"string","pattern":"x\\z"}`), strict.RuleValue, "properties.a", "pattern"},
		{"quoting", property(`{"type":"string","pattern":"\\Qx\\E"}`), strict.RuleValue, "properties.a", "pattern"},
		{"group_name", property(`{"type":"string","pattern":"(?<n>x)"}`), strict.RuleValue, "properties.a", "pattern"},
		{"late_flag", property(`{"type":"string","pattern":"x(?i)y"}`), strict.RuleValue, "properties.a", "pattern"},
		{"go_flag", property(`{"type":"string","pattern":"(?U)x+"}`), strict.RuleValue, "properties.a", "pattern"},
		{"posix_class", property(`{"type":"string","pattern":"[[:alpha:]]"}`), strict.RuleValue, "properties.a", "pattern"},
		{"min_items", property(`{"type":"array","items":{"type":"string"},"minItems":-1}`), strict.RuleValue, "properties.a", "minItems"},
		{"min_above_max", property(`{"type":"integer","minimum":2,"maximum":1}`), strict.RuleValue, "properties.a", "minimum"},
		{"minimum_type", property(`{"type":"integer","minimum":"1"}`), strict.RuleValue, "properties.a", "minimum"},
		{"multiple_of_zero", property(`{"type":"integer","multipleOf":0}`), strict.RuleValue, "properties.a", "multipleOf"},
		{"description_type", property(`{"type":"integer","description":1}`), strict.RuleValue, "properties.a", "description"},
		{"any_of_empty", property(`{"anyOf":[]}`), strict.RuleValue, "properties.a", "anyOf"},
		{"any_of_type", property(`{"type":"string","anyOf":[{"type":"string"}]}`), strict.RuleKeyword, "properties.a", "type"},
		{"first_key", property(`{"anyOf":[` + closed(`"x":{"type":"string"}`, "x") + `,` + closed(`"x":{"type":"integer"},"y":{"type":"null"}`, "x", "y") + `]}`), strict.RuleCaution, "properties.a", "first key"},
		{"ref_description", withDefs(`{"$ref":"#/$defs/b","description":"d"}`, `{"b":{"type":"string"}}`), strict.RuleRef, "properties.a", "#/$defs/b"},
		{"ref_missing", withDefs(`{"$ref":"#/$defs/c"}`, `{"b":{"type":"string"}}`), strict.RuleRef, "properties.a", "#/$defs/c"},
		{"ref_properties", property(`{"$ref":"#/properties/a"}`), strict.RuleRef, "properties.a", "#/properties/a"},
		{"ref_below", withDefs(`{"$ref":"#/$defs/b/items"}`, `{"b":{"type":"array","items":{"type":"string"}}}`), strict.RuleRef, "properties.a", "#/$defs/b/items"},
		{"ref_remote", property(`{"$ref":"https://example.com/x"}`), strict.RuleRef, "properties.a", "https://example.com/x"},
		{"definition_name", withDefs(`{"type":"string"}`, `{"a/b":{"type":"string"}}`), strict.RuleCaution, "", "definition name"},
		{"definition_empty", withDefs(`{"type":"string"}`, `{"b":{}}`), strict.RuleType, "$defs.b", ""},
		{"endless_root", property(`{"$ref":"#"}`), strict.RuleFinite, "", "#"},
		{"endless_definition", withDefs(`{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]}`, `{"b":`+closed(`"c":{"$ref":"#/$defs/b"}`, "c")+`}`), strict.RuleFinite, "$defs.b", "b"},
		{"endless_array", withDefs(`{"type":"null"}`, `{"b":{"type":"array","items":{"$ref":"#/$defs/b"},"minItems":1}}`), strict.RuleFinite, "$defs.b", "b"},
		{"ref_to_itself", withDefs(`{"type":"null"}`, `{"b":{"$ref":"#/$defs/b"}}`), strict.RuleFinite, "$defs.b", "b"},
		{"ref_circle", withDefs(`{"anyOf":[{"$ref":"#/$defs/b"}]}`, `{"b":{"$ref":"#/$defs/c"},"c":{"anyOf":[{"$ref":"#/$defs/b"}]}}`), strict.RuleFinite, "$defs.b", "b"},
		{"eleven_deep", deep(11), strict.RuleLimit, "", "levels of objects"},
		{"deep_through_refs", withDefs(`{"$ref":"#/$defs/b"}`, `{"b":`+deep(10)+`}`), strict.RuleLimit, "", "levels of objects"},
		{"enum_values", property(`{"type":"string","enum":` + longValues(1001, 4) + `}`), strict.RuleLimit, "properties.a", "enum values"},
		{"enum_text", property(`{"type":"string","enum":` + longValues(251, 60) + `}`), strict.RuleLimit, "properties.a", "enum text"},
		{"const_text", property(`{"type":"string","const":"` + strings.Repeat("x", 120000) + `"}`), strict.RuleLimit, "properties.a", "characters in names, enum and const values"},
		{"nesting", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), strict.RuleJSON, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := strict.Check([]byte(c.schema))
			require.Error(t, err)
			e, ok := errors.AsType[*strict.Error](err)
			require.True(t, ok)
			require.Equal(t, c.rule, e.Rule, "%v", e)
			require.Equal(t, c.path, strings.Join(e.Path, "."), "%v", e)
			require.Equal(t, c.about, e.Name, "%v", e)
			require.NotEmpty(t, e.Reason)
			_, err2 := strict.Compile([]byte(c.schema))
			require.Equal(t, err, err2, "Compile and Check must agree")
		})
	}
}

func TestErrorPointer(t *testing.T) {
	e := &strict.Error{Path: []string{"properties", "a/b~c"}, Reason: "r"}
	require.Equal(t, "#/properties/a~1b~0c: r", e.Error())
}

// TestCheckManyPaths makes sure that the depth of a dense graph of references
// is found without walking every path through it.
func TestCheckManyPaths(t *testing.T) {
	t.Parallel()
	var defs strings.Builder
	const n = 60
	for i := range n {
		var props, names []string
		for j := range n {
			props = append(props, fmt.Sprintf(`"p%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"type":"null"}]}`, j, j))
			names = append(names, fmt.Sprintf("p%d", j))
		}
		fmt.Fprintf(&defs, `,"d%d":%s`, i, closed(strings.Join(props, ","), names...))
	}
	_ = strict.Check([]byte(withDefs(`{"$ref":"#/$defs/d0"}`, "{"+defs.String()[1:]+"}")))
}

// TestCheckFollowsReferencesOnce has a chain of references that many branches
// lead into. To follow it anew for each took ten seconds.
func TestCheckFollowsReferencesOnce(t *testing.T) {
	t.Parallel()
	const n = 20_000
	var branches, defs strings.Builder
	for i := range n {
		branches.WriteString(`{"$ref":"#/$defs/d0"},`)
		fmt.Fprintf(&defs, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	schema := withDefs(`{"anyOf":[`+strings.TrimSuffix(branches.String(), ",")+`]}`, fmt.Sprintf(`{%s"d%d":{"type":"string"}}`, defs.String(), n))
	start := time.Now()
	require.NoError(t, strict.Check([]byte(schema)))
	require.Less(t, time.Since(start), 5*time.Second)
}
