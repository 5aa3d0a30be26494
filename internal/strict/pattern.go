package strict

import (
	"errors"
	"fmt"
	"regexp"
	regexpsyntax "regexp/syntax"
	"strings"
	"sync"
	"unicode"
)

// A pattern is one that OpenAI, which uses Python's re, and this package read
// alike.
type pattern struct {
	source string
	re     func() *regexp.Regexp // which takes what Python's re takes; made for the first match
}

func newPattern(source string) *pattern {
	return &pattern{source, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(unicodeClasses(source)) })}
}

// checkPattern says why a pattern cannot be used. It refuses what only one of
// package regexp and Python's re knows.
func checkPattern(source string) error {
	if err := portable(source); err != nil {
		return err
	}
	if _, err := regexpsyntax.Parse(source, regexpsyntax.Perl); err != nil { // in the author's own words
		return errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if classes := unicodeClasses(source); classes != source {
		if _, err := regexpsyntax.Parse(classes, regexpsyntax.Perl); err != nil {
			return errors.New("it is too large")
		}
	}
	return nil
}

// match reports whether the pattern is found in s.
func (p *pattern) match(s []byte) bool { return p.re().Match(s) }

// The classes \d, \w and \s of Python's re, within brackets. Those of package
// regexp are of ASCII alone, so "Größe" would not be a \w+.
const (
	digits = `\p{Nd}`
	words  = `_\p{L}\p{N}`
	spaces = `\t-\r\x1c-\x20\x85\p{Z}`
)

// notWords is \W within brackets, where package regexp has no negation of
// several classes.
var notWords = sync.OnceValue(func() string { return complement(unicode.L, unicode.N, &underscore) })

var notSpaces = sync.OnceValue(func() string { return complement(unicode.Z, &controlSpaces) })

var (
	underscore    = unicode.RangeTable{R16: []unicode.Range16{{Lo: '_', Hi: '_', Stride: 1}}, LatinOffset: 1}
	controlSpaces = unicode.RangeTable{R16: []unicode.Range16{{Lo: '\t', Hi: '\r', Stride: 1}, {Lo: 0x1c, Hi: 0x1f, Stride: 1}, {Lo: 0x85, Hi: 0x85, Stride: 1}}, LatinOffset: 3}
)

// complement writes the ranges of all characters that are in none of tables.
func complement(tables ...*unicode.RangeTable) string {
	var b strings.Builder
	low := rune(-1)
	for r := rune(0); r <= unicode.MaxRune+1; r++ {
		switch out := r <= unicode.MaxRune && !unicode.IsOneOf(tables, r); {
		case out && low < 0:
			low = r
		case !out && low >= 0:
			fmt.Fprintf(&b, `\x{%x}-\x{%x}`, low, r-1)
			low = -1
		}
	}
	return b.String()
}

// unicodeClasses gives the classes of a pattern that is portable their meaning
// in Python's re.
func unicodeClasses(p string) string {
	if !strings.Contains(p, `\`) {
		return p
	}
	var b strings.Builder
	class := false
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			i++
			b.WriteString(unicodeClass(p[i], class))
		case class && p[i] == ']':
			class = false
			b.WriteByte(p[i])
		case !class && p[i] == '[':
			class = true
			n := classStart(p[i:])
			b.WriteString(p[i : i+n])
			i += n - 1
		default:
			b.WriteByte(p[i])
		}
	}
	return b.String()
}

// classStart returns the length of the beginning of a bracketed class in which
// a ] stands for itself.
func classStart(p string) int {
	n := 1
	if strings.HasPrefix(p, "[^") {
		n = 2
	}
	if n < len(p) && p[n] == ']' {
		n++
	}
	return n
}

// unicodeClass writes the escape \c.
func unicodeClass(c byte, class bool) string {
	var set string
	switch c {
	case 'd', 'D':
		set = digits
	case 'w', 'W':
		set = words
	case 's', 'S':
		set = spaces
	default:
		return `\` + string(c)
	}
	negated := c < 'a'
	switch {
	case !class && negated:
		return "[^" + set + "]"
	case !class:
		return "[" + set + "]"
	case c == 'D':
		return `\P{Nd}`
	case c == 'W':
		return notWords()
	case c == 'S':
		return notSpaces()
	}
	return set
}

// respell writes what portable refuses and has another spelling in that one.
func respell(p string) string {
	return strings.NewReplacer("{,", "{0,", "(?<", "(?P<").Replace(p)
}

// portable finds constructs that package regexp accepts and Python does not,
// or that mean something else there, and names the ones that neither can use
// here.
func portable(p string) error {
	class := false // inside [...]
	for i := 0; i < len(p); i++ {
		rest := p[i:]
		switch {
		case p[i] == '\\':
			if i+1 == len(p) {
				return nil // regexp.Compile refuses it
			}
			switch c := p[i+1]; c {
			case 'p', 'P', 'z', 'Q', 'E', 'C':
				return fmt.Errorf(`\%c is unknown to Python`, c)
			case 'b', 'B':
				if !class {
					return fmt.Errorf(`\%c means different things to different engines beyond ASCII, write (^|\W) or (\W|$)`, c)
				}
			case 'x':
				if strings.HasPrefix(p[i+2:], "{") {
					return errors.New(`\x{...} is unknown to Python`)
				}
			}
			i++
		case class:
			switch {
			case strings.HasPrefix(rest, "[:"):
				return errors.New("[:name:] classes are unknown to Python")
			case p[i] == ']':
				class = false
			}
		case p[i] == '[':
			class = true
			i += classStart(rest) - 1
		case strings.HasPrefix(rest, "{,"):
			return errors.New("{,n} means different things to different engines, write {0,n}")
		case strings.HasPrefix(rest, "(?="), strings.HasPrefix(rest, "(?!"), strings.HasPrefix(rest, "(?<="), strings.HasPrefix(rest, "(?<!"):
			return errors.New("look-around is not supported")
		case strings.HasPrefix(rest, "(?<"):
			return errors.New("(?<name>...) is unknown to Python, write (?P<name>...)")
		case strings.HasPrefix(rest, "(?P<"):
			if c := strings.TrimPrefix(rest, "(?P<"); c != "" && '0' <= c[0] && c[0] <= '9' {
				return errors.New("a group name must not begin with a digit")
			}
		case strings.HasPrefix(rest, "(?"):
			end := strings.IndexAny(rest, "):")
			if end < 0 {
				return nil // regexp.Compile refuses it
			}
			flags, whole := rest[2:end], rest[end] == ')'
			switch {
			case strings.Contains(flags, "U"):
				return errors.New("the flag U is unknown to Python")
			case whole && i > 0:
				return errors.New("flags must stand in front of the pattern")
			case whole && strings.Contains(flags, "-"):
				return errors.New("a flag cannot be switched off for the whole pattern")
			}
		}
	}
	return nil
}
