package responsestest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

func TestExhausted(t *testing.T) {
	srv := serve(t, responsestest.Text("only"))
	_, err := srv.Client().New(t.Context(), ask("hi"))
	require.NoError(t, err)
	_, err = srv.Client().New(t.Context(), ask("hi"))
	var e *responses.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusInternalServerError, e.StatusCode)
	require.Contains(t, e.Message, "the script is used up")
	require.Len(t, srv.Requests(), 2, "the SDK does not try again")
	require.ErrorContains(t, srv.Err(), "the script is used up")
}

func TestMisfits(t *testing.T) {
	call := responsestest.Call("call_1", "f", `{"a":1}`)
	for _, test := range []struct {
		name     string
		reply    responsestest.Reply
		settings string
		report   string
	}{
		{"no tools", call, ``, "offers no tools"},
		{"other tools", call, `,` + tools("g"), `calls the tool "f", which the request does not offer`},
		{"choice none", call, `,` + tools("f") + `,"tool_choice":"none"`, "tool_choice of the request does not allow"},
		{"other choice", call, `,` + tools("f", "g") + `,"tool_choice":{"type":"function","name":"g"}`, "does not allow"},
		{"not allowed", call, `,` + tools("f", "g") + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`, "does not allow"},
		{"required", responsestest.Text("hi"), `,` + tools("f") + `,"tool_choice":"required"`, "makes no call"},
		{"forced", responsestest.Text("hi"), `,` + tools("f") + `,"tool_choice":{"type":"function","name":"f"}`, "makes no call"},
		{"not parallel", responsestest.Join(call, call), `,` + tools("f") + `,"parallel_tool_calls":false`, "makes 2 calls"},
		{"custom call of a function", responsestest.CustomCall("call_1", "f", ""), `,` + tools("f"), "custom_tool_call"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t, test.reply, test.reply.Force())
			body := `{"model":"m","input":"hi"` + test.settings + `}`
			resp, text := send(t, srv, "POST", "/responses", body)
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			require.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
			require.Contains(t, strings.ReplaceAll(text, `\"`, `"`), test.report)
			require.ErrorContains(t, srv.Err(), test.report)
			create(t, srv, body)
		})
	}
	t.Run("not inherited", func(t *testing.T) {
		srv := serve(t, call, responsestest.Call("call_2", "f", `{"a":2}`))
		first := create(t, srv, `{"model":"m","input":"hi",`+tools("f")+`}`)
		status, _ := refused(t, srv, `{"model":"m","previous_response_id":"`+first.id()+`","input":[{"type":"function_call_output","call_id":"call_1","output":"1"}]}`)
		require.Equal(t, http.StatusInternalServerError, status)
	})
	t.Run("refusal", func(t *testing.T) {
		srv := serve(t, responsestest.Refusal("no"))
		create(t, srv, `{"model":"m","input":"hi",`+tools("f")+`,"tool_choice":"required"}`)
	})
}

func TestRawReplies(t *testing.T) {
	srv := serve(t,
		responsestest.RateLimited(1500*time.Millisecond),
		responsestest.RateLimited(0),
		responsestest.ServerError(),
		responsestest.Error(429, "insufficient_quota", "You exceeded your current quota."),
		responsestest.HTTP(502, "<html>bad gateway</html>"),
		responsestest.HTTP(200, "<html>login</html>"),
		responsestest.HTTP(200, ""),
		responsestest.HTTP(200, "event: x\n\n", "Content-Type", "text/event-stream"),
	)
	body := `{"model":"m","input":"hi"}`
	var got []string
	for range 8 {
		resp, text := send(t, srv, "POST", "/responses", body)
		require.NotEmpty(t, resp.Header.Get("X-Request-Id"))
		got = append(got, fmt.Sprintf("%d %s %q %.20q", resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Retry-After"), text))
	}
	require.Equal(t, []string{
		`429 application/json "2" "{\"error\":{\"message\":"`,
		`429 application/json "" "{\"error\":{\"message\":"`,
		`500 application/json "" "{\"error\":{\"message\":"`,
		`429 application/json "" "{\"error\":{\"message\":"`,
		`502 text/html "" "<html>bad gateway</h"`,
		`200 text/html "" "<html>login</html>"`,
		`200 application/json "" ""`,
		`200 text/event-stream "" "event: x\n\n"`,
	}, got)
	require.NoError(t, srv.Err())
}

func TestRetries(t *testing.T) {
	srv := serve(t, responsestest.HTTP(500, "", "Retry-After-Ms", "1"), responsestest.Drop(), responsestest.Text("at last"))
	resp, err := srv.Client().New(t.Context(), ask("hi"))
	require.NoError(t, err)
	require.Equal(t, "at last", resp.OutputText())
	var attempts []int
	for _, r := range srv.Requests() {
		attempts = append(attempts, r.Attempt)
	}
	require.Equal(t, []int{0, 1, 2}, attempts)
	require.Equal(t, []int{500, 0, 200}, []int{srv.Requests()[0].Status, srv.Requests()[1].Status, srv.Requests()[2].Status})
	require.Equal(t, srv.Requests()[0].Body, srv.Requests()[2].Body)
}

// A lost answer makes the SDK ask again, and the service makes a second response.
func TestUnsent(t *testing.T) {
	srv := serve(t, responsestest.Text("lost").Broken(responsestest.Unsent, 0), responsestest.Text("again"))
	_, err := srv.Client().New(t.Context(), ask("hi"))
	require.NoError(t, err)
	for _, r := range srv.Requests() {
		status, _ := do(t, srv, "GET", "/responses/"+r.ResponseID, "")
		require.Equal(t, http.StatusOK, status)
	}
}

func TestFunc(t *testing.T) {
	srv := serve(t,
		responsestest.Call("call_1", "add", `{"a":2,"b":3}`),
		responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
			output, ok := turn.Output("call_1")
			require.True(t, ok)
			require.Equal(t, 1, turn.Round)
			require.Equal(t, []string{"add"}, turn.Tools)
			require.Len(t, turn.Input, 3)
			require.Len(t, turn.New, 1)
			return responsestest.Text(turn.Prompt() + " " + output)
		}),
	)
	first, err := srv.Client().New(t.Context(), ask("What is 2 and 3?"))
	require.NoError(t, err)
	second, err := srv.Client().New(t.Context(), answer(first.ID, "call_1", "5"))
	require.NoError(t, err)
	require.Equal(t, "What is 2 and 3? 5", second.OutputText())
	require.NoError(t, srv.Err())
}

// runConversation plays two rounds of calls.
func runConversation(ctx context.Context, srv *responsestest.Server, prompt string) (string, error) {
	client := srv.Client()
	resp, err := client.New(ctx, ask(prompt))
	for err == nil && resp.OutputText() == "" {
		resp, err = client.New(ctx, answer(resp.ID, resp.Output[0].CallID, "5"))
	}
	if err != nil {
		return "", err
	}
	return resp.OutputText(), nil
}

func TestPerConversation(t *testing.T) {
	srv := serve(t, responsestest.PerConversation(
		responsestest.Call("", "add", `{"a":1,"b":1}`),
		responsestest.HTTP(500, "", "Retry-After-Ms", "1"),
		responsestest.Text("lost").Broken(responsestest.Unsent, 0),
		responsestest.Call("", "add", `{"a":2,"b":2}`),
		responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
			return responsestest.Text(fmt.Sprint("done after ", turn.Round, ": ", turn.Prompt()))
		}),
	))
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			prompt := fmt.Sprint("prompt ", i)
			text, err := runConversation(t.Context(), srv, prompt)
			if err != nil || text != "done after 2: "+prompt {
				t.Errorf("conversation %d: %q, %v", i, text, err)
			}
		})
	}
	group.Wait()
	require.NoError(t, srv.Err())
	require.Len(t, srv.Requests(), 20*5)
}

func TestPerConversationStateless(t *testing.T) {
	srv := serve(t, responsestest.PerConversation(responsestest.Call("call_1", "f", `{"a":1}`), responsestest.Text("done")))
	d := create(t, srv, `{"model":"m","store":false,"input":[{"role":"user","content":"hi"},{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},`+
		`{"type":"function_call_output","call_id":"call_1","output":"1"}],`+tools("f")+`}`)
	require.Equal(t, "done", d.at("output", 0, "content", 0, "text"))
	status, _ := refused(t, srv, `{"model":"m","previous_response_id":"`+create(t, srv, `{"model":"m","input":[{"role":"assistant","content":"hi"}]}`).id()+`","input":"hi"}`)
	require.Equal(t, http.StatusInternalServerError, status, "the conversation has come to the end of its script")
	require.Error(t, srv.Err())
}

func TestItemPanics(t *testing.T) {
	require.Panics(t, func() { responsestest.Item(`{"type":`) })
	require.Panics(t, func() { responsestest.Item(`[]`) })
}

func BenchmarkConversations(b *testing.B) {
	srv := responsestest.NewServer(responsestest.PerConversation(
		responsestest.Call("", "add", `{"a":1,"b":1}`),
		responsestest.Call("", "add", `{"a":2,"b":2}`),
		responsestest.Text("done"),
	))
	defer srv.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := runConversation(b.Context(), srv, "hi"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestTurn_Outputs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		input string
		want  []string
	}{
		{"none", `[{"role":"user","content":"hi"}]`, nil},
		{"in order, a custom tool's and one of parts too", `[{"role":"user","content":"hi"},
			{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"a","output":"1"},
			{"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"2"},{"type":"input_text","text":"3"}]}]`, []string{"1", "23"}},
		{"those before the last message are left out", `[{"type":"function_call_output","call_id":"a","output":"1"},
			{"role":"user","content":"and?"},{"type":"function_call_output","call_id":"b","output":"2"}]`, []string{"2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var turn responsestest.Turn
			require.NoError(t, json.Unmarshal([]byte(tt.input), &turn.Input))
			require.Equal(t, tt.want, turn.Outputs())
		})
	}
}
