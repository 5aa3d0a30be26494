package responsestest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// A refusal is an error answer of the service.
type refusal struct {
	Status int
	Header http.Header
	Body   errorBody
}

// errorBody is the error object of the service; all four keys are always present.
type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *refusal) json() []byte {
	b, err := json.Marshal(map[string]errorBody{"error": e.Body})
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}

// optional returns nil for the empty string: the service writes null, never "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// invalid returns a 400. An empty code or param is null on the wire.
func invalid(code, param, format string, args ...any) *refusal {
	return &refusal{Status: http.StatusBadRequest, Body: errorBody{
		Message: fmt.Sprintf(format, args...),
		Type:    "invalid_request_error",
		Param:   optional(param),
		Code:    optional(code),
	}}
}

func notFound(format string, args ...any) *refusal {
	e := invalid("", "", format, args...)
	e.Status = http.StatusNotFound
	return e
}

func unknownParameter(path string) *refusal {
	return invalid("unknown_parameter", path, "Unknown parameter: '%s'.", path)
}

func missingParameter(path string) *refusal {
	return invalid("missing_required_parameter", path, "Missing required parameter: '%s'.", path)
}

func wrongType(path, want string, got json.RawMessage) *refusal {
	return invalid("invalid_type", path, "Invalid type for '%s': expected %s, but got %s instead.",
		path, want, kindOf(got).article())
}

func wrongValue(path, got string, supported []string) *refusal {
	return invalid("invalid_value", path, "Invalid value: '%s'. Supported values are: %s.", got, quotedList(supported))
}

func belowMinimum(path string, least, got int64) *refusal {
	return invalid("integer_below_min_value", path,
		"Invalid '%s': integer below minimum value. Expected a value >= %d, but got %d instead.", path, least, got)
}

func tooLong(path string, most, got int) *refusal {
	return invalid("string_above_max_length", path,
		"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
		path, most, got)
}

func emptyString(path string) *refusal {
	return invalid("empty_string", path,
		"Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", path)
}

func arrayTooLong(path string, most, got int) *refusal {
	return invalid("array_above_max_length", path,
		"Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.",
		path, most, got)
}

// quotedList writes 'a', 'a' and 'b', or 'a', 'b', and 'c'.
func quotedList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + v + "'"
	}
	switch n := len(quoted); n {
	case 0, 1:
		return strings.Join(quoted, "")
	case 2:
		return quoted[0] + " and " + quoted[1]
	default:
		return strings.Join(quoted[:n-1], ", ") + ", and " + quoted[n-1]
	}
}
