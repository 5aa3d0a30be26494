package strict

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxProblems = 6    // told at once
	maxMessage  = 2000 // bytes of all of them
	maxQuote    = 80   // characters of a value that are quoted
)

// An ArgumentError says what is wrong with a model's arguments, in words for
// the model: one line of at most 2000 bytes of valid UTF-8 that names JSON
// paths and says what is expected, without a trace of Go.
type ArgumentError struct {
	// Problems are the first few problems, each as "path: problem".
	Problems []string
	// Incomplete reports that the arguments are the beginning of JSON that was
	// cut short. To ask for the same again would only have it cut again.
	Incomplete bool

	more int
	err  error
}

// Error returns the problems, separated by semicolons.
func (e *ArgumentError) Error() string {
	problems := e.Problems
	if e.more > 0 {
		problems = append(slices.Clip(problems), "and "+strconv.Itoa(e.more)+" more")
	}
	return clipTo(oneLine(strings.Join(problems, "; ")), maxMessage)
}

// Unwrap returns the error of encoding/json or of a method that it called, for
// the log. It is nil if the arguments did not fit the schema.
func (e *ArgumentError) Unwrap() error { return e.err }

// oneLine replaces what would break a line or is not text.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// clipTo shortens s to at most n bytes.
func clipTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// quote quotes what a model wrote.
func quote(s string) string {
	q := strconv.Quote(clip(s))
	if utf8.RuneCountInString(q) > maxQuote+3 {
		return clip(q) + `"`
	}
	return q
}

// A trail is the way to a value within the arguments.
type trail []crumb

// A crumb is the name of a property, or the index of an element if that is not
// negative.
type crumb struct {
	name  string
	index int
}

// String writes the trail like a path in JavaScript, such as items[1].count.
func (t trail) String() string {
	if len(t) == 0 {
		return "arguments"
	}
	var b strings.Builder
	for i, c := range t {
		switch name := pathName(c.name); {
		case c.index >= 0:
			b.WriteString("[" + strconv.Itoa(c.index) + "]")
		case name[0] == '[':
			b.WriteString(name)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(name)
		}
	}
	const most = 300
	s := b.String()
	if len(s) > most {
		s = clipTo(s, most/3) + strings.ToValidUTF8(s[len(s)-most/2:], "")
	}
	return s
}

// pathName writes a property name as it stands in a path.
func pathName(name string) string {
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && c != '_' && c != '-' && c != '$' {
			return "[" + quote(name) + "]"
		}
	}
	if name == "" {
		return `[""]`
	}
	return clip(name)
}

// describe says what the JSON value raw is, for a place where n was expected.
func describe(raw []byte, n *node) string {
	switch k := kindAt(raw[0]); k {
	case null:
		return "null"
	case object, array:
		return k.String()
	case text:
		s := string(unescape(nil, raw[1:len(raw)-1]))
		got := quote(s)
		if n.kinds&text == 0 {
			got = "string " + got
		}
		if t := strings.TrimSpace(s); n.kinds&(object|array) != 0 && n.kinds&text == 0 && t != "" && kindAt(t[0])&n.kinds != 0 {
			got += " (send the JSON itself, not a string that holds it)"
		}
		return got
	case number:
		got := clip(string(raw))
		if n.kinds&(number|integer) == 0 {
			return "number " + got
		}
		if n.kinds&number == 0 && !isInteger(string(raw)) && parseDecimal(string(raw)).integral() {
			got += " (write it without fraction and exponent)"
		}
		return got
	default:
		if n.kinds&boolean == 0 {
			return "boolean " + string(raw)
		}
		return string(raw)
	}
}

// expect says what fits n.
func (n *node) expect() string {
	if n.anyOf != nil {
		var list []string
		for _, b := range n.anyOf {
			if s := b.expect(); !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		return clipTo(strings.Join(list, " or "), 400)
	}
	if n.enum != nil {
		return n.expectEnum()
	}
	k := n.kinds &^ null
	s := k.String()
	switch {
	case k&(number|integer) != 0:
		s += n.expectBounds()
	case k&array != 0:
		s += n.expectLength()
	case n.format != nil:
		s += " in " + n.format.name + " form, such as " + n.format.example
	}
	if n.pattern != nil {
		s += " that matches " + clip(n.pattern.source)
	}
	if k == 0 {
		return "null"
	}
	if n.kinds&null != 0 {
		s += " or null"
	}
	return s
}

func (n *node) expectEnum() string {
	const most = 300
	var b strings.Builder
	if len(n.enum) > 1 {
		b.WriteString("one of ")
	}
	for i, x := range n.enum {
		s := clip(x.text)
		if x.kind == text {
			s = quote(x.text)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len()+len(s) > most {
			b.WriteString("… (" + strconv.Itoa(len(n.enum)-i) + " more)")
			break
		}
		b.WriteString(s)
	}
	return b.String()
}

func (n *node) expectBounds() string {
	get := func(keyword string) string {
		for _, b := range n.bounds {
			if b.keyword == keyword {
				return clip(b.literal)
			}
		}
		return ""
	}
	low, high := get("minimum"), get("maximum")
	above, below := get("exclusiveMinimum"), get("exclusiveMaximum")
	var s string
	switch {
	case low != "" && high != "":
		s = " from " + low + " to " + high
	case low != "":
		s = " of at least " + low
	case high != "":
		s = " of at most " + high
	}
	if above != "" {
		s += " greater than " + above
	}
	if below != "" {
		s += " less than " + below
	}
	if m := get("multipleOf"); m != "" {
		s += " that is a multiple of " + m
	}
	return s
}

func (n *node) expectLength() string {
	low, high := strconv.Itoa(n.minItems), strconv.Itoa(n.maxItems)
	switch {
	case n.minItems == n.maxItems:
		return " of exactly " + low + " items"
	case n.maxItems >= 0 && n.minItems > 0:
		return " of " + low + " to " + high + " items"
	case n.maxItems >= 0:
		return " of at most " + high + " items"
	case n.minItems > 0:
		return " of at least " + low + " items"
	}
	return ""
}
