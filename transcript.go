package fnloop

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
)

// A Transcript collects the events of a run as a [View] shows them, for a page that
// is loaded again when the run is over: shown one after another they give the same
// page. Pieces of one text are one event, what only tells of progress is left out,
// and of the [Done] event the calls, which have events of their own. Set View
// before first use. A Transcript is safe for concurrent use, so that it can be stored at a
// [Loop.Checkpoint], and must not be copied.
type Transcript struct {
	// View is what the page is shown of each event.
	View View

	mu      sync.Mutex
	entries []Event
}

// maxPrinted is how much of a call's output a Transcript keeps in one event, about.
const maxPrinted = 64 << 10

// Add adds the next event of the run. Events that the View does not show are
// passed over.
func (t *Transcript) Add(e Event) {
	if e = t.View.Event(e); e == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var last Event
	if n := len(t.entries); n > 0 {
		last = t.entries[n-1]
	}
	switch next := e.(type) {
	case RequestStarted, ResponseFinished, Retry, HostedProgress, Missed:
		return
	case TextDelta:
		if before, ok := last.(TextDelta); ok && before.Item == next.Item && before.Phase == next.Phase && before.Refusal == next.Refusal {
			next.Text = before.Text + next.Text
			t.replaceLast(next)
			return
		}
	case ReasoningDelta:
		if before, ok := last.(ReasoningDelta); ok && before.Item == next.Item && before.Part == next.Part && before.Raw == next.Raw {
			next.Text = before.Text + next.Text
			t.replaceLast(next)
			return
		}
	case CallDelta:
		if before, ok := last.(CallDelta); ok && before.ID == next.ID && before.Property == next.Property {
			next.Text, next.Value = before.Text+next.Text, before.Value+next.Value
			t.replaceLast(next)
			return
		}
	case CallOutput:
		if before, ok := last.(CallOutput); ok && before.ID == next.ID && before.Stream == next.Stream {
			if len(before.Text) < maxPrinted { // the call's result has head and tail
				before.Text += next.Text
				t.replaceLast(before)
			}
			return
		}
	case CallStarted:
		t.dropDeltas(next.ID)
	case ApprovalRequested:
		t.dropDeltas(next.ID)
	case Done:
		if next.Answer != nil {
			short := *next.Answer
			short.Calls = []CallResult{}
			e = Done{Answer: &short, Value: next.Value}
		}
	}
	t.entries = append(t.entries, e)
}

func (t *Transcript) replaceLast(e Event) { t.entries[len(t.entries)-1] = e }

// dropDeltas drops the pieces of a call's arguments, which are known as a whole.
func (t *Transcript) dropDeltas(id string) {
	t.entries = slices.DeleteFunc(t.entries, func(e Event) bool {
		delta, ok := e.(CallDelta)
		return ok && delta.ID == id
	})
}

// MarshalJSON gives the events so far, as a list of what [WriteSSE] sends as their
// data.
func (t *Transcript) MarshalJSON() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b bytes.Buffer
	b.WriteByte('[')
	for i, e := range t.entries {
		if i > 0 {
			b.WriteByte(',')
		}
		data, kept := e.(keptEvent)
		if !kept {
			var err error
			if data.json, err = encodeEvent(e); err != nil {
				return nil, err
			}
		}
		b.Write(data.json)
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// UnmarshalJSON reads what MarshalJSON gave, so that the events of a run that was
// cut short come before those of the process that goes on with it. It replaces
// the events so far.
func (t *Transcript) UnmarshalJSON(data []byte) error {
	var kept []json.RawMessage
	if err := json.Unmarshal(data, &kept); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = nil
	for _, event := range kept {
		var head struct{ Type string }
		if err := json.Unmarshal(event, &head); err != nil {
			return err
		}
		t.entries = append(t.entries, keptEvent{event, head.Type})
	}
	return nil
}

// A keptEvent is one of a stored Transcript.
type keptEvent struct {
	json []byte
	name string
}

func (e keptEvent) Type() string { return e.name }
