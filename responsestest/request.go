package responsestest

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A request is the body of a create call, checked as far as that can be done without looking anything up.
type request struct {
	fields object
	model  string
	input  []*item
	tools  *toolset
	choice toolChoice

	previous     string // previous_response_id
	conversation string
	parallel     bool
	store        bool
	stream       bool
	background   bool
	obfuscate    bool

	lane    *lane // if the request came on a WebSocket
	prepare bool  // its generate is false
}

// A field is a member of the request's body that the service knows.
type field struct {
	name  string
	check func(path string, v json.RawMessage) *refusal
}

// fields are the known members of a create call, in the order in which the service reports their defects
// as far as that has been measured.
var fields = []field{
	{"input", nil}, // read by parseInput
	{"previous_response_id", anID},
	{"prompt", anObject},
	{"moderation", anObject},
	{"include", anInclude},
	{"tools", nil},       // read by parseTools
	{"tool_choice", nil}, // read by parseToolChoice
	{"metadata", aMetadata},
	{"text", aText},
	{"temperature", aNumber(0, 2)},
	{"top_p", aNumber(0, 1)},
	{"top_logprobs", anInteger(0)},
	{"parallel_tool_calls", aBool},
	{"stream", aBool},
	{"stream_options", aStreamOptions},
	{"conversation", aConversation},
	{"model", nil}, // read first
	{"max_output_tokens", anInteger(16)},
	{"max_tool_calls", anInteger(1)},
	{"reasoning", aReasoning},
	{"background", aBool},
	{"truncation", oneOf("auto", "disabled")},
	{"instructions", aString},
	{"store", aBool},
	{"service_tier", oneOf("auto", "default", "flex", "scale", "priority", "fast")},
	{"context_management", aContextManagement},
	{"prompt_cache_key", aString},
	{"prompt_cache_options", anObject},
	{"prompt_cache_retention", aString},
	{"safety_identifier", aString},
	{"user", aString},
	{"access_programs", nil},
	{"image", anObject},
}

var knownFields = func() map[string]bool {
	known := make(map[string]bool, len(fields))
	for _, f := range fields {
		known[f.name] = true
	}
	return known
}()

// parseRequest reads the body of a create call and refuses what is wrong with its shape.
func (s *Server) parseRequest(body []byte) (*request, *refusal) {
	all, bad := parseBody(body)
	if bad != nil {
		return nil, bad
	}
	return s.checkRequest(all)
}

func parseBody(body []byte) (object, *refusal) {
	var all object
	if err := json.Unmarshal(body, &all); err != nil || all == nil {
		// The wording is invented; the service is known to say that it could not parse the body.
		return nil, invalid("", "", "We could not parse the JSON body of your request. The API expects a JSON payload.")
	}
	return all, nil
}

func (s *Server) checkRequest(all object) (*request, *refusal) {
	model, ok := all["model"]
	switch {
	case !ok:
		return nil, missingParameter("model")
	case kindOf(model) != kindString: // the one member that may not be null
		return nil, wrongType("model", "a string", model)
	}
	for name, v := range all {
		if kindOf(v) == kindNull {
			delete(all, name)
		}
	}
	req := &request{fields: all, model: all.str("model"), parallel: true, store: true, obfuscate: true}
	if req.model == "" {
		return nil, invalid("model_not_found", "model", "The requested model '' does not exist.")
	}

	for _, f := range fields {
		var bad *refusal
		switch v, given := all[f.name]; {
		case !given:
		case f.name == "input":
			req.input, bad = s.parseInput(v)
		case f.name == "tools":
			req.tools, bad = s.tools.parse(v)
		case f.name == "tool_choice":
			req.choice, bad = parseToolChoice(v)
		case f.check != nil:
			bad = f.check(f.name, v)
		}
		if bad != nil {
			return nil, bad
		}
	}
	if bad := all.unknown("", knownFields); bad != nil {
		return nil, bad
	}
	if req.tools == nil {
		req.tools = new(toolset)
	}
	if bad := req.choice.check(req); bad != nil {
		return nil, bad
	}

	req.previous = all.str("previous_response_id")
	req.conversation = all.str("conversation")
	if c, err := decodeObject(all["conversation"]); err == nil && c.has("id") {
		req.conversation = c.str("id")
	}
	if v, given := all["parallel_tool_calls"]; given {
		req.parallel = string(v) == "true"
	}
	if v, given := all["store"]; given {
		req.store = string(v) == "true"
	}
	req.stream = all.boolean("stream")
	req.background = all.boolean("background")
	if v, given := all["stream_options"]; given {
		o, _ := decodeObject(v)
		req.obfuscate = !o.has("include_obfuscation") || o.boolean("include_obfuscation")
	}
	switch {
	case !all.has("input") && !all.has("prompt") && req.previous == "" && req.conversation == "":
		// The text is from memory of the service, not from a recording.
		return nil, invalid("missing_required_parameter", "input",
			"One of 'input', 'previous_response_id', 'prompt' or 'conversation' must be provided.")
	case req.conversation != "" && req.previous != "":
		return nil, invalid("mutually_exclusive_parameters", "",
			"Mutually exclusive parameters: ''. Ensure you are only providing one of: 'pre..._id' or 'conversation'.")
	case req.background && !req.store:
		// That this is refused is documented; the text and the code are invented.
		return nil, invalid("invalid_value", "background", "Background responses require 'store' to be true.")
	}
	return req, nil
}

// unknown refuses the first member, in the order of names, that is not known.
func (o object) unknown(path string, known map[string]bool) *refusal {
	first := ""
	for name := range o {
		if !known[name] && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return nil
	}
	if path == "" && first == "messages" {
		return invalid("unsupported_parameter", "",
			"Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.")
	}
	return unknownParameter(join(path, first))
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func aString(path string, v json.RawMessage) *refusal {
	if kindOf(v) != kindString {
		return wrongType(path, "a string", v)
	}
	return nil
}

func aBool(path string, v json.RawMessage) *refusal {
	if kindOf(v) != kindBool {
		return wrongType(path, "a boolean", v)
	}
	return nil
}

func anObject(path string, v json.RawMessage) *refusal {
	if kindOf(v) != kindObject {
		return wrongType(path, "an object", v)
	}
	return nil
}

func anInteger(least int64) func(string, json.RawMessage) *refusal {
	return func(path string, v json.RawMessage) *refusal {
		n := number(v)
		switch k := kindOf(v); {
		case k != kindInteger && (k != kindDecimal || n != float64(int64(n))):
			return wrongType(path, "an integer", v)
		case int64(n) < least:
			return belowMinimum(path, least, int64(n))
		}
		return nil
	}
}

func aNumber(least, most float64) func(string, json.RawMessage) *refusal {
	return func(path string, v json.RawMessage) *refusal {
		switch k := kindOf(v); {
		case k != kindInteger && k != kindDecimal:
			return wrongType(path, "a decimal", v)
		case number(v) < least:
			return invalid("decimal_below_min_value", path,
				"Invalid '%s': decimal below minimum value. Expected a value >= %g, but got %s instead.", path, least, v)
		case number(v) > most:
			return invalid("decimal_above_max_value", path,
				"Invalid '%s': decimal above maximum value. Expected a value <= %g, but got %s instead.", path, most, v)
		}
		return nil
	}
}

func oneOf(values ...string) func(string, json.RawMessage) *refusal {
	return func(path string, v json.RawMessage) *refusal {
		if bad := aString(path, v); bad != nil {
			return bad
		}
		var s string
		_ = json.Unmarshal(v, &s)
		if !slices.Contains(values, s) {
			return wrongValue(path, s, values)
		}
		return nil
	}
}

var idChars = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func anID(path string, v json.RawMessage) *refusal {
	if bad := aString(path, v); bad != nil {
		return bad
	}
	var s string
	_ = json.Unmarshal(v, &s)
	if s == "" {
		return emptyString(path) // invented: what the service says to an empty id is not known
	}
	if !idChars.MatchString(s) {
		return invalid("invalid_value", path, "Invalid '%s': '%s'. Expected an ID that contains letters, numbers, "+
			"underscores, or dashes, but this value contained additional characters.", path, s)
	}
	return nil
}

var includes = []string{
	"file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
	"message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
	"reasoning.encrypted_content", "message.output_text.logprobs",
}

func anInclude(path string, v json.RawMessage) *refusal {
	if kindOf(v) != kindArray {
		return wrongType(path, "an array of strings", v)
	}
	for i, e := range elements(v) {
		if bad := oneOf(includes...)(indexed(path, i), e); bad != nil {
			return bad
		}
	}
	return nil
}

func aMetadata(path string, v json.RawMessage) *refusal {
	if bad := anObject(path, v); bad != nil {
		return bad
	}
	o, _ := decodeObject(v)
	if len(o) > 16 {
		return invalid("object_above_max_properties", path, "Invalid '%s': too many properties. "+
			"Expected an object with at most 16 properties, but got an object with %d properties instead.", path, len(o))
	}
	for name, m := range o {
		if bad := aString(join(path, name), m); bad != nil {
			return bad
		}
		if n := utf8.RuneCountInString(o.str(name)); n > 512 {
			return tooLong(join(path, name), 512, n)
		}
	}
	return nil
}

func aText(path string, v json.RawMessage) *refusal {
	if bad := anObject(path, v); bad != nil {
		return bad
	}
	o, _ := decodeObject(v)
	if f, given := o["format"]; given {
		path := path + ".format"
		if bad := anObject(path, f); bad != nil {
			return bad
		}
		format, _ := decodeObject(f)
		if !format.has("type") {
			return missingParameter(path + ".type")
		}
		if bad := oneOf("text", "json_object", "json_schema")(path+".type", format["type"]); bad != nil {
			return bad
		}
		if format.str("type") == "json_schema" {
			for _, name := range []string{"name", "schema"} {
				if !format.has(name) {
					return missingParameter(join(path, name))
				}
			}
			if format.boolean("strict") {
				if at, fault := strictFault(format["schema"]); fault != "" {
					return invalid("invalid_json_schema", path+".schema",
						"Invalid schema for response_format '%s': %s", format.str("name"), inContext(at, fault))
				}
			}
		}
	}
	if verbosity, given := o["verbosity"]; given {
		if bad := oneOf("low", "medium", "high")(path+".verbosity", verbosity); bad != nil {
			return bad
		}
	}
	return o.unknown(path, set("format", "verbosity"))
}

func aReasoning(path string, v json.RawMessage) *refusal {
	if bad := anObject(path, v); bad != nil {
		return bad
	}
	o, _ := decodeObject(v)
	for _, f := range []field{
		{"effort", oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")},
		{"summary", oneOf("auto", "concise", "detailed")},
		{"generate_summary", oneOf("auto", "concise", "detailed")},
		{"context", oneOf("auto", "current_turn", "all_turns")},
		{"mode", oneOf("standard", "pro")},
	} {
		if m, given := o[f.name]; given {
			if bad := f.check(join(path, f.name), m); bad != nil {
				return bad
			}
		}
	}
	return o.unknown(path, set("effort", "summary", "generate_summary", "context", "mode"))
}

func aStreamOptions(path string, v json.RawMessage) *refusal {
	if bad := anObject(path, v); bad != nil {
		return bad
	}
	o, _ := decodeObject(v)
	if m, given := o["include_obfuscation"]; given {
		if bad := aBool(path+".include_obfuscation", m); bad != nil {
			return bad
		}
	}
	return o.unknown(path, set("include_obfuscation"))
}

func aConversation(path string, v json.RawMessage) *refusal {
	switch kindOf(v) {
	case kindString:
		return anID(path, v)
	case kindObject:
		o, _ := decodeObject(v)
		if !o.has("id") {
			return missingParameter(path + ".id")
		}
		return anID(path+".id", o["id"])
	}
	return wrongType(path, "one of a string or object", v)
}

func aContextManagement(path string, v json.RawMessage) *refusal {
	if kindOf(v) != kindArray {
		return wrongType(path, "an array of objects", v)
	}
	for i, e := range elements(v) {
		path := indexed(path, i)
		if bad := anObject(path, e); bad != nil {
			return bad
		}
		o, _ := decodeObject(e)
		if !o.has("type") {
			return missingParameter(path + ".type")
		}
		if n, given := o["compact_threshold"]; given {
			if bad := anInteger(1000)(path+".compact_threshold", n); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// maskedKey shows the ends of a key as the service does in its 401.
func maskedKey(key string) string {
	if len(key) <= 8 {
		return strings.Repeat("*", len(key))
	}
	return key[:4] + strings.Repeat("*", len(key)-8) + key[len(key)-4:]
}

// authorize checks the bearer token.
func authorize(h http.Header, key string) *refusal {
	token, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	var e *refusal
	switch {
	case !ok:
		e = invalid("", "", "You didn't provide an API key. You need to provide your API key in an Authorization header "+
			"using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).")
	case token != key:
		e = invalid("invalid_api_key", "", "Incorrect API key provided: %s. You can find your API key at "+
			"https://platform.openai.com/account/api-keys.", maskedKey(token))
	default:
		return nil
	}
	e.Status = http.StatusUnauthorized
	return e
}
