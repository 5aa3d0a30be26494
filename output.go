package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/fnloop/fnloop/internal/strict"
)

// An Output is what the model reads in answer to a call.
type Output struct {
	// Text is sent as it is, cut to the loop's MaxOutput. A JSON document stays
	// valid JSON: its long strings and lists are cut in the middle.
	Text string
	// IsError says that Text tells of a failure. The model sees the text alone.
	IsError bool
	// Content, if not empty, is sent instead of Text: texts, images and files.
	// The texts share the loop's MaxOutput, the others its MaxMedia. A line of
	// text replaces what is left out.
	Content []Content
	// Truncated says that something was left out. It is for the host alone.
	Truncated bool
}

// A Content is one part of a prompt or an output: a text, an image or a file. Set
// Text, or one of the others; [ImageData], [FileData], [OpenContent] and their
// like make one of data and check it.
type Content struct {
	Text string `json:"text,omitempty"`
	// ImageURL is a web address or a data URL.
	ImageURL string `json:"image_url,omitempty"`
	// ImageID and FileID name what was uploaded before.
	ImageID string `json:"image_id,omitempty"`
	FileID  string `json:"file_id,omitempty"`
	// FileData is a data URL; it needs a FileName.
	FileData string `json:"file_data,omitempty"`
	FileName string `json:"file_name,omitempty"`
	FileURL  string `json:"file_url,omitempty"`
	// Detail is how finely the model looks at an image or a file: "low", "high"
	// or "auto", and for an image "original" too. Empty leaves it to the API.
	Detail string `json:"detail,omitempty"`
}

func (c Content) isImage() bool { return c.ImageURL != "" || c.ImageID != "" }
func (c Content) isFile() bool  { return c.FileID != "" || c.FileData != "" || c.FileURL != "" }

// check reports what the API would refuse.
func (o Output) check() error {
	for i, c := range o.Content {
		if err := c.check(); err != nil {
			return fmt.Errorf("part %d of the output: %w", i, err)
		}
	}
	return nil
}

func (c Content) check() error {
	set := 0
	for _, s := range []string{c.Text, c.ImageURL, c.ImageID, c.FileID, c.FileData, c.FileURL} {
		if s != "" {
			set++
		}
	}
	switch {
	case set > 1:
		return errors.New("it is more than one of a text, an image and a file")
	case c.FileData != "" && c.FileName == "":
		return errors.New("file data needs a file name")
	case c.FileName != "" && c.FileData == "":
		return errors.New("a file name needs file data")
	}
	switch c.Detail {
	case "":
	case "low", "high", "auto":
		if !c.isImage() && !c.isFile() {
			return errors.New("a detail needs an image or a file")
		}
	case "original":
		if !c.isImage() {
			return errors.New(`the detail "original" is for images alone`)
		}
	default:
		return fmt.Errorf(`the detail %q is none of "low", "high", "auto" and "original"`, c.Detail)
	}
	return nil
}

// limited is the output with texts that are valid UTF-8 and at most limit bytes
// together, and with images and files of at most media bytes.
func (o Output) limited(limit, media int) Output {
	var cut bool
	o.Text, cut = shortText(o.Text, limit)
	o.Truncated = o.Truncated || cut
	if len(o.Content) == 0 {
		return o
	}
	var sizes []int
	for _, c := range o.Content {
		if !c.isImage() && !c.isFile() {
			sizes = append(sizes, len(c.Text))
		}
	}
	const minText = 64 // of which a cut leaves anything
	share := max(fairShare(sizes, limit), minText)
	var parts []Content // new, since the handler may share its own
	var gone omission
	for _, c := range o.Content {
		switch n := c.size(); {
		case c.isImage() && n > media:
			gone.images, gone.imageBytes = gone.images+1, gone.imageBytes+n
			continue
		case c.isFile() && n > media:
			gone.files, gone.fileBytes = gone.files+1, gone.fileBytes+n
			continue
		case c.isImage() || c.isFile():
			media -= n
		default:
			if min(n, share) > limit {
				gone.texts, gone.textBytes = gone.texts+1, gone.textBytes+n
				continue
			}
			c.Text, cut = shortText(c.Text, min(share, limit))
			limit -= len(c.Text)
			o.Truncated = o.Truncated || cut
		}
		parts = append(gone.end(parts), c)
		o.Truncated = o.Truncated || len(parts) > 0 && gone != omission{}
		gone = omission{}
	}
	o.Truncated = o.Truncated || gone != omission{}
	o.Content = gone.end(parts)
	return o
}

// errorOutput is an output of the Loop's own.
func (s *settings) errorOutput(text string) Output {
	return Output{Text: text, IsError: true}.limited(s.maxOutput, s.maxMedia)
}

// size is how many bytes of a request the part takes.
func (c Content) size() int {
	return len(c.Text) + len(c.ImageURL) + len(c.ImageID) + len(c.FileID) + len(c.FileData) + len(c.FileURL)
}

// An omission counts parts of an output that are left out, one after the other.
type omission struct {
	texts, images, files             int
	textBytes, imageBytes, fileBytes int
}

// end adds the line that stands for them, if there are any.
func (o omission) end(parts []Content) []Content {
	var what []string
	for _, k := range []struct {
		n, bytes int
		name     string
	}{{o.texts, o.textBytes, "text"}, {o.images, o.imageBytes, "image"}, {o.files, o.fileBytes, "file"}} {
		switch {
		case k.n == 1:
			what = append(what, fmt.Sprintf("1 %s of %d bytes", k.name, k.bytes))
		case k.n > 1:
			what = append(what, fmt.Sprintf("%d %ss of %d bytes", k.n, k.name, k.bytes))
		}
	}
	if what == nil {
		return parts
	}
	return append(parts, Content{Text: "[left out: " + strings.Join(what, ", ") + "]"})
}

// A contentPart is a Content on the wire.
type contentPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
	FileID   string  `json:"file_id,omitempty"`
	FileData string  `json:"file_data,omitempty"`
	FileName string  `json:"filename,omitempty"`
	FileURL  string  `json:"file_url,omitempty"`
	Detail   string  `json:"detail,omitempty"`
}

func (c Content) part() contentPart {
	switch {
	case c.isImage():
		return contentPart{Type: "input_image", ImageURL: c.ImageURL, FileID: c.ImageID, Detail: c.Detail}
	case c.isFile():
		return contentPart{Type: "input_file", FileID: c.FileID, FileData: c.FileData, FileName: c.FileName, FileURL: c.FileURL, Detail: c.Detail}
	}
	return contentPart{Type: "input_text", Text: &c.Text}
}

// encodeOutput is what a handler's result is sent as. A result that is an Output
// keeps what it says to the model beside an error.
func encodeOutput(ctx context.Context, out any, err error) (Output, error) {
	switch out := out.(type) {
	case Output:
		return out, err
	case *Output:
		if out != nil {
			return *out, err
		}
	}
	if err != nil {
		return Output{}, err
	}
	switch out := out.(type) {
	case string:
		return Output{Text: out}, nil
	case json.RawMessage:
		return Output{Text: string(out)}, nil
	case Result:
		return out.output(ctx), nil
	case *Result:
		if out != nil {
			return out.output(ctx), nil
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return Output{Text: "the tool ran, but its result could not be encoded", IsError: true}, err
	}
	return Output{Text: string(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))}, nil
}

// maxOutput is the limit of the Loop that runs the handler with this context.
func maxOutput(ctx context.Context) int {
	if h := handlingOf(ctx); h != nil {
		return h.run.maxOutput
	}
	return DefaultMaxOutput
}

// checkEncodable refuses results that can never be encoded, such as a struct
// with a channel in it.
func checkEncodable(t reflect.Type) (err error) {
	defer func() {
		if recover() != nil { // a MarshalJSON that dislikes the zero value
			err = nil
		}
	}()
	t, ok := strict.Pointee(t)
	if !ok {
		return fmt.Errorf("%v is a pointer without end; return a string, a struct or an Output", t)
	}
	_, err = json.Marshal(reflect.Zero(t).Interface())
	if bad, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return fmt.Errorf("%v cannot be encoded as JSON; return a string, a struct or an Output", bad.Type)
	}
	return nil
}
