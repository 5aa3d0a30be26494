package fnloop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
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

// A feed gives one event after the other.
type feed interface {
	next() bool
	event() (name string, data []byte)
	err() error
	close() error
}

type rawFeed struct{ ssestream.Decoder }

func (f rawFeed) next() bool              { return f.Next() }
func (f rawFeed) event() (string, []byte) { return f.Event().Type, f.Event().Data }
func (f rawFeed) err() error              { return f.Err() }
func (f rawFeed) close() error            { return f.Close() }

// An sdkFeed is a stream of openai-go's, which ends at an event that has a member
// error and gives that event as an error.
type sdkFeed struct {
	*ssestream.Stream[responses.ResponseStreamEventUnion]
	last *ssestream.StreamError
}

func (f *sdkFeed) next() bool {
	if f.last != nil {
		return false
	}
	if f.Next() {
		return true
	}
	f.last, _ = errors.AsType[*ssestream.StreamError](f.Err())
	return f.last != nil
}

func (f *sdkFeed) event() (string, []byte) {
	if f.last != nil {
		return f.last.Event.Type, f.last.Event.Data
	}
	return "", []byte(f.Current().RawJSON())
}

func (f *sdkFeed) err() error {
	if f.last != nil {
		return nil
	}
	return f.Err()
}

func (f *sdkFeed) close() error { return f.Close() }

// A boundedFeed is one of a client that is not ours.
type boundedFeed struct {
	feed
	run  *run
	fail error // why there are no more events, if it is not the feed's word
}

func (f *boundedFeed) next() bool {
	more := false
	err := f.run.bounded(func() error {
		more = f.feed.next()
		return nil
	})
	if err != nil {
		f.fail = fmt.Errorf("the Client: %w", err)
		return false
	}
	return more
}

func (f *boundedFeed) err() error {
	if f.fail != nil {
		return f.fail
	}
	return f.feed.err()
}

func (f *boundedFeed) close() error {
	if f.fail != nil { // it may be at work yet
		return nil
	}
	return f.feed.close()
}

// stream sends a request once and emits the events of its response.
func (r *run) stream(ctx context.Context, q *request) (*response, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.idleTimeout, func() { cancel(ErrIdleStream) })
	defer idle.Stop()
	var failed atomic.Bool // the time for the rest of the response runs
	alive := func() {
		if !failed.Load() {
			idle.Reset(r.idleTimeout)
		}
	}

	var httpRes *http.Response
	capStream := capBody(alive)
	var events feed
	switch client := r.loop.Client.(type) {
	case *responses.ResponseService:
		err := r.bounded(func() error {
			return r.post(ctx, client, q, &httpRes, noRetries, capStream, streamed)
		})
		if fail := clientFailure(err); fail != nil {
			return nil, fail
		}
		if err != nil {
			return nil, r.streamFailure(ctx, err, httpRes, nil)
		}
		events = rawFeed{ssestream.NewDecoder(httpRes)}
	case Streamer:
		var s *ssestream.Stream[responses.ResponseStreamEventUnion]
		err := r.bounded(func() error {
			if s = client.NewStreaming(ctx, *q.params, noRetries, option.WithResponseInto(&httpRes), capStream); s == nil {
				return &ProtocolError{Reason: "the client returned no stream"}
			}
			return s.Err()
		})
		if fail := clientFailure(err); fail != nil {
			return nil, fail
		}
		if err != nil {
			return nil, r.streamFailure(ctx, err, httpRes, nil)
		}
		events = &boundedFeed{feed: &sdkFeed{Stream: s}, run: r}
	}
	defer events.close()

	a := r.newAssembly()
	for {
		idle.Reset(a.eventTimeout(r.idleTimeout)) // the reader's time is not the server's
		more := events.next()
		idle.Stop()
		if !more {
			break
		}
		response, err := a.event(events.event())
		if err != nil {
			r.keepPartial(a)
			return nil, &failure{err: &StreamError{ContentType: contentType(httpRes), Events: a.events, Err: err}, maybeDelivered: true}
		}
		if response != nil {
			drain(events, cancel)
			response.requestID = requestID(httpRes)
			return r.noteStreamed(response, a), nil
		}
		failed.Store(a.fault != nil)
	}
	if a.fault != nil {
		return r.noteStreamed(a.failed(), a), nil
	}
	r.keepPartial(a)
	return nil, r.streamFailure(ctx, events.err(), httpRes, a)
}

// eventField matches how a line of server-sent events begins.
var eventField = regexp.MustCompile(`^\s*(?:event|data|id|retry)?:`)

// decodeBody reads the response that was asked for whole. Some servers stream
// all the same.
func decodeBody(body []byte, header http.Header) (*response, error) {
	body = bytes.TrimPrefix(body, []byte(byteOrderMark))
	if !eventField.Match(body) {
		return decodeResponse(body)
	}
	events := rawFeed{ssestream.NewDecoder(&http.Response{Body: &eventBody{ReadCloser: io.NopCloser(bytes.NewReader(body))}})}
	a := &assembly{emit: func(Event) {}}
	for events.next() {
		response, err := a.event(events.event())
		if err != nil || response != nil {
			return response, err
		}
	}
	if a.fault != nil {
		return a.failed(), nil
	}
	return nil, &StreamError{ContentType: header.Get("Content-Type"), Events: a.events, Attempts: 1, Err: ErrIncompleteStream}
}

// noteStreamed notes what the reader has seen of a response before its end. An error
// in the place of the response leaves that as all there is of it.
func (r *run) noteStreamed(response *response, a *assembly) *response {
	response.emitted, response.first = a.emitted, a.first
	if response.Status != "completed" && len(response.Output) == 0 {
		r.answer.Partial, r.answer.Interrupted = a.text.String(), a.text.Len() > 0
	}
	return response
}

// drain reads a stream that has said all to its end, which is near, so that the
// connection can be used again.
func drain(events feed, cancel context.CancelCauseFunc) {
	const limit = 10 * time.Millisecond
	stop := time.AfterFunc(limit, func() { cancel(nil) })
	defer stop.Stop()
	for range 16 {
		if !events.next() {
			return
		}
	}
}

// keepPartial keeps what the reader has seen of a response that will not be finished.
func (r *run) keepPartial(a *assembly) {
	if a.events == 0 {
		return
	}
	r.answer.Partial, r.answer.Interrupted = a.text.String(), a.text.Len() > 0
	r.answer.Responses++
	r.answer.Unmetered++
}

// streamFailure says what to make of a request that failed, or of a stream that
// ended too early when a is not nil.
func (r *run) streamFailure(ctx context.Context, err error, httpRes *http.Response, a *assembly) *failure {
	if context.Cause(ctx) == ErrIdleStream {
		err = ErrIdleStream
	}
	if a == nil && err != ErrIdleStream {
		return classify(err, httpRes)
	}
	f := &failure{wait: -1, maybeDelivered: true}
	e := &StreamError{ContentType: contentType(httpRes), Err: err}
	if a != nil {
		e.Events = a.events
		// What the reader has seen cannot be taken back, and what is no
		// stream of events at all will not become one.
		_, noJSON := errors.AsType[*json.SyntaxError](err)
		hopeless := err == ErrIdleStream || errors.Is(err, bufio.ErrTooLong) || errors.Is(err, errTooLarge)
		f.retry = !a.emitted.any && !hopeless && (a.events > 0 || err != nil && !noJSON)
	}
	if err == nil {
		e.Err = ErrIncompleteStream
	} else if err != ErrIdleStream && !errors.Is(err, ErrIncompleteStream) {
		e.Err = fmt.Errorf("%w: %w", ErrIncompleteStream, err)
	}
	f.err = e
	return f
}

func contentType(httpRes *http.Response) string {
	if httpRes == nil {
		return ""
	}
	return httpRes.Header.Get("Content-Type")
}

// faultTimeout is how long the response that failed may take to follow the
// event that says why. OpenAI's service sends both at once.
const faultTimeout = 500 * time.Millisecond

// An assembly makes a response of the events of one response.
type assembly struct {
	emit    func(Event)
	read    bool          // somebody reads what is emitted
	start   time.Time     // when the request was sent
	first   time.Duration // from start to the first event
	events  int
	id      string // of the response
	emitted emitted
	text    strings.Builder
	phases  map[int]string // of the messages, by output_index
	calls   []*writtenCall // that the model has begun to write
	done    []doneItem     // in the order in which they came
	fault   *fault         // an event has said that the response failed
}

// emitted is what of a response the reader of the events has got.
type emitted struct {
	any, text bool
	calls     map[string]bool // by call_id
	arguments map[string]bool // the same
	reasoning *ReasoningDelta // the last piece
	hosted    map[string]bool // the calls that have begun, by their ID
	items     map[string]bool // those that have ended
}

func mark(set *map[string]bool, key string) {
	if *set == nil {
		*set = make(map[string]bool)
	}
	(*set)[key] = true
}

// item emits what an item that is whole holds beside text and arguments: the work
// of a hosted tool, files, citations.
func (t *emitted) item(emit func(Event), index int, it *item, raw json.RawMessage) {
	if it.isCall() || it.Type == "reasoning" {
		return
	}
	key := cmp.Or(it.ID, fmt.Sprint("#", index))
	if t.items[key] {
		return
	}
	mark(&t.items, key)
	if it.isHosted() {
		if !t.hosted[it.ID] {
			emit(HostedStarted{it.hosted(nil)})
		}
		emit(HostedFinished{it.hosted(raw)})
	}
	for _, f := range it.files() {
		emit(FileAdded{f})
	}
	for _, c := range it.citations() {
		emit(CitationAdded{c, index})
	}
}

// reasoningDelta puts a blank line before a piece that begins a paragraph, so
// that the pieces make up a text.
func (t *emitted) reasoningDelta(d ReasoningDelta) ReasoningDelta {
	last := t.reasoning
	t.reasoning = &ReasoningDelta{Item: d.Item, Part: d.Part, Raw: d.Raw}
	if last != nil && *last != *t.reasoning {
		d.Text = "\n\n" + d.Text
	}
	return d
}

// A writtenCall is a call whose arguments come.
type writtenCall struct {
	item
	index int // output_index
	args  argumentReader
}

// call is the one that an event is about. Some servers give all of them one
// index, and others change the IDs of items.
func (a *assembly) call(e streamEvent) *writtenCall {
	for _, c := range a.calls {
		if c.ID != "" && c.ID == e.ItemID {
			return c
		}
	}
	for _, c := range a.calls {
		if c.index == e.OutputIndex {
			return c
		}
	}
	return nil
}

type doneItem struct {
	index int
	item  json.RawMessage
}

// streamEvent has what the loop reads of an event.
type streamEvent struct {
	Type         string          `json:"type"`
	Object       string          `json:"object"` // this and Status are of a response
	Status       string          `json:"status"`
	ItemID       string          `json:"item_id"`
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int             `json:"summary_index"`
	ContentIndex int             `json:"content_index"`
	Delta        json.RawMessage `json:"delta"`
	Item         json.RawMessage `json:"item"`
	Response     json.RawMessage `json:"response"`
	Error        json.RawMessage `json:"error"`
	PartialImage string          `json:"partial_image_b64"`
}

// eventTimeout is how long to wait for the next event.
func (a *assembly) eventTimeout(idle time.Duration) time.Duration {
	if a.fault != nil {
		return min(faultTimeout, idle)
	}
	return idle
}

// event takes in one event, whose name may be empty. The response is not nil when
// it was the last one.
func (a *assembly) event(name string, data []byte) (*response, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || bytes.Equal(data, []byte("[DONE]")) {
		return nil, nil // of compatible servers
	}
	var e streamEvent
	err := unmarshal(data, &e)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && odd.Field != "" {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: an event is no JSON object: %q", ErrIncompleteStream, snippet(data))
	}
	if a.events++; a.events == 1 {
		a.first = time.Since(a.start)
	}
	if e.Type == "" {
		e.Type = name
		if e.Object == "response" || e.Object == "" && isFinal(e.Status) { // itself, without an event around it
			e.Response = data
		}
	}
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		text := deltaText(e.Delta)
		a.text.WriteString(text)
		a.emitted.text = true
		a.emitEvent(TextDelta{Text: text, Phase: a.phases[e.OutputIndex], Item: e.OutputIndex, Refusal: e.Type == "response.refusal.delta"})
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if c := a.call(e); c != nil && a.read {
			mark(&a.emitted.arguments, c.CallID)
			for _, d := range c.deltas(&c.args, deltaText(e.Delta)) {
				a.emitEvent(d)
			}
		}
	case "response.reasoning_summary_text.delta":
		a.emitEvent(a.emitted.reasoningDelta(ReasoningDelta{Text: deltaText(e.Delta), Item: e.OutputIndex, Part: e.SummaryIndex}))
	case "response.reasoning_text.delta":
		a.emitEvent(a.emitted.reasoningDelta(ReasoningDelta{Text: deltaText(e.Delta), Item: e.OutputIndex, Part: e.ContentIndex, Raw: true}))
	case "response.output_item.added":
		a.added(e)
	case "response.output_item.done":
		own := slices.Clone(e.Item)
		a.done = append(a.done, doneItem{e.OutputIndex, own})
		if a.read {
			var it item
			unmarshal(own, &it) // what is missing is empty
			a.emitted.item(a.emitEvent, e.OutputIndex, &it, own)
		}
	case "response.created", "response.queued", "response.in_progress":
		var r struct{ ID string }
		unmarshal(e.Response, &r)
		a.id = cmp.Or(r.ID, a.id)
	case "error":
		a.fault = newFault(0, nil, data)
	default:
		if e.Type == "" && e.Response == nil && (len(e.Error) > 0 && string(e.Error) != "null" || e.Object == "error") {
			a.fault = newFault(0, nil, data)
			return nil, nil
		}
		if a.progress(e) {
			return nil, nil
		}
		return a.end(e, data)
	}
	return nil, nil
}

// progress tells how far a hosted tool is, if that is what the event says.
func (a *assembly) progress(e streamEvent) bool {
	kind, status, _ := strings.Cut(strings.TrimPrefix(e.Type, "response."), ".")
	p := HostedProgress{ID: e.ItemID, Kind: kind}
	switch {
	case strings.HasSuffix(kind, "_call"), kind == "mcp_list_tools":
		p.Status, p.Image = status, e.PartialImage
	case status == "delta":
		for _, what := range []string{"_code", "_arguments", "_command", "_output_content"} {
			if call, ok := strings.CutSuffix(kind, what); ok && strings.HasSuffix(call, "_call") {
				p.Kind, p.Text = call, deltaText(e.Delta)
			}
		}
		if p.Text == "" {
			return false
		}
	default:
		return false
	}
	a.emitEvent(p)
	return true
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

func (r *run) newAssembly() *assembly {
	return &assembly{emit: r.emit, read: r.opts.emit != nil, start: time.Now()}
}

func (a *assembly) emitEvent(e Event) {
	a.emitted.any = a.read
	a.emit(e)
}

func (a *assembly) added(e streamEvent) {
	var it item
	unmarshal(e.Item, &it) // what is missing is empty
	switch it.Type {
	case "message":
		if it.Phase != "" {
			if a.phases == nil {
				a.phases = make(map[int]string)
			}
			a.phases[e.OutputIndex] = it.Phase
		}
	case "function_call", "custom_tool_call":
		a.calls = append(a.calls, &writtenCall{item: it, index: e.OutputIndex})
		mark(&a.emitted.calls, it.CallID)
		a.emitEvent(it.announced())
	default:
		if it.isHosted() && a.read {
			mark(&a.emitted.hosted, it.ID)
			a.emitEvent(HostedStarted{it.hosted(nil)})
		}
	}
}

// end takes the response out of an event that ends it: one that is named so, or
// that holds a response whose status is final. What counts is the response's own
// status, as some servers call every end completed. Its output counts as well;
// where that is empty the items have come before. Events that end nothing are
// not for us, and new ones may come.
func (a *assembly) end(e streamEvent, data []byte) (*response, error) {
	named, ends := strings.CutPrefix(e.Type, "response.")
	ends = ends && isFinal(named)
	if !isObject(e.Response) {
		if named == "failed" && ends {
			a.fault = newFault(0, nil, data)
			return a.failed(), nil
		}
		if ends {
			return nil, fmt.Errorf("%w: %s without a response", ErrIncompleteStream, e.Type)
		}
		return nil, nil
	}
	r, err := decodeResponse(slices.Clone(e.Response))
	switch {
	case !ends && (err != nil || !isFinal(r.Status)):
		return nil, nil
	case err != nil:
		return nil, err
	case r.Status == "":
		r.Status = named
	case !isFinal(r.Status):
		return nil, fmt.Errorf("%w: %s with a response whose status is %q", ErrIncompleteStream, e.Type, r.Status)
	case r.Status == "completed" && ends:
		r.Status = named // whatever says that it is not whole is believed
	}
	if r.Status == "failed" && a.fault != nil {
		if r.Error == nil {
			r.Error = a.fault
		}
		r.Error.fill(a.fault)
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

func isFinal(status string) bool {
	switch status {
	case "completed", "incomplete", "failed", "cancelled":
		return true
	}
	return false
}

// failed is the response of which an event alone says that it failed.
func (a *assembly) failed() *response {
	return &response{ID: a.id, Status: "failed", Error: a.fault}
}

func deltaText(delta json.RawMessage) string {
	var s string
	unmarshal(delta, &s) // no string, no text
	return s
}
