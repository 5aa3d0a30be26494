package fnloop_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// What a server says of a failure, and whether it passes.
var faults = []struct {
	why       string
	fault     string // the error object
	transient bool
}{
	{"OpenAI's servers are full", `{"type":"service_unavailable_error","code":"server_is_overloaded","message":"Our servers are currently overloaded."}`, true},
	{"OpenAI's word for a rate that rose too fast", `{"code":"slow_down","message":"Slow down"}`, true},
	{"a type of the server's without a code", `{"type":"server_error","code":null,"message":"boom"}`, true},
	{"the same in another spelling", `{"type":"ServiceUnavailableError","message":"boom"}`, true},
	{"a new code with a type of the server's", `{"type":"server_error","code":"flux_inverted","message":"boom"}`, true},
	{"a new type that names the server", `{"type":"model_overload_exception","message":"boom"}`, true},
	{"Anthropic's types", `{"type":"overloaded_error","message":"Overloaded"}`, true},
	{"Google's status", `{"status":"UNAVAILABLE","message":"boom"}`, true},
	{"a number in the place of a code", `{"code":503,"message":"boom"}`, true},
	{"the message alone", `{"code":null,"message":"An error occurred while processing your request. You can retry your request."}`, true},
	{"a text in the place of an object", `"the model is overloaded, try again later"`, true},
	{"a server that cannot say what failed", `{"message":"boom"}`, true},
	{"a rate limit", `{"type":"tokens","code":"rate_limit_exceeded","message":"Limit 200000, Used 196249, Requested 9438. Please try again in 1ms."}`, true},

	{"no money", `{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota."}`, false},
	{"no money, in a type alone", `{"type":"insufficient_quota","code":null,"message":"x"}`, false},
	{"no money, in words alone", `{"message":"You exceeded your current quota, please check your plan."}`, false},
	{"more than the limit", `{"type":"tokens","code":"rate_limit_exceeded","message":"Request too large for m: Limit 30000, Requested 35364."}`, false},
	{"more than the limit in other words", `{"code":"rate_limit_exceeded","message":"tokens per min: limit: 30,000, requested: 35,364. Please try again in 10ms."}`, false},
	{"the context is full", `{"type":"invalid_request_error","code":"context_length_exceeded","message":"x"}`, false},
	{"a type of the client's with a new code", `{"type":"invalid_request_error","code":"flux_inverted","message":"You can retry your request."}`, false},
	{"vLLM's type of the client's", `{"type":"BadRequestError","code":400,"message":"x"}`, false},
	{"a policy", `{"code":"bio_policy","message":"x"}`, false},
	{"a new code that names nobody", `{"code":"flux_inverted","message":"boom"}`, false},
	{"a message about the request", `{"message":"The image is not supported."}`, false},
}

// A failure is judged alike in whatever form it comes.
func TestFaults(t *testing.T) {
	const done = `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"fine"}]}]}`
	const start = `{"type":"response.created","response":{"id":"resp_0","status":"in_progress"}}`
	nested := func(fault string) string { return `{"type":"error","sequence_number":2,"error":` + fault + `}` }
	failed := func(fault string) string {
		return `{"id":"resp_0","object":"response","status":"failed","error":` + fault + `,"output":[]}`
	}
	answer := func(body string) *http.Response {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	forms := map[string]func(fault string) string{
		"an event": func(f string) string { return frames(start, nested(f)) },
		"an event and a failed response": func(f string) string {
			return frames(start, nested(f), `{"type":"response.failed","response":{"id":"resp_0","status":"failed","error":{"code":null,"message":null},"output":[]}}`)
		},
		"a failed response": func(f string) string {
			return frames(start, `{"type":"response.failed","response":`+failed(f)+`}`)
		},
		"a failed response, whole": failed,
		"an error without an event around it": func(f string) string {
			return frames(start) + `data: {"error":` + f + "}\n\n"
		},
		"an event with its members beside the type": func(f string) string {
			if f[0] != '{' {
				return frames(start, nested(f))
			}
			var o map[string]any
			if json.Unmarshal([]byte(f), &o); o["type"] != nil {
				return frames(start, nested(f)) // there is no place for a type
			}
			return frames(start, `{"type":"error",`+f[1:])
		},
	}
	for _, tt := range faults {
		for form, body := range forms {
			t.Run(tt.why+" as "+form, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					for _, stream := range []bool{true, false} {
						sent := 0
						loop := &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
							if sent++; sent == 1 {
								return answer(body(tt.fault)), nil
							}
							return answer(done), nil
						}))}
						var ans *fnloop.Answer
						var err error
						if stream {
							_, ans, err = watch(t, loop.Events(t.Context(), nil, "hi"))
						} else {
							ans, err = loop.Run(t.Context(), "hi")
						}
						if tt.transient {
							require.NoError(t, err)
							assert.Equal(t, "fine", ans.Text)
							assert.Equal(t, 2, sent)
							continue
						}
						assert.Equal(t, 1, sent, "it is not sent again")
						var failure *fnloop.ResponseError
						require.ErrorAs(t, err, &failure)
						assert.NotEmpty(t, failure.Message)
						assert.Equal(t, "resp_0", failure.ID)
					}
				})
			})
		}
	}
}

// The status of an answer counts beside what its body says.
func TestFaultsOfStatus(t *testing.T) {
	for _, tt := range []struct {
		why       string
		status    int
		fault     string
		transient bool
	}{
		{"the server failed", 500, `{"type":"invalid_request_error","message":"x"}`, true},
		{"the server failed, and a proxy answers", 522, `<html>`, true},
		{"there is no such thing", 501, `{}`, false},
		{"another moment", 409, `{}`, true},
		{"too early", 425, `{}`, true},
		{"no money", 402, `{"code":"x"}`, false},
		{"a refusal that says that it is the server's", 400, `{"type":"server_error","message":"x"}`, true},
		{"a refusal that says that it passes", 400, `{"message":"The engine is temporarily overloaded"}`, true},
		{"a refusal", 400, `{"type":"invalid_request_error","code":"flux","message":"Please correct it and try again."}`, false},
		{"no code at all", 404, `nothing here`, false},
		{"a code of the client's in a server's failure", 500, `{"code":"invalid_prompt","message":"x"}`, false},
		{"larger than the limit", 429, `{"type":"tokens","code":"rate_limit_exceeded","message":"Request too large. Limit 30000, Requested 35364."}`, false},
		{"too many bytes", 413, `{}`, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			body := tt.fault
			if body[0] == '{' {
				body = `{"error":` + body + `}`
			}
			srv := rt.NewServer(rt.HTTP(tt.status, body, "content-type", "application/json"), rt.Text("done"))
			loop := &fnloop.Loop{Client: service(srv), Model: "m"}
			bubble(t, func(t *testing.T) {
				_, err := loop.Run(t.Context(), "hi")
				if tt.transient {
					require.NoError(t, err)
					return
				}
				var request *fnloop.RequestError
				require.ErrorAs(t, err, &request)
				assert.Equal(t, 1, request.Attempts)
				assert.Equal(t, tt.status, request.StatusCode)
			})
		})
	}
}

func TestFaultsOnAWebSocket(t *testing.T) {
	for _, tt := range []struct {
		why, first string
		transient  bool
	}{
		{"refused with a status", `{"type":"error","status":503,"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"x"}}`, true},
		{"a number of the response and no status", `{"type":"error","sequence_number":0,"error":{"type":"server_error","code":null,"message":"x"}}`, true},
		{"neither", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, true},
		{"flat", `{"type":"error","code":"slow_down","message":"x"}`, true},
		{"a failed response", `{"type":"response.failed","response":{"id":"resp_0","status":"failed","error":{"code":"slow_down","message":"x"},"output":[]}}`, true},
		{"refused for good", `{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"Request too large. Limit 5, Requested 6."}}`, false},
		{"failed for good", `{"type":"error","error":{"type":"invalid_request_error","code":"flux","message":"x"}}`, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			asked := make(chan bool, 9)
			loop := socketLoop(t, func(n int, send func(string)) {
				if asked <- true; len(asked) == 1 {
					send(tt.first)
					return
				}
				send(completed)
			})
			loop.MaxRetryWait = time.Millisecond
			ans, err := loop.Run(t.Context(), "hi")
			if tt.transient {
				require.NoError(t, err)
				assert.Equal(t, "The answer is 42", ans.Text)
				return
			}
			require.Error(t, err)
			assert.Len(t, asked, 1)
		})
	}
}

// socketLoop is a Loop over a WebSocket whose server answers each message.
func socketLoop(t *testing.T, answer func(n int, send func(string))) *fnloop.Loop {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for n := 0; ; n++ {
			if _, _, err := c.Read(r.Context()); err != nil {
				return
			}
			answer(n, func(s string) { c.Write(r.Context(), websocket.MessageText, []byte(s)) })
		}
	}))
	t.Cleanup(srv.Close)
	s := responses.NewResponseService(option.WithBaseURL(srv.URL+"/v1/"), option.WithAPIKey("k"))
	return &fnloop.Loop{Client: &s, Model: "m", WebSocket: true}
}

// A failed response that follows the event of an error has what the event lacks.
func TestFailedResponseAfterItsError(t *testing.T) {
	const event = `{"type":"error","sequence_number":2,"error":{"type":"tokens","code":"bio_policy","message":"no","param":"input"}}`
	const failed = `{"type":"response.failed","response":{"id":"resp_7","status":"failed","error":{"code":"bio_policy","message":"no, for a reason"},"output":[],"usage":{"input_tokens":7,"output_tokens":0,"total_tokens":7}}}`
	check := func(t *testing.T, ans *fnloop.Answer, err error) {
		t.Helper()
		var failure *fnloop.ResponseError
		require.ErrorAs(t, err, &failure)
		assert.Equal(t, &fnloop.ResponseError{ID: "resp_7", Status: "failed", Code: "bio_policy", Type: "tokens", Message: "no, for a reason", Param: "input"}, failure)
		assert.EqualValues(t, 7, ans.Usage.InputTokens)
		assert.Zero(t, ans.Unmetered)
	}
	t.Run("HTTP", func(t *testing.T) {
		loop := sse(t, "text/event-stream", frames(event, failed))
		_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		check(t, ans, err)
	})
	t.Run("WebSocket", func(t *testing.T) {
		loop := socketLoop(t, func(_ int, send func(string)) { send(event); send(failed) })
		ans, err := loop.Run(t.Context(), "hi")
		check(t, ans, err)
	})
	t.Run("it never comes", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			loop := &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
				r, w := io.Pipe()
				go func() {
					io.WriteString(w, frames(event))
					for nap(req.Context(), 100*time.Millisecond) == nil {
						io.WriteString(w, ": still here\n\n")
					}
					w.CloseWithError(req.Context().Err())
				}()
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: r, Request: req}, nil
			}))}
			start := time.Now()
			_, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			var failure *fnloop.ResponseError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, "bio_policy", failure.Code)
			assert.Less(t, time.Since(start), time.Second, "a failure is not waited for like an answer")
		})
	})
}

// A wait is read however it is written.
func TestWaits(t *testing.T) {
	in := func(d time.Duration, format string) string { return time.Now().Add(d).UTC().Format(format) }
	for _, tt := range []struct {
		header, value, body string
		want                time.Duration
	}{
		{"Retry-After", "7", ``, 7 * time.Second},
		{"Retry-After", "1.5", ``, 1500 * time.Millisecond},
		{"Retry-After", "1m30s", ``, 90 * time.Second},
		{"Retry-After-Ms", "250", ``, 250 * time.Millisecond},
		{"Retry-After", "date", ``, 20 * time.Second},
		{"", "", `{"error":{"message":"Please try again in 1.706s. Visit x"}}`, 1706 * time.Millisecond},
		{"", "", `{"error":{"message":"Please try again in 350ms."}}`, 350 * time.Millisecond},
		{"", "", `{"error":{"message":"try again in 1m0s"}}`, time.Minute},
		{"", "", `{"error":{"message":"Please retry after 6 seconds."}}`, 6 * time.Second},
		{"", "", `{"error":{"message":"You have to wait 1 minute, 2 seconds and 500 ms."}}`, 62500 * time.Millisecond},
		{"", "", `{"error":{"message":"Please wait a minute"}}`, time.Minute},
		{"", "", `{"error":{"message":"Retry-After: 5"}}`, 5 * time.Second},
		{"", "", `{"error":{"message":"slow down","retry_after":4}}`, 4 * time.Second},
		{"", "", `{"error":{"message":"slow down","retry_after_ms":4500}}`, 4500 * time.Millisecond},
		{"", "", `{"error":{"message":"quota","details":[{"x":1},{"retryDelay":"44s"}]}}`, 44 * time.Second},
		{"", "", `{"error":{"message":"slow down","headers":{"retry-after":"3"}}}`, 3 * time.Second},
		{"", "", `{"detail":"try again in 2 hours"}`, 2 * time.Hour},
		{"", "", `{"error":{"message":"You may retry your request up to 3 times."}}`, 0},
		{"Retry-After", "-1", `{"error":{"message":"try again in no time"}}`, 0},
	} {
		t.Run(tt.header+tt.value+tt.body, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				value := tt.value
				if value == "date" {
					value = in(tt.want, http.TimeFormat)
				}
				loop := &fnloop.Loop{Model: "m", Attempts: 1, Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
					h := http.Header{"Content-Type": {"application/json"}}
					if tt.header != "" {
						h.Set(tt.header, value)
					}
					return &http.Response{StatusCode: 429, Header: h, Body: io.NopCloser(strings.NewReader(tt.body)), Request: req}, nil
				}))}
				_, err := loop.Run(t.Context(), "hi")
				var request *fnloop.RequestError
				require.ErrorAs(t, err, &request)
				assert.Equal(t, tt.want, request.RetryAfter)
			})
		})
	}
	t.Run("until a time", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			start := time.Now()
			loop := sse(t, "", fmt.Sprintf(`{"status":"failed","error":{"code":"rate_limit_exceeded","message":"The limit resets at %s."}}`, in(30*time.Second, time.RFC3339)), `{"id":"r","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`)
			_, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			assert.Equal(t, 30*time.Second, time.Since(start))
		})
	})
}
