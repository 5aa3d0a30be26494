package terminal

import (
	"regexp"

	"github.com/rivo/uniseg"
)

var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// Width is how many columns of a terminal a text takes: two for a character of
// Chinese, one for an emoji of several runes that is shown as one, none for a
// style.
func Width(text string) int { return uniseg.StringWidth(escapes.ReplaceAllString(text, "")) }

// cut divides a text without styles so that the first part takes at most n columns;
// where n is positive it has at least one character.
func cut(text string, n int) (first, rest string) {
	taken, state := 0, -1
	for rest = text; rest != ""; {
		_, after, width, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if taken += width; taken > n && (n <= 0 || len(rest) < len(text)) {
			break
		}
		rest, state = after, next
	}
	return text[:len(text)-len(rest)], rest
}
