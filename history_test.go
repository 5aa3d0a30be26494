package fnloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// A page that is loaded again shows the conversation, wherever it is kept.
func TestHistory(t *testing.T) {
	png := fnloop.Content{ImageURL: "data:image/png;base64,iVBORw0KGgo=", Detail: "low"}
	for _, kept := range []string{"stateless", "items", "API", "conversation"} {
		t.Run(kept, func(t *testing.T) {
			loop, srv := play(t,
				rt.Join(rt.Reasoning("I should add"), rt.Commentary("Let me add"), rt.Call("call_1", "add", `{"a":2,"b":3}`), rt.Item(searchItem)),
				rt.Text("It is 5."), rt.Text("Welcome."), rt.Error(400, "invalid_prompt", "no"))
			loop.Tools = []fnloop.Tool{adder()}
			loop.KeepItems = kept == "items"
			from := new(fnloop.Answer)
			switch kept {
			case "stateless":
				loop.State = fnloop.Stateless
			case "conversation":
				loop.State, from.Conversation = fnloop.InConversation, newConversation(t, srv)
			}
			ans, err := loop.Continue(t.Context(), from, "2+3?", png)
			require.NoError(t, err)
			ans, err = loop.Continue(t.Context(), store(t, ans), "Thanks")
			require.NoError(t, err)
			ans, err = loop.Continue(t.Context(), store(t, ans), "Now 7+8")
			require.Error(t, err)
			ans = store(t, ans)

			history := ans.History()
			if kept == "API" || kept == "conversation" {
				assert.Len(t, history, 1, "the Answer has only what no response took in")
				history, err = fnloop.FetchHistory(t.Context(), loop.Client.(*responses.ResponseService), ans)
				require.NoError(t, err)
			}
			var outline []string
			for _, e := range history {
				line := e.Role + ": " + e.Text
				switch {
				case e.Reasoning != "":
					line = "reasoning: " + e.Reasoning
				case e.Call != nil:
					line = fmt.Sprintf("call: %s %s -> %s", e.Call.Name, e.Call.Arguments, e.Call.Text)
				case e.Hosted != nil:
					line = "hosted: " + e.Hosted.Kind
				}
				if len(e.Parts) > 0 {
					line += " +" + fmt.Sprint(e.Parts[0] == png)
				}
				if e.Phase != "" {
					line += " (" + e.Phase + ")"
				}
				if e.Unanswered {
					line += " (unanswered)"
				}
				outline = append(outline, line)
			}
			want := []string{"user: 2+3? +true", "reasoning: I should add", "assistant: Let me add (commentary)", `call: add {"a":2,"b":3} -> 5`, "hosted: web_search_call",
				"assistant: It is 5.", "user: Thanks", "assistant: Welcome.", "user: Now 7+8 (unanswered)"}
			if len(outline) == len(want)-1 { // the model need not give a summary
				want = append(want[:1:1], want[2:]...)
			}
			for i := range outline {
				if i == 5 || i == 7 || i == 4 { // nor call its answer final
					outline[i] = trimFinal(outline[i])
				}
			}
			assert.Equal(t, want, outline)
			_, err = json.Marshal(history)
			require.NoError(t, err)
		})
	}
}

func trimFinal(s string) string {
	const mark = " (final_answer)"
	if n := len(s) - len(mark); n >= 0 && s[n:] == mark {
		return s[:n]
	}
	return s
}

// What servers and hosts keep has many forms.
func TestHistoryOfOddItems(t *testing.T) {
	a := &fnloop.Answer{
		ID: "resp_1", Open: []string{"c2"},
		Calls:       []fnloop.CallResult{{Call: fnloop.Call{ID: "c2", Name: "f"}, Output: fnloop.Output{Text: "not sent yet", IsError: true}}},
		Partial:     "I was saying",
		Interrupted: true,
	}
	for _, raw := range []string{
		`{"role":"developer","content":"Be kind."}`,
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"},{"type":"input_file","file_id":"file_1"}]}`,
		`{"type":"reasoning","summary":[],"encrypted_content":"x"}`,
		`{"type":"custom_tool_call","call_id":"c1","name":"run","input":"print(1)"}`,
		`{"type":"custom_tool_call_output","call_id":"c1","output":[{"type":"input_text","text":"1"},{"type":"input_image","image_url":"u"}]}`,
		`{"type":"function_call_output","call_id":"lost","output":"x"}`,
		`{"type":"mcp_approval_request","id":"mcpr_1","name":"roll","server_label":"dice","arguments":"{}"}`,
		`{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`,
		`{"type":"message","content":[{"type":"refusal","refusal":"No."}]}`,
		citedItem,
		`{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"}`,
		`{"type":"function_call","call_id":"c3","name":"f","arguments":"{}"}`,
		`{"type":"brand_new_call","id":"bn_1","status":"completed"}`, `7`, `null`, `{"type":"compaction","id":"cmp_1"}`,
	} {
		a.Items = append(a.Items, json.RawMessage(raw))
	}
	h := a.History()
	require.Len(t, h, 10)
	assert.Equal(t, fnloop.HistoryEntry{Role: "developer", Text: "Be kind."}, h[0])
	assert.Equal(t, fnloop.HistoryEntry{Role: "user", Text: "ab", Parts: []fnloop.Content{{FileID: "file_1"}}}, h[1])
	assert.Equal(t, "print(1)", string(h[2].Call.Arguments))
	assert.Equal(t, []fnloop.Content{{Text: "1"}, {ImageURL: "u"}}, h[2].Call.Content)
	assert.True(t, h[3].Call.Hosted)
	assert.Equal(t, "dice", h[3].Call.Namespace)
	assert.Equal(t, fnloop.HistoryEntry{Role: "assistant", Text: "No.", Refusal: true}, h[4])
	assert.Equal(t, "Ösló", h[5].Text[h[5].Citations[0].Start:h[5].Citations[0].End])
	assert.Equal(t, "plot.png", h[5].Files[0].Name)
	assert.Equal(t, "not sent yet", h[6].Call.Text)
	assert.True(t, h[6].Call.IsError)
	assert.Empty(t, h[7].Call.Text)
	assert.Equal(t, "brand_new_call", h[8].Hosted.Kind)
	assert.Equal(t, fnloop.HistoryEntry{Role: "assistant", Text: "I was saying", Unanswered: true}, h[9])
}

// A conversation object has more than one page of items, some of which somebody
// else has written, and outlives the response that it ended with.
func TestHistoryOfAConversation(t *testing.T) {
	loop, srv := play(t, rt.Always(func(turn *rt.Turn) rt.Reply { return rt.Text("You said " + turn.Prompt()) }))
	loop.State = fnloop.InConversation
	client := loop.Client.(*responses.ResponseService)
	ans := &fnloop.Answer{Conversation: newConversation(t, srv)}
	h, err := fnloop.FetchHistory(t.Context(), client, ans)
	require.NoError(t, err)
	assert.Empty(t, h)
	for i := range 60 {
		ans, err = loop.Continue(t.Context(), ans, fmt.Sprint(i))
		require.NoError(t, err)
	}
	_, err = client.New(t.Context(), responses.ResponseNewParams{
		Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("of another program")},
		Conversation: responses.ResponseNewParamsConversationUnion{OfString: param.NewOpt(ans.Conversation)},
	})
	require.NoError(t, err)
	srv.Forget(ans.ID)
	ans.AddPrompt("not sent")
	h, err = fnloop.FetchHistory(t.Context(), client, store(t, ans))
	require.NoError(t, err)
	require.Len(t, h, 123)
	assert.Equal(t, fnloop.HistoryEntry{Role: "user", Text: "0"}, h[0])
	assert.Equal(t, "You said 59", h[119].Text)
	assert.Equal(t, "You said of another program", h[121].Text)
	assert.Equal(t, fnloop.HistoryEntry{Role: "user", Text: "not sent", Unanswered: true}, h[122])

	_, err = fnloop.FetchHistory(t.Context(), client, &fnloop.Answer{Conversation: "conv_gone"})
	var request *fnloop.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, 404, request.StatusCode)
}

func TestHistoryThatTheAPIHasLost(t *testing.T) {
	loop, _ := play(t)
	_, err := fnloop.FetchHistory(t.Context(), loop.Client.(*responses.ResponseService), &fnloop.Answer{ID: "resp_gone"})
	var request *fnloop.RequestError
	require.ErrorAs(t, err, &request)
	assert.Equal(t, 404, request.StatusCode)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = fnloop.FetchHistory(ctx, loop.Client.(*responses.ResponseService), &fnloop.Answer{ID: "resp_gone"})
	require.ErrorIs(t, err, context.Canceled)
	h, err := fnloop.FetchHistory(t.Context(), loop.Client.(*responses.ResponseService), &fnloop.Answer{Prompt: "hi"})
	require.NoError(t, err)
	assert.Len(t, h, 1)
}
