package fnloop

import (
	"fmt"
	"slices"
	"strings"
)

// The languages of the runners of this module, as [Program.Language] names them.
const (
	LanguagePython     = "python"
	LanguageBash       = "bash"
	LanguageJavaScript = "javascript"
	LanguageTypeScript = "typescript"
	LanguageR          = "r"
	LanguageJava       = "java"
	LanguageGo         = "go"
)

// A Language is one that a runner runs programs of.
type Language struct {
	// Name is what [Program.Language] calls it, such as [LanguageBash].
	Name string
	// Version is that of what runs it, such as "5.2.15" or "Node.js 20.20.2".
	// Empty means that it is not known.
	Version string
}

// CheckFor is [Program.Check] for a runner that has these languages. None means
// Python alone.
func (p Program) CheckFor(languages []Language) error {
	name := p.Language
	if name == "" {
		name = LanguagePython
	}
	if len(languages) == 0 {
		languages = []Language{{Name: LanguagePython}}
	}
	if !slices.ContainsFunc(languages, func(l Language) bool { return l.Name == name }) {
		return &ProgramError{Field: "language", Reason: fmt.Sprintf("%.40q is not there; this runner has %s", name, languageNames(languages))}
	}
	return p.checkText()
}

func languageNames(languages []Language) string {
	var names []string
	for _, l := range languages {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}
