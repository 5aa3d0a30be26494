package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// An Output is what the model reads in answer to a call.
type Output struct {
	// Text is sent as it is, cut to the loop's MaxOutput.
	Text string
	// IsError says that Text tells of a failure. The model sees the text alone.
	IsError bool
	// Content, if not empty, is sent instead of Text: texts, images and files.
	Content []Content
	// Truncated says that Text is not all there was. It is for the host alone.
	Truncated bool
}

// A Content is one part of an output: a text, an image or a file. Set Text, or
// one of the others.
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
// together.
func (o Output) limited(limit int) Output {
	o.Truncated = o.Truncated || len(o.Text) > limit
	o.Text = limitText(o.Text, limit)
	o.Content = slices.Clone(o.Content) // the handler may share it
	for i := range o.Content {
		c := &o.Content[i]
		o.Truncated = o.Truncated || len(c.Text) > limit
		c.Text = limitText(c.Text, limit)
		limit -= len(c.Text)
	}
	return o
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

func encodeOutput(out any) (Output, error) {
	switch out := out.(type) {
	case Output:
		return out, nil
	case *Output:
		if out != nil {
			return *out, nil
		}
	case string:
		return Output{Text: out}, nil
	case json.RawMessage:
		return Output{Text: string(out)}, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return Output{Text: "the tool ran, but its result could not be encoded", IsError: true}, err
	}
	return Output{Text: string(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))}, nil
}

// checkEncodable refuses results that can never be encoded, such as a struct
// with a channel in it.
func checkEncodable(t reflect.Type) (err error) {
	defer func() {
		if recover() != nil { // a MarshalJSON that dislikes the zero value
			err = nil
		}
	}()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, err = json.Marshal(reflect.Zero(t).Interface())
	if bad, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return fmt.Errorf("%v cannot be encoded as JSON; return a string, a struct or an Output", bad.Type)
	}
	return nil
}
