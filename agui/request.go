package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fnloop/fnloop"
)

// MaxRequest is how large a posted conversation may be, in bytes: it holds the
// pictures that the user has sent.
const MaxRequest = 64 << 20

// A Request is what is taken of what a front end posts.
type Request struct {
	// ThreadID is the front end's name for the conversation, and RunID that of
	// the run. Whether the user may see that conversation is for the host to
	// check.
	ThreadID, RunID string
	// Prompt and Parts are the user's last message; they are empty when the run
	// is to go on after an approval.
	Prompt string
	Parts  []fnloop.Content
	// Decisions are those on calls that wait for approval, by the call's ID. They
	// are the browser's word: [fnloop.Answer.Decide] refuses those that are on
	// no waiting call.
	Decisions map[string]fnloop.Decision
}

// contentPart has what is read of a part of a message.
type contentPart struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Source struct {
		Type     string `json:"type"`
		Value    string `json:"value"`
		MIMEType string `json:"mimeType"`
	} `json:"source"`
	Metadata struct {
		Filename string `json:"filename"`
	} `json:"metadata"`
}

// ReadRequest reads a RunAgentInput. A body that is too large is an error for which
// errors.As finds an [*http.MaxBytesError].
func ReadRequest(r *http.Request) (Request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxRequest))
	if err != nil {
		return Request{}, fmt.Errorf("agui: the request cannot be read: %w", err)
	}
	var posted struct {
		ThreadID string `json:"threadId"`
		RunID    string `json:"runId"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Resume []struct {
			InterruptID string          `json:"interruptId"`
			Status      string          `json:"status"`
			Payload     json.RawMessage `json:"payload"`
		} `json:"resume"`
	}
	if err := json.Unmarshal(body, &posted); err != nil {
		return Request{}, fmt.Errorf("agui: the request is no RunAgentInput: %w", err)
	}
	if posted.ThreadID == "" || posted.RunID == "" {
		return Request{}, errors.New("agui: threadId, runId: both are wanted")
	}
	req := Request{ThreadID: posted.ThreadID, RunID: posted.RunID}
	for i, entry := range posted.Resume {
		d, err := decision(entry.Status, entry.Payload)
		if err == nil && entry.InterruptID == "" {
			err = errors.New("interruptId is empty")
		}
		if _, twice := req.Decisions[entry.InterruptID]; err == nil && twice {
			err = errors.New("the interrupt is answered twice")
		}
		if err != nil {
			return Request{}, fmt.Errorf("agui: resume[%d]: %w", i, err)
		}
		if req.Decisions == nil {
			req.Decisions = make(map[string]fnloop.Decision)
		}
		req.Decisions[entry.InterruptID] = d
	}
	if len(req.Decisions) > 0 {
		return req, nil
	}
	if len(posted.Messages) == 0 || posted.Messages[len(posted.Messages)-1].Role != "user" {
		return Request{}, errors.New("agui: messages: the last one is not the user's, and resume has no answers")
	}
	if err := req.user(posted.Messages[len(posted.Messages)-1].Content); err != nil {
		return Request{}, err
	}
	return req, nil
}

// decision is the answer to an interrupt: approved only if it says so.
func decision(status string, payload json.RawMessage) (d fnloop.Decision, err error) {
	var p struct {
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	}
	if len(payload) > 0 {
		if err := json.Unmarshal(payload, &p); err != nil {
			return d, fmt.Errorf("payload: %w", err)
		}
	}
	switch {
	case status == "cancelled":
		return fnloop.Decision{Reason: p.Reason}, nil
	case status != "resolved":
		return d, fmt.Errorf("status is %.40q, want resolved or cancelled", status)
	case p.Approved == nil:
		return d, errors.New("payload: want approved, true or false")
	}
	return fnloop.Decision{Approve: *p.Approved, Reason: p.Reason}, nil
}

// user takes the user's message.
func (req *Request) user(content json.RawMessage) error {
	if json.Unmarshal(content, &req.Prompt) == nil {
		if req.Prompt == "" {
			return errors.New("agui: the user's message is empty")
		}
		return nil
	}
	var parts []contentPart
	if err := json.Unmarshal(content, &parts); err != nil {
		return fmt.Errorf("agui: the content of the user's message: %w", err)
	}
	var texts []string
	for i, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
			continue
		}
		url := p.Source.Value
		switch {
		case p.Source.Type == "data":
			url = "data:" + p.Source.MIMEType + ";base64," + url
		case p.Source.Type != "url" || !strings.HasPrefix(url, "https://"):
			return fmt.Errorf("agui: part %d of the message: source: want data, or a url with https", i)
		}
		name := p.Metadata.Filename
		if name == "" {
			name = "file"
		}
		switch {
		case p.Type == "image":
			req.Parts = append(req.Parts, fnloop.Content{ImageURL: url})
		case p.Type == "document" && p.Source.Type == "data":
			req.Parts = append(req.Parts, fnloop.Content{FileData: url, FileName: name})
		case p.Type == "document":
			req.Parts = append(req.Parts, fnloop.Content{FileURL: url})
		default:
			return fmt.Errorf("agui: part %d of the message: %.40q is not text, an image or a document", i, p.Type)
		}
	}
	req.Prompt = strings.Join(texts, "\n")
	if req.Prompt == "" && len(req.Parts) == 0 {
		return errors.New("agui: the user's message has neither text nor files")
	}
	return nil
}
