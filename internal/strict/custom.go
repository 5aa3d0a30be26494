package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// A customer is a type that brings its own schema, by the interface of
// github.com/invopop/jsonschema.
type customer interface {
	JSONSchema() *jsonschema.Schema
}

var (
	customType = reflect.TypeFor[customer]()

	// otherCustoms are the interfaces of the jsonschema package that change
	// what its Reflector makes. There is no Reflector here to change.
	otherCustoms = [...]struct {
		name  string
		iface reflect.Type
	}{
		{"JSONSchemaExtend", reflect.TypeFor[interface{ JSONSchemaExtend(*jsonschema.Schema) }]()},
		{"JSONSchemaAlias", reflect.TypeFor[interface{ JSONSchemaAlias() any }]()},
		{"JSONSchemaProperty", reflect.TypeFor[interface{ JSONSchemaProperty(string) any }]()},
	}
)

// hasCustom reports whether t itself has a method JSONSchema, on either
// receiver. One that is promoted from an embedded field describes that field
// and not t; it is found out by what it returns.
func hasCustom(t reflect.Type) bool {
	if t.Kind() == reflect.Interface || !reflect.PointerTo(t).Implements(customType) {
		return false
	}
	if t.Kind() != reflect.Struct {
		return true
	}
	for f := range t.Fields() {
		f := f
		if !f.Anonymous {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Interface || !reflect.PointerTo(inner).Implements(customType) {
			continue
		}
		own, err := callCustom(t)
		promoted, err2 := callCustom(inner)
		if err == nil && err2 == nil && string(own) == string(promoted) {
			return false
		}
	}
	return true
}

// callCustom returns the JSON of what JSONSchema returns for a zero t, and so
// a copy that nobody else holds.
func callCustom(t reflect.Type) (schema []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("JSONSchema panics: %v", r)
		}
	}()
	v := reflect.New(t)
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() { // a promoted method needs what it is promoted from
			if f := v.Elem().Field(i); t.Field(i).Anonymous && f.Kind() == reflect.Pointer && f.CanSet() {
				f.Set(reflect.New(f.Type().Elem()))
			}
		}
	}
	s := v.Interface().(customer).JSONSchema()
	if s == nil {
		return nil, errors.New("JSONSchema returns nil")
	}
	budget := 100_000
	if !measured(reflect.ValueOf(s), maxDepth, &budget) {
		return nil, errors.New("JSONSchema returns a schema that is too large or contains itself")
	}
	schema, err = json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("JSONSchema returns what cannot be written: %v", err)
	}
	return schema, nil
}

// measured walks v and reports whether depth and budget suffice. Marshalling a
// schema that contains itself would exhaust the stack.
func measured(v reflect.Value, depth int, budget *int) bool {
	if *budget--; depth == 0 || *budget < 0 {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || measured(v.Elem(), depth-1, budget)
	case reflect.Struct:
		schema, isSchema := reflect.TypeAssert[jsonschema.Schema](v)
		if isSchema && schema.Properties != nil { // a linked list, which has cycles of its own
			for p := schema.Properties.Oldest(); p != nil; p = p.Next() {
				if !measured(reflect.ValueOf(p.Value), depth-1, budget) {
					return false
				}
			}
		}
		for i := range v.NumField() {
			if isSchema && v.Type().Field(i).Name == "Properties" {
				continue
			}
			if !measured(v.Field(i), depth-1, budget) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !measured(v.Index(i), depth-1, budget) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !measured(it.Value(), depth-1, budget) {
				return false
			}
		}
	}
	return true
}

// custom returns the schema that t brings along, made strict, or nil if it
// brings none.
func (g *generator) custom(t reflect.Type) (*value, error) {
	for _, other := range otherCustoms {
		if t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(other.iface) {
			return nil, g.fail(t, "%s is not called; describe the type with JSONSchema() *jsonschema.Schema", other.name)
		}
	}
	if !hasCustom(t) {
		return nil, nil
	}
	if v := g.customs[t]; v != nil {
		return v.clone(), nil
	}
	raw, err := callCustom(t)
	if err != nil {
		return nil, g.fail(t, "%v", err)
	}
	if f := syntax(raw); f != nil {
		return nil, g.fail(t, "JSONSchema returns what is not JSON: %s", f.reason)
	}
	s := scanner{data: raw}
	v, twice, ok := s.parse()
	if !ok {
		return nil, g.fail(t, "JSONSchema returns the key %q twice", twice)
	}
	a := adapter{g: g, typ: t, names: map[string]string{}, defs: map[string]*value{}}
	v, err = a.adapt(v)
	if err != nil {
		return nil, g.fail(t, "the schema that JSONSchema returns cannot be sent: %v", err)
	}
	if k := a.allowed(v); g.decoded && k&^decodable(t) != 0 {
		return nil, g.fail(t, "JSONSchema describes a %s, which encoding/json cannot decode into the type; add an UnmarshalJSON", k&^decodable(t))
	}
	g.customs[t] = v
	return v.clone(), nil
}

// allowed returns the types that the adapted schema v allows, without null.
func (a *adapter) allowed(v *value) kinds {
	c := &checker{root: newObject(), defs: map[string]*value{}}
	for _, d := range a.g.defs {
		if d.value != nil {
			c.defs[d.name] = d.value
		}
	}
	var k kinds
	seen := map[*value]bool{}
	var walk func(v *value)
	walk = func(v *value) {
		if v = c.follow(v); v == nil || seen[v] {
			return
		}
		seen[v] = true
		k |= nodeKinds(v)
		if branches := v.get("anyOf"); branches != nil {
			for _, b := range branches.elems {
				walk(b)
			}
		}
	}
	walk(v)
	return k
}

// decodable returns the types of JSON that encoding/json can decode into a t.
func decodable(t reflect.Type) kinds {
	if decodesJSON(t) {
		return ^kinds(0)
	}
	if decodesText(t) {
		return text
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

// An adapter makes a foreign schema strict where that keeps its meaning. What
// it leaves is judged like any other schema.
type adapter struct {
	g     *generator
	typ   reflect.Type
	names map[string]string // of its definitions, in the whole schema
	defs  map[string]*value // by the new names
	self  string            // the reference to the whole of it, once needed
}

func (a *adapter) adapt(v *value) (*value, error) {
	if v.kind != object {
		return nil, fmt.Errorf("a schema must be an object that says a type, not %s", v)
	}
	var own []member
	for _, keyword := range []string{"$defs", "definitions"} {
		if defs := v.remove(keyword); defs != nil {
			for _, d := range defs.members {
				a.names["#/"+keyword+"/"+d.name] = a.g.names.name(cleanName(d.name))
				own = append(own, member{a.names["#/"+keyword+"/"+d.name], d.value})
			}
		}
	}
	for _, d := range own {
		a.defs[d.name] = d.value
	}
	for i, d := range own {
		def, err := a.node(d.value)
		if err != nil {
			return nil, err
		}
		own[i].value = def
	}
	v, err := a.node(v)
	if err != nil {
		return nil, err
	}
	if a.self != "" && a.self != "#" {
		name := strings.TrimPrefix(a.self, "#/$defs/")
		own = append(own, member{name, v})
		v = newObject(member{"$ref", newString(a.self)})
	}
	if a.typ != a.g.root {
		probe := newObject(
			member{"type", newString("object")},
			member{"properties", newObject(member{a.typ.String(), v})},
			member{"required", newArray(newString(a.typ.String()))},
			member{"additionalProperties", newBool(false)},
			member{"$defs", newObject(own...)},
		)
		if err := newChecker(probe).check(); err != nil {
			if len(err.Path) >= 2 && err.Path[0] == "properties" {
				err.Path = err.Path[2:]
			}
			return nil, err
		}
	}
	a.g.defs = append(a.g.defs, own...)
	return v, nil
}

// node makes one schema and all below it strict.
func (a *adapter) node(v *value) (*value, error) {
	if v.kind != object {
		return nil, fmt.Errorf("a schema must be an object that says a type, not %s", v)
	}
	for _, name := range []string{"$schema", "$id", "$comment", "$anchor"} {
		v.remove(name)
	}
	a.annotate(v)
	if err := a.compose(v); err != nil {
		return nil, err
	}
	if ref := v.get("$ref"); ref != nil {
		return a.ref(v, ref.text)
	}
	inferType(v)
	if a := v.get("additionalProperties"); v.str("type") == "object" && v.get("properties") == nil && v.get("patternProperties") == nil && a != nil && a.text == "false" {
		v.set("properties", newObject()) // {} is all that fits
	}
	if v = splitNull(v); v.get("properties") != nil && v.str("type") == "object" {
		if err := a.object(v); err != nil {
			return nil, err
		}
	}
	if items := v.get("items"); items != nil {
		n, err := a.node(items)
		if err != nil {
			return nil, err
		}
		v.set("items", n)
	}
	if branches := v.get("anyOf"); branches != nil {
		for i, b := range branches.elems {
			n, err := a.node(b)
			if err != nil {
				return nil, err
			}
			branches.elems[i] = n
		}
	}
	return v, nil
}

// annotate moves what only informs, and is not accepted, to the description.
func (a *adapter) annotate(v *value) {
	var notes []string
	for _, name := range []string{"default", "examples", "contentEncoding", "contentMediaType", "deprecated"} {
		note := v.remove(name)
		switch {
		case note == nil:
		case name == "deprecated":
			notes = append(notes, name)
		case note.kind == text:
			notes = append(notes, name+": "+note.text)
		default:
			notes = append(notes, name+": "+note.String())
		}
	}
	if len(notes) == 0 {
		return
	}
	remark := strings.Join(notes, "; ")
	if d := v.str("description"); d != "" {
		remark = d + " (" + remark + ")"
	}
	v.setFirst("description", newString(remark))
}

// compose unwraps an allOf of one schema and turns a oneOf whose branches
// exclude each other into an anyOf.
func (a *adapter) compose(v *value) error {
	if all := v.get("allOf"); all != nil && len(all.elems) == 1 && all.elems[0].kind == object {
		v.remove("allOf")
		for _, m := range all.elems[0].members {
			if v.get(m.name) != nil {
				return fmt.Errorf("allOf has a second %s", m.name)
			}
			v.members = append(v.members, m)
		}
	}
	one := v.get("oneOf")
	if one == nil || v.get("anyOf") != nil {
		return nil
	}
	for i, x := range one.elems {
		for _, y := range one.elems[:i] {
			if !a.exclusive(a.target(x), a.target(y)) {
				return errors.New("oneOf is refused, and an anyOf would mean something else since its branches overlap; tell them apart by type or by a required constant")
			}
		}
	}
	v.remove("oneOf")
	v.set("anyOf", one)
	return nil
}

// target follows the references of a foreign schema.
func (a *adapter) target(v *value) *value {
	for range len(a.defs) + 1 {
		d := a.defs[a.names[v.str("$ref")]]
		if d == nil {
			break
		}
		v = d
	}
	return v
}

// exclusive reports whether no value fits both x and y.
func (a *adapter) exclusive(x, y *value) bool {
	if x.kind != object || y.kind != object {
		return false
	}
	kx, ky := allKinds(x), allKinds(y)
	if kx == 0 || ky == 0 {
		return false
	}
	if kx&ky == 0 || disjoint(x, y) {
		return true
	}
	if kx != object || ky != object {
		return false
	}
	px, py := x.get("properties"), y.get("properties")
	if px == nil || py == nil {
		return false
	}
	for _, m := range px.members {
		other := py.get(m.name)
		if other != nil && requires(x, m.name) && requires(y, m.name) && disjoint(m.value, other) {
			return true
		}
	}
	return false
}

// allKinds returns the types that v allows, with integers among the numbers.
func allKinds(v *value) kinds {
	k := nodeKinds(v)
	if allowsNull(v) {
		k |= null
	}
	if k&integer != 0 {
		k |= number
	}
	return k
}

func requires(v *value, name string) bool {
	list := v.get("required")
	return list != nil && containsEqual(list.elems, newString(name))
}

// ref gives a reference its new target, on its own.
func (a *adapter) ref(v *value, ref string) (*value, error) {
	to := ""
	if name, ok := a.names[ref]; ok {
		to = "#/$defs/" + name
	} else if ref == "#" {
		if a.self == "" {
			a.self = a.g.refs[a.typ] // the root has one already
		}
		if a.self == "" {
			a.self = "#/$defs/" + a.g.names.name(defName(a.typ))
		}
		to = a.self
	} else {
		return nil, fmt.Errorf("the reference %q leads to no definition of its own", clip(ref))
	}
	v.remove("$ref")
	node := newObject(member{"$ref", newString(to)})
	if len(v.members) == 0 {
		return node, nil
	}
	v.set("anyOf", newArray(node))
	for _, m := range v.members {
		if m.name != "title" && m.name != "description" && m.name != "anyOf" {
			return nil, fmt.Errorf("%s beside $ref is refused", m.name)
		}
	}
	return v, nil
}

// inferType adds the type that enum, const, properties or items imply.
func inferType(v *value) {
	if v.get("type") != nil || v.get("anyOf") != nil {
		return
	}
	var k kinds
	switch {
	case v.get("properties") != nil:
		k = object
	case v.get("items") != nil:
		k = array
	default:
		for _, x := range listed(v) {
			switch {
			case x.kind == number && isInteger(x.text) && k&number == 0:
				k |= integer
			case x.kind == number:
				k = k&^integer | number
			default:
				k |= x.kind
			}
		}
	}
	base := k &^ null
	switch {
	case k == 0 || base&(base-1) != 0:
	case base == 0 || base == k:
		v.setFirst("type", newString(k.String()))
	default:
		v.setFirst("type", newArray(newString(base.String()), newString("null")))
	}
}

// splitNull turns the type ["array","null"] or ["object","null"] into a branch
// of its own for null.
func splitNull(v *value) *value {
	k := nodeKinds(v)
	if k != object && k != array || !allowsNull(v) {
		return v
	}
	v.set("type", newString(k.String()))
	outer := newObject()
	for _, name := range []string{"title", "description"} {
		if m := v.remove(name); m != nil {
			outer.set(name, m)
		}
	}
	outer.set("anyOf", newArray(v, typed(null)))
	return outer
}

// object closes an object and requires all of its properties. Those that were
// optional may be null instead.
func (a *adapter) object(v *value) error {
	props, required := v.get("properties"), v.get("required")
	if props.kind != object {
		return errors.New("properties must be an object")
	}
	all := newArray()
	for i, p := range props.members {
		n, err := a.node(p.value)
		if err != nil {
			return err
		}
		if !requires(v, p.name) {
			n = nullable(n)
		}
		props.members[i].value = n
		all.elems = append(all.elems, newString(p.name))
	}
	if required != nil {
		for _, e := range required.elems {
			if !containsEqual(all.elems, e) {
				return fmt.Errorf("required names %s, which is not a property", clip(e.String()))
			}
		}
	}
	v.set("required", all)
	if v.get("additionalProperties") == nil {
		v.set("additionalProperties", newBool(false))
	}
	return nil
}
