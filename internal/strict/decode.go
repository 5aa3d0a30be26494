package strict

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
)

// A Decoder decodes a model's arguments. It is safe for concurrent use.
type Decoder struct {
	root *node
}

// Compile prepares a Decoder for arguments that were asked for with schema,
// which must pass [Check]; otherwise the error is that of Check.
func Compile(schema []byte) (*Decoder, error) {
	c, err := judge(schema)
	if err != nil {
		return nil, err
	}
	return &Decoder{root: newCompiler(c).compile()}, nil
}

// Decode holds arguments against the schema and, if they fit, decodes them as
// encoding/json does into the value that into points to. A nil into only tests them.
//
// Empty arguments count as {}, and a missing key that may be null as null.
// Nothing else is made up or mended: unknown, missing and duplicate keys,
// another letter case, null where it is not allowed, a number in quotes, 3.0
// for an integer, lone surrogates and invalid UTF-8 are all errors.
//
// What the model did wrong is an [*ArgumentError]; any other error is the
// caller's. After an error, what into points to is unspecified.
func (d *Decoder) Decode(arguments []byte, into any) error {
	target := reflect.ValueOf(into)
	if into != nil && (target.Kind() != reflect.Pointer || target.IsNil()) {
		return fmt.Errorf("strict: Decode into %T, want a pointer that is not nil", into)
	}
	data := bytes.Trim(arguments, " \t\r\n")
	if len(data) == 0 {
		data = []byte("{}")
	}
	if f := syntax(data); f != nil {
		return syntaxError(data, f)
	}
	if data[0] != '{' {
		return notObject(data)
	}
	if err := d.test(data); err != nil || into == nil {
		return err
	}
	l := filler{scanner: scanner{data: data}}
	if l.fill(target.Elem()) {
		return nil
	}
	if err := unmarshal(data, into); err != nil {
		return conversionError(data, target.Type().Elem(), err)
	}
	return nil
}

// test holds JSON without flaw against the schema.
func (d *Decoder) test(data []byte) error {
	p := pass{scanner: scanner{data: data}, trail: make(trail, 0, 8)}
	p.value(d.root)
	if p.count > 0 {
		return &ArgumentError{Problems: p.problems, more: p.more}
	}
	return nil
}

// syntaxError words the flaw of a text that is not JSON.
func syntaxError(data []byte, f *flaw) *ArgumentError {
	var problem string
	switch {
	case f.cut:
		problem = fmt.Sprintf("incomplete JSON, the text ends after %d bytes (send one complete JSON object)", len(data))
	case f.deep:
		problem = fmt.Sprintf("nested too deeply, at byte %d there are %s (send a flatter object)", f.offset, f.reason)
	case bytes.HasPrefix(data, []byte("```")):
		problem = "not JSON: a Markdown fence (send the bare JSON object)"
	case f.offset == 0 && data[0] < 0x80:
		problem = fmt.Sprintf("not JSON: %s in %s (send a bare JSON object)", f.reason, quote(string(data)))
	default:
		near := strings.ToValidUTF8(string(data[f.offset:min(len(data), f.offset+40)]), "�")
		problem = fmt.Sprintf("not JSON at byte %d: %s, near %s (send one bare JSON object)", f.offset, f.reason, quote(near))
	}
	return &ArgumentError{Problems: []string{"arguments: " + problem}, Incomplete: f.cut}
}

// Valid reports whether text is one JSON value without duplicate keys, in words
// for a model.
func Valid(text []byte) error {
	if f := syntax(text); f != nil {
		return fmt.Errorf("the string does not hold JSON: %s at byte %d", f.reason, f.offset)
	}
	s := scanner{data: text}
	if _, twice, ok := s.parse(); !ok {
		return fmt.Errorf("the string holds JSON with the key %s twice in one object", quote(twice))
	}
	return nil
}

// notObject words the error for arguments that are JSON, but not an object.
func notObject(data []byte) *ArgumentError {
	problem := "expected object, got " + describe(data, &node{kinds: object})
	return &ArgumentError{Problems: []string{"arguments: " + problem}}
}

// conversionError finds the values that encoding/json could not convert.
func conversionError(data []byte, t reflect.Type, err error) *ArgumentError {
	l := locator{scanner: scanner{data: data}}
	l.value(t, false)
	if len(l.problems) == 0 {
		l.problems = []string{"arguments: not accepted"}
	}
	return &ArgumentError{Problems: l.problems, more: l.more, err: err}
}
