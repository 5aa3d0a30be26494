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

func (c *checker) limits() *Error {
	for _, l := range [...]struct {
		name      string
		got, most int
	}{
		{"properties", c.size.properties, maxProperties},
		{"enum values", c.size.enums, maxEnums},
		{"characters in names, enum and const values", c.size.text, maxText},
		{"levels of objects", c.depth(), maxObjects},
	} {
		if l.got > l.most {
			return c.fail(RuleLimit, l.name, "%d %s are more than the %d that are accepted", l.got, l.name, l.most)
		}
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
		if branches := v.get("anyOf"); branches != nil {
			for _, b := range branches.elems {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// finite checks that the root and every definition has a value that ends. A
// cycle of required properties has none; a nullable property or an array that
// may be empty breaks it.
func (c *checker) finite() *Error {
	done := map[*value]bool{}
	for progress := true; progress; {
		progress = false
		for _, v := range c.targets() {
			if !done[v.value] && c.ends(v.value, done) {
				done[v.value] = true
				progress = true
			}
		}
	}
	for _, v := range c.targets() {
		if !done[v.value] {
			return c.at(func() *Error {
				return c.fail(RuleFinite, v.name, "no finite value fits: a cycle must pass through a nullable property or an array that may be empty")
			}, v.path...)
		}
	}
	return nil
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

// ends reports whether a finite value fits v, given the targets for which that
// is known.
func (c *checker) ends(v *value, done map[*value]bool) bool {
	switch {
	case v.get("$ref") != nil:
		return done[c.resolve(v)]
	case v.get("anyOf") != nil:
		for b := range children(v) {
			if c.ends(b, done) {
				return true
			}
		}
		return false
	case v.str("type") == "array":
		if n := v.get("minItems"); n == nil || parseDecimal(n.text).sign() == 0 {
			return true
		}
	}
	for child := range children(v) {
		if !c.ends(child, done) {
			return false
		}
	}
	return true
}
