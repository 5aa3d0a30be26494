package strict_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,66}$`)

// verdict lists what a second, simpler reading of the rules of strict mode has
// against a schema. It shares no code with the package.
func verdict(schema []byte) []string {
	dec := json.NewDecoder(strings.NewReader(string(schema)))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	say := func(path, format string, args ...any) {
		faults = append(faults, path+": "+fmt.Sprintf(format, args...))
	}
	defs, _ := root["$defs"].(map[string]any)
	if root["type"] != "object" {
		say("#", "root type %v", root["type"])
	}
	properties, values, chars := 0, 0, 0
	allowed := map[string]string{
		"properties": "object", "required": "object", "additionalProperties": "object",
		"items": "array", "minItems": "array", "maxItems": "array",
		"pattern": "string", "format": "string",
		"minimum": "integer number", "maximum": "integer number", "exclusiveMinimum": "integer number",
		"exclusiveMaximum": "integer number", "multipleOf": "integer number",
		"enum": "string integer number boolean", "const": "string integer number boolean",
		"type": "*", "title": "*", "description": "*",
	}
	var node func(path string, v any)
	node = func(path string, v any) {
		m, ok := v.(map[string]any)
		if !ok || len(m) == 0 {
			say(path, "not a schema: %v", v)
			return
		}
		if ref, ok := m["$ref"]; ok {
			s, _ := ref.(string)
			name, isDef := strings.CutPrefix(s, "#/$defs/")
			if len(m) != 1 || s != "#" && (!isDef || defs[name] == nil) {
				say(path, "ref %v", m)
			}
			return
		}
		if branches, ok := m["anyOf"]; ok {
			list, _ := branches.([]any)
			if len(list) == 0 || path == "#" {
				say(path, "anyOf")
			}
			for k := range m {
				if k != "anyOf" && k != "title" && k != "description" {
					say(path, "%s beside anyOf", k)
				}
			}
			for i, b := range list {
				node(fmt.Sprintf("%s/anyOf/%d", path, i), b)
			}
			return
		}
		var typ string
		null := false
		switch x := m["type"].(type) {
		case string:
			typ = x
		case []any:
			if len(x) != 2 || x[1] != "null" {
				say(path, "type %v", x)
				return
			}
			typ, _ = x[0].(string)
			null = true
			if typ == "array" || typ == "object" {
				say(path, "nullable container as type array")
			}
		}
		if !strings.Contains(" string number integer boolean object array null ", " "+typ+" ") || typ == "" {
			say(path, "type %v", m["type"])
		}
		for k := range m {
			on, known := allowed[k]
			if path == "#" && k == "$defs" {
				continue
			}
			if !known || on != "*" && !strings.Contains(on, typ) {
				say(path, "keyword %s on %s", k, typ)
			}
		}
		if e, ok := m["enum"]; ok {
			list, _ := e.([]any)
			if len(list) == 0 {
				say(path, "enum")
			}
			hasNull := false
			for _, x := range list {
				values++
				switch x := x.(type) {
				case string:
					chars += len([]rune(x))
					if typ != "string" {
						say(path, "enum value %v", x)
					}
				case json.Number:
					if typ != "number" && (typ != "integer" || strings.ContainsAny(x.String(), ".eE")) {
						say(path, "enum value %v", x)
					}
				case bool:
					if typ != "boolean" {
						say(path, "enum value %v", x)
					}
				case nil:
					hasNull = true
				default:
					say(path, "enum value %v", x)
				}
			}
			if null != hasNull {
				say(path, "enum and null")
			}
		}
		if f, ok := m["format"]; ok && !strings.Contains(" date-time time date duration email hostname ipv4 ipv6 uuid ", fmt.Sprintf(" %v ", f)) {
			say(path, "format %v", f)
		}
		if p, ok := m["pattern"]; ok {
			s := p.(string)
			if _, err := regexp.Compile(s); err != nil || strings.Contains(s, `\p`) || strings.Contains(s, `\z`) || strings.Contains(s, "(?<") {
				say(path, "pattern %s", s)
			}
		}
		if typ == "array" {
			node(path+"/items", m["items"])
		}
		if typ == "object" {
			props, ok := m["properties"].(map[string]any)
			if !ok || len(props) == 0 && path != "#" {
				say(path, "properties %v", m["properties"])
			}
			if m["additionalProperties"] != false {
				say(path, "open")
			}
			required, ok := m["required"].([]any)
			if !ok || len(required) != len(props) {
				say(path, "required %v", m["required"])
			}
			for _, r := range required {
				if _, ok := props[r.(string)]; !ok {
					say(path, "required %v", r)
				}
			}
			for k, p := range props {
				properties++
				chars += len([]rune(k))
				node(path+"/"+k, p)
			}
		}
	}
	node("#", root)
	for k, d := range defs {
		chars += len([]rune(k))
		if !plainName.MatchString(k) {
			say("#", "definition name %s", k)
		}
		node("#/$defs/"+k, d)
	}
	if properties > 5000 || values > 1000 || chars > 120000 {
		say("#", "%d properties, %d enum values, %d characters", properties, values, chars)
	}
	if len(faults) > 0 {
		return faults
	}
	// Depth along every path, each reference at most once on it.
	var depth func(v any, on map[string]bool) int
	depth = func(v any, on map[string]bool) int {
		m := v.(map[string]any)
		if ref, ok := m["$ref"].(string); ok {
			if on[ref] {
				return 0
			}
			on[ref] = true
			defer delete(on, ref)
			if ref == "#" {
				return depth(root, on)
			}
			return depth(defs[strings.TrimPrefix(ref, "#/$defs/")], on)
		}
		most := 0
		if p, ok := m["properties"].(map[string]any); ok {
			for _, x := range p {
				most = max(most, depth(x, on))
			}
		}
		if x, ok := m["items"]; ok {
			most = max(most, depth(x, on))
		}
		if list, ok := m["anyOf"].([]any); ok {
			for _, x := range list {
				most = max(most, depth(x, on))
			}
		}
		if m["type"] == "object" {
			most++
		}
		return most
	}
	if d := depth(root, map[string]bool{"#": true}); d > 10 {
		say("#", "depth %d", d)
	}
	return faults
}

// TestSchemaKeepsTheRules holds every schema that is made to the second reading.
func TestSchemaKeepsTheRules(t *testing.T) {
	t.Parallel()
	for _, c := range accepted {
		schema, err := strict.Schema(c.typ)
		require.NoError(t, err, c.name)
		require.Empty(t, verdict(schema), "%s: %s", c.name, schema)
	}
}

// TestCheckDepthOfCycles compares the depth of random schemas whose definitions
// refer to each other.
func TestCheckDepthOfCycles(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	verdicts := map[bool]int{}
	for range 400 {
		n := 2 + r.IntN(4)
		ref := func() string {
			if i := r.IntN(n + 1); i < n {
				return fmt.Sprintf(`{"$ref":"#/$defs/D%d"}`, i)
			}
			return `{"$ref":"#"}`
		}
		node := func() string {
			chain := `{"type":"integer"}`
			for range r.IntN(6) {
				chain = closed(`"x":`+chain, "x")
			}
			return closed(`"a":{"anyOf":[{"type":"null"},`+ref()+`]},"b":{"type":"array","items":`+ref()+`},"c":`+chain, "a", "b", "c")
		}
		defs := make([]string, n)
		for i := range defs {
			defs[i] = fmt.Sprintf(`"D%d":%s`, i, node())
		}
		schema := strings.TrimSuffix(node(), "}") + `,"$defs":{` + strings.Join(defs, ",") + `}}`
		faults := verdict([]byte(schema))
		err := strict.Check([]byte(schema))
		require.Equal(t, len(faults) == 0, err == nil, "%s: %v, %v", schema, err, faults)
		verdicts[err == nil]++
	}
	require.Len(t, verdicts, 2, "both verdicts must come up")
}

// TestCheckByHand judges schemas as people write them.
func TestCheckByHand(t *testing.T) {
	t.Parallel()
	p := property
	d := func(schema, defs string) string { return withDefs(schema, "{"+defs+"}") }
	o := closed(`"x":{"type":"string"}`, "x")
	good := []string{
		`{"type":"object","properties":{},"required":[],"additionalProperties":false}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","title":"t","description":"d","type":"object","properties":{},"required":[],"additionalProperties":false}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"A":{"type":"string"}},"type":"object","properties":{},"required":[],"additionalProperties":false}`,
		p(`{"type":"string"}`), p(`{"type":["string","null"]}`), p(`{"type":["null","number"]}`), p(`{"type":"null"}`),
		p(`{"type":["string","null"],"enum":["a",null]}`),
		p(`{"anyOf":[{"type":"string","enum":["a"]},{"type":"null"}]}`),
		p(`{"type":"integer","enum":[1,2]}`), p(`{"type":"number","enum":[1,2.5]}`), p(`{"type":"boolean","enum":[true]}`),
		p(`{"type":"string","const":"x"}`), p(`{"type":"integer","const":1}`),
		p(`{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":3}`),
		p(`{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}],"description":"d","title":"t"}`),
		p(`{"type":"number","minimum":-130,"maximum":130,"multipleOf":0.5,"exclusiveMinimum":-200,"exclusiveMaximum":200}`),
		p(`{"type":"string","pattern":"^@[a-zA-Z0-9_]+$"}`), p(`{"type":"string","format":"email","description":"x"}`),
		p(o), p(`{"anyOf":[` + o + `,{"type":"null"}]}`),
		d(`{"$ref":"#/$defs/A"}`, `"A":`+o), d(`{"anyOf":[{"$ref":"#/$defs/A"},{"type":"null"}],"description":"d"}`, `"A":`+o),
		d(`{"$ref":"#/$defs/A.b-c_1"}`, `"A.b-c_1":{"type":"string"}`),
		p(`{"type":"array","items":{"$ref":"#"}}`), p(`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`),
		// OpenAI's documentation: anyOf of objects, linked list, definitions
		`{"type":"object","properties":{"item":{"anyOf":[{"type":"object","description":"The user object to insert into the database","properties":{"name":{"type":"string","description":"The name of the user"},"age":{"type":"number","description":"The age of the user"}},"additionalProperties":false,"required":["name","age"]},{"type":"object","description":"The address object","properties":{"number":{"type":"string"},"street":{"type":"string"},"city":{"type":"string"}},"additionalProperties":false,"required":["number","street","city"]}]}},"additionalProperties":false,"required":["item"]}`,
		`{"type":"object","properties":{"linked_list":{"$ref":"#/$defs/linked_list_node"}},"$defs":{"linked_list_node":{"type":"object","properties":{"value":{"type":"number"},"next":{"anyOf":[{"$ref":"#/$defs/linked_list_node"},{"type":"null"}]}},"additionalProperties":false,"required":["next","value"]}},"required":["linked_list"],"additionalProperties":false}`,
		`{"type":"object","properties":{"type":{"type":"string","description":"The type of the UI component","enum":["div","button"]},"children":{"type":"array","description":"Nested UI components","items":{"$ref":"#"}}},"required":["type","children"],"additionalProperties":false}`,
		p(`{"anyOf":[{"type":"object","properties":{"k":{"type":"string","const":"a"}},"required":["k"],"additionalProperties":false},{"type":"object","properties":{"k":{"type":"string","enum":["b"]}},"required":["k"],"additionalProperties":false}]}`),
		`{"type":"object","properties":{"$ref":{"type":"string"},"anyOf":{"type":"string"},"":{"type":"string"},"a/b":{"type":"string"},"nullable":{"type":"string"}},"required":["$ref","anyOf","","a/b","nullable"],"additionalProperties":false}`,
		"\n" + p(`{"type":"string","pattern":"^[^\\]]+(?P<n>x)(?i:y)$"}`) + " ",
	}
	bad := []string{
		``, `null`, `true`, `[]`, `{}`, `{"type":"object"}`, `"x"`, `{`,
		`{"type":["object"],"properties":{},"required":[],"additionalProperties":false}`,
		`{"type":["object","null"],"properties":{},"required":[],"additionalProperties":false}`,
		`{"type":"array","items":{"type":"string"}}`, `{"type":"string"}`,
		`{"$ref":"#/$defs/A","$defs":{"A":` + o + `}}`, `{"anyOf":[` + o + `]}`,
		strings.Replace(p(`{"type":"string"}`), "{", `{"anyOf":[],`, 1), strings.Replace(p(`{"type":"string"}`), "{", `{"enum":[{}],`, 1), strings.Replace(p(`{"type":"string"}`), "{", `{"not":{},`, 1),
		`{"type":"object","properties":{},"required":[]}`, `{"type":"object","properties":{},"additionalProperties":false}`, `{"type":"object","required":[],"additionalProperties":false}`,
		`{"type":"object","properties":{},"required":[],"additionalProperties":true}`, `{"type":"object","properties":{},"required":[],"additionalProperties":{}}`, `{"type":"object","properties":{},"required":[],"additionalProperties":"false"}`,
		`{"type":"object","properties":{},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{},"required":null,"additionalProperties":false}`, `{"type":"object","properties":[],"required":[],"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{"a":{"type":"string"}},"required":["a","a"],"additionalProperties":false}`,
		p(`{}`), p(`true`), p(`null`), p(`[]`), p(`{"description":"x"}`), p(`{"enum":["a"]}`), p(`{"const":"a"}`), p(`{"type":"any"}`), p(`{"type":"String"}`), p(`{"type":null}`), p(`{"type":[]}`), p(`{"type":["string"]}`), p(`{"type":["string","integer"]}`), p(`{"type":["string","integer","null"]}`), p(`{"type":["null","null"]}`),
		p(`{"type":["array","null"],"items":{"type":"string"}}`), p(`{"type":["object","null"],"properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}`),
		p(`{"type":"string","nullable":true}`), p(`{"type":"null","enum":[null]}`), p(`{"type":"null","const":null}`), p(`{"type":"string","enum":["a",null]}`), p(`{"type":["string","null"],"enum":["a"]}`),
		p(`{"type":"integer","enum":[1.5]}`), p(`{"type":"string","enum":[1]}`), p(`{"type":"string","enum":[]}`), p(`{"type":"string","enum":["a","a"]}`), p(`{"type":"integer","enum":[1,1.0]}`), p(`{"type":"string","enum":"a"}`), p(`{"type":"integer","const":"a"}`), p(`{"type":"object","enum":[{}],"properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}`),
		p(`{"type":"array"}`), p(`{"type":"array","items":{}}`), p(`{"type":"array","items":true}`), p(`{"type":"array","items":[{"type":"string"}]}`), p(`{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"string"}}`), p(`{"type":"array","items":{"type":"string"},"uniqueItems":true}`), p(`{"type":"array","items":{"type":"string"},"contains":{"type":"string"}}`), p(`{"type":"array","items":{"type":"string"},"minItems":-1}`), p(`{"type":"array","items":{"type":"string"},"minItems":1.5}`), p(`{"type":"array","items":{"type":"string"},"minItems":3,"maxItems":2}`), p(`{"type":"array","items":{"type":"string"},"unevaluatedItems":false}`), p(`{"type":"array","items":{"type":"string"},"minItems":"1"}`),
		p(`{"type":"string","minLength":1}`), p(`{"type":"string","maxLength":1}`), p(`{"type":"string","format":"uri"}`), p(`{"type":"integer","format":"int64"}`), p(`{"type":"string","format":1}`), p(`{"type":"string","pattern":"(?=a)"}`), p(`{"type":"string","pattern":"(?!a)"}`), p(`{"type":"string","pattern":"(?<=a)b"}`), p(`{"type":"string","pattern":"\\p{L}"}`), p(`{"type":"string","pattern":"a\\z"}`), p(`{"type":"string","pattern":"\\Qa\\E"}`), p(`{"type":"string","pattern":"(?<n>a)"}`), p(`{"type":"string","pattern":"a(?i)"}`), p(`{"type":"string","pattern":"["}`), p(`{"type":"string","pattern":1}`), p(`{"type":"string","default":"x"}`), p(`{"type":"string","examples":["x"]}`), p(`{"type":"string","readOnly":true}`), p(`{"type":"string","minimum":1}`), p(`{"type":"integer","minimum":"1"}`), p(`{"type":"integer","minimum":3,"maximum":2}`), p(`{"type":"integer","multipleOf":0}`), p(`{"type":"integer","exclusiveMinimum":true}`), p(`{"type":"string","title":1}`), p(`{"type":"string","description":["x"]}`),
		p(`{"oneOf":[{"type":"string"}]}`), p(`{"allOf":[{"type":"string"}]}`), p(`{"not":{"type":"string"}}`), p(`{"type":"string","not":{"type":"string"}}`), p(`{"anyOf":[]}`), p(`{"anyOf":[{}]}`), p(`{"anyOf":[true]}`), p(`{"anyOf":{"type":"string"}}`), p(`{"type":"string","anyOf":[{"type":"string"}]}`), p(`{"anyOf":[{"type":"string"}],"default":1}`),
		p(strings.Replace(o, "{", `{"if":{"type":"string"},`, 1)), p(strings.Replace(o, "{", `{"dependentRequired":{},`, 1)), p(strings.Replace(o, "{", `{"dependentSchemas":{},`, 1)), p(strings.Replace(o, "{", `{"propertyNames":{},`, 1)), p(strings.Replace(o, "{", `{"minProperties":1,`, 1)), p(strings.Replace(o, "{", `{"maxProperties":1,`, 1)), p(strings.Replace(o, "{", `{"unevaluatedProperties":false,`, 1)), p(strings.Replace(o, "{", `{"patternProperties":{},`, 1)), p(strings.Replace(o, "{", `{"$defs":{},`, 1)), p(strings.Replace(o, "{", `{"$id":"x",`, 1)), p(strings.Replace(o, "{", `{"$schema":"x",`, 1)), p(strings.Replace(o, "{", `{"definitions":{},`, 1)), p(strings.Replace(o, "{", `{"$anchor":"x",`, 1)), p(strings.Replace(o, "{", `{"discriminator":{},`, 1)), p(strings.Replace(o, "{", `{"then":{},`, 1)), p(strings.Replace(o, "{", `{"else":{},`, 1)),
		p(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`), p(`{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}`), p(`{"type":"object","patternProperties":{"a":{"type":"string"}},"additionalProperties":false}`), p(`{"type":"object","additionalProperties":{"type":"string"}}`),
		d(`{"$ref":"#/$defs/B"}`, `"A":`+o), d(`{"$ref":"#/$defs/A","description":"x"}`, `"A":`+o), d(`{"$ref":"#/$defs/A","type":"object"}`, `"A":`+o), d(`{"$ref":"#/$defs/A/properties/x"}`, `"A":`+o), d(`{"$ref":"#/properties/a"}`, `"A":`+o), d(`{"$ref":"https://x/y"}`, `"A":`+o), d(`{"$ref":"#/$defs/A b"}`, `"A b":`+o), d(`{"$ref":"#/$defs/A~1b"}`, `"A/b":`+o), d(`{"$ref":"A"}`, `"A":`+o), d(`{"$ref":""}`, `"A":`+o), d(`{"$ref":1}`, `"A":`+o), d(`{"$ref":"#/definitions/A"}`, `"A":`+o),
		d(`{"$ref":"#/$defs/A"}`, `"A":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}`), d(`{"type":"string"}`, `"A":{}`), d(`{"type":"string"}`, `"A":{"$ref":"#/$defs/A"}`), d(`{"$ref":"#/$defs/A"}`, `"A":{"anyOf":[{"$ref":"#/$defs/A"}]}`), p(`{"$ref":"#"}`), d(`{"$ref":"#/$defs/A"}`, `"A":{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"additionalProperties":false}`), d(`{"$ref":"#/$defs/A"}`, `"A":{"type":"object","properties":{"a":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/A"}}},"required":["a"],"additionalProperties":false}`),
		p(`{"anyOf":[` + o + `,` + o + `]}`), p(`{"type":"string"},"a":{"type":"string"}`), p(`{"type":"string","type":"string"}`), p(`{"type":"string"}`) + "x", p("{\"type\":\"str\xff\"}"),
	}
	for _, s := range good {
		require.NoError(t, strict.Check([]byte(s)), s)
	}
	for _, s := range bad {
		require.Error(t, strict.Check([]byte(s)), s)
	}
}

// TestCheckInLinearTime has schemas of thousands of definitions and branches.
func TestCheckInLinearTime(t *testing.T) {
	t.Parallel()
	const n = 5000
	chain := func(format string) string {
		var defs strings.Builder
		for i := range n {
			fmt.Fprintf(&defs, `"D%d":`+format+`,`, i, i+1)
		}
		return fmt.Sprintf(`{%s"D%d":{"type":"string"}}`, defs.String(), n)
	}
	many := func(format string) string {
		list := make([]string, n-1)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(list, ",")
	}
	refs := `{"type":"object","properties":{` + many(`"p%d":{"$ref":"#/$defs/D0"}`) + `},"required":[` + many(`"p%d"`) + `],"additionalProperties":false,"$defs":`
	for _, schema := range []string{
		withDefs(`{"$ref":"#/$defs/D0"}`, chain(`{"type":"array","minItems":1,"items":{"$ref":"#/$defs/D%d"}}`)),
		refs + chain(`{"$ref":"#/$defs/D%d"}`) + `}`,
		property(`{"anyOf":[` + many(closed(`"k":{"type":"integer","const":%d}`, "k")) + `]}`),
	} {
		start := time.Now()
		_, err := strict.Compile([]byte(schema))
		require.NoError(t, err)
		require.Less(t, time.Since(start), 5*time.Second, "%.80s", schema) // it takes milliseconds
	}
}

type endless struct{ A string }

func (endless) JSONSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties()}
	s.Properties.Set("a", &jsonschema.Schema{Type: "array", Items: s})
	return s
}

type endlessList struct{ A string }

func (endlessList) JSONSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "array"}
	s.Items = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s}}
	return s
}

// A schema that holds itself cannot be written, and is refused before the stack
// is exhausted.
func TestEndlessSchema(t *testing.T) {
	_, err := strict.Schema(reflect.TypeFor[struct {
		E endless `json:"e"`
	}]())
	assert.ErrorContains(t, err, "holds itself")
	_, err = strict.Schema(reflect.TypeFor[struct {
		E endlessList `json:"e"`
	}]())
	assert.ErrorContains(t, err, "holds itself")
}
