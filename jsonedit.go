package fnloop

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"

	"github.com/fnloop/fnloop/internal/strict"
)

// unmarshal is [json.Unmarshal], for what is decoded in every response.
func unmarshal(data []byte, into any) error {
	if strict.Fill(data, into) {
		return nil
	}
	return json.Unmarshal(data, into)
}

// compactJSON spells JSON in one way: without white space between its tokens, and
// with the characters that json.Marshal escapes for HTML as they are.
func compactJSON(data []byte) json.RawMessage {
	var buf bytes.Buffer
	if json.Compact(&buf, data) != nil {
		return data
	}
	return unescapeHTML(buf.Bytes())
}

// unescapeHTML takes back what json.Marshal does to the text of a RawMessage.
func unescapeHTML(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u00`)) && !bytes.Contains(data, []byte(`\u202`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' || i+1 == len(data) {
			out = append(out, data[i])
			continue
		}
		if i+6 <= len(data) {
			switch string(data[i : i+6]) {
			case `\u003c`:
				out, i = append(out, '<'), i+5
				continue
			case `\u003e`:
				out, i = append(out, '>'), i+5
				continue
			case `\u0026`:
				out, i = append(out, '&'), i+5
				continue
			case `\u2028`:
				out, i = append(out, "\u2028"...), i+5
				continue
			case `\u2029`:
				out, i = append(out, "\u2029"...), i+5
				continue
			}
		}
		out, i = append(out, data[i], data[i+1]), i+1
	}
	return out
}

// canonicalJSON spells one JSON value in one way. It reports false for anything
// else, and where a member repeats or a character is half of one, so that nothing
// of it goes unseen.
func canonicalJSON(data []byte) ([]byte, bool) {
	if strict.Valid(data) != nil {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return nil, false
	}
	out, err := json.Marshal(value) // with the members of objects in order
	return out, err == nil
}

// repeatsMember reports whether an object in the JSON has a member twice. A
// database keeps one of them.
func repeatsMember(data []byte) bool {
	_, ok := canonicalJSON(escapeText(data)) // halves of surrogate pairs would be the same name
	return !ok
}

// withoutMember is a JSON object without one of its members. The others stay as they
// are, to the byte.
func withoutMember(object json.RawMessage, member string) json.RawMessage {
	return editMembers(object, func(key string, value json.RawMessage) (json.RawMessage, bool) {
		return value, key != member
	})
}

// withoutMemberOfEach is object with member left out of each element of a list in it.
func withoutMemberOfEach(object json.RawMessage, list, member string) json.RawMessage {
	return editMembers(object, func(key string, value json.RawMessage) (json.RawMessage, bool) {
		var elements []json.RawMessage
		if key != list || json.Unmarshal(value, &elements) != nil {
			return value, true
		}
		parts := make([][]byte, len(elements))
		for i, e := range elements {
			parts[i] = withoutMember(e, member)
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), true
	})
}

// editMembers lets a function change or leave out the members of a JSON object,
// in order. What is no object stays as it is.
func editMembers(object json.RawMessage, member func(string, json.RawMessage) (json.RawMessage, bool)) json.RawMessage {
	object = bytes.TrimSpace(object)
	if !json.Valid(object) || object[0] != '{' {
		return object
	}
	var list []element
	for e := range elements(object) {
		var key string
		if json.Unmarshal(bytes.TrimSuffix(e.key, []byte(":")), &key) != nil {
			return object
		}
		if value, ok := member(key, e.value); ok {
			list = append(list, element{e.key, value})
		}
	}
	return joinElements('{', list, 0, 0)
}

// An element is one of an array, or of an object with its key and the colon.
type element struct{ key, value []byte }

// elements yields what a valid JSON array or object holds, without white space
// around it.
func elements(v []byte) iter.Seq[element] {
	return func(yield func(element) bool) {
		rest := bytes.TrimSpace(v[1 : len(v)-1])
		for len(rest) > 0 {
			value, depth, end := 0, 0, 0
			for ; end < len(rest) && (depth > 0 || rest[end] != ','); end++ {
				switch rest[end] {
				case '"':
					end = stringEnd(rest, end) - 1
				case '[', '{':
					depth++
				case ']', '}':
					depth--
				case ':':
					if depth == 0 {
						value = end + 1
					}
				}
			}
			key := rest[:value]
			if name := bytes.TrimRight(bytes.TrimSuffix(key, []byte(":")), " \t\r\n"); len(name)+1 < value {
				key = slices.Concat(name, []byte(":"))
			}
			if !yield(element{key, bytes.TrimSpace(rest[value:end])}) {
				return
			}
			rest = bytes.TrimSpace(rest[min(end+1, len(rest)):])
		}
	}
}

// stringEnd returns the end of the JSON string that begins at i.
func stringEnd(v []byte, i int) int {
	for i++; v[i] != '"'; i++ {
		if v[i] == '\\' {
			i++
		}
	}
	return i + 1
}
