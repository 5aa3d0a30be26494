package strict

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// A locator finds the values of arguments that a Go type cannot take although
// they fit the schema: numbers that overflow, bad base64, text that an
// UnmarshalText method refuses. encoding/json gives no path for most of these,
// so after it has failed the locator decodes value by value.
type locator struct {
	scanner
	trail    trail
	problems []string
	more     int
	fields   map[reflect.Type]map[string]*field
}

// value reads one value that goes into a t.
func (l *locator) value(t reflect.Type, quoted bool) {
	t, _ = Pointee(t)
	k := kindAt(l.peek())
	structured := !decodesJSON(t) && !decodesText(t)
	if alias, _ := Alias(t); alias != nil {
		start, found := l.pos, len(l.problems)
		if l.value(alias, quoted); len(l.problems) > found || l.more > 0 {
			return
		}
		l.pos = start // what is wrong is between the parts
	}
	switch {
	case k == object && structured && t.Kind() == reflect.Struct:
		l.object(t)
	case k == array && structured && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		for i := 0; l.scanner.more(); i++ {
			l.trail = append(l.trail, crumb{index: i})
			l.value(t.Elem(), false)
			l.trail = l.trail[:len(l.trail)-1]
		}
	default:
		l.leaf(t, l.skip(), quoted)
	}
}

func (l *locator) object(t reflect.Type) {
	fields := l.fieldsOf(t)
	for l.scanner.more() {
		raw, _ := l.key()
		name := string(unescape(nil, raw))
		f := fields[name]
		if f == nil {
			l.skip()
			continue
		}
		l.trail = append(l.trail, crumb{name: name, index: -1})
		l.value(f.Type, f.quoted)
		l.trail = l.trail[:len(l.trail)-1]
	}
}

// fieldsOf returns the fields of struct t by their names.
func (l *locator) fieldsOf(t reflect.Type) map[string]*field {
	if byName, ok := l.fields[t]; ok {
		return byName
	}
	fields, _ := fieldsOf(t)
	byName := make(map[string]*field, len(fields))
	for i := range fields {
		byName[fields[i].name] = &fields[i]
	}
	if l.fields == nil {
		l.fields = map[reflect.Type]map[string]*field{}
	}
	l.fields[t] = byName
	return byName
}

// leaf decodes one value on its own.
func (l *locator) leaf(t reflect.Type, raw []byte, quoted bool) {
	source := raw
	if quoted && raw[0] == '"' {
		source = unescape(nil, raw[1:len(raw)-1])
	}
	err := unmarshal(source, reflect.New(t).Interface())
	if err == nil {
		return
	}
	if len(l.problems) == maxProblems {
		l.more++
		return
	}
	problem := conversionProblem(t, source, err)
	if quoted {
		problem += " in a string"
	}
	l.problems = append(l.problems, l.trail.String()+": "+problem+", got "+describe(raw, &node{kinds: kindAt(raw[0])}))
}

// textForms says what types of the standard library take, whose own errors
// are for programmers. They are named so as not to be linked in.
var textForms = map[string]string{
	"net.IP":             "an IP address such as 192.0.2.1",
	"net/netip.Addr":     "an IP address such as 192.0.2.1",
	"net/netip.AddrPort": "an address with a port such as 192.0.2.1:80",
	"net/netip.Prefix":   "a network such as 192.0.2.0/24",
	"math/big.Float":     "a number in a string, such as \"1.5\"",
	"math/big.Rat":       "a number or fraction in a string, such as \"3/4\"",
}

// conversionProblem says what a t takes.
func conversionProblem(t reflect.Type, raw []byte, err error) string {
	k := t.Kind()
	var (
		timeErr   *time.ParseError
		base64Err base64.CorruptInputError
	)
	switch {
	case errors.As(err, &timeErr):
		return "expected string in date-time form, such as " + formats["date-time"].example
	case errors.As(err, &base64Err) && isBase64(t):
		return "expected bytes in base64"
	case textForms[t.PkgPath()+"."+t.Name()] != "":
		return "expected " + textForms[t.PkgPath()+"."+t.Name()]
	case decodesJSON(t) || decodesText(t):
		return "not accepted" + inWords(err)
	case isIntegerKind(k):
		low, high := integerRange(k)
		return fmt.Sprintf("expected integer from %s to %s", low, high)
	case k == reflect.Float32 && isNumber(string(raw)):
		return "expected number from -3.4e38 to 3.4e38"
	case k == reflect.Float64 && isNumber(string(raw)):
		return "expected number from -1.79e308 to 1.79e308"
	}
	return "not accepted"
}

// inWords returns what a type's own method has to say, which is for the model
// as the error of a handler is. What encoding/json and strconv say is of Go.
func inWords(err error) string {
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return ""
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return ""
	}
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		return ""
	}
	if _, ok := errors.AsType[*panicError](err); ok || err.Error() == "" {
		return ""
	}
	return " (" + clipTo(oneLine(err.Error()), 200) + ")"
}
