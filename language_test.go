package fnloop_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fnloop/fnloop"
)

func TestProgramLanguage(t *testing.T) {
	some := []fnloop.Language{{Name: fnloop.LanguagePython}, {Name: fnloop.LanguageBash}}
	for _, test := range []struct {
		why       string
		language  string
		languages []fnloop.Language
		want      string
	}{
		{"empty is Python", "", nil, ""},
		{"Python is there where none are named", fnloop.LanguagePython, nil, ""},
		{"any of those that are there", fnloop.LanguageBash, some, ""},
		{"a runner that knows Python alone must not run another language as Python", fnloop.LanguageBash, nil,
			`program: language: "bash" is not there; this runner has python`},
		{"what is there is named", "ruby", some, `program: language: "ruby" is not there; this runner has python, bash`},
		{"names are in lower case", "Bash", some, `program: language: "Bash" is not there; this runner has python, bash`},
		{"a runner need not have Python", "", some[1:], `program: language: "python" is not there; this runner has bash`},
	} {
		err := fnloop.Program{Source: "x", Language: test.language}.CheckFor(test.languages)
		if test.want == "" {
			assert.NoError(t, err, test.why)
		} else {
			assert.EqualError(t, err, test.want, test.why)
		}
	}
	assert.ErrorContains(t, fnloop.Program{Language: fnloop.LanguageGo}.Check(), "this runner has python")
	assert.ErrorContains(t, fnloop.Program{Source: "a\x00", Language: fnloop.LanguageBash}.CheckFor(some), "source: NUL byte at offset 1")
}
