package chatstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// A Message is what an owner sends to a chat: a text, files, or both, decisions on
// calls that wait for approval, or nothing to go on where a run was cut short.
type Message struct {
	// Version is that of the chat as the owner has seen it.
	Version int64
	// Parent is the run that the message follows, empty for the first: the chat's
	// Head, or an earlier run to edit the message that followed it.
	Parent string
	// Text is at most MaxText bytes.
	Text string
	// Files are pictures, which the model is shown, and other files, which are put
	// into the work folder of the interpreter.
	Files []File
	// Parts are images and files for the model that come from elsewhere, such as
	// those that packages aisdk and agui read. They are kept with the conversation
	// and not as files of the chat.
	Parts []fnloop.Content
	// Decisions are by the IDs of the calls; see [fnloop.Answer.Decide].
	Decisions map[string]fnloop.Decision
}

// MaxText is the size of the longest text of a message, in bytes. A service refuses
// what is far beyond its model's context, and would again with each later message.
const MaxText = 1 << 20

// MaxForm is the size of the largest form that [ReadForm] reads, in bytes.
const MaxForm = 32 << 20

// ReadForm reads the Message that a page posts as multipart/form-data, in the
// fields version, parent, text, decisions, as JSON, and any number of file. A form
// that is too large is an [*http.MaxBytesError], one that is wrong an
// [*InputError].
func ReadForm(w http.ResponseWriter, r *http.Request) (Message, error) {
	r.Body = http.MaxBytesReader(w, r.Body, MaxForm)
	if err := r.ParseMultipartForm(4 << 20); err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return Message{}, large
		}
		return Message{}, &InputError{"form", fmt.Sprintf("The message is no multipart form: %v.", err)}
	}
	defer r.MultipartForm.RemoveAll()
	m := Message{Parent: r.FormValue("parent"), Text: r.FormValue("text")}
	var err error
	if m.Version, err = strconv.ParseInt(r.FormValue("version"), 10, 64); err != nil {
		return Message{}, &InputError{"version", fmt.Sprintf("The version is %.40q, not the number that the chat has.", r.FormValue("version"))}
	}
	if decisions := r.FormValue("decisions"); decisions != "" {
		if err := json.Unmarshal([]byte(decisions), &m.Decisions); err != nil || len(m.Decisions) == 0 {
			return Message{}, &InputError{"decisions", `The decisions are not JSON like {"call": {"approve": true}}.`}
		}
	}
	for _, h := range r.MultipartForm.File["file"] {
		data, err := readPart(h)
		if err != nil {
			return Message{}, fmt.Errorf("chatstore: file: %w", err)
		}
		m.Files = append(m.Files, File{Name: h.Filename, Data: data})
	}
	return m, nil
}

func readPart(h *multipart.FileHeader) ([]byte, error) {
	f, err := h.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// A Prompt is what is kept of a message, for a page to show.
type Prompt struct {
	Text string `json:"text"`
	// Files are names in the work folder, and Pictures those of pictures that the
	// model was shown. Both are files of the chat.
	Files    []string `json:"files,omitempty"`
	Pictures []string `json:"pictures,omitempty"`
}

// title is how a message begins.
func (p Prompt) title() string {
	const most = 60
	text, _, _ := strings.Cut(p.Text, "\n")
	if text == "" {
		return "Files"
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// shown are the ends of the names of pictures that models are shown. Others are
// files for code.
var shown = []string{".png", ".jpg", ".jpeg", ".gif", ".webp"}

// accept takes the text and the files of a message: it gives the files as they are
// kept, and puts the prompt into the run.
func (r *Run) accept(m Message) ([]File, error) {
	r.Prompt.Text = strings.TrimSpace(clean(m.Text))
	if len(r.Prompt.Text) > MaxText {
		return nil, &InputError{"text", fmt.Sprintf("The text has more than %s. Send it as a file.", size(MaxText))}
	}
	var files []File
	parts := slices.Clone(m.Parts)
	for i, f := range m.Files {
		f.Name = path.Base(strings.ReplaceAll(f.Name, `\`, "/")) // some browsers send the folder too
		if err := r.store.checkFile(f); err != nil {
			return nil, err
		}
		suffix := strings.ToLower(path.Ext(f.Name))
		if !slices.Contains(shown, suffix) {
			if slices.Contains(r.Prompt.Files, f.Name) {
				return nil, &InputError{"file", fmt.Sprintf("Two files are named %s.", f.Name)}
			}
			r.Prompt.Files = append(r.Prompt.Files, f.Name)
			files = append(files, f)
			continue
		}
		part, err := fnloop.ImageData(f.Data)
		if err != nil {
			return nil, &InputError{"file", fmt.Sprintf("The picture %s cannot be sent: %s.", f.Name, strings.TrimPrefix(err.Error(), "fnloop: "))}
		}
		f.Name, f.picture = fmt.Sprintf("%s-%d%s", r.ID, i, suffix), true
		r.Prompt.Pictures = append(r.Prompt.Pictures, f.Name)
		files, parts = append(files, f), append(parts, part)
	}
	text := r.Prompt.Text
	if len(r.Prompt.Files) > 0 {
		text = strings.TrimSpace(text + "\n\nUploaded to the work folder: " + strings.Join(r.Prompt.Files, ", "))
	}
	r.Answer.AddPrompt(text, parts...)
	return files, nil
}

func (s *Store) checkFile(f File) error {
	most := limit(s.MaxFile, DefaultMaxFile)
	if err := interpreter.CheckName(f.Name); err != nil || strings.HasPrefix(f.Name, ".") || f.Name != clean(f.Name) {
		return &InputError{"file", fmt.Sprintf("The file %q cannot be taken: it needs a plain name.", f.Name)}
	}
	if int64(len(f.Data)) > most {
		return &InputError{"file", fmt.Sprintf("The file %s cannot be taken: it may have at most %s.", f.Name, size(most))}
	}
	return nil
}
