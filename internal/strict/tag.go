package strict

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// A tag is what the jsonschema tags of a field say. The syntax is that of
// github.com/invopop/jsonschema.
type tag struct {
	title       string
	description string
	required    bool
	nullable    bool
	constraints []constraint
	defaults    []string
	examples    []string
}

// A constraint is one keyword of a tag, with all its values.
type constraint struct {
	name   string
	values []string
}

// refusedTags says what to use in place of a keyword that the jsonschema
// package knows and strict mode does not.
var refusedTags = map[string]string{
	"minLength":       `use a pattern, such as pattern=^[\s\S]{%s\,}$`,
	"maxLength":       `use a pattern, such as pattern=^[\s\S]{0\,%s}$`,
	"uniqueItems":     "say so in the description and check it in the tool",
	"readOnly":        `hide the field with jsonschema:"-"`,
	"writeOnly":       "leave it out",
	"type":            "change the type of the field, or give its type a JSONSchema method",
	"anchor":          "leave it out",
	"oneof_required":  "give the type a JSONSchema method that returns an anyOf",
	"anyof_required":  "give the type a JSONSchema method that returns an anyOf",
	"oneof_ref":       "give the type a JSONSchema method that returns an anyOf",
	"anyof_ref":       "give the type a JSONSchema method that returns an anyOf",
	"oneof_type":      "give the type a JSONSchema method that returns an anyOf",
	"anyof_type":      "give the type a JSONSchema method that returns an anyOf",
	"const":           "use enum with one value",
	"additionalItems": "leave it out",
}

// parseTag reads the jsonschema tags. Every part of them must be understood.
func parseTag(st reflect.StructTag) (*tag, error) {
	t := &tag{description: st.Get("jsonschema_description")}
	if extras := st.Get("jsonschema_extras"); extras != "" {
		return nil, errors.New("the tag jsonschema_extras cannot be honoured in strict mode; give the type a JSONSchema method")
	}
	whole := st.Get("jsonschema")
	if !utf8.ValidString(string(st)) && whole+t.description != "" {
		return nil, errors.New("the tag is not valid UTF-8")
	}
	seen := map[string]bool{"description": t.description != ""}
	for _, part := range splitTag(whole) {
		name, val, hasValue := strings.Cut(part, "=")
		repeats := name == "enum" || name == "example" || name == "default"
		if seen[name] && !repeats {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if advice, refused := refusedTags[name]; refused {
			if strings.Contains(advice, "%s") {
				advice = fmt.Sprintf(advice, val)
			}
			return nil, fmt.Errorf("%s has no place in strict mode; %s", name, advice)
		}
		if word := name == "required" || name == "nullable"; word == hasValue || part == "" {
			return nil, unknownPart(part)
		}
		switch name {
		case "required":
			t.required = true
		case "nullable":
			t.nullable = true
		case "title":
			t.title = val
		case "description":
			t.description = val
		case "default":
			t.defaults = append(t.defaults, val)
		case "example":
			t.examples = append(t.examples, val)
		case "enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems":
			i := slices.IndexFunc(t.constraints, func(c constraint) bool { return c.name == name })
			if i < 0 {
				i = len(t.constraints)
				t.constraints = append(t.constraints, constraint{name: name})
			}
			t.constraints[i].values = append(t.constraints[i].values, val)
		default:
			return nil, unknownPart(part)
		}
	}
	if t.required && t.nullable {
		return nil, errors.New("required and nullable contradict each other")
	}
	return t, nil
}

func unknownPart(part string) error {
	return fmt.Errorf(`the tag part %q is unknown; a comma within a value is written \\, and long descriptions fit into jsonschema_description`, clip(part))
}

// splitTag splits a tag at its commas, except those behind a backslash.
func splitTag(s string) []string {
	if s == "" {
		return nil
	}
	var parts []string
	var part strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == ',':
			part.WriteByte(',')
			i++
		case s[i] == ',':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(s[i])
		}
	}
	return append(parts, part.String())
}
