package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// view is an answer as it is printed: its items are the whole conversation's, and
// in the session's file.
func view(answer *fnloop.Answer) *fnloop.Answer {
	v := *answer
	v.Items, v.ToolState = nil, nil
	return &v
}

// writeJSON prints the answer as a JSON object.
func writeJSON(w io.Writer, answer *fnloop.Answer, failure string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(view(answer)); err != nil {
		return err
	}
	if failure != "" { // as the last member
		buf.Truncate(buf.Len() - len("}\n"))
		buf.WriteString(`,"error":`)
		if err := enc.Encode(failure); err != nil {
			return err
		}
		buf.Truncate(buf.Len() - len("\n"))
		buf.WriteString("}\n")
	}
	_, err := w.Write(buf.Bytes())
	return err
}

// writeText prints the text of the answer, or of one that broke off, and reports
// whether it is that.
func writeText(w io.Writer, answer *fnloop.Answer) (partial bool, err error) {
	text := answer.Text
	if answer.Stop != fnloop.StopAnswered {
		if text = answer.Partial; text == "" || !answer.Interrupted && answer.Stop != fnloop.StopTruncated {
			return false, nil
		}
		partial = true
	}
	text = strings.TrimSuffix(text, "\n")
	if terminal.Is(w) {
		text = terminal.Printable(text)
	}
	_, err = fmt.Fprintln(w, text)
	return partial, err
}

// writeEvent prints an event as a line of JSON. The last one has the error, too.
func writeEvent(w io.Writer, event fnloop.Event, failure string) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		return err
	}
	const head = `{"type":`
	if !bytes.HasPrefix(line.Bytes(), []byte(head)) { // those of tools do not all write it themselves
		rest := line.Bytes()[1:]
		comma := ","
		if rest[0] == '}' {
			comma = ""
		}
		line = *bytes.NewBuffer(slices.Concat([]byte(head+strconv.Quote(event.Type())+comma), rest))
	}
	if failure != "" {
		line.Truncate(line.Len() - len("}\n"))
		line.WriteString(`,"error":`)
		if err := enc.Encode(failure); err != nil {
			return err
		}
		line.Truncate(line.Len() - len("\n"))
		line.WriteString("}\n")
	}
	_, err := w.Write(line.Bytes())
	return err
}

// usageLine says what a run used.
func usageLine(a *fnloop.Answer) string {
	u := a.Usage
	line := fmt.Sprintf("usage: %d input tokens", u.InputTokens)
	if u.CachedTokens > 0 {
		line += fmt.Sprintf(" (%d cached)", u.CachedTokens)
	}
	line += fmt.Sprintf(", %d output tokens", u.OutputTokens)
	if u.ReasoningTokens > 0 {
		line += fmt.Sprintf(" (%d for reasoning)", u.ReasoningTokens)
	}
	line += fmt.Sprintf(", responses: %d, programs: %d", a.Responses, len(a.Calls))
	if a.Unmetered > 0 {
		line += fmt.Sprintf("; %d responses did not say what they used", a.Unmetered)
	}
	if a.Model != "" {
		line += ", model: " + a.Model
	}
	return line
}

// joined is the later of two answers with the counts and calls of the earlier
// one, which it continues: to who asked they are one run. The later one counts the
// turns of both.
func joined(earlier, later *fnloop.Answer) *fnloop.Answer {
	a := *later
	a.Responses += earlier.Responses
	a.Unmetered += earlier.Unmetered
	a.Abandoned += earlier.Abandoned
	for _, u := range []struct {
		sum *int64
		n   int64
	}{
		{&a.Usage.InputTokens, earlier.Usage.InputTokens},
		{&a.Usage.CachedTokens, earlier.Usage.CachedTokens},
		{&a.Usage.CacheWriteTokens, earlier.Usage.CacheWriteTokens},
		{&a.Usage.OutputTokens, earlier.Usage.OutputTokens},
		{&a.Usage.ReasoningTokens, earlier.Usage.ReasoningTokens},
		{&a.Usage.TotalTokens, earlier.Usage.TotalTokens},
	} {
		*u.sum += u.n
	}
	// The later one begins with what was open in the earlier one: outputs that
	// are in both until they were sent, and outputs of what was pending.
	sent := map[string]bool{}
	for _, id := range earlier.Open {
		sent[id] = true
	}
	for _, c := range earlier.Pending {
		delete(sent, c.ID)
	}
	a.Calls = slices.Clip(earlier.Calls)
	for _, c := range later.Calls {
		if !sent[c.ID] {
			a.Calls = append(a.Calls, c)
		}
		delete(sent, c.ID) // the same ID again is another call's
	}
	return &a
}
