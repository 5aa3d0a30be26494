package recording

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An exchange is what is compared of a request.
type exchange struct {
	method, path string
	body         string
}

// A difference is a place in which two requests differ, with both its values.
type difference struct{ path, recorded, made string }

// nothing is the value of a member that is not there.
const nothing = "(nothing)"

// differences are all the places in which two requests differ.
func differences(recorded, made exchange) []difference {
	var d []difference
	if recorded.method != made.method {
		d = append(d, difference{"the method", recorded.method, made.method})
	}
	if recorded.path != made.path {
		d = append(d, difference{"the path", recorded.path, made.path})
	}
	a, okA := decode(recorded.body)
	b, okB := decode(made.body)
	if !okA || !okB {
		if recorded.body != made.body {
			d = append(d, difference{"the body", clip(recorded.body, 0), clip(made.body, 0)})
		}
		return d
	}
	dropIncidental(a)
	dropIncidental(b)
	return compare(d, "", a, b)
}

// decode reads one JSON document, its numbers as they are written.
func decode(s string) (v any, ok bool) {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil, false
	}
	_, err := dec.Token()
	return v, err == io.EOF
}

// dropIncidental takes out of a request what is not compared.
func dropIncidental(request any) {
	object, _ := request.(map[string]any)
	delete(object, "stream")
	tools, _ := object["tools"].([]any)
	for _, t := range tools {
		if tool, ok := t.(map[string]any); ok {
			delete(tool, "description")
		}
	}
}

// compare adds to d where b differs from a.
func compare(d []difference, path string, a, b any) []difference {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			va, inA := a[key]
			vb, inB := b[key]
			d = compareMember(d, member(path, key), va, vb, inA, inB)
		}
		return d
	case []any:
		b, ok := b.([]any)
		if !ok {
			break
		}
		for i := range max(len(a), len(b)) {
			var va, vb any
			if i < len(a) {
				va = a[i]
			}
			if i < len(b) {
				vb = b[i]
			}
			d = compareMember(d, fmt.Sprintf("%s[%d]", path, i), va, vb, i < len(a), i < len(b))
		}
		return d
	case string:
		b, ok := b.(string)
		if !ok {
			break
		}
		if a == b || samePicture(a, b) {
			return d
		}
		if va, vb := document(a), document(b); va != nil && vb != nil { // such as a tool's output
			if inner := compare(nil, path, va, vb); len(inner) > 0 {
				return append(d, inner...)
			}
		}
		at := commonPrefix(a, b)
		return append(d, difference{path, clip(a, at), clip(b, at)})
	case json.Number:
		if b, ok := b.(json.Number); ok && equalNumbers(a, b) {
			return d
		}
	default:
		if a == b {
			return d
		}
	}
	return append(d, difference{path, show(a), show(b)})
}

func compareMember(d []difference, path string, a, b any, inA, inB bool) []difference {
	switch {
	case !inA:
		return append(d, difference{path, nothing, show(b)})
	case !inB:
		return append(d, difference{path, show(a), nothing})
	}
	return compare(d, path, a, b)
}

func member(path, key string) string {
	switch {
	case strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-") != "" || key == "":
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

// document is the object or array that s holds as JSON, or nil.
func document(s string) any {
	if s == "" || s[0] != '{' && s[0] != '[' {
		return nil
	}
	v, _ := decode(s)
	return v
}

// maxPicture is how many pixels a picture may have to be compared by them.
const maxPicture = 1 << 24

// samePicture reports whether a and b are data URLs of PNGs that show the same.
func samePicture(a, b string) bool {
	x, y := picture(a), picture(b)
	if x == nil || y == nil || x.Bounds() != y.Bounds() {
		return false
	}
	size := x.Bounds()
	for v := size.Min.Y; v < size.Max.Y; v++ {
		for u := size.Min.X; u < size.Max.X; u++ {
			r, g, b, alpha := x.At(u, v).RGBA()
			r2, g2, b2, alpha2 := y.At(u, v).RGBA()
			if r != r2 || g != g2 || b != b2 || alpha != alpha2 {
				return false
			}
		}
	}
	return true
}

// picture is the PNG in a data URL, or nil.
func picture(s string) image.Image {
	data, ok := strings.CutPrefix(s, "data:image/png;base64,")
	if !ok {
		return nil
	}
	open := func() io.Reader { return base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)) }
	size, err := png.DecodeConfig(open())
	if err != nil || size.Width > maxPicture/max(1, size.Height) {
		return nil
	}
	img, err := png.Decode(open())
	if err != nil {
		return nil
	}
	return img
}

// equalNumbers compares numbers by value, integers of any size exactly.
func equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	if !strings.ContainsAny(string(a)+string(b), ".eE") {
		return false
	}
	fa, errA := a.Float64()
	fb, errB := b.Float64()
	return errA == nil && errB == nil && fa == fb
}

// show gives a value as JSON in one line.
func show(v any) string {
	if s, ok := v.(string); ok {
		return clip(s, 0)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	s := strings.TrimSpace(buf.String())
	if len(s) > window {
		s = strings.ToValidUTF8(s[:window], "") + "..."
	}
	return s
}

// window is how many bytes of a long string are shown.
const window = 160

// clip quotes s, of a long one the part around the offset at.
func clip(s string, at int) string {
	from := 0
	if len(s) > window {
		from = max(0, min(at-window/2, len(s)-window))
	}
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	to := min(len(s), from+window)
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	q := strconv.Quote(s[from:to])
	if from > 0 {
		q = "..." + q
	}
	if to < len(s) {
		q += "..."
	}
	return q
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
