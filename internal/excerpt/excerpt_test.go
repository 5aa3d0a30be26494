package excerpt_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/fnloop/fnloop/internal/excerpt"
)

func TestTrim(t *testing.T) {
	for _, tt := range []struct{ in, end, start, why string }{
		{"", "", "", "nothing"},
		{"abc", "abc", "abc", "ASCII"},
		{"é", "é", "é", "a whole rune"},
		{"a\xc3", "a", "a\xc3", "half of two bytes"},
		{"a\xf0\x9f\x98", "a", "a\xf0\x9f\x98", "three of four"},
		{"\xf0", "", "\xf0", "one of four and no more"},
		{"\x9f\x98\x80a", "\x9f\x98\x80a", "a", "the last three of four"},
		{"\xa9", "\xa9", "", "the last of two"},
		{"a\xff", "a\xff", "a\xff", "a byte that begins no rune stays, to be shown as such"},
		{"\x80\x80\x80\x80", "\x80\x80\x80\x80", "\x80", "no rune has four more"},
	} {
		assert.Equal(t, tt.end, string(excerpt.TrimEnd([]byte(tt.in))), tt.why)
		assert.Equal(t, tt.start, string(excerpt.TrimStart([]byte(tt.in))), tt.why)
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("a😀é", 3)
	f.Add("\xff\x80", 1)
	f.Fuzz(func(t *testing.T, s string, at int) {
		if at < 0 || at > len(s) {
			t.Skip()
		}
		head, tail := excerpt.TrimEnd([]byte(s[:at])), excerpt.TrimStart([]byte(s[at:]))
		if utf8.ValidString(s) {
			if !utf8.Valid(head) || !utf8.Valid(tail) {
				t.Fatalf("%q cut at %d leaves %q and %q", s, at, head, tail)
			}
			if lost := len(s) - len(head) - len(tail); lost >= 2*utf8.UTFMax {
				t.Fatalf("%d bytes lost", lost)
			}
		}
		if i := excerpt.InvalidUTF8(s); (i < 0) != utf8.ValidString(s) || i >= 0 && !utf8.ValidString(s[:i]) {
			t.Fatalf("%q: %d", s, i)
		}
	})
}
