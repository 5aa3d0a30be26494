package responsestest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

func TestPairing(t *testing.T) {
	twoCalls := responsestest.Join(responsestest.Call("call_1", "f", `{"a":1}`), responsestest.Call("call_2", "f", `{"a":2}`))
	program := responsestest.Item(`{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}","caller":{"type":"program","caller_id":"call_p"}}`)
	item := responsestest.Item
	const output1 = `{"type":"function_call_output","call_id":"call_1","output":"1"}`
	const output2 = `{"type":"function_call_output","call_id":"call_2","output":"2"}`

	for _, test := range []struct {
		name, why string
		first     responsestest.Reply
		input     string // of the second request; $id is the id of the first item, $it the item
		report    string // empty if the request is right
	}{
		{"both", "", twoCalls, output1 + `,` + output2, ""},
		{"any order", "outputs are matched by call id", twoCalls, output2 + `,` + output1, ""},
		{"then a prompt", "", twoCalls, output1 + `,` + output2 + `,{"role":"user","content":"go on"}`, ""},
		{"one missing", "the first missing one is named", twoCalls, output1, "No tool output found for function call call_2."},
		{"both missing", "", twoCalls, `{"role":"user","content":"hello?"}`, "No tool output found for function call call_1."},
		{"nothing", "", twoCalls, ``, "No tool output found for function call call_1."},
		{"unknown", "", twoCalls, output1 + `,` + output2 + `,{"type":"function_call_output","call_id":"call_3","output":""}`,
			"No tool call found for function call output with call_id call_3."},
		{"twice", "", twoCalls, output1 + `,` + output2 + `,` + output1, "Duplicate function_call_output for call_id 'call_1'."},
		{"id of the call", "counts as no output", twoCalls, `{"type":"function_call_output","id":"$id","call_id":"call_1","output":"1"},` + output2,
			"No tool output found for function call call_1."},
		{"id as call id", "", twoCalls, `{"type":"function_call_output","call_id":"$id","output":"1"},` + output2,
			"No tool call found for function call output with call_id"},
		{"sent again", "stored items are there already", twoCalls, `$it,` + output1 + `,` + output2, "Duplicate item found with id"},
		{"sent again without id", "", twoCalls, `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},` + output1 + `,` + output2,
			"Duplicate item found with call_id call_1"},
		{"wrong kind", "a custom output does not answer a function call", responsestest.Call("call_1", "f", "{}"),
			`{"type":"custom_tool_call_output","call_id":"call_1","output":""}`, "No tool call found for custom tool call output with call_id call_1."},
		{"custom", "", responsestest.CustomCall("call_1", "c", "x"), ``, "No tool output found for custom tool call call_1."},
		{"custom answered", "", responsestest.CustomCall("call_1", "c", "x"), `{"type":"custom_tool_call_output","call_id":"call_1","output":""}`, ""},
		{"shell", "", item(`{"type":"shell_call","call_id":"call_1","action":{"commands":["ls"]},"environment":{"type":"local"}}`), ``,
			"No tool output found for shell call call_1."},
		{"hosted shell", "ran in a container", item(`{"type":"shell_call","call_id":"call_1","action":{"commands":["ls"]},"environment":{"type":"container_reference"}}`), ``, ""},
		{"apply patch", "", item(`{"type":"apply_patch_call","call_id":"call_1","operation":{"type":"delete_file","path":"a"}}`), ``,
			"No tool output found for apply patch call call_1."},
		{"apply patch answered", "", item(`{"type":"apply_patch_call","call_id":"call_1","operation":{"type":"delete_file","path":"a"}}`),
			`{"type":"apply_patch_call_output","call_id":"call_1","status":"completed"}`, ""},
		{"computer", "", item(`{"type":"computer_call","call_id":"call_1","action":{"type":"screenshot"}}`), ``, "No tool output found for computer call call_1."},
		{"tool search", "", item(`{"type":"tool_search_call","execution":"client","call_id":"call_1","arguments":{}}`), ``,
			"No tool output found for tool search call call_1."},
		{"hosted tool search", "", item(`{"type":"tool_search_call","execution":"server","call_id":null,"arguments":{}}`), ``, ""},
		{"async", "may be answered later", item(`{"type":"function_call","async":true,"call_id":"call_1","name":"f","arguments":"{}"}`), ``, ""},
		{"async answered", "", item(`{"type":"function_call","async":true,"call_id":"call_1","name":"f","arguments":"{}"}`), output1, ""},
		{"program", "the caller has to be repeated", program, output1, "does not match the caller of its call"},
		{"program answered", "", program, `{"type":"function_call_output","call_id":"call_1","output":"1","caller":{"type":"program","caller_id":"call_p"}}`, ""},
		{"direct caller", "may be repeated", responsestest.Call("call_1", "f", "{}"), `{"type":"function_call_output","call_id":"call_1","output":"1","caller":{"type":"direct"}}`, ""},
		{"cut call", "has to be answered like any other", responsestest.Incomplete("max_output_tokens", responsestest.Call("call_1", "f", `{"a`)), ``,
			"No tool output found for function call call_1."},
		{"approval", "", item(`{"type":"mcp_approval_request","id":"mcpr_1","name":"n","arguments":"{}","server_label":"l"}`),
			`{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`, ""},
		{"approval of nothing", "", responsestest.Text("hi"), `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`,
			"No pending approval request found with id 'mcpr_1'."},
		{"approval twice", "", item(`{"type":"mcp_approval_request","id":"mcpr_1","name":"n","arguments":"{}","server_label":"l"}`),
			strings.Repeat(`,{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`, 2)[1:], "No pending approval request"},
		{"item of tomorrow", "needs no answer", item(`{"type":"dream_call","call_id":"call_1"}`), ``, ""},
		{"reference", "stands for a stored item", responsestest.Text("hi"), `{"type":"item_reference","id":"$id"}`, "Duplicate item found with id"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, test.first.Force(), responsestest.Text("done"))
			offer := tools("f")[:len(tools("f"))-1] + `,{"type":"custom","name":"c"}]`
			first := create(t, srv, `{"model":"m","input":"hi",`+offer+`}`)
			id, _ := first.at("output", 0, "id").(string)
			input := strings.NewReplacer("$id", id, "$it", compactJSON(t, first.at("output", 0))).Replace(test.input)
			chained := `{"model":"m","previous_response_id":"` + first.id() + `","input":[` + input + `],` + offer + `}`
			if test.report == "" {
				create(t, srv, chained)
				require.NoError(t, srv.Err())
				return
			}
			status, e := refused(t, srv, chained)
			require.Equal(t, http.StatusBadRequest, status, test.why)
			require.Contains(t, e["message"], test.report, test.why)
			require.Equal(t, "input", e["param"])
			require.Nil(t, e["code"])

			// What was refused has left no trace: the right request still works.
			if strings.HasPrefix(test.name, "one missing") {
				create(t, srv, `{"model":"m","previous_response_id":"`+first.id()+`","input":[`+output1+`,`+output2+`],`+offer+`}`)
			}
		})
	}
}

func TestStatelessPairing(t *testing.T) {
	const user = `{"role":"user","content":"hi"},`
	const call = `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},`
	const output = `{"type":"function_call_output","call_id":"call_1","output":"1"}`
	for _, test := range []struct{ name, why, input, report string }{
		{"whole", "", user + call + output, ""},
		{"unknown item id", "a complete item is taken under any id", user + `{"type":"function_call","id":"fc_x","call_id":"call_1","name":"f","arguments":"{}"},` + output, ""},
		{"call id used again", "in a later round", user + call + output + "," + call + output, ""},
		{"no output", "", user + strings.TrimSuffix(call, ","), "No tool output found for function call call_1."},
		{"no call", "", user + output, "No tool call found for function call output with call_id call_1."},
		{"two calls of one id", "", user + call + call + output, "Duplicate item found with call_id call_1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := serve(t, responsestest.Text("done"))
			body := `{"model":"m","store":false,"input":[` + test.input + `]}`
			if test.report == "" {
				create(t, srv, body)
				return
			}
			_, e := refused(t, srv, body)
			require.Contains(t, e["message"], test.report, test.why)
		})
	}
}

func TestNamespaces(t *testing.T) {
	const offer = `"tools":[{"type":"namespace","name":"crm","description":"d","tools":[{"type":"function","name":"find","parameters":{"type":"object","properties":{}}}]}]`
	srv := serve(t, responsestest.Call("call_1", "find", "{}"), responsestest.Text("done"))
	first := create(t, srv, `{"model":"m","input":"hi",`+offer+`}`)
	require.Equal(t, "crm", first.at("output", 0, "namespace"), "the server says where the tool lives")

	const output = `{"type":"function_call_output","call_id":"call_1","output":"1"}`
	_, e := refused(t, srv, `{"model":"m","store":false,"input":[{"type":"function_call","call_id":"call_1","name":"find","arguments":"{}"},`+output+`],`+offer+`}`)
	require.Contains(t, e["message"], "Missing namespace for function_call 'find'.")
	create(t, srv, `{"model":"m","store":false,"input":[{"type":"function_call","call_id":"call_1","name":"find","namespace":"crm","arguments":"{}"},`+output+`],`+offer+`}`)
	require.NoError(t, srv.Err())
}

func TestToolSearch(t *testing.T) {
	srv := serve(t,
		responsestest.Item(`{"type":"tool_search_call","execution":"client","arguments":{"goal":"rates"}}`),
		responsestest.Call("call_2", "rate", "{}"),
		responsestest.Text("0.92"),
	)
	first := create(t, srv, `{"model":"m","input":"hi","tools":[{"type":"tool_search","execution":"client","description":"d","parameters":{}}]}`)
	callID, _ := first.at("output", 0, "call_id").(string)
	require.True(t, strings.HasPrefix(callID, "call_"))
	second := create(t, srv, `{"model":"m","previous_response_id":"`+first.id()+`","input":[{"type":"tool_search_output","execution":"client","status":"completed","call_id":"`+
		callID+`","tools":[{"type":"function","name":"rate","parameters":{"type":"object","properties":{}}}]}]}`)
	require.Equal(t, "rate", second.at("output", 0, "namespace"), "a function loaded alone is its own namespace")
	create(t, srv, `{"model":"m","previous_response_id":"`+second.id()+`","input":[{"type":"function_call_output","call_id":"call_2","output":"0.92"}]}`)
	require.NoError(t, srv.Err())
}
