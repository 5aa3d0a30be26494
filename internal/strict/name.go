package strict

import (
	"reflect"
	"strconv"
	"strings"
)

// namer gives definitions names that need no escape and are unique.
type namer map[string]bool

func (n namer) name(base string) string {
	name := base
	for i := 2; n[name]; i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	n[name] = true
	return name
}

// defName returns a name for the definition of t: that of the type, with the
// packages taken out of its type arguments, as in Pair_Order_int.
func defName(t reflect.Type) string {
	return cleanName(t.Name())
}

// cleanName turns the name of a type into one of letters, digits and '_'.
func cleanName(s string) string {
	var words []string
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune("[], *{}();", r) }) {
		word = word[strings.LastIndexByte(word, '/')+1:]
		word = word[strings.LastIndexByte(word, '.')+1:]
		word, _, _ = strings.Cut(word, "·") // types local to functions are numbered
		word = strings.Map(func(r rune) rune {
			if r < 0x80 && (isAlnum(byte(r)) || r == '_' || r == '-') {
				return r
			}
			return '_'
		}, word)
		if word != "" {
			words = append(words, word)
		}
	}
	name := strings.Join(words, "_")
	if len(name) > 64 {
		name = name[:64]
	}
	if strings.Trim(name, "_") == "" {
		name = "Type"
	}
	return name
}
