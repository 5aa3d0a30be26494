package main

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const scrubbed = "SCRUBBED"

// A scrubber takes secrets out of texts.
type scrubber struct{ known *strings.Replacer }

// newScrubber makes a scrubber of the secrets that are known, in every spelling
// that a body or an error may have them in.
func newScrubber(secrets []string) scrubber {
	var spellings []string
	for _, s := range secrets {
		if isWordlike(s) {
			continue
		}
		spellings = append(spellings, s, url.QueryEscape(s), url.PathEscape(s), strings.ReplaceAll(s, "/", `\/`))
		for range 2 { // JSON, and the JSON within its strings
			quoted, _ := json.Marshal(s)
			s = string(quoted[1 : len(quoted)-1])
			spellings = append(spellings, s)
		}
	}
	slices.SortFunc(spellings, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, s := range slices.Compact(spellings) {
		pairs = append(pairs, s, scrubbed)
	}
	return scrubber{strings.NewReplacer(pairs...)}
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

// clean gives text without secrets.
func (s scrubber) clean(text string) string {
	if s.known != nil {
		text = s.known.Replace(text)
	}
	return idPatterns.ReplaceAllString(text, scrubbed)
}
