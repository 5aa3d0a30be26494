package runtimetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// An issue is one wrong field. The service's own form of it is not documented.
type issue struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// fields are those of a request's body. Each is read once by its type; all that
// is wrong is told together.
type fields struct {
	left   map[string]json.RawMessage
	issues []issue
}

// fields takes the body apart. An empty one has no fields.
func (c *call) fields() *fields {
	f := &fields{left: make(map[string]json.RawMessage)}
	if len(bytes.TrimSpace(c.body)) > 0 {
		if err := json.Unmarshal(c.body, &f.left); err != nil {
			f.wrong("", "not a JSON object")
		}
	}
	return f
}

func (f *fields) wrong(name, format string, args ...any) {
	f.issues = append(f.issues, issue{name, fmt.Sprintf(format, args...)})
}

// get decodes a field and reports whether it was there.
func (f *fields) get(name string, v any, want string) bool {
	raw, there := f.left[name]
	delete(f.left, name)
	if !there {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if string(raw) == "null" || dec.Decode(v) != nil {
		f.wrong(name, "want %s", want)
		return false
	}
	return true
}

// integer gives a field from low to high, or zero where that is allowed, or
// otherwise.
func (f *fields) integer(name string, otherwise, low, high int64, zero bool) int64 {
	n := otherwise
	if f.get(name, &n, "an integer") && (n < low || n > high) && !(zero && n == 0) {
		or := ""
		if zero {
			or = "0 or "
		}
		f.wrong(name, "%s%d to %d", or, low, high)
	}
	return n
}

func (f *fields) text(name, otherwise string, oneOf ...string) string {
	s := otherwise
	if f.get(name, &s, "a string") && len(oneOf) > 0 && !slices.Contains(oneOf, s) {
		f.wrong(name, "one of %q", oneOf)
	}
	return s
}

func (f *fields) flag(name string, otherwise bool) bool {
	b := otherwise
	f.get(name, &b, "true or false")
	return b
}

func (f *fields) texts(name string) []string {
	var list []string
	f.get(name, &list, "a list of strings")
	return list
}

func (f *fields) pairs(name string, most int) map[string]string {
	var m map[string]string
	if f.get(name, &m, "an object of strings") && len(m) > most {
		f.wrong(name, "at most %d", most)
	}
	return m
}

// done gives the refusal for all that was wrong, unread fields too.
func (f *fields) done() *apiError {
	for name := range f.left {
		f.wrong(name, "unknown field")
	}
	if len(f.issues) == 0 {
		return nil
	}
	slices.SortFunc(f.issues, func(a, b issue) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	e := refuse(http.StatusBadRequest, "invalid_request", "%d fields are wrong.", len(f.issues))
	e.hint = "See details.issues."
	e.details = map[string]any{"issues": f.issues}
	return e
}
