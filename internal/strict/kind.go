package strict

import "strings"

// kinds is a set of JSON types. The type of a JSON value is a set of one.
type kinds uint8

const (
	object kinds = 1 << iota
	array
	text
	number
	integer // only in schemas; an integral value is a number
	boolean
	null

	scalar = text | number | integer | boolean
)

// kindNames are the names of the JSON types in the order of their bits.
var kindNames = [...]string{"object", "array", "string", "number", "integer", "boolean", "null"}

// kindNamed returns the JSON type called name, or zero.
func kindNamed(name string) kinds {
	for i, s := range kindNames {
		if s == name {
			return 1 << i
		}
	}
	return 0
}

// String returns the names in k, such as "string or null".
func (k kinds) String() string {
	var names []string
	for i, s := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, s)
		}
	}
	return strings.Join(names, " or ")
}

// kindAt returns the type of the JSON value that begins with c.
func kindAt(c byte) kinds {
	switch c {
	case '{':
		return object
	case '[':
		return array
	case '"':
		return text
	case 't', 'f':
		return boolean
	case 'n':
		return null
	}
	return number
}
