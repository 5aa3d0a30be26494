package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// answering answers every request with the same bytes.
func answering(contentType string, r func() io.Reader) *fnloop.Loop {
	return &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(r()), Request: req}, nil
	}))}
}

const spokenDelta = `{"type":"response.output_text.delta","output_index":0,"delta":"Hällo 😀"}`

func whole(status, more string) string {
	return `{"id":"resp_1","object":"response","error":null,"status":"` + status + `",` + more + `"output":[{"type":"message","content":[{"type":"output_text","text":"Hällo 😀"}]}],"usage":{"input_tokens":3,"output_tokens":4}}`
}

// A stream may end its lines in any way that the standard allows, and be
// anything that a response can be told from.
func TestFormsOfABody(t *testing.T) {
	end := `{"type":"response.completed","response":` + whole("completed", "") + `}`
	events := []string{created, spokenDelta, end}
	frame := func(format string) string {
		var b strings.Builder
		for _, e := range events {
			var pretty bytes.Buffer
			require.NoError(t, json.Indent(&pretty, []byte(e), "", " "))
			var head struct{ Type string }
			require.NoError(t, json.Unmarshal([]byte(e), &head))
			b.WriteString(strings.NewReplacer("TYPE", head.Type, "PRETTY", strings.ReplaceAll(pretty.String(), "\n", "\ndata: "), "DATA", e).Replace(format))
		}
		return b.String()
	}
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, []byte(whole("completed", "")), "", "\t"))
	for _, tt := range []struct{ why, body string }{
		{"LF", frame("event: TYPE\ndata: DATA\n\n")},
		{"CRLF", frame("event: TYPE\r\ndata: DATA\r\n\r\n")},
		{"CR", frame("event: TYPE\rdata: DATA\r\r")},
		{"all three", frame("event: TYPE\rdata: DATA\r\n\n") + "\r"},
		{"many lines", frame("data: PRETTY\n\n")},
		{"many lines that end in CR", strings.ReplaceAll(frame("data: PRETTY\n\n"), "\n", "\r")},
		{"a byte order mark", "\ufeff" + frame("data: DATA\n\n")},
		{"comments", frame(": ping\r\revent: TYPE\r: x\rdata: DATA\r\r")},
		{"JSON", whole("completed", "")},
		{"JSON on many lines", "\r\n" + strings.ReplaceAll(indented.String(), "\n", "\r\n") + "\r\n"},
		{"JSON after a byte order mark", "\ufeff " + whole("completed", "")},
		{"a response without an event around it", "data: " + whole("completed", "") + "\n\n"},
		{"the type in the event's name alone", "event: response.output_text.delta\ndata: {\"output_index\":0,\"delta\":\"Hällo 😀\"}\n\nevent: response.completed\ndata: {\"response\":" + whole("completed", "") + "}\n\n"},
		{"an end by another name", "data: " + spokenDelta + "\n\ndata: {\"type\":\"response.done\",\"response\":" + whole("completed", "") + "}\n\n"},
		{"no status but the event's", "data: " + `{"type":"response.completed","response":` + strings.Replace(whole("completed", ""), `"status":"completed",`, "", 1) + "}\n\n"},
		{"an end without what came before", "data: " + end + "\n\n"},
	} {
		for _, contentType := range []string{"text/event-stream", "application/json", ""} {
			for name, read := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
				t.Run(fmt.Sprint(tt.why, contentType, name), func(t *testing.T) {
					loop := answering(contentType, func() io.Reader { return read(strings.NewReader(tt.body)) })
					loop.Attempts = 1
					seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
					require.NoError(t, err)
					assert.Equal(t, "Hällo 😀", ans.Text)
					assert.Equal(t, "Hällo 😀", said(seen, ""), "told once")
					assert.EqualValues(t, 7, ans.Usage.TotalTokens)

					service := loop.Client.(*responses.ResponseService)
					loop.Client = streaming{service}
					seen, ans, err = watch(t, loop.Events(t.Context(), nil, "hi"))
					require.NoError(t, err)
					assert.Equal(t, "Hällo 😀", ans.Text)
					assert.Equal(t, "Hällo 😀", said(seen, ""), "by openai-go's own stream too")

					loop.Client = service
					ans, err = loop.Run(t.Context(), "hi")
					require.NoError(t, err)
					assert.Equal(t, "Hällo 😀", ans.Text, "where the server streams unasked")
				})
			}
		}
	}
}

// What a response says of itself counts, and not what its event is called.
func TestStatusAndEventDisagree(t *testing.T) {
	event := func(name, response string) string {
		return `{"type":"response.` + name + `","response":` + response + `}`
	}
	for _, tt := range []struct {
		why, event string
		stop       fnloop.StopReason
	}{
		{"completed, but cut at its limit", event("completed", whole("incomplete", `"incomplete_details":{"reason":"max_output_tokens"},`)), fnloop.StopTruncated},
		{"completed, but filtered", event("completed", whole("incomplete", `"incomplete_details":{"reason":"content_filter"},`)), fnloop.StopFiltered},
		{"completed, but failed", event("completed", whole("failed", `"error":{"code":"invalid_prompt","message":"no"},`)), fnloop.StopFailed},
		{"done, but cut", event("done", whole("incomplete", `"incomplete_details":{"reason":"max_output_tokens"},`)), fnloop.StopTruncated},
		{"cut, but completed", event("incomplete", whole("completed", "")), fnloop.StopIncomplete},
		{"done, but not at its end", event("done", whole("in_progress", "")), fnloop.StopStream},
		{"created as if it were completed", event("created", whole("completed", "")), fnloop.StopStream},
	} {
		t.Run(tt.why, func(t *testing.T) {
			loop := sse(t, "text/event-stream", frames(created, spokenDelta, tt.event))
			_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.Error(t, err)
			assert.Equal(t, tt.stop, ans.Stop)
			assert.Empty(t, ans.ID)
			if tt.stop != fnloop.StopStream {
				assert.EqualValues(t, 7, ans.Usage.TotalTokens, "what it used is known")
				assert.Zero(t, ans.Unmetered)
			}
		})
	}
}

// A body that is cut is an incomplete stream, whatever the connection calls it.
func TestCutBodies(t *testing.T) {
	for _, cut := range []error{io.ErrUnexpectedEOF, errors.New("stream error: stream ID 1; INTERNAL_ERROR"), io.EOF} {
		for _, text := range []string{frames(created, spokenDelta), `{"id":"resp_1","object":"resp`} {
			loop := answering("text/event-stream", func() io.Reader { return io.MultiReader(strings.NewReader(text), iotest.ErrReader(cut)) })
			_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.ErrorIs(t, err, fnloop.ErrIncompleteStream, cut)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Equal(t, fnloop.StopStream, ans.Stop)
		}
	}
}

// The caller's own cancel is no broken stream.
func TestCancelIsNotABrokenStream(t *testing.T) {
	slow := rt.Text("Once upon a time there was a long story to be told").Paced(20 * time.Millisecond)
	check := func(t *testing.T, loop *fnloop.Loop) {
		t.Helper()
		why := errors.New("the user pressed stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for e, err := range loop.Events(ctx, nil, "hi") {
			switch e := e.(type) {
			case fnloop.TextDelta:
				cancel(why)
			case fnloop.Done:
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, why)
				assert.NotErrorIs(t, err, io.ErrUnexpectedEOF)
				var stream *fnloop.StreamError
				assert.NotErrorAs(t, err, &stream)
				assert.Equal(t, fnloop.StopCancelled, e.Answer.Stop)
				assert.NotEmpty(t, e.Answer.Partial, "what was seen is kept")
			}
		}
	}
	t.Run("HTTP", func(t *testing.T) {
		srv := rt.NewServer(slow)
		defer srv.Close()
		check(t, &fnloop.Loop{Client: srv.Client(), Model: "m"})
	})
	t.Run("WebSocket", func(t *testing.T) {
		srv := rt.NewServer(slow)
		defer srv.Close()
		check(t, &fnloop.Loop{Client: srv.Client(), Model: "m", WebSocket: true})
	})
	t.Run("after a failure that was real", func(t *testing.T) {
		loop, _ := play(t, rt.ServerError())
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := loop.Run(ctx, "hi")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var request *fnloop.RequestError
			require.ErrorAs(t, err, &request, "it is told too")
			assert.Equal(t, 500, request.StatusCode)
		})
	})
}

func TestWebSocketResponseHasABound(t *testing.T) {
	piece := `{"type":"response.output_text.delta","output_index":0,"delta":"` + strings.Repeat("x", 4<<20) + `"}`
	sent := 0
	loop := socketLoop(t, func(_ int, send func(string)) {
		for sent = 0; sent < 40; sent++ {
			send(piece)
		}
		send(completed)
	})
	ans, err := loop.Run(t.Context(), "hi")
	require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
	assert.ErrorContains(t, err, "larger than 64 MiB")
	assert.Equal(t, fnloop.StopStream, ans.Stop)
	assert.LessOrEqual(t, len(ans.Partial), 64<<20)
}

// What an attempt that was repeated has said is not the answer's.
func TestPartialIsOfTheLastAttempt(t *testing.T) {
	for _, socket := range []bool{true, false} {
		loop, _ := play(t)
		srv := rt.NewServer(rt.Text("The first attempt is cut somewhere here").Broken(rt.Reset, 8), rt.Incomplete("max_output_tokens", rt.Text("Second attempt")))
		defer srv.Close()
		loop.Client, loop.WebSocket, loop.MaxRetryWait = srv.Client(), socket, time.Millisecond
		ans, err := loop.Run(t.Context(), "hi")
		require.ErrorIs(t, err, fnloop.ErrTruncated)
		assert.Equal(t, "Second attempt", ans.Partial)
	}
}
