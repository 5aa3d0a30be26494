package strict

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schema returns the strict schema of the arguments that encoding/json decodes
// into a t, which is a struct or a pointer to one. The error is a [*TypeError].
//
// Pointers and fields with omitempty, omitzero or jsonschema:"nullable" are
// required and may be null. Types that recur are defined under $defs, all
// others where they are used. The order of the properties is that of the
// fields.
func Schema(t reflect.Type) ([]byte, error) { return write(t, true) }

// Describe is [Schema] for those who decode the arguments by themselves: what a
// JSONSchema method says of a type may be what encoding/json cannot decode into
// it.
func Describe(t reflect.Type) ([]byte, error) { return write(t, false) }

func write(t reflect.Type, decoded bool) ([]byte, error) {
	if t == nil {
		return nil, &TypeError{Path: "nil", Reason: "there is no type"}
	}
	schema, err := generate(t, decoded, false)
	if _, over := err.(*tooLarge); over {
		// Written in one place each, the types may fit.
		schema, err = generate(t, decoded, true)
	}
	if over, ok := err.(*tooLarge); ok {
		return nil, over.TypeError
	}
	return schema, err
}

// tooLarge is the TypeError for a schema beyond a limit.
type tooLarge struct{ *TypeError }

// A generator makes the schema of one type.
type generator struct {
	root      reflect.Type
	recursive map[reflect.Type]bool
	decoded   bool // encoding/json has to decode what fits
	share     bool // define every struct that has a name, not only recursive ones
	refs      map[reflect.Type]string
	defs      []member
	names     namer
	customs   map[reflect.Type]*value
	sites     map[*value]*TypeError // where the properties come from, without a reason
	path      []step
	objects   int
	size      int
}

// A step is one part of the way to a field.
type step struct{ goName, jsonName string }

func generate(t reflect.Type, decoded, share bool) ([]byte, error) {
	g := &generator{
		recursive: map[reflect.Type]bool{},
		decoded:   decoded,
		share:     share,
		refs:      map[reflect.Type]string{},
		names:     namer{},
		customs:   map[reflect.Type]*value{},
		sites:     map[*value]*TypeError{},
	}
	g.path = []step{{goName: rootName(t)}}
	root, err := g.pointee(t)
	if err != nil {
		return nil, err
	}
	g.root = root
	g.path[0].goName = rootName(root)
	findRecursive(root, map[reflect.Type]int{}, g.recursive)
	schema, err := g.rootSchema(root)
	if err != nil {
		return nil, err
	}
	if len(g.defs) > 0 {
		schema.set("$defs", newObject(g.defs...))
	}
	if err := newChecker(schema).check(); err != nil {
		fail := g.locate(schema, err)
		if err.Rule == RuleLimit && !share {
			return nil, &tooLarge{fail}
		}
		return nil, fail
	}
	return schema.append(nil), nil
}

func rootName(t reflect.Type) string {
	switch {
	case t.Name() != "":
	case t.Kind() == reflect.Struct:
		return "struct"
	default:
		return "(" + clip(TypeName(t)) + ")"
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// fail returns the error for type t at the current path.
func (g *generator) fail(t reflect.Type, reason string, args ...any) *TypeError {
	var goPath, jsonPath strings.Builder
	for _, s := range g.path {
		goPath.WriteString(s.goName)
		jsonPath.WriteString(s.jsonName)
	}
	return &TypeError{
		Path:   goPath.String(),
		JSON:   strings.TrimPrefix(jsonPath.String(), "."),
		Type:   t,
		Reason: fmt.Sprintf(reason, args...),
	}
}

// locate turns what is wrong with the finished schema into an error of the
// field that it comes from.
func (g *generator) locate(schema *value, err *Error) *TypeError {
	fail := g.fail(g.root, "the schema is refused at %s: %s", err.Pointer(), err.Reason)
	for v, path := schema, err.Path; v != nil; path = path[1:] {
		if site := g.sites[v]; site != nil {
			fail.Path, fail.JSON, fail.Type = site.Path, site.JSON, site.Type
		}
		if len(path) == 0 {
			break
		}
		if v.kind == array {
			i, _ := strconv.Atoi(path[0])
			v = v.elems[i]
		} else {
			v = v.get(path[0])
		}
	}
	return fail
}

// within runs f with the path extended.
func (g *generator) within(s step, f func() (*value, error)) (*value, error) {
	g.path = append(g.path, s)
	v, err := f()
	g.path = g.path[:len(g.path)-1]
	return v, err
}

// rootSchema returns the schema of the root, which must be an object and not a
// reference to one.
func (g *generator) rootSchema(t reflect.Type) (*value, error) {
	custom := hasCustom(t)
	if !custom && (t.Kind() != reflect.Struct || decodesJSON(t) || decodesText(t)) {
		if _, err := g.schema(t); err != nil {
			return nil, err
		}
		return nil, g.fail(t, "the arguments of a tool are a JSON object; use a struct with a field for each")
	}
	g.refs[t] = "#"
	if !custom {
		return g.object(t)
	}
	v, err := g.custom(t)
	if err != nil {
		return nil, err
	}
	for range len(g.defs) + 1 { // jsonschema.Reflect returns a reference by default
		if v.get("$ref") == nil {
			break
		}
		name := strings.TrimPrefix(v.str("$ref"), "#/$defs/")
		i := slices.IndexFunc(g.defs, func(m member) bool { return m.name == name })
		if i < 0 {
			break
		}
		v = g.defs[i].value.clone()
	}
	if v.str("type") != "object" {
		return nil, g.fail(t, "JSONSchema must describe an object here: the arguments of a tool are a JSON object")
	}
	return v, nil
}

// pointee strips the pointers from t.
func (g *generator) pointee(t reflect.Type) (reflect.Type, error) {
	for start, n := t, 0; t.Kind() == reflect.Pointer; n++ {
		if n == 100 {
			return nil, g.fail(start, "a pointer without end cannot be decoded")
		}
		t = t.Elem()
	}
	return t, nil
}

// schema returns the schema of a value of type t that is not null. The caller
// may change it.
func (g *generator) schema(t reflect.Type) (*value, error) {
	t, err := g.pointee(t)
	if err != nil {
		return nil, err
	}
	if ref, ok := g.refs[t]; ok {
		return newObject(member{"$ref", newString(ref)}), nil
	}
	if v, err := g.custom(t); v != nil || err != nil {
		return v, err
	}
	if t.Kind() == reflect.Interface {
		return nil, g.fail(t, "an interface can hold anything; use a concrete type, or a string that holds JSON")
	}
	if v, err := g.known(t); v != nil || err != nil {
		return v, err
	}
	switch t.Kind() {
	case reflect.Bool:
		return typed(boolean), nil
	case reflect.String:
		return typed(text), nil
	case reflect.Float32, reflect.Float64:
		return typed(number), nil
	case reflect.Slice, reflect.Array, reflect.Struct:
		if g.recursive[t] || g.share && t.Kind() == reflect.Struct && t.Name() != "" {
			return g.define(t)
		}
		return g.container(t)
	case reflect.Map:
		return nil, g.fail(t, "a map has no strict form; use a slice of structs with a key and a value")
	case reflect.Complex64, reflect.Complex128:
		return nil, g.fail(t, "complex numbers have no JSON form; use a struct with two numbers")
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return nil, g.fail(t, `%s has no JSON form; hide the field with json:"-"`, t.Kind())
	}
	return integerSchema(t), nil
}

// integerSchema bounds the types that are small enough for the bounds to be a
// help; those of 64 bits would only be noise.
func integerSchema(t reflect.Type) *value {
	v := typed(integer)
	low, high := integerRange(t.Kind())
	if low.Sign() == 0 || low.BitLen() <= 32 {
		v.set("minimum", newNumber(low.String()))
	}
	if high.BitLen() <= 32 {
		v.set("maximum", newNumber(high.String()))
	}
	return v
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func decodesJSON(t reflect.Type) bool { return reflect.PointerTo(t).Implements(jsonUnmarshaler) }
func decodesText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

// known handles the types that are not shown by their structure. It returns
// nil for all others.
func (g *generator) known(t reflect.Type) (*value, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		v := typed(text)
		v.set("format", newString("date-time"))
		return v, nil
	case reflect.TypeFor[time.Duration]():
		v := typed(integer)
		v.setFirst("description", newString(inNanoseconds))
		return v, nil
	case reflect.TypeFor[json.Number]():
		return typed(number), nil
	case reflect.TypeFor[json.RawMessage]():
		return nil, g.fail(t, "raw JSON can hold anything; use a concrete type, or a string that holds JSON")
	}
	if t.PkgPath() == "net/url" && t.Name() == "URL" {
		return nil, g.fail(t, "a url.URL cannot be decoded from a JSON string; use a string and url.Parse")
	}
	byJSON, byText := decodesJSON(t), decodesText(t)
	switch {
	case !byJSON && !byText:
		return nil, nil
	case t.Name() == "":
		return nil, g.fail(t, "whether encoding/json calls the promoted methods of a type without a name depends on where it stands; use a named field in place of the embedded one")
	case byJSON && promoted(t, jsonMethod):
		return nil, g.fail(t, "UnmarshalJSON is promoted from an embedded field and decodes the whole struct; use a named field in its place")
	case byJSON:
		return nil, g.fail(t, "UnmarshalJSON may take any JSON; add a method JSONSchema() *jsonschema.Schema that says which")
	case promoted(t, textMethod):
		fields, err := fieldsOf(t)
		if err != nil || len(fields) > 0 {
			return nil, g.fail(t, "UnmarshalText is promoted from an embedded field and decodes the whole struct, so its other fields are lost; use a named field in its place")
		}
	}
	return typed(text), nil
}

// jsonMethod and textMethod look methods up by names that the linker can see;
// any other way would keep every method of the program.
func jsonMethod(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("UnmarshalJSON") }
func textMethod(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("UnmarshalText") }

// promoted reports whether t has a method only because it embeds a type that
// has it: the compiler then wrote it, in no file. A wrapper that was optimized
// away may pass for a method of t itself.
func promoted(t reflect.Type, method func(reflect.Type) (reflect.Method, bool)) bool {
	m, ok := method(t)
	if !ok {
		m, ok = method(reflect.PointerTo(t))
	}
	if !ok || t.Kind() != reflect.Struct {
		return false
	}
	pc := m.Func.Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file == "<autogenerated>"
}

// define puts the schema of t under $defs and returns a reference to it.
func (g *generator) define(t reflect.Type) (*value, error) {
	name := g.names.name(defName(t))
	g.refs[t] = "#/$defs/" + name
	i := len(g.defs)
	g.defs = append(g.defs, member{name: name})
	v, err := g.container(t)
	if err != nil {
		return nil, err
	}
	g.defs[i].value = v
	g.sites[v] = g.fail(t, "")
	return newObject(member{"$ref", newString(g.refs[t])}), nil
}

// container returns the schema of a slice, an array or a struct, in place.
func (g *generator) container(t reflect.Type) (*value, error) {
	if len(g.path) > maxDepth/2 {
		return nil, g.fail(t, "the type is nested too deeply")
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.object(t)
	case reflect.Slice:
		if isBase64(t) {
			v := typed(text)
			v.setFirst("description", newString("Bytes in base64."))
			return v, nil
		}
	}
	items, err := g.within(step{"[]", "[]"}, func() (*value, error) { return g.schema(t.Elem()) })
	if err != nil {
		return nil, err
	}
	v := newObject(member{"type", newString("array")}, member{"items", items})
	if t.Kind() == reflect.Array {
		v.set("minItems", newInt(t.Len()))
		v.set("maxItems", newInt(t.Len()))
	}
	return v, nil
}

// object returns the schema of struct t.
func (g *generator) object(t reflect.Type) (*value, error) {
	fields, ferr := fieldsOf(t)
	if ferr != nil {
		g.path = append(g.path, step{"." + strings.Join(ferr.path, "."), ""})
		if ferr.json != "" {
			g.path[len(g.path)-1].jsonName = "." + ferr.json
		}
		return nil, g.fail(ferr.typ, "%s", ferr.reason)
	}
	if len(fields) == 0 && t != g.root {
		return nil, g.fail(t, "an object without properties is accepted at the root only; drop the field, or give the struct an exported one")
	}
	if g.objects++; g.objects > maxObjects {
		return nil, g.fail(t, "more than %d objects lie inside each other, which is the limit; use a flatter type", maxObjects)
	}
	defer func() { g.objects-- }()
	if g.size += len(fields); g.size > maxProperties {
		return nil, &tooLarge{g.fail(t, "the schema has more than %d properties, which is the limit; use a smaller type", maxProperties)}
	}
	props, required := newObject(), newArray()
	for i := range fields {
		f := &fields[i]
		s := step{"." + strings.Join(f.path, "."), "." + f.name}
		v, err := g.within(s, func() (*value, error) { return g.field(f) })
		if err != nil {
			return nil, err
		}
		props.members = append(props.members, member{f.name, v})
		required.elems = append(required.elems, newString(f.name))
	}
	return newObject(
		member{"type", newString("object")},
		member{"properties", props},
		member{"required", required},
		member{"additionalProperties", newBool(false)},
	), nil
}

// field returns the schema of one property.
func (g *generator) field(f *field) (*value, error) {
	tag, err := parseTag(f.Tag)
	if err != nil {
		return nil, g.fail(f.Type, "%v", err)
	}
	t, err := g.pointee(f.Type)
	if err != nil {
		return nil, err
	}
	var v *value
	if f.quoted {
		v, err = g.quoted(t)
	} else {
		v, err = g.schema(t)
	}
	if err != nil {
		return nil, err
	}
	c := constrainer{node: v, typ: t, quoted: f.quoted}
	if err := c.apply(tag); err != nil {
		return nil, g.fail(f.Type, "%v", err)
	}
	v = c.node
	pointer := f.Type.Kind() == reflect.Pointer
	if tag.nullable || (pointer || f.omit) && !tag.required {
		v = nullable(v)
	}
	g.sites[v] = g.fail(f.Type, "")
	return v, nil
}

// inNanoseconds describes a time.Duration.
const inNanoseconds = "A duration in nanoseconds."

// quoted returns the schema of a number or boolean with the string option.
func (g *generator) quoted(t reflect.Type) (*value, error) {
	v := typed(text)
	switch k := t.Kind(); {
	case k == reflect.String:
		return nil, g.fail(t, `json:",string" on a string wants a JSON string inside a JSON string; leave the option out`)
	case decodesJSON(t) || decodesText(t) || hasCustom(t):
		return nil, g.fail(t, `json:",string" does not go with a type that has its own UnmarshalJSON, UnmarshalText or JSONSchema; leave the option out`)
	case k == reflect.Bool:
		v.set("enum", newArray(newString("true"), newString("false")))
	case k == reflect.Float32 || k == reflect.Float64:
		v.set("pattern", newString(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`))
	default:
		v.set("pattern", newString(`^-?(0|[1-9][0-9]*)$`))
	}
	if t == reflect.TypeFor[time.Duration]() {
		v.setFirst("description", newString(inNanoseconds))
	}
	return v, nil
}

// nullable returns a schema that allows null beside what v allows. Only a bare
// scalar takes null into its type: beside enum, bounds or items, and in place
// of a reference, a branch of its own is what every deployment accepts.
func nullable(v *value) *value {
	if allowsNull(v) {
		return v
	}
	bare := v.get("type") != nil && v.get("type").kind == text && kindNamed(v.str("type"))&scalar != 0
	outer := newObject()
	for _, m := range v.members {
		switch m.name {
		case "title", "description":
			outer.members = append(outer.members, m)
		case "type":
		default:
			bare = false
		}
	}
	if bare {
		v.set("type", newArray(newString(v.str("type")), newString("null")))
		return v
	}
	branches := v.get("anyOf")
	if branches == nil {
		v.remove("title")
		v.remove("description")
		branches = newArray(v)
	}
	branches.elems = append(branches.elems, typed(null))
	outer.set("anyOf", branches)
	return outer
}

// allowsNull reports whether v allows null without following references.
func allowsNull(v *value) bool {
	if t := v.get("type"); t != nil {
		return t.text == "null" || slices.ContainsFunc(t.elems, func(e *value) bool { return e.text == "null" })
	}
	branches := v.get("anyOf")
	return branches != nil && slices.ContainsFunc(branches.elems, allowsNull)
}

// findRecursive marks the types to which a walk from t leads back while it is
// still inside them. Defining those cuts every cycle. Only types with a name
// can be part of one.
func findRecursive(t reflect.Type, state map[reflect.Type]int, recursive map[reflect.Type]bool) {
	const inside, done = 1, 2
	for n := 0; t.Kind() == reflect.Pointer && n < 100; n++ {
		t = t.Elem()
	}
	switch k := t.Kind(); {
	case k != reflect.Struct && k != reflect.Slice && k != reflect.Array, state[t] == done:
		return
	case state[t] == inside:
		recursive[t] = true
		return
	case hasCustom(t), decodesJSON(t), decodesText(t):
		return
	}
	if t.Name() != "" {
		state[t] = inside
	}
	if t.Kind() == reflect.Struct {
		fields, _ := fieldsOf(t)
		for _, f := range fields {
			findRecursive(f.Type, state, recursive)
		}
	} else {
		findRecursive(t.Elem(), state, recursive)
	}
	state[t] = done
}
