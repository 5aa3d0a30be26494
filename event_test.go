package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// watch reads a run's events to the end.
func watch(t *testing.T, events iter.Seq2[fnloop.Event, error]) (seen []fnloop.Event, ans *fnloop.Answer, err error) {
	t.Helper()
	for e, runErr := range events {
		require.NoError(t, err, "an error comes last")
		require.Nil(t, ans, "done comes last")
		seen = append(seen, e)
		if done, ok := e.(fnloop.Done); ok {
			ans = done.Answer
		} else {
			require.NoError(t, runErr, "an error comes with done")
		}
		err = runErr
	}
	require.NotNil(t, ans)
	return seen, ans, err
}

// outline is the types of events, runs of one type being one.
func outline(events []fnloop.Event) string {
	var names []string
	for _, e := range events {
		names = append(names, e.Type())
	}
	return strings.Join(slices.Compact(names), " ")
}

func said(events []fnloop.Event, phase string) (s string) {
	for _, e := range events {
		if d, ok := e.(fnloop.TextDelta); ok && d.Phase == phase {
			s += d.Text
		}
	}
	return s
}

func TestEvents(t *testing.T) {
	script := []rt.Reply{
		rt.Join(rt.Reasoning("I should add"), rt.Commentary("Let me add"), rt.Call("call_1", "add", `{"a":2,"b":3}`)),
		rt.Text("It is 5, naïvely."),
	}
	const want = "request_started reasoning_delta text_delta call_announced call_delta response_finished call_started call_finished request_started text_delta response_finished done"
	check := func(t *testing.T, loop *fnloop.Loop) {
		seen, ans, err := watch(t, loop.Events(t.Context(), nil, "2+3?"))
		require.NoError(t, err)
		assert.Equal(t, "It is 5, naïvely.", ans.Text)
		assert.Equal(t, fnloop.StopAnswered, ans.Stop)
		assert.Equal(t, "Let me add", said(seen, "commentary"))
		assert.Equal(t, ans.Text, said(seen, "final_answer")+said(seen, ""), "the deltas make up the answer")
		got := outline(seen)
		assert.Equal(t, strings.ReplaceAll(want, "reasoning_delta ", ""), strings.ReplaceAll(got, "reasoning_delta ", ""))
		i := slices.IndexFunc(seen, func(e fnloop.Event) bool { return e.Type() == "call_finished" })
		finished := seen[i].(fnloop.CallFinished)
		assert.Equal(t, "5", finished.Text)
		assert.Equal(t, "call_1", finished.ID)
		var usage fnloop.Usage
		for _, e := range seen {
			if f, ok := e.(fnloop.ResponseFinished); ok {
				usage.TotalTokens += f.Usage.TotalTokens
			}
		}
		assert.Equal(t, ans.Usage.TotalTokens, usage.TotalTokens)
	}
	t.Run("streamed", func(t *testing.T) {
		loop, srv := play(t, script...)
		loop.Tools = []fnloop.Tool{adder()}
		check(t, loop)
		for _, body := range posts(t, srv) {
			assert.Equal(t, true, body["stream"])
		}
		assert.Equal(t, []string{"call_1", "5"}, outputs(t, posts(t, srv)[1]))
	})
	t.Run("over a socket", func(t *testing.T) {
		srv := rt.NewServer(script...)
		defer srv.Close()
		check(t, &fnloop.Loop{Client: srv.Client(), Model: "m", Tools: []fnloop.Tool{adder()}})
	})
	t.Run("a client of another type that streams", func(t *testing.T) {
		loop, srv := play(t, script...)
		loop.Tools = []fnloop.Tool{adder()}
		loop.Client = streaming{loop.Client.(*responses.ResponseService)}
		check(t, loop)
		assert.Equal(t, true, posts(t, srv)[0]["stream"])
	})
	t.Run("a client that does not stream", func(t *testing.T) {
		loop, srv := play(t, script...)
		loop.Tools = []fnloop.Tool{adder()}
		loop.Client = &wrapped{inner: loop.Client}
		check(t, loop)
		assert.NotContains(t, posts(t, srv)[0], "stream")
	})
}

type streaming struct{ inner *responses.ResponseService }

func (s streaming) New(ctx context.Context, p responses.ResponseNewParams, opts ...option.RequestOption) (*responses.Response, error) {
	return nil, errors.New("not streamed")
}

func (s streaming) NewStreaming(ctx context.Context, p responses.ResponseNewParams, opts ...option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	return s.inner.NewStreaming(ctx, p, opts...)
}

// sse serves one stream after the other, as text.
func sse(t *testing.T, contentType string, bodies ...string) *fnloop.Loop {
	t.Helper()
	n := 0
	return &fnloop.Loop{Model: "m", Client: service(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		if n < len(bodies) {
			io.WriteString(w, bodies[n])
		}
		n++
	}))}
}

func frames(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var head struct{ Type string }
		json.Unmarshal([]byte(e), &head)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", head.Type, e)
	}
	return b.String()
}

const (
	created   = `{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}`
	delta     = `{"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","delta":"The answer is"}`
	wholeCall = `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"touch","arguments":"{}","status":"completed"}}`
	completed = `{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"The answer is 42"}]}]}}`
)

// Only response.completed completes a stream.
func TestStreamEndings(t *testing.T) {
	for _, tt := range []struct {
		name, why, contentType, body string
		stop                         fnloop.StopReason
		code                         string
	}{
		{"clean close", "the end of the bytes is not the end of the response", "text/event-stream", frames(created, delta), fnloop.StopStream, ""},
		{"clean close after a whole call", "a call is run when its response is complete", "text/event-stream", frames(created, delta, wholeCall), fnloop.StopStream, ""},
		{"half a line", "openai-go's scanner hides it", "text/event-stream", frames(created, delta) + "event: response.completed\ndata: {\"type\":\"response.comple", fnloop.StopStream, ""},
		{"no blank line at the end", "the last event is not dispatched", "text/event-stream", frames(created, delta) + "data: " + completed, fnloop.StopStream, ""},
		{"a page of HTML", "a proxy wants a login", "text/html", "<html>login</html>", fnloop.StopStream, ""},
		{"half a plain response", "it is cut in its middle", "application/json", `{"id":"resp_1","status":"completed","outp`, fnloop.StopStream, ""},
		{"JSON that is no response", "of some other server", "application/json", `{"hello":"world"}`, fnloop.StopStream, ""},
		{"empty", "nothing at all", "text/event-stream", "", fnloop.StopStream, ""},
		{"only DONE", "of a compatible server", "text/event-stream", "data: [DONE]\n\n", fnloop.StopStream, ""},
		{"completed without a response", "there is no id to go on from", "text/event-stream", frames(created, delta, `{"type":"response.completed"}`), fnloop.StopStream, ""},
		{"completed with another status", "it contradicts itself", "text/event-stream", frames(created, delta, strings.Replace(completed, `"status":"completed"`, `"status":"in_progress"`, 1)), fnloop.StopStream, ""},
		{"an event that is no JSON", "nothing can be relied on", "text/event-stream", frames(created, delta) + "data: oops\n\n", fnloop.StopStream, ""},
		{"flat error", "openai-go gives it as an event", "text/event-stream", frames(created, delta, `{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}`), fnloop.StopFailed, "rate_limit_exceeded"},
		{"nested error", "or as an error", "text/event-stream", frames(created, delta, `{"type":"error","error":{"type":"x","code":"context_length_exceeded","message":"slow down","param":"input"}}`), fnloop.StopFailed, "context_length_exceeded"},
		{"failed", "or as a response", "text/event-stream", frames(created, delta, `{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"slow down"},"output":[]}}`), fnloop.StopFailed, "server_error"},
		{"incomplete", "cut by the limit of tokens", "text/event-stream", frames(created, delta, `{"type":"response.incomplete","response":{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"function_call","call_id":"call_1","name":"touch","arguments":"{","status":"incomplete"}]}}`), fnloop.StopTruncated, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loop := sse(t, tt.contentType, tt.body)
			ran := false
			loop.Tools = []fnloop.Tool{raw("touch", func(context.Context) (string, error) { ran = true; return "", nil })}
			_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.Error(t, err)
			assert.Equal(t, tt.stop, ans.Stop, tt.why)
			assert.Empty(t, ans.Text)
			assert.Empty(t, ans.ID, "the head does not move")
			assert.Equal(t, "hi", ans.Prompt)
			assert.False(t, ran)
			if strings.Contains(tt.body, delta) && tt.stop != fnloop.StopTruncated {
				assert.Equal(t, "The answer is", ans.Partial, "what was seen is not lost")
				assert.Equal(t, 1, ans.Responses)
			}
			switch tt.stop {
			case fnloop.StopStream:
				require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Contains(t, err.Error(), tt.contentType)
			case fnloop.StopFailed:
				var failed *fnloop.ResponseError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, tt.code, failed.Code)
				assert.Equal(t, "slow down", failed.Message)
			}
		})
	}
}

func TestStreamOddities(t *testing.T) {
	call := func(index int, id string) (added, done string) {
		return fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","id":"fc_%d","call_id":%q,"name":"touch","arguments":""}}`, index, index, id),
			fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":{"type":"function_call","id":"rotated_%d","call_id":%q,"name":"touch","arguments":"{}"}}`, index, index, id)
	}
	add1, done1 := call(0, "call_1")
	add2, done2 := call(1, "call_2")
	empty := `{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[]}}`
	text := `{"type":"response.completed","response":{"id":"resp_2","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a\u0000b"}]}]}}`
	loop := sse(t, "text/event-stream",
		": comment\n\n"+frames(created, `{"type":"keepalive","sequence_number":3}`, `{"type":"response.brand_new.event","delta":{"x":1},"item":7,"response":[]}`,
			add1, add2, `{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"x","delta":"{"}`, done2, done1, empty),
		frames(`{"type":"response.output_text.delta","output_index":0,"delta":"a\u0000b"}`, text)+"data: [DONE]\n\n")
	var ran []string
	loop.Parallel = 1
	loop.Tools = []fnloop.Tool{{Name: "touch", Handle: func(_ context.Context, c fnloop.Call) (fnloop.Output, error) {
		ran = append(ran, c.ID)
		return fnloop.Output{}, nil
	}}}
	seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	assert.Equal(t, []string{"call_1", "call_2"}, ran, "an empty terminal output stands for the items before it, in their order")
	assert.Equal(t, "a\x00b", ans.Text)
	assert.Equal(t, "a\x00b", said(seen, ""))
}

func TestStreamLineTooLong(t *testing.T) {
	loop := sse(t, "text/event-stream", frames(created, `{"type":"response.output_text.delta","delta":"`+strings.Repeat("x", 33<<20)+`"}`, completed))
	_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
	assert.Contains(t, err.Error(), "token too long")
	assert.Equal(t, fnloop.StopStream, ans.Stop)
}

func TestStreamRetries(t *testing.T) {
	t.Run("before anything was seen", func(t *testing.T) {
		for _, first := range []string{
			frames(created),
			frames(created, `{"type":"error","code":"server_error","message":"sorry"}`),
			frames(created, `{"type":"response.failed","response":{"id":"resp_0","status":"failed","error":{"code":"rate_limit_exceeded","message":"Please try again in 2s"},"output":[]}}`),
		} {
			loop := sse(t, "text/event-stream", first, frames(created, delta, completed))
			bubble(t, func(t *testing.T) {
				_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
				require.NoError(t, err)
				assert.Equal(t, "The answer is 42", ans.Text)
			})
		}
	})
	t.Run("after an HTTP error", func(t *testing.T) {
		loop, _ := play(t, rt.ServerError(), rt.RateLimited(3*time.Second), rt.Text("done"))
		bubble(t, func(t *testing.T) {
			_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
			require.NoError(t, err)
			assert.Equal(t, "done", ans.Text)
		})
	})
	t.Run("not what the reader has seen", func(t *testing.T) {
		loop := sse(t, "text/event-stream", frames(created, delta), frames(created, delta, completed))
		seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.ErrorIs(t, err, fnloop.ErrIncompleteStream)
		assert.Equal(t, "The answer is", said(seen, ""))
	})
	t.Run("an API error has its code", func(t *testing.T) {
		loop, _ := play(t)
		_, ans, err := watch(t, loop.Events(t.Context(), &fnloop.Answer{ID: "resp_gone"}, "hi"))
		var request *fnloop.RequestError
		require.ErrorAs(t, err, &request)
		assert.Equal(t, "previous_response_not_found", request.Code)
		assert.Equal(t, "resp_gone", ans.ID)
	})
}

// ticker streams an event every so often, on the clock of the bubble.
func ticker(every time.Duration, n int) *fnloop.Loop {
	return &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
		r, w := io.Pipe()
		go func() {
			io.WriteString(w, frames(created))
			for range n {
				if nap(req.Context(), every) != nil {
					w.CloseWithError(req.Context().Err())
					return
				}
				io.WriteString(w, frames(delta))
			}
			io.WriteString(w, frames(completed))
			w.Close()
		}()
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
	}))}
}

func TestIdleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		loop := ticker(50*time.Millisecond, 40)
		loop.IdleTimeout = 200 * time.Millisecond
		_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.NoError(t, err, "a long stream is not an idle one")
		assert.Equal(t, "The answer is 42", ans.Text)
	})
	bubble(t, func(t *testing.T) {
		loop := ticker(time.Hour, 1)
		loop.IdleTimeout = 200 * time.Millisecond
		start := time.Now()
		_, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.ErrorIs(t, err, fnloop.ErrIdleStream)
		assert.NotErrorIs(t, err, context.Canceled)
		assert.Equal(t, 200*time.Millisecond, time.Since(start))
		assert.Equal(t, fnloop.StopStream, ans.Stop)
	})
	bubble(t, func(t *testing.T) { // the reader's time is not the server's
		loop := ticker(50*time.Millisecond, 3)
		loop.IdleTimeout = 200 * time.Millisecond
		for _, err := range loop.Events(t.Context(), nil, "hi") {
			require.NoError(t, err)
			time.Sleep(time.Hour)
		}
	})
	bubble(t, func(t *testing.T) {
		loop := ticker(time.Hour, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ans, err := watch(t, loop.Events(ctx, nil, "hi"))
		require.ErrorIs(t, err, context.DeadlineExceeded, "the caller's deadline is another clock")
		assert.Equal(t, fnloop.StopDeadline, ans.Stop)
		assert.Equal(t, "hi", ans.Prompt)
	})
}

func TestEventsBreak(t *testing.T) {
	var calls []rt.Reply
	for range 4 {
		calls = append(calls, rt.Call("", "nap", ""))
	}
	script := []rt.Reply{rt.Join(append([]rt.Reply{rt.Commentary("Working")}, calls...)...)}
	for _, at := range []string{"request_started", "text_delta", "call_announced", "response_finished", "call_started"} {
		t.Run(at, func(t *testing.T) {
			srv := rt.NewServer(script...)
			defer srv.Close()
			running := make(chan struct{}, 8)
			loop := &fnloop.Loop{Client: service(srv), Model: "m", Tools: []fnloop.Tool{raw("nap", func(ctx context.Context) (string, error) {
				running <- struct{}{}
				defer func() { <-running }()
				return "", nap(ctx, time.Hour)
			})}}
			bubble(t, func(t *testing.T) {
				start := time.Now()
				for e := range loop.Events(t.Context(), nil, "hi") {
					if e.Type() == at {
						break
					}
				}
				assert.Zero(t, len(running), "handlers have returned")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestEventsReaderPanics(t *testing.T) {
	loop, _ := play(t, rt.Join(rt.Call("", "nap", ""), rt.Call("", "nap", "")))
	loop.Tools = []fnloop.Tool{napper("nap", time.Hour)}
	bubble(t, func(t *testing.T) {
		defer func() { assert.Equal(t, errBoom, recover()) }()
		for e := range loop.Events(t.Context(), nil, "hi") {
			if e.Type() == "call_started" {
				panic(errBoom)
			}
		}
	})
}

func TestCallOutput(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "run_python", `{"code":"print(1)"}`), rt.Text("done"))
	code := 0
	loop.Tools = []fnloop.Tool{fnloop.PythonTool(&fake.Runner{Func: func(_ context.Context, p fnloop.Program) (fnloop.Result, error) {
		io.WriteString(p.Stdout, "one\n")
		io.WriteString(p.Stderr, "two\n")
		return fnloop.Result{ExitCode: &code, Stdout: "one\n", Stderr: "two\n", End: fnloop.EndExit}, nil
	}}, fnloop.Limits{})}
	seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	assert.Contains(t, outline(seen), "call_started call_output call_finished")
	assert.Contains(t, seen, fnloop.Event(fnloop.CallOutput{ID: "call_1", Stream: "stdout", Text: "one\n"}))
	assert.Contains(t, seen, fnloop.Event(fnloop.CallOutput{ID: "call_1", Stream: "stderr", Text: "two\n"}))
}

func TestLiveOutputAfterTheCall(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "leak", ""), rt.Text("done"))
	var late io.Writer
	loop.Tools = []fnloop.Tool{raw("leak", func(ctx context.Context) (string, error) {
		late, _ = fnloop.LiveOutput(ctx)
		return "", nil
	})}
	_, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	n, err := io.WriteString(late, "too late")
	assert.Equal(t, 8, n)
	assert.NoError(t, err)
	stdout, stderr := fnloop.LiveOutput(t.Context())
	assert.Nil(t, stdout)
	assert.Nil(t, stderr)
}

// A reader that lags holds the run up, but not the programs.
func TestSlowReader(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "run_python", `{"code":"print(1)"}`), rt.Text("done"))
	code := 0
	printed := strings.Repeat("€", 20_000)
	loop.Tools = []fnloop.Tool{fnloop.PythonTool(&fake.Runner{
		Delay:   time.Second,
		Results: []fnloop.Result{{ExitCode: &code, Stdout: printed, End: fnloop.EndExit}},
	}, fnloop.Limits{})}
	bubble(t, func(t *testing.T) {
		start := time.Now()
		var finished fnloop.CallFinished
		events := 0
		for e, err := range loop.Events(t.Context(), nil, "hi") {
			require.NoError(t, err)
			events++
			time.Sleep(time.Minute)
			switch e := e.(type) {
			case fnloop.CallFinished:
				finished = e
			case fnloop.CallOutput:
				assert.NotContains(t, e.Text, "\ufffd")
			}
		}
		assert.LessOrEqual(t, finished.Duration, 1200*time.Millisecond, "the program did not wait")
		assert.Contains(t, finished.Text, printed, "its result is whole")
		assert.GreaterOrEqual(t, time.Since(start), time.Duration(events)*time.Minute, "the run did")
	})
}

// A request keeps its number when it is sent again, and numbers begin anew with
// each run, whatever ran before its first request.
func TestEventsCountRequests(t *testing.T) {
	loop, _ := play(t, rt.ServerError(), rt.Call("call_1", "ok", ""), rt.ServerError(), rt.Call("call_2", "ok", ""), rt.Text("done"))
	bubble(t, func(t *testing.T) {
		loop.Tools = []fnloop.Tool{echo("ok", "yes")}
		loop.Tools[0].NeedsApproval = func(_ context.Context, c fnloop.Call) bool { return c.ID == "call_2" }
		count := func(events []fnloop.Event) (numbers []int) {
			for _, e := range events {
				switch e := e.(type) {
				case fnloop.RequestStarted:
					numbers = append(numbers, e.Request)
				case fnloop.ResponseFinished:
					numbers = append(numbers, -e.Request)
				}
			}
			return numbers
		}
		seen, answer, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.ErrorIs(t, err, fnloop.ErrApproval)
		assert.Equal(t, []int{1, -1, 2, -2}, count(seen))
		require.NoError(t, answer.Approve("call_2"))
		seen, _, err = watch(t, loop.Events(t.Context(), answer, ""))
		require.NoError(t, err)
		assert.Equal(t, "call_started call_finished request_started text_delta response_finished done", outline(seen))
		assert.Equal(t, []int{1, -1}, count(seen))
	})
}

// Paragraphs of reasoning are told apart, streamed or not.
func TestReasoningParagraphs(t *testing.T) {
	const output = `[{"type":"reasoning","summary":[{"type":"summary_text","text":"One."},{"type":"summary_text","text":"Two."}],"content":[{"type":"reasoning_text","text":"Raw."}]},` +
		`{"type":"reasoning","summary":[{"type":"summary_text","text":"Three."}]},{"type":"message","content":[{"type":"output_text","text":"done"}]}]`
	whole := `{"id":"resp_1","object":"response","status":"completed","output":` + output + `}`
	streamed := frames(created,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"On"}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"e."}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"Two."}`,
		`{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"Raw."}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":0,"delta":"Three."}`,
		`{"type":"response.output_text.delta","output_index":2,"delta":"done"}`,
		`{"type":"response.completed","response":`+whole+`}`)
	for name, body := range map[string]string{"whole": whole, "streamed": streamed} {
		seen, _, err := watch(t, sse(t, "", body).Events(t.Context(), nil, "hi"))
		require.NoError(t, err)
		text := ""
		var places []string
		for _, e := range seen {
			if d, ok := e.(fnloop.ReasoningDelta); ok {
				text += d.Text
				places = append(places, fmt.Sprint(d.Item, d.Part, d.Raw))
			}
		}
		assert.Equal(t, "One.\n\nTwo.\n\nRaw.\n\nThree.", text, name)
		assert.Equal(t, []string{"0 0 false", "0 1 false", "0 0 true", "1 0 false"}, slices.Compact(places), name)
	}
}

// All that a response costs is known, and how full the context is.
func TestUsageAndWhoAnswered(t *testing.T) {
	reply := func(id, model, tier, output string, in int) string {
		return fmt.Sprintf(`{"id":%q,"status":"completed","model":%q,"service_tier":%q,"output":[%s],"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":200,"cache_write_tokens":40},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":%d}}`, id, model, tier, output, in, in+5)
	}
	loop := sse(t, "", reply("resp_1", "alpha-1", "default", `{"type":"function_call","call_id":"c","name":"ok","arguments":"{}"}`, 1000),
		reply("resp_2", "beta-2", "priority", `{"type":"message","content":[{"type":"output_text","text":"done"}]}`, 3000), `{"id":"resp_3","status":"failed","error":{"code":"invalid_prompt"}}`)
	loop.Tools = []fnloop.Tool{echo("ok", "yes")}
	seen, ans, err := watch(t, loop.Events(t.Context(), nil, "hi"))
	require.NoError(t, err)
	assert.Equal(t, fnloop.Usage{InputTokens: 4000, CachedTokens: 400, CacheWriteTokens: 80, OutputTokens: 10, ReasoningTokens: 4, TotalTokens: 4010}, ans.Usage)
	assert.Equal(t, "beta-2", ans.Model)
	assert.Equal(t, "priority", ans.ServiceTier)
	assert.EqualValues(t, 3000, ans.ContextTokens)
	var by []string
	for _, e := range seen {
		if f, ok := e.(fnloop.ResponseFinished); ok {
			by = append(by, fmt.Sprint(f.ID, f.Model, f.ServiceTier, f.Usage.CacheWriteTokens))
		}
	}
	assert.Equal(t, []string{"resp_1alpha-1default40", "resp_2beta-2priority40"}, by)
	ans, err = loop.Continue(t.Context(), store(t, ans), "again")
	require.Error(t, err)
	assert.EqualValues(t, 3000, ans.ContextTokens, "a failed response leaves the conversation as it was")
}

// A wait is told, and why the run ended.
func TestRetryIsTold(t *testing.T) {
	loop, _ := play(t, rt.RateLimited(7*time.Second), rt.Failed("server_is_overloaded", "full"), rt.Text("done"))
	bubble(t, func(t *testing.T) {
		seen, _, err := watch(t, loop.Events(t.Context(), nil, "hi"))
		require.NoError(t, err)
		var retries []fnloop.Retry
		for _, e := range seen {
			if r, ok := e.(fnloop.Retry); ok {
				retries = append(retries, r)
			}
		}
		require.Len(t, retries, 2)
		var request *fnloop.RequestError
		require.ErrorAs(t, retries[0].Err, &request)
		var failure *fnloop.ResponseError
		require.ErrorAs(t, retries[1].Err, &failure)
		retries[0].Err, retries[1].Err = nil, nil
		assert.Equal(t, fnloop.Retry{Request: 1, Attempt: 2, Wait: 7 * time.Second, StatusCode: 429, Code: "rate_limit_exceeded"}, retries[0])
		assert.Equal(t, "server_is_overloaded", retries[1].Code)
		assert.Equal(t, 3, retries[1].Attempt)
		assert.Greater(t, retries[1].Wait, 500*time.Millisecond)
	})
}

func TestCauseIsTold(t *testing.T) {
	for why, want := range map[error]string{errors.New("the user pressed stop"): "the user pressed stop", nil: ""} {
		loop, _ := play(t)
		loop.Client = service(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(why) })
			_, ans, err := watch(t, loop.Events(ctx, nil, "hi"))
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, want, store(t, ans).Cause)
		})
	}
}

func TestEventsAs(t *testing.T) {
	type answer struct {
		N int `json:"n"`
	}
	loop, _ := play(t, rt.Text(`{"n":7}`), rt.Text(`{"n":"seven"}`))
	seen, ans, err := watch(t, fnloop.EventsAs[answer](t.Context(), loop, nil, "hi"))
	require.NoError(t, err)
	assert.Equal(t, `{"n":7}`, said(seen, "final_answer")+said(seen, ""), "it is told while it is written")
	assert.Equal(t, answer{7}, seen[len(seen)-1].(fnloop.Done).Value)
	seen, ans, err = watch(t, fnloop.EventsAs[answer](t.Context(), loop, ans, "again"))
	require.ErrorIs(t, err, fnloop.ErrMismatch)
	assert.Equal(t, fnloop.StopMismatch, ans.Stop)
	assert.Nil(t, seen[len(seen)-1].(fnloop.Done).Value)
	seen, _, err = watch(t, fnloop.EventsAs[chan int](t.Context(), loop, ans, "again"))
	require.Error(t, err)
	assert.Len(t, seen, 1, "done alone")
}
