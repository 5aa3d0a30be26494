package fnloop_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

// A recorder answers each request with the next output, whatever it asks for, and
// keeps the requests.
type recorder struct {
	outputs []string // each the items of a response
	bodies  []string
	headers []http.Header
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	n := len(r.bodies)
	r.bodies, r.headers = append(r.bodies, string(body)), append(r.headers, req.Header)
	if req.ContentLength != int64(len(body)) || req.GetBody == nil {
		return nil, fmt.Errorf("the request's body has the length %d and not %d, or cannot be read again", req.ContentLength, len(body))
	}
	text := fmt.Sprintf(`{"id":"resp_%d","object":"response","status":"completed","output":[%s]}`, n+1, r.outputs[n])
	contentType := "application/json"
	if bytes.Contains(body, []byte(`"stream":true`)) {
		contentType, text = "text/event-stream", frames(`{"type":"response.completed","response":`+text+`}`)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}},
		Body: io.NopCloser(bytes.NewReader([]byte(text))), Request: req,
	}, nil
}

const (
	callsEcho  = `{"type":"function_call","call_id":"call_%[1]d","name":"echo","arguments":"{}","status":"completed"}`
	callsShout = `{"type":"custom_tool_call","call_id":"call_%[1]d","name":"shout","input":"hey"}`
	saysDone   = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}`
)

// hard is text that encoders of JSON treat in different ways.
const hard = "<b>&amp;</b> \u2028 \" \\ \x00 \t é 🙂"

// TestRequestBody compares the requests that a Loop writes itself with those that
// openai-go writes when a hook has them for editing.
func TestRequestBody(t *testing.T) {
	program := `{"type":"program","id":"prog_1"},{"type":"function_call","call_id":"call_1","name":"echo","arguments":"{}","status":"in_progress","caller":{"type":"program","caller_id":"prog_1"}}`
	reasoning := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"<&>","more":{"big":12345678901234567890}}`
	image := fnloop.Content{ImageURL: "https://example.com/a.png?x=1&y=2", Detail: "low"}
	type verdict struct {
		Good bool `json:"good"`
	}
	tests := []struct {
		name    string
		reason  string
		outputs []string
		run     func(*testing.T, *fnloop.Loop)
	}{
		{"a chain", "text and outputs are what nearly all requests hold", []string{fmt.Sprintf(callsEcho, 1) + "," + fmt.Sprintf(callsEcho, 2), saysDone, saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.Instructions = hard
			a, err := l.Run(t.Context(), hard)
			require.NoError(t, err)
			_, err = l.Continue(t.Context(), a, "again")
			require.NoError(t, err)
		}},
		{"stateless", "items go back as they came", []string{reasoning + "," + fmt.Sprintf(callsEcho, 1), saysDone, saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.State = fnloop.Stateless
			a, err := l.Run(t.Context(), hard)
			require.NoError(t, err)
			_, err = l.Continue(t.Context(), a, "again")
			require.NoError(t, err)
		}},
		{"a conversation object", "it is named in each request", []string{fmt.Sprintf(callsEcho, 1), saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.State = fnloop.InConversation
			_, err := l.Continue(t.Context(), &fnloop.Answer{Conversation: "conv_1"}, "hi")
			require.NoError(t, err)
		}},
		{"no tools", "an empty list is none", []string{saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.Tools = nil
			_, err := l.Run(t.Context(), "hi")
			require.NoError(t, err)
		}},
		{"other outputs", "custom tools and programs have outputs of their own form", []string{fmt.Sprintf(callsShout, 2) + "," + program, saysDone}, func(t *testing.T, l *fnloop.Loop) {
			_, err := l.Run(t.Context(), "hi")
			require.NoError(t, err)
		}},
		{"an output of parts", "it is a list", []string{fmt.Sprintf(callsEcho, 1), saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.Tools[0].Handle = func(context.Context, fnloop.Call) (fnloop.Output, error) {
				return fnloop.Output{Content: []fnloop.Content{{Text: hard}, image}}, nil
			}
			_, err := l.Run(t.Context(), "hi")
			require.NoError(t, err)
		}},
		{"a prompt of parts", "it is a list", []string{saysDone}, func(t *testing.T, l *fnloop.Loop) {
			_, err := l.Run(t.Context(), hard, image, fnloop.Content{FileURL: "https://example.com/a.pdf"}, fnloop.Content{Text: hard})
			require.NoError(t, err)
		}},
		{"prompts without an answer", "they go before the new one", []string{saysDone}, func(t *testing.T, l *fnloop.Loop) {
			_, err := l.Continue(t.Context(), &fnloop.Answer{Prompt: "one", Partial: "Once upon", Interrupted: true}, "two")
			require.NoError(t, err)
		}},
		{"a hosted call", "an approval answers it", []string{`{"type":"mcp_approval_request","id":"mcpr_1","name":"roll","arguments":"{}","server_label":"dice"}`, saysDone}, func(t *testing.T, l *fnloop.Loop) {
			a, err := l.Run(t.Context(), "hi")
			require.ErrorIs(t, err, fnloop.ErrApproval)
			require.NoError(t, a.Reject("mcpr_1", hard))
			_, err = l.Continue(t.Context(), a, "")
			require.NoError(t, err)
		}},
		{"the last turn", "calls are forbidden, and the tools still listed", []string{fmt.Sprintf(callsEcho, 1), saysDone}, func(t *testing.T, l *fnloop.Loop) {
			l.MaxTurns, l.FinalAnswer = 1, true
			_, err := l.Run(t.Context(), "hi")
			require.NoError(t, err)
		}},
		{"a typed answer", "its schema goes along", []string{`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"{\"good\":true}"}]}`}, func(t *testing.T, l *fnloop.Loop) {
			_, _, err := fnloop.RunAs[verdict](t.Context(), l, nil, "hi")
			require.NoError(t, err)
		}},
		{"a stream", "it is asked for", []string{fmt.Sprintf(callsEcho, 1), saysDone}, func(t *testing.T, l *fnloop.Loop) {
			for _, err := range l.Events(t.Context(), nil, hard) {
				require.NoError(t, err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			converse := func(hook func(context.Context, *responses.ResponseNewParams) error) *recorder {
				rec := &recorder{outputs: tt.outputs}
				shout := fnloop.Tool{Name: "shout", Custom: true, Grammar: &fnloop.Grammar{Syntax: "regex", Definition: "<[a-z]&>"}, Handle: echo("", hard).Handle}
				typed := adder()
				typed.Description = hard
				loop := &fnloop.Loop{Client: client(rec), Model: "m", Tools: []fnloop.Tool{echo("echo", hard), shout, typed}, BeforeRequest: hook}
				tt.run(t, loop)
				return rec
			}
			ours := converse(nil)
			theirs := converse(func(context.Context, *responses.ResponseNewParams) error { return nil })
			require.Len(t, ours.bodies, len(tt.outputs), "requests")
			for i := range theirs.bodies {
				assert.Equal(t, theirs.bodies[i], ours.bodies[i], "request %d: %s", i, tt.reason)
				assert.Equal(t, theirs.headers[i], ours.headers[i], "headers of request %d", i)
			}
		})
	}
}

// TestRequestBodyOptions has the client's options edit what the Loop has written.
func TestRequestBodyOptions(t *testing.T) {
	rec := &recorder{outputs: []string{saysDone, saysDone}}
	var seen []string
	svc := responses.NewResponseService(
		option.WithBaseURL("http://model.invalid/v1"), option.WithAPIKey("test"), option.WithHTTPClient(&http.Client{Transport: rec}),
		option.WithJSONSet("service_tier", "flex"), option.WithJSONDel("instructions"), option.WithHeader("Content-Type", "application/json; charset=utf-8"),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(body)
			seen = append(seen, string(text))
			if err != nil {
				return nil, err
			}
			return next(req)
		}))
	loop := &fnloop.Loop{Client: &svc, Model: "m", Instructions: "Be brief."}
	_, err := loop.Run(t.Context(), "hi")
	require.NoError(t, err)
	for _, err := range loop.Events(t.Context(), nil, "hi") {
		require.NoError(t, err)
	}
	const want = `{"model":"m","service_tier":"flex","input":[{"role":"user","content":"hi"}]`
	require.JSONEq(t, want+`}`, rec.bodies[0])
	require.JSONEq(t, want+`,"stream":true}`, rec.bodies[1])
	require.Equal(t, rec.bodies, seen, "a middleware reads the same")
	for _, h := range rec.headers {
		require.Equal(t, []string{"application/json; charset=utf-8"}, h["Content-Type"])
	}
}
