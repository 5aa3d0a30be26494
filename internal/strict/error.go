package strict

import (
	"reflect"
	"strings"
)

// A Rule names what a schema breaks. The text is a stable identifier.
type Rule string

// The rules of strict mode.
const (
	RuleJSON       Rule = "json"       // the text is one JSON value without duplicate keys
	RuleRoot       Rule = "root"       // the root is an object schema; Name is the type found, "None" if there is none
	RuleSchema     Rule = "schema"     // a schema is an object with content
	RuleType       Rule = "type"       // there is a type, anyOf or $ref, and the type is a known one; Name is "" if it is missing
	RuleKeyword    Rule = "keyword"    // only supported keywords, each where it belongs; Name is the keyword
	RuleProperties Rule = "properties" // an object has properties
	RuleClosed     Rule = "closed"     // an object has additionalProperties: false
	RuleRequired   Rule = "required"   // required is there and names every property; Name is the missing one
	RuleExtra      Rule = "extra"      // required names nothing else; Name is the extra one
	RuleUnique     Rule = "unique"     // no element is there twice; Name is the keyword
	RuleItems      Rule = "items"      // an array has items
	RuleValue      Rule = "value"      // a keyword has a value that it can have; Name is the keyword
	RuleRef        Rule = "ref"        // a $ref stands alone and leads to # or #/$defs/NAME
	RuleFinite     Rule = "finite"     // some finite value fits
	RuleLimit      Rule = "limit"      // the sizes that OpenAI documents; Name says which
	RuleCaution    Rule = "caution"    // what only some deployments refuse; Name says what
)

// An Error is the first rule that a schema breaks.
type Error struct {
	// Path leads from the root of the schema to the node at fault, such as
	// "properties", "a", "items". It is empty for the root.
	Path []string
	// Rule is the rule that is broken.
	Rule Rule
	// Name is the keyword, property or limit that the rule is about.
	Name string
	// Reason is the whole story in words.
	Reason string
}

// Error returns the path as a JSON pointer and the reason.
func (e *Error) Error() string { return e.Pointer() + ": " + e.Reason }

// Pointer returns the path as a JSON pointer in its URI form, such as
// "#/properties/a/items".
func (e *Error) Pointer() string {
	var b strings.Builder
	b.WriteByte('#')
	for _, step := range e.Path {
		b.WriteByte('/')
		b.WriteString(pointerEscaper.Replace(step))
	}
	return b.String()
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// A TypeError says why a Go type has no strict schema.
type TypeError struct {
	// Path leads to the field at fault in Go's own notation, such as
	// "Order.Items[].Meta".
	Path string
	// JSON is the same path as it looks in the arguments, such as
	// "items[].meta". It is empty for the root.
	JSON string
	// Type is the type at fault. It is nil only if there was none to begin with.
	Type reflect.Type
	// Reason says what is wrong and what to use instead.
	Reason string
}

func (e *TypeError) Error() string {
	var b strings.Builder
	b.WriteString(e.Path)
	if e.JSON != "" && !strings.HasSuffix(e.Path, "."+e.JSON) {
		b.WriteString(" (" + e.JSON + " in JSON)")
	}
	if e.Type != nil {
		b.WriteString(": " + clip(TypeName(e.Type)))
	}
	b.WriteString(": " + e.Reason)
	return b.String()
}

// TypeName returns the name of t as it is written in Go today, with any.
func TypeName(t reflect.Type) string {
	return strings.ReplaceAll(t.String(), "interface {}", "any")
}
