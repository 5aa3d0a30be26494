package strict

import (
	"cmp"
	"reflect"
	"slices"
)

// define returns a use of type t, which body makes the schema of. It is called
// once for each type, so a type that leads back to itself ends there.
func (g *generator) define(t reflect.Type, body func(*definition) (*value, error)) (*value, error) {
	d := g.definition(defName(t))
	g.types[t] = d
	v, err := body(d)
	if err != nil {
		return nil, err
	}
	d.body = v
	g.defs = append(g.defs, d)
	if g.sites != nil {
		g.sites[v] = g.fail(t, "")
	}
	if hasCustom(t) || has(t, aliasType) {
		d.checked = true
		g.checks = append(g.checks, check{t, d, g.fail(t, "")})
	}
	return g.use(d), nil
}

func (g *generator) definition(name string) *definition {
	return &definition{name: g.names.name(name), order: len(g.names)}
}

// use returns what stands for d until the definitions are settled.
func (g *generator) use(d *definition) *value {
	v := &value{}
	g.uses[v] = &use{of: d}
	d.slots = append(d.slots, v)
	return v
}

// expand writes a definition where v uses it, so that a tag can change it
// there. It leaves v alone if that is no use of one, or of one that is not made
// yet.
func (g *generator) expand(v *value) {
	for u := g.uses[v]; u != nil && u.of.body != nil; u = g.uses[v] {
		c := g.copy(u.of.body)
		*v = *c
		delete(g.uses, v)
		if again := g.uses[c]; again != nil { // the definition of an alias is a use itself
			g.uses[v] = again
			again.of.slots = append(again.of.slots, v)
			delete(g.uses, c)
		}
	}
}

// copy returns a deep copy of a schema in which uses are uses again.
func (g *generator) copy(v *value) *value {
	return v.copy(func(from, to *value) {
		if u := g.uses[from]; u != nil {
			again := *u
			again.of.slots = append(again.of.slots, to)
			g.uses[to] = &again
		}
		if site := g.sites[from]; site != nil {
			g.sites[to] = site
		}
	})
}

// settle decides which definitions stay and returns the finished schema. A
// definition is written where it is used unless that takes more bytes.
func (g *generator) settle(root *value) *value {
	for _, d := range g.defs {
		d.body = g.resolve(d.body)
		if !d.keep {
			d.inline = g.shorterInline(d)
		}
	}
	root = g.resolve(root)
	slices.SortFunc(g.defs, func(a, b *definition) int { return cmp.Compare(a.order, b.order) })
	defs := newObject()
	for _, d := range g.defs {
		if !d.inline {
			defs.members = append(defs.members, member{d.name, d.body})
		}
	}
	if len(defs.members) > 0 {
		root.set("$defs", defs)
	}
	return root
}

// shorterInline reports whether it takes no more bytes to write d wherever it is
// used than to define it and to refer to it.
func (g *generator) shorterInline(d *definition) bool {
	size := func(u *use, v *value) int {
		if u.finish != nil {
			v = u.finish(v)
		}
		return len(v.append(nil))
	}
	var uses []*use
	for _, slot := range d.slots {
		if u := g.uses[slot]; u != nil && u.of == d { // it was not written out
			uses = append(uses, u)
		}
	}
	if d.once = len(uses) < 2; d.once {
		return true
	}
	inline, shared := 0, len(`"":,`)+len(d.name)+len(d.body.append(nil))
	for _, u := range uses {
		inline += size(u, g.copy(d.body))
		shared += size(u, d.ref())
	}
	return inline <= shared
}

func (d *definition) ref() *value {
	return newObject(member{"$ref", newString("#/$defs/" + d.name)})
}

// resolve puts references or definitions in the place of all uses in v.
func (g *generator) resolve(v *value) *value {
	u := g.uses[v]
	if u == nil {
		for i := range v.members {
			v.members[i].value = g.resolve(v.members[i].value)
		}
		for i := range v.elems {
			v.elems[i] = g.resolve(v.elems[i])
		}
		return v
	}
	var out *value
	switch d := u.of; {
	case !d.inline:
		out = d.ref()
	case d.once && !d.checked:
		out = d.body
	default:
		out = g.copy(d.body)
	}
	if u.finish != nil {
		out = u.finish(out)
	}
	return out
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
