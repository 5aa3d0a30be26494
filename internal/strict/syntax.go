package strict

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// maxDepth is how deep arrays and objects may lie inside each other, in
// schemas and in arguments. It bounds every recursion of this package.
const maxDepth = 256

// A flaw is the first place where a text is not JSON.
type flaw struct {
	offset int
	cut    bool // the text ends too early and is a prefix of valid JSON
	deep   bool // it may be JSON, but is nested too deeply to be read
	reason string
}

func cutFlaw(data []byte) *flaw {
	return &flaw{offset: len(data), cut: true, reason: "the text ends too early"}
}

// What may come next in a JSON text.
const (
	wantValue      = iota
	wantFirstValue // or the end of the array
	wantFirstKey   // or the end of the object
	wantKey
	wantNext // a comma or the end of what is open
)

// syntax returns the first flaw in data, or nil if data is one JSON value. It
// accepts what json.Valid accepts, less invalid UTF-8, lone surrogates (both
// of which encoding/json would replace in silence) and extreme depth.
func syntax(data []byte) *flaw {
	if !utf8.Valid(data) {
		i := excerpt.InvalidUTF8(string(data))
		if !utf8.FullRune(data[i:]) {
			if f := syntax(data[:i]); f != nil && f.cut {
				return f // within a character
			}
		}
		return &flaw{offset: i, reason: "invalid UTF-8"}
	}
	var (
		open  [maxDepth]byte
		depth int
		want  = wantValue
		i     int
	)
	for {
		i = skipSpace(data, i)
		if i == len(data) {
			if want == wantNext && depth == 0 {
				return nil
			}
			return cutFlaw(data)
		}
		c := data[i]
		switch {
		case want == wantNext && depth == 0:
			return &flaw{offset: i, reason: "unexpected text after the JSON value"}

		case want == wantNext && c == ',':
			i++
			want = wantValue
			if open[depth-1] == '{' {
				want = wantKey
			}
		case c == '}' && (want == wantNext || want == wantFirstKey) && open[depth-1] == '{',
			c == ']' && (want == wantNext || want == wantFirstValue) && open[depth-1] == '[':
			i++
			depth--
			want = wantNext

		case want == wantNext:
			return &flaw{offset: i, reason: fmt.Sprintf("unexpected %s, want ',' or '%c'", show(data, i), open[depth-1]+2)}

		case want == wantKey || want == wantFirstKey:
			if c != '"' {
				return &flaw{offset: i, reason: badKey(data, i, want == wantKey)}
			}
			end, f := stringSyntax(data, i)
			if f != nil {
				return f
			}
			i = skipSpace(data, end)
			if i == len(data) {
				continue // cut
			}
			if data[i] != ':' {
				return &flaw{offset: i, reason: fmt.Sprintf("unexpected %s after a key, want ':'", show(data, i))}
			}
			i++
			want = wantValue

		case c == '{' || c == '[':
			if depth == maxDepth {
				return &flaw{offset: i, deep: true, reason: fmt.Sprintf("more than %d levels of objects and arrays", maxDepth)}
			}
			open[depth] = c
			depth++
			i++
			want = wantFirstValue
			if c == '{' {
				want = wantFirstKey
			}
		default:
			end, f := scalarSyntax(data, i)
			if f != nil {
				return f
			}
			i = end
			want = wantNext
		}
	}
}

// scalarSyntax returns the end of the string, number or word at data[i].
func scalarSyntax(data []byte, i int) (int, *flaw) {
	switch c := data[i]; {
	case c == '"':
		return stringSyntax(data, i)
	case c == '-' || '0' <= c && c <= '9':
		return numberSyntax(data, i)
	case c == 't':
		return wordSyntax(data, i, "true")
	case c == 'f':
		return wordSyntax(data, i, "false")
	case c == 'n':
		return wordSyntax(data, i, "null")
	}
	return 0, &flaw{offset: i, reason: badValue(data, i)}
}

func wordSyntax(data []byte, i int, word string) (int, *flaw) {
	rest := data[i:]
	if len(rest) < len(word) && strings.HasPrefix(word, string(rest)) {
		return 0, cutFlaw(data)
	}
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return 0, &flaw{offset: i, reason: badValue(data, i)}
	}
	return i + len(word), nil
}

func numberSyntax(data []byte, i int) (int, *flaw) {
	digits := func() *flaw {
		if i == len(data) {
			return cutFlaw(data)
		}
		if data[i] < '0' || data[i] > '9' {
			reason := fmt.Sprintf("unexpected %s in a number", show(data, i))
			if data[i] == 'I' || data[i] == 'N' { // as in -Infinity
				reason = noNaN
			}
			return &flaw{offset: i, reason: reason}
		}
		for i < len(data) && '0' <= data[i] && data[i] <= '9' {
			i++
		}
		return nil
	}
	if data[i] == '-' {
		i++
	}
	if i < len(data) && data[i] == '0' {
		if i++; i < len(data) && '0' <= data[i] && data[i] <= '9' {
			return 0, &flaw{offset: i, reason: "a number must not begin with 0"}
		}
	} else if f := digits(); f != nil {
		return 0, f
	}
	if i < len(data) && data[i] == '.' {
		i++
		if f := digits(); f != nil {
			return 0, f
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		if i++; i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		if f := digits(); f != nil {
			return 0, f
		}
	}
	return i, nil
}

// stringSyntax returns the end of the string that begins at data[i].
func stringSyntax(data []byte, i int) (int, *flaw) {
	for i++; i < len(data); {
		c := data[i]
		if c >= ' ' && c != '"' && c != '\\' { // most are
			i++
			continue
		}
		switch {
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return 0, &flaw{offset: i, reason: fmt.Sprintf("a raw control character in a string, write it as \\u%04x", c)}
		case i+1 == len(data):
			i++ // cut
		case data[i+1] == 'u':
			r, ok := hex4(data[i+2:])
			if !ok {
				if len(data)-i < 6 && hexPrefix(data[i+2:]) {
					i = len(data) // cut
					continue
				}
				return 0, &flaw{offset: i, reason: `a bad \u escape in a string`}
			}
			i += 6
			if r < 0xd800 || r > 0xdfff {
				continue
			}
			rest := data[i:]
			if r < 0xdc00 && len(rest) < 6 && (len(rest) == 0 || rest[0] == '\\') &&
				(len(rest) < 2 || rest[1] == 'u' && hexPrefix(rest[2:])) {
				i = len(data) // cut
				continue
			}
			var low rune
			if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
				low, _ = hex4(rest[2:])
			}
			if r >= 0xdc00 || low < 0xdc00 || low > 0xdfff {
				return 0, &flaw{offset: i - 6, reason: fmt.Sprintf(`the lone surrogate \u%04x in a string`, r)}
			}
			i += 6
		case strings.IndexByte(`"\/bfnrt`, data[i+1]) >= 0:
			i += 2
		default:
			return 0, &flaw{offset: i, reason: "a bad escape in a string"}
		}
	}
	return 0, cutFlaw(data)
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// hexPrefix reports whether b is all hexadecimal digits.
func hexPrefix(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

const noNaN = "JSON has no NaN and no Infinity"

// badValue says why no value begins at data[i]. The habits of JavaScript and
// Python get their own words, since they are what models fall into.
func badValue(data []byte, i int) string {
	switch rest := string(data[i:min(len(data), i+8)]); {
	case rest[0] == '\'':
		return "strings take double quotes"
	case rest[0] == '/' || rest[0] == '#':
		return "JSON has no comments"
	case rest[0] == '+':
		return "a number must not begin with '+'"
	case rest[0] == ']' || rest[0] == '}':
		return fmt.Sprintf("a value is missing before '%c' (JSON allows no trailing comma)", rest[0])
	case strings.HasPrefix(rest, "NaN"), strings.HasPrefix(rest, "Infinity"):
		return noNaN
	case strings.HasPrefix(rest, "True"), strings.HasPrefix(rest, "False"), strings.HasPrefix(rest, "None"):
		return "write true, false and null"
	}
	return fmt.Sprintf("unexpected %s, want a value", show(data, i))
}

// badKey says why no key begins at data[i].
func badKey(data []byte, i int, comma bool) string {
	switch c := data[i]; {
	case c == '}' && comma:
		return "JSON allows no trailing comma"
	case c == '\'':
		return "keys take double quotes"
	case c == '/' || c == '#':
		return "JSON has no comments"
	}
	return fmt.Sprintf("unexpected %s, want a key in double quotes", show(data, i))
}

// show quotes the character at data[i].
func show(data []byte, i int) string {
	r, _ := utf8.DecodeRune(data[i:])
	return fmt.Sprintf("%q", r)
}
