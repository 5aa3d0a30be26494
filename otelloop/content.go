package otelloop

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
	"github.com/openai/openai-go/v3/responses"
)

// A chatMessage is a message in the form of the conventions' JSON schemas.
type chatMessage struct {
	Role         string `json:"role"`
	Parts        []part `json:"parts"`
	FinishReason string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  any             `json:"response,omitempty"`
	Modality  string          `json:"modality,omitempty"`
	URI       string          `json:"uri,omitempty"`
	FileID    string          `json:"file_id,omitempty"`
}

func encode(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cut bounds a text to n bytes and makes it valid UTF-8, without which an
// exporter drops the whole span.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func (o *Observer) message(role, text, finish string) string {
	return encode([]chatMessage{{Role: role, Parts: []part{{Type: "text", Content: cut(text, o.options.MaxContent)}}, FinishReason: finish}})
}

func (o *Observer) instructions(text string) string {
	return encode([]part{{Type: "text", Content: cut(text, o.options.MaxContent)}})
}

// arguments are those of a call as JSON, or as a string where they are none or
// too long to be kept whole.
func (o *Observer) arguments(args []byte) json.RawMessage {
	if len(args) <= o.options.MaxContent && json.Valid(args) {
		return args
	}
	return json.RawMessage(encode(cut(string(args), o.options.MaxContent)))
}

// output is what a response says and asks for.
func (o *Observer) output(end fnloop.ResponseEnd) string {
	m := chatMessage{Role: "assistant", FinishReason: finish(end), Parts: []part{}}
	if end.Text != "" {
		m.Parts = append(m.Parts, part{Type: "text", Content: cut(end.Text, o.options.MaxContent)})
	}
	for _, c := range end.Calls {
		m.Parts = append(m.Parts, part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: o.arguments(c.Arguments)})
	}
	return encode([]chatMessage{m})
}

// inputItem has what is recorded of an item of a request.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
}

// input is what a request sends. Images and files are named and not recorded.
func (o *Observer) input(p *responses.ResponseNewParams) string {
	if p.Input.OfString.Valid() {
		return o.message("user", p.Input.OfString.Value, "")
	}
	messages := []chatMessage{}
	for i := range p.Input.OfInputItemList {
		data, err := json.Marshal(&p.Input.OfInputItemList[i])
		var it inputItem
		if err != nil || json.Unmarshal(data, &it) != nil {
			continue
		}
		switch it.Type {
		case "function_call", "custom_tool_call":
			messages = append(messages, chatMessage{Role: "assistant", Parts: []part{
				{Type: "tool_call", ID: it.CallID, Name: it.Name, Arguments: o.arguments([]byte(it.Arguments + it.Input))}}})
		case "function_call_output", "custom_tool_call_output":
			messages = append(messages, chatMessage{Role: "tool", Parts: []part{
				{Type: "tool_call_response", ID: it.CallID, Response: cut(text(it.Output), o.options.MaxContent)}}})
		case "", "message":
			messages = append(messages, chatMessage{Role: it.Role, Parts: o.parts(it.Content)})
		}
	}
	return encode(messages)
}

// text is a string of the API, or the texts of its list of parts.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []struct{ Text string }
	if json.Unmarshal(raw, &list) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range list {
		b.WriteString(p.Text)
	}
	return b.String()
}

func (o *Observer) parts(content json.RawMessage) []part {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return []part{{Type: "text", Content: cut(s, o.options.MaxContent)}}
	}
	var list []struct {
		Type, Text string
		ImageURL   string `json:"image_url"`
		FileURL    string `json:"file_url"`
		FileID     string `json:"file_id"`
	}
	json.Unmarshal(content, &list) // what is missing is empty
	out := make([]part, 0, len(list))
	for _, c := range list {
		modality := strings.TrimPrefix(c.Type, "input_")
		switch {
		case c.FileID != "":
			out = append(out, part{Type: "file", Modality: modality, FileID: c.FileID})
		case c.ImageURL+c.FileURL != "":
			uri := c.ImageURL + c.FileURL
			if strings.HasPrefix(uri, "data:") {
				uri, _, _ = strings.Cut(uri, ",")
			}
			out = append(out, part{Type: "uri", Modality: modality, URI: cut(uri, o.options.MaxContent)})
		default:
			out = append(out, part{Type: "text", Content: cut(c.Text, o.options.MaxContent)})
		}
	}
	return out
}
