package responsestest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

// strictTool is a request with one strict tool of this schema.
func strictTool(schema string) string {
	return `{"model":"stub-1","input":"hi","tools":[{"type":"function","name":"f","strict":true,"parameters":` + schema + `}]}`
}

func closed(properties, required string) string {
	return `{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`
}

// nested is an object that holds the given number of objects, itself counted.
func nested(depth int) string {
	if depth == 1 {
		return closed("", "")
	}
	return closed(`"o":`+nested(depth-1), `"o"`)
}

func TestRefusedShapes(t *testing.T) {
	const invalidSchema = "Invalid schema for function 'f': "
	for _, test := range []struct {
		name, why           string
		body                string
		code, param, report string
	}{
		{"not JSON", "the body is parsed first", `{"model":`, "", "", "could not parse"},
		{"no model", "it is never inherited", `{"input":"hi"}`, "missing_required_parameter", "model", "Missing required parameter: 'model'."},
		{"null model", "the one member that may not be null", `{"model":null,"input":"hi"}`, "invalid_type", "model", "got null instead"},
		{"empty model", "", `{"model":"","input":"hi"}`, "model_not_found", "model", "The requested model '' does not exist."},
		{"unknown key", "", `{"model":"m","input":"hi","foo":1}`, "unknown_parameter", "foo", "Unknown parameter: 'foo'."},
		{"stream_id", "belongs to WebSocket mode", `{"model":"m","input":"hi","stream_id":"a"}`, "unknown_parameter", "stream_id", ""},
		{"generate", "belongs to WebSocket mode", `{"model":"m","input":"hi","generate":false}`, "unknown_parameter", "generate", ""},
		{"messages", "the Chat Completions shape", `{"model":"m","messages":[]}`, "", "", ""},
		{"include_usage", "a Chat Completions option", `{"model":"m","input":"hi","stream_options":{"include_usage":true}}`,
			"unknown_parameter", "stream_options.include_usage", ""},
		{"no input", "nothing to answer", `{"model":"m"}`, "missing_required_parameter", "input", ""},
		{"wrong type", "", `{"model":"m","input":"hi","parallel_tool_calls":"yes"}`, "invalid_type", "parallel_tool_calls",
			"Invalid type for 'parallel_tool_calls': expected a boolean, but got a string instead."},
		{"wrong input", "", `{"model":"m","input":7}`, "invalid_type", "input", "but got an integer instead"},
		{"two values", "no serial comma", `{"model":"m","input":"hi","truncation":"x"}`, "invalid_value", "truncation",
			"Invalid value: 'x'. Supported values are: 'auto' and 'disabled'."},
		{"three values", "a serial comma", `{"model":"m","input":"hi","text":{"verbosity":"x"}}`, "invalid_value", "text.verbosity",
			"Supported values are: 'low', 'medium', and 'high'."},
		{"effort", "", `{"model":"m","input":"hi","reasoning":{"effort":"x"}}`, "invalid_value", "reasoning.effort", ""},
		{"include", "", `{"model":"m","input":"hi","include":["x"]}`, "invalid_value", "include[0]", ""},
		{"small cap", "16 is the least", `{"model":"m","input":"hi","max_output_tokens":15}`, "integer_below_min_value", "max_output_tokens",
			"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead."},
		{"no tool calls", "1 is the least", `{"model":"m","input":"hi","max_tool_calls":0}`, "integer_below_min_value", "max_tool_calls", ""},
		{"compaction", "", `{"model":"m","input":"hi","context_management":[{"type":"compaction","compact_threshold":1}]}`,
			"integer_below_min_value", "context_management[0].compact_threshold", "Expected a value >= 1000, but got 1 instead."},
		{"temperature", "", `{"model":"m","input":"hi","temperature":"hot"}`, "invalid_type", "temperature", ""},
		{"metadata", "", `{"model":"m","input":"hi","metadata":{"a":1}}`, "invalid_type", "metadata.a", ""},
		{"previous id", "", `{"model":"m","input":"hi","previous_response_id":"resp 1"}`, "invalid_value", "previous_response_id", "Expected an ID that contains"},
		{"two histories", "", `{"model":"m","input":"hi","previous_response_id":"resp_1","conversation":"conv_1"}`,
			"mutually_exclusive_parameters", "", "Mutually exclusive parameters"},
		{"background", "needs storage", `{"model":"m","input":"hi","background":true,"store":false}`, "invalid_value", "background", ""},

		{"item type", "", `{"model":"m","input":[{"type":"x"}]}`, "invalid_value", "input[0]", "'function_call_output'"},
		{"no call id", "the SDK's helper forgets it", `{"model":"m","input":[{"type":"function_call_output","output":"5"}]}`,
			"missing_required_parameter", "input[0].call_id", "Missing required parameter: 'input[0].call_id'."},
		{"no output", "an empty union is left out", `{"model":"m","input":[{"type":"function_call_output","call_id":"c"}]}`,
			"missing_required_parameter", "input[0].output", ""},
		{"no arguments", "", `{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f"}]}`,
			"missing_required_parameter", "input[0].arguments", "Missing required parameter: 'input[0].arguments'."},
		{"empty call id", "", `{"model":"m","input":[{"type":"function_call_output","call_id":"","output":"5"}]}`,
			"empty_string", "input[0].call_id", "Expected a string with minimum length 1"},
		{"long call id", "64 is the most", fmt.Sprintf(`{"model":"m","input":[{"type":"function_call_output","call_id":"%s","output":"5"}]}`, strings.Repeat("c", 65)),
			"string_above_max_length", "input[0].call_id", "maximum length 64, but got a string with length 65 instead"},
		{"long output", "", fmt.Sprintf(`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"%s"}]}`, strings.Repeat("x", 10_485_761)),
			"string_above_max_length", "input[0].output", "maximum length 10485760, but got a string with length 10485761 instead"},
		{"call id as id", "", `{"model":"m","input":[{"type":"function_call","id":"call_1","call_id":"call_1","name":"f","arguments":"{}"}]}`,
			"invalid_value", "input[0].id", "Invalid 'input[0].id': 'call_1'. Expected an ID that begins with 'fc'."},
		{"message id", "", `{"model":"m","input":[{"id":"x_1","role":"assistant","content":"hi"}]}`, "invalid_value", "input[0].id", "begins with 'msg'"},
		{"reasoning id", "", `{"model":"m","input":[{"type":"reasoning","id":"x_1","summary":[]}]}`, "invalid_value", "input[0].id", "begins with 'rs'"},
		{"custom id", "", `{"model":"m","input":[{"type":"custom_tool_call","id":"fc_1","call_id":"c","name":"f","input":""}]}`, "invalid_value", "input[0].id", "begins with 'ctc'"},
		{"no summary", "an empty one has to be sent", `{"model":"m","input":[{"type":"reasoning","id":"rs_1"}]}`, "missing_required_parameter", "input[0].summary", ""},
		{"created_by", "has to be taken off", `{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}","created_by":"x"}]}`,
			"unknown_parameter", "input[0].created_by", ""},
		{"is_error", "there is no such flag", `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"5","is_error":true}]}`,
			"unknown_parameter", "input[0].is_error", ""},
		{"phase of a user", "only the assistant has one", `{"model":"m","input":[{"role":"user","phase":"commentary","content":"hi"}]}`,
			"unknown_parameter", "input[0].phase", ""},
		{"role", "", `{"model":"m","input":[{"role":"tool","content":"hi"}]}`, "invalid_value", "input[0].role", ""},
		{"part type", "the Chat Completions shape", `{"model":"m","input":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			"invalid_value", "input[0].content[0].type", ""},

		{"chat tool", "the name is not where it belongs", `{"model":"m","input":"hi","tools":[{"type":"function","function":{"name":"f"}}]}`,
			"missing_required_parameter", "tools[0].name", "Missing required parameter: 'tools[0].name'."},
		{"tool key", "", `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","foo":1}]}`, "unknown_parameter", "tools[0].foo", ""},
		{"tool type", "", `{"model":"m","input":"hi","tools":[{"type":"x"}]}`, "invalid_value", "tools[0].type", ""},
		{"tool name", "no dots", `{"model":"m","input":"hi",` + tools("a.b") + `}`, "invalid_value", "tools[0].name",
			"Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
		{"long tool name", "128 is the most", `{"model":"m","input":"hi",` + tools(strings.Repeat("f", 129)) + `}`, "string_above_max_length", "tools[0].name", "maximum length 128"},
		{"many tools", "128 is the most", `{"model":"m","input":"hi",` + tools(strings.Fields(strings.Repeat("f ", 129))...) + `}`, "array_above_max_length", "tools",
			"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."},
		{"tool choice", "", `{"model":"m","input":"hi",` + tools("f") + `,"tool_choice":{"type":"function","name":"g"}}`, "", "tool_choice",
			"Tool choice 'g' not found in 'tools' parameter."},
		{"hosted choice", "", `{"model":"m","input":"hi",` + tools("f") + `,"tool_choice":{"type":"web_search"}}`, "", "tool_choice",
			"Tool choice 'web_search' not found in 'tools' parameter."},
		{"allowed tools", "", `{"model":"m","input":"hi",` + tools("f") + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}}`, "", "tool_choice",
			"Tool choice 'g' not found in 'tools' parameter."},
		{"choice value", "", `{"model":"m","input":"hi",` + tools("f") + `,"tool_choice":"any"}`, "invalid_value", "tool_choice", "'none', 'auto', and 'required'"},

		{"no parameters", "a strict tool has some", `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","strict":true}]}`,
			"invalid_function_parameters", "tools[0].parameters", invalidSchema + `schema must be a JSON Schema of 'type: "object"', got 'type: "None"'.`},
		{"root type", "", strictTool(`{"type":"string"}`), "invalid_function_parameters", "tools[0].parameters", `got 'type: "string"'.`},
		{"open object", "", strictTool(`{"type":"object","properties":{},"required":[]}`), "invalid_function_parameters", "tools[0].parameters",
			invalidSchema + "In context=(), 'additionalProperties' is required to be supplied and to be false."},
		{"open inner object", "", strictTool(closed(`"a":{"type":"object","properties":{},"required":[]}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), 'additionalProperties' is required to be supplied and to be false."},
		{"optional property", "", strictTool(closed(`"a":{"type":"string"},"b":{"type":"string"}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=(), 'required' is required to be supplied and to be an array including every key in properties. Missing 'b'."},
		{"extra required", "", strictTool(closed(`"a":{"type":"string"}`, `"a","b"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=(), 'required' must be an array that includes every key in `properties`. Extra required key 'b' supplied."},
		{"twice required", "", strictTool(closed(`"a":{"type":"string"}`, `"a","a"`)), "invalid_function_parameters", "tools[0].parameters", "['a','a'] has non-unique elements."},
		{"no properties", "", strictTool(`{"type":"object","additionalProperties":false}`), "invalid_function_parameters", "tools[0].parameters",
			"In context=(), object schema missing properties."},
		{"no type", "", strictTool(closed(`"a":{}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), schema must have a 'type' key."},
		{"any value", "", strictTool(closed(`"a":true`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), schema must have a 'type' key."},
		{"no items", "", strictTool(closed(`"a":{"type":"array"}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), array schema missing items."},
		{"nullable array", "each type of a list is judged alone", strictTool(closed(`"a":{"type":["array","null"],"items":{"type":"string"}}`, `"a"`)),
			"invalid_function_parameters", "tools[0].parameters", "In context=('properties', 'a', 'type', '0'), array schema missing items."},
		{"items", "", strictTool(closed(`"a":{"type":"array","items":{"type":"object"}}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a', 'items'), 'additionalProperties'"},
		{"oneOf", "", strictTool(closed(`"a":{"oneOf":[{"type":"string"}]}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), 'oneOf' is not permitted."},
		{"branch", "", strictTool(closed(`"a":{"anyOf":[{"type":"string"},{"type":"object"}]}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a', 'anyOf', '1'), 'additionalProperties'"},
		{"definition", "", strictTool(`{"type":"object","properties":{},"required":[],"additionalProperties":false,"$defs":{"x":{"type":"object"}}}`),
			"invalid_function_parameters", "tools[0].parameters", "In context=('$defs', 'x'), 'additionalProperties'"},
		{"ref with company", "", strictTool(closed(`"a":{"$ref":"#","description":"x"}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters",
			"In context=('properties', 'a'), $ref cannot have keywords {'description'}."},
		{"format", "few are known", strictTool(closed(`"a":{"type":"string","format":"uri"}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters", "'uri' is not a valid format."},
		{"look-around", "", strictTool(closed(`"a":{"type":"string","pattern":"(?!x)"}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters", "look-around"},
		{"far reference", "", strictTool(closed(`"a":{"$ref":"#/properties/b"},"b":{"type":"string"}`, `"a","b"`)), "invalid_function_parameters", "tools[0].parameters", "'#/properties/b'"},
		{"enum of another type", "", strictTool(closed(`"a":{"type":"integer","enum":[1,1.5]}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters", "enum value 1.5"},
		{"const of another type", "", strictTool(closed(`"a":{"type":"string","const":1}`, `"a"`)), "invalid_function_parameters", "tools[0].parameters", "enum value 1 "},
		{"eleven objects", "ten may hold each other", strictTool(nested(11)), "invalid_function_parameters", "tools[0].parameters", "nesting"},
		{"inner tool", "", `{"model":"m","input":"hi","tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","strict":true}]}]}`,
			"invalid_function_parameters", "tools[0].tools[0].parameters", ""},
		{"loaded tool", "", `{"model":"m","input":[{"type":"tool_search_output","call_id":"c","execution":"client","tools":[{"type":"function","name":"f","strict":true}]}]}`,
			"invalid_function_parameters", "input[0].tools[0].parameters", ""},
		{"response format", "", `{"model":"m","input":"hi","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{},"required":[]}}}}`,
			"invalid_json_schema", "text.format.schema", "In context=(), 'additionalProperties' is required to be supplied and to be false."},

		{"schema before lookup", "a bad tool hides a dead id", `{"model":"m","input":"hi","previous_response_id":"resp_x","tools":[{"type":"function"}]}`,
			"missing_required_parameter", "tools[0].name", ""},
		{"dead id", "", `{"model":"m","input":"hi","previous_response_id":"resp_x"}`, "previous_response_not_found", "previous_response_id",
			"Previous response with id 'resp_x' not found."},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, responsestest.Text("never said"))
			status, e := refused(t, srv, test.body)
			require.Equal(t, http.StatusBadRequest, status, test.why)
			require.Equal(t, "invalid_request_error", e["type"], test.why)
			if test.name != "messages" {
				require.Equal(t, orNil(test.code), e["code"], test.why)
				require.Equal(t, orNil(test.param), e["param"], test.why)
			} else {
				require.Equal(t, "unsupported_parameter", e["code"])
			}
			require.Contains(t, e["message"], test.report, test.why)
			require.ErrorContains(t, srv.Err(), "1 of 1 replies", "a refused request takes no reply")
			requests := srv.Requests()
			require.Len(t, requests, 1)
			require.Equal(t, http.StatusBadRequest, requests[0].Status)
			require.Empty(t, requests[0].ResponseID)
		})
	}
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func TestAcceptedShapes(t *testing.T) {
	for _, test := range []struct{ name, why, body string }{
		{"nulls", "null is omitted", `{"model":"m","input":"hi","tools":null,"tool_choice":null,"previous_response_id":null,"conversation":null,"metadata":null,"max_output_tokens":null}`},
		{"least cap", "", `{"model":"m","input":"hi","max_output_tokens":16}`},
		{"no tools", "an empty array is sent by some clients", `{"model":"m","input":"hi","tools":[],"parallel_tool_calls":true}`},
		{"lax tool", "strict: false opts out", `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","strict":false,"parameters":{"type":"object"}}]}`},
		{"name of 128", "", `{"model":"m","input":"hi",` + tools(strings.Repeat("f", 128)) + `}`},
		{"128 tools", "", `{"model":"m","input":"hi",` + tools(strings.Fields(strings.Repeat("f ", 128))...) + `}`},
		{"ten objects", "", strictTool(nested(10))},
		{"recursion", "", strictTool(closed(`"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}`, `"a"`))},
		{"nullable scalar", "", strictTool(closed(`"a":{"type":["string","null"],"enum":["x",null]}`, `"a"`))},
		{"own call ids", "clients make up calls", `{"model":"m","input":[{"role":"user","content":"hi"},{"type":"function_call","call_id":"1","name":"f","arguments":"[]"},{"type":"function_call_output","call_id":"1","output":""}]}`},
		{"short message", "no type", `{"model":"m","input":[{"role":"assistant","content":"hi"},{"role":"developer","content":[{"type":"input_text","text":"x"}]}]}`},
		{"parts", "", `{"model":"m","input":[{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"https://example.com/a.png"}]}]}`},
		{"include", "no longer needed, still taken", `{"model":"m","input":"hi","include":["reasoning.encrypted_content"]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, responsestest.Text("hello"))
			status, d := do(t, srv, "POST", "/responses", test.body)
			require.Equal(t, http.StatusOK, status, "%s: %v", test.why, d["error"])
			require.NoError(t, srv.Err())
		})
	}
}

func TestKey(t *testing.T) {
	for _, test := range []struct{ name, header, code, report string }{
		{"wrong", "Bearer sk-abcdefghijkl", "invalid_api_key", "Incorrect API key provided: sk-a*******ijkl."},
		{"missing", "", "", "You didn't provide an API key."},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t)
			for _, path := range []string{"/responses", "/conversations", "/nothing"} {
				status, d := do(t, srv, "POST", path, `{"model":"m","input":"hi"}`, "Authorization", test.header)
				require.Equal(t, http.StatusUnauthorized, status)
				require.Equal(t, orNil(test.code), d.at("error", "code"))
				require.Contains(t, d.at("error", "message"), test.report)
			}
		})
	}
}

func TestUnknownURL(t *testing.T) {
	srv := serve(t)
	status, d := do(t, srv, "POST", "/chat/completions", `{}`)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "Invalid URL (POST /v1/chat/completions)", d.at("error", "message"))
}
