package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// RoundTrip answers req without a connection: it makes a Server the Transport
// of a client. Bodies stream, and what the handler would do to a connection
// happens to the answer.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	in := req.Clone(ctx)
	in.RequestURI = req.URL.RequestURI()
	in.Body = http.NoBody
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			cancel()
			return nil, err
		}
		in.Body = io.NopCloser(bytes.NewReader(body))
	}
	r, w := io.Pipe()
	out := &pipeWriter{header: make(http.Header), body: w, begun: make(chan struct{})}
	broken := make(chan struct{})
	go func() {
		defer cancel()
		defer func() {
			switch p := recover(); p {
			case nil:
				out.WriteHeader(http.StatusOK)
				w.Close()
			case http.ErrAbortHandler:
				w.CloseWithError(io.ErrUnexpectedEOF)
				close(broken)
			default:
				panic(p)
			}
		}()
		s.ServeHTTP(out, in)
	}()
	stop := context.AfterFunc(req.Context(), func() { r.CloseWithError(req.Context().Err()) })
	gone := func(err error) (*http.Response, error) {
		stop()
		r.CloseWithError(err)
		cancel()
		return nil, err
	}
	select {
	case <-out.begun:
	case <-broken:
		select {
		case <-out.begun: // it broke within the body
		default:
			return gone(io.EOF)
		}
	case <-ctx.Done():
		select {
		case <-out.begun: // and ended
		default:
			if err := req.Context().Err(); err != nil {
				return gone(err)
			}
			return gone(io.EOF)
		}
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", out.status, http.StatusText(out.status)), StatusCode: out.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: out.sent, Body: &pipeBody{r, cancel, stop}, ContentLength: -1, Request: req,
	}, nil
}

// pipeBody ends the request when it is closed.
type pipeBody struct {
	*io.PipeReader
	cancel func()
	stop   func() bool
}

func (b *pipeBody) Close() error {
	b.stop()
	b.cancel()
	return b.PipeReader.Close()
}

// pipeWriter is the server's side of an answer.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan struct{}

	once   sync.Once
	status int
	sent   http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }
func (w *pipeWriter) Flush()              {}

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
