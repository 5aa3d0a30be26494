package strict

import (
	"strconv"
	"strings"
)

// equal reports whether two scalars are the same JSON value.
func (v *value) equal(w *value) bool {
	if v.kind == number && w.kind == number {
		return parseDecimal(v.text).compare(parseDecimal(w.text)) == 0
	}
	return v.kind == w.kind && v.text == w.text
}

// identity returns a key under which equal scalars meet.
func (v *value) identity() string {
	if v.kind == number {
		d := parseDecimal(v.text)
		return "0" + strconv.FormatBool(d.neg) + strconv.Itoa(d.exp) + "." + d.digits
	}
	return v.String()
}

// fits reports whether the scalar v is of one of the types in k.
func (v *value) fits(k kinds) bool {
	if v.kind == number {
		return k&number != 0 || k&integer != 0 && isInteger(v.text)
	}
	return v.kind&k&(scalar|null) != 0
}

// values checks the keywords of a node that bound its value.
func (c *checker) values(v *value, types kinds) *Error {
	if err := c.enum(v, types); err != nil {
		return err
	}
	if p := v.get("pattern"); p != nil {
		if p.kind != text {
			return c.fail(RuleValue, "pattern", "'pattern' must be a string")
		}
		if err := checkPattern(p.text); err != nil {
			return c.fail(RuleValue, "pattern", "the pattern %q cannot be used: %v", clip(p.text), err)
		}
	}
	if f := v.get("format"); f != nil && (f.kind != text || formats[f.text] == nil) {
		return c.fail(RuleValue, "format", "the format %s is not one of %s", clip(f.String()), formatNames)
	}
	for _, name := range []string{"minItems", "maxItems"} {
		if n := v.get(name); n != nil {
			if _, err := strconv.Atoi(n.text); n.kind != number || err != nil || strings.HasPrefix(n.text, "-") {
				return c.fail(RuleValue, name, "'%s' must be a whole number from zero up", name)
			}
		}
	}
	for _, name := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
		if n := v.get(name); n != nil && n.kind != number {
			return c.fail(RuleValue, name, "'%s' must be a number", name)
		}
	}
	if m := v.get("multipleOf"); m != nil && parseDecimal(m.text).sign() <= 0 {
		return c.fail(RuleValue, "multipleOf", "'multipleOf' must be greater than zero")
	}
	if name := contradiction(v); name != "" {
		return c.fail(RuleValue, name, "the bounds leave no value")
	}
	return nil
}

func (c *checker) enum(v *value, types kinds) *Error {
	e := v.get("enum")
	if k := v.get("const"); k != nil {
		if !k.fits(types) {
			return c.fail(RuleValue, "const", "the constant %s is not of type %s", clip(k.String()), types)
		}
		if e != nil && !containsEqual(e.elems, k) {
			return c.fail(RuleValue, "const", "the constant %s is not one of the enum", clip(k.String()))
		}
		c.size.add(k.text)
	}
	if e == nil {
		return nil
	}
	if e.kind != array || len(e.elems) == 0 {
		return c.fail(RuleValue, "enum", "'enum' must be an array with at least one value")
	}
	seen := make(map[string]bool, len(e.elems))
	total, hasNull := 0, false
	for _, x := range e.elems {
		if !x.fits(types) {
			return c.fail(RuleValue, "enum", "the enum value %s is not of type %s", clip(x.String()), types)
		}
		id := x.identity()
		if seen[id] {
			return c.fail(RuleUnique, "enum", "'enum' has %s twice", clip(x.String()))
		}
		seen[id] = true
		hasNull = hasNull || x.kind == null
		total += c.size.add(x.text)
	}
	if types&null != 0 && !hasNull {
		return c.fail(RuleCaution, "null enum", "the type has null and the enum has not, so null cannot be answered; add it or use anyOf")
	}
	c.size.enums += len(e.elems)
	if len(e.elems) > maxLongEnum && total > maxEnumText {
		return c.fail(RuleLimit, "enum text", "an enum of more than %d values has %d characters, and at most %d are accepted", maxLongEnum, total, maxEnumText)
	}
	return nil
}

// contradiction returns the name of a lower bound that lies above the upper
// one, or "".
func contradiction(v *value) string {
	for _, p := range [...]struct {
		low, high string
		open      bool // the bounds themselves are excluded
	}{
		{"minItems", "maxItems", false},
		{"minimum", "maximum", false},
		{"exclusiveMinimum", "maximum", true},
		{"minimum", "exclusiveMaximum", true},
		{"exclusiveMinimum", "exclusiveMaximum", true},
	} {
		low, high := v.get(p.low), v.get(p.high)
		if low == nil || high == nil {
			continue
		}
		if c := parseDecimal(low.text).compare(parseDecimal(high.text)); c > 0 || c == 0 && p.open {
			return p.low
		}
	}
	return ""
}
