package responsestest

import (
	"encoding/json"
	"slices"
)

// Noise is an edit that adds what clients have to ignore: a comment line, a keepalive event, which the
// service sends, and an event of a type that nobody knows.
func Noise(events []Event) []Event {
	noise := []Event{
		{Comment: "keepalive"},
		{Type: "keepalive", Data: json.RawMessage(`{}`)},
		{Type: "response.unheard_of", Data: json.RawMessage(`{"output_index":0,"delta":"noise"}`)},
	}
	return slices.Insert(slices.Clone(events), min(2, len(events)), noise...)
}

// Interleave is an edit that makes calls which follow each other come side by side, an event of each in
// turn. Recorded streams have them one after another, but nothing promises that.
func Interleave(events []Event) []Event {
	var (
		edited []Event
		calls  [][]Event // the calls that follow each other, as far as they have come
		open   bool      // the last of them has not ended
	)
	merge := func() {
		for i, more := 0, true; more; i++ {
			more = false
			for _, c := range calls {
				if i < len(c) {
					edited = append(edited, c[i])
					more = true
				}
			}
		}
		calls = nil
	}
	for _, e := range events {
		if e.Type == "response.output_item.added" && isCall(e) {
			calls = append(calls, nil)
			open = true
		}
		if !open {
			merge()
			edited = append(edited, e)
			continue
		}
		last := len(calls) - 1
		calls[last] = append(calls[last], e)
		open = e.Type != "response.output_item.done"
	}
	merge()
	return edited
}

func isCall(e Event) bool {
	o, _ := decodeObject(e.Data)
	it, _ := decodeObject(o["item"])
	typ := it.str("type")
	return typ == "function_call" || typ == "custom_tool_call"
}
