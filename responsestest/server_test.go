package responsestest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

var addTool = responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
	Name:   "add",
	Strict: param.NewOpt(true),
	Parameters: map[string]any{
		"type":                 "object",
		"properties":           map[string]any{"a": map[string]any{"type": "integer"}, "b": map[string]any{"type": "integer"}},
		"required":             []string{"a", "b"},
		"additionalProperties": false,
	},
}}

func ask(prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "stub-1",
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(prompt)},
		Tools: []responses.ToolUnionParam{addTool},
	}
}

func answer(previous string, outputs ...string) responses.ResponseNewParams {
	p := ask("")
	p.PreviousResponseID = param.NewOpt(previous)
	p.Input.OfString = param.Opt[string]{}
	p.Input.OfInputItemList = responses.ResponseInputParam{}
	for i := 0; i+1 < len(outputs); i += 2 {
		p.Input.OfInputItemList = append(p.Input.OfInputItemList, responses.ResponseInputItemUnionParam{
			OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
				CallID: param.NewOpt(outputs[i]),
				Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: param.NewOpt(outputs[i+1])},
			},
		})
	}
	return p
}

// The server is also a handler, which needs no socket.
func TestHandler(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"))
	req := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"hi"}`))
	req.Header.Set("Authorization", "Bearer test")
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, req)
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), "hello")
}

func TestConversation(t *testing.T) {
	for _, stream := range []bool{false, true} {
		srv := responsestest.NewServer(
			responsestest.Join(responsestest.Reasoning(""), responsestest.Call("call_1", "add", `{"a":2,"b":3}`)),
			responsestest.Text("2 and 3 make 5."),
		)
		t.Cleanup(srv.Close)
		create := func(p responses.ResponseNewParams) *responses.Response {
			if !stream {
				resp, err := srv.Client().New(t.Context(), p)
				require.NoError(t, err)
				return resp
			}
			events := srv.Client().NewStreaming(t.Context(), p)
			n := int64(0)
			for events.Next() {
				require.Equal(t, n, events.Current().SequenceNumber)
				n++
			}
			require.NoError(t, events.Err())
			require.Equal(t, "response.completed", events.Current().Type)
			resp := events.Current().Response
			return &resp
		}

		first := create(ask("What is 2 and 3?"))
		require.Len(t, first.Output, 2)
		require.Equal(t, "call_1", first.Output[1].CallID)
		second := create(answer(first.ID, "call_1", "5"))
		require.Equal(t, "2 and 3 make 5.", second.OutputText())
		require.NoError(t, srv.Err())
	}
}
