package strict

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"sync"
)

// Fill decodes data into what into points to as [json.Unmarshal] does, members that
// the type does not know included, in a fraction of the time. It reports false where
// it cannot, and the value is then what it was: it was not zero, data is no JSON or
// nothing that fits the type, or it has what encoding/json has rules of its own for,
// such as a member twice, a name in another case, or text that is not UTF-8.
func Fill(data []byte, into any) bool {
	if syntax(data) != nil {
		return false
	}
	l := filler{scanner: scanner{data: data}, open: true}
	return l.fill(reflect.ValueOf(into).Elem())
}

// forms has the form of each type that was decoded into.
var forms sync.Map // reflect.Type to *form

func knownForm(t reflect.Type) *form {
	f, known := forms.Load(t)
	if !known {
		f, _ = forms.LoadOrStore(t, formOf(t, map[reflect.Type]*form{}))
	}
	return f.(*form)
}

// A filler decodes JSON without flaw into a Go value, such as arguments that fit a
// schema. It does what encoding/json would, without looking at the text a second
// time for what was looked for before. Of whatever is not plain it reports that it
// cannot, and encoding/json decodes the whole.
type filler struct {
	scanner
	scratch []byte
	open    bool // objects may have other members than the type, and have one twice
}

// fill decodes the whole into v and reports whether it could. If not, v is as it was.
func (l *filler) fill(v reflect.Value) bool {
	if !v.IsZero() {
		return false
	}
	if l.value(knownForm(v.Type()), v) {
		return true
	}
	v.SetZero()
	return false
}

// A form is what has to be known of a Go type to decode into it.
type form struct {
	typ    reflect.Type
	self   bool        // it decodes itself, by a method
	any    bool        // encoding/json has to decode it
	elem   *form       // of a pointer, slice or array
	names  names       // of a struct
	fields []formField // in the order of names
}

// A formField is a field of a struct, or of what is embedded in it.
type formField struct {
	*form
	index  []int
	quoted bool
}

// formOf returns the form of t. Made are the forms of the types that t is a part
// of.
func formOf(t reflect.Type, made map[reflect.Type]*form) *form {
	if f := made[t]; f != nil {
		return f
	}
	f := &form{typ: t}
	made[t] = f
	if f.self = decodesJSON(t) || decodesText(t); f.self {
		return f
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		f.elem = formOf(t.Elem(), made)
	case reflect.Struct:
		fields, err := fieldsOf(t)
		if f.any = err != nil; f.any {
			break
		}
		list := make([]string, len(fields))
		f.fields = make([]formField, len(fields))
		for i := range fields {
			list[i] = fields[i].name
			f.fields[i] = formField{formOf(fields[i].Type, made), fields[i].index, fields[i].quoted}
		}
		f.names = namesOf(list)
	case reflect.Map, reflect.Interface:
		f.any = true
	}
	return f
}

// value decodes the next value into v, which is zero. It reports whether it
// could.
func (l *filler) value(f *form, v reflect.Value) bool {
	k := kindAt(l.peek())
	switch {
	case f.self:
		return decodeItself(v, l.skip())
	case f.any:
		return unmarshal(l.skip(), v.Addr().Interface()) == nil
	case k == null:
		l.skip()
		return true
	case f.typ.Kind() == reflect.Pointer:
		v.Set(reflect.New(f.elem.typ))
		return l.value(f.elem, v.Elem())
	}
	switch k {
	case object:
		return f.typ.Kind() == reflect.Struct && l.object(f, v)
	case array:
		return l.array(f, v)
	case text:
		return l.text(f, v)
	case number:
		return l.number(f, v)
	}
	raw := l.literal()
	if f.typ.Kind() != reflect.Bool {
		return false
	}
	v.SetBool(raw[0] == 't')
	return true
}

func (l *filler) object(f *form, v reflect.Value) bool {
	var small [2]uint64
	seen := small[:]
	if len(f.fields) > 64*len(small) {
		seen = make([]uint64, (len(f.fields)+63)/64)
	}
	next := 0
	for l.more() {
		raw, escaped := l.key()
		if escaped {
			raw = unescape(nil, raw)
		}
		i := f.names.find(raw, next)
		if i < 0 {
			if !l.open || f.names.folds(raw) {
				return false
			}
			l.skip()
			continue
		}
		bit := uint64(1) << (i % 64)
		if seen[i/64]&bit != 0 {
			return false
		}
		seen[i/64] |= bit
		next = i + 1
		field := &f.fields[i]
		to, ok := fieldAt(v, field.index)
		if !ok {
			return false
		}
		if field.quoted && l.peek() == '"' {
			raw, _ := l.str()
			inner := unescape(nil, raw)
			if !isNumber(string(inner)) && string(inner) != "true" && string(inner) != "false" ||
				!(&filler{scanner: scanner{data: inner}}).value(field.form, to) {
				return false
			}
		} else if !l.value(field.form, to) {
			return false
		}
	}
	return true
}

// fieldAt returns a field of struct v, by its way through embedded structs.
func fieldAt(v reflect.Value, index []int) (reflect.Value, bool) {
	for i, n := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				if !v.CanSet() {
					return v, false
				}
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(n)
	}
	return v, true
}

func (l *filler) array(f *form, v reflect.Value) bool {
	n := 0
	switch f.typ.Kind() {
	case reflect.Slice:
		count := l.length()
		v.Set(reflect.MakeSlice(f.typ, count, count)) // which is not nil
		for ; l.more(); n++ {
			if !l.value(f.elem, v.Index(n)) {
				return false
			}
		}
		return true
	case reflect.Array:
		for ; l.more(); n++ {
			if n == v.Len() || !l.value(f.elem, v.Index(n)) {
				return false
			}
		}
		return n == v.Len()
	}
	return false
}

func (l *filler) text(f *form, v reflect.Value) bool {
	raw, escaped := l.str()
	if escaped {
		l.scratch = unescape(slices.Grow(l.scratch[:0], len(raw)), raw)
		raw = l.scratch
	}
	switch {
	case f.typ == jsonNumber:
		return false
	case f.typ.Kind() == reflect.String:
		v.SetString(string(raw))
		return true
	case f.typ.Kind() == reflect.Slice && f.elem.typ.Kind() == reflect.Uint8:
		b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
		n, err := base64.StdEncoding.Decode(b, raw)
		v.SetBytes(b[:n])
		return err == nil
	}
	return false
}

func (l *filler) number(f *form, v reflect.Value) bool {
	raw := l.literal()
	switch {
	case v.CanInt():
		n, err := strconv.ParseInt(string(raw), 10, 64)
		v.SetInt(n)
		return err == nil && !v.OverflowInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(string(raw), 10, 64)
		v.SetUint(n)
		return err == nil && !v.OverflowUint(n)
	case v.CanFloat():
		n, err := strconv.ParseFloat(string(raw), f.typ.Bits())
		v.SetFloat(n)
		return err == nil
	case f.typ == jsonNumber:
		v.SetString(string(raw))
		return true
	}
	return false
}

var jsonNumber = reflect.TypeFor[json.Number]()

// decodeItself has v decode raw by its method.
func decodeItself(v reflect.Value, raw []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	switch m := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		return m.UnmarshalJSON(raw) == nil
	case encoding.TextUnmarshaler:
		switch kindAt(raw[0]) {
		case null:
			return true
		case text:
			return m.UnmarshalText(unescape(nil, raw[1:len(raw)-1])) == nil
		}
	}
	return false
}
