package terminal

import (
	"fmt"
	"slices"
	"strings"
)

// What is shown of a program and of each stream of its output, unless all of it
// is: so many lines of its beginning and of its end, and so many columns of a line.
const (
	foldHead  = 8
	foldTail  = 4
	foldWidth = 200
)

// foldCode gives the beginning of a program.
func foldCode(text string) string {
	lines := slices.Collect(strings.Lines(text))
	if len(lines) <= foldHead+1 {
		return clipLines(text)
	}
	return fmt.Sprintf("%s[%d more lines; --verbose shows them]\n", clipLines(strings.Join(lines[:foldHead], "")), len(lines)-foldHead)
}

// foldRest gives what is shown of the lines after those that were: all of them up
// to the limit of the beginning, else the end.
func foldRest(shown int, rest string) string {
	lines := slices.Collect(strings.Lines(rest))
	room := max(foldHead-shown, 0)
	if len(lines) <= room+foldTail+1 {
		return clipLines(rest)
	}
	head, tail := lines[:room], lines[len(lines)-foldTail:]
	return clipLines(strings.Join(head, "")) + "[the middle is not shown; --verbose shows it]\n" + clipLines(strings.Join(tail, ""))
}

// clipLines cuts each line that is too long.
func clipLines(text string) string {
	if len(text) <= foldWidth {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		end := ""
		if strings.HasSuffix(line, "\n") {
			line, end = line[:len(line)-1], "\n"
		}
		if first, rest := cut(line, foldWidth); rest != "" {
			line = first + "..."
		}
		b.WriteString(line + end)
	}
	return b.String()
}
