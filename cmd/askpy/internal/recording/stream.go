package recording

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"
)

// isStream reports whether an answer is a stream of server-sent events.
func isStream(h http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && mediaType == "text/event-stream"
}

// streamEnded reports whether a stream got as far as the event that ends a
// response.
func streamEnded(stream []byte) bool {
	for line := range strings.Lines(string(stream)) {
		var event struct{ Type string }
		if data, ok := strings.CutPrefix(line, "data:"); !ok || json.Unmarshal([]byte(data), &event) != nil {
			continue
		}
		switch event.Type {
		case "response.completed", "response.incomplete", "response.failed", "error":
			return true
		}
	}
	return false
}

// cleanStream is clean for a stream. A secret can come in pieces, one in each
// of several deltas: then the first of them gets the whole text, cleaned, and
// the others none.
func (s Scrubber) cleanStream(stream string) string {
	lines := strings.SplitAfter(stream, "\n")
	texts := map[string][]int{} // the lines with the deltas of each text
	for i, line := range lines {
		if key, _, ok := delta(line); ok {
			texts[key] = append(texts[key], i)
		}
	}
	for _, numbers := range texts {
		var whole, pieces strings.Builder
		for _, i := range numbers {
			_, text, _ := delta(lines[i])
			whole.WriteString(text)
			pieces.WriteString(s.clean(text))
		}
		clean := s.clean(whole.String())
		if clean == pieces.String() {
			continue
		}
		for _, i := range numbers {
			lines[i] = withDelta(lines[i], clean)
			clean = ""
		}
	}
	for i, line := range lines {
		lines[i] = s.clean(line)
	}
	return strings.Join(lines, "")
}

// delta is the piece of text in a line of a stream, with a key that is the same
// for all pieces of one text.
func delta(line string) (key, text string, ok bool) {
	data, ok := strings.CutPrefix(line, "data:")
	var members map[string]json.RawMessage
	if !ok || json.Unmarshal([]byte(data), &members) != nil || json.Unmarshal(members["delta"], &text) != nil {
		return "", "", false
	}
	for _, name := range []string{"type", "output_index", "content_index", "summary_index"} {
		key += string(members[name]) + " "
	}
	return key, text, true
}

// withDelta is the line with another piece of text in it.
func withDelta(line, text string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(strings.TrimPrefix(line, "data:")), &members) != nil {
		return line
	}
	members["delta"], _ = json.Marshal(text) // a string cannot fail
	data, err := json.Marshal(members)
	if err != nil {
		return line
	}
	return "data: " + string(data) + "\n"
}
