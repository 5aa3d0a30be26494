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
		{"levels of objects", c.depth(c.root, map[*value]int{}), maxObjects},
	} {
		if l.got > l.most {
			return c.fail(RuleLimit, l.name, "%d %s are more than the %d that are accepted", l.got, l.name, l.most)
		}
	}
	return nil
}

// depth returns how many objects lie inside each other from v down. A
// reference counts as what it leads to, but a cycle is counted once: seen
// holds what is known of the nodes that references lead to, and zero for those
// that are not done yet.
func (c *checker) depth(v *value, seen map[*value]int) int {
	if v.get("$ref") != nil {
		v = c.resolve(v)
		if d, ok := seen[v]; ok {
			return d
		}
		seen[v] = 0
		d := c.depth(v, seen)
		seen[v] = d
		return d
	}
	if v == c.root {
		seen[v] = 0
	}
	deepest := 0
	for child := range children(v) {
		deepest = max(deepest, c.depth(child, seen))
	}
	if v.str("type") == "object" {
		deepest++
	}
	return deepest
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
