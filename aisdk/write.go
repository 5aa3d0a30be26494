package aisdk

import (
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/uistream"
)

// Options are the settings of [Write]. The zero value is good for use.
type Options struct {
	// MessageID is that of the message which the stream makes. Empty lets the
	// browser choose one, and is right for a run that goes on after an approval:
	// the browser then adds to the message that asked for it.
	MessageID string
	// View is what the browser is sent of each event.
	View fnloop.View
	// Metadata, if not nil, gives the metadata of the message when the run has
	// ended. Without it they are its usage and stop reason.
	Metadata func(*fnloop.Answer) any
	// KeepAlive and WriteTimeout are as in [fnloop.SSE].
	KeepAlive, WriteTimeout time.Duration
}

// Write sends the events of a run as a UI message stream. It reads them to the end
// whatever the browser does, and returns the run's error unless the caller has
// cancelled the run, as [fnloop.SSE.Write] does.
func Write(w http.ResponseWriter, events iter.Seq2[fnloop.Event, error], o Options) error {
	w.Header().Set("X-Vercel-AI-UI-Message-Stream", "v1")
	enc := &encoder{options: o, started: make(map[string]bool)}
	enc.begin()
	return uistream.Write(w, events, fnloop.SSE{KeepAlive: o.KeepAlive, WriteTimeout: o.WriteTimeout}, &enc.Frames, enc)
}

// A chunk is one element of the stream. Members that are empty are left out, but
// those that a type must have are pointers.
type chunk struct {
	Type             string          `json:"type"`
	ID               string          `json:"id,omitempty"`
	MessageID        string          `json:"messageId,omitempty"`
	Delta            *string         `json:"delta,omitempty"`
	ToolCallID       string          `json:"toolCallId,omitempty"`
	ToolName         string          `json:"toolName,omitempty"`
	InputTextDelta   *string         `json:"inputTextDelta,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        *string         `json:"errorText,omitempty"`
	ApprovalID       string          `json:"approvalId,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	Dynamic          bool            `json:"dynamic,omitempty"`
	SourceID         string          `json:"sourceId,omitempty"`
	URL              string          `json:"url,omitempty"`
	Title            string          `json:"title,omitempty"`
	Filename         string          `json:"filename,omitempty"`
	MediaType        string          `json:"mediaType,omitempty"`
	Data             json.RawMessage `json:"data,omitempty"`
	Transient        bool            `json:"transient,omitempty"`
	Reason           string          `json:"reason,omitempty"`
	FinishReason     string          `json:"finishReason,omitempty"`
	MessageMetadata  any             `json:"messageMetadata,omitempty"`
	ProviderMetadata map[string]any  `json:"providerMetadata,omitempty"`
}

// An encoder makes the frames of a stream. The browser refuses one whose parts do
// not begin and end in order, so it knows what is open.
type encoder struct {
	uistream.Frames
	options Options

	request int
	inStep  bool
	open    string          // the ID of the text or reasoning that is open
	kind    string          // "text" or "reasoning", of open
	started map[string]bool // calls that the browser knows; true once it has their input
	sources int
	done    bool
}
