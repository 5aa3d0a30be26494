package fnloop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// shortText gives s as valid UTF-8 in at most limit bytes, and reports whether
// it had to leave something out. A JSON document stays one: its long strings and
// lists lose their middles. Any other text loses its own.
func shortText(s string, limit int) (short string, cut bool) {
	if len(s) <= limit {
		if excerpt.InvalidUTF8(s) < 0 {
			return s, false
		}
		if s := toValidUTF8([]byte(s)); len(s) <= limit {
			return s, false
		}
	}
	if s != "" && (s[0] == '{' || s[0] == '[' || s[0] == '"') && json.Valid([]byte(s)) {
		doc, cut := shortJSON([]byte(toValidUTF8([]byte(s))), limit)
		if len(doc) <= limit {
			return string(doc), cut
		}
	}
	return text{head: []byte(s)}.truncate(limit, plain)
}

// shortJSON gives a JSON document in about limit bytes that is valid JSON still.
func shortJSON(doc []byte, limit int) (short []byte, cut bool) {
	var compact bytes.Buffer
	if json.Compact(&compact, doc) == nil { // white space goes first
		doc = compact.Bytes()
	}
	if len(doc) <= limit {
		return doc, false
	}
	if short = shorter(doc, limit, 0); len(short) > limit {
		short = leftOut(doc)
	}
	return short, true
}

const (
	// minShort is what is left of a value at least. Where there is no room for
	// so much of each, some are left out as a whole.
	minShort = 128
	// maxShortDepth is how deep a document is shortened. What lies deeper is left
	// out as a whole.
	maxShortDepth = 32
)

// shorter gives a compact JSON value in about limit bytes.
func shorter(v []byte, limit, depth int) []byte {
	switch {
	case len(v) <= limit:
		return v
	case v[0] == '"':
		var s string
		if json.Unmarshal(v, &s) != nil {
			return leftOut(v)
		}
		s, _ = text{head: []byte(s)}.truncate(max(0, limit-2), jsonText)
		return quoteJSON(s)
	case (v[0] == '[' || v[0] == '{') && depth < maxShortDepth:
		return shorterList(v, limit, depth)
	}
	return leftOut(v)
}

// leftOut stands for the JSON value v, unless that is shorter.
func leftOut(v []byte) []byte {
	s := fmt.Appendf(nil, `"[... %d bytes left out ...]"`, len(v))
	if len(s) >= len(v) {
		return v
	}
	return s
}

func quoteJSON(s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string alone cannot fail
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// shorterList shortens the long elements of an array or object, all to the same
// length. Where too little would be left of each, it keeps those at both ends.
func shorterList(v []byte, limit, depth int) []byte {
	count := 0
	for range elements(v) {
		count++
	}
	most := limit/2 + 1 // more never fit, at either end
	var list []element
	i := 0
	for e := range elements(v) {
		if i < most || i >= count-most {
			list = append(list, e)
		}
		i++
	}
	room := limit - len("[]")
	sizes := make([]int, len(list))
	for i, e := range list {
		room -= len(e.key) + len(",")
		sizes[i] = len(e.value)
	}
	if share := fairShare(sizes, room); len(list) == count && (share >= minShort || share >= slices.Max(sizes)) {
		for i, e := range list {
			list[i].value = shorter(e.value, share, depth+1)
		}
		return joinElements(v[0], list, len(list), 0)
	}
	marker := len(`,"[...]":"[... elements left out ...]"`) + 19
	head, tail := 0, 0
	cost := func(e element) int { return len(e.key) + min(len(e.value), minShort) + len(",") }
	room = limit - len("[]") - marker
	for left := room / 2; head < len(list) && cost(list[head]) <= left; head++ {
		left -= cost(list[head])
		room -= cost(list[head])
	}
	for ; head+tail < len(list) && cost(list[len(list)-1-tail]) <= room; tail++ {
		room -= cost(list[len(list)-1-tail])
	}
	kept := slices.Concat(list[:head], list[len(list)-tail:])
	for i, e := range kept {
		kept[i].value = shorter(e.value, minShort, depth+1)
	}
	return joinElements(v[0], kept, head, count-head-tail)
}

// joinElements writes an array or object, with a word for those that are gone
// after the first of them.
func joinElements(open byte, list []element, after, gone int) []byte {
	if gone > 0 {
		e := element{value: fmt.Appendf(nil, `"[... %d elements left out ...]"`, gone)}
		if open == '{' {
			e.key = []byte(`"[...]":`)
		}
		list = slices.Insert(list, after, e)
	}
	out := []byte{open}
	for i, e := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, e.key...), e.value...)
	}
	return append(out, open+2) // ']' and '}'
}

// fairShare returns the largest size to which all of sizes can be cut so that
// they fit into room together: what the short ones leave goes to the long ones.
func fairShare(sizes []int, room int) int {
	sorted := slices.Sorted(slices.Values(sizes))
	for i, size := range sorted {
		share := room / (len(sorted) - i)
		if size > share {
			return max(0, share)
		}
		room -= size
	}
	return slices.Max(append(sorted, 0))
}
