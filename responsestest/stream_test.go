package responsestest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

const streamed = `{"model":"m","input":"hi","stream":true}`

// events reads a stream strictly: an event line, a data line, an empty line, the type twice, numbers
// without holes.
func events(t *testing.T, srv *responsestest.Server, body string) []document {
	t.Helper()
	resp, text := send(t, srv, "POST", "/responses", body)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	return parseEvents(t, text, 0)
}

func parseEvents(t *testing.T, text string, first int) []document {
	t.Helper()
	var all []document
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if strings.HasPrefix(block, ":") {
			continue
		}
		name, data, ok := strings.Cut(block, "\ndata: ")
		require.True(t, ok, block)
		require.NotContains(t, data, "\n")
		var d document
		require.NoError(t, json.Unmarshal([]byte(data), &d), data)
		require.Equal(t, name, "event: "+d["type"].(string))
		require.EqualValues(t, first+len(all), d["sequence_number"])
		all = append(all, d)
	}
	return all
}

func types(all []document) string {
	var names []string
	for _, d := range all {
		name := strings.TrimPrefix(d["type"].(string), "response.")
		if len(names) == 0 || names[len(names)-1] != name || !strings.HasSuffix(name, ".delta") {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestEventOrder(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply responsestest.Reply
		want  string // between in_progress and the end
		end   string
	}{
		{"text", responsestest.Text("A sentence of some words."),
			"output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done", "completed"},
		{"refusal", responsestest.Refusal("No, not that."),
			"output_item.added content_part.added refusal.delta refusal.done content_part.done output_item.done", "completed"},
		{"call", responsestest.Call("call_1", "f", `{"a":1}`),
			"output_item.added function_call_arguments.delta function_call_arguments.done output_item.done", "completed"},
		{"custom call", responsestest.CustomCall("call_1", "f", "print 1"),
			"output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done", "completed"},
		{"reasoning", responsestest.Reasoning(""), "output_item.added output_item.done", "completed"},
		{"summary", responsestest.Reasoning("I think."), "output_item.added reasoning_summary_part.added reasoning_summary_text.delta " +
			"reasoning_summary_text.done reasoning_summary_part.done output_item.done", "completed"},
		{"hosted", responsestest.Item(`{"type":"web_search_call","action":{"type":"search","query":"x"}}`),
			"output_item.added web_search_call.in_progress web_search_call.searching web_search_call.completed output_item.done", "completed"},
		{"unknown item", responsestest.Item(`{"type":"dream","depth":3}`), "output_item.added output_item.done", "completed"},
		{"cut call", responsestest.Incomplete("max_output_tokens", responsestest.Call("call_1", "f", `{"a`)),
			"output_item.added function_call_arguments.delta function_call_arguments.done output_item.done", "incomplete"},
		{"failed", responsestest.Failed("server_error", "boom"), "", "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t, test.reply.Force())
			all := events(t, srv, streamed)
			want := strings.Join(strings.Fields("created in_progress "+test.want+" "+test.end), " ")
			require.Equal(t, want, types(all))

			for i, d := range all {
				if i < 2 {
					require.Equal(t, "in_progress", d.at("response", "status"))
					require.Nil(t, d.at("response", "usage"), "only the end has a usage")
					require.Empty(t, d.at("response", "output"))
				}
				if typ := d["type"].(string); strings.HasSuffix(typ, ".delta") {
					require.NotEmpty(t, d["obfuscation"])
				}
			}
			end := all[len(all)-1]
			require.NotNil(t, end.at("response", "usage"))
			if test.want != "" {
				require.Equal(t, all[len(all)-2]["item"], end.at("response", "output", 0))
			}
		})
	}
}

func TestDeltas(t *testing.T) {
	arguments := `{"code":"print('héllo, wörld 🐍🐍🐍')","n":[1,2,3]}`
	srv := serve(t, responsestest.Call("call_1", "f", arguments).Force(), responsestest.Text(strings.Repeat("long ", 5000)))
	var joined string
	split := false
	for _, d := range events(t, srv, `{"model":"m","input":"hi","stream":true,"stream_options":{"include_obfuscation":false}}`) {
		switch d["type"] {
		case "response.output_item.added":
			require.Equal(t, "", d.at("item", "arguments"))
			require.Equal(t, "in_progress", d.at("item", "status"))
		case "response.function_call_arguments.delta":
			require.NotContains(t, d, "obfuscation", "it was turned off")
			joined += d["delta"].(string)
			split = split || !json.Valid([]byte(d["delta"].(string)))
		case "response.function_call_arguments.done":
			require.Equal(t, arguments, d["arguments"])
			require.Equal(t, "f", d["name"])
		}
	}
	require.Equal(t, arguments, joined)
	require.True(t, split, "no delta is a JSON text")
	require.Less(t, len(events(t, srv, streamed)), 200, "long texts come in longer pieces")
}

func TestPartialReasoning(t *testing.T) {
	srv := serve(t, responsestest.Reasoning(""))
	all := events(t, srv, streamed)
	require.NotEqual(t, all[2].at("item", "encrypted_content"), all[3].at("item", "encrypted_content"))
}

func TestEdits(t *testing.T) {
	calls := responsestest.Join(responsestest.Text("Both."), responsestest.Call("call_1", "f", `{"a":123456789}`), responsestest.Call("call_2", "f", `{"a":1}`)).Force()
	srv := serve(t, calls.Edited(responsestest.Noise), calls.Edited(responsestest.Interleave), calls)
	resp, text := send(t, srv, "POST", "/responses", streamed)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, "\n\n: keepalive\n\n")
	require.Contains(t, types(parseEvents(t, text, 0)), "keepalive unheard_of")

	mixed, plain := events(t, srv, streamed), events(t, srv, streamed)
	require.Len(t, mixed, len(plain), "nothing is lost")
	var order []any
	for _, d := range mixed {
		if strings.Contains(d["type"].(string), "output_item") {
			order = append(order, d["output_index"])
		}
	}
	require.Equal(t, []any{0., 0., 1., 2., 2., 1.}, order)
}

// The faults of a stream, as the SDK sees them.
func TestBrokenStreams(t *testing.T) {
	for _, test := range []struct {
		name string
		cut  responsestest.Cut
		last string // the type of the last event
		err  string
	}{
		{"end", responsestest.EOF, "response.output_item.added", ""},
		{"half a line", responsestest.HalfLine, "response.output_item.added", ""},
		{"reset", responsestest.Reset, "response.output_item.added", "unexpected EOF"},
		{"flat error", responsestest.FlatError, "error", ""},
		{"nested error", responsestest.NestedError, "response.output_item.added", "server_error"},
		{"failed", responsestest.FailedEvent, "response.output_item.added", "server_error"},
		{"nothing", responsestest.Unsent, "", "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t, responsestest.Text("A sentence.").Broken(test.cut, 3))
			stream := srv.Client().NewStreaming(t.Context(), ask("hi"), option.WithMaxRetries(0))
			last := ""
			for stream.Next() {
				last = stream.Current().Type
			}
			require.Equal(t, test.last, last)
			if test.err == "" {
				require.NoError(t, stream.Err())
			} else {
				require.ErrorContains(t, stream.Err(), test.err)
			}
			if test.name == "nested error" {
				require.ErrorAs(t, stream.Err(), new(*ssestream.StreamError))
			}
			id := srv.Requests()[0].ResponseID
			status, _ := do(t, srv, "GET", "/responses/"+id, "")
			if test.cut == responsestest.Unsent {
				require.Equal(t, http.StatusOK, status, "the response was stored before the connection broke")
			} else {
				require.Equal(t, http.StatusNotFound, status, "a response that is cut is not stored")
			}
		})
	}
	t.Run("failed event", func(t *testing.T) {
		reply := responsestest.Text("A sentence.").Broken(responsestest.FailedEvent, 2)
		reply.Code, reply.Message = "rate_limit_exceeded", "Please try again in 11.054s."
		all := events(t, serve(t, reply), streamed)
		require.Equal(t, "created in_progress error failed", types(all))
		require.Equal(t, "rate_limit_exceeded", all[2].at("error", "code"))
		require.Equal(t, "tokens", all[2].at("error", "type"))
		require.Equal(t, "Please try again in 11.054s.", all[3].at("response", "error", "message"))
	})
	t.Run("not a stream", func(t *testing.T) {
		reply := responsestest.Text("hello")
		reply.Plain = true
		srv := serve(t, reply, responsestest.HTTP(200, "<html>login</html>"))
		for range 2 {
			stream := srv.Client().NewStreaming(t.Context(), ask("hi"))
			require.False(t, stream.Next())
			require.NoError(t, stream.Err(), "the SDK sees no events and no error")
		}
	})
}

func TestSlowStream(t *testing.T) {
	srv := serve(t, responsestest.Text("Hi.").Paced(20*time.Millisecond))
	stream := srv.Client().NewStreaming(t.Context(), ask("hi"))
	require.True(t, stream.Next())
	begin := time.Now() // the first event does not wait for the others
	for stream.Next() {
	}
	require.NoError(t, stream.Err())
	require.Greater(t, time.Since(begin), 100*time.Millisecond)
}

// A client that goes away cancels the response, and a test can see that it did.
func TestDisconnect(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply responsestest.Reply
	}{
		{"before the answer", responsestest.Text("late").After(time.Hour)},
		{"within a stream", responsestest.Text("late").Paced(time.Hour)},
		{"frozen", responsestest.Text("late").Broken(responsestest.Freeze, 2)},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t, test.reply)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				for len(srv.Requests()) == 0 || srv.Requests()[0].ResponseID == "" {
					time.Sleep(time.Millisecond)
				}
			}()
			stream := srv.Client().NewStreaming(ctx, ask("hi"), option.WithMaxRetries(0))
			for stream.Next() {
			}
			require.ErrorIs(t, stream.Err(), context.Canceled)
			require.Eventually(t, func() bool { return srv.Requests()[0].Disconnected }, 5*time.Second, time.Millisecond)
			status, _ := do(t, srv, "GET", "/responses/"+srv.Requests()[0].ResponseID, "")
			require.Equal(t, http.StatusNotFound, status)
		})
	}
}

func TestCloseEndsOpenRequests(t *testing.T) {
	for name, reply := range map[string]responsestest.Reply{
		"delayed": responsestest.Text("never").After(time.Hour),
		"frozen":  responsestest.Text("never").Broken(responsestest.Freeze, 1),
		"computed": responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
			<-turn.Context().Done()
			return responsestest.Text("never")
		}),
		"not read": responsestest.HTTP(200, strings.Repeat("much ", 8<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			srv := responsestest.NewServer(reply)
			conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(srv.URL, "http://"), "/v1"))
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "POST /v1/responses HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer test\r\nContent-Length: 26\r\n\r\n"+
				`{"model":"m","input":"hi"}`)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(srv.Requests()) == 1 }, 5*time.Second, time.Millisecond)
			time.Sleep(20 * time.Millisecond) // for the answer to get stuck
			srv.Close()
		})
	}
}

func TestBackground(t *testing.T) {
	srv := serve(t, responsestest.Text("done").After(time.Hour), responsestest.Text("done"), responsestest.Text("done"))
	slow := create(t, srv, `{"model":"m","input":"hi","background":true}`)
	require.Equal(t, "queued", slow["status"])
	_, d := do(t, srv, "GET", "/responses/"+slow.id(), "")
	require.Equal(t, "in_progress", d["status"])
	_, e := refused(t, srv, `{"model":"m","input":"go on","previous_response_id":"`+slow.id()+`"}`)
	require.Contains(t, e["message"], "in_progress")
	for range 2 {
		status, d := do(t, srv, "POST", "/responses/"+slow.id()+"/cancel", "")
		require.Equal(t, http.StatusOK, status, "a second cancel does no harm")
		require.Equal(t, "cancelled", d["status"])
	}

	quick := create(t, srv, `{"model":"m","input":"hi","background":true}`)
	_, d = do(t, srv, "GET", "/responses/"+quick.id(), "")
	require.Equal(t, "completed", d["status"])

	all := events(t, srv, `{"model":"m","input":"hi","background":true,"stream":true}`)
	require.True(t, strings.HasPrefix(types(all), "created queued in_progress output_item.added"))
	id, _ := all[0].at("response", "id").(string)
	_, text := send(t, srv, "GET", "/responses/"+id+"?stream=true&starting_after=2", "")
	require.Equal(t, all[3:], parseEvents(t, text, 3))
	status, _ := do(t, srv, "GET", "/responses/"+quick.id()+"?stream=true", "")
	require.Equal(t, http.StatusBadRequest, status, "it was not created with stream")
}

func TestBrokenDocuments(t *testing.T) {
	raw := func(cut responsestest.Cut) (*http.Response, string, error) {
		srv := serve(t, responsestest.Text("hello").Broken(cut, 0))
		conn, err := http.NewRequest("POST", srv.URL+"/responses", strings.NewReader(`{"model":"m","input":"hi"}`))
		require.NoError(t, err)
		conn.Header.Set("Authorization", "Bearer test")
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(conn)
		if err != nil {
			return nil, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(bufio.NewReader(resp.Body))
		return resp, string(b), err
	}
	_, body, err := raw(responsestest.EOF)
	require.NoError(t, err)
	require.False(t, json.Valid([]byte(body)))
	require.NotEmpty(t, body)
	_, _, err = raw(responsestest.Reset)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = raw(responsestest.Unsent)
	require.ErrorIs(t, err, io.EOF)
	resp, body, err := raw(responsestest.FailedEvent)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, body, `"status":"failed"`)
	resp, _, err = raw(responsestest.NestedError)
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}
