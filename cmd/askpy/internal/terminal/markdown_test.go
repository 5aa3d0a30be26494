package terminal

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// tags makes styles readable.
var tags = strings.NewReplacer(bold, "<b>", noBold, "</b>", italic, "<i>", noItalic, "</i>", cyan, "<c>", noColour, "</c>",
	wordColour, "<k>", stringColour, "<s>", commentColour, "<#>")

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
		{"code blocks", "```python\nx = a ** b  # *no*\n| y |\n\n```\n*yes*", 80, "<c>```python</c>\nx = a ** b  <#># *no*</c>\n| y |\n\n<c>```</c>\n<i>yes</i>"},
		{"code of no known language", "```\nx = 1\n```\n```brainf\nif\n```", 80, "<c>```</c>\n<c>x = 1</c>\n<c>```</c>\n<c>```brainf</c>\n<c>if</c>\n<c>```</c>"},
		{
			"strings over lines", "```py\ns = f\"a\\\"b\" + r'''c\n# d '''; return x1 or 2.5e3\n```", 80,
			"<c>```py</c>\ns = f<s>\"a\\\"b\"</c> + r<s>'''c</c>\n<s># d '''</c>; <k>return</c> x1 <k>or</c> <c>2.5e3</c>\n<c>```</c>",
		},
		{"a string that is left open", "~~~js\nlet a = 'b\nc\n~~~", 80, "<c>~~~js</c>\n<k>let</c> a = <s>'b</c>\nc\n<c>~~~</c>"},
		{"key words in capitals", "```sql\nSELECT a FROM b -- c\n```", 80, "<c>```sql</c>\n<k>SELECT</c> a <k>FROM</c> b <#>-- c</c>\n<c>```</c>"},
		{"longer fences", "````\n```\n````\n**a**", 80, "<c>````</c>\n<c>```</c>\n<c>````</c>\n<b>a</b>"},
		{"inline code of two backticks", "``a``", 80, "``a``"},
		{"tables", "| n | `fib` |\n|---|--:|\n| 10 | **55** |\n| 4 | a\\|b |\nDone", 80,
			"<b>n</b>   <b><c>fib</c></b>\n──  ───\n10   <b>55</b>\n4   a|b\nDone"},
		{
			"sides of columns", "| n | m | o |\n|:--|:-:|--:|\n| 1 | 1 | 1 |\n| 123 | 12345 | 123 |\n", 80,
			"<b>n</b>      <b>m</b>      <b>o</b>\n───  ─────  ───\n1      1      1\n123  12345  123\n",
		},
		{
			"wide characters", "| 国 | 首都 |\n|--|--|\n| 日本 | 東京 |\n| 🇫🇷 fr | Paris 👩‍👩‍👧 |\n| e\u0301 | x |\n", 80,
			"<b>国</b>     <b>首都</b>\n─────  ────────\n日本   東京\n🇫🇷 fr  Paris 👩‍👩‍👧\ne\u0301      x\n",
		},
		{
			"wide characters that are broken", "| a | b |\n|--|--|\n| 日本語の文章を書く | 👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧 |\n", 20,
			"<b>a</b>          <b>b</b>\n─────────  ─────────\n日本語の   👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧\n文章を書   👩‍👩‍👧\nく\n",
		},
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
	f.Add("```py\nx = \"\"\"1\n2\"\"\" # if\n```\n", 80)
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
		count := func(styles ...string) (n int) {
			for _, s := range styles {
				n += strings.Count(got, s)
			}
			return n
		}
		if count(bold) != count(noBold) || count(italic) != count(noItalic) || count(cyan, wordColour, stringColour, commentColour) != count(noColour) {
			t.Errorf("%q is rendered with open styles as %q", text, got)
		}
	})
}
