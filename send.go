package fnloop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// nextResponse makes the next request, sends it and returns its response.
func (r *run) nextResponse(ctx context.Context) (*response, error) {
	q, err := r.nextRequest(ctx)
	if err != nil {
		return nil, err
	}
	r.requests++
	r.emit(RequestStarted{r.requests})
	t := &attempts{}
	ctx, end := r.observeResponse(ctx, q.params)
	response, err := r.send(ctx, q, t)
	if end != nil {
		end(response, t.count, err)
	}
	return response, err
}

// nextRequest is newRequest, unless the run has used its tokens. A *ConfigError
// says that nothing was sent, so what a hook breaks later is an error of the hook.
func (r *run) nextRequest(ctx context.Context) (*request, error) {
	if err := r.checkTokens(ctx); err != nil {
		return nil, err
	}
	params, err := r.newRequest(ctx)
	if c, ok := err.(*ConfigError); ok && r.began {
		err = &hookError{"BeforeRequest", errors.New(strings.TrimPrefix(c.Field, "BeforeRequest: ") + ": " + c.Reason)}
	}
	return &request{params: params}, err
}

// checkTokens is an error when MaxTokens are used.
func (r *run) checkTokens(ctx context.Context) error {
	most := r.loop.MaxTokens
	if most <= 0 {
		return nil
	}
	used := r.answer.Usage.TotalTokens
	if r.loop.OtherTokens != nil {
		var others int64
		if err := r.callHook(ctx, "OtherTokens", func() (err error) {
			others, err = r.loop.OtherTokens(ctx)
			return err
		}); err != nil && ctx.Err() != nil {
			return r.ended(ctx, nil) // a database has no answer for a context that has ended
		} else if err != nil {
			return err
		}
		used += others
	}
	if used >= most {
		return fmt.Errorf("%w: %d of %d tokens were used", ErrMaxTokens, used, most)
	}
	return nil
}

// send sends a request, as often as it takes and the Loop allows, and returns the
// response that the run goes on with.
func (r *run) send(ctx context.Context, q *request, t *attempts) (*response, error) {
	for {
		if ctx.Err() != nil {
			return nil, r.ended(ctx, t.last)
		}
		t.count++
		r.began = true
		start := time.Now()
		response, fail := r.attempt(ctx, q)
		if response != nil {
			r.addUsage(response)
			if fail = response.failure(); fail != nil && response.emitted.any {
				fail.retry = false
			}
		}
		r.logRequest(ctx, t.count, time.Since(start), response, fail)
		if f := faultOf(response, fail); r.resendIfForgotten(f) || r.resendWithoutReasoning(f) {
			var err error
			if q, err = r.nextRequest(ctx); err != nil {
				return nil, err
			}
			t.count--
			continue
		}
		if fail == nil {
			return r.emitResponse(response), nil
		}
		if ctx.Err() != nil && !fail.answered() { // that is why it failed
			return nil, r.ended(ctx, t.last)
		}
		t.add(fail)
		if ctx.Err() != nil {
			return nil, r.ended(ctx, t.last)
		}
		wait := fail.wait
		if wait < 0 {
			wait = min(backoff(t.count), r.maxRetryWait)
		}
		if r.loop.State == InConversation && fail.maybeDelivered {
			fail.retry = false // what was delivered is in the conversation, and cannot be sent twice
		}
		if !fail.retry || t.count >= r.attempts || wait > r.maxRetryWait {
			if response != nil {
				return r.emitResponse(response), nil // it says itself what failed
			}
			return nil, t.last
		}
		r.emit(retryEvent(r.requests, t.count+1, wait, fail))
		r.answer.Partial, r.answer.Interrupted = "", false // the next attempt begins anew, and nobody has read this one
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, r.ended(ctx, t.last)
		}
	}
}

// faultOf is what the server says of a failure, or nil.
func faultOf(response *response, fail *failure) *fault {
	switch {
	case response != nil && response.Status == "failed" && !response.emitted.any:
		return response.Error
	case response == nil:
		return fail.fault
	}
	return nil
}

func retryEvent(request, attempt int, wait time.Duration, fail *failure) Retry {
	e := Retry{Request: request, Attempt: attempt, Wait: wait, Err: fail.err}
	switch err := fail.err.(type) {
	case *RequestError:
		e.StatusCode, e.Code = err.StatusCode, cmp.Or(err.Code, err.Type)
	case *ResponseError:
		e.Code = cmp.Or(err.Code, err.Type)
	}
	return e
}

// logRequest writes the record of one attempt to get a response.
func (r *run) logRequest(ctx context.Context, attempt int, took time.Duration, res *response, fail *failure) {
	if !r.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{slog.Int("request", r.requests), slog.Int("attempt", attempt), slog.Duration("duration", took)}
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("previous_response_id", r.answer.ID)
	if res != nil {
		text("response_id", res.ID)
		text("request_id", res.requestID)
		text("status", res.Status)
		text("model", res.Model)
		if u, ok := res.usage(); ok {
			attrs = append(attrs, slog.Int64("input_tokens", u.InputTokens), slog.Int64("output_tokens", u.OutputTokens))
		}
		if fail == nil { // of a response that is not repeated
			if err := res.check(); err != nil {
				text("error", err.Error())
			}
		}
	}
	if fail != nil {
		if e, ok := errors.AsType[*RequestError](fail.err); ok {
			text("request_id", e.RequestID)
		}
		attrs = append(attrs, slog.Bool("retry", fail.retry))
		text("error", fail.err.Error())
	}
	r.log.LogAttrs(ctx, slog.LevelDebug, "request", attrs...)
}

// attempts are the attempts to send one request.
type attempts struct {
	count          int
	maybeDelivered bool
	last           error
}

func (t *attempts) add(fail *failure) {
	t.maybeDelivered = t.maybeDelivered || fail.maybeDelivered
	t.last = fail.err
	switch e := fail.err.(type) {
	case *RequestError:
		e.Attempts, e.MaybeDelivered = t.count, t.maybeDelivered
	case *StreamError:
		e.Attempts, e.MaybeDelivered = t.count, t.maybeDelivered
	}
}

func (r *run) addUsage(response *response) {
	r.answer.Responses++
	if response.Model != "" {
		r.answer.Model, r.answer.ServiceTier = response.Model, response.ServiceTier
	}
	if u, ok := response.usage(); ok {
		r.answer.Usage.add(u)
	} else {
		r.answer.Unmetered++
	}
}

// emitResponse tells the reader of the response that the loop goes on with.
func (r *run) emitResponse(response *response) *response {
	if r.opts.emit != nil {
		response.emitEvents(r.emit)
	}
	u, _ := response.usage()
	r.emit(ResponseFinished{Request: r.requests, Usage: u, ID: response.ID, Model: response.Model, ServiceTier: response.ServiceTier})
	return response
}

// A failure is why one attempt got nothing that the loop can go on with.
type failure struct {
	err            error
	fault          *fault        // what the server says of it; nil if nothing
	retry          bool          // it may go away
	wait           time.Duration // that the API asked for; negative means none
	maybeDelivered bool
}

// answered reports whether the server has said what failed.
func (f *failure) answered() bool {
	switch e := f.err.(type) {
	case *RequestError:
		return e.StatusCode >= http.StatusBadRequest
	case *StreamError:
		return false
	}
	return true
}

// failure is not nil for a response that failed and may succeed when it is asked
// for again.
func (r *response) failure() *failure {
	if r.Status != "failed" {
		return nil
	}
	f := r.Error
	if f == nil {
		f = newFault(0, nil, nil)
	}
	if !f.transient() {
		return nil
	}
	return &failure{err: r.check(), retry: true, wait: f.wait, maybeDelivered: true}
}

// attempt sends a request once, in the way that suits the reader and the client.
func (r *run) attempt(ctx context.Context, q *request) (*response, *failure) {
	if r.loop.WebSocket {
		if response, fail, ok := r.tryWebSocket(ctx, q.params); ok {
			return response, fail
		}
	}
	if err := r.writeBody(q); err != nil {
		return nil, classify(err, nil)
	}
	if r.streams() {
		return r.stream(ctx, q)
	}
	return r.create(ctx, q)
}

// streams reports whether responses are streamed when they come over HTTP.
func (r *run) streams() bool {
	if r.opts.emit == nil {
		return false
	}
	switch r.loop.Client.(type) {
	case *responses.ResponseService, Streamer:
		return true
	}
	return false
}

// create sends a request once and waits for the whole response.
func (r *run) create(ctx context.Context, q *request) (*response, *failure) {
	var httpRes *http.Response
	var got *response
	var unusable error // what came
	err := r.bounded(func() error {
		client, ok := r.loop.Client.(*responses.ResponseService)
		if !ok { // it may be a wrapper that wants what the service decodes
			res, err := newResponse(ctx, r.loop.Client, q.params, []option.RequestOption{noRetries, option.WithResponseInto(&httpRes), capWhole})
			switch {
			case err != nil:
				return err
			case res == nil:
				unusable = &ProtocolError{Reason: "the client returned neither a response nor an error"}
			default:
				got, unusable = convertResponse(res)
			}
			return nil
		}
		if err := r.post(ctx, client, q, &httpRes, noRetries, capWhole); err != nil {
			return err
		}
		body, err := readBody(httpRes)
		if err != nil {
			return err
		}
		got, unusable = decodeBody(body, httpRes.Header) // here, since the stack has room for it
		return nil
	})
	if fail := clientFailure(err); fail != nil {
		return nil, fail
	}
	if err != nil {
		return nil, classify(err, httpRes)
	}
	if unusable != nil {
		return nil, &failure{err: unusable}
	}
	got.requestID = requestID(httpRes)
	return got, nil
}

// readBody reads the body of a response to its end.
func readBody(res *http.Response) ([]byte, error) {
	defer res.Body.Close()
	var b bytes.Buffer
	const usual, most = 4 << 10, 1 << 20 // of what is not known, and not believed
	length := res.ContentLength
	if length <= 0 {
		length = usual
	}
	b.Grow(int(min(length, most)) + bytes.MinRead)
	if _, err := b.ReadFrom(res.Body); err != nil {
		return nil, fmt.Errorf("error reading response body: %w", err)
	}
	return b.Bytes(), nil
}
