package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const scrubbed = "SCRUBBED"

// A Scrubber takes secrets out of texts. The zero value knows none.
type Scrubber struct{ known *strings.Replacer }

// NewScrubber makes a Scrubber of the secrets that are known, in every spelling
// that a body or an error may have them in.
func NewScrubber(secrets []string) Scrubber {
	var spellings []string
	for _, s := range secrets {
		if isWordlike(s) {
			continue
		}
		spellings = append(spellings, s, url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(s, "/", `\/`))
		spellings = append(spellings, inJSON(s)...)
	}
	slices.SortFunc(spellings, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, s := range slices.Compact(spellings) {
		pairs = append(pairs, s, scrubbed)
	}
	return Scrubber{strings.NewReplacer(pairs...)}
}

// inJSON gives what becomes of s within a JSON string, and within the string of
// a document that is a string itself, such as a call's arguments.
func inJSON(s string) []string {
	plain, htmlSafe := s, s
	var spellings []string
	for range 2 {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(plain) // a string cannot fail
		plain = strings.TrimSuffix(strings.TrimPrefix(buf.String(), `"`), "\"\n")
		quoted, _ := json.Marshal(htmlSafe)
		htmlSafe = string(quoted[1 : len(quoted)-1])
		spellings = append(spellings, plain, htmlSafe)
	}
	return spellings
}

// isWordlike reports whether s may well stand in a text without being the
// secret that it is: the key of a stand-in is often "test" or "none".
func isWordlike(s string) bool {
	const short = 8
	return len(s) < 4 || len(s) < short && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// idPatterns are what OpenAI's keys, organisations, projects and requests look
// like; an error of the API may name one that is not in the environment.
var idPatterns = regexp.MustCompile(`\b(?:sk-[A-Za-z0-9_*-]{16,}|org-[A-Za-z0-9]{16,}|proj_[A-Za-z0-9]{16,}|req_[0-9a-f]{16,})`)

// Hide gives text without the secrets that are known.
func (s Scrubber) Hide(text string) string {
	if s.known == nil {
		return text
	}
	return s.known.Replace(text)
}

// clean gives text without them and without what looks like one, for a file
// that others may read.
func (s Scrubber) clean(text string) string {
	return idPatterns.ReplaceAllString(s.Hide(text), scrubbed)
}
