package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A tag is what the tags of a field say. The syntax of the jsonschema tag is
// that of github.com/invopop/jsonschema.
type tag struct {
	parts       []part // of the jsonschema tag, as written
	title       string
	description string
	required    bool
	nullable    bool
	constraints []constraint
	defaults    []string
	examples    []string
	notes       []string // what defaults and examples add to the description
}

// A part is one of the parts of a jsonschema tag that commas divide.
type part struct {
	name, value string
	valued      bool // it has an equals sign
}

func (p part) String() string {
	if !p.valued {
		return p.name
	}
	return p.name + "=" + p.value
}

// A constraint is one keyword of a tag, with all its values.
type constraint struct {
	name   string
	values []string
}

// A tagError says what is wrong with the tags of a field.
type tagError struct {
	reason string
	fix    string // the tags to write in their place, if they work; or ""
}

func (e *tagError) Error() string { return e.reason }

// bad returns a tagError whose fix has these parts. Without any there is none.
func bad(fix []part, reason string, args ...any) *tagError {
	e := &tagError{reason: fmt.Sprintf(reason, args...)}
	if len(fix) > 0 {
		e.fix = render(fix)
	}
	return e
}

// render writes parts as a struct tag.
func render(parts []part) string {
	written := make([]string, len(parts))
	for i, p := range parts {
		written[i] = strings.ReplaceAll(p.String(), ",", `\,`)
	}
	return "jsonschema:" + strconv.Quote(strings.Join(written, ","))
}

// repeated are the parts that may be there more than once.
var repeated = []string{"enum", "example", "default"}

// keywordParts are the parts that become keywords of the schema.
var keywordParts = []string{"enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}

// parseTag reads the tags of a field. Every part of them must be understood.
func parseTag(raw reflect.StructTag, st tagList) (*tag, *tagError) {
	t := &tag{}
	whole := st.Get("jsonschema")
	split := splitTag(whole)
	t.parts = make([]part, len(split))
	for i, s := range split {
		p := &t.parts[i]
		p.name, p.value, p.valued = strings.Cut(s, "=")
	}
	if st.Get("jsonschema_extras") != "" {
		return nil, bad(nil, "the tag jsonschema_extras cannot be honoured in strict mode; give the type a JSONSchema method")
	}
	if !utf8.ValidString(string(raw)) && whole+st.Get("jsonschema_description")+st.Get("description") != "" {
		return nil, bad(nil, "the tag is not valid UTF-8")
	}
	for i, p := range t.parts {
		if !slices.Contains(repeated, p.name) && slices.ContainsFunc(t.parts[:i], func(q part) bool { return q.name == p.name }) {
			return nil, bad(nil, "%s is given twice", p.name)
		}
		if err := t.read(i); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"jsonschema_description", "description"} {
		switch d := st.Get(key); {
		case d == "" || d == t.description:
		case t.description != "":
			return nil, bad(nil, "description is given twice, the second time by the tag %s", key)
		default:
			t.description = d
			t.parts = append(t.parts, part{"description", d, true})
		}
	}
	if t.required && t.nullable {
		return nil, bad(nil, "required and nullable contradict each other")
	}
	return t, nil
}

// read takes over part i.
func (t *tag) read(i int) *tagError {
	p := t.parts[i]
	switch refuse := refusedParts[p.name]; {
	case refuse != nil:
		return refuse(t.parts, i)
	case p.name == "required" && !p.valued:
		t.required = true
	case p.name == "nullable" && !p.valued:
		t.nullable = true
	case !p.valued:
		return t.unknown(i)
	case p.name == "title":
		t.title = p.value
	case p.name == "description":
		t.description = p.value
	case p.name == "default":
		t.defaults = append(t.defaults, p.value)
	case p.name == "example":
		t.examples = append(t.examples, p.value)
	case slices.Contains(keywordParts, p.name):
		j := slices.IndexFunc(t.constraints, func(c constraint) bool { return c.name == p.name })
		if j < 0 {
			j = len(t.constraints)
			t.constraints = append(t.constraints, constraint{name: p.name})
		}
		t.constraints[j].values = append(t.constraints[j].values, p.value)
	default:
		return t.unknown(i)
	}
	return nil
}

// unknown says what part i was probably meant to be.
func (t *tag) unknown(i int) *tagError {
	p := t.parts[i]
	known := func(p part) bool {
		return p.name == "required" || p.name == "nullable" || p.valued && (p.name == "title" || p.name == "description" || p.name == "default" ||
			p.name == "example" || slices.Contains(keywordParts, p.name) || refusedParts[p.name] != nil)
	}
	parts := slices.Clone(t.parts)
	other := map[string]part{
		"required=true": {name: "required"}, "required=false": {name: "nullable"},
		"nullable=true": {name: "nullable"}, "optional": {name: "nullable"}, "omitempty": {name: "nullable"},
	}
	word, isOther := other[p.String()]
	synonym := map[string]string{"desc": "description", "min": "minimum", "max": "maximum", "examples": "example", "enums": "enum"}[p.name]
	switch {
	case isOther:
		parts[i] = word
	case p.valued && synonym != "":
		parts[i].name = synonym
	case p.name == "" && !p.valued:
		parts = slices.Delete(parts, i, i+1)
	case p.valued && !strings.Contains(p.name, " ") && (i == 0 || !parts[i-1].valued):
		return bad(nil, "the tag part %q is unknown; known are required, nullable, title, description, default, example, %s", clip(p.String()), strings.Join(keywordParts, ", "))
	case !slices.ContainsFunc(parts, known):
		words := make([]string, len(parts))
		for j, p := range parts {
			words[j] = p.String()
		}
		return bad([]part{{"description", strings.Join(words, ","), true}}, `the tag %q has no keyword, and a description begins with "description="`, clip(strings.Join(words, ",")))
	case i > 0 && parts[i-1].valued:
		parts[i-1].value += "," + p.String()
		parts = slices.Delete(parts, i, i+1)
		return bad(parts, `the tag part %q is unknown; a comma within a value is written \\,`, clip(p.String()))
	default:
		parts = nil
	}
	return bad(parts, "the tag part %q is unknown", clip(p.String()))
}

// A refusal says why a part has no place in strict mode and what to write.
type refusal func(parts []part, i int) *tagError

// refusedParts are the parts that the jsonschema package knows and strict mode
// does not.
var refusedParts map[string]refusal

func init() { // which it refers to itself
	byMethod := func(parts []part, i int) *tagError {
		return bad(nil, "%s has no place in strict mode; give the type a method JSONSchema() *jsonschema.Schema that returns an anyOf", parts[i].name)
	}
	without := func(parts []part, i int) *tagError {
		if len(parts) == 1 {
			return bad(nil, "%s has no place in strict mode; leave it out", parts[i].name)
		}
		return bad(slices.Delete(slices.Clone(parts), i, i+1), "%s has no place in strict mode", parts[i].name)
	}
	refusedParts = map[string]refusal{
		"minLength": lengths,
		"maxLength": lengths,
		"uniqueItems": func(parts []part, i int) *tagError {
			rest := slices.Delete(slices.Clone(parts), i, i+1)
			return bad(addRemark(rest, "No item is there twice."), "uniqueItems has no place in strict mode; say so in the description and check it in the tool")
		},
		"readOnly": func(parts []part, i int) *tagError {
			return bad([]part{{name: "-"}}, "readOnly has no place in strict mode; hide the field")
		},
		"const": func(parts []part, i int) *tagError {
			parts = slices.Clone(parts)
			parts[i].name = "enum"
			return bad(parts, "const has no place in a tag; an enum of one value says the same")
		},
		"type": func(parts []part, i int) *tagError {
			return bad(nil, "type has no place in strict mode; change the type of the field, or give its type a method JSONSchema() *jsonschema.Schema")
		},
		"writeOnly":       without,
		"anchor":          without,
		"additionalItems": without,
		"oneof_required":  byMethod,
		"anyof_required":  byMethod,
		"oneof_ref":       byMethod,
		"anyof_ref":       byMethod,
		"oneof_type":      byMethod,
		"anyof_type":      byMethod,
	}
}

// maxRepeat is how often a pattern can repeat something, in package regexp.
const maxRepeat = 1000

// lengthPattern is the pattern of strings of low to high characters, where a
// negative high means any number; or "" where there can be none.
func lengthPattern(low, high int) string {
	switch {
	case low < 0 || low > maxRepeat || high > maxRepeat || high >= 0 && low > high:
		return ""
	case high < 0:
		return fmt.Sprintf(`^[\s\S]{%d,}$`, low)
	}
	return fmt.Sprintf(`^[\s\S]{%d,%d}$`, low, high)
}

// lengths refuses the bounds of the length of a string, which a pattern or the
// description can say in their place.
func lengths(parts []part, i int) *tagError {
	low, high, hasPattern := 0, -1, false
	var rest []part
	for _, p := range parts {
		n, err := strconv.Atoi(p.value)
		switch p.name {
		case "minLength", "maxLength":
			if err != nil || n < 0 {
				return bad(nil, "%s is not a whole number from zero up", clip(p.String()))
			}
			if p.name == "minLength" {
				low = n
			} else {
				high = n
			}
			continue
		case "pattern":
			hasPattern = true
		}
		rest = append(rest, p)
	}
	const reason = "%s has no place in strict mode"
	if p := lengthPattern(low, high); p != "" && !hasPattern {
		return bad(append(rest, part{"pattern", p, true}), reason+"; a pattern can say it", parts[i].name)
	}
	remark := fmt.Sprintf("At least %d characters.", low)
	switch {
	case high >= 0 && low > 0:
		remark = fmt.Sprintf("%d to %d characters.", low, high)
	case high >= 0:
		remark = fmt.Sprintf("At most %d characters.", high)
	}
	return bad(addRemark(rest, remark), reason+"; say so in the description and check it in the tool", parts[i].name)
}

// addRemark adds a sentence to the description among parts.
func addRemark(parts []part, sentence string) []part {
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == "description" })
	if i < 0 {
		return append(parts, part{"description", sentence, true})
	}
	parts = slices.Clone(parts)
	parts[i].value = strings.TrimSuffix(parts[i].value, ".") + ". " + sentence
	return parts
}

func (t *tag) has(names ...string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return slices.Contains(names, p.name) })
}

// foreign takes over or refuses what other libraries' tags of the field say,
// where it would be lost.
func (t *tag) foreign(st tagList, f *field) *tagError {
	var add []part
	lost := ""
	mayBeNull := t.nullable || (f.Type.Kind() == reflect.Pointer || f.omit) && !t.required
	for _, key := range foreignTags {
		value := st.Get(key)
		if value == "" {
			continue
		}
		before := len(add)
		switch key {
		case "doc", "desc", "mcp":
			if t.description == "" {
				add = append(add, part{"description", strings.TrimPrefix(value, "description="), true})
			}
		case "enum", "enums":
			for _, v := range enumValues(value) {
				if !t.has("enum") {
					add = append(add, part{"enum", v, true})
				}
			}
		case "required":
			if value == "false" && !mayBeNull && !t.required {
				add = append(add, part{name: "nullable"})
			} else if value == "true" && mayBeNull && !t.nullable {
				add = append(add, part{name: "required"})
			}
		case "nullable":
			if value == "true" && !mayBeNull && !t.required {
				add = append(add, part{name: "nullable"})
			}
		case "default", "example":
			if !t.has(key) {
				t.notes = append(t.notes, key+": "+value)
			}
		case "minLength", "maxLength":
			if !t.has("pattern") {
				add = append(add, part{key, value, true})
			}
		default:
			if !t.has(key) {
				add = append(add, part{key, value, true})
			}
		}
		if lost == "" && len(add) > before {
			lost = fmt.Sprintf("%s:%q", key, clip(value))
		}
	}
	if lost == "" {
		return nil
	}
	return bad(append(slices.Clone(t.parts), add...), "the tag %s is that of another library and would be lost", lost)
}

// foreignTags are tags by which other libraries describe and bound a field.
var foreignTags = []string{
	"doc", "desc", "mcp", "enum", "enums", "title", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
	"multipleOf", "minItems", "maxItems", "minLength", "maxLength", "required", "nullable", "default", "example",
}

// enumValues splits the values of an enum tag: a JSON array, or a list with
// bars or commas between them.
func enumValues(s string) []string {
	var list []any
	if json.Unmarshal([]byte(s), &list) == nil {
		values := make([]string, len(list))
		for i, v := range list {
			values[i] = fmt.Sprint(v)
		}
		return values
	}
	sep := ","
	if strings.Contains(s, "|") {
		sep = "|"
	}
	values := strings.Split(s, sep)
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return values
}

// mend adds to an error of a constraint the tag that does without it.
func (t *tag) mend(err error) error {
	if _, ok := errors.AsType[*TypeError](err); ok {
		return err
	}
	var fix []part
	for i, p := range t.parts {
		rest := slices.Clone(t.parts)
		switch {
		case p.name == "pattern" && respell(p.value) != p.value:
			rest[i].value = respell(p.value)
			fix = rest
		case p.name == "format" && formats[p.value] == nil:
			fix = addRemark(slices.Delete(rest, i, i+1), "Format: "+p.value+".")
		}
	}
	return bad(fix, "%v", err)
}

// splitTag splits a tag at its commas, except those behind a backslash.
func splitTag(s string) []string {
	switch {
	case s == "":
		return nil
	case !strings.Contains(s, `\,`):
		return strings.Split(s, ",")
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
