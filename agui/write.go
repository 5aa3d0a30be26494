package agui

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/uistream"
)

// Options are the settings of [Write].
type Options struct {
	// ThreadID and RunID are those of the [Request].
	ThreadID, RunID string
	// View is what the browser is sent of each event.
	View fnloop.View
	// KeepAlive and WriteTimeout are as in [fnloop.SSE].
	KeepAlive, WriteTimeout time.Duration
}

// Write sends the events of a run as AG-UI events. It reads them to the end
// whatever the browser does, and returns the run's error unless the caller has
// cancelled the run, as [fnloop.SSE.Write] does.
func Write(w http.ResponseWriter, events iter.Seq2[fnloop.Event, error], o Options) error {
	enc := &encoder{options: o, calls: make(map[string]callState)}
	enc.Put(event{Type: "RUN_STARTED", ThreadID: o.ThreadID, RunID: o.RunID})
	return uistream.Write(w, events, fnloop.SSE{KeepAlive: o.KeepAlive, WriteTimeout: o.WriteTimeout}, &enc.Frames, enc)
}

// An event is one of AG-UI's. Members that are empty are left out, but those that a
// type must have are pointers.
type event struct {
	Type         string          `json:"type"`
	ThreadID     string          `json:"threadId,omitempty"`
	RunID        string          `json:"runId,omitempty"`
	StepName     string          `json:"stepName,omitempty"`
	MessageID    string          `json:"messageId,omitempty"`
	Role         string          `json:"role,omitempty"`
	Delta        string          `json:"delta,omitempty"`
	ToolCallID   string          `json:"toolCallId,omitempty"`
	ToolCallName string          `json:"toolCallName,omitempty"`
	Content      *string         `json:"content,omitempty"`
	Name         string          `json:"name,omitempty"`
	Value        json.RawMessage `json:"value,omitempty"`
	Outcome      *outcome        `json:"outcome,omitempty"`
	Usage        []usage         `json:"usage,omitempty"`
	Message      *string         `json:"message,omitempty"`
	Code         string          `json:"code,omitempty"`
	Metadata     map[string]any  `json:"metadata,omitempty"`
}

type outcome struct {
	Type       string      `json:"type"`
	Interrupts []interrupt `json:"interrupts,omitempty"`
}

type interrupt struct {
	ID             string          `json:"id"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message,omitempty"`
	ToolCallID     string          `json:"toolCallId,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"`
}

type usage struct {
	Model                 string `json:"model,omitempty"`
	InputTokens           int64  `json:"inputTokens"`
	OutputTokens          int64  `json:"outputTokens"`
	TotalTokens           int64  `json:"totalTokens"`
	ReasoningTokens       int64  `json:"reasoningTokens"`
	CachedInputTokens     int64  `json:"cachedInputTokens"`
	CacheWriteInputTokens int64  `json:"cacheWriteInputTokens"`
}

// decisionSchema is what a front end answers to an interrupt with.
const decisionSchema = `{"type":"object","properties":{"approved":{"type":"boolean"},"reason":{"type":"string"}},"required":["approved"]}`

func text(s string) *string { return &s }

// A callState is how much the browser knows of a call.
type callState struct {
	open bool // TOOL_CALL_START was sent, and no TOOL_CALL_END
	args bool // some of its arguments were sent
}

// An encoder makes the events of a run. The browser refuses a run that ends while
// something is open, so it knows what is.
type encoder struct {
	uistream.Frames
	options Options

	request int
	step    string // that is open, or empty
	message string // the ID of the text or reasoning that is open, or empty
	kind    string // "TEXT_MESSAGE" or "REASONING_MESSAGE", of message
	calls   map[string]callState
	order   []string // of the calls
	done    bool
}

// id names a message: the names of a run's messages must differ from those of the
// other runs of its thread.
func (enc *encoder) id(kind string, item, part int) string {
	return fmt.Sprintf("%s-%s-%d-%d-%d", enc.options.RunID, kind, enc.request, item, part)
}

// End ends a run whose events ended without a Done.
func (enc *encoder) End(error) {
	if !enc.done {
		enc.Put(event{Type: "RUN_ERROR", Message: text("the run has no end")})
	}
}

// Event writes what an event is in AG-UI. The error is one of the event's.
func (enc *encoder) Event(e fnloop.Event, failed bool) error {
	shown := enc.options.View.Event(e)
	if shown == nil || enc.done {
		return nil
	}
	switch e := shown.(type) {
	case fnloop.RequestStarted:
		enc.closeStep()
		enc.request, enc.step = e.Request, fmt.Sprintf("request %d", e.Request)
		enc.Put(event{Type: "STEP_STARTED", StepName: enc.step})
	case fnloop.TextDelta:
		enc.delta("TEXT_MESSAGE", "assistant", enc.id("text", e.Item, 0), e.Text)
	case fnloop.ReasoningDelta:
		enc.delta("REASONING_MESSAGE", "reasoning", enc.id("reasoning", e.Item, e.Part), e.Text)
	case fnloop.CallAnnounced:
		enc.announce(e.ID, e.Name)
	case fnloop.CallDelta:
		if c := enc.calls[e.ID]; c.open && e.Text != "" {
			enc.calls[e.ID] = callState{open: true, args: true}
			enc.Put(event{Type: "TOOL_CALL_ARGS", ToolCallID: e.ID, Delta: e.Text})
		}
	case fnloop.ApprovalRequested:
		enc.input(e.Call)
	case fnloop.CallStarted:
		enc.input(e.Call)
	case fnloop.CallFinished:
		enc.finished(e)
	case fnloop.ResponseFinished:
		enc.closeMessage()
	case fnloop.Done:
		enc.finish(e, failed)
	default: // hosted tools, retries, citations, files and what tools show
		value, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("agui: event %s: %w", e.Type(), err)
		}
		enc.Put(event{Type: "CUSTOM", Name: e.Type(), Value: value})
	}
	return enc.Err()
}

func (enc *encoder) delta(kind, role, id, delta string) {
	if delta == "" {
		return
	}
	if enc.message != id {
		enc.closeMessage()
		if kind == "REASONING_MESSAGE" {
			enc.Put(event{Type: "REASONING_START", MessageID: id})
		}
		enc.Put(event{Type: kind + "_START", MessageID: id, Role: role})
		enc.message, enc.kind = id, kind
	}
	enc.Put(event{Type: kind + "_CONTENT", MessageID: id, Delta: delta})
}

func (enc *encoder) closeMessage() {
	if enc.message == "" {
		return
	}
	enc.Put(event{Type: enc.kind + "_END", MessageID: enc.message})
	if enc.kind == "REASONING_MESSAGE" {
		enc.Put(event{Type: "REASONING_END", MessageID: enc.message})
	}
	enc.message = ""
}

// closeStep ends what is open of a response and the round that followed it.
func (enc *encoder) closeStep() {
	enc.closeMessage()
	for _, id := range enc.order {
		enc.endCall(id)
	}
	if enc.step != "" {
		enc.Put(event{Type: "STEP_FINISHED", StepName: enc.step})
		enc.step = ""
	}
}

func (enc *encoder) endCall(id string) {
	if enc.calls[id].open {
		enc.calls[id] = callState{args: true}
		enc.Put(event{Type: "TOOL_CALL_END", ToolCallID: id})
	}
}

func (enc *encoder) announce(id, name string) {
	if _, there := enc.calls[id]; there {
		return
	}
	enc.closeMessage()
	enc.calls[id] = callState{open: true}
	enc.order = append(enc.order, id)
	enc.Put(event{Type: "TOOL_CALL_START", ToolCallID: id, ToolCallName: name})
}

// input gives the browser the arguments of a call, once, and ends the call.
func (enc *encoder) input(c fnloop.Call) {
	enc.announce(c.ID, c.Name)
	state := enc.calls[c.ID]
	if state.open && !state.args && len(c.Arguments) > 0 {
		enc.Put(event{Type: "TOOL_CALL_ARGS", ToolCallID: c.ID, Delta: string(c.Arguments)})
	}
	enc.endCall(c.ID)
}

func (enc *encoder) finished(e fnloop.CallFinished) {
	enc.closeMessage()
	content := e.Text
	if content == "" && e.IsError {
		content = "the call failed"
	}
	enc.Put(event{Type: "TOOL_CALL_RESULT", MessageID: enc.options.RunID + "-result-" + e.ID, ToolCallID: e.ID, Content: &content, Role: "tool"})
}

// ends are the ends of a run that are no failure.
var ends = []fnloop.StopReason{fnloop.StopAnswered, fnloop.StopRefused, fnloop.StopTruncated, fnloop.StopFiltered}

func (enc *encoder) finish(e fnloop.Done, failed bool) {
	enc.done = true
	a := e.Answer
	if a == nil {
		a = &fnloop.Answer{Stop: fnloop.StopFailed}
	}
	used := []usage{{
		Model: a.Model, InputTokens: a.Usage.InputTokens, OutputTokens: a.Usage.OutputTokens, TotalTokens: a.Usage.TotalTokens,
		ReasoningTokens: a.Usage.ReasoningTokens, CachedInputTokens: a.Usage.CachedTokens, CacheWriteInputTokens: a.Usage.CacheWriteTokens,
	}}
	var waiting []interrupt
	for _, c := range a.Pending { // a view has only those that wait for approval
		if enc.options.View.All && !c.Waiting() {
			continue
		}
		enc.input(c)
		waiting = append(waiting, interrupt{ID: c.ID, Reason: "approval", Message: "May " + c.Name + " be called?", ToolCallID: c.ID, ResponseSchema: json.RawMessage(decisionSchema)})
	}
	enc.closeStep()
	out := &outcome{Type: "success"}
	switch {
	case len(waiting) > 0:
		out = &outcome{Type: "interrupt", Interrupts: waiting}
	case a.Stop == fnloop.StopCancelled:
		out.Type = "cancelled"
	case failed && !slices.Contains(ends, a.Stop):
		enc.Put(event{Type: "RUN_ERROR", Message: text(string(a.Stop)), Code: string(a.Stop), Usage: used})
		return
	}
	enc.Put(event{Type: "RUN_FINISHED", ThreadID: enc.options.ThreadID, RunID: enc.options.RunID, Outcome: out, Usage: used})
}
