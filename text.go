package fnloop

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// text is what is left of a stream: all of it in head, or head and tail with
// gone bytes missing between them.
type text struct {
	head, tail []byte
	omitted    int64
}

// gap matches what [excerpt.Marker] writes.
var gap = regexp.MustCompile(`\n\[\.\.\. ([0-9]{1,18}) bytes left out \.\.\.\]\n`)

// asCut is a stream that was cut before, if cut says so, with what is left of it
// at both ends of its marker: it can then be cut again and say what is missing
// of the whole.
func asCut(s string, cut bool) text {
	if cut {
		// A program can print such a line too. The one that a cut leaves stands
		// nearest to the middle.
		var best []int
		for _, m := range gap.FindAllStringSubmatchIndex(s, -1) {
			if best == nil || abs(m[0]+m[1]-len(s)) < abs(best[0]+best[1]-len(s)) {
				best = m
			}
		}
		if best != nil {
			gone, _ := strconv.ParseInt(s[best[2]:best[3]], 10, 64)
			return text{head: []byte(s[:best[0]]), tail: []byte(s[best[1]:]), omitted: gone}
		}
	}
	return text{head: []byte(s)}
}

func abs(n int) int { return max(n, -n) }

func (t text) size() int64 { return int64(len(t.head)+len(t.tail)) + t.omitted }

// encodedSize is the length of the whole stream as it is encoded, or more than
// limit where that is enough to know.
func (t text) encodedSize(limit int, as encoding) int {
	if t.omitted > 0 || len(t.head) > limit {
		return limit + 1
	}
	n, cost := prefix(t.head, limit, as)
	if n < len(t.head) {
		return limit + 1
	}
	return cost
}

// truncate gives the stream in at most room bytes as it is encoded. Where that is
// not all, it keeps as much of the head as of the tail, cuts on runes and says
// how many bytes of the stream are missing.
func (t text) truncate(room int, as encoding) (s string, cut bool) {
	if t.omitted == 0 {
		if n, _ := prefix(t.head, room, as); n == len(t.head) {
			return toValidUTF8(t.head), false
		}
	}
	const reserve = len(excerpt.Marker) + 2 + 19 // two escaped newlines, nineteen digits
	if room < reserve {
		n, _ := prefix(t.head, room, as)
		return toValidUTF8(t.head[:n]), true
	}
	room -= reserve
	head, tail := t.head, t.tail
	if t.omitted > 0 {
		head, tail = excerpt.TrimEnd(head), excerpt.TrimStart(tail)
	}
	n, used := prefix(head, room/2, as)
	if t.omitted == 0 {
		tail = head[n:]
	}
	m := suffix(tail, room-used, as)
	missing := t.size() - int64(n) - int64(m)
	return toValidUTF8(head[:n]) + fmt.Sprintf(excerpt.Marker, missing) + toValidUTF8(tail[len(tail)-m:]), true
}

// prefix is how many leading bytes of b, a whole number of runes, fit into room
// bytes as they are encoded, and how many of those they take.
func prefix(b []byte, room int, as encoding) (n, used int) {
	costs := &asciiCosts[as]
	for n < len(b) {
		var c int
		size := 1
		if b[n] < utf8.RuneSelf {
			c = int(costs[b[n]])
		} else {
			var r rune
			r, size = utf8.DecodeRune(b[n:])
			c = runeCost(r, size, as)
		}
		if used+c > room {
			break
		}
		used += c
		n += size
	}
	return n, used
}

// suffix is how many trailing bytes of b fit into room bytes.
func suffix(b []byte, room int, as encoding) (n int) {
	costs := &asciiCosts[as]
	for n < len(b) {
		var c int
		size := 1
		if last := b[len(b)-n-1]; last < utf8.RuneSelf {
			c = int(costs[last])
		} else {
			var r rune
			r, size = utf8.DecodeLastRune(b[:len(b)-n])
			c = runeCost(r, size, as)
		}
		if c > room {
			break
		}
		room -= c
		n += size
	}
	return n
}

// An encoding says what a budget counts.
type encoding int

const (
	plain        encoding = iota // the bytes of the text
	jsonText                     // the bytes within a JSON string
	htmlSafeJSON                 // the same, as json.Marshal escapes it
)

// asciiCosts are the [runeCost] of each character of ASCII, which most of what is
// printed is.
var asciiCosts = func() (costs [3][utf8.RuneSelf]uint8) {
	for as := range costs {
		for r := range costs[as] {
			costs[as][r] = uint8(runeCost(rune(r), 1, encoding(as)))
		}
	}
	return costs
}()

// runeCost is how many bytes become of a rune that takes size bytes, where an
// invalid byte becomes U+FFFD.
func runeCost(r rune, size int, as encoding) int {
	switch {
	case r == utf8.RuneError && size == 1:
		return utf8.RuneLen(utf8.RuneError)
	case as == plain:
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == '\u2028', r == '\u2029', as == htmlSafeJSON && (r == '<' || r == '>' || r == '&'):
		return 6
	}
	return size
}

func encodedLen(s string, as encoding) int {
	_, used := prefix([]byte(s), DefaultMaxOutput, as)
	return used
}

// toValidUTF8 makes a string of b in which every invalid byte is one U+FFFD.
func toValidUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+len(b)/2)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[size:]
	}
	return string(out)
}
