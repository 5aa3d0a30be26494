package strict

import (
	"slices"
	"strconv"
	"strings"
)

// A node is a schema in the form in which arguments are held against it.
type node struct {
	kinds    kinds // what is allowed; of an anyOf, what any branch allows
	anyOf    []*node
	names    names   // of the properties of an object
	props    []*node // in their order
	items    *node
	minItems int
	maxItems int // negative for any number
	enum     []*value
	texts    map[string]bool // the strings of enum
	numbers  map[string]bool // the identities of its numbers
	pattern  *pattern
	format   *format
	bounds   []numberBound
}

// A names finds a name in a list of them.
type names struct {
	list  []string
	index map[string]int // of a list that is too long to be read
}

func namesOf(list []string) names {
	n := names{list: list}
	if len(list) > 12 {
		n.index = make(map[string]int, len(list))
		for i, name := range list {
			n.index[name] = i
		}
	}
	return n
}

// find returns where name is in the list, or -1. It looks at next first, since
// models write properties in the order of the schema.
func (n *names) find(name []byte, next int) int {
	if next < len(n.list) && n.list[next] == string(name) {
		return next
	}
	if n.index != nil {
		if i, ok := n.index[string(name)]; ok {
			return i
		}
		return -1
	}
	for i, s := range n.list {
		if s == string(name) {
			return i
		}
	}
	return -1
}

// folds reports whether a name in the list is name but for the case of letters.
func (n *names) folds(name []byte) bool {
	return slices.ContainsFunc(n.list, func(s string) bool { return strings.EqualFold(s, string(name)) })
}

// A numberBound is one keyword that bounds a number.
type numberBound struct {
	keyword string
	literal string
	limit   decimal
	small   int64 // the limit again, if isSmall
	isSmall bool
}

// allowsSmall is allows for small numbers.
func (b *numberBound) allowsSmall(x int64) bool {
	switch b.keyword {
	case "minimum":
		return x >= b.small
	case "maximum":
		return x <= b.small
	case "exclusiveMinimum":
		return x > b.small
	case "exclusiveMaximum":
		return x < b.small
	}
	return x%b.small == 0
}

// allows reports whether the number d keeps to the bound.
func (b *numberBound) allows(d decimal) bool {
	switch b.keyword {
	case "minimum":
		return d.compare(b.limit) >= 0
	case "maximum":
		return d.compare(b.limit) <= 0
	case "exclusiveMinimum":
		return d.compare(b.limit) > 0
	case "exclusiveMaximum":
		return d.compare(b.limit) < 0
	}
	return d.multipleOf(b.limit)
}

// numberKeywords are the keywords that bound a number.
var numberKeywords = [...]string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}

// A compiler turns a schema that a checker has passed into nodes.
type compiler struct {
	checker *checker
	targets map[*value]*node // what references lead to
	unions  []*node
}

func newCompiler(c *checker) *compiler { return &compiler{checker: c} }

// compile returns the node of the root.
func (c *compiler) compile() *node {
	root := &node{}
	c.targets = map[*value]*node{c.checker.root: root}
	c.read(root, c.checker.root)
	flat := make([][]*node, len(c.unions))
	for i, u := range c.unions {
		flat[i] = leaves(nil, u, map[*node]bool{})
	}
	for i, u := range c.unions {
		u.anyOf = flat[i]
		for _, leaf := range flat[i] {
			u.kinds |= leaf.kinds
		}
	}
	return root
}

// leaves appends the branches of an anyOf to list, and those of a branch that
// is an anyOf itself in its place: it may lead back to the first.
func leaves(list []*node, n *node, seen map[*node]bool) []*node {
	if seen[n] {
		return list
	}
	seen[n] = true
	if n.anyOf == nil {
		return append(list, n)
	}
	for _, b := range n.anyOf {
		list = leaves(list, b, seen)
	}
	return list
}

func (c *compiler) node(v *value) *node {
	if v.get("$ref") == nil {
		n := &node{}
		c.read(n, v)
		return n
	}
	v = c.checker.follow(v) // which does not lead back to itself alone
	if n := c.targets[v]; n != nil {
		return n
	}
	n := &node{}
	c.targets[v] = n
	c.read(n, v)
	return n
}

// read makes n the node of v, which is no reference.
func (c *compiler) read(n *node, v *value) {
	n.maxItems = -1
	if branches := v.get("anyOf"); branches != nil {
		c.unions = append(c.unions, n)
		n.anyOf = make([]*node, len(branches.elems))
		for i, b := range branches.elems {
			n.anyOf[i] = c.node(b)
		}
		return
	}
	n.kinds = nodeKinds(v)
	if allowsNull(v) {
		n.kinds |= null
	}
	if props := v.get("properties"); props != nil {
		list := make([]string, len(props.members))
		n.props = make([]*node, len(props.members))
		for i, p := range props.members {
			list[i], n.props[i] = p.name, c.node(p.value)
		}
		n.names = namesOf(list)
	}
	if items := v.get("items"); items != nil {
		n.items = c.node(items)
	}
	n.constrain(v)
}

// constrain takes over the keywords that bound a value.
func (n *node) constrain(v *value) {
	if m := v.get("minItems"); m != nil {
		n.minItems, _ = strconv.Atoi(m.text)
	}
	if m := v.get("maxItems"); m != nil {
		n.maxItems, _ = strconv.Atoi(m.text)
	}
	if e := v.get("enum"); e != nil {
		n.enum = e.elems
	}
	if k := v.get("const"); k != nil {
		n.enum = []*value{k}
	}
	if n.enum != nil {
		n.texts, n.numbers = map[string]bool{}, map[string]bool{}
	}
	for _, x := range n.enum {
		switch x.kind {
		case text:
			n.texts[x.text] = true
		case number:
			n.numbers[x.identity()] = true
		}
	}
	if p := v.get("pattern"); p != nil {
		n.pattern = newPattern(p.text)
	}
	n.format = formats[v.str("format")]
	for _, keyword := range numberKeywords {
		if m := v.get(keyword); m != nil {
			b := numberBound{keyword: keyword, literal: m.text, limit: parseDecimal(m.text)}
			b.small, b.isSmall = parseSmall([]byte(m.text))
			n.bounds = append(n.bounds, b)
		}
	}
}
