package terminal

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A markdown renders an answer for a terminal as it comes. It styles headings,
// lists, bold and italic text and code, and sets tables in columns; all else it
// passes on. Code is coloured by its language. Text is held back only where what it is depends on what follows: in
// a table, and in the span of a style until it is closed. A span that is not
// closed in its line stays as it was written.
type markdown struct {
	width func() int // of the terminal, in columns

	depth int // of spans within spans

	begun bool            // what the line is has been decided
	head  strings.Builder // the beginning of a line that has not
	whole bool            // and is held to its end
	fence string          // that closes the block of code, or empty
	code  *highlighter    // of the block, or nil where its language is not known
	rows  []string        // of a table
	title bool            // the line is a heading
	last  rune            // before what comes
	stars int             // asterisks that may open a span
	span  string          // what closes the span, or empty
	held  strings.Builder // of the span
	out   strings.Builder
}

// The styles, each with what ends it and nothing else.
const (
	bold, noBold     = "\x1b[1m", "\x1b[22m"
	italic, noItalic = "\x1b[3m", "\x1b[23m"
	cyan, noColour   = "\x1b[36m", "\x1b[39m"
)

// write takes a piece of the answer and gives what to show now.
func (m *markdown) write(text string) string {
	for _, r := range text {
		if m.begun {
			m.inline(r)
		} else {
			m.start(r)
		}
	}
	return m.take()
}

// end gives what was held back. The next piece begins a line.
func (m *markdown) end() string {
	if !m.begun && m.head.Len() > 0 {
		m.line()
	}
	m.endLine()
	m.table()
	m.fence = ""
	return m.take()
}

func (m *markdown) take() string {
	text := m.out.String()
	m.out.Reset()
	return text
}

// start takes what may decide what a line is.
func (m *markdown) start(r rune) {
	if r == '\n' {
		m.line()
		m.endLine()
		if len(m.rows) == 0 {
			m.out.WriteByte('\n')
		}
		return
	}
	m.head.WriteRune(r)
	if m.whole || m.fence != "" {
		return
	}
	text := strings.TrimLeft(m.head.String(), " ")
	m.whole = strings.HasPrefix(text, "|") || strings.HasPrefix(text, "```") || strings.HasPrefix(text, "~~~")
	if text != "" && !m.whole && !waits(text) {
		m.line()
	}
}

// waits reports whether what follows decides what a line is that begins so.
func waits(text string) bool {
	return slices.Contains([]string{"-", "*", "+", ">", "`", "``", "~", "~~"}, text) || strings.Trim(text, "#") == "" && len(text) <= 6
}

// line begins a line with what is held of it.
func (m *markdown) line() {
	head := m.head.String()
	text := strings.TrimLeft(head, " ")
	indent := head[:len(head)-len(text)]
	m.head.Reset()
	m.begun, m.whole = true, false
	if m.fence != "" {
		closes := strings.TrimRight(text, " ") == m.fence
		if closes {
			m.fence = ""
		}
		if m.code != nil && !closes {
			m.out.WriteString(m.code.line(head))
		} else {
			m.out.WriteString(cyan + head + noColour)
		}
		return
	}
	if strings.HasPrefix(text, "|") {
		m.rows = append(m.rows, head)
		return
	}
	m.table()
	switch mark, rest, _ := strings.Cut(text, " "); {
	case strings.HasPrefix(text, "```") || strings.HasPrefix(text, "~~~"):
		m.fence = text[:len(text)-len(strings.TrimLeft(text, text[:1]))]
		m.code = newHighlighter(text[len(m.fence):])
		m.out.WriteString(cyan + head + noColour)
	case mark != "" && strings.Trim(mark, "#") == "" && len(mark) <= 6 && len(mark) < len(text):
		m.title = true
		m.out.WriteString(bold)
		m.text(rest)
	case (mark == "-" || mark == "*" || mark == "+") && len(mark) < len(text):
		m.out.WriteString(indent + "\u2022 ")
		m.last = ' '
		m.text(rest)
	default:
		m.out.WriteString(indent)
		m.last = ' '
		m.text(text)
	}
}

func (m *markdown) text(s string) {
	for _, r := range s {
		m.inline(r)
	}
}

// inline takes text within a line.
func (m *markdown) inline(r rune) {
	switch {
	case r == '\n':
		m.endLine()
		m.out.WriteByte('\n')
	case m.span != "":
		m.inSpan(r)
	case r == '*' && m.stars < 2:
		m.stars++
	case m.stars > 0:
		stars := strings.Repeat("*", m.stars)
		m.stars = 0
		if isWord(m.last) || unicode.IsSpace(r) || r == '*' || r == '`' {
			m.out.WriteString(stars)
			m.last = '*'
			m.inline(r)
			return
		}
		m.span = stars
		m.held.WriteRune(r)
	case r == '`':
		m.span = "`"
	default:
		m.out.WriteRune(r)
		m.last = r
	}
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// inSpan takes text within a span, up to what closes it.
func (m *markdown) inSpan(r rune) {
	m.held.WriteRune(r)
	text, closed := strings.CutSuffix(m.held.String(), m.span)
	if !closed {
		return
	}
	before, _ := utf8.DecodeLastRuneInString(text)
	switch {
	case text == "" && m.span == "`": // the marks of another kind of span
		m.open()
		m.last = '`'
		return
	case text == "", m.span != "`" && (unicode.IsSpace(before) || before == '*'):
		return // it is not this one that closes it
	case m.span == "`":
		text = cyan + text + noColour
	case m.span == "**" && m.title:
	case m.span == "**":
		text = bold + m.nested(text) + noBold
	default:
		text = italic + m.nested(text) + noItalic
	}
	m.out.WriteString(text)
	m.last, m.span = 'x', ""
	m.held.Reset()
}

// nested renders the text of a span.
func (m *markdown) nested(text string) string {
	const deepest = 2 // which nobody writes
	if m.depth == deepest {
		return text
	}
	return (&markdown{depth: m.depth + 1}).part(text)
}

// part renders a part of a line.
func (m *markdown) part(text string) string {
	m.begun, m.last = true, ' '
	m.text(text)
	m.open()
	return m.take()
}

// open writes what turned out to be no span.
func (m *markdown) open() {
	m.out.WriteString(strings.Repeat("*", m.stars) + m.span + m.held.String())
	m.stars, m.span = 0, ""
	m.held.Reset()
}

// endLine ends the styles of a line.
func (m *markdown) endLine() {
	m.open()
	if m.title {
		m.out.WriteString(noBold)
	}
	m.title, m.begun, m.last = false, false, ' '
}

// table writes the rows that are held, in columns if they are a table.
func (m *markdown) table() {
	rows := m.rows
	m.rows = nil
	if len(rows) < 2 || !isRuler(rows[1]) {
		for _, row := range rows {
			m.out.WriteString(row + "\n")
		}
		return
	}
	var cells [][]string
	rulers := splitRow(rows[1])
	for i, row := range rows {
		if i != 1 {
			cells = append(cells, splitRow(row))
		}
	}
	m.out.WriteString(columns(cells, rulers, m.width()))
}

// isRuler reports whether a row is the one below a table's head.
func isRuler(row string) bool {
	return strings.Contains(row, "-") && strings.Trim(row, "|-: ") == ""
}

// splitRow gives the cells of a row.
func splitRow(row string) []string {
	row = strings.TrimSpace(row)
	row = strings.TrimPrefix(row, "|")
	if strings.HasSuffix(row, "|") && !strings.HasSuffix(row, `\|`) {
		row = row[:len(row)-1]
	}
	const bar = "\x00" // no text has one
	cells := strings.Split(strings.ReplaceAll(row, `\|`, bar), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, bar, "|"))
	}
	return cells
}
