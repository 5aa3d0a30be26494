package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

// recordingsDir holds real traffic of the API that lies beside a checkout, not
// in it.
const recordingsDir = "../shared/recordings"

type recording struct {
	Fidelity  string
	Exchanges []exchange
}

type exchange struct {
	Request struct {
		Method, Path string
		Body         json.RawMessage
	}
	Response struct {
		Status   int
		Headers  map[string]string
		Body     json.RawMessage
		BodyText *string `json:"body_text"`
	}
}

// recordedItem has what the test reads of input and output items.
type recordedItem struct {
	Type, Name, Status, Phase, Execution string
	CallID                               string `json:"call_id"`
	Output                               json.RawMessage
	Content                              json.RawMessage
}

func (it recordedItem) isCall() bool {
	return it.Type == "function_call" || it.Type == "custom_tool_call"
}

func (it recordedItem) isOutput() bool {
	return it.Type == "function_call_output" || it.Type == "custom_tool_call_output"
}

func (e *exchange) isCreate() bool {
	return e.Request.Method == "" || e.Request.Method == "POST" && strings.HasSuffix(strings.SplitN(e.Request.Path, "?", 2)[0], "/responses")
}

func loadRecordings(t *testing.T) map[string]recording {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(recordingsDir, "*.json"))
	require.NoError(t, err)
	if len(names) == 0 {
		t.Skipf("no recordings in %s: what OpenAI's service really answered is NOT tested here", recordingsDir)
	}
	all := map[string]recording{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var r recording
		require.NoError(t, json.Unmarshal(b, &r), name)
		all[filepath.Base(name)] = r
	}
	return all
}

// TestRecordings plays what the service answered to other clients through a
// Loop, with handlers that give the outputs those clients gave. The Loop must
// understand each answer and send the outputs that they sent.
func TestRecordings(t *testing.T) {
	for name, rec := range loadRecordings(t) {
		t.Run(name, func(t *testing.T) {
			var plays []exchange
			streamed := false
			for _, e := range rec.Exchanges {
				if e.Response.BodyText != nil {
					streamed = true
					e.Response.Body = lastResponse(*e.Response.BodyText)
				}
				if e.isCreate() {
					plays = append(plays, e)
				}
			}
			if len(plays) == 0 {
				t.Skip("no request for a response")
			}
			var sent [][]byte
			next, ended := 0, false
			transport := roundTrip(func(req *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(req.Body)
				sent = append(sent, body)
				if next == len(plays) { // a recording that ends with calls
					ended = true
					return &http.Response{StatusCode: 400, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
				}
				e := plays[next]
				next++
				h := http.Header{}
				for k, v := range e.Response.Headers {
					h.Set(k, v)
				}
				body = e.Response.Body
				h.Set("Content-Type", "application/json")
				if e.Response.BodyText != nil {
					body = []byte(*e.Response.BodyText)
					h.Set("Content-Type", "text/event-stream")
				}
				return &http.Response{Status: http.StatusText(e.Response.Status), StatusCode: e.Response.Status, Header: h,
					Body: io.NopCloser(bytes.NewReader(body)), Request: req}, nil
			})
			loop := &fnloop.Loop{Client: client(transport), Model: "m", Attempts: 1, MaxTurns: len(plays), Tools: recordedTools(plays)}
			var ans *fnloop.Answer
			for next < len(plays) {
				first := next
				var err error
				switch {
				case streamed:
					var seen []fnloop.Event
					seen, ans, err = watch(t, loop.Events(t.Context(), ans, "recorded"))
					if err == nil {
						assert.True(t, strings.HasSuffix(strings.ReplaceAll(said(seen, "")+said(seen, "final_answer"), "\n", ""), strings.ReplaceAll(ans.Text, "\n", "")), "the deltas make up the answer")
					}
				case ans == nil:
					ans, err = loop.Run(t.Context(), "recorded")
				default:
					ans, err = loop.Continue(t.Context(), ans, "recorded")
				}
				e := plays[next-1]
				require.Equal(t, asks(e), ended, "a Loop goes on when the model waits for outputs, and only then")
				if !ended {
					assertStop(t, e, ans, err)
				}
				for i := first; i < next-1; i++ {
					assertFollowUp(t, plays[i], plays[i+1], sent[i+1])
				}
			}
		})
	}
}

// lastResponse is the response in the event that ends a stream, the error event
// if there is one, or nil.
func lastResponse(stream string) json.RawMessage {
	var last json.RawMessage
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: ")
		var e struct {
			Type     string
			Response json.RawMessage
		}
		if !ok || json.Unmarshal([]byte(data), &e) != nil {
			continue
		}
		switch e.Type {
		case "error":
			return json.RawMessage(`{"status":"failed"}`)
		case "response.completed", "response.incomplete", "response.failed":
			last = e.Response
		}
	}
	return last
}

func items(body json.RawMessage, key string) []recordedItem {
	var doc map[string]json.RawMessage
	json.Unmarshal(body, &doc)
	var list []recordedItem
	json.Unmarshal(doc[key], &list)
	return list
}

func asks(e exchange) bool {
	var doc struct{ Status string }
	if json.Unmarshal(e.Response.Body, &doc); doc.Status != "completed" {
		return false
	}
	for _, it := range items(e.Response.Body, "output") {
		if it.isCall() {
			return true
		}
	}
	return false
}

// recordedTools are the tools that the model called, each giving the outputs
// that the recorded client gave.
func recordedTools(plays []exchange) []fnloop.Tool {
	given := map[string]string{}
	names := map[string]bool{}
	for _, e := range plays {
		for _, it := range items(e.Request.Body, "input") {
			if it.isOutput() {
				var s string
				json.Unmarshal(it.Output, &s)
				given[it.CallID] = s
			}
		}
		for _, it := range items(e.Response.Body, "output") {
			if it.isCall() {
				names[it.Name] = it.Type == "custom_tool_call"
			}
		}
	}
	var tools []fnloop.Tool
	for name, custom := range names {
		tools = append(tools, fnloop.Tool{Name: name, Custom: custom, Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
			return fnloop.Output{Text: given[c.ID]}, nil
		}})
	}
	return tools
}

// assertStop checks what a Loop made of the last exchange that it saw.
func assertStop(t *testing.T, e exchange, ans *fnloop.Answer, err error) {
	t.Helper()
	if e.Response.Status >= 400 {
		var request *fnloop.RequestError
		require.ErrorAs(t, err, &request)
		var doc struct {
			Error struct{ Code, Message, Param string }
		}
		require.NoError(t, json.Unmarshal(e.Response.Body, &doc))
		assert.Equal(t, e.Response.Status, request.StatusCode)
		assert.Equal(t, doc.Error.Code, request.Code)
		assert.Contains(t, err.Error(), doc.Error.Message)
		return
	}
	if e.Response.Body == nil {
		assert.Equal(t, fnloop.StopStream, ans.Stop, "the stream has no end")
		require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
		return
	}
	var doc struct {
		Status            string
		IncompleteDetails struct{ Reason string } `json:"incomplete_details"`
	}
	require.NoError(t, json.Unmarshal(e.Response.Body, &doc))
	if doc.Status == "failed" {
		assert.Equal(t, fnloop.StopFailed, ans.Stop)
		var failed *fnloop.ResponseError
		require.ErrorAs(t, err, &failed)
		assert.NotEmpty(t, failed.Code)
		assert.NotEmpty(t, failed.Message)
		return
	}
	want := fnloop.StopEmpty
	for _, it := range items(e.Response.Body, "output") {
		switch {
		case it.Type == "message" && it.Phase != "commentary" && strings.Contains(string(it.Content), `"output_text"`):
			want = fnloop.StopAnswered
		case it.Type == "message" && strings.Contains(string(it.Content), `"refusal"`):
			want = fnloop.StopRefused
		}
	}
	for _, it := range items(e.Response.Body, "output") {
		switch it.Type {
		case "apply_patch_call", "computer_call", "local_shell_call":
			want = fnloop.StopUnsupported
		case "mcp_approval_request":
			want = fnloop.StopApproval
		case "tool_search_call":
			if it.Execution == "client" {
				want = fnloop.StopUnsupported
			}
		}
	}
	if doc.Status == "incomplete" {
		want = map[string]fnloop.StopReason{"max_output_tokens": fnloop.StopTruncated, "content_filter": fnloop.StopFiltered}[doc.IncompleteDetails.Reason]
	}
	assert.Equal(t, want, ans.Stop, "%v", err)
	assert.Equal(t, want == fnloop.StopAnswered, err == nil)
	assert.NotZero(t, ans.Responses)
}

// assertFollowUp compares the request that answered the calls of one exchange
// with the one that the recorded client made.
func assertFollowUp(t *testing.T, asked, recorded exchange, sent []byte) {
	t.Helper()
	var calls []string
	for _, it := range items(asked.Response.Body, "output") {
		if it.isCall() {
			calls = append(calls, it.CallID)
		}
	}
	ours := items(sent, "input")
	require.Len(t, ours, len(calls), "the outputs of that round and nothing else")
	theirs := map[string]recordedItem{}
	for _, it := range items(recorded.Request.Body, "input") {
		if it.isOutput() {
			theirs[it.CallID] = it
		}
	}
	var previous struct {
		ID string `json:"previous_response_id"`
	}
	json.Unmarshal(sent, &previous)
	var answered struct{ ID string }
	json.Unmarshal(asked.Response.Body, &answered)
	assert.Equal(t, answered.ID, previous.ID)
	for i, it := range ours {
		assert.True(t, it.isOutput())
		assert.Equal(t, calls[i], it.CallID, "outputs are in call order")
		if their, ok := theirs[it.CallID]; ok {
			assert.Equal(t, their.Type, it.Type)
		}
		if their, ok := theirs[it.CallID]; ok && strings.HasPrefix(string(their.Output), `"`) {
			assert.JSONEq(t, string(their.Output), string(it.Output))
		}
	}
	if strings.Contains(string(recorded.Request.Body), `"previous_response_id": "`) {
		var recordedPrevious struct {
			ID string `json:"previous_response_id"`
		}
		json.Unmarshal(recorded.Request.Body, &recordedPrevious)
		assert.Equal(t, recordedPrevious.ID, previous.ID)
	}
}
