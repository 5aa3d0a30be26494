package strict

import "bytes"

// CheckObject reports why arguments are not one JSON object, as an
// [*ArgumentError]. It is all that can be asked of arguments whose schema is not
// strict. Empty arguments count as {}.
func CheckObject(arguments []byte) error {
	data := bytes.Trim(arguments, " \t\r\n")
	if len(data) == 0 {
		return nil
	}
	if f := syntax(data); f != nil {
		return syntaxError(data, f)
	}
	if data[0] != '{' {
		return notObject(data)
	}
	return nil
}
