package fnloop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Type returns "request_started".
func (RequestStarted) Type() string { return "request_started" }

// Type returns "retry".
func (Retry) Type() string { return "retry" }

// Type returns "reasoning_delta".
func (ReasoningDelta) Type() string { return "reasoning_delta" }

// Type returns "text_delta".
func (TextDelta) Type() string { return "text_delta" }

// Type returns "call_announced".
func (CallAnnounced) Type() string { return "call_announced" }

// Type returns "call_delta".
func (CallDelta) Type() string { return "call_delta" }

// Type returns "hosted_started".
func (HostedStarted) Type() string { return "hosted_started" }

// Type returns "hosted_progress".
func (HostedProgress) Type() string { return "hosted_progress" }

// Type returns "hosted_finished".
func (HostedFinished) Type() string { return "hosted_finished" }

// Type returns "file_added".
func (FileAdded) Type() string { return "file_added" }

// Type returns "citation_added".
func (CitationAdded) Type() string { return "citation_added" }

// Type returns "response_finished".
func (ResponseFinished) Type() string { return "response_finished" }

// Type returns "approval_requested".
func (ApprovalRequested) Type() string { return "approval_requested" }

// Type returns "call_started".
func (CallStarted) Type() string { return "call_started" }

// Type returns "call_output".
func (CallOutput) Type() string { return "call_output" }

// Type returns "call_event".
func (CallEvent) Type() string { return "call_event" }

// Type returns "call_finished".
func (CallFinished) Type() string { return "call_finished" }

// Type returns "done".
func (Done) Type() string { return "done" }

// eventJSON gives an event as a JSON object that begins with its type. The fields
// are those of the event without its own MarshalJSON.
func eventJSON(e Event, fields any) ([]byte, error) {
	object, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if object[0] != '{' {
		return nil, fmt.Errorf("fnloop: event %s: %T is no JSON object, but %.20s", e.Type(), e, object)
	}
	kind, err := json.Marshal(e.Type())
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"type":`), kind...)
	if len(object) > len("{}") {
		out = append(out, ',')
	}
	return append(out, object[1:]...), nil
}

// encodeEvent gives an event as JSON. One that a handler has made need not know
// of its type.
func encodeEvent(e Event) ([]byte, error) {
	object, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(object, []byte(`{"type":`)) {
		return object, nil
	}
	return eventJSON(e, json.RawMessage(object))
}

// MarshalJSON adds the member type.
func (e RequestStarted) MarshalJSON() ([]byte, error) {
	type fields RequestStarted
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the members type and wait_ms.
func (e Retry) MarshalJSON() ([]byte, error) {
	type fields Retry
	return eventJSON(e, struct {
		fields
		WaitMS float64 `json:"wait_ms"`
	}{fields(e), float64(e.Wait) / float64(time.Millisecond)})
}

// MarshalJSON adds the member type.
func (e ReasoningDelta) MarshalJSON() ([]byte, error) {
	type fields ReasoningDelta
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e TextDelta) MarshalJSON() ([]byte, error) {
	type fields TextDelta
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e CallAnnounced) MarshalJSON() ([]byte, error) {
	type fields CallAnnounced
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e CallDelta) MarshalJSON() ([]byte, error) {
	type fields CallDelta
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e HostedStarted) MarshalJSON() ([]byte, error) { return eventJSON(e, e.HostedCall) }

// MarshalJSON adds the member type.
func (e HostedProgress) MarshalJSON() ([]byte, error) {
	type fields HostedProgress
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e HostedFinished) MarshalJSON() ([]byte, error) { return eventJSON(e, e.HostedCall) }

// MarshalJSON adds the member type.
func (e FileAdded) MarshalJSON() ([]byte, error) { return eventJSON(e, e.File) }

// MarshalJSON adds the member type.
func (e CitationAdded) MarshalJSON() ([]byte, error) {
	type fields CitationAdded
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e ResponseFinished) MarshalJSON() ([]byte, error) {
	type fields ResponseFinished
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type.
func (e ApprovalRequested) MarshalJSON() ([]byte, error) { return eventJSON(e, e.Call) }

// MarshalJSON adds the member type.
func (e CallStarted) MarshalJSON() ([]byte, error) { return eventJSON(e, e.Call) }

// MarshalJSON adds the member type.
func (e CallOutput) MarshalJSON() ([]byte, error) {
	type fields CallOutput
	return eventJSON(e, fields(e))
}

// MarshalJSON adds the member type, to the inner event too.
func (e CallEvent) MarshalJSON() ([]byte, error) {
	inner := json.RawMessage("null")
	if e.Event != nil {
		var err error
		if inner, err = encodeEvent(e.Event); err != nil {
			return nil, err
		}
	}
	return eventJSON(e, struct {
		ID    string          `json:"id"`
		Event json.RawMessage `json:"event"`
	}{e.ID, inner})
}

// MarshalJSON adds the member type.
func (e CallFinished) MarshalJSON() ([]byte, error) { return eventJSON(e, e.CallResult) }

// MarshalJSON adds the member type.
func (e Done) MarshalJSON() ([]byte, error) {
	type fields Done
	return eventJSON(e, fields(e))
}
