package fnloop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// answerVersion is the version of the form in which Answers are stored. What
// each version promises is in docs/storage.md.
const answerVersion = 1

// storedAnswer is an Answer in its stored form.
type storedAnswer struct {
	Version int `json:"version"`
	answerFields
}

type answerFields Answer

// MarshalJSON gives the stored form of a, which every later version of fnloop
// reads. Its text is such that any database takes it which knows JSON: it has
// neither U+0000 nor half of a surrogate pair, in place of which there is an
// escape that UnmarshalJSON takes back. A struct that embeds an Answer has this
// method too, so make the Answer a field of it.
func (a Answer) MarshalJSON() ([]byte, error) {
	stored := storedAnswer{answerVersion, answerFields(a)}
	stored.Items = slices.Clone(a.Items)
	for i, item := range stored.Items {
		if !storable(item) {
			var err error
			if stored.Items[i], err = json.Marshal(string(item)); err != nil {
				return nil, err
			}
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // that is for whoever asks for the Answer's JSON to say
	if err := enc.Encode(stored); err != nil {
		return nil, err
	}
	return escapeText(buf.Bytes()), nil
}

// UnmarshalJSON reads what MarshalJSON of this or an earlier version wrote.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var head struct{ Version int }
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch {
	case head.Version < 0 || head.Version > answerVersion:
		return fmt.Errorf("fnloop: the stored Answer has version %d, and this fnloop reads versions up to %d", head.Version, answerVersion)
	case head.Version > 0:
		data = unescapeText(data)
	}
	var stored storedAnswer
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	for i, item := range stored.Items {
		var text string
		if head.Version > 0 && len(item) > 0 && item[0] == '"' {
			if err := json.Unmarshal(item, &text); err != nil {
				return err
			}
			stored.Items[i] = json.RawMessage(text)
		}
	}
	*a = Answer(stored.answerFields)
	return nil
}

// storable reports whether databases keep the JSON value as it is. Some have
// numbers of 64 bits alone, and all bound how deep values are nested.
func storable(data []byte) bool {
	const deepest, longest = 64, 20
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth > deepest {
				return false
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(data) && bytes.IndexByte([]byte("+-.eE0123456789"), data[end]) >= 0 {
				end++
			}
			number := string(data[i:end])
			if _, err := strconv.ParseInt(number, 10, 64); err != nil {
				if _, err := strconv.ParseFloat(number, 64); err != nil || len(number) > longest {
					return false
				}
			}
			i = end - 1
		}
	}
	return true
}

// escapeMark begins an escape: before 0 it is U+0000, before d800 to dfff that half of
// a surrogate pair, and before another mark itself. It is SYMBOL FOR NULL, which
// is read by people as what it stands for.
const (
	escapeMark = "\u2400"
	escapeRune = 0x2400
)

// escapeText escapes in a JSON document what not every database takes. Bytes that
// are no UTF-8 become U+FFFD, as they do in decoding.
func escapeText(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u`)) && !bytes.Contains(data, []byte(escapeMark)) && utf8.Valid(data) {
		return data
	}
	out := make([]byte, 0, len(data)+16)
	for i := 0; i < len(data); {
		u, size := escapedUnit(data[i:])
		switch {
		case size == 0: // no \uXXXX
		case u == 0:
			out = append(out, escapeMark+"0"...)
		case u == escapeRune:
			out = append(out, escapeMark+escapeMark...)
		case isLone(data[i:]):
			out = append(append(out, escapeMark...), data[i+2:i+6]...)
		case utf16.IsSurrogate(u):
			size = 12
			out = append(out, data[i:i+size]...)
		default:
			out = append(out, data[i:i+size]...)
		}
		if size == 0 {
			switch {
			case data[i] == '\\' && i+1 < len(data):
				size = 2
				out = append(out, data[i:i+size]...)
			case bytes.HasPrefix(data[i:], []byte(escapeMark)):
				size = len(escapeMark)
				out = append(out, escapeMark+escapeMark...)
			default:
				var r rune
				r, size = utf8.DecodeRune(data[i:])
				out = utf8.AppendRune(out, r)
			}
		}
		i += size
	}
	return out
}

// unescapeText takes back what escapeText did, however the document was spelled
// since.
func unescapeText(data []byte) []byte {
	if !bytes.Contains(data, []byte(escapeMark)) && !bytes.Contains(data, []byte(`\u2400`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		size := markAt(data[i:])
		if size == 0 {
			if data[i] == '\\' && i+1 < len(data) {
				out = append(out, data[i])
				i++
			}
			out = append(out, data[i])
			i++
			continue
		}
		rest := data[i+size:]
		switch {
		case len(rest) > 0 && rest[0] == '0':
			out, size = append(out, `\u0000`...), size+1
		case markAt(rest) > 0:
			out, size = append(out, escapeMark...), size+markAt(rest)
		case len(rest) >= 4 && utf16.IsSurrogate(hexUnit(rest[:4])):
			out, size = append(append(out, `\u`...), rest[:4]...), size+4
		default: // of somebody who edited the document
			out = append(out, escapeMark...)
		}
		i += size
	}
	return out
}

// markAt is the size of the mark that data begins with, or zero.
func markAt(data []byte) int {
	if bytes.HasPrefix(data, []byte(escapeMark)) {
		return len(escapeMark)
	}
	if u, size := escapedUnit(data); u == escapeRune {
		return size
	}
	return 0
}

// hasLoneSurrogate reports whether a string in the JSON text has half of a
// surrogate pair, which is no character.
func hasLoneSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if isLone(data[i:]) {
			return true
		}
		if u, size := escapedUnit(data[i:]); size > 0 && utf16.IsSurrogate(u) {
			i += 6 // over the other half
		}
		i++
	}
	return false
}

// isLone reports whether data begins with \uXXXX for half of a pair without the
// other.
func isLone(data []byte) bool {
	u, size := escapedUnit(data)
	if size == 0 || !utf16.IsSurrogate(u) {
		return false
	}
	low, _ := escapedUnit(data[size:])
	return utf16.DecodeRune(u, low) == utf8.RuneError
}

// escapedUnit is the UTF-16 unit that data begins with as \uXXXX. The size is
// zero if there is none.
func escapedUnit(data []byte) (u rune, size int) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, 0
	}
	if u = hexUnit(data[2:6]); u < 0 {
		return 0, 0
	}
	return u, 6
}

// hexUnit is the value of four hexadecimal digits, or -1.
func hexUnit(digits []byte) rune {
	n, err := strconv.ParseUint(string(digits), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
