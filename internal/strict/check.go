package strict

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Check returns an [*Error] that names the first rule of strict mode that
// schema breaks, or nil. It works by a list of what is permitted, so it also
// refuses what one deployment accepts and another does not.
func Check(schema []byte) error {
	if _, err := judge(schema); err != nil {
		return err
	}
	return nil
}

// judge parses schema and checks it.
func judge(schema []byte) (*checker, *Error) {
	if f := syntax(schema); f != nil {
		return nil, &Error{Rule: RuleJSON, Reason: fmt.Sprintf("not JSON at byte %d: %s", f.offset, f.reason)}
	}
	s := scanner{data: schema}
	root, twice, ok := s.parse()
	if !ok {
		return nil, &Error{Rule: RuleJSON, Name: twice, Reason: fmt.Sprintf("the key %q is there twice in one object", twice)}
	}
	c := newChecker(root)
	return c, c.check()
}

// A checker judges one schema.
type checker struct {
	root   *value
	defs   map[string]*value
	path   []string
	size   size
	ahead  map[*value]*value // where references lead to in the end
	refers bool              // there are references
}

func newChecker(root *value) *checker {
	c := &checker{root: root, defs: map[string]*value{}, ahead: map[*value]*value{}}
	if root.kind != object {
		return c
	}
	if defs := root.get("$defs"); defs != nil {
		for _, d := range defs.members {
			c.defs[d.name] = d.value
		}
	}
	return c
}

// keywords says for which types a keyword may be used. The zero set means
// that the keyword does not go with a type, but is known.
var keywords = map[string]kinds{
	"type":                 ^kinds(0),
	"title":                ^kinds(0),
	"description":          ^kinds(0),
	"properties":           object,
	"required":             object,
	"additionalProperties": object,
	"items":                array,
	"minItems":             array,
	"maxItems":             array,
	"enum":                 scalar,
	"const":                scalar,
	"pattern":              text,
	"format":               text,
	"minimum":              number | integer,
	"maximum":              number | integer,
	"exclusiveMinimum":     number | integer,
	"exclusiveMaximum":     number | integer,
	"multipleOf":           number | integer,
	"anyOf":                0,
	"$ref":                 0,
}

// rootKeywords may stand at the root only.
var rootKeywords = []string{"$defs", "definitions", "$schema", "$id"}

func (c *checker) fail(rule Rule, name, reason string, args ...any) *Error {
	return &Error{Path: slices.Clone(c.path), Rule: rule, Name: name, Reason: fmt.Sprintf(reason, args...)}
}

// at runs check with the path extended.
func (c *checker) at(check func() *Error, steps ...string) *Error {
	n := len(c.path)
	c.path = append(c.path, steps...)
	err := check()
	c.path = c.path[:n]
	return err
}

func (c *checker) check() *Error {
	if err := c.checkRoot(); err != nil {
		return err
	}
	if err := c.node(c.root); err != nil {
		return err
	}
	if err := c.finite(); err != nil {
		return err
	}
	return c.flat()
}

func (c *checker) checkRoot() *Error {
	if c.root.kind != object {
		return c.fail(RuleRoot, "None", "the root must be an object schema, not %s", c.root.kind)
	}
	t := c.root.get("type")
	switch {
	case t == nil:
		return c.fail(RuleRoot, "None", `the root must have "type": "object"; anyOf, enum and $ref are for the levels below`)
	case t.kind != text || t.text != "object":
		name := t.text
		if t.kind != text {
			name = t.String()
		}
		return c.fail(RuleRoot, name, `the root must have "type": "object" and not %s`, t)
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"} {
		if c.root.get(name) != nil {
			return c.fail(RuleKeyword, name, "'%s' is not permitted at the root", name)
		}
	}
	return nil
}

// node checks one schema and all below it.
func (c *checker) node(v *value) *Error {
	if v.kind != object {
		return c.fail(RuleSchema, "", "a schema must be an object that says a type, not %s", clip(v.String()))
	}
	for _, m := range v.members {
		if _, known := keywords[m.name]; known {
			continue
		}
		if !slices.Contains(rootKeywords, m.name) {
			advice := instead[m.name]
			if m.name == "minLength" || m.name == "maxLength" {
				advice = lengthAdvice(v)
			}
			return c.fail(RuleKeyword, m.name, "'%s' is not permitted%s", m.name, advice)
		}
		if v != c.root {
			return c.fail(RuleKeyword, m.name, "'%s' is permitted at the root only", m.name)
		}
	}
	for _, name := range []string{"title", "description", "$schema", "$id"} {
		if s := v.get(name); s != nil && s.kind != text {
			return c.fail(RuleValue, name, "'%s' must be a string", name)
		}
	}
	switch {
	case v.get("$ref") != nil:
		return c.ref(v)
	case v.get("anyOf") != nil:
		return c.anyOf(v)
	case v.get("type") == nil:
		return c.fail(RuleType, "", "a schema must have a type, an anyOf or a $ref")
	}
	types, err := c.types(v)
	if err != nil {
		return err
	}
	for _, m := range v.members {
		if on, known := keywords[m.name]; known && on&types == 0 {
			return c.fail(RuleKeyword, m.name, "'%s' does not apply to type %s", m.name, types)
		}
	}
	if err := c.values(v, types); err != nil {
		return err
	}
	switch {
	case types&object != 0:
		err = c.object(v)
	case types&array != 0:
		err = c.array(v)
	}
	if err != nil {
		return err
	}
	if err := c.withinLimits(); err != nil {
		return err
	}
	if v == c.root {
		return c.definitions()
	}
	return nil
}

// instead says what to use in place of a refused keyword.
var instead = map[string]string{
	"oneOf":       ", use anyOf with branches that exclude each other",
	"allOf":       ", merge the schemas",
	"nullable":    `, add "null" to the types`,
	"default":     ", name the default in the description",
	"examples":    ", give examples in the description",
	"example":     ", give an example in the description",
	"prefixItems": ", use an object with a property for each position",
}

// lengthAdvice says what to use in place of the bounds of a string's length.
func lengthAdvice(v *value) string {
	low, high := 0, -1
	if n := v.get("minLength"); n != nil {
		low, _ = strconv.Atoi(n.text)
	}
	if n := v.get("maxLength"); n != nil {
		high, _ = strconv.Atoi(n.text)
	}
	p := lengthPattern(low, high)
	if p == "" || v.get("pattern") != nil {
		return ", say it in the description"
	}
	return `, use "pattern":` + newString(p).String()
}

// types reads the type of a node that has one.
func (c *checker) types(v *value) (kinds, *Error) {
	t := v.get("type")
	if t.kind == text {
		if k := kindNamed(t.text); k != 0 {
			return k, nil
		}
		return 0, c.fail(RuleType, t.text, "%q is not a JSON type", t.text)
	}
	if t.kind == array && len(t.elems) == 2 {
		var k kinds
		for _, e := range t.elems {
			if e.kind == text {
				k |= kindNamed(e.text)
			}
		}
		switch base := k &^ null; base {
		case text, number, integer, boolean:
			if k&null != 0 {
				return k, nil
			}
		case object, array:
			if k&null != 0 {
				return 0, c.fail(RuleType, t.String(), `%s is refused, use anyOf with the %s and {"type":"null"}`, t, base)
			}
		}
	}
	return 0, c.fail(RuleType, t.String(), `a type is one name or a pair such as ["string","null"], not %s; use anyOf`, clip(t.String()))
}

func (c *checker) object(v *value) *Error {
	props := v.get("properties")
	if props == nil {
		return c.fail(RuleProperties, "", "an object schema must have properties; a map has no strict form")
	}
	if props.kind != object {
		return c.fail(RuleValue, "properties", "'properties' must be an object")
	}
	if a := v.get("additionalProperties"); a == nil || a.text != "false" || a.kind != boolean {
		return c.fail(RuleClosed, "additionalProperties", "'additionalProperties' must be there and be false")
	}
	if err := c.required(v, props); err != nil {
		return err
	}
	if len(props.members) == 0 && v != c.root {
		return c.fail(RuleCaution, "empty object", "an object without properties is accepted at the root only")
	}
	c.size.properties += len(props.members)
	for _, p := range props.members {
		c.size.add(p.name)
		if err := c.at(func() *Error { return c.node(p.value) }, "properties", p.name); err != nil {
			return err
		}
	}
	return nil
}

// required checks that the list names the properties of an object, all of
// them and nothing else.
func (c *checker) required(v, props *value) *Error {
	list := v.get("required")
	if list == nil {
		name := ""
		if len(props.members) > 0 {
			name = props.members[0].name
		}
		return c.fail(RuleRequired, name, "'required' must be there and name every property; an optional one is required and nullable")
	}
	if list.kind != array {
		return c.fail(RuleValue, "required", "'required' must be an array of strings")
	}
	inOrder := len(list.elems) == len(props.members)
	for i := 0; inOrder && i < len(list.elems); i++ {
		e := list.elems[i]
		inOrder = e.kind == text && e.text == props.members[i].name
	}
	if inOrder {
		return nil // as most are, and no property is there twice
	}
	listed := make(map[string]bool, len(list.elems))
	for _, e := range list.elems {
		if e.kind != text {
			return c.fail(RuleValue, "required", "'required' must be an array of strings")
		}
		if listed[e.text] {
			return c.fail(RuleUnique, "required", "'required' names %q twice", e.text)
		}
		listed[e.text] = true
	}
	for _, p := range props.members {
		if !listed[p.name] {
			return c.fail(RuleRequired, p.name, "'required' must name every property and lacks %q; an optional one is required and nullable", p.name)
		}
		delete(listed, p.name)
	}
	for _, e := range list.elems {
		if listed[e.text] {
			return c.fail(RuleExtra, e.text, "'required' names %q, which is not a property", e.text)
		}
	}
	return nil
}

func (c *checker) array(v *value) *Error {
	items := v.get("items")
	if items == nil {
		return c.fail(RuleItems, "", "an array schema must have items")
	}
	return c.at(func() *Error { return c.node(items) }, "items")
}

func (c *checker) definitions() *Error {
	for _, keyword := range []string{"$defs", "definitions"} {
		defs := c.root.get(keyword)
		if defs == nil {
			continue
		}
		if defs.kind != object {
			return c.fail(RuleValue, keyword, "'%s' must be an object", keyword)
		}
		for _, d := range defs.members {
			if !isDefName(d.name) {
				return c.fail(RuleCaution, "definition name", "the definition name %q must be of letters, digits, '_', '.' and '-'", clip(d.name))
			}
			c.size.add(d.name)
			if err := c.withinLimits(); err != nil {
				return err
			}
			if err := c.at(func() *Error { return c.node(d.value) }, keyword, d.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isDefName reports whether name needs no escape in a reference.
func isDefName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return name != ""
}

func (c *checker) ref(v *value) *Error {
	c.refers = true
	ref := v.get("$ref")
	if ref.kind != text {
		return c.fail(RuleValue, "$ref", "'$ref' must be a string")
	}
	if len(v.members) > 1 {
		return c.fail(RuleRef, ref.text, `'$ref' must stand alone; wrap it as {"description": ..., "anyOf": [{"$ref": ...}]}`)
	}
	if c.resolve(v) == nil {
		return c.fail(RuleRef, ref.text, "%q leads nowhere: a reference is # or #/$defs/NAME", clip(ref.text))
	}
	return nil
}

// resolve returns the schema that the reference v leads to, or nil.
func (c *checker) resolve(v *value) *value {
	ref := v.str("$ref")
	if ref == "#" {
		return c.root
	}
	if name, ok := strings.CutPrefix(ref, "#/$defs/"); ok {
		return c.defs[name]
	}
	return nil
}

// follow returns what v means after all references, or nil if they only lead
// to each other. It goes each way once.
func (c *checker) follow(v *value) *value {
	var passed []*value
	for v != nil && v.get("$ref") != nil {
		end, known := c.ahead[v]
		if known {
			v = end
			break
		}
		c.ahead[v] = nil // for a circle
		passed = append(passed, v)
		v = c.resolve(v)
	}
	for _, p := range passed {
		c.ahead[p] = v
	}
	return v
}

func (c *checker) anyOf(v *value) *Error {
	for _, m := range v.members {
		switch m.name {
		case "anyOf", "title", "description":
		default:
			return c.fail(RuleKeyword, m.name, "'%s' is not permitted beside anyOf", m.name)
		}
	}
	branches := v.get("anyOf")
	if branches.kind != array || len(branches.elems) == 0 {
		return c.fail(RuleValue, "anyOf", "'anyOf' must be an array with at least one schema")
	}
	for i, b := range branches.elems {
		if err := c.at(func() *Error { return c.node(b) }, "anyOf", strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return c.firstKeys(branches.elems)
}

// firstKeys checks that no two object branches of an anyOf begin with the same
// property, unless it tells them apart by its value.
func (c *checker) firstKeys(branches []*value) *Error {
	seen := map[string]map[string]bool{} // the values of a first property, empty for any
	for _, b := range branches {
		b = c.follow(b)
		if b == nil || b.kind != object || b.str("type") != "object" {
			continue
		}
		props := b.get("properties")
		if props == nil || len(props.members) == 0 {
			continue
		}
		first := props.members[0]
		values := map[string]bool{}
		for _, x := range listed(first.value) {
			values[x.identity()] = true
		}
		before, met := seen[first.name]
		clash := met && (len(before) == 0 || len(values) == 0)
		for x := range values {
			clash = clash || before[x]
		}
		if clash {
			return c.fail(RuleCaution, "first key", "two object branches of anyOf begin with the property %q; begin each with a constant that tells them apart", clip(first.name))
		}
		if met {
			maps.Copy(before, values)
		} else {
			seen[first.name] = values
		}
	}
	return nil
}

// disjoint reports whether no value can fit both a and b because each of them
// lists its values.
func disjoint(a, b *value) bool {
	x, y := listed(a), listed(b)
	for _, v := range x {
		if slices.ContainsFunc(y, v.equal) {
			return false
		}
	}
	return len(x) > 0 && len(y) > 0
}

// listed returns the only values that a schema allows, if it lists them.
func listed(v *value) []*value {
	if v.kind != object {
		return nil
	}
	if k := v.get("const"); k != nil {
		return []*value{k}
	}
	if e := v.get("enum"); e != nil {
		return e.elems
	}
	return nil
}

// clip shortens s to what fits into a message.
func clip(s string) string {
	const most = 80
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
