package responsestest

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// refused are the keywords that a strict schema may not hold.
var refused = []string{
	"allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties",
	"unevaluatedProperties", "unevaluatedItems", "propertyNames", "minProperties", "maxProperties", "prefixItems",
	"uniqueItems", "contains", "minContains", "maxContains",
}

// formats are the formats that a strict schema may ask for.
var formats = []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

var (
	lookAround = regexp.MustCompile(`\(\?<?[=!]`)
	refTarget  = regexp.MustCompile(`^#(/(\$defs|definitions)/[^/]+)?$`)
)

// maxDepth is how many objects may hold each other, the root counted.
const maxDepth = 10

// strictFault judges a schema as the service judges the parameters of a strict tool. It refuses only what
// the service is known to refuse. The message is empty if there is no fault; context is the path to it.
func strictFault(schema json.RawMessage) (context []string, message string) {
	const notAnObject = `schema must be a JSON Schema of 'type: "object"', got 'type: "`
	if kindOf(schema) == kindNull {
		return nil, notAnObject + `None"'.`
	}
	o, err := decodeObject(schema)
	if err != nil {
		return nil, notAnObject + `None"'.`
	}
	switch typ := o.str("type"); {
	case typ == "object":
	case typ != "":
		return nil, notAnObject + typ + `"'.`
	default:
		return nil, notAnObject + `None"'.`
	}
	for _, key := range []string{"anyOf", "enum"} {
		if o.has(key) {
			return []string{}, "'" + key + "' is not permitted."
		}
	}
	context, message = nodeFault([]string{}, o, 1)
	if message != "" {
		return context, message
	}
	for _, defs := range []string{"$defs", "definitions"} {
		if context, message = membersFault([]string{defs}, o[defs], 1); message != "" {
			return context, message
		}
	}
	return nil, ""
}

func membersFault(path []string, v json.RawMessage, depth int) ([]string, string) {
	members, _ := decodeObject(v)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if at, fault := valueFault(extend(path, name), members[name], depth); fault != "" {
			return at, fault
		}
	}
	return nil, ""
}

func extend(path []string, more ...string) []string {
	return append(path[:len(path):len(path)], more...)
}

// valueFault judges a schema below the root, which has to be an object with a type.
func valueFault(path []string, v json.RawMessage, depth int) ([]string, string) {
	if kindOf(v) != kindObject {
		return path, "schema must have a 'type' key."
	}
	o, _ := decodeObject(v)
	if o.has("$ref") {
		if len(o) > 1 {
			other := ""
			for _, name := range slices.Sorted(maps.Keys(o)) {
				if name != "$ref" {
					other = name
					break
				}
			}
			return path, "$ref cannot have keywords {'" + other + "'}."
		}
		if ref := o.str("$ref"); !refTarget.MatchString(ref) {
			return path, "reference '" + ref + "' is not permitted." // the text is invented
		}
		return nil, ""
	}
	for _, key := range refused {
		if o.has(key) {
			return path, "'" + key + "' is not permitted."
		}
	}
	if o.has("anyOf") {
		for i, branch := range elements(o["anyOf"]) {
			if at, fault := valueFault(extend(path, "anyOf", strconv.Itoa(i)), branch, depth); fault != "" {
				return at, fault
			}
		}
		return nil, ""
	}
	if !o.has("type") {
		return path, "schema must have a 'type' key."
	}
	return nodeFault(path, o, depth)
}

// nodeFault judges an object that has a type.
func nodeFault(path []string, o object, depth int) ([]string, string) {
	for _, key := range refused {
		if o.has(key) {
			return path, "'" + key + "' is not permitted."
		}
	}
	var types []string
	if kindOf(o["type"]) == kindArray {
		_ = json.Unmarshal(o["type"], &types)
		for i, t := range types {
			// The service judges each type of a list as a schema of its own.
			if t == "array" {
				return extend(path, "type", strconv.Itoa(i)), "array schema missing items."
			}
		}
	} else {
		types = []string{o.str("type")}
	}
	if at, fault := valuesFault(path, o, types); fault != "" {
		return at, fault
	}
	if slices.Contains(types, "object") {
		if at, fault := objectFault(path, o, depth); fault != "" {
			return at, fault
		}
	}
	if slices.Contains(types, "array") {
		if !o.has("items") {
			return path, "array schema missing items."
		}
		return valueFault(extend(path, "items"), o["items"], depth)
	}
	return nil, ""
}

// valuesFault judges what a schema says of its values. That these are refused has been measured, or is
// documented with the refusal; the texts are invented.
func valuesFault(path []string, o object, types []string) ([]string, string) {
	if format := o.str("format"); o.has("format") && !slices.Contains(formats, format) {
		return path, "'" + format + "' is not a valid format."
	}
	if lookAround.MatchString(o.str("pattern")) {
		return path, "'pattern' may not use look-around."
	}
	values := elements(or(o["enum"], "[]"))
	if c, given := o["const"]; given {
		values = append(values, c)
	}
	for _, v := range values {
		if !slices.ContainsFunc(types, func(t string) bool { return kindOf(v).is(t) }) {
			return path, "enum value " + string(v) + " does not validate against the type of the schema."
		}
	}
	return nil, ""
}

func objectFault(path []string, o object, depth int) ([]string, string) {
	if depth > maxDepth {
		// That this is refused has been measured; the text is invented.
		return path, "schema exceeds the maximum nesting of " + strconv.Itoa(maxDepth) + "."
	}
	if string(o["additionalProperties"]) != "false" {
		return path, "'additionalProperties' is required to be supplied and to be false."
	}
	if kindOf(o["properties"]) != kindObject {
		return path, "object schema missing properties."
	}
	properties, _ := decodeObject(o["properties"])
	var required []string
	if kindOf(o["required"]) == kindArray {
		_ = json.Unmarshal(o["required"], &required)
	}
	for _, name := range keysInOrder(o["properties"]) {
		if !slices.Contains(required, name) {
			return path, "'required' is required to be supplied and to be an array including every key in properties. " +
				"Missing '" + name + "'."
		}
	}
	for i, name := range required {
		if _, ok := properties[name]; !ok {
			return path, "'required' must be an array that includes every key in `properties`. " +
				"Extra required key '" + name + "' supplied."
		}
		if slices.Contains(required[:i], name) {
			list, _ := json.Marshal(required)
			return path, strings.ReplaceAll(string(list), `"`, "'") + " has non-unique elements."
		}
	}
	for _, name := range keysInOrder(o["properties"]) {
		if at, fault := valueFault(extend(path, "properties", name), properties[name], depth+1); fault != "" {
			return at, fault
		}
	}
	return nil, ""
}

// keysInOrder returns the names of an object's members as they are written.
func keysInOrder(v json.RawMessage) []string {
	var names []string
	dec := json.NewDecoder(bytes.NewReader(v))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return names
		}
		name, _ := t.(string)
		names = append(names, name)
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return names
		}
	}
	return names
}

// inContext writes a fault with its path as a Python tuple. A nil path stands for a fault of the schema as
// a whole, which the service reports without one.
func inContext(path []string, fault string) string {
	if path == nil {
		return fault
	}
	quoted := make([]string, len(path))
	for i, p := range path {
		quoted[i] = "'" + p + "'"
	}
	tuple := strings.Join(quoted, ", ")
	if len(path) == 1 {
		tuple += ","
	}
	return "In context=(" + tuple + "), " + fault
}

// normalised returns the schema with every object closed and every property required, which is what the
// service makes of a tool that does not say whether it is strict. It reports whether that gives a strict
// schema.
func normalised(schema json.RawMessage) (json.RawMessage, bool) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(schema))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, false
	}
	closeObjects(v)
	b, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	_, fault := strictFault(b)
	return b, fault == ""
}

func closeObjects(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			closeObjects(e)
		}
	case map[string]any:
		if v["type"] == "object" {
			if _, given := v["additionalProperties"]; !given {
				v["additionalProperties"] = false
			}
			if properties, ok := v["properties"].(map[string]any); ok {
				v["required"] = slices.Sorted(maps.Keys(properties))
				if len(properties) == 0 {
					v["required"] = []string{}
				}
			}
		}
		for _, key := range []string{"items", "anyOf"} {
			closeObjects(v[key])
		}
		for _, key := range []string{"properties", "$defs", "definitions"} {
			if members, ok := v[key].(map[string]any); ok {
				for _, m := range members {
					closeObjects(m)
				}
			}
		}
	}
}
