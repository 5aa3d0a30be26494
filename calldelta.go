package fnloop

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// An argumentReader reads the arguments of a call while the model writes them,
// and tells the text of their properties that are strings. What is no JSON
// object has no properties.
type argumentReader struct {
	state    argumentState
	depth    int    // of objects and lists within a value
	key      []byte // being read, as it is written
	property string // whose value is read
	escape   []byte // the beginning of an escape sequence
	high     rune   // the first half of a surrogate pair, or zero
}

type argumentState int

const (
	beforeObject argumentState = iota
	beforeKey
	inKey
	beforeValue
	inString       // a value that is a string
	inOther        // a value of another type
	inOtherString  // a string within it
	afterArguments // what follows is not looked at
)

// read takes in a piece and divides it by the properties that it belongs to.
func (r *argumentReader) read(id, piece string) []CallDelta {
	var out []CallDelta
	var value strings.Builder
	from := 0
	property := "" // of the text since from
	if r.state == inString {
		property = r.property
	}
	flush := func(to int) {
		if to > from {
			out = append(out, CallDelta{ID: id, Text: piece[from:to], Property: property, Value: value.String()})
			value.Reset()
			from = to
		}
	}
	for i := 0; i < len(piece); i++ {
		c := piece[i]
		switch r.state {
		case beforeObject:
			switch c {
			case '{':
				r.state = beforeKey
			case ' ', '\t', '\r', '\n':
			default:
				r.state = afterArguments
			}
		case beforeKey:
			switch c {
			case '"':
				r.state, r.key = inKey, r.key[:0]
			case '}':
				r.state = afterArguments
			}
		case inKey:
			if r.endsString(c, &r.key) {
				r.state = beforeValue
			}
		case beforeValue:
			switch c {
			case ':', ' ', '\t', '\r', '\n':
			case '"':
				if property != "" {
					flush(i)
				}
				r.property = string(r.key)
				if s, err := strconv.Unquote(`"` + r.property + `"`); err == nil {
					r.property = s
				}
				property, r.state = r.property, inString
			case '{', '[':
				r.state, r.depth = inOther, 1
			default:
				r.state, r.depth = inOther, 0
			}
		case inString:
			if r.decode(c, &value) {
				r.state = beforeKey
			}
		case inOther:
			switch c {
			case '"':
				r.state = inOtherString
			case '{', '[':
				r.depth++
			case '}', ']':
				if r.depth == 0 {
					r.state = afterArguments
				} else {
					r.depth--
				}
			case ',':
				if r.depth == 0 {
					r.state = beforeKey
				}
			}
		case inOtherString:
			if r.endsString(c, nil) {
				r.state = inOther
			}
		}
	}
	flush(len(piece))
	return out
}

// endsString reports whether c ends a string that is kept as it is written, if at
// all.
func (r *argumentReader) endsString(c byte, into *[]byte) bool {
	switch {
	case len(r.escape) > 0:
		r.escape = r.escape[:0]
	case c == '\\':
		r.escape = append(r.escape, c)
	case c == '"':
		return true
	}
	if into != nil {
		*into = append(*into, c)
	}
	return false
}

// decode takes in a byte of a string and reports whether it ends the string.
func (r *argumentReader) decode(c byte, into *strings.Builder) bool {
	if len(r.escape) == 0 {
		switch c {
		case '"':
			r.half(into)
			return true
		case '\\':
			r.escape = append(r.escape, c)
		default:
			r.half(into)
			into.WriteByte(c)
		}
		return false
	}
	r.escape = append(r.escape, c)
	if r.escape[1] == 'u' && len(r.escape) < len(`\u0000`) {
		return false
	}
	code := rune(c)
	switch c := r.escape[1]; c {
	case 'u':
		n, err := strconv.ParseUint(string(r.escape[2:]), 16, 16)
		if code = rune(n); err != nil {
			code = '\ufffd'
		}
	case 'n':
		code = '\n'
	case 't':
		code = '\t'
	case 'r':
		code = '\r'
	case 'b':
		code = '\b'
	case 'f':
		code = '\f'
	}
	r.escape = r.escape[:0]
	if r.high != 0 {
		if pair := utf16.DecodeRune(r.high, code); pair != '\ufffd' {
			r.high = 0
			into.WriteRune(pair)
			return false
		}
		r.half(into)
	}
	if utf16.IsSurrogate(code) {
		r.high = code
	} else {
		into.WriteRune(code)
	}
	return false
}

// half writes a half of a surrogate pair that has no other.
func (r *argumentReader) half(into *strings.Builder) {
	if r.high != 0 {
		r.high = 0
		into.WriteRune('\ufffd')
	}
}
