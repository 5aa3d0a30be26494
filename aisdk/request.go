package aisdk

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
	// ChatID is the front end's name for the conversation. Whether the user may
	// see that conversation is for the host to check.
	ChatID string
	// Trigger is "submit-message", or "regenerate-message" for another answer to
	// the last prompt. MessageID is the message that is meant then, if any.
	Trigger, MessageID string
	// Prompt and Parts are the user's last message, if that is what was posted.
	Prompt string
	Parts  []fnloop.Content
	// Decisions are those on calls that wait for approval, by the call's ID. They
	// are the browser's word: [fnloop.Answer.Decide] refuses those that are on
	// no waiting call.
	Decisions map[string]fnloop.Decision
}

// message has what is read of a message.
type message struct {
	Role  string `json:"role"`
	Parts []struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		URL        string `json:"url"`
		MediaType  string `json:"mediaType"`
		Filename   string `json:"filename"`
		ToolCallID string `json:"toolCallId"`
		State      string `json:"state"`
		Approval   *struct {
			ID       string `json:"id"`
			Approved *bool  `json:"approved"`
			Reason   string `json:"reason"`
		} `json:"approval"`
	} `json:"parts"`
}

// ReadRequest reads what useChat posts. A body that is too large is an error for
// which errors.As finds an [*http.MaxBytesError].
func ReadRequest(r *http.Request) (Request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxRequest))
	if err != nil {
		return Request{}, fmt.Errorf("aisdk: the request cannot be read: %w", err)
	}
	var posted struct {
		ID        string    `json:"id"`
		Trigger   string    `json:"trigger"`
		MessageID string    `json:"messageId"`
		Messages  []message `json:"messages"`
	}
	if err := json.Unmarshal(body, &posted); err != nil {
		return Request{}, fmt.Errorf("aisdk: the request is not what a chat of the AI SDK posts: %w", err)
	}
	if posted.ID == "" {
		return Request{}, errors.New("aisdk: id: the request names no chat")
	}
	if len(posted.Messages) == 0 {
		return Request{}, errors.New("aisdk: messages: the request has none")
	}
	req := Request{ChatID: posted.ID, Trigger: posted.Trigger, MessageID: posted.MessageID}
	switch last := posted.Messages[len(posted.Messages)-1]; last.Role {
	case "user":
		err = req.user(last)
	case "assistant":
		err = req.decide(last)
	default:
		err = fmt.Errorf("aisdk: messages: the last one is of role %.40q, want user or assistant", last.Role)
	}
	if err != nil {
		return Request{}, err
	}
	return req, nil
}

// user takes the user's message.
func (req *Request) user(m message) error {
	var texts []string
	for i, p := range m.Parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "file":
			if !strings.HasPrefix(p.URL, "data:") && !strings.HasPrefix(p.URL, "https://") {
				return fmt.Errorf("aisdk: part %d of the message: url: want a data URL or https", i)
			}
			switch {
			case strings.HasPrefix(p.MediaType, "image/"):
				req.Parts = append(req.Parts, fnloop.Content{ImageURL: p.URL})
			case strings.HasPrefix(p.URL, "https://"):
				req.Parts = append(req.Parts, fnloop.Content{FileURL: p.URL})
			default:
				name := p.Filename
				if name == "" {
					name = "file"
				}
				req.Parts = append(req.Parts, fnloop.Content{FileData: p.URL, FileName: name})
			}
		}
	}
	req.Prompt = strings.Join(texts, "\n")
	if req.Prompt == "" && len(req.Parts) == 0 {
		return errors.New("aisdk: the user's message has neither text nor files")
	}
	return nil
}

// decide takes the decisions out of the message that asked for them. Nothing else
// in it counts, as the browser could have changed it.
func (req *Request) decide(m message) error {
	for i, p := range m.Parts {
		if p.State != "approval-responded" || p.Approval == nil {
			continue
		}
		if p.Approval.Approved == nil || p.Approval.ID == "" {
			return fmt.Errorf("aisdk: part %d of the message: approval: want an id, and approved true or false", i)
		}
		if req.Decisions == nil {
			req.Decisions = make(map[string]fnloop.Decision)
		}
		if _, twice := req.Decisions[p.Approval.ID]; twice {
			return fmt.Errorf("aisdk: part %d of the message: approval %.80q is answered twice", i, p.Approval.ID)
		}
		req.Decisions[p.Approval.ID] = fnloop.Decision{Approve: *p.Approval.Approved, Reason: p.Approval.Reason}
	}
	return nil
}
