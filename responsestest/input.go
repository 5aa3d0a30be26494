package responsestest

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxText   = 10_485_760 // characters of a text
	maxCallID = 64
	maxItemID = 64
)

// An item is an input or an output item. Output items become input of the next request, so both are one type.
type item struct {
	raw    json.RawMessage
	fields object
	kind   string // the type; message for the short form that has none
	id     string
	callID string
	name   string
}

func newItem(raw json.RawMessage, o object) *item {
	it := &item{raw: raw, fields: o, kind: o.str("type"), id: o.str("id"), callID: o.str("call_id"), name: o.str("name")}
	if it.kind == "" {
		it.kind = "message"
	}
	return it
}

// An itemType says what the service demands of the items of one type.
type itemType struct {
	prefix   string          // of the id; empty means any
	required []string        // members that may not be absent
	known    map[string]bool // nil means that any member is taken
}

var itemTypes = map[string]itemType{
	"message": {"msg", []string{"role", "content"}, set("type", "role", "content", "id", "status", "phase")},
	"function_call": {"fc", []string{"call_id", "name", "arguments"},
		set("type", "id", "call_id", "name", "arguments", "status", "namespace", "async", "caller")},
	"function_call_output": {"fc", []string{"call_id", "output"},
		set("type", "id", "call_id", "output", "status", "caller", "name", "namespace")},
	"custom_tool_call": {"ctc", []string{"call_id", "name", "input"},
		set("type", "id", "call_id", "name", "input", "status", "namespace", "async", "caller")},
	"custom_tool_call_output": {"", []string{"call_id", "output"},
		set("type", "id", "call_id", "output", "status", "caller", "name", "namespace")},
	"reasoning": {"rs", []string{"summary"},
		set("type", "id", "summary", "content", "encrypted_content", "status")},
	"item_reference":          {"", []string{"id"}, set("type", "id")},
	"mcp_approval_response":   {"", []string{"approval_request_id", "approve"}, nil},
	"tool_search_call":        {"", []string{"arguments"}, nil},
	"tool_search_output":      {"", []string{"tools"}, nil},
	"additional_tools":        {"", []string{"role", "tools"}, nil},
	"shell_call":              {"", []string{"call_id", "action"}, nil},
	"shell_call_output":       {"", []string{"call_id", "output"}, nil},
	"apply_patch_call":        {"", []string{"call_id", "operation"}, nil},
	"apply_patch_call_output": {"", []string{"call_id", "status"}, nil},
	"computer_call":           {"", []string{"call_id"}, nil},
	"computer_call_output":    {"", []string{"call_id", "output"}, nil},
	"local_shell_call":        {"", []string{"action"}, nil},
	"local_shell_call_output": {"", []string{"output"}, nil},
	"compaction":              {"", []string{"encrypted_content"}, nil},
	"compaction_trigger":      {},
	"configuration_update":    {},
	"file_search_call":        {},
	"web_search_call":         {"ws", nil, nil},
	"image_generation_call":   {},
	"code_interpreter_call":   {},
	"mcp_list_tools":          {},
	"mcp_approval_request":    {},
	"mcp_call":                {},
	"program":                 {},
	"program_output":          {},
}

// inputTypes lists the item types in the order of the service's message.
var inputTypes = []string{
	"message", "file_search_call", "computer_call", "computer_call_output", "web_search_call", "function_call",
	"function_call_output", "tool_search_call", "tool_search_output", "additional_tools", "configuration_update",
	"reasoning", "compaction", "image_generation_call", "code_interpreter_call", "local_shell_call",
	"local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
	"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call", "custom_tool_call_output",
	"custom_tool_call", "compaction_trigger", "item_reference", "program", "program_output",
}

// parseInput checks the shape of the input.
func (s *Server) parseInput(v json.RawMessage) ([]*item, *refusal) {
	switch kindOf(v) {
	case kindString:
		var text string
		_ = json.Unmarshal(v, &text)
		if n := utf8.RuneCountInString(text); n > maxText {
			return nil, tooLong("input", maxText, n)
		}
		raw := slices.Concat([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), v, []byte(`}]}`))
		o, _ := decodeObject(raw)
		return []*item{newItem(raw, o)}, nil
	case kindArray:
		values := elements(v)
		items := make([]*item, len(values))
		for i, e := range values {
			var bad *refusal
			if items[i], bad = s.parseItem(indexed("input", i), e); bad != nil {
				return nil, bad
			}
		}
		return items, nil
	}
	return nil, wrongType("input", "one of a string or array of input items", v)
}

func (s *Server) parseItem(path string, v json.RawMessage) (*item, *refusal) {
	if kindOf(v) != kindObject {
		return nil, wrongType(path, "an object", v)
	}
	o, _ := decodeObject(v)
	it := newItem(v, o)
	typ, ok := itemTypes[it.kind]
	if !ok && !s.made(it.id) {
		return nil, wrongValue(path, it.kind, inputTypes)
	}
	for _, name := range typ.required {
		if !o.has(name) {
			return nil, missingParameter(join(path, name))
		}
	}
	for _, name := range []string{"id", "call_id", "name", "role", "arguments", "namespace"} {
		if v, given := o[name]; given && (name != "arguments" || it.kind == "function_call") {
			if bad := aString(join(path, name), v); bad != nil {
				return nil, bad
			}
		}
	}
	if o.has("call_id") {
		switch n := utf8.RuneCountInString(it.callID); {
		case n == 0:
			return nil, emptyString(path + ".call_id")
		case n > maxCallID:
			return nil, tooLong(path+".call_id", maxCallID, n)
		}
	}
	if bad := checkItemID(path+".id", typ.prefix, o); bad != nil {
		return nil, bad
	}
	if typ.known != nil {
		if bad := o.unknown(path, typ.known); bad != nil {
			return nil, bad
		}
	} else if o.has("created_by") { // the service's own mark on items that are read back
		return nil, unknownParameter(path + ".created_by")
	}

	switch it.kind {
	case "message":
		if bad := checkMessage(path, o); bad != nil {
			return nil, bad
		}
	case "function_call_output", "custom_tool_call_output":
		if bad := checkContent(path+".output", o["output"]); bad != nil {
			return nil, bad
		}
	case "tool_search_output", "additional_tools":
		if _, bad := parseTools(path+".tools", o["tools"]); bad != nil {
			return nil, bad
		}
	case "mcp_approval_response":
		if bad := aBool(path+".approve", o["approve"]); bad != nil {
			return nil, bad
		}
	case "reasoning":
		if kindOf(o["summary"]) != kindArray {
			return nil, wrongType(path+".summary", "an array of objects", o["summary"])
		}
	}
	return it, nil
}

// made reports whether the id is one of an item of a type that only a script knows.
func (s *Server) made(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unheard[id]
}

func checkItemID(path, prefix string, o object) *refusal {
	if !o.has("id") {
		return nil
	}
	id := o.str("id")
	switch {
	case prefix != "" && !strings.HasPrefix(id, prefix):
		return invalid("invalid_value", path, "Invalid '%s': '%s'. Expected an ID that begins with '%s'.", path, id, prefix)
	case len(id) > maxItemID:
		return tooLong(path, maxItemID, len(id))
	case !idChars.MatchString(id):
		return invalid("invalid_value", path, "Invalid '%s': '%s'. Expected an ID that contains letters, numbers, "+
			"underscores, or dashes, but this value contained additional characters.", path, id)
	}
	return nil
}

func checkMessage(path string, o object) *refusal {
	if bad := oneOf("assistant", "system", "developer", "user")(path+".role", o["role"]); bad != nil {
		return bad
	}
	if o.has("phase") && o.str("role") != "assistant" {
		return unknownParameter(path + ".phase")
	}
	return checkContent(path+".content", o["content"])
}

var partTypes = []string{
	"input_text", "input_image", "output_text", "refusal", "input_file", "computer_screenshot", "summary_text",
}

// checkContent checks a text or an array of parts.
func checkContent(path string, v json.RawMessage) *refusal {
	switch kindOf(v) {
	case kindString:
		var text string
		if len(v) > maxText {
			_ = json.Unmarshal(v, &text)
		}
		if n := utf8.RuneCountInString(text); n > maxText {
			return tooLong(path, maxText, n)
		}
		return nil
	case kindArray:
		for i, e := range elements(v) {
			path := indexed(path, i)
			if bad := anObject(path, e); bad != nil {
				return bad
			}
			part, _ := decodeObject(e)
			if !part.has("type") {
				return missingParameter(path + ".type")
			}
			if bad := oneOf(partTypes...)(path+".type", part["type"]); bad != nil {
				return bad
			}
			for typ, member := range map[string]string{"input_text": "text", "output_text": "text", "refusal": "refusal"} {
				if part.str("type") != typ {
					continue
				}
				if !part.has(member) {
					return missingParameter(join(path, member))
				}
				if bad := checkContent(join(path, member), part[member]); bad != nil {
					return bad
				}
			}
		}
		return nil
	}
	return wrongType(path, "one of a string or array of objects", v)
}

// callTypes maps the types of calls that a client answers to the words of the service's messages.
var callTypes = map[string]string{
	"function_call":    "function call",
	"custom_tool_call": "custom tool call",
	"tool_search_call": "tool search call",
	"shell_call":       "shell call",
	"local_shell_call": "local shell call",
	"apply_patch_call": "apply patch call",
	"computer_call":    "computer call",
}

// calls reports whether the item is a call that the client has to answer.
func (it *item) calls() bool {
	switch it.kind {
	case "tool_search_call":
		return it.fields.str("execution") == "client"
	case "shell_call":
		// A hosted container has run it already, and its output is there.
		environment, _ := decodeObject(or(it.fields["environment"], "{}"))
		return !strings.HasPrefix(environment.str("type"), "container")
	}
	return callTypes[it.kind] != ""
}

// answers returns the type of the call that the item answers, or "".
func (it *item) answers() string {
	typ, ok := strings.CutSuffix(it.kind, "_output")
	if it.kind == "tool_search_output" {
		typ = "tool_search_call"
		ok = it.fields.str("execution") != "server"
	}
	if !ok || callTypes[typ] == "" {
		return ""
	}
	return typ
}

// modelMade reports whether the item came from the model.
func (it *item) modelMade() bool {
	if it.kind == "message" {
		return it.fields.str("role") == "assistant"
	}
	return it.answers() == "" && !slices.Contains([]string{"mcp_approval_response", "additional_tools",
		"configuration_update", "compaction_trigger", "item_reference", "compaction"}, it.kind)
}

// checkPairing walks the effective input, which is the old items of the conversation and then the new
// ones, and refuses calls without outputs, outputs without calls, and items that are there twice.
func checkPairing(old, new []*item) *refusal {
	type call struct {
		*item
		answered bool
	}
	var (
		order    []*call
		calls    = make(map[string]*call) // by type and call id, the latest of them
		stored   = make(map[string]bool)  // the same for calls of the old items
		ids      = make(map[string]bool)
		requests = make(map[string]bool) // ids of approval requests; true if they are pending
	)
	walk := func(it *item, fresh bool) *refusal {
		if it.id != "" && it.answers() == "" {
			if ids[it.id] {
				return invalid("", "input",
					"Duplicate item found with id %s. Remove duplicate items from your input and try again.", it.id)
			}
			ids[it.id] = true
		}
		switch {
		case it.kind == "mcp_approval_request":
			requests[it.id] = true
		case it.kind == "mcp_approval_response":
			id := it.fields.str("approval_request_id")
			if !requests[id] {
				// Invented: that there has to be such a request is documented, the text is not.
				return invalid("", "input", "No pending approval request found with id '%s'.", id)
			}
			requests[id] = false
		case it.calls():
			key := it.kind + " " + it.callID
			if c := calls[key]; c != nil && (!c.answered || fresh && stored[key]) {
				// Invented: a call that is sent again without its id. A client that keeps the history
				// itself may use a call id again.
				return invalid("", "input",
					"Duplicate item found with call_id %s. Remove duplicate items from your input and try again.", it.callID)
			}
			c := &call{item: it}
			calls[key], stored[key] = c, !fresh
			order = append(order, c)
		case it.answers() != "":
			typ := it.answers()
			id := it.callID
			if id == "" {
				id = it.id // local_shell_call_output names its call there
			}
			c := calls[typ+" "+id]
			switch {
			case c == nil:
				return invalid("", "input", "No tool call found for %s output with call_id %s.", callTypes[typ], id)
			case it.id != "" && it.id == c.id:
				// An output that takes the id of its call is stored over it, and the call stays unanswered.
				return nil
			case c.answered:
				// The text has been seen through a gateway only.
				return invalid("", "input", "Duplicate %s_output for call_id '%s'. "+
					"Each %s must have exactly one matching %s_output", typ, id, typ, typ)
			case fresh && !sameCaller(c.item, it):
				// Invented: that the caller has to be repeated is documented, the refusal is not.
				return invalid("", "input", "The caller of the %s output with call_id %s does not match the caller of its call.",
					callTypes[typ], id)
			}
			c.answered = true
		}
		return nil
	}
	for _, it := range old {
		if bad := walk(it, false); bad != nil {
			return bad
		}
	}
	for _, it := range new {
		if bad := walk(it, true); bad != nil {
			return bad
		}
	}
	for _, c := range order {
		if !c.answered && !c.fields.boolean("async") {
			return invalid("", "input", "No tool output found for %s %s.", callTypes[c.kind], c.callID)
		}
	}
	return nil
}

// sameCaller reports whether the output names the program that made the call. Calls of the model itself
// need no caller.
func sameCaller(call, output *item) bool {
	program := func(it *item) string {
		o, _ := decodeObject(or(it.fields["caller"], "{}"))
		if o.str("type") == "program" {
			return o.str("caller_id")
		}
		return ""
	}
	return program(call) == program(output)
}

// checkNamespaces refuses calls that are sent back without the namespace of their tool.
func checkNamespaces(items []*item, offered map[string]tool) *refusal {
	for _, it := range items {
		if it.kind != "function_call" || it.fields.has("namespace") {
			continue
		}
		if t, ok := offered[it.name]; ok && t.namespace != "" {
			return invalid("", "input", "Missing namespace for function_call '%s'. It does not exist in the default namespace. "+
				"Round-trip the model's function_call item with its namespace field included.", it.name)
		}
	}
	return nil
}
