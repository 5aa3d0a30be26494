package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
)

// WriteSSE sends the events of a run to a browser as server-sent events, each
// as it comes. The event's name and the member type of its data are
// [Event.Type]; the other members are the fields of the event's type:
//
//	event: text_delta
//	data: {"type":"text_delta","text":"102","phase":"final_answer"}
//
// The last one is done, with the [Answer] as it is stored. When the run has an
// error, done has a member error beside it that holds the stop reason: what the
// error says is for the host, and is returned. So is an error of w, which ends
// the run.
func WriteSSE(w http.ResponseWriter, events iter.Seq2[Event, error]) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	control := http.NewResponseController(w)
	var buf bytes.Buffer
	for e, runErr := range events {
		data, err := encodeEvent(e)
		if err != nil {
			return err
		}
		if done, ok := e.(Done); ok && runErr != nil {
			stop, err := json.Marshal(done.Answer.Stop)
			if err != nil {
				return err
			}
			data = append(append(append(data[:len(data)-1], `,"error":`...), stop...), '}')
		}
		buf.Reset()
		buf.WriteString("event: " + e.Type() + "\ndata: ")
		buf.Write(data) // JSON has no line break
		buf.WriteString("\n\n")
		if _, err := w.Write(buf.Bytes()); err != nil {
			return err
		}
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if runErr != nil {
			return runErr
		}
	}
	return nil
}
