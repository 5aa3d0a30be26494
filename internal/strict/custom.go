package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// The interfaces of github.com/invopop/jsonschema by which a type says its own
// schema.
type (
	customer interface{ JSONSchema() *jsonschema.Schema }
	aliaser  interface{ JSONSchemaAlias() any }
)

var (
	customType = reflect.TypeFor[customer]()
	aliasType  = reflect.TypeFor[aliaser]()

	// uncalled are the interfaces of the jsonschema package that change what its
	// Reflector makes. There is no Reflector here to change.
	uncalled = [...]struct {
		name  string
		iface reflect.Type
	}{
		{"JSONSchemaExtend", reflect.TypeFor[interface{ JSONSchemaExtend(*jsonschema.Schema) }]()},
		{"JSONSchemaProperty", reflect.TypeFor[interface{ JSONSchemaProperty(string) any }]()},
	}
)

// has reports whether t has the methods of iface, on either receiver.
func has(t, iface reflect.Type) bool {
	if t.PkgPath() == "" && t.Kind() != reflect.Struct || t.Kind() == reflect.Interface {
		return false // only what has a name, or embeds what has one, has methods
	}
	return reflect.PointerTo(t).Implements(iface)
}

func hasCustom(t reflect.Type) bool { return has(t, customType) }

// called returns what method returns for a zero t.
func called[T any](t reflect.Type, name string, method func(zero any) T) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panics: %v", name, r)
		}
	}()
	return method(reflect.New(t).Interface()), nil
}

// alias returns the type that stands for t in JSON by its method
// JSONSchemaAlias, or nil if it has none.
func (g *generator) alias(t reflect.Type) (reflect.Type, error) {
	for _, m := range uncalled {
		if has(t, m.iface) {
			return nil, g.fail(t, "%s is not called; describe the type with JSONSchema() *jsonschema.Schema", m.name)
		}
	}
	if !has(t, aliasType) {
		return nil, nil
	}
	if embeds(t, aliasType) {
		return nil, g.fail(t, "JSONSchemaAlias may be that of an embedded field, which is not the whole struct; use a named field in its place")
	}
	alias, err := Alias(t)
	if err == nil && alias == nil {
		err = errors.New("JSONSchemaAlias returns nil")
	}
	if err != nil {
		return nil, g.fail(t, "%v", err)
	}
	return alias, nil
}

// Alias returns the type of what JSONSchemaAlias returns for a t.
func Alias(t reflect.Type) (reflect.Type, error) {
	if !has(t, aliasType) {
		return nil, nil
	}
	v, err := called(t, "JSONSchemaAlias", func(zero any) any { return zero.(aliaser).JSONSchemaAlias() })
	return reflect.TypeOf(v), err
}

// foreign returns the schema that t brings along, made strict. A reference to
// the whole of it becomes one to self.
func (g *generator) foreign(t reflect.Type, self string) (*value, error) {
	if embeds(t, customType) {
		return nil, g.fail(t, "JSONSchema may be that of an embedded field, which is not the whole struct; use a named field in its place")
	}
	s, err := called(t, "JSONSchema", func(zero any) *jsonschema.Schema { return zero.(customer).JSONSchema() })
	switch {
	case err != nil:
		return nil, g.fail(t, "%v", err)
	case s == nil:
		return nil, g.fail(t, "JSONSchema returns nil")
	}
	if holdsItself(reflect.ValueOf(s), make(map[uintptr]bool)) {
		return nil, g.fail(t, "JSONSchema returns a schema that holds itself, which has no end; refer to it with $ref")
	}
	raw, err := json.Marshal(s) // and so a copy that nobody else holds
	if err != nil {
		return nil, g.fail(t, "JSONSchema returns what cannot be written: %v", err)
	}
	if f := syntax(raw); f != nil {
		return nil, g.fail(t, "JSONSchema returns what is not JSON: %s", f.reason)
	}
	sc := scanner{data: raw}
	v, twice, ok := sc.parse()
	if !ok {
		return nil, g.fail(t, "JSONSchema returns the key %q twice", twice)
	}
	a := adapter{g: g, typ: t, self: self, names: map[string]string{}}
	if v, err = a.adapt(v); err != nil {
		return nil, g.fail(t, "the schema that JSONSchema returns cannot be sent: %v", err)
	}
	return v, nil
}

// holdsItself reports whether a schema can be reached from itself. Writing it would
// exhaust the stack, from which there is no way back. Open are the schemas that v
// is within.
func holdsItself(v reflect.Value, open map[uintptr]bool) bool {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		if m, ok := v.Interface().(interface {
			FromOldest() iter.Seq2[string, *jsonschema.Schema]
		}); ok { // properties, in their order
			for _, property := range m.FromOldest() {
				if holdsItself(reflect.ValueOf(property), open) {
					return true
				}
			}
			return false
		}
		if v.Elem().Kind() != reflect.Struct {
			return false
		}
		p := v.Pointer()
		if open[p] {
			return true
		}
		open[p] = true
		defer delete(open, p)
		return holdsItself(v.Elem(), open)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && holdsItself(v.Field(i), open) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if holdsItself(v.Index(i), open) {
				return true
			}
		}
	case reflect.Map:
		for _, value := range v.Seq2() {
			if holdsItself(value, open) {
				return true
			}
		}
	} // of what is in an any, encoding/json finds out itself
	return false
}

// An adapter makes a foreign schema strict where that keeps its meaning. What
// it leaves is judged like any other schema.
type adapter struct {
	g     *generator
	typ   reflect.Type
	names map[string]string // of its definitions, in the whole schema
	self  string            // what refers to the whole of it
}

func (a *adapter) adapt(v *value) (*value, error) {
	if v.kind != object {
		return nil, fmt.Errorf("a schema must be an object that says a type, not %s", v)
	}
	var own []*definition
	for _, keyword := range []string{"$defs", "definitions"} {
		if defs := v.remove(keyword); defs != nil {
			for _, m := range defs.members {
				d := a.g.definition(cleanName(m.name))
				d.body, d.keep = m.value, true
				a.names["#/"+keyword+"/"+m.name] = "#/$defs/" + d.name
				own = append(own, d)
			}
		}
	}
	a.names["#"] = a.self
	for _, d := range own {
		def, err := a.node(d.body)
		if err != nil {
			return nil, err
		}
		d.body = def
	}
	v, err := a.node(v)
	if err != nil {
		return nil, err
	}
	if a.typ == a.g.root {
		for range own { // jsonschema.Reflect returns a reference by default
			for _, d := range own {
				if v.str("$ref") == "#/$defs/"+d.name {
					v = a.g.copy(d.body)
				}
			}
		}
	} else if err := a.probe(v, own); err != nil {
		return nil, err
	}
	a.g.defs = append(a.g.defs, own...)
	return v, nil
}

// probe judges v by itself, so that what is wrong is told in its own terms.
func (a *adapter) probe(v *value, defs []*definition) error {
	name := a.typ.String()
	root := newObject(
		member{"type", newString("object")},
		member{"properties", newObject(member{name, v})},
		member{"required", newArray(newString(name))},
		member{"additionalProperties", newBool(false)},
		member{"$defs", newObject(member{strings.TrimPrefix(a.self, "#/$defs/"), v})},
	)
	for _, d := range defs {
		root.get("$defs").members = append(root.get("$defs").members, member{d.name, d.body})
	}
	if err := newChecker(root).check(); err != nil {
		if len(err.Path) >= 2 {
			err.Path = err.Path[2:]
		}
		return err
	}
	return nil
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
	if err := compose(v); err != nil {
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

// compose turns a oneOf whose branches exclude each other into an anyOf.
func compose(v *value) error {
	one := v.get("oneOf")
	if one == nil || v.get("anyOf") != nil {
		return nil
	}
	for i, x := range one.elems {
		for _, y := range one.elems[:i] {
			if !exclusive(x, y) {
				return errors.New("oneOf is refused, and an anyOf would mean something else since its branches overlap; tell them apart by type or by a required constant")
			}
		}
	}
	v.remove("oneOf")
	v.set("anyOf", one)
	return nil
}

// exclusive reports whether no value fits both x and y, since they are of
// different types or require different constants of one property.
func exclusive(x, y *value) bool {
	kx, ky := allKinds(x), allKinds(y)
	if kx == 0 || ky == 0 || kx&ky == 0 {
		return kx != 0 && ky != 0
	}
	if px, py := x.get("properties"), y.get("properties"); px != nil && py != nil {
		for _, m := range px.members {
			if other := py.get(m.name); other != nil && requires(x, m.name) && requires(y, m.name) && disjoint(m.value, other) {
				return kx == object && ky == object
			}
		}
	}
	return disjoint(x, y)
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
	to, ok := a.names[ref]
	if !ok {
		return nil, fmt.Errorf("the reference %q leads to no definition of its own", clip(ref))
	}
	if ref == "#" && a.typ != a.g.root {
		a.g.types[a.typ].keep = true
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
