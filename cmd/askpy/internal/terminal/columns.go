package terminal

import "strings"

const (
	gap       = "  " // between two columns
	minColumn = 8    // what a column is not made narrower than
)

// columns sets a table, whose first row is its head, in at most width columns of
// the terminal: cells that do not fit are broken into lines. Where there is no
// room for that, each row is a list with the head's words before the cells. A colon
// in a column's ruler says to which side its text goes.
func columns(rows [][]string, rulers []string, width int) string {
	n := 0
	for _, row := range rows {
		n = max(n, len(row))
	}
	widths := make([]int, n)
	total := len(gap) * (n - 1)
	for j := range widths {
		for _, row := range rows {
			if j < len(row) {
				widths[j] = max(widths[j], Width(styled(row[j])))
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
				ruler := ""
				if j < len(rulers) {
					ruler = rulers[j]
				}
				line += sided(text, widths[j], ruler)
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

// sided fills text with blanks up to a width, on the side that its ruler says.
func sided(text string, width int, ruler string) string {
	left, right := 0, max(width-Width(text), 0)
	if strings.HasSuffix(ruler, ":") {
		left, right = right, 0
		if strings.HasPrefix(ruler, ":") {
			left, right = left/2, left-left/2
		}
	}
	return strings.Repeat(" ", left) + text + strings.Repeat(" ", right)
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
	if Width(styled(cell)) <= width {
		return []string{cell}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(cell) {
		if line != "" && Width(styled(line+" "+word)) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for Width(styled(word)) > width && Width(word) > width {
			var first string
			first, word = cut(word, width)
			lines = append(lines, first)
		}
		line = word
	}
	return append(lines, line)
}

// styled renders a cell.
func styled(cell string) string { return new(markdown).part(cell) }
