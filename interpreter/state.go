package interpreter

import (
	"encoding/json"
	"fmt"
)

type jsonValue = json.RawMessage

// A state is what the Answer of a conversation holds of its session.
type state struct {
	// Ref finds the session. It is random, and worth nothing without the process
	// that keeps the session.
	Ref string `json:"ref"`
	// Kept finds it in another process, where its runner can: see [Session.Ref].
	Kept string `json:"kept,omitempty"`
	// Host is the [Sessions.Host] of the process that has the session, where no
	// other process finds it.
	Host string `json:"host,omitempty"`
	// Cells is how many cells the session had run by then, and Names are the
	// names that it had, or as many as there is room for.
	Cells int      `json:"cells,omitempty"`
	Names []string `json:"names,omitempty"`
	// Images is how many bytes of images the conversation holds.
	Images int `json:"images,omitempty"`
}

// maxStateNames bounds the names of a state in bytes, so that all of it stays
// below fnloop.MaxToolState whatever characters they have.
const maxStateNames = 2 << 10

func readState(raw json.RawMessage) (state, error) {
	var st state
	if len(raw) == 0 {
		return st, nil
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, fmt.Errorf("interpreter: the state of the conversation's session cannot be read: %w", err)
	}
	return st, nil
}

func (st state) json() (json.RawMessage, error) { return json.Marshal(st) }

// bounded is names without those for which there is no room.
func bounded(names []string) []string {
	size := 0
	for i, n := range names {
		b, _ := json.Marshal(n) // a string cannot fail
		if size += len(b) + 1; size > maxStateNames {
			return names[:i]
		}
	}
	return names
}
