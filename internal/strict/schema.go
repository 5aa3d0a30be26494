package strict

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema returns the strict schema of the arguments that encoding/json decodes
// into a t, which is a struct or a pointer to one. The error is a [*TypeError].
//
// Pointers and fields with omitempty, omitzero or jsonschema:"nullable" are
// required and may be null. A type that is used several times is defined under
// $defs where that makes the schema shorter, and one that recurs always; all
// others are written where they are used. The order of the properties is that
// of the fields.
func Schema(t reflect.Type) ([]byte, error) {
	schema, _, err := Typed(t)
	return schema, err
}

// Typed is [Schema] and a Decoder of what the schema asks for.
func Typed(t reflect.Type) ([]byte, *Decoder, error) {
	c, err := (&generator{decoded: true}).make(t)
	if err != nil {
		return nil, nil, err
	}
	return c.root.append(nil), &Decoder{root: newCompiler(c).compile()}, nil
}

// Describe is [Schema] for those who decode the arguments by themselves: what a
// JSONSchema method says of a type may be what encoding/json cannot decode into
// it.
func Describe(t reflect.Type) ([]byte, error) {
	c, err := new(generator).make(t)
	if err != nil {
		return nil, err
	}
	return c.root.append(nil), nil
}

// A generator makes the schema of one type.
type generator struct {
	root    reflect.Type
	decoded bool                         // encoding/json has to decode what fits
	types   map[reflect.Type]*definition // the types that are written once
	defs    []*definition                // the same, and what foreign schemas define, parts before the whole
	uses    map[*value]*use              // what is written once the definitions are known
	checks  []check                      // of what JSONSchema methods returned
	names   namer
	sites   map[*value]*TypeError // where the properties come from, without a reason, if that is asked for
	path    []step
	objects int
}

// A step is one part of the way to a field.
type step struct{ goName, jsonName string }

// A definition is the schema of a type that may be used in several places.
type definition struct {
	name    string
	body    *value // nil while it is being made
	keep    bool   // it stays a definition however short it is: it leads back to itself
	inline  bool   // it is written where it is used
	once    bool   // and used in one place
	checked bool   // its body is looked at once more in the end
	order   int    // of the first use
	slots   []*value
}

// A check holds a schema that a method of a type says against that type.
type check struct {
	typ  reflect.Type
	of   *definition // nil for the root
	site *TypeError
}

// A use stands in a schema for a definition, until it is known whether that
// stays one.
type use struct {
	of     *definition
	finish func(*value) *value // what the tags of a field make of it, or nil
}

// make makes the schema of t and the checker that has passed it.
func (g *generator) make(t reflect.Type) (*checker, error) {
	if t == nil {
		return nil, &TypeError{Path: "nil", Reason: "there is no type"}
	}
	schema, err := g.whole(t)
	if err != nil {
		return nil, err
	}
	c := newChecker(schema)
	if err := c.check(); err != nil {
		return nil, g.locate(t, err)
	}
	for _, c := range g.checks {
		v := schema
		if c.of != nil {
			v = c.of.body
		}
		if reason := g.decodable(schema, v, c.typ); reason != "" && g.decoded {
			site := *c.site
			site.Reason = reason
			return nil, &site
		}
	}
	return c, nil
}

// whole makes the schema of t, which is still to be checked.
func (g *generator) whole(t reflect.Type) (*value, error) {
	g.types = map[reflect.Type]*definition{}
	g.uses = map[*value]*use{}
	g.names = namer{}
	g.path = []step{{goName: rootName(t)}}
	root, err := g.pointee(t)
	if err != nil {
		return nil, err
	}
	g.root = root
	g.path[0].goName = rootName(root)
	schema, err := g.rootSchema()
	if err != nil {
		return nil, err
	}
	return g.settle(schema), nil
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

// locate turns what is wrong with the finished schema of t into an error of the
// field that it comes from. It makes the schema once more to find that.
func (g *generator) locate(t reflect.Type, err *Error) *TypeError {
	fail := g.fail(g.root, "the schema is refused at %s: %s", err.Pointer(), err.Reason)
	again := generator{decoded: g.decoded, sites: map[*value]*TypeError{}}
	v, _ := again.whole(t)
	for path := err.Path; v != nil; path = path[1:] {
		if site := again.sites[v]; site != nil {
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
func (g *generator) rootSchema() (*value, error) {
	t := g.root
	if hasCustom(t) {
		g.checks = append(g.checks, check{t, nil, g.fail(t, "")})
		v, err := g.foreign(t, "#")
		if err == nil && v.str("type") != "object" {
			err = g.fail(t, "JSONSchema must describe an object here: the arguments of a tool are a JSON object")
		}
		return v, err
	}
	switch alias, err := g.alias(t); {
	case err != nil:
		return nil, err
	case alias != nil && t.Kind() != reflect.Map:
		g.checks = append(g.checks, check{t, nil, g.fail(t, "")})
		if g.root, err = g.pointee(alias); err != nil || len(g.checks) > 10 {
			return nil, g.fail(t, "JSONSchemaAlias leads nowhere; return a value of another type")
		}
		return g.rootSchema()
	}
	const want = "the arguments of a tool are a JSON object; "
	switch k := t.Kind(); {
	case k == reflect.Map:
		return nil, g.fail(t, want+"a map has no strict form; use a struct with a field of type %s", g.mapAdvice(t))
	case k == reflect.Interface, t == reflect.TypeFor[json.RawMessage]():
		return nil, g.fail(t, want+"an interface or raw JSON can hold anything; use a concrete type, such as a struct with a field of type fnloop.JSON")
	case k != reflect.Struct:
		return nil, g.fail(t, want+"use a struct with a field for each")
	}
	v, err := g.known(t)
	if v != nil {
		err = g.fail(t, want+"use a struct with a field of this type")
	}
	if err != nil {
		return nil, err
	}
	return g.object(t)
}

// pointee strips the pointers from t.
func (g *generator) pointee(t reflect.Type) (reflect.Type, error) {
	elem, ok := Pointee(t)
	if !ok {
		return nil, g.fail(t, "a pointer without end cannot be decoded")
	}
	return elem, nil
}

// Pointee strips the pointers from t. It reports false for a type that is a
// pointer to itself.
func Pointee(t reflect.Type) (reflect.Type, bool) {
	for n := 0; t.Kind() == reflect.Pointer; n++ {
		if n == 100 {
			return t, false
		}
		t = t.Elem()
	}
	return t, true
}

// schema returns the schema of a value of type t that is not null. The caller
// may change it.
func (g *generator) schema(t reflect.Type) (*value, error) {
	t, err := g.pointee(t)
	if err != nil {
		return nil, err
	}
	if t == g.root {
		return newObject(member{"$ref", newString("#")}), nil
	}
	if d := g.types[t]; d != nil {
		d.keep = d.keep || d.body == nil
		return g.use(d), nil
	}
	if hasCustom(t) {
		return g.define(t, func(d *definition) (*value, error) { return g.foreign(t, "#/$defs/"+d.name) })
	}
	if alias, err := g.alias(t); alias != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return g.define(t, func(*definition) (*value, error) { return g.schema(alias) })
	}
	if t.Kind() == reflect.Interface {
		return nil, g.fail(t, "an interface can hold anything; use a concrete type, or fnloop.JSON, a string that holds JSON")
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
		if t.Name() == "" || isBase64(t) {
			return g.container(t)
		}
		return g.define(t, func(*definition) (*value, error) { return g.container(t) })
	case reflect.Map:
		return nil, g.fail(t, "a map has no strict form; use %s", g.mapAdvice(t))
	case reflect.Complex64, reflect.Complex128:
		return nil, g.fail(t, "complex numbers have no JSON form; use a struct with two numbers")
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return nil, g.fail(t, `%s has no JSON form; hide the field with json:"-"`, t.Kind())
	}
	return integerSchema(t), nil
}

// mapAdvice names what to use in place of the map type t.
func (g *generator) mapAdvice(t reflect.Type) string {
	if t.Key().Kind() != reflect.String || decodesText(t.Key()) {
		return "a slice of structs with a key and a value"
	}
	elem := TypeName(t.Elem())
	switch e, _ := Pointee(t.Elem()); {
	case e.Kind() == reflect.Interface, e == reflect.TypeFor[json.RawMessage]():
		elem = "fnloop.JSON"
	case e.Kind() == reflect.Map && e.Name() == "":
		elem = g.mapAdvice(e)
	case e.PkgPath() != "" && e.PkgPath() == g.root.PkgPath():
		elem = strings.Repeat("*", strings.Count(elem, "*")) + e.Name()
	}
	return "fnloop.Map[" + elem + "], or a slice of structs with a key and a value"
}

// integerSchema bounds the types that are small enough for the bounds to be a
// help; those of 64 bits would only be noise.
func integerSchema(t reflect.Type) *value {
	v := typed(integer)
	bits, low := integerBits[t.Kind()], int64(0)
	if t.Kind() <= reflect.Int64 {
		bits--
		low = -1 << bits
	}
	if bits <= 32 || low == 0 {
		v.set("minimum", newNumber(strconv.FormatInt(low, 10)))
	}
	if bits <= 32 {
		v.set("maximum", newNumber(strconv.FormatInt(1<<bits-1, 10)))
	}
	return v
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func decodesJSON(t reflect.Type) bool { return has(t, jsonUnmarshaler) }
func decodesText(t reflect.Type) bool { return has(t, textUnmarshaler) }

// embeds reports whether t embeds a type with the methods of iface, so that
// those of t may be promoted ones.
func embeds(t, iface reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		if f.Anonymous && (f.Type.Implements(iface) || reflect.PointerTo(f.Type).Implements(iface)) {
			return true
		}
	}
	return false
}

// addMethod is what helps with a type that decodes itself, also one of somebody
// else's.
const addMethod = "add a method JSONSchema() *jsonschema.Schema that says what it takes, to a type of your own such as type My%s struct{ %s } if this one is not"

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
		return nil, g.fail(t, "raw JSON can hold anything; use a concrete type, or fnloop.JSON, a string that holds JSON")
	}
	if t.PkgPath() == "net/url" && t.Name() == "URL" {
		return nil, g.fail(t, "a url.URL cannot be decoded from a JSON string; use a string and url.Parse")
	}
	switch {
	case decodesJSON(t) && t.Name() == "":
		return nil, g.fail(t, "UnmarshalJSON is promoted from an embedded field; use a named field in its place")
	case decodesJSON(t) && embeds(t, jsonUnmarshaler):
		return nil, g.fail(t, "UnmarshalJSON may be promoted from an embedded field, and then decodes the whole struct; use a named field in its place, or "+addMethod, rootName(t), TypeName(t))
	case decodesJSON(t):
		return nil, g.fail(t, "UnmarshalJSON may take any JSON; "+addMethod, rootName(t), TypeName(t))
	case !decodesText(t):
		return nil, nil
	case embeds(t, textUnmarshaler):
		if fields, err := fieldsOf(t); err != nil || len(fields) > 0 || t.Name() == "" {
			return nil, g.fail(t, "UnmarshalText may be promoted from an embedded field, and then decodes the whole struct, so that its other fields are lost; use a named field in its place, or "+addMethod, rootName(t), TypeName(t))
		}
	}
	return typed(text), nil
}

// container returns the schema of a slice, an array or a struct, in place.
func (g *generator) container(t reflect.Type) (*value, error) {
	if len(g.path) > maxDepth/2 {
		return nil, g.fail(t, "the type is nested too deeply")
	}
	switch {
	case t.Kind() == reflect.Struct:
		return g.object(t)
	case isBase64(t):
		v := typed(text)
		v.setFirst("description", newString("Bytes in base64."))
		return v, nil
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
		g.path = append(g.path, step{"." + ferr.path, ""})
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
	props := newObject(make([]member, 0, len(fields))...)
	required := newArray(make([]*value, 0, len(fields))...)
	for i := range fields {
		f := &fields[i]
		s := step{"." + f.path, "." + f.name}
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

// field returns the schema of one property. What is wrong with the field's tag
// is told with a tag that works, where one can be found.
func (g *generator) field(f *field) (*value, error) {
	v, err := g.property(f, f.Tag)
	bad, isTag := err.(*tagError)
	if !isTag {
		return v, err
	}
	reason := bad.reason
	for range 5 {
		if bad.fix == "" {
			break
		}
		_, err := g.property(f, reflect.StructTag(bad.fix))
		if err == nil {
			reason += "; write " + bad.fix
			break
		}
		if next, ok := err.(*tagError); ok {
			bad = next
		} else {
			break
		}
	}
	return nil, g.fail(f.Type, "%s", reason)
}

func (g *generator) property(f *field, st reflect.StructTag) (*value, error) {
	t, err := g.pointee(f.Type)
	if err != nil {
		return nil, err
	}
	list, _ := readTag(st)
	tag, bad := parseTag(st, list)
	if bad == nil {
		bad = tag.foreign(list, f)
	}
	if bad != nil {
		return nil, bad
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
	c := constrainer{generator: g, node: v, typ: t, quoted: f.quoted}
	if err := c.apply(tag); err != nil {
		return nil, tag.mend(err)
	}
	pointer := f.Type.Kind() == reflect.Pointer
	null := tag.nullable || (pointer || f.omit) && !tag.required
	var site *TypeError
	if g.sites != nil {
		site = g.fail(f.Type, "")
	}
	u := g.uses[v]
	finish := func(v *value) *value {
		v = c.describe(v, tag)
		if null && (u == nil || !allowsNull(u.of.body)) {
			v = nullable(v)
		}
		if site != nil {
			g.sites[v] = site
		}
		return v
	}
	if u != nil {
		u.finish = finish
		return v, nil
	}
	return finish(v), nil
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
