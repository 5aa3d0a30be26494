package strict

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A value is a JSON value whose objects keep the order of their members.
type value struct {
	kind    kinds
	text    string   // of a string what it says, of other scalars the literal
	members []member // of an object
	elems   []*value // of an array
}

// A member is one name and value of an object.
type member struct {
	name  string
	value *value
}

func newObject(members ...member) *value { return &value{kind: object, members: members} }
func newArray(elems ...*value) *value    { return &value{kind: array, elems: elems} }
func newString(s string) *value          { return &value{kind: text, text: s} }
func newNumber(literal string) *value    { return &value{kind: number, text: literal} }
func newInt(n int) *value                { return newNumber(strconv.Itoa(n)) }
func newBool(b bool) *value              { return &value{kind: boolean, text: strconv.FormatBool(b)} }

// typed returns the schema of a type without further keywords.
func typed(k kinds) *value { return newObject(member{"type", newString(k.String())}) }

// get returns the member called name, or nil.
func (v *value) get(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			return v.members[i].value
		}
	}
	return nil
}

// str returns the string called name, or "".
func (v *value) str(name string) string {
	if m := v.get(name); m != nil && m.kind == text {
		return m.text
	}
	return ""
}

// set puts a member in its place, or at the end if it is new.
func (v *value) set(name string, m *value) {
	for i := range v.members {
		if v.members[i].name == name {
			v.members[i].value = m
			return
		}
	}
	v.members = append(v.members, member{name, m})
}

// setFirst makes a member the first one.
func (v *value) setFirst(name string, m *value) {
	v.remove(name)
	v.members = append([]member{{name, m}}, v.members...)
}

// remove deletes the member called name and returns it, or nil.
func (v *value) remove(name string) *value {
	for i := range v.members {
		if v.members[i].name == name {
			m := v.members[i].value
			v.members = append(v.members[:i:i], v.members[i+1:]...)
			return m
		}
	}
	return nil
}

// copy returns a deep copy. It calls each for every value and its copy.
func (v *value) copy(each func(from, to *value)) *value {
	c := *v
	c.members = make([]member, len(v.members))
	for i, m := range v.members {
		c.members[i] = member{m.name, m.value.copy(each)}
	}
	c.elems = make([]*value, len(v.elems))
	for i, e := range v.elems {
		c.elems[i] = e.copy(each)
	}
	each(v, &c)
	return &c
}

// append writes v as compact JSON.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case object:
		b = append(b, '{')
		for i, m := range v.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, m.name)
			b = append(b, ':')
			b = m.value.append(b)
		}
		return append(b, '}')
	case array:
		b = append(b, '[')
		for i, e := range v.elems {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.append(b)
		}
		return append(b, ']')
	case text:
		return appendString(b, v.text)
	}
	return append(b, v.text...)
}

func (v *value) String() string { return string(v.append(nil)) }

// appendString writes s as a JSON string. Only what must be escaped is, so
// that a pattern or a description reads in a request as its author wrote it.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f || r == utf8.RuneError }) {
		return append(append(b, s...), '"')
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// A scanner reads JSON that syntax has found to be without flaw.
type scanner struct {
	data []byte
	pos  int
}

// peek returns the first byte of the next token.
func (s *scanner) peek() byte {
	s.pos = skipSpace(s.data, s.pos)
	return s.data[s.pos]
}

// more steps over '{', '[' or ',' and reports whether an element follows; if
// not, it steps over the closing byte.
func (s *scanner) more() bool {
	c := s.peek()
	if c == '{' || c == '[' {
		s.pos++
		c = s.peek()
		if c != '}' && c != ']' {
			return true
		}
	} else if c == ',' {
		s.pos++
		return true
	}
	s.pos++
	return false
}

// str reads a string and returns what lies between its quotes, and whether
// that has escapes.
func (s *scanner) str() (raw []byte, escaped bool) {
	s.peek()
	s.pos++
	rest := s.data[s.pos:]
	i := bytes.IndexByte(rest, '"')
	if escaped = bytes.IndexByte(rest[:i], '\\') >= 0; escaped {
		for i = 0; rest[i] != '"'; i++ {
			if rest[i] == '\\' {
				i++
			}
		}
	}
	s.pos += i + 1
	return rest[:i], escaped
}

// key reads the name of a member and its colon.
func (s *scanner) key() (raw []byte, escaped bool) {
	raw, escaped = s.str()
	s.peek()
	s.pos++
	return raw, escaped
}

// literal reads a number or a word.
func (s *scanner) literal() []byte {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return s.data[start:s.pos]
		}
		s.pos++
	}
	return s.data[start:]
}

// skip reads one value of any kind and returns its text.
func (s *scanner) skip() []byte {
	c := s.peek()
	start := s.pos
	switch c {
	case '"':
		s.str()
	case '{', '[':
		for depth := 0; ; {
			switch s.data[s.pos] {
			case '"':
				s.str()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			s.pos++
			if depth == 0 {
				break
			}
		}
	default:
		s.literal()
	}
	return s.data[start:s.pos]
}

// length is how many elements the array has that is next.
func (s *scanner) length() (n int) {
	ahead := *s
	for ahead.more() {
		ahead.skip()
		n++
	}
	return n
}

// unescape appends to buf what the inside of a JSON string says.
func unescape(buf, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		n := bytes.IndexByte(raw[i:], '\\')
		if n < 0 {
			return append(buf, raw[i:]...)
		}
		buf = append(buf, raw[i:i+n]...)
		i += n + 1
		switch c := raw[i]; c {
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'n':
			buf = append(buf, '\n')
		case 'r':
			buf = append(buf, '\r')
		case 't':
			buf = append(buf, '\t')
		case 'u':
			r, _ := hex4(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i+3:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			buf = utf8.AppendRune(buf, r)
		default:
			buf = append(buf, c)
		}
	}
	return buf
}

// parse reads JSON that syntax has found to be without flaw. It stops at the
// first object that has a name twice and returns that name.
func (s *scanner) parse() (v *value, twice string, ok bool) {
	switch k := kindAt(s.peek()); k {
	case object:
		v = &value{kind: object}
		seen := map[string]bool{}
		for s.more() {
			raw, _ := s.key()
			name := string(unescape(nil, raw))
			if seen[name] {
				return nil, name, false
			}
			seen[name] = true
			m, twice, ok := s.parse()
			if !ok {
				return nil, twice, false
			}
			v.members = append(v.members, member{name, m})
		}
	case array:
		v = &value{kind: array}
		for s.more() {
			e, twice, ok := s.parse()
			if !ok {
				return nil, twice, false
			}
			v.elems = append(v.elems, e)
		}
	case text:
		raw, _ := s.str()
		v = newString(string(unescape(nil, raw)))
	default:
		v = &value{kind: k, text: string(s.literal())}
	}
	return v, "", true
}
