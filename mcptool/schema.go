package mcptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fnloop/fnloop"
)

// maxDescribed bounds a tool's description and schema together, in bytes: they are
// sent with each request.
const maxDescribed = 256 << 10

// rootKeywords are those that the API refuses at the root of a schema, strict or
// not. One such tool would have it refuse the request.
var rootKeywords = []string{"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$dynamicRef"}

// parameters makes a tool's parameters of the server's schema, which is sent as it
// came but for what the API wants in each: a type, and properties. It reports
// whether the schema is a strict one.
func parameters(schema json.RawMessage) (params json.RawMessage, strict bool, err error) {
	schema = bytes.TrimSpace(schema)
	if len(schema) == 0 || string(schema) == "null" {
		schema = []byte("{}")
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(schema, &root) != nil {
		return nil, false, errors.New("its schema is not a JSON object")
	}
	for _, keyword := range rootKeywords {
		if root[keyword] != nil {
			return nil, false, fmt.Errorf("its schema has %s at the root, which the API takes for no tool", keyword)
		}
	}
	params = bytes.Clone(schema)
	var typ string
	if root["type"] == nil {
		params = addMember(params, len(root) == 0, `"type":"object"`)
	} else if json.Unmarshal(root["type"], &typ) != nil || typ != "object" {
		return nil, false, fmt.Errorf("its schema is one of type %.100s and not of an object", root["type"])
	}
	if properties := root["properties"]; properties == nil {
		params = addMember(params, false, `"properties":{}`)
	} else if properties[0] != '{' {
		return nil, false, errors.New("the properties of its schema are not an object")
	}
	return params, fnloop.CheckStrict(params) == nil, nil
}

// addMember adds a member to the end of an object.
func addMember(object []byte, empty bool, member string) []byte {
	out := bytes.TrimSuffix(object, []byte("}"))
	if !empty {
		out = append(out, ',')
	}
	return append(append(out, member...), '}')
}
