package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/websocket"
	"github.com/openai/openai-go/v3/responses"
)

const (
	// handshakeTimeout is how long the API may take to accept a WebSocket. HTTP is
	// there for when it does not.
	handshakeTimeout = 15 * time.Second
	// closeTimeout is how long a run waits for the API to close its side. By then
	// the answer is there, so that this is no more than good manners.
	closeTimeout = 10 * time.Millisecond
)

// A webSocket is the WebSocket of a run.
type webSocket struct {
	conn      *responses.ResponseConnection // nil when there is none, or no more
	handshake *http.Response                // that opened conn
	used      bool                          // a response has come on conn
	lastID    string                        // the last one, if nothing has failed since
	refused   bool                          // the run goes on over HTTP
}

// tryWebSocket sends a request on the run's WebSocket and reads the response. It
// reports false when the request has to go over HTTP.
func (r *run) tryWebSocket(ctx context.Context, params *responses.ResponseNewParams) (*response, *failure, bool) {
	for {
		if !r.openWebSocket(ctx) {
			return nil, nil, false
		}
		used := r.ws.used
		sent, chained := r.trimKnownItems(params)
		response, fail := r.sendWebSocket(ctx, sent)
		f := faultOf(response, fail)
		lost := chained && f != nil && f.forgotten(r.answer.ID)
		if fail == nil && !lost {
			r.ws.used, r.ws.lastID = true, response.ID
			return response, nil, true
		}
		r.ws.lastID = "" // the API forgets what a refused request continues
		switch {
		case lost:
		case used && fail.unsent(): // the connection was lost while handlers ran
		case used && f != nil && f.code == "websocket_connection_limit_reached":
			r.abortWebSocket()
		default:
			return nil, fail, true
		}
	}
}

// unsent reports whether the request has not left.
func (f *failure) unsent() bool {
	e, ok := errors.AsType[*websocket.DeliveryError](f.err)
	return ok && !e.MayHaveBeenSent
}

// openWebSocket opens the run's WebSocket unless it is open. It reports whether there
// is one. If the API does not accept it, or the client cannot have one, the
// rest of the run goes over HTTP.
func (r *run) openWebSocket(ctx context.Context) bool {
	if r.ws.conn != nil || r.ws.refused {
		return !r.ws.refused
	}
	opening, cancel := context.WithTimeout(ctx, min(handshakeTimeout, r.idleTimeout))
	defer cancel()
	client := r.loop.Client.(*responses.ResponseService) // settings has checked
	options := responses.ResponseConnectionOptions{
		MaxMessageBytes:  maxResponse,
		MaxBufferedBytes: maxResponse,
		CloseTimeout:     closeTimeout,
	}
	start := time.Now()
	var httpRes *http.Response
	conn, err := client.Connect(opening, options, option.WithResponseInto(&httpRes))
	if err != nil {
		status := 0
		if httpRes != nil {
			status = httpRes.StatusCode
		}
		if ctx.Err() == nil {
			r.log.InfoContext(ctx, "no WebSocket, the run goes on over HTTP", "status", status, "error", err)
		}
		r.ws = webSocket{refused: true}
		return false
	}
	r.log.DebugContext(ctx, "connected", "duration", time.Since(start))
	r.ws = webSocket{conn: conn, handshake: httpRes}
	return true
}

// abortWebSocket ends the WebSocket at once, and with it the response that is being
// made.
func (r *run) abortWebSocket() {
	if r.ws.conn != nil {
		r.ws.conn.Abort()
		r.ws = webSocket{}
	}
}

// closeWebSocket ends the WebSocket when the run has ended.
func (r *run) closeWebSocket() {
	if r.ws.conn != nil {
		r.ws.conn.Close()
		r.ws = webSocket{}
	}
}

// trimKnownItems leaves out of a stateless request what the API holds: it keeps the
// last response of a connection there, although it stores nothing. It reports
// whether there was something to leave out.
func (r *run) trimKnownItems(params *responses.ResponseNewParams) (*responses.ResponseNewParams, bool) {
	a := r.answer
	if r.loop.State != Stateless || a.ID == "" || r.ws.lastID != a.ID {
		return params, false
	}
	n := len(a.Items)
	if r.loop.BeforeRequest != nil && !hasPrefixItems(r.requestItems, a.Items) { // it has edited the conversation
		return params, false
	}
	rest := *params
	rest.Input.OfInputItemList = rest.Input.OfInputItemList[n:]
	rest.PreviousResponseID = param.NewOpt(a.ID)
	return &rest, true
}

// hasPrefixItems reports whether the first of the items are the same as before.
func hasPrefixItems(items, before []json.RawMessage) bool {
	if len(items) < len(before) {
		return false
	}
	return slices.EqualFunc(items[:len(before)], before, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

// createEvent is a request in the form in which it is sent on a WebSocket: the
// same JSON with a type. Background is false if it is set, and not known there.
func createEvent(params *responses.ResponseNewParams) (json.RawMessage, error) {
	known := *params
	known.Background = param.Opt[bool]{}
	body, err := json.Marshal(known)
	if err != nil {
		return nil, err
	}
	return append([]byte(`{"type":"response.create",`), body[1:]...), nil
}

// sendWebSocket sends a request on the WebSocket once and emits the events of its
// response.
func (r *run) sendWebSocket(ctx context.Context, params *responses.ResponseNewParams) (*response, *failure) {
	message, err := createEvent(params)
	if err != nil {
		return nil, classify(err, nil)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.idleTimeout, func() { cancel(ErrIdleStream) })
	defer idle.Stop()

	a := r.newAssembly()
	conn := r.ws.conn
	if err := conn.SendRaw(ctx, message); err != nil {
		return nil, r.webSocketFailure(ctx, err, a)
	}
	read := 0
	for {
		idle.Reset(a.eventTimeout(r.idleTimeout)) // the reader's time is not the server's
		data, err := conn.RecvRaw(ctx)
		idle.Stop()
		if read += len(data); read > maxResponse {
			err = errTooLarge
		}
		if err != nil && a.fault != nil {
			r.abortWebSocket() // what may yet come of this response is not for the next request
			return r.noteStreamed(a.failed(), a), nil
		}
		if err != nil {
			return nil, r.webSocketFailure(ctx, err, a)
		}
		failed := a.fault != nil
		response, err := a.event("", data)
		if err != nil {
			r.abortWebSocket()
			r.keepPartial(a)
			return nil, &failure{err: &StreamError{Events: a.events, Err: err}, maybeDelivered: true}
		}
		if !failed && a.fault != nil {
			if fail := errorEventFailure(data, r.ws.handshake); fail != nil {
				if a.events > 1 {
					r.abortWebSocket() // the same
				}
				fail.retry = fail.retry && !a.emitted.any
				return nil, fail
			}
		}
		if response != nil && (response.ID == "" || response.ID != r.answer.ID) { // no response continues itself
			return r.noteStreamed(response, a), nil
		}
	}
}

// webSocketFailure says what to make of a connection that failed, and ends it.
func (r *run) webSocketFailure(ctx context.Context, err error, a *assembly) *failure {
	r.abortWebSocket()
	r.keepPartial(a)
	_, noJSON := errors.AsType[*json.SyntaxError](err)
	if a.events > 0 || noJSON || context.Cause(ctx) == ErrIdleStream {
		return r.streamFailure(ctx, err, nil, a)
	}
	sent := true
	if e, ok := errors.AsType[*websocket.DeliveryError](err); ok {
		sent = e.MayHaveBeenSent
	}
	e := &RequestError{Attempts: 1, MaybeDelivered: sent, Err: err}
	return &failure{err: e, retry: !errors.Is(err, websocket.ErrMessageLimit), wait: -1, maybeDelivered: sent}
}

// errorEventFailure makes of an error message what the same refusal over HTTP would be.
// It is nil for the error that is an event of a response.
func errorEventFailure(data []byte, handshake *http.Response) *failure {
	var e struct {
		Type     string          `json:"type"`
		Status   int             `json:"status"`
		Sequence *int64          `json:"sequence_number"`
		Error    json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &e) != nil || e.Type != "error" || e.Status < http.StatusBadRequest || e.Sequence != nil {
		return nil
	}
	f := newFault(e.Status, nil, data)
	api := new(responses.Error)
	json.Unmarshal(e.Error, api) // what is missing is empty
	api.StatusCode, api.Request = e.Status, handshake.Request
	api.Response = &http.Response{
		Status:     fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)),
		StatusCode: e.Status,
		Header:     make(http.Header),
		Body:       http.NoBody,
		Request:    handshake.Request,
	}
	var more struct{ Headers map[string]string }
	json.Unmarshal(e.Error, &more) // the same
	for name, value := range more.Headers {
		api.Response.Header.Set(name, value)
	}
	f.shouldRetry = api.Response.Header.Get("X-Should-Retry")
	return f.requestFailure(api, api.Response.Header.Get("X-Request-Id"))
}
