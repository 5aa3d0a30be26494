package terminal

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A language is what a highlighter has to know of one.
type language struct {
	comments []string // what begins one that goes to the end of the line
	quotes   []string // of strings, the longest first
	long     []string // those of them whose strings may go over several lines
	words    string   // the key words
	fold     bool     // which may be in capitals
}

var (
	python = language{
		[]string{"#"}, []string{`"""`, "'''", `"`, "'"}, []string{`"""`, "'''"},
		"False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield", false,
	}
	shell = language{
		[]string{"#"}, []string{`"`, "'"}, []string{`"`, "'"},
		"case do done elif else esac export fi for function if in local return set then until while", false,
	}
	javascript = language{
		[]string{"//"}, []string{`"`, "'", "`"}, []string{"`"},
		"async await break case catch class const continue default delete do else export extends false finally for from function if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield", false,
	}
	golang = language{
		[]string{"//"}, []string{`"`, "'", "`"}, []string{"`"},
		"break case chan const continue default defer else fallthrough false for func go goto if import interface iota map nil package range return select struct switch true type var", false,
	}
	sql = language{
		[]string{"--"}, []string{"'", `"`}, []string{"'"},
		"all and as asc between by case create delete desc distinct drop else end exists from full group having in inner insert into is join left like limit not null on or order outer over partition right select set table then union update values when where with", true,
	}
	object = language{nil, []string{`"`}, nil, "false null true", false}
	c      = language{
		[]string{"//"}, []string{`"`, "'"}, nil,
		"abstract auto bool boolean break case catch char class const continue default do double else enum extends extern final finally float fn for if impl implements import int interface let long loop match mod mut namespace new null nullptr private protected pub public return short signed sizeof static struct super switch template this throw throws trait true false try typedef union unsigned use using virtual void volatile where while", false,
	}
	languages = map[string]language{
		"python": python, "py": python, "python3": python, "ipython": python,
		"bash": shell, "sh": shell, "shell": shell, "zsh": shell, "console": shell,
		"javascript": javascript, "js": javascript, "typescript": javascript, "ts": javascript, "jsx": javascript, "tsx": javascript,
		"go": golang, "golang": golang, "sql": sql, "json": object, "yaml": {[]string{"#"}, []string{`"`, "'"}, nil, "false null true", false},
		"c": c, "cpp": c, "c++": c, "java": c, "rust": c, "rs": c, "cs": c, "csharp": c,
	}
)

// The colours of code, which the terminal's theme chooses.
const (
	wordColour    = "\x1b[35m"
	stringColour  = "\x1b[32m"
	numberColour  = "\x1b[36m"
	commentColour = "\x1b[90m"
)

// A highlighter colours a block of code line by line, as it comes. It knows key
// words, strings, numbers and comments, which is what makes code easy to read; of
// what it does not know it shows the text as it is.
type highlighter struct {
	language
	words map[string]bool
	open  string // the quotes of a string that goes on from the line before
}

// newHighlighter makes one for a language by the name that follows the fence, or nil
// for one that it does not know.
func newHighlighter(name string) *highlighter {
	l, ok := languages[strings.ToLower(strings.TrimSpace(name))]
	if !ok {
		return nil
	}
	words := maps.Collect(func(yield func(string, bool) bool) {
		for _, w := range strings.Fields(l.words) {
			if !yield(w, true) {
				return
			}
		}
	})
	return &highlighter{language: l, words: words}
}

// line colours one line, which has no line break in it.
func (h *highlighter) line(text string) string {
	var b strings.Builder
	colour := func(code, s string) { b.WriteString(code + s + noColour) }
	for text != "" {
		if h.open != "" {
			n, closed := stringEnd(text, h.open)
			colour(stringColour, text[:n])
			if text = text[n:]; closed {
				h.open = ""
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		starts := func(s string) bool { return strings.HasPrefix(text, s) }
		if slices.ContainsFunc(h.comments, starts) {
			colour(commentColour, text)
			break
		}
		if i := slices.IndexFunc(h.quotes, starts); i >= 0 {
			quote := h.quotes[i]
			n, closed := stringEnd(text[len(quote):], quote)
			n += len(quote)
			colour(stringColour, text[:n])
			if text = text[n:]; !closed && slices.Contains(h.long, quote) {
				h.open = quote
			}
			continue
		}
		switch {
		case unicode.IsDigit(r):
			n := spanOf(text, func(r rune) bool { return isWord(r) || r == '.' || r == '_' })
			colour(numberColour, text[:n])
			text = text[n:]
		case isWord(r) || r == '_':
			n := spanOf(text, func(r rune) bool { return isWord(r) || r == '_' })
			word := text[:n]
			if h.fold {
				word = strings.ToLower(word)
			}
			if h.words[word] {
				colour(wordColour, text[:n])
			} else {
				b.WriteString(text[:n])
			}
			text = text[n:]
		default:
			b.WriteString(text[:size])
			text = text[size:]
		}
	}
	return b.String()
}

// stringEnd is where the text of a string ends, with its quotes, if they are there.
func stringEnd(text, quote string) (n int, closed bool) {
	for n < len(text) {
		switch {
		case strings.HasPrefix(text[n:], quote):
			return n + len(quote), true
		case text[n] == '\\' && n+1 < len(text) && quote != "`":
			n++
		}
		_, size := utf8.DecodeRuneInString(text[n:])
		n += size
	}
	return n, false
}

// spanOf is how many bytes text begins with whose runes are in.
func spanOf(text string, in func(rune) bool) int {
	if n := strings.IndexFunc(text, func(r rune) bool { return !in(r) }); n >= 0 {
		return n
	}
	return len(text)
}
