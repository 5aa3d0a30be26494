package fnloop

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
)

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
// else, and where a member repeats, so that nothing of it goes unseen.
func canonicalJSON(data []byte) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, ok := canonicalValue(dec, 500)
	if _, err := dec.Token(); !ok || err != io.EOF {
		return nil, false
	}
	out, err := json.Marshal(v)
	return out, err == nil
}

func canonicalValue(dec *json.Decoder, depth int) (any, bool) {
	token, err := dec.Token()
	if err != nil || depth == 0 {
		return nil, false
	}
	switch token {
	case json.Delim('{'):
		object := make(map[string]any)
		for dec.More() {
			key, err := dec.Token()
			name, isString := key.(string)
			if _, twice := object[name]; err != nil || !isString || twice {
				return nil, false
			}
			value, ok := canonicalValue(dec, depth-1)
			if !ok {
				return nil, false
			}
			object[name] = value
		}
		_, err := dec.Token()
		return object, err == nil
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			value, ok := canonicalValue(dec, depth-1)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		_, err := dec.Token()
		return list, err == nil
	}
	_, isDelim := token.(json.Delim)
	return token, !isDelim
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

// editMembers lets a function change or leave out the members of a JSON object, in order.
func editMembers(object json.RawMessage, member func(string, json.RawMessage) (json.RawMessage, bool)) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return object
	}
	out := []byte{'{'}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return object
		}
		key, _ := token.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return object
		}
		if value, ok := member(key, value); ok {
			name, err := json.Marshal(key)
			if err != nil {
				return object
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, name...), ':'), value...)
		}
	}
	return append(out, '}')
}
