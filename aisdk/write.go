package aisdk

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/sse"
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
	if o.KeepAlive == 0 {
		o.KeepAlive = fnloop.DefaultKeepAlive
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = fnloop.DefaultWriteTimeout
	}
	w.Header().Set("X-Vercel-AI-UI-Message-Stream", "v1")
	out := sse.New(w, o.KeepAlive, o.WriteTimeout)
	defer out.End()
	enc := &encoder{options: o, started: make(map[string]bool)}
	enc.json = json.NewEncoder(&enc.buf)
	enc.json.SetEscapeHTML(false)
	enc.begin()
	var runErr, eventErr error
	cancelled := false
	for e, err := range events {
		if err != nil {
			runErr = err
		}
		if done, ok := e.(fnloop.Done); ok && done.Answer != nil {
			cancelled = done.Answer.Stop == fnloop.StopCancelled
		}
		if e != nil && !out.Gone() {
			if err := enc.event(e, err != nil); err != nil && eventErr == nil {
				eventErr = err
			}
		}
		if enc.buf.Len() > 0 {
			out.Write(enc.buf.Bytes())
			enc.buf.Reset()
		}
	}
	enc.end(runErr)
	out.Write(enc.buf.Bytes())
	if runErr != nil && !cancelled {
		return runErr
	}
	return eventErr
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

// put writes a chunk as a frame.
func (enc *encoder) put(c chunk) {
	enc.buf.WriteString("data: ")
	if err := enc.json.Encode(c); err != nil && enc.err == nil { // metadata of the caller's
		enc.err = err
	}
	enc.buf.WriteByte('\n')
}

// An encoder makes the frames of a stream. The browser refuses one whose parts do
// not begin and end in order, so it knows what is open.
type encoder struct {
	options Options
	buf     bytes.Buffer
	json    *json.Encoder // to buf
	err     error

	request int
	inStep  bool
	open    string          // the ID of the text or reasoning that is open
	kind    string          // "text" or "reasoning", of open
	started map[string]bool // calls that the browser knows; true once it has their input
	sources int
	done    bool
}
