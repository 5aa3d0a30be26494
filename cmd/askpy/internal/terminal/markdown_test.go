package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// tags makes styles readable.
var tags = strings.NewReplacer(bold, "<b>", noBold, "</b>", italic, "<i>", noItalic, "</i>", cyan, "<c>", noColour, "</c>")

func render(text string, width int, piece func(rest int) int) string {
	m := &markdown{width: func() int { return width }}
	var b strings.Builder
	for text != "" {
		n := piece(len(text))
		b.WriteString(m.write(text[:n]))
		text = text[n:]
	}
	return tags.Replace(b.String() + m.end())
}

func TestMarkdown(t *testing.T) {
	for _, test := range []struct {
		name, text string
		width      int
		want       string
	}{
		{"plain", "The answer is 42.", 80, "The answer is 42."},
		{"bold, italic and code", "**It** is *very* `x*y` fast", 80, "<b>It</b> is <i>very</i> <c>x*y</c> fast"},
		{"code in bold", "**use `a_b`**.", 80, "<b>use <c>a_b</c></b>."},
		{"powers and products are no styles", "2**10 is 1024, 3 * 4 * 5, a*b*c and **kwargs", 80, "2**10 is 1024, 3 * 4 * 5, a*b*c and **kwargs"},
		{"spans end with their line", "a `b\nc` and *d\ne*", 80, "a `b\nc` and *d\ne*"},
		{"asterisks alone", "* * *\n***\n**\n", 80, "\u2022 * *\n***\n**\n"},
		{"headings", "# One\n## **Two** `x`\n#hash\n####### seven\n", 80, "<b>One</b>\n<b>Two <c>x</c></b>\n#hash\n####### seven\n"},
		{"lists", "- a\n  * **b**\n+ c\n1. d\n-5 degrees\n", 80, "\u2022 a\n  \u2022 <b>b</b>\n\u2022 c\n1. d\n-5 degrees\n"},
		{"code blocks", "```python\nx = a ** b  # *no*\n| y |\n\n```\n*yes*", 80, "<c>```python</c>\n<c>x = a ** b  # *no*</c>\n<c>| y |</c>\n<c></c>\n<c>```</c>\n<i>yes</i>"},
		{"longer fences", "````\n```\n````\n**a**", 80, "<c>````</c>\n<c>```</c>\n<c>````</c>\n<b>a</b>"},
		{"inline code of two backticks", "``a``", 80, "``a``"},
		{"tables", "| n | `fib` |\n|---|--:|\n| 10 | **55** |\n| 4 | a\\|b |\nDone", 80,
			"<b>n</b>   <b><c>fib</c></b>\n──  ───\n10  <b>55</b>\n4   a|b\nDone"},
		{"rows of different lengths", "|a|b|\n|-|-|\n|1|\n|1|2|3|\n", 80, "<b>a</b>  <b>b</b>\n─  ─  ─\n1\n1  2  3\n"},
		{"narrow tables", "| name | what it is |\n|---|---|\n| fib | the numbers of Fibonacci |\n", 20,
			"<b>name</b>  <b>what it is</b>\n────  ──────────────\nfib   the numbers of\n      Fibonacci\n"},
		{"no room for a table", "| name | count | more |\n|---|---|---|\n| fibonacci | 123456789 | abcdefghijk |\n| b | 2 | c |\n", 12,
			"<b>name</b>: fibonacci\n<b>count</b>: 123456789\n<b>more</b>: abcdefghijk\n\n<b>name</b>: b\n<b>count</b>: 2\n<b>more</b>: c\n"},
		{"bars that are no table", "| a | b\nnext\n|x|\n", 80, "| a | b\nnext\n|x|\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			whole := render(test.text, test.width, func(rest int) int { return rest })
			assert.Equal(t, test.want, whole)
			for range 20 {
				pieces := render(test.text, test.width, func(rest int) int {
					n := 1 + rand.IntN(min(rest, 5))
					for ; n < rest; n++ { // within no character
						if i := len(test.text) - rest + n; test.text[i]&0xc0 != 0x80 {
							break
						}
					}
					return n
				})
				assert.Equal(t, whole, pieces, "how the text comes does not change it")
			}
		})
	}
}

// Text goes out as it comes where nothing has to be waited for.
func TestMarkdown_streams(t *testing.T) {
	m := &markdown{width: func() int { return 80 }}
	assert.Equal(t, "On", m.write("On"))
	assert.Equal(t, "e ", m.write("e **t"))
	assert.Equal(t, "", m.write("wo*"))
	assert.Equal(t, bold+"two"+noBold+" th", m.write("* th"))
}

// Whatever the text is, none of it is lost but marks and blanks, and every style
// that begins ends.
func FuzzMarkdown(f *testing.F) {
	f.Add("# a **b** `c` *d*\n- e\n```\nf\n```\n", 80)
	f.Add("| a | b |\n|---|---|\n| **c** | d\\|e |\n", 10)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(1, min(width, 200))
		text = Printable(text)
		m := &markdown{width: func() int { return width }}
		got := m.write(text) + m.end()
		letters := func(s string) string {
			return strings.Map(func(r rune) rune {
				if isWord(r) {
					return r
				}
				return -1
			}, escapes.ReplaceAllString(s, ""))
		}
		if !strings.Contains(text, "|") && letters(got) != letters(text) {
			t.Errorf("%q is rendered as %q", text, got)
		}
		for _, s := range [][2]string{{bold, noBold}, {italic, noItalic}, {cyan, noColour}} {
			if strings.Count(got, s[0]) != strings.Count(got, s[1]) {
				t.Errorf("%q is rendered with open styles as %q", text, got)
			}
		}
	})
}
