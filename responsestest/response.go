package responsestest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A response is one answer of the model with all that is kept of it.
type response struct {
	id      string
	created time.Time
	req     *request
	parent  *response     // of previous_response_id
	conv    *conversation // of conversation
	input   []*item       // new with the request
	output  []*item
	status  string
	reply   *Reply
	usage   Usage
	size    int // bytes of all items up to here
	round   int // completed answers up to here

	// The following belong to background responses and are guarded by Server.mu.
	readyAt   time.Time
	cancelled bool
	events    []Event
}

// history returns all items up to and including the output of the response.
func (r *response) history() []*item {
	var chain []*response
	n := 0
	for p := r; p != nil; p = p.parent {
		chain = append(chain, p)
		n += len(p.input) + len(p.output)
	}
	items := make([]*item, 0, n)
	for i := len(chain) - 1; i >= 0; i-- {
		items = append(append(items, chain[i].input...), chain[i].output...)
	}
	return items
}

// itemPrefixes are the prefixes of item ids; types that are not here get item.
var itemPrefixes = map[string]string{
	"message": "msg", "function_call": "fc", "function_call_output": "fc", "custom_tool_call": "ctc",
	"custom_tool_call_output": "ctco", "reasoning": "rs", "computer_call": "cu", "web_search_call": "ws",
	"image_generation_call": "ig", "mcp_list_tools": "mcpl", "mcp_call": "mcp", "mcp_approval_request": "mcpr",
	"compaction": "cmp", "program": "prog", "program_output": "cmo", "tool_search_call": "tsc",
	"tool_search_output": "tso", "code_interpreter_call": "ci", "file_search_call": "fs", "shell_call": "sh",
	"shell_call_output": "sho", "apply_patch_call": "apc", "apply_patch_call_output": "apco", "local_shell_call": "lsh",
	"mcp_approval_response": "mcprr",
}

func (s *Server) newItemID(kind string) string {
	prefix := itemPrefixes[kind]
	if prefix == "" {
		prefix = "item"
	}
	return s.newID(prefix)
}

// hasStatus are the types of items that carry a status.
var hasStatus = map[string]bool{
	"message": true, "function_call": true, "custom_tool_call": true, "function_call_output": true,
	"shell_call": true, "apply_patch_call": true, "computer_call": true, "local_shell_call": true,
	"tool_search_call": true, "web_search_call": true, "file_search_call": true, "code_interpreter_call": true,
	"program_output": true,
}

// complete returns the scripted item with what the server adds to it.
func (s *Server) complete(raw json.RawMessage, status string, offered map[string]tool, org string) *item {
	o, _ := decodeObject(raw)
	kind := o.str("type")
	head := []byte{'{'}
	add := func(name, value string) {
		if _, given := o[name]; given {
			return
		}
		head = append(append(append(head, '"'), name...), `":`...)
		head = append(append(head, value...), ',')
		o[name] = json.RawMessage(value)
	}
	add("id", strconv.Quote(s.newItemID(kind)))
	if o.str("call_id") == "" && (callTypes[kind] != "" || kind == "program") &&
		(kind != "tool_search_call" || o.str("execution") == "client") {
		o["call_id"] = json.RawMessage(strconv.Quote(s.newID("call")))
		raw, _ = json.Marshal(o)
		head = head[:1]
	}
	if hasStatus[kind] {
		add("status", strconv.Quote(status))
	}
	if kind == "function_call" || kind == "custom_tool_call" {
		t := offered[o.str("name")]
		if t.namespace != "" {
			add("namespace", string(quote(t.namespace)))
		}
		if t.async {
			add("async", "true")
		}
	}
	if sealed[kind] {
		if given := o.str("encrypted_content"); given != "" {
			s.issue(given)
		} else {
			add("encrypted_content", strconv.Quote(s.seal(o.str("id"), org)))
		}
	}
	if _, ok := itemTypes[kind]; !ok {
		s.mu.Lock()
		s.unheard[o.str("id")] = true
		s.mu.Unlock()
	}
	full := append(head, bytes.TrimLeft(raw, " \t\r\n")[1:]...)
	return newItem(full, o)
}

// identify returns an input item with an id, under which it can be listed.
func (s *Server) identify(it *item) *item {
	if it.id != "" || it.kind == "item_reference" {
		return it
	}
	id := s.newItemID(it.kind)
	head := `{"id":` + strconv.Quote(id) + `,`
	if !it.fields.has("type") {
		head += `"type":"message",`
	}
	named := *it
	named.id = id
	named.raw = append([]byte(head), bytes.TrimLeft(it.raw, " \t\r\n")[1:]...)
	return &named
}

// sealed are the types of items with encrypted content.
var sealed = map[string]bool{"reasoning": true, "compaction": true}

// The encrypted content of reasoning is a label and a seal over it: opaque to clients, and any change of
// it is seen. It is bound to the organization of the request.
const sealPrefix = "gAAAAAB"

func (s *Server) mac(label string) []byte {
	h := hmac.New(sha256.New, s.sealKey)
	h.Write([]byte(label))
	return h.Sum(nil)
}

func (s *Server) seal(id, org string) string {
	label := id + "\x00" + org
	return sealPrefix + base64.RawURLEncoding.EncodeToString(append(s.mac(label), label...))
}

// issue remembers encrypted content that a script gave.
func (s *Server) issue(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued[content] = true
}

// checkSeal refuses reasoning whose encrypted content is not the server's, or not of this organization.
func (s *Server) checkSeal(it *item, org string) *refusal {
	content := it.fields.str("encrypted_content")
	s.mu.Lock()
	known := s.issued[content]
	s.mu.Unlock()
	if known {
		return nil
	}
	refuse := func(reason string) *refusal {
		return invalid("invalid_encrypted_content", "",
			"The encrypted content for item %s could not be verified. Reason: %s", it.id, reason)
	}
	encoded, ok := strings.CutPrefix(content, sealPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(b) < sha256.Size || !hmac.Equal(b[:sha256.Size], s.mac(string(b[sha256.Size:]))) {
		return refuse("Encrypted content could not be decrypted or parsed.")
	}
	if _, sealedOrg, _ := strings.Cut(string(b[sha256.Size:]), "\x00"); sealedOrg != org {
		return refuse("Encrypted content organization_id did not match the target organization.")
	}
	return nil
}

// appendJSON appends the response object in the state it has when its status is the given one: only a
// response that has ended has an output and a usage.
func (r *response) appendJSON(dst []byte, status string) []byte {
	f := r.req.fields
	member := func(name string, value json.RawMessage) {
		dst = append(append(append(append(dst, '"'), name...), `":`...), value...)
		dst = append(dst, ',')
	}
	echo := func(name, absent string) { member(name, or(f[name], absent)) }
	seconds := func(t time.Time) json.RawMessage { return strconv.AppendInt(nil, t.Unix(), 10) }

	ended := status != "queued" && status != "in_progress"
	dst = append(dst, '{')
	member("id", quote(r.id))
	member("object", json.RawMessage(`"response"`))
	member("created_at", seconds(r.created))
	member("status", quote(status))
	echo("background", "false")
	if status == "completed" {
		member("completed_at", seconds(time.Now()))
	} else {
		member("completed_at", json.RawMessage("null"))
	}
	if r.conv != nil {
		member("conversation", fmt.Appendf(nil, `{"id":%q}`, r.conv.id))
	}
	if status == "failed" {
		member("error", fmt.Appendf(nil, `{"code":%s,"message":%s}`, quote(r.reply.Code), quote(r.reply.Message)))
	} else {
		member("error", json.RawMessage("null"))
	}
	echo("frequency_penalty", "0.0")
	if status == "incomplete" {
		member("incomplete_details", fmt.Appendf(nil, `{"reason":%s}`, quote(r.reply.Reason)))
	} else {
		member("incomplete_details", json.RawMessage("null"))
	}
	echo("instructions", "null")
	echo("max_output_tokens", "null")
	echo("max_tool_calls", "null")
	echo("model", "null")
	dst = append(dst, `"output":[`...)
	if ended {
		for i, it := range r.output {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, it.raw...)
		}
	}
	dst = append(dst, `],`...)
	echo("parallel_tool_calls", "true")
	echo("presence_penalty", "0.0")
	echo("previous_response_id", "null")
	echo("prompt_cache_key", "null")
	echo("prompt_cache_retention", "null")
	member("reasoning", r.reasoning())
	echo("safety_identifier", "null")
	member("service_tier", json.RawMessage(`"default"`))
	echo("store", "true")
	echo("temperature", "1.0")
	member("text", r.text())
	echo("tool_choice", `"auto"`)
	member("tools", or(r.req.tools.echo, "[]"))
	echo("top_logprobs", "0")
	echo("top_p", "1.0")
	echo("truncation", `"disabled"`)
	switch {
	case !ended:
		member("usage", json.RawMessage("null"))
	case !r.reply.NoUsage:
		member("usage", r.usage.json())
	}
	echo("user", "null")
	dst = append(append(dst, `"metadata":`...), or(f["metadata"], "{}")...)
	return append(dst, '}')
}

func (u Usage) json() json.RawMessage {
	return fmt.Appendf(nil, `{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},`+
		`"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
		u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens, u.InputTokens+u.OutputTokens)
}

// reasoning returns the setting with its defaults.
func (r *response) reasoning() json.RawMessage {
	given, ok := r.req.fields["reasoning"]
	if !ok {
		return json.RawMessage(`{"effort":null,"summary":null}`)
	}
	o, _ := decodeObject(given)
	o["effort"], o["summary"] = nullOr(o["effort"]), nullOr(o["summary"])
	full, _ := json.Marshal(o)
	return full
}

// text returns the setting with its defaults.
func (r *response) text() json.RawMessage {
	given, ok := r.req.fields["text"]
	if !ok {
		return json.RawMessage(`{"format":{"type":"text"},"verbosity":"medium"}`)
	}
	o, _ := decodeObject(given)
	return fmt.Appendf(nil, `{"format":%s,"verbosity":%s}`, or(o["format"], `{"type":"text"}`), or(o["verbosity"], `"medium"`))
}
