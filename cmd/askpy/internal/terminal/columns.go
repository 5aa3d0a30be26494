package terminal

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	gap       = "  " // between two columns
	minColumn = 8    // what a column is not made narrower than
)

// columns sets a table, whose first row is its head, in at most width columns of
// the terminal: cells that do not fit are broken into lines. Where there is no
// room for that, each row is a list with the head's words before the cells.
func columns(rows [][]string, width int) string {
	n := 0
	for _, row := range rows {
		n = max(n, len(row))
	}
	widths := make([]int, n)
	total := len(gap) * (n - 1)
	for j := range widths {
		for _, row := range rows {
			if j < len(row) {
				widths[j] = max(widths[j], visible(styled(row[j])))
			}
		}
		total += widths[j]
	}
	for total > width {
		widest := 0
		for j := range widths {
			if widths[j] > widths[widest] {
				widest = j
			}
		}
		if widths[widest] <= minColumn {
			return records(rows)
		}
		widths[widest]--
		total--
	}
	var b strings.Builder
	for i, row := range rows {
		cells := make([][]string, n)
		height := 1
		for j := range cells {
			if j < len(row) {
				cells[j] = fill(row[j], widths[j])
			}
			height = max(height, len(cells[j]))
		}
		for k := range height {
			line := ""
			for j := range cells {
				cell := ""
				if k < len(cells[j]) {
					cell = cells[j][k]
				}
				if i == 0 {
					cell = strings.ReplaceAll(cell, "**", "")
				}
				text := styled(cell)
				if i == 0 && text != "" {
					text = bold + text + noBold
				}
				line += text + strings.Repeat(" ", widths[j]-visible(text))
				if j < n-1 {
					line += gap
				}
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		if i == 0 {
			for j := range widths {
				b.WriteString(strings.Repeat("\u2500", widths[j]))
				if j < n-1 {
					b.WriteString(gap)
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// records gives each row of a table as a list.
func records(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows[1:] {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, cell := range row {
			if j < len(rows[0]) && rows[0][j] != "" {
				b.WriteString(bold + styled(strings.ReplaceAll(rows[0][j], "**", "")) + noBold + ": ")
			}
			b.WriteString(styled(cell) + "\n")
		}
	}
	return b.String()
}

// fill breaks a cell into lines of at most width columns, at blanks where it
// can. A style that would reach from one line into the next is left as it was
// written.
func fill(cell string, width int) []string {
	if visible(styled(cell)) <= width {
		return []string{cell}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(cell) {
		if line != "" && visible(styled(line+" "+word)) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		runes := []rune(word)
		if visible(styled(word)) > width {
			for ; len(runes) > width; runes = runes[width:] {
				lines = append(lines, string(runes[:width]))
			}
		}
		line = string(runes)
	}
	return append(lines, line)
}

// styled renders a cell.
func styled(cell string) string { return new(markdown).part(cell) }

var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// visible is how many columns a text takes. Characters that take two, such as
// those of Chinese, are counted as one.
func visible(text string) int { return utf8.RuneCountInString(escapes.ReplaceAllString(text, "")) }
