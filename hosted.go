package fnloop

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A HostedCall is one use of a tool that the API runs by itself: a search, an
// interpreter, a generated image, a tool of an MCP server.
type HostedCall struct {
	ID string `json:"id"`
	// Kind is the type of the API's item, such as "web_search_call".
	Kind string `json:"kind"`
	// Status is the API's word for how far it is, such as "completed".
	Status string `json:"status,omitempty"`
	// Name and Server are those of a tool of an MCP server.
	Name   string `json:"name,omitempty"`
	Server string `json:"server,omitempty"`
	// Item is the API's item, with what was searched, run and found, once the
	// call has ended. The bytes of an image are a [File] instead.
	Item json.RawMessage `json:"item,omitempty"`
}

// A File is an image or a file that a hosted tool has made.
type File struct {
	// Call is the ID of the [HostedCall] that made it; empty when only the text
	// names the file.
	Call string `json:"call,omitempty"`
	Name string `json:"name,omitempty"`
	// MediaType is known of images, such as "image/png".
	MediaType string `json:"media_type,omitempty"`
	// Data are the bytes of an image. Other files are to be fetched: by URL, or
	// from the API by FileID, within ContainerID if that is set.
	Data        []byte `json:"data,omitempty"`
	URL         string `json:"url,omitempty"`
	FileID      string `json:"file_id,omitempty"`
	ContainerID string `json:"container_id,omitempty"`
}

// A Citation says where a piece of the answer comes from.
type Citation struct {
	// Kind is "url" for a web page, "file" for a file that was searched,
	// "container_file" for one that an interpreter has made, and "file_path" for
	// one that the text names. More may come.
	Kind  string `json:"kind"`
	URL   string `json:"url,omitempty"`
	Title string `json:"title,omitempty"`
	// FileID, FileName and ContainerID are those of a file.
	FileID      string `json:"file_id,omitempty"`
	FileName    string `json:"file_name,omitempty"`
	ContainerID string `json:"container_id,omitempty"`
	// Start and End are the place that the citation is for, in bytes of
	// [Answer.Text], or of its message in a [CitationAdded] event. They are the
	// same for a place without length. Text is what stands there.
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"text,omitempty"`
}

// isHosted reports whether the item is the work of a tool that the API runs.
func (it *item) isHosted() bool {
	switch it.Type {
	case "", "message", "reasoning", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output",
		"compaction", "additional_tools", "mcp_approval_request", "mcp_approval_response":
		return false
	}
	return !it.needsClient()
}

// hosted is the call that an item stands for, whose JSON is raw.
func (it *item) hosted(raw json.RawMessage) HostedCall {
	if it.Type == "image_generation_call" {
		raw = withoutMember(raw, "result")
	}
	return HostedCall{ID: it.ID, Kind: it.Type, Status: it.Status, Name: it.Name, Server: it.ServerLabel, Item: raw}
}

// files are what an item has made.
func (it *item) files() []File {
	switch it.Type {
	case "image_generation_call":
		var result string
		json.Unmarshal(it.Result, &result) // null until it is made
		data, err := base64.StdEncoding.DecodeString(result)
		if err != nil || len(data) == 0 {
			return nil
		}
		format := it.OutputFormat
		if format == "" {
			format = "png" // which is the API's default
		}
		return []File{{Call: it.ID, MediaType: "image/" + format, Data: data}}
	case "code_interpreter_call":
		var files []File
		var outputs []struct{ Type, URL string }
		json.Unmarshal(it.Outputs, &outputs) // null unless they were asked for
		for _, o := range outputs {
			if o.Type == "image" && o.URL != "" {
				files = append(files, File{Call: it.ID, MediaType: "image/png", URL: o.URL, ContainerID: it.ContainerID})
			}
		}
		return files
	case "message":
		var files []File
		for _, c := range it.citations() {
			if c.Kind == "container_file" || c.Kind == "file_path" {
				files = append(files, File{Name: c.FileName, FileID: c.FileID, ContainerID: c.ContainerID})
			}
		}
		return files
	}
	return nil
}

// citations are those of a message, with places in its text.
func (it *item) citations() []Citation {
	var out []Citation
	before := 0 // the texts of the parts before
	for _, p := range it.parts() {
		if p.Type != "output_text" {
			continue
		}
		if len(p.Annotations) <= len("[]") {
			before += len(p.Text)
			continue
		}
		var notes []struct {
			Type        string `json:"type"`
			URL         string `json:"url"`
			Title       string `json:"title"`
			FileID      string `json:"file_id"`
			FileName    string `json:"filename"`
			ContainerID string `json:"container_id"`
			Start       *int   `json:"start_index"`
			End         *int   `json:"end_index"`
			Index       int    `json:"index"`
		}
		json.Unmarshal(p.Annotations, &notes) // what is missing is zero
		for _, n := range notes {
			start, end := n.Index, n.Index
			if n.Start != nil {
				start = *n.Start
			}
			if n.End != nil {
				end = *n.End
			}
			from := runeOffset(p.Text, start)
			to := max(from, runeOffset(p.Text, end))
			out = append(out, Citation{
				Kind: strings.TrimSuffix(n.Type, "_citation"), URL: n.URL, Title: n.Title,
				FileID: n.FileID, FileName: n.FileName, ContainerID: n.ContainerID,
				Start: before + from, End: before + to, Text: p.Text[from:to],
			})
		}
		before += len(p.Text)
	}
	return out
}

// runeOffset is where the rune n of s begins, or the end of s. The API counts
// places in characters.
func runeOffset(s string, n int) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// collect takes over what hosted tools have done in a response that the
// conversation goes on from.
func (a *Answer) collect(response *response) {
	var raw []json.RawMessage
	for i := range response.Output {
		it := &response.Output[i]
		a.Files = append(a.Files, it.files()...)
		if !it.isHosted() {
			continue
		}
		if raw == nil {
			raw = response.items()
		}
		var own json.RawMessage
		if i < len(raw) {
			own = raw[i]
		}
		a.Hosted = append(a.Hosted, it.hosted(own))
	}
}
