package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/fnloop/fnloop"
)

// writeAnswer prints the answer: its text if the model answered, or all of it as
// JSON.
func writeAnswer(w io.Writer, answer *fnloop.Answer, failure string, asJSON bool) error {
	if asJSON {
		run := *answer
		run.Items = nil // they are the whole conversation's, and in the session's file
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(struct {
			*fnloop.Answer
			Error string `json:"error,omitempty"`
		}{&run, failure})
	}
	if answer.Stop != fnloop.StopAnswered {
		return nil
	}
	text := strings.TrimSuffix(answer.Text, "\n")
	if isTerminal(w) {
		text = printable(text)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printable gives s with every character that a terminal would obey, or that
// would change the order in which others are read, as an escape sequence of Go.
func printable(s string) string {
	if !strings.ContainsFunc(s, commands) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		if commands(r) {
			quoted := fmt.Sprintf("%+q", r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// commands reports whether r does something to a terminal.
func commands(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}
