package responsestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// kind is the JSON type of a value.
type kind int

const (
	kindNull kind = iota
	kindBool
	kindInteger
	kindDecimal
	kindString
	kindArray
	kindObject
)

// article names the kind as the service's messages do.
func (k kind) article() string {
	switch k {
	case kindBool:
		return "a boolean"
	case kindInteger:
		return "an integer"
	case kindDecimal:
		return "a decimal"
	case kindString:
		return "a string"
	case kindArray:
		return "an array"
	case kindObject:
		return "an object"
	}
	return "null"
}

// is reports whether values of the kind have the type of a JSON schema.
func (k kind) is(schemaType string) bool {
	switch schemaType {
	case "null":
		return k == kindNull
	case "boolean":
		return k == kindBool
	case "integer":
		return k == kindInteger
	case "number":
		return k == kindInteger || k == kindDecimal
	case "string":
		return k == kindString
	case "array":
		return k == kindArray
	case "object":
		return k == kindObject
	}
	return false
}

func kindOf(v json.RawMessage) kind {
	v = bytes.TrimLeft(v, " \t\r\n")
	if len(v) == 0 {
		return kindNull
	}
	switch v[0] {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	case '"':
		return kindString
	case '[':
		return kindArray
	case '{':
		return kindObject
	}
	if bytes.ContainsAny(v, ".eE") {
		return kindDecimal
	}
	return kindInteger
}

// object is a decoded JSON object. Members that are null are left out, because the service reads null as
// omitted.
type object map[string]json.RawMessage

func decodeObject(v json.RawMessage) (object, error) {
	var o object
	if err := json.Unmarshal(v, &o); err != nil {
		return nil, err
	}
	for k, m := range o {
		if kindOf(m) == kindNull {
			delete(o, k)
		}
	}
	return o, nil
}

// str returns the member as a string, or "" when it is absent or no string.
func (o object) str(name string) string {
	var s string
	if kindOf(o[name]) == kindString {
		_ = json.Unmarshal(o[name], &s) // the document has been parsed as a whole
	}
	return s
}

func (o object) boolean(name string) bool { return string(o[name]) == "true" }

func (o object) has(name string) bool { return len(o[name]) > 0 }

// elements splits a JSON array.
func elements(v json.RawMessage) []json.RawMessage {
	var a []json.RawMessage
	_ = json.Unmarshal(v, &a) // the document has been parsed as a whole
	return a
}

func number(v json.RawMessage) float64 {
	f, _ := strconv.ParseFloat(string(bytes.TrimSpace(v)), 64)
	return f
}

// quote returns s as a JSON string, with <, > and & as they are.
func quote(s string) []byte { return appendQuoted(nil, s) }

func appendQuoted(dst []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // strings always marshal
	}
	return append(dst, bytes.TrimRight(buf.Bytes(), "\n")...)
}

// nullOr returns v, or null when there is none.
func nullOr(v json.RawMessage) json.RawMessage {
	return or(v, "null")
}

func or(v json.RawMessage, instead string) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage(instead)
	}
	return v
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
