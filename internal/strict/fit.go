package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A fitter looks for what fits a schema and encoding/json cannot decode.
type fitter struct {
	checker *checker
	seen    map[fitting]bool
}

type fitting struct {
	schema *value
	typ    reflect.Type
}

// decodable checks that encoding/json decodes into a t all that fits v, the
// schema that a method of t says. Without an UnmarshalJSON it passes over a
// property that the struct has not, and its value is lost.
func (g *generator) decodable(schema, v *value, t reflect.Type) string {
	f := fitter{newChecker(schema), map[fitting]bool{}}
	return f.misfit(v, t, "")
}

// misfit says what of v does not go into a t, or nothing.
func (f *fitter) misfit(v *value, t reflect.Type, path string) string {
	t, _ = Pointee(t)
	v = f.checker.follow(v)
	if key := (fitting{v, t}); v == nil || f.seen[key] || decodesJSON(t) || t.Kind() == reflect.Interface {
		return ""
	} else {
		f.seen[key] = true
	}
	for child := range branches(v) {
		if s := f.misfit(child, t, path); s != "" {
			return s
		}
	}
	if k := nodeKinds(v) &^ decodableKinds(t); k != 0 {
		return fmt.Sprintf("%s describes a %s, which encoding/json cannot decode into %s; add an UnmarshalJSON", method(path), k, clip(TypeName(t)))
	}
	if items := v.get("items"); items != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		return f.misfit(items, t.Elem(), path+"[]")
	}
	props := v.get("properties")
	if props == nil || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return ""
	}
	var byName map[string]*field
	if t.Kind() == reflect.Struct {
		fields, _ := fieldsOf(t)
		byName = make(map[string]*field, len(fields))
		for i := range fields {
			byName[strings.ToLower(fields[i].name)] = &fields[i]
		}
	}
	for _, p := range props.members {
		inner := path + "." + p.name
		var s string
		if t.Kind() == reflect.Map {
			s = f.misfit(p.value, t.Elem(), inner)
		} else if field := byName[strings.ToLower(p.name)]; field == nil {
			s = fmt.Sprintf("%s has the property %q and %s has not, so its value would be lost; add the field or an UnmarshalJSON", method(path), clip(p.name), clip(TypeName(t)))
		} else if field.quoted {
			s = f.misfit(p.value, reflect.TypeFor[string](), inner)
		} else {
			s = f.misfit(p.value, field.Type, inner)
		}
		if s != "" {
			return s
		}
	}
	return ""
}

func method(path string) string {
	if path == "" {
		return "JSONSchema"
	}
	return "JSONSchema at " + strings.TrimPrefix(path, ".")
}

// branches yields the branches of an anyOf.
func branches(v *value) func(yield func(*value) bool) {
	return func(yield func(*value) bool) {
		if list := v.get("anyOf"); list != nil {
			for _, b := range list.elems {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// decodableKinds returns the types of JSON that encoding/json can decode into a
// t without an UnmarshalJSON.
func decodableKinds(t reflect.Type) kinds {
	switch {
	case decodesText(t):
		return text
	case t == reflect.TypeFor[json.Number]():
		return text | number | integer
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return object
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return array | text
		}
		return array
	case reflect.Array:
		return array
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Float32, reflect.Float64:
		return number | integer
	}
	if isIntegerKind(t.Kind()) {
		return integer
	}
	return 0
}
