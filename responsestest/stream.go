package responsestest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// An Event is one event of a stream. Its type and its sequence number are added to the data when it is
// sent, so that the numbers of a stream have no holes.
type Event struct {
	// Type is the event's name.
	Type string

	// Data is a JSON object.
	Data json.RawMessage

	// Comment, if not empty, is sent as a comment line instead of an event.
	Comment string
}

// edited returns the events of the response after the script has had its hand at them.
func (r *response) edited() []Event {
	events := r.makeEvents()
	if r.reply.Edit != nil {
		events = r.reply.Edit(events)
	}
	return events
}

// An eventList collects events.
type eventList struct {
	events    []Event
	obfuscate bool
}

func (l *eventList) add(typ, format string, args ...any) {
	l.events = append(l.events, Event{Type: typ, Data: fmt.Appendf(nil, format, args...)})
}

// makeEvents returns the events of the whole response in the service's order.
func (r *response) makeEvents() []Event {
	l := &eventList{obfuscate: r.req.obfuscate}
	if r.req.background {
		l.add("response.created", `{"response":%s}`, r.appendJSON(nil, "queued"))
		l.add("response.queued", `{"response":%s}`, r.appendJSON(nil, "queued"))
	} else {
		l.add("response.created", `{"response":%s}`, r.appendJSON(nil, "in_progress"))
	}
	l.add("response.in_progress", `{"response":%s}`, r.appendJSON(nil, "in_progress"))
	for i, it := range r.output {
		l.addItem(i, it)
	}
	terminal := "response." + r.status
	if r.status == "cancelled" {
		terminal = "response.failed" // invented: a stream has no event of its own for this
	}
	l.add(terminal, `{"response":%s}`, r.appendJSON(nil, r.status))
	return l.events
}

func (l *eventList) addItem(index int, it *item) {
	begun := make(object, len(it.fields))
	for name, v := range it.fields {
		begun[name] = v
	}
	if begun.has("status") {
		begun["status"] = json.RawMessage(`"in_progress"`)
	}
	id := quote(it.id)
	open := func() {
		b, _ := json.Marshal(begun)
		l.add("response.output_item.added", `{"output_index":%d,"item":%s}`, index, b)
	}
	switch it.kind {
	case "message":
		begun["content"] = json.RawMessage("[]")
		open()
		for n, e := range elements(it.fields["content"]) {
			l.addPart(index, n, id, e)
		}
	case "function_call":
		begun["arguments"] = json.RawMessage(`""`)
		open()
		at := fmt.Sprintf(`"item_id":%s,"output_index":%d`, id, index)
		l.addDeltas("response.function_call_arguments.delta", at, it.fields.str("arguments"), "")
		l.add("response.function_call_arguments.done", `{%s,"name":%s,"arguments":%s}`, at, quote(it.name), it.fields["arguments"])
	case "custom_tool_call":
		begun["input"] = json.RawMessage(`""`)
		open()
		at := fmt.Sprintf(`"item_id":%s,"output_index":%d`, id, index)
		l.addDeltas("response.custom_tool_call_input.delta", at, it.fields.str("input"), "")
		l.add("response.custom_tool_call_input.done", `{%s,"input":%s}`, at, or(it.fields["input"], `""`))
	case "reasoning":
		begun["summary"] = json.RawMessage("[]")
		if content := it.fields.str("encrypted_content"); content != "" {
			// What the service sends here is not what it sends at the end.
			begun["encrypted_content"] = quote(content[:len(content)/2])
		}
		open()
		for n, e := range elements(it.fields["summary"]) {
			part, _ := decodeObject(e)
			at := fmt.Sprintf(`"item_id":%s,"output_index":%d,"summary_index":%d`, id, index, n)
			l.add("response.reasoning_summary_part.added", `{%s,"part":{"type":"summary_text","text":""}}`, at)
			l.addDeltas("response.reasoning_summary_text.delta", at, part.str("text"), "")
			l.add("response.reasoning_summary_text.done", `{%s,"text":%s}`, at, or(part["text"], `""`))
			l.add("response.reasoning_summary_part.done", `{%s,"part":%s}`, at, e)
		}
	default:
		open()
		for _, step := range hostedSteps[it.kind] {
			l.add("response."+it.kind+"."+step, `{"item_id":%s,"output_index":%d}`, id, index)
		}
	}
	l.add("response.output_item.done", `{"output_index":%d,"item":%s}`, index, it.raw)
}

// hostedSteps are the events between the begin and the end of an item that the service works on itself.
var hostedSteps = map[string][]string{
	"web_search_call":       {"in_progress", "searching", "completed"},
	"file_search_call":      {"in_progress", "searching", "completed"},
	"code_interpreter_call": {"in_progress", "interpreting", "completed"},
	"image_generation_call": {"in_progress", "generating", "completed"},
	"mcp_list_tools":        {"in_progress", "completed"},
	"mcp_call":              {"in_progress", "completed"},
}

func (l *eventList) addPart(index, n int, id []byte, part json.RawMessage) {
	o, _ := decodeObject(part)
	at := fmt.Sprintf(`"item_id":%s,"output_index":%d,"content_index":%d`, id, index, n)
	empty := part
	switch o.str("type") {
	case "output_text":
		empty = json.RawMessage(`{"type":"output_text","annotations":[],"logprobs":[],"text":""}`)
	case "refusal":
		empty = json.RawMessage(`{"type":"refusal","refusal":""}`)
	}
	l.add("response.content_part.added", `{%s,"part":%s}`, at, empty)
	switch o.str("type") {
	case "output_text":
		l.addDeltas("response.output_text.delta", at, o.str("text"), `,"logprobs":[]`)
		l.add("response.output_text.done", `{%s,"text":%s,"logprobs":[]}`, at, or(o["text"], `""`))
	case "refusal":
		l.addDeltas("response.refusal.delta", at, o.str("refusal"), "")
		l.add("response.refusal.done", `{%s,"refusal":%s}`, at, or(o["refusal"], `""`))
	}
	l.add("response.content_part.done", `{%s,"part":%s}`, at, part)
}

// addDeltas adds the text in pieces, which end between runes but anywhere in a JSON text.
func (l *eventList) addDeltas(typ, at, text, more string) {
	const padding = "Zk3q9fXw1pLr7Tb2"
	size := max(5, len(text)/100)
	for len(text) > 0 {
		n := min(size, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		if l.obfuscate {
			l.add(typ, `{%s,"delta":%s%s,"obfuscation":%q}`, at, quote(text[:n]), more, padding[n%len(padding):])
		} else {
			l.add(typ, `{%s,"delta":%s%s}`, at, quote(text[:n]), more)
		}
		text = text[n:]
	}
}

// frame writes an event as server-sent events have it.
func (e *Event) frame(dst []byte, n int) []byte {
	if e.Comment != "" {
		return append(append(append(dst, ": "...), e.Comment...), "\n\n"...)
	}
	dst = append(append(append(dst, "event: "...), e.Type...), "\ndata: "...)
	return append(e.message(dst, n, ""), "\n\n"...)
}

// message writes an event as one JSON object, with the stream_id if there is one.
func (e *Event) message(dst []byte, n int, streamID string) []byte {
	dst = append(append(append(dst, `{"type":`...), quote(e.Type)...), `,"sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	if streamID != "" {
		dst = append(append(dst, `,"stream_id":`...), quote(streamID)...)
	}
	if len(e.Data) > 2 {
		return append(append(dst, ','), e.Data[1:]...)
	}
	return append(dst, '}')
}

// stream sends the events of a response, and stores it when they have all been sent but the last: who has
// read that one may continue at once.
func (x *exchange) stream(events []Event, resp *response) {
	x.startStream()
	x.sendEvents(events, resp, -1, func() { x.server.keep(resp) })
}

// resume sends the events whose sequence number is larger than after.
func (x *exchange) resume(events []Event, resp *response, after int) {
	x.startStream()
	x.sendEvents(events, resp, after, func() {})
}

func (x *exchange) startStream() {
	if x.socket != nil {
		x.note(func(r *Request) { r.Status = http.StatusOK })
		return
	}
	x.start(http.StatusOK, "text/event-stream; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
}

// sendEvents sends events and returns the sequence number of the next one. It calls beforeLast when all
// have been sent but the last.
func (x *exchange) sendEvents(events []Event, resp *response, after int, beforeLast func()) int {
	n := 0
	var buf []byte
	for i := range events {
		if i > 0 && resp.reply.Pause > 0 {
			x.flush()
			x.wait(resp.reply.Pause)
		}
		if i == len(events)-1 {
			beforeLast()
		}
		if n > after || events[i].Comment != "" {
			buf = x.sendEvent(buf[:0], &events[i], n)
		}
		if events[i].Comment == "" {
			n++
		}
	}
	return n
}

// sendEvent sends one event, with the help of a buffer that it returns.
func (x *exchange) sendEvent(buf []byte, e *Event, n int) []byte {
	var err error
	switch {
	case x.socket == nil:
		buf = e.frame(buf, n)
		_, err = x.w.Write(buf)
	case e.Comment == "": // there are no comments on a WebSocket
		buf = e.message(buf, n, x.lane.id)
		err = x.socket.write(x.ctx, buf)
	}
	if err != nil {
		x.gone()
	}
	return buf
}

// nestedError is an error event with an error object. On a WebSocket it has a status, as all error messages
// there do.
func (x *exchange) nestedError(body []byte) Event {
	status := ""
	if x.socket != nil {
		status = fmt.Sprintf(`"status":%d,`, http.StatusInternalServerError)
	}
	return Event{Type: "error", Data: fmt.Appendf(nil, `{%s"error":%s}`, status, body)}
}

// streamCut sends a part of the stream and ends it as the reply says.
func (x *exchange) streamCut(resp *response) {
	reply := resp.reply
	events := resp.edited()
	at := reply.CutAfter
	if at <= 0 {
		at = len(events) / 2
	}
	at = min(at, len(events)-1) // the last event would end the stream
	x.startStream()
	n := x.sendEvents(events[:at], resp, -1, func() {})

	send := func(e Event) {
		x.sendEvent(nil, &e, n)
		n++
	}
	e := reply.errorBody()
	nested, _ := json.Marshal(e)
	switch reply.Cut {
	case HalfLine:
		x.sendHalf(&events[at], n)
	case FlatError:
		send(Event{Type: "error", Data: fmt.Appendf(nil, `{"code":%s,"message":%s,"param":null}`, quote(*e.Code), quote(e.Message))})
	case NestedError:
		send(x.nestedError(nested))
	case FailedEvent:
		send(x.nestedError(nested))
		failed := *reply
		failed.Code, failed.Message = *e.Code, e.Message
		resp.reply, resp.output = &failed, nil
		send(Event{Type: "response.failed", Data: fmt.Appendf(nil, `{"response":%s}`, resp.appendJSON(nil, "failed"))})
	}
	x.end(reply.Cut)
}
