package aisdk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fnloop/fnloop"
)

func (enc *encoder) begin() { enc.Put(chunk{Type: "start", MessageID: enc.options.MessageID}) }

// End ends a stream whose events ended, also without a Done.
func (enc *encoder) End(err error) {
	if !enc.done {
		enc.close()
		if err != nil {
			text := "the run failed"
			enc.Put(chunk{Type: "error", ErrorText: &text})
		}
		enc.Put(chunk{Type: "finish", FinishReason: "error"})
	}
	enc.Raw("[DONE]")
}

// Event writes what an event is in the stream. The error is one of the event's.
func (enc *encoder) Event(e fnloop.Event, failed bool) error {
	shown := enc.options.View.Event(e)
	if shown == nil {
		return nil
	}
	switch e := shown.(type) {
	case fnloop.RequestStarted:
		enc.close()
		enc.request, enc.inStep = e.Request, true
		enc.Put(chunk{Type: "start-step"})
	case fnloop.TextDelta:
		var meta map[string]any
		if e.Phase != "" || e.Refusal {
			meta = map[string]any{"fnloop": map[string]any{"phase": e.Phase, "refusal": e.Refusal}}
		}
		enc.delta("text", fmt.Sprintf("text-%d-%d", enc.request, e.Item), e.Text, meta)
	case fnloop.ReasoningDelta:
		enc.delta("reasoning", fmt.Sprintf("reasoning-%d-%d-%d", enc.request, e.Item, e.Part), e.Text, nil)
	case fnloop.CallAnnounced:
		enc.announce(e.ID, e.Name)
	case fnloop.CallDelta:
		if known, there := enc.started[e.ID]; there && !known {
			enc.Put(chunk{Type: "tool-input-delta", ToolCallID: e.ID, InputTextDelta: &e.Text})
		}
	case fnloop.ApprovalRequested:
		enc.input(e.Call)
	case fnloop.CallStarted:
		enc.input(e.Call)
	case fnloop.CallFinished:
		enc.finished(e)
	case fnloop.HostedStarted:
		enc.hosted(e.HostedCall)
	case fnloop.HostedFinished:
		enc.hosted(e.HostedCall)
		out, err := json.Marshal(e.HostedCall)
		if err != nil {
			return err
		}
		enc.Put(chunk{Type: "tool-output-available", ToolCallID: e.ID, Output: out, ProviderExecuted: true, Dynamic: true})
	case fnloop.CitationAdded:
		enc.citation(e.Citation)
	case fnloop.FileAdded:
		return enc.file(e)
	case fnloop.ResponseFinished:
		enc.closePart()
	case fnloop.Done:
		enc.finish(e, failed)
	case fnloop.CallOutput, fnloop.HostedProgress, fnloop.Retry, fnloop.CallEvent:
		return enc.data(shown, true)
	default:
		return enc.data(shown, false)
	}
	return enc.Err()
}

// delta adds to a text or reasoning, and begins it if it is a new one.
func (enc *encoder) delta(kind, id, text string, meta map[string]any) {
	if enc.open != id {
		enc.closePart()
		enc.Put(chunk{Type: kind + "-start", ID: id, ProviderMetadata: meta})
		enc.open, enc.kind = id, kind
	}
	enc.Put(chunk{Type: kind + "-delta", ID: id, Delta: &text})
}

// closePart ends the text or reasoning that is open.
func (enc *encoder) closePart() {
	if enc.open != "" {
		enc.Put(chunk{Type: enc.kind + "-end", ID: enc.open})
		enc.open = ""
	}
}

// close ends the step: the response, and the round of calls that followed it.
func (enc *encoder) close() {
	enc.closePart()
	if enc.inStep {
		enc.Put(chunk{Type: "finish-step"})
		enc.inStep = false
	}
}

// announce lets the browser know a call.
func (enc *encoder) announce(id, name string) {
	if _, there := enc.started[id]; there {
		return
	}
	enc.closePart()
	enc.started[id] = false
	enc.Put(chunk{Type: "tool-input-start", ToolCallID: id, ToolName: name, Dynamic: true})
}

// input gives the browser the arguments of a call, once.
func (enc *encoder) input(c fnloop.Call) {
	if enc.started[c.ID] {
		return
	}
	enc.closePart()
	enc.started[c.ID] = true
	enc.Put(chunk{Type: "tool-input-available", ToolCallID: c.ID, ToolName: c.Name, Input: value(c.Arguments), Dynamic: true})
}

// value is text as JSON: what is JSON stays so, and anything else is a string.
func value(text []byte) json.RawMessage {
	if trimmed := bytes.TrimSpace(text); json.Valid(trimmed) {
		return trimmed
	}
	out, _ := json.Marshal(string(text)) // a string cannot fail
	return out
}

func (enc *encoder) finished(e fnloop.CallFinished) {
	enc.closePart()
	if !enc.started[e.ID] { // it was rejected: nothing else finishes without having started
		enc.Put(chunk{Type: "tool-output-denied", ToolCallID: e.ID})
		return
	}
	if e.IsError {
		text := e.Text
		if text == "" {
			text = "the call failed"
		}
		enc.Put(chunk{Type: "tool-output-error", ToolCallID: e.ID, ErrorText: &text, Dynamic: true})
		return
	}
	out := json.RawMessage("null")
	if enc.options.View.Outputs || enc.options.View.All {
		out = value([]byte(e.Text))
	}
	enc.Put(chunk{Type: "tool-output-available", ToolCallID: e.ID, Output: out, Dynamic: true})
}

// hosted lets the browser know a call of a tool that the API runs.
func (enc *encoder) hosted(c fnloop.HostedCall) {
	if enc.started[c.ID] {
		return
	}
	enc.closePart()
	enc.started[c.ID] = true
	name := c.Kind
	if c.Name != "" {
		name = c.Name
	}
	enc.Put(chunk{Type: "tool-input-available", ToolCallID: c.ID, ToolName: name, Input: json.RawMessage("{}"), ProviderExecuted: true, Dynamic: true})
}

func (enc *encoder) citation(c fnloop.Citation) {
	enc.sources++
	id := "source-" + strconv.Itoa(enc.sources)
	meta := map[string]any{"fnloop": map[string]any{"start": c.Start, "end": c.End}}
	if c.URL != "" {
		enc.Put(chunk{Type: "source-url", SourceID: id, URL: c.URL, Title: c.Title, ProviderMetadata: meta})
		return
	}
	title := c.Title
	for _, s := range []string{c.FileName, c.FileID, c.Kind} {
		if title == "" {
			title = s
		}
	}
	enc.Put(chunk{Type: "source-document", SourceID: id, MediaType: "application/octet-stream", Title: title, Filename: c.FileName, ProviderMetadata: meta})
}

func (enc *encoder) file(e fnloop.FileAdded) error {
	mime := e.MediaType
	if mime == "" {
		mime = "application/octet-stream"
	}
	switch {
	case e.URL != "":
		enc.Put(chunk{Type: "file", URL: e.URL, MediaType: mime})
	case len(e.Data) > 0:
		enc.Put(chunk{Type: "file", URL: "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(e.Data), MediaType: mime})
	default: // only the host can fetch it
		return enc.data(e, false)
	}
	return nil
}

// data writes an event for which the stream has no form of its own as a data part,
// with the event's JSON. A transient one is not kept in the message.
func (enc *encoder) data(e fnloop.Event, transient bool) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("aisdk: event %s: %w", e.Type(), err)
	}
	enc.Put(chunk{Type: "data-" + e.Type(), Data: data, Transient: transient})
	return nil
}

// finishReasons are those of the stream for the ends of a run that are no failure.
var finishReasons = map[fnloop.StopReason]string{
	fnloop.StopAnswered:  "stop",
	fnloop.StopRefused:   "content-filter",
	fnloop.StopFiltered:  "content-filter",
	fnloop.StopTruncated: "length",
	fnloop.StopApproval:  "tool-calls",
}

func (enc *encoder) finish(e fnloop.Done, failed bool) {
	enc.done = true
	a := e.Answer
	if a == nil {
		a = &fnloop.Answer{Stop: fnloop.StopFailed}
	}
	enc.closePart()
	for _, c := range a.Pending { // a view has only those that wait for approval
		if enc.options.View.All && !c.Waiting() {
			continue
		}
		enc.input(c)
		enc.Put(chunk{Type: "tool-approval-request", ApprovalID: c.ID, ToolCallID: c.ID})
	}
	enc.close()
	reason := finishReasons[a.Stop]
	switch {
	case a.Stop == fnloop.StopCancelled:
		enc.Put(chunk{Type: "abort", Reason: a.Cause})
		return
	case reason == "" && failed:
		reason = "error"
		text := string(a.Stop)
		enc.Put(chunk{Type: "error", ErrorText: &text})
	case reason == "":
		reason = "other"
	}
	var meta any = map[string]any{"stop": a.Stop, "usage": a.Usage}
	if enc.options.Metadata != nil {
		meta = enc.options.Metadata(a)
	}
	enc.Put(chunk{Type: "finish", FinishReason: reason, MessageMetadata: meta})
}
