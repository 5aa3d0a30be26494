package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A constrainer applies the tag of a field to the schema of its type.
type constrainer struct {
	generator *generator
	node      *value
	typ       reflect.Type // without pointers
	quoted    bool         // json:",string"
}

func (c *constrainer) apply(t *tag) error {
	for _, k := range t.constraints {
		if err := c.constrain(k); err != nil {
			return err
		}
	}
	if len(t.constraints) > 0 {
		if err := c.consistent(); err != nil {
			return err
		}
	}
	return c.notes(t)
}

// target returns the schema that a keyword of the tag is about: the elements
// of a slice for all but its length, as the jsonschema package has it. It is
// written out where a definition was only used, so that it can be changed.
func (c *constrainer) target(keyword string) (*value, reflect.Type, error) {
	v, t := c.node, c.typ
	c.generator.expand(v)
	if v.str("type") == "array" && keywords[keyword]&array == 0 {
		v = v.get("items")
		c.generator.expand(v)
		if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
			t = t.Elem()
		}
		t, _ = Pointee(t)
	}
	k := nodeKinds(v)
	if isBase64(t) && k == text {
		return nil, nil, fmt.Errorf("%s does not apply to bytes in base64", keyword)
	}
	on, known := keywords[keyword]
	if !known {
		on = scalar // default, example
	}
	if k&on == 0 {
		return nil, nil, fmt.Errorf("%s does not apply to %s", keyword, describeNode(v))
	}
	return v, t, nil
}

// nodeKinds returns the types of a node that has some, without null.
func nodeKinds(v *value) kinds {
	t := v.get("type")
	if t == nil {
		return 0
	}
	k := kindNamed(t.text)
	for _, e := range t.elems {
		k |= kindNamed(e.text)
	}
	return k &^ null
}

func describeNode(v *value) string {
	if k := nodeKinds(v); k != 0 {
		return "a value of type " + k.String()
	}
	return "a value of this type"
}

// isBase64 reports whether encoding/json decodes base64 into a t.
func isBase64(t reflect.Type) bool {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Uint8 {
		return false
	}
	for _, t := range []reflect.Type{t, t.Elem()} {
		if decodesJSON(t) || decodesText(t) || hasCustom(t) {
			return false
		}
	}
	return true
}

func (c *constrainer) constrain(k constraint) error {
	v, t, err := c.target(k.name)
	if err != nil {
		return err
	}
	val := k.values[0]
	old := v.get(k.name)
	switch k.name {
	case "enum":
		return c.enum(v, t, k.values)
	case "pattern":
		if old != nil && !c.quoted && old.text != val {
			return fmt.Errorf("the pattern %q contradicts the pattern %q of the type", clip(val), clip(old.text))
		}
		if err := checkPattern(val); err != nil {
			return fmt.Errorf("the pattern %q cannot be used: %v", clip(val), err)
		}
		v.set("pattern", newString(val))
	case "format":
		if formats[val] == nil {
			return fmt.Errorf("the format %q is not supported in strict mode, only %s; name it in the description", clip(val), formatNames)
		}
		if old != nil && old.text != val {
			return fmt.Errorf("the format %s contradicts the format %s of the type", val, old.text)
		}
		v.set("format", newString(val))
	case "minItems", "maxItems":
		if c.typ.Kind() == reflect.Array && !hasCustom(c.typ) {
			return fmt.Errorf("%s contradicts the fixed length of an array", k.name)
		}
		n, err := strconv.Atoi(val)
		if err != nil || n < 0 || strconv.Itoa(n) != val {
			return fmt.Errorf("%s=%s is not a whole number from zero up", k.name, clip(val))
		}
		v.set(k.name, newInt(n))
	default:
		return bound(v, t, k.name, val)
	}
	return nil
}

func (c *constrainer) enum(v *value, t reflect.Type, values []string) error {
	list := newArray()
	old := v.get("enum")
	for _, s := range values {
		x, err := c.literal(nodeKinds(v), t, s)
		if err != nil {
			return fmt.Errorf("the enum value %w", err)
		}
		if slices.ContainsFunc(list.elems, x.equal) {
			return fmt.Errorf("the enum value %q is given twice", clip(s))
		}
		if old != nil && !containsEqual(old.elems, x) {
			return fmt.Errorf("the enum value %q is none of those of the type", clip(s))
		}
		list.elems = append(list.elems, x)
	}
	if c.quoted {
		v.remove("pattern") // the enum says more
	}
	v.set("enum", list)
	return nil
}

func containsEqual(list []*value, x *value) bool {
	return slices.ContainsFunc(list, x.equal)
}

// literal reads a value from a tag and makes sure that t can hold it.
func (c *constrainer) literal(k kinds, t reflect.Type, s string) (*value, error) {
	var v *value
	switch {
	case k == text:
		v = newString(s)
	case k == boolean:
		if s != "true" && s != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", clip(s))
		}
		v = newBool(s == "true")
	case !isNumber(s):
		return nil, fmt.Errorf("%q is not a JSON number", clip(s))
	case k == integer && !isInteger(s):
		return nil, fmt.Errorf("%s is not an integer", clip(s))
	default:
		v = newNumber(s)
	}
	source := v.append(nil)
	if c.quoted {
		source = []byte(s)
	}
	if err := unmarshal(source, reflect.New(t).Interface()); err != nil {
		return nil, fmt.Errorf("%q cannot be decoded into the type", clip(s))
	}
	return v, nil
}

// unmarshal is json.Unmarshal for types whose methods may panic.
func unmarshal(data []byte, into any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r}
		}
	}()
	return json.Unmarshal(data, into)
}

// A panicError is the panic of a method that decodes.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic while decoding: %v", e.value) }

// bound sets a bound of a number, which must leave something of its Go type.
func bound(v *value, t reflect.Type, name, val string) error {
	if !isNumber(val) {
		return fmt.Errorf("%s=%s is not a JSON number", name, clip(val))
	}
	if name == "multipleOf" && parseDecimal(val).sign() <= 0 {
		return errors.New("multipleOf must be greater than zero")
	}
	if nodeKinds(v) == integer {
		if !isInteger(val) {
			return fmt.Errorf("%s=%s is not an integer", name, clip(val))
		}
		n, _ := new(big.Int).SetString(val, 10)
		if isIntegerKind(t.Kind()) {
			low, high := integerRange(t.Kind())
			switch name {
			case "exclusiveMinimum":
				low.Sub(low, big.NewInt(1))
			case "exclusiveMaximum":
				high.Add(high, big.NewInt(1))
			}
			if n.Cmp(low) < 0 || n.Cmp(high) > 0 {
				return fmt.Errorf("%s=%s lies beyond the range of the type", name, clip(val))
			}
		}
	} else if f, err := strconv.ParseFloat(val, 64); err != nil || t.Kind() == reflect.Float32 && math.Abs(f) > math.MaxFloat32 {
		return fmt.Errorf("%s=%s lies beyond the range of the type", name, clip(val))
	}
	switch name {
	case "exclusiveMinimum":
		dropImplicit(v, t, "minimum")
	case "exclusiveMaximum":
		dropImplicit(v, t, "maximum")
	}
	v.set(name, newNumber(val))
	return nil
}

// dropImplicit removes a bound that only says what t can hold.
func dropImplicit(v *value, t reflect.Type, name string) {
	if !isIntegerKind(t.Kind()) || v.get(name) == nil {
		return
	}
	if implicit := integerSchema(t).get(name); implicit != nil && implicit.text == v.get(name).text {
		v.remove(name)
	}
}

func isIntegerKind(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Uintptr }

// integerBits are the sizes of the integer kinds.
var integerBits = [...]uint{
	reflect.Int: strconv.IntSize, reflect.Int8: 8, reflect.Int16: 16, reflect.Int32: 32, reflect.Int64: 64,
	reflect.Uint: strconv.IntSize, reflect.Uint8: 8, reflect.Uint16: 16, reflect.Uint32: 32, reflect.Uint64: 64,
	reflect.Uintptr: strconv.IntSize,
}

// integerRange returns the smallest and the largest value of an integer kind.
func integerRange(k reflect.Kind) (low, high *big.Int) {
	one := big.NewInt(1)
	bits := integerBits[k]
	low = new(big.Int)
	if k <= reflect.Int64 {
		bits--
		low.Lsh(one, bits).Neg(low)
	}
	high = new(big.Int).Lsh(one, bits)
	return low, high.Sub(high, one)
}

// consistent checks that the keywords of the node leave a value, and that each
// enum value keeps to the others.
func (c *constrainer) consistent() error {
	nodes := []*value{c.node}
	if items := c.node.get("items"); items != nil {
		nodes = append(nodes, items)
	}
	for _, v := range nodes {
		if contradiction(v) != "" || nodeKinds(v) == integer && !holdsInteger(v) {
			return errors.New("the bounds contradict each other and leave no value")
		}
		enum := v.get("enum")
		if enum == nil {
			continue
		}
		for _, x := range enum.elems {
			if !accepts(v, x) {
				return fmt.Errorf("the enum value %s contradicts the rest of the tag", clip(x.String()))
			}
		}
	}
	return nil
}

// holdsInteger reports whether an integer lies within the bounds of v.
func holdsInteger(v *value) bool {
	get := func(name string, open int64) *big.Int {
		m := v.get(name)
		if m == nil {
			return nil
		}
		n, ok := new(big.Int).SetString(m.text, 10)
		if !ok {
			return nil
		}
		return n.Add(n, big.NewInt(open))
	}
	for _, low := range []*big.Int{get("minimum", 0), get("exclusiveMinimum", 1)} {
		for _, high := range []*big.Int{get("maximum", 0), get("exclusiveMaximum", -1)} {
			if low != nil && high != nil && low.Cmp(high) > 0 {
				return false
			}
		}
	}
	return true
}

// accepts reports whether the scalar x fits the schema v of a scalar.
func accepts(v, x *value) bool {
	n := newCompiler(newChecker(newObject())).node(v)
	p := pass{scanner: scanner{data: x.append(nil)}}
	p.value(n)
	return p.count == 0
}

// notes turns defaults and examples, which strict mode does not take, into a
// remark for the description.
func (c *constrainer) notes(t *tag) error {
	for _, n := range [...]struct {
		keyword, plural string
		values          []string
	}{{"default", "default", t.defaults}, {"example", "examples", t.examples}} {
		if len(n.values) == 0 {
			continue
		}
		v, typ, err := c.target(n.keyword)
		if err != nil {
			return err
		}
		if n.keyword == "default" && len(n.values) > 1 && v == c.node {
			return errors.New("default is given twice")
		}
		for _, s := range n.values {
			x, err := c.literal(nodeKinds(v), typ, s)
			if err != nil {
				return fmt.Errorf("the %s %w", n.keyword, err)
			}
			if !accepts(v, x) {
				return fmt.Errorf("the %s %q contradicts the rest of the tag", n.keyword, clip(s))
			}
		}
		word := n.keyword
		if len(n.values) > 1 {
			word = n.plural
		}
		t.notes = append(t.notes, word+": "+strings.Join(n.values, ", "))
	}
	return nil
}

// ownForms are the words by which the description of a type tells of its form,
// and the remark that keeps telling it when a field has its own description.
var ownForms = [...]struct{ word, remark string }{
	{"nanosecond", " (in nanoseconds)"},
	{"base64", " (in base64)"},
	{"json", " (JSON in a string)"},
}

// describe gives v title and description. What the type itself has to say
// about its form stays.
func (c *constrainer) describe(v *value, t *tag) *value {
	description := v.str("description")
	if t.description != "" {
		own, given := strings.ToLower(description), strings.ToLower(t.description)
		description = t.description
		for _, form := range ownForms {
			if strings.Contains(own, form.word) && !strings.Contains(given, form.word) {
				description += form.remark
			}
		}
	}
	switch notes := strings.Join(t.notes, "; "); {
	case notes != "" && description == "":
		description = strings.ToUpper(notes[:1]) + notes[1:]
	case notes != "":
		description += " (" + notes + ")"
	}
	if v.get("$ref") != nil && (description != "" || t.title != "") {
		v = newObject(member{"anyOf", newArray(v)}) // a reference stands alone
	}
	if description != "" && description != v.str("description") {
		v.setFirst("description", newString(description))
	}
	if t.title != "" {
		v.setFirst("title", newString(t.title))
	}
	return v
}
