package mcptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A watcher is an HTTP transport that fills in exchanges, and keeps an answer that
// is no message from ending the session.
type watcher struct {
	next http.RoundTripper
	max  int
	log  *slog.Logger
}

// RoundTrip sends a request. The body of its response is one that go-sdk can read.
func (w *watcher) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodDelete { // the end of a session, which nobody waits for long
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		resp, err := w.next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		resp.Body = http.NoBody
		return resp, nil
	}
	x := exchangeFrom(req.Context())
	if x != nil {
		written := func() { x.written.Store(true) }
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			WroteHeaderField: func(string, []string) { written() },
			WroteHeaders:     written,
		}))
	}
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	good := 200 <= resp.StatusCode && resp.StatusCode < 300
	switch {
	case x == nil || !good:
		if x != nil {
			x.status.Store(int32(resp.StatusCode))
		}
		if kind != "text/event-stream" { // whose events go-sdk bounds
			resp.Body = &boundedBody{ReadCloser: resp.Body, left: w.max}
		}
	case kind == "text/event-stream":
		resp.Body = &eventBody{x: x, log: w.log, lines: newLineReader(resp.Body, w.max), body: resp.Body}
		resp.ContentLength = -1
	default:
		body := w.document(x, req, resp, kind)
		resp.Body = io.NopCloser(bytes.NewReader(body))
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Type", "application/json")
		resp.Header.Del("Content-Length")
	}
	return resp, nil
}

// document reads a response that is one document.
func (w *watcher) document(x *exchange, req *http.Request, resp *http.Response, kind string) []byte {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(w.max)+1))
	text := ""
	switch {
	case err != nil && req.Context().Err() == nil:
		text = lostText
	case len(data) > w.max:
		text = fmt.Sprintf(leftOutText+"a message of more than %d bytes is larger than what is taken", w.max)
	case kind != "application/json":
		text = fmt.Sprintf("the server answered with %q and not with a message", resp.Header.Get("Content-Type"))
	default:
		msg, err := jsonrpc.DecodeMessage(data)
		r, ok := msg.(*jsonrpc.Response)
		if err == nil && ok {
			x.take(r)
			if data, err = jsonrpc.EncodeMessage(r); err == nil {
				return data
			}
		}
		text = "the server answered with something that is no message"
	}
	var find idFinder
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			sent, _ := io.ReadAll(body)
			find.feed(sent)
		}
	}
	r := failure(find.id, text)
	if r == nil {
		return data
	}
	data, _ = jsonrpc.EncodeMessage(r)
	return data
}

// Errors that stand for an answer.
const (
	lostText    = "the connection was lost before the answer was complete"
	leftOutText = "the answer was left out: "
)

// errTooLarge is for a message that is nobody's result.
var errTooLarge = errors.New("mcptool: the server sent a message that is too large")

// A boundedBody is a body of which at most so many bytes are read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// An eventBody is a body of server-sent events in which the response to the exchange
// is replaced by what go-sdk can decode.
type eventBody struct {
	x     *exchange
	log   *slog.Logger
	lines *lineReader
	body  io.Closer

	out  []byte // what was not read yet
	data []byte // of the event that is being read
	any  bool   // the event has data
	err  error
}

func (b *eventBody) Close() error { return b.body.Close() }

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.line()
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

// line reads one line. Those of an event's data are held until its end.
func (b *eventBody) line() {
	line, err := b.lines.next()
	if long, ok := errors.AsType[*oversize](err); ok {
		// What comes before the message in the line is none of its text.
		b.log.Warn("message left out", "error", err)
		b.data, b.any = nil, false
		if r := failure(long.id, leftOutText+long.Error()); r != nil {
			b.data, _ = jsonrpc.EncodeMessage(r)
			b.any = true
		}
		return
	}
	if err != nil {
		b.err = err
		return
	}
	if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if b.any {
			b.data = append(b.data, '\n')
		}
		if len(b.data)+len(value) > b.lines.max {
			b.err = errTooLarge
			return
		}
		b.data = append(b.data, bytes.TrimPrefix(value, []byte(" "))...)
		b.any = true
		return
	}
	if len(line) == 0 && b.any {
		if data := b.message(b.data); len(data) > 0 {
			b.out = append(b.out, "data: "...)
			b.out = append(append(b.out, data...), '\n')
		}
		b.data, b.any = b.data[:0], false
	}
	b.out = append(append(b.out, line...), '\n')
}

// message is what go-sdk gets of a message; nothing if it is none.
func (b *eventBody) message(data []byte) []byte {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	msg, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		b.log.Warn("passed over an event that is no message", "error", err)
		return nil
	}
	if r, ok := msg.(*jsonrpc.Response); ok {
		b.x.take(r)
	}
	out, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return nil
	}
	return out
}
