package strict

import "unicode/utf8"

// The limits that OpenAI documents for one schema.
const (
	maxObjects    = 10     // objects inside each other, through references too
	maxProperties = 5000   // in total
	maxText       = 120000 // characters of property names, definition names and enum and const values
	maxEnums      = 1000   // enum values in total
	maxLongEnum   = 250    // values above which one enum has at most maxEnumText characters
	maxEnumText   = 15000
)

// A size is what the limits count.
type size struct {
	properties, enums, text int
}

// add counts the characters of s and returns how many there are.
func (s *size) add(t string) int {
	n := utf8.RuneCountInString(t)
	s.text += n
	return n
}

// withinLimits checks what was counted so far, so that the error is that of the
// place which is too much.
func (c *checker) withinLimits() *Error {
	for _, l := range [...]struct {
		name      string
		got, most int
	}{
		{"properties", c.size.properties, maxProperties},
		{"enum values", c.size.enums, maxEnums},
		{"characters in names, enum and const values", c.size.text, maxText},
	} {
		if l.got > l.most {
			return c.fail(RuleLimit, l.name, "with it the schema has more than %d %s, which is the limit", l.most, l.name)
		}
	}
	return nil
}

func (c *checker) flat() *Error {
	if n := c.depth(); n > maxObjects {
		return c.fail(RuleLimit, "levels of objects", "%d levels of objects are more than the %d that are accepted", n, maxObjects)
	}
	return nil
}

// A depther counts how many objects lie inside each other. A reference counts
// as what it leads to, once on any way down.
type depther struct {
	c      *checker
	known  map[*value]int // of what references lead to
	open   map[*value]int // the targets on the way down, and their places on it
	budget int            // of nodes in cycles, where what is known depends on the way
}

func (c *checker) depth() int {
	d := depther{c, map[*value]int{}, map[*value]int{c.root: 0}, 100_000}
	deepest, _ := d.node(c.root)
	return deepest
}

// node returns the depth of v and the place of the first target on the way
// down to which a reference in v leads back.
func (d *depther) node(v *value) (deepest, back int) {
	if v.get("$ref") != nil {
		return d.target(d.c.resolve(v))
	}
	d.budget--
	back = len(d.open)
	for child := range children(v) {
		n, b := d.node(child)
		deepest, back = max(deepest, n), min(back, b)
	}
	if v.str("type") == "object" {
		deepest++
	}
	return deepest, back
}

func (d *depther) target(v *value) (deepest, back int) {
	if place, ok := d.open[v]; ok {
		return 0, place
	}
	place := len(d.open)
	if n, ok := d.known[v]; ok {
		return n, place + 1
	}
	d.open[v] = place
	deepest, back = d.node(v)
	delete(d.open, v)
	if back > place || d.budget < 0 { // v is in no cycle
		d.known[v] = deepest
	}
	return deepest, back
}

// children yields the schemas directly below v.
func children(v *value) func(yield func(*value) bool) {
	return func(yield func(*value) bool) {
		if props := v.get("properties"); props != nil {
			for _, p := range props.members {
				if !yield(p.value) {
					return
				}
			}
		}
		if items := v.get("items"); items != nil && !yield(items) {
			return
		}
		branches(v)(yield)
	}
}

// finite checks that the root and every definition has a value that ends. A
// cycle of required properties has none; a nullable property or an array that
// may be empty breaks it. It works from the leaves up and looks at every node
// and every reference once.
func (c *checker) finite() *Error {
	if !c.refers {
		return nil // nothing leads back
	}
	var (
		need  = map[*value]int{}      // how many more of its parts must be known to end
		above = map[*value][]*value{} // what a node is a part of
		ready []*value                // nodes that end
		visit func(v *value)
	)
	visit = func(v *value) {
		n := 0
		if v.get("$ref") != nil {
			n = 1
			above[c.resolve(v)] = append(above[c.resolve(v)], v)
		}
		for child := range children(v) {
			n++
			above[child] = append(above[child], v)
			visit(child)
		}
		switch {
		case v.get("anyOf") != nil:
			n = 1
		case mayBeEmpty(v):
			n = 0
		}
		if need[v] = n; n == 0 {
			ready = append(ready, v)
		}
	}
	targets := c.targets()
	for _, t := range targets {
		visit(t.value)
	}
	for len(ready) > 0 {
		v := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, whole := range above[v] {
			if need[whole]--; need[whole] == 0 {
				ready = append(ready, whole)
			}
		}
	}
	for _, t := range targets {
		if need[t.value] > 0 {
			return c.at(func() *Error {
				return c.fail(RuleFinite, t.name, "no finite value fits: a cycle must pass through a nullable property or an array that may be empty")
			}, t.path...)
		}
	}
	return nil
}

// mayBeEmpty reports whether v is the schema of an array without a least
// length.
func mayBeEmpty(v *value) bool {
	if v.str("type") != "array" {
		return false
	}
	n := v.get("minItems")
	return n == nil || parseDecimal(n.text).sign() == 0
}

// A target is a schema that references can lead to.
type target struct {
	name  string
	path  []string
	value *value
}

func (c *checker) targets() []target {
	var list []target
	if defs := c.root.get("$defs"); defs != nil {
		for _, d := range defs.members {
			list = append(list, target{d.name, []string{"$defs", d.name}, d.value})
		}
	}
	return append(list, target{"#", nil, c.root})
}
