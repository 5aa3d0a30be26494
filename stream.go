package fnloop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
)

// ErrIncompleteStream: the events of a response ended without one that says how
// the response ended. It wraps [io.ErrUnexpectedEOF]. Nothing was run.
var ErrIncompleteStream = fmt.Errorf("fnloop: the stream ended before the response did: %w", io.ErrUnexpectedEOF)

// ErrIdleStream: nothing came for longer than [Loop.IdleTimeout].
var ErrIdleStream = errors.New("fnloop: the stream is idle")

// A StreamError says why the events of a response cannot be relied on. It wraps
// [ErrIncompleteStream], [ErrIdleStream], or what the connection failed with.
type StreamError struct {
	ContentType string // of the answer
	Events      int    // how many came
	// Attempts is how often the request was sent, and MaybeDelivered reports
	// that the API may have made a response, and charged for it.
	Attempts       int
	MaybeDelivered bool
	Err            error
}

func (e *StreamError) Error() string {
	s := fmt.Sprintf("%v (after %d events, content type %q)", e.Err, e.Events, e.ContentType)
	if e.Attempts > 1 {
		s += fmt.Sprintf(" (after %d attempts)", e.Attempts)
	}
	if e.MaybeDelivered {
		s += " (may have been delivered)"
	}
	return s
}

// Unwrap returns e.Err.
func (e *StreamError) Unwrap() error { return e.Err }

// A Streamer is a [Responder] that can stream. [Loop.Events] uses NewStreaming
// in place of New where the Client has it.
type Streamer interface {
	Responder
	NewStreaming(context.Context, responses.ResponseNewParams, ...option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion]
}

// A feed gives the data of one event after the other.
type feed interface {
	next() bool
	data() []byte
	err() error
	close() error
}

type rawFeed struct{ ssestream.Decoder }

func (f rawFeed) next() bool   { return f.Next() }
func (f rawFeed) data() []byte { return f.Event().Data }
func (f rawFeed) err() error   { return f.Err() }
func (f rawFeed) close() error { return f.Close() }

type sdkFeed struct {
	*ssestream.Stream[responses.ResponseStreamEventUnion]
}

func (f sdkFeed) next() bool   { return f.Next() }
func (f sdkFeed) data() []byte { return []byte(f.Current().RawJSON()) }
func (f sdkFeed) close() error { return f.Close() }
func (f sdkFeed) err() error {
	if e, ok := errors.AsType[*ssestream.StreamError](f.Err()); ok {
		if reply := eventError(e.Event.Data); reply != nil {
			return &replyError{reply}
		}
	}
	return f.Err()
}

// A replyError is an error event that openai-go took out of the stream.
type replyError struct{ reply *reply }

func (e *replyError) Error() string { return e.reply.check().Error() }

// stream sends a request once and emits the events of its response.
func (r *run) stream(ctx context.Context, params responses.ResponseNewParams) (*reply, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.idleTimeout, func() { cancel(ErrIdleStream) })
	defer idle.Stop()

	var answer *http.Response
	opts := []option.RequestOption{option.WithMaxRetries(0), option.WithResponseInto(&answer), capBody(func() { idle.Reset(r.idleTimeout) })}
	var events feed
	switch client := r.loop.Client.(type) {
	case *responses.ResponseService:
		var raw *http.Response
		opts = append(opts, option.WithJSONSet("stream", true), option.WithResponseBodyInto(&raw))
		if _, err := client.New(ctx, params, opts...); err != nil {
			return nil, r.streamFailure(ctx, err, answer, nil)
		}
		events = rawFeed{ssestream.NewDecoder(raw)}
	case Streamer:
		s := client.NewStreaming(ctx, params, opts...)
		if err := s.Err(); err != nil {
			return nil, r.streamFailure(ctx, err, answer, nil)
		}
		events = sdkFeed{s}
	}
	defer events.close()

	a := r.assemble()
	for {
		idle.Reset(r.idleTimeout) // the reader's time is not the server's
		more := events.next()
		idle.Stop()
		if !more {
			break
		}
		reply, err := a.event(events.data())
		if err != nil {
			r.cut(a)
			return nil, &failure{err: &StreamError{ContentType: contentType(answer), Events: a.events, Err: err}, maybeDelivered: true}
		}
		if reply != nil {
			drain(events, cancel)
			return r.streamed(reply, a), nil
		}
	}
	if e, ok := errors.AsType[*replyError](events.err()); ok {
		return r.streamed(e.reply, a), nil
	}
	r.cut(a)
	return nil, r.streamFailure(ctx, events.err(), answer, a)
}

// streamed notes what the reader has seen of a response before its end. An error
// in the place of the response leaves that as all there is of it.
func (r *run) streamed(reply *reply, a *assembly) *reply {
	reply.seen, reply.first = a.seen, a.first
	if reply.Status != "completed" && len(reply.Output) == 0 {
		r.answer.Partial, r.answer.Interrupted = a.text.String(), a.text.Len() > 0
	}
	return reply
}

// drain reads a stream that has said all to its end, which is near, so that the
// connection can be used again.
func drain(events feed, cancel context.CancelCauseFunc) {
	const patience = 10 * time.Millisecond
	stop := time.AfterFunc(patience, func() { cancel(nil) })
	defer stop.Stop()
	for range 16 {
		if !events.next() {
			return
		}
	}
}

// cut keeps what the reader has seen of a response that will not be finished.
func (r *run) cut(a *assembly) {
	if a.events == 0 {
		return
	}
	r.answer.Partial, r.answer.Interrupted = a.text.String(), a.text.Len() > 0
	r.answer.Responses++
	r.answer.Unmetered++
}

// streamFailure says what to make of a request that failed, or of a stream that
// ended too early when a is not nil.
func (r *run) streamFailure(ctx context.Context, err error, answer *http.Response, a *assembly) *failure {
	if context.Cause(ctx) == ErrIdleStream {
		err = ErrIdleStream
	}
	if a == nil && err != ErrIdleStream {
		return classify(err, answer)
	}
	f := &failure{wait: -1, maybeDelivered: true}
	e := &StreamError{ContentType: contentType(answer), Err: err}
	if a != nil {
		e.Events = a.events
		// What the reader has seen cannot be taken back, and what is no
		// stream of events at all will not become one.
		_, noJSON := errors.AsType[*json.SyntaxError](err)
		hopeless := err == ErrIdleStream || errors.Is(err, bufio.ErrTooLong) || errors.Is(err, errTooLarge)
		f.retry = !a.seen && !hopeless && (a.events > 0 || err != nil && !noJSON)
	}
	if err == nil {
		e.Err = ErrIncompleteStream
	} else if err != ErrIdleStream && !errors.Is(err, io.ErrUnexpectedEOF) {
		e.Err = fmt.Errorf("%w: %w", ErrIncompleteStream, err)
	}
	f.err = e
	return f
}

func contentType(answer *http.Response) string {
	if answer == nil {
		return ""
	}
	return answer.Header.Get("Content-Type")
}

// An assembly makes a reply of the events of one response.
type assembly struct {
	emit   func(Event)
	read   bool          // somebody reads what is emitted
	start  time.Time     // when the request was sent
	first  time.Duration // from start to the first event
	events int
	seen   bool // something of the response was read
	text   strings.Builder
	phases map[int]string // of the messages, by output_index
	done   []doneItem     // in the order in which they came
}

type doneItem struct {
	index int
	item  json.RawMessage
}

// streamEvent has what the loop reads of an event.
type streamEvent struct {
	Type        string          `json:"type"`
	OutputIndex int             `json:"output_index"`
	Delta       json.RawMessage `json:"delta"`
	Item        json.RawMessage `json:"item"`
	Response    json.RawMessage `json:"response"`
}

// event takes in one event. The reply is not nil when it was the last one.
func (a *assembly) event(data []byte) (*reply, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || bytes.Equal(data, []byte("[DONE]")) {
		return nil, nil // of compatible servers
	}
	var e streamEvent
	err := json.Unmarshal(data, &e)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && odd.Field != "" {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: an event is no JSON object: %q", ErrIncompleteStream, snippet(data))
	}
	if a.events++; a.events == 1 {
		a.first = time.Since(a.start)
	}
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		text := deltaText(e.Delta)
		a.text.WriteString(text)
		a.tell(TextDelta{text, a.phases[e.OutputIndex], e.OutputIndex})
	case "response.reasoning_summary_text.delta":
		a.tell(ReasoningDelta{deltaText(e.Delta)})
	case "response.output_item.added":
		a.added(e)
	case "response.output_item.done":
		a.done = append(a.done, doneItem{e.OutputIndex, slices.Clone(e.Item)})
	case "response.completed", "response.incomplete", "response.failed":
		return a.end(e)
	case "error":
		return eventError(data), nil
	}
	return nil, nil // others are not for us, and new ones may come
}

func (r *run) assemble() *assembly {
	return &assembly{emit: r.emit, read: r.opts.emit != nil, start: time.Now()}
}

func (a *assembly) tell(e Event) {
	a.seen = a.read
	a.emit(e)
}

func (a *assembly) added(e streamEvent) {
	var it item
	json.Unmarshal(e.Item, &it) // what is missing is empty
	switch it.Type {
	case "message":
		if it.Phase != "" {
			if a.phases == nil {
				a.phases = make(map[int]string)
			}
			a.phases[e.OutputIndex] = it.Phase
		}
	case "function_call", "custom_tool_call":
		a.tell(CallAnnounced{it.CallID, it.Name})
	}
}

// end takes the response out of the event that ends it. Its output is what
// counts; some servers leave it empty and have sent the items before.
func (a *assembly) end(e streamEvent) (*reply, error) {
	if len(e.Response) == 0 || e.Response[0] != '{' {
		return nil, fmt.Errorf("%w: %s without a response", ErrIncompleteStream, e.Type)
	}
	r, err := decodeReply(slices.Clone(e.Response))
	if err != nil {
		return nil, err
	}
	if want := strings.TrimPrefix(e.Type, "response."); r.Status != want {
		return nil, fmt.Errorf("%w: %s with a response whose status is %q", ErrIncompleteStream, e.Type, r.Status)
	}
	if len(r.Output) == 0 && len(a.done) > 0 {
		slices.SortStableFunc(a.done, func(x, y doneItem) int { return x.index - y.index })
		list := make([]json.RawMessage, len(a.done))
		for i, d := range a.done {
			list[i] = d.item
		}
		if err := r.setOutput(list); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// eventError makes a failed reply of an error event, whose code and message
// stand beside the type or in an object error.
func eventError(data []byte) *reply {
	var e struct {
		Code, Message string
		Error         struct{ Code, Message string }
	}
	json.Unmarshal(data, &e) // null and numbers count as missing
	r := &reply{Status: "failed", Error: &replyFault{e.Code, e.Message}}
	if e.Error.Code != "" || e.Error.Message != "" {
		r.Error = &replyFault{e.Error.Code, e.Error.Message}
	}
	return r
}

func deltaText(delta json.RawMessage) string {
	var s string
	json.Unmarshal(delta, &s) // no string, no text
	return s
}
