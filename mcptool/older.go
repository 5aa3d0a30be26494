package mcptool

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	sessionHeader  = "Mcp-Session-Id"
	revisionHeader = "Mcp-Protocol-Version"
	newer          = "2026-07-28" // the first revision in which the end of a request cancels it
)

// older lets clients of older revisions cancel their calls, of which go-sdk does not
// tell a server without sessions: with a message of its own, or by going away, since
// nobody can fetch the result then. The name that such a client gets when it
// initializes keeps it from cancelling the calls of others. Only calls that run are
// kept.
func older(most int, next http.Handler) http.Handler {
	type call struct{ session, id string }
	var running sync.Map // call to *context.CancelFunc
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get(revisionHeader) >= newer {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
		if err != nil {
			status := http.StatusBadRequest
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", most)
			}
			http.Error(w, err.Error(), status)
			return
		}
		var message struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				RequestID json.RawMessage `json:"requestId"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &message) // go-sdk says what is wrong
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		session := r.Header.Get(sessionHeader)
		switch message.Method {
		case "initialize":
			w.Header().Set(sessionHeader, rand.Text())
		case methodCall:
			if session == "" {
				break
			}
			key := call{session, string(message.ID)}
			running.Store(key, &cancel)
			defer running.CompareAndDelete(key, &cancel)
		case "notifications/cancelled":
			if end, ok := running.Load(call{session, string(message.Params.RequestID)}); ok {
				(*end.(*context.CancelFunc))()
			}
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, ctx))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

type callerKey struct{}

// whileWanted is ctx that ends, too, when the client of an older revision does not
// want the result any more.
func whileWanted(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := func() bool { return true }
	if caller, ok := ctx.Value(callerKey{}).(context.Context); ok {
		stop = context.AfterFunc(caller, cancel)
	}
	return ctx, func() {
		stop()
		cancel()
	}
}
