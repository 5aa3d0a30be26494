package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// writeAnswer prints the answer: its text if the model answered, or all of it as
// JSON.
func writeAnswer(w io.Writer, answer *fnloop.Answer, failure string, asJSON bool) error {
	if asJSON {
		run := *answer
		run.Items = nil // they are the whole conversation's, and in the session's file
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(struct {
			*fnloop.Answer
			Error string `json:"error,omitempty"`
		}{&run, failure})
	}
	if answer.Stop != fnloop.StopAnswered {
		return nil
	}
	text := strings.TrimSuffix(answer.Text, "\n")
	if terminal.Is(w) {
		text = terminal.Printable(text)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// joined is the later of two answers with the counts and calls of the earlier
// one, which it continues: to who asked they are one run.
func joined(earlier, later *fnloop.Answer) *fnloop.Answer {
	a := *later
	a.Turns += earlier.Turns
	a.Responses += earlier.Responses
	a.Unmetered += earlier.Unmetered
	a.Abandoned += earlier.Abandoned
	for _, u := range []struct {
		sum *int64
		n   int64
	}{
		{&a.Usage.InputTokens, earlier.Usage.InputTokens},
		{&a.Usage.CachedTokens, earlier.Usage.CachedTokens},
		{&a.Usage.OutputTokens, earlier.Usage.OutputTokens},
		{&a.Usage.ReasoningTokens, earlier.Usage.ReasoningTokens},
		{&a.Usage.TotalTokens, earlier.Usage.TotalTokens},
	} {
		*u.sum += u.n
	}
	// The later one begins with what was open in the earlier one: outputs that
	// are in both until they were sent, and outputs of what was pending.
	open := map[string]bool{}
	sent := map[string]bool{}
	for _, id := range earlier.Open {
		open[id], sent[id] = true, true
	}
	for _, c := range earlier.Pending {
		delete(sent, c.ID)
	}
	a.Calls = slices.Clip(earlier.Calls)
	for _, c := range later.Calls {
		if !open[c.ID] {
			c.Turn += earlier.Turns
		}
		if !sent[c.ID] {
			a.Calls = append(a.Calls, c)
		}
		delete(open, c.ID) // the same ID again is another call's
		delete(sent, c.ID)
	}
	a.Pending = slices.Clone(later.Pending)
	for i, c := range a.Pending {
		if !open[c.ID] {
			a.Pending[i].Turn += earlier.Turns
		}
	}
	return &a
}
