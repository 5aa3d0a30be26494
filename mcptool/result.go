package mcptool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
)

// maxParts is how many parts of a result are taken.
const maxParts = 1000

// A result is that of a call.
type result struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Type       string          `json:"resultType"`
}

// A part is one of a result's contents.
type part struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Data     *string `json:"data"`
	MIMEType string  `json:"mimeType"`
	URI      string  `json:"uri"`
	Name     string  `json:"name"`
	Size     *int64  `json:"size"`
	Resource *struct {
		URI      string  `json:"uri"`
		MIMEType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     *string `json:"blob"`
	} `json:"resource"`
}

// parts are those of a result, and whether there are more than are taken. What is no
// part becomes one without a type.
func (r *result) parts() (parts []part, more bool) {
	raws, more, err := elements(r.Content, maxParts)
	if err != nil {
		raws = []json.RawMessage{r.Content} // older servers gave one part without a list
	}
	for _, raw := range raws {
		var p part
		if json.Unmarshal(raw, &p) != nil {
			p = part{}
		}
		parts = append(parts, p)
	}
	return parts, more
}

// output is what the model reads of a result.
func output(raw json.RawMessage) fnloop.Output {
	var res result
	if json.Unmarshal(raw, &res) != nil {
		return fnloop.Output{Text: "the tool's result is not of the form that the protocol asks for", IsError: true}
	}
	if res.Type == "input_required" {
		return fnloop.Output{Text: "the tool asks for something that only a person can give, and cannot be answered here", IsError: true}
	}
	out := fnloop.Output{IsError: res.IsError}
	usable := false
	parts, more := res.parts()
	for i := range parts {
		c, shown := content(&parts[i])
		if c == (fnloop.Content{}) {
			continue
		}
		usable = usable || shown
		out.Content = append(out.Content, c)
	}
	if more {
		out.Content = append(out.Content, note(fmt.Sprintf("what comes after the first %d parts of the result", maxParts), ""))
	}
	if !usable && len(res.Structured) > 0 && string(res.Structured) != "null" {
		out.Content = append(out.Content, fnloop.Content{Text: string(res.Structured)})
	}
	switch {
	case len(out.Content) == 0:
		out.Text = "(the tool returned nothing)"
	case len(out.Content) == 1 && out.Content[0].Text != "":
		out.Text, out.Content = out.Content[0].Text, nil
	}
	return out
}

// content is what the model gets of a part, and whether that is the part itself and
// not a note in its place.
func content(p *part) (c fnloop.Content, shown bool) {
	if p.Type == "" {
		return note("a part of the result", "it is not of the form that the protocol asks for"), false
	}
	switch {
	case p.Type == "text" && p.Text != nil:
		return fnloop.Content{Text: *p.Text}, *p.Text != ""
	case p.Type == "image" && p.Data != nil:
		data, err := decode(*p.Data)
		if err != nil {
			return note(named(p.MIMEType, "image"), err.Error()), false
		}
		c, err := fnloop.ImageData(data)
		if err != nil {
			return note(sized(named(p.MIMEType, "image"), data), strings.TrimPrefix(err.Error(), "fnloop: image: ")), false
		}
		return c, true
	case p.Type == "audio" && p.Data != nil:
		data, err := decode(*p.Data)
		if err != nil {
			return note(named(p.MIMEType, "audio"), err.Error()), false
		}
		return note(sized(named(p.MIMEType, "audio"), data), ""), false
	case p.Type == "resource_link":
		about := []string{"link: " + p.URI}
		for _, s := range []string{p.Name, p.MIMEType} {
			if s != "" {
				about = append(about, s)
			}
		}
		if p.Size != nil {
			about = append(about, fmt.Sprintf("%d bytes", *p.Size))
		}
		return fnloop.Content{Text: "[" + oneLine(strings.Join(about, ", ")) + "]"}, true
	case p.Type == "resource" && p.Resource != nil && p.Resource.Text != nil:
		return fnloop.Content{Text: oneLine(p.Resource.URI) + ":\n" + *p.Resource.Text}, true
	case p.Type == "resource" && p.Resource != nil && p.Resource.Blob != nil:
		return blob(p.Resource.URI, p.Resource.MIMEType, *p.Resource.Blob)
	}
	return note(fmt.Sprintf("a part of type %.40q", p.Type), ""), false
}

// blob is what the model gets of a file. What it is, its bytes say: servers send
// any under any type.
func blob(uri, kind, encoded string) (c fnloop.Content, shown bool) {
	what := named(kind, "file")
	if uri != "" {
		what += " " + uri
	}
	data, err := decode(encoded)
	if err != nil {
		return note(what, err.Error()), false
	}
	found := http.DetectContentType(data)
	switch {
	case strings.HasPrefix(found, "image/"):
		if c, err = fnloop.ImageData(data); err == nil {
			return c, true
		}
	case strings.HasPrefix(found, "text/") && utf8.Valid(data):
		return fnloop.Content{Text: oneLine(uri) + ":\n" + string(data)}, true
	default:
		name := path.Base(uri)
		if path.Ext(name) == "" && found == "application/pdf" {
			name += ".pdf"
		}
		if c, err = fnloop.FileData(name, data); err == nil {
			return c, true
		}
	}
	return note(sized(what, data), ""), false
}

// decode decodes base64 of either alphabet, with or without padding and lines.
func decode(s string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(s)
	if err == nil {
		return data, nil
	}
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "=\r\n "))
	if data, err = base64.RawStdEncoding.DecodeString(s); err != nil {
		return nil, errors.New("its data is not base64")
	}
	return data, nil
}

// note stands for a part that the model cannot be shown.
func note(what, why string) fnloop.Content {
	if why != "" {
		why = ": " + why
	}
	return fnloop.Content{Text: "[" + oneLine(what) + ", not shown" + oneLine(why) + "]"}
}

func sized(what string, data []byte) string { return fmt.Sprintf("%s, %d bytes", what, len(data)) }

func named(kind, otherwise string) string {
	if kind == "" {
		return otherwise
	}
	return kind
}

// oneLine keeps what a server wrote from filling more than a line.
func oneLine(s string) string {
	return cut(strings.Join(strings.Fields(s), " "), 500)
}
