package strict

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// compilePattern compiles a pattern that means the same to OpenAI, which uses
// Python's re, and to the regexp package, which tests the arguments. It
// refuses what only one of the two knows.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if err := portable(pattern); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re, nil
}

// portable finds constructs that package regexp accepts and Python does not,
// and names the ones that neither can use here.
func portable(p string) error {
	class := false // inside [...]
	for i := 0; i < len(p); i++ {
		rest := p[i:]
		switch {
		case p[i] == '\\':
			if i+1 == len(p) {
				return nil // regexp.Compile refuses it
			}
			switch c := p[i+1]; c {
			case 'p', 'P', 'z', 'Q', 'E', 'C':
				return fmt.Errorf(`\%c is unknown to Python`, c)
			case 'x':
				if strings.HasPrefix(p[i+2:], "{") {
					return errors.New(`\x{...} is unknown to Python`)
				}
			}
			i++
		case class:
			switch {
			case strings.HasPrefix(rest, "[:"):
				return errors.New("[:name:] classes are unknown to Python")
			case p[i] == ']':
				class = false
			}
		case p[i] == '[':
			class = true
			if strings.HasPrefix(rest, "[^") {
				i++
			}
			if i+1 < len(p) && p[i+1] == ']' { // a literal ] in first place
				i++
			}
		case strings.HasPrefix(rest, "{,"):
			return errors.New("{,n} means different things to different engines, write {0,n}")
		case strings.HasPrefix(rest, "(?="), strings.HasPrefix(rest, "(?!"), strings.HasPrefix(rest, "(?<="), strings.HasPrefix(rest, "(?<!"):
			return errors.New("look-around is not supported")
		case strings.HasPrefix(rest, "(?<"):
			return errors.New("(?<name>...) is unknown to Python, write (?P<name>...)")
		case strings.HasPrefix(rest, "(?P<"):
			if c := strings.TrimPrefix(rest, "(?P<"); c != "" && '0' <= c[0] && c[0] <= '9' {
				return errors.New("a group name must not begin with a digit")
			}
		case strings.HasPrefix(rest, "(?"):
			end := strings.IndexAny(rest, "):")
			if end < 0 {
				return nil // regexp.Compile refuses it
			}
			flags, whole := rest[2:end], rest[end] == ')'
			switch {
			case strings.Contains(flags, "U"):
				return errors.New("the flag U is unknown to Python")
			case whole && i > 0:
				return errors.New("flags must stand in front of the pattern")
			case whole && strings.Contains(flags, "-"):
				return errors.New("a flag cannot be switched off for the whole pattern")
			}
		}
	}
	return nil
}
