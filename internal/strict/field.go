package strict

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A field is one key that encoding/json decodes into a struct.
type field struct {
	reflect.StructField
	name   string
	tagged bool
	index  []int
	path   string // Go names from the struct down, embedded ones included, with dots
	omit   bool   // omitempty or omitzero
	quoted bool   // the string option, where encoding/json honours it
	hidden bool   // jsonschema:"-", here or on what it is embedded in
}

// A fieldError says why encoding/json would not do what a struct seems to ask.
type fieldError struct {
	path   string
	json   string
	typ    reflect.Type
	reason string
}

// fieldsOf lists the keys of struct t in the order of its fields. It follows
// encoding/json: valid tag names, promotion through embedded structs, dominance
// by depth and then by tag. Where encoding/json would ignore a field without a
// word, it returns an error.
func fieldsOf(t reflect.Type) ([]field, *fieldError) {
	type level struct {
		typ    reflect.Type
		index  []int
		path   string // with a dot at its end
		hidden bool
	}
	var (
		found   = make([]field, 0, t.NumField())
		next    = []level{{typ: t}}
		visited []reflect.Type
		count   map[reflect.Type]int // of what is embedded
	)
	for len(next) > 0 {
		current := next
		next = nil
		times := count
		count = map[reflect.Type]int{}
		for _, l := range current {
			if slices.Contains(visited, l.typ) {
				continue
			}
			visited = append(visited, l.typ)
			for i := range l.typ.NumField() {
				sf := l.typ.Field(i)
				f := field{
					StructField: sf,
					index:       append(slices.Clip(l.index), i),
					path:        l.path + sf.Name,
					hidden:      l.hidden,
				}
				seen, err := f.read()
				if err != nil {
					return nil, err
				}
				if !seen {
					continue
				}
				elem := sf.Type
				if elem.Name() == "" && elem.Kind() == reflect.Pointer {
					elem = elem.Elem()
				}
				if f.name == "" && sf.Anonymous && elem.Kind() == reflect.Struct {
					if count[elem]++; count[elem] == 1 {
						next = append(next, level{elem, f.index, f.path + ".", f.hidden})
					}
					continue
				}
				if f.name == "" {
					f.name = sf.Name
				}
				found = append(found, f)
				if times[l.typ] > 1 {
					found = append(found, f) // promoted along two ways, so ambiguous
				}
			}
		}
	}
	return dominant(found)
}

// read fills in what the tags say and reports whether encoding/json looks at
// the field at all.
func (f *field) read() (bool, *fieldError) {
	pointer := f.Type.Kind() == reflect.Pointer
	elem := f.Type
	if pointer {
		elem = elem.Elem()
	}
	if !f.IsExported() && !(f.Anonymous && elem.Kind() == reflect.Struct) {
		return false, nil
	}
	tags, bad := readTag(f.Tag)
	if bad != "" {
		return false, &fieldError{path: f.path, typ: f.Type, reason: fmt.Sprintf("the struct tag is malformed near %q", clip(bad))}
	}
	tag := tags.Get("json")
	if tag == "-" {
		return false, nil
	}
	f.hidden = f.hidden || tags.Get("jsonschema") == "-"
	name, options, _ := strings.Cut(tag, ",")
	if isTagName(name) {
		f.name, f.tagged = name, true
	}
	if f.hidden {
		return true, nil
	}
	switch {
	case f.Anonymous && pointer && !f.IsExported():
		return false, &fieldError{path: f.path, typ: f.Type, reason: "encoding/json cannot set an embedded pointer to an unexported struct; embed the struct itself or export it"}
	case f.Anonymous && f.name == "" && elem.Kind() == reflect.Struct && tags.Get("jsonschema")+tags.Get("jsonschema_description")+tags.Get("description") != "":
		return false, &fieldError{path: f.path, typ: f.Type, reason: "the fields of an embedded struct are promoted, so a jsonschema tag has nothing to apply to; give it a json name or move the tag"}
	case f.Anonymous && f.name != "" && !f.IsExported() && (decodesJSON(elem) || decodesText(elem)):
		return false, &fieldError{path: f.path, typ: f.Type, reason: "encoding/json does not call the methods of an embedded unexported struct; use a named field"}
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			f.omit = true
		case "string":
			if f.Type.Name() != "" {
				elem = f.Type
			}
			f.quoted = isScalarKind(elem.Kind())
		}
	}
	return true, nil
}

// dominant picks the field that each name stands for.
func dominant(found []field) ([]field, *fieldError) {
	slices.SortStableFunc(found, func(a, b field) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		if c := cmp.Compare(len(a.index), len(b.index)); c != 0 {
			return c
		}
		if a.tagged != b.tagged {
			if a.tagged {
				return -1
			}
			return 1
		}
		return slices.Compare(a.index, b.index)
	})
	fields := make([]field, 0, len(found))
	for len(found) > 0 {
		n := 1
		for n < len(found) && found[n].name == found[0].name {
			n++
		}
		first := found[0]
		if n > 1 && len(found[1].index) == len(first.index) && !(first.hidden && found[1].hidden) {
			second := found[1]
			siblings := slices.Equal(first.index[:len(first.index)-1], second.index[:len(second.index)-1])
			if slices.Equal(first.index, second.index) {
				return nil, &fieldError{path: first.path, json: first.name, typ: first.Type, reason: "the field is promoted along two ways, so encoding/json ignores it; embed its struct once"}
			}
			if first.tagged == second.tagged || siblings {
				return nil, &fieldError{path: first.path, json: first.name, typ: first.Type, reason: fmt.Sprintf(
					"the JSON name %q is also that of %s, and encoding/json ignores one or both; give each a name of its own",
					first.name, second.path)}
			}
		}
		if !first.hidden {
			fields = append(fields, first)
		}
		found = found[n:]
	}
	slices.SortFunc(fields, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return fields, nil
}

// isTagName reports whether encoding/json takes name from a tag.
func isTagName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return name != ""
}

func isScalarKind(k reflect.Kind) bool {
	return reflect.Bool <= k && k <= reflect.Float64 || k == reflect.String
}

// A tagList is what a struct tag says, in its order.
type tagList []tagPair

type tagPair struct{ key, value string }

// Get is that of reflect.StructTag, which reads the whole tag each time.
func (l tagList) Get(key string) string {
	for i := range l {
		if l[i].key == key {
			return l[i].value
		}
	}
	return ""
}

// readTag divides a struct tag. Bad is the part that reflect.StructTag cannot
// read, if it was meant for this package or for encoding/json: StructTag.Get
// would act as if the tag were not there.
func readTag(tag reflect.StructTag) (list tagList, bad string) {
	rest := string(tag)
	if n := strings.Count(rest, `:"`); n > 0 {
		list = make(tagList, 0, n)
	}
	for {
		rest = strings.TrimLeft(rest, " ")
		if rest == "" {
			break
		}
		i := 0
		for i < len(rest) && rest[i] > ' ' && rest[i] != ':' && rest[i] != '"' && rest[i] != 0x7f {
			i++
		}
		if i == 0 || i+1 >= len(rest) || rest[i] != ':' || rest[i+1] != '"' {
			bad = cmp.Or(bad, rest)
			break
		}
		key := rest[:i]
		if strings.Trim(key, ",;") != key {
			bad = cmp.Or(bad, rest) // what divides tags is a space
		}
		end := i + 2
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			bad = cmp.Or(bad, rest)
			break
		}
		if value, err := strconv.Unquote(rest[i+1 : end+1]); err == nil {
			list = append(list, tagPair{key, value})
		} else {
			bad = cmp.Or(bad, rest)
		}
		rest = rest[end+1:]
	}
	if !strings.Contains(bad, "json") && !strings.Contains(bad, "description") {
		bad = ""
	}
	return list, bad
}
