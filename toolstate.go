package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// MaxToolState is the size of the largest state of one tool, in bytes of JSON.
const MaxToolState = 4 << 10

// A ToolState is what a tool remembers in a conversation from one call to the
// next: the name of a session, a counter, a place in a list. It is kept in
// [Answer.ToolState], so it goes where the conversation goes: into a
// [Loop.Checkpoint], through JSON, to another process. Two runs that continue the
// same Answer have a state each. Neither the model nor a browser is sent it.
//
// Keep in it what finds the data, and not the data. It is safe for calls that run
// side by side, of which the last Set counts.
type ToolState struct {
	run  *toolStates
	tool string
	over bool // the call has ended; guarded by run.mu
}

// ToolStateFrom returns the state of the tool whose handler was given ctx, or a
// context that ctx was made from. It reports false elsewhere.
func ToolStateFrom(ctx context.Context) (*ToolState, bool) {
	h := handlingOf(ctx)
	if h == nil {
		return nil, false
	}
	return &h.state, true
}

// Get decodes the state into v, as [json.Unmarshal] does. It reports false, and
// leaves v alone, when there is none.
func (s *ToolState) Get(v any) (bool, error) {
	s.run.mu.Lock()
	raw := s.run.tools[s.tool]
	s.run.mu.Unlock()
	if raw == nil {
		return false, nil
	}
	return true, json.Unmarshal(raw, v)
}

// Set replaces the state with v as JSON. A nil v removes it. What is set counts
// at once, also when the handler then fails. It is an error if the JSON is larger
// than [MaxToolState], or if the call has ended: the Answer is the caller's then.
func (s *ToolState) Set(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("fnloop: state of tool %s: %w", s.tool, err)
	}
	if len(raw) > MaxToolState {
		return fmt.Errorf("fnloop: state of tool %s: %d bytes are more than %d; keep the data elsewhere and its name here", s.tool, len(raw), MaxToolState)
	}
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if s.over {
		return errors.New("fnloop: state of tool " + s.tool + ": the call has ended")
	}
	if bytes.Equal(raw, []byte("null")) {
		delete(s.run.tools, s.tool)
		return nil
	}
	if s.run.tools == nil {
		s.run.tools = make(map[string]json.RawMessage)
	}
	s.run.tools[s.tool] = raw
	return nil
}

// toolStates are the states of a run's tools, by the tool's name.
type toolStates struct {
	mu    sync.Mutex
	tools map[string]json.RawMessage // values are replaced, never changed
}

// end says that the call has ended.
func (s *ToolState) end() {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.over = true
}

// copy is a copy that shares no memory, or nil.
func (s *toolStates) copy() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cloneToolState(s.tools)
}

func cloneToolState(tools map[string]json.RawMessage) map[string]json.RawMessage {
	tools = maps.Clone(tools)
	for name, raw := range tools {
		tools[name] = bytes.Clone(raw)
	}
	return tools
}
