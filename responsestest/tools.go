package responsestest

import (
	"encoding/json"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"
)

const (
	maxTools    = 128
	maxToolName = 128
)

// toolTypes are the tool types that the service knows.
var toolTypes = []string{
	"function", "file_search", "computer", "computer_use_preview", "web_search", "mcp", "code_interpreter",
	"programmatic_tool_calling", "image_generation", "local_shell", "shell", "custom", "namespace", "tool_search",
	"web_search_preview", "apply_patch", "web_search_2025_08_26", "web_search_preview_2025_03_11",
}

// A toolset is the checked tools of one request.
type toolset struct {
	echo  json.RawMessage // the array as the response shows it
	types map[string]bool // the types of the tools
	names map[string]tool // functions and custom tools by name
}

// A tool is a function or a custom tool.
type tool struct {
	custom    bool
	namespace string
	async     bool
}

// A toolCache remembers toolsets by their text. A client sends the same tools with every request, and
// checking schemas is the dearest part of serving one.
type toolCache struct {
	mu   sync.Mutex
	sets map[string]*toolset
}

func (c *toolCache) parse(v json.RawMessage) (*toolset, *refusal) {
	c.mu.Lock()
	known := c.sets[string(v)]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ts, bad := parseTools("tools", v)
	if bad != nil {
		return nil, bad
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets == nil || len(c.sets) >= 64 {
		c.sets = make(map[string]*toolset)
	}
	c.sets[string(v)] = ts
	return ts, nil
}

// parseTools checks an array of tools.
func parseTools(path string, v json.RawMessage) (*toolset, *refusal) {
	if kindOf(v) != kindArray {
		return nil, wrongType(path, "an array of objects", v)
	}
	tools := elements(v)
	if len(tools) > maxTools {
		return nil, arrayTooLong(path, maxTools, len(tools))
	}
	ts := &toolset{types: make(map[string]bool), names: make(map[string]tool)}
	echo := make([]json.RawMessage, len(tools))
	for i, t := range tools {
		var bad *refusal
		if echo[i], bad = ts.add(indexed(path, i), t, ""); bad != nil {
			return nil, bad
		}
	}
	ts.echo, _ = json.Marshal(echo)
	return ts, nil
}

// add checks one tool, takes it in and returns it as the response shows it.
func (ts *toolset) add(path string, v json.RawMessage, namespace string) (json.RawMessage, *refusal) {
	if kindOf(v) != kindObject {
		return nil, wrongType(path, "an object", v)
	}
	t, _ := decodeObject(v)
	if !t.has("type") {
		return nil, missingParameter(path + ".type")
	}
	if bad := oneOf(toolTypes...)(path+".type", t["type"]); bad != nil {
		return nil, bad
	}
	typ := t.str("type")
	ts.types[typ] = true
	switch typ {
	case "function", "custom":
		if bad := checkToolName(path, t); bad != nil {
			return nil, bad
		}
		ts.names[t.str("name")] = tool{custom: typ == "custom", namespace: namespace, async: t.boolean("async")}
		if typ == "custom" {
			return v, nil
		}
		return addFunction(path, t)
	case "namespace":
		if bad := checkToolName(path, t); bad != nil {
			return nil, bad
		}
		if !t.has("tools") {
			return nil, missingParameter(path + ".tools")
		}
		inner := elements(t["tools"])
		for i, e := range inner {
			var bad *refusal
			if inner[i], bad = ts.add(indexed(path+".tools", i), e, t.str("name")); bad != nil {
				return nil, bad
			}
		}
		t["tools"], _ = json.Marshal(inner)
		echo, _ := json.Marshal(t)
		return echo, nil
	case "mcp":
		if !t.has("server_label") {
			return nil, missingParameter(path + ".server_label")
		}
		delete(t, "authorization") // never shown
		echo, _ := json.Marshal(t)
		return echo, nil
	}
	return v, nil
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func checkToolName(path string, t object) *refusal {
	if !t.has("name") { // also what a tool in the shape of Chat Completions lacks
		return missingParameter(path + ".name")
	}
	path += ".name"
	if bad := aString(path, t["name"]); bad != nil {
		return bad
	}
	name := t.str("name")
	switch n := utf8.RuneCountInString(name); {
	case n == 0:
		return emptyString(path)
	case n > maxToolName:
		return tooLong(path, maxToolName, n)
	case !toolName.MatchString(name):
		return invalid("invalid_value", path, "Invalid '%s': string does not match pattern. "+
			"Expected a string that matches the pattern '%s'.", path, toolName)
	}
	return nil
}

var functionKeys = set("type", "name", "description", "parameters", "strict", "async", "defer_loading",
	"allowed_callers", "output_schema")

func addFunction(path string, t object) (json.RawMessage, *refusal) {
	for _, f := range []field{
		{"description", aString}, {"parameters", anObject}, {"strict", aBool}, {"async", aBool}, {"defer_loading", aBool},
	} {
		if v, given := t[f.name]; given {
			if bad := f.check(join(path, f.name), v); bad != nil {
				return nil, bad
			}
		}
	}
	if bad := t.unknown(path, functionKeys); bad != nil {
		return nil, bad
	}
	if t.boolean("strict") {
		if at, fault := strictFault(t["parameters"]); fault != "" {
			return nil, invalid("invalid_function_parameters", path+".parameters",
				"Invalid schema for function '%s': %s", t.str("name"), inContext(at, fault))
		}
	}
	echo := make(object, len(t)+1)
	for k, v := range t {
		echo[k] = v
	}
	echo["description"] = nullOr(t["description"])
	echo["parameters"] = nullOr(t["parameters"])
	if !t.has("strict") {
		// The service tries to make the schema strict, and gives that up without a word.
		if p, ok := normalised(t["parameters"]); ok {
			echo["parameters"], echo["strict"] = p, json.RawMessage("true")
		} else {
			echo["strict"] = json.RawMessage("false")
		}
	}
	b, _ := json.Marshal(echo)
	return b, nil
}

// A toolChoice is the tool_choice of a request.
type toolChoice struct {
	mode    string   // auto, none, required; the type of a forced tool
	name    string   // the name of a forced tool
	allowed []string // the names of allowed_tools; nil means all
}

func parseToolChoice(v json.RawMessage) (toolChoice, *refusal) {
	const path = "tool_choice"
	switch kindOf(v) {
	case kindString:
		var mode string
		_ = json.Unmarshal(v, &mode)
		if bad := oneOf("none", "auto", "required")(path, v); bad != nil {
			return toolChoice{}, bad
		}
		return toolChoice{mode: mode}, nil
	case kindObject:
		o, _ := decodeObject(v)
		if !o.has("type") {
			return toolChoice{}, missingParameter(path + ".type")
		}
		c := toolChoice{mode: o.str("type"), name: o.str("name")}
		switch c.mode {
		case "function", "custom":
			if !o.has("name") {
				return toolChoice{}, missingParameter(path + ".name")
			}
		case "allowed_tools":
			if !o.has("tools") {
				return toolChoice{}, missingParameter(path + ".tools")
			}
			if bad := oneOf("auto", "required")(path+".mode", or(o["mode"], `"auto"`)); bad != nil {
				return toolChoice{}, bad
			}
			c.mode, c.allowed = o.str("mode"), []string{}
			if c.mode == "" {
				c.mode = "auto"
			}
			for _, e := range elements(o["tools"]) {
				t, _ := decodeObject(e)
				if name := t.str("name"); name != "" {
					c.allowed = append(c.allowed, name)
				}
			}
		}
		return c, nil
	}
	return toolChoice{}, wrongType(path, "one of a string or object", v)
}

// check refuses a choice of what the request does not offer.
func (c toolChoice) check(req *request) *refusal {
	absent := func(name string) *refusal {
		return invalid("", "tool_choice", "Tool choice '%s' not found in 'tools' parameter.", name)
	}
	switch c.mode {
	case "", "auto", "none", "required":
		if c.mode == "required" && len(req.tools.types) == 0 {
			// The text is known from elsewhere; whether this endpoint says it is not.
			return invalid("", "tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.")
		}
		for _, name := range c.allowed {
			if _, ok := req.tools.names[name]; !ok {
				return absent(name)
			}
		}
	case "function", "custom":
		if t, ok := req.tools.names[c.name]; !ok || t.custom != (c.mode == "custom") {
			return absent(c.name)
		}
	default:
		if !slices.Contains(toolTypes, c.mode) {
			return wrongValue("tool_choice.type", c.mode, toolTypes)
		}
		if !req.tools.types[c.mode] {
			return absent(c.mode)
		}
	}
	return nil
}

// allows reports whether the choice lets the model call the tool of this name.
func (c toolChoice) allows(name string) bool {
	switch c.mode {
	case "none":
		return false
	case "function", "custom":
		return name == c.name
	}
	return c.allowed == nil || slices.Contains(c.allowed, name)
}

// forces reports whether the choice asks for a call that the client has to answer.
func (c toolChoice) forces() bool {
	return c.mode == "required" || c.mode == "function" || c.mode == "custom"
}
