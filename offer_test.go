package fnloop_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

// A request offers tools in more places than the top of its list.
func TestOfferedTools(t *testing.T) {
	lookup := responses.NamespaceToolToolUnionParam{OfFunction: &responses.NamespaceToolToolFunctionParam{Name: "lookup"}}
	space := func(in ...responses.NamespaceToolToolUnionParam) responses.ToolUnionParam {
		return responses.ToolUnionParam{OfNamespace: &responses.NamespaceToolParam{Name: "crm", Description: "d", Tools: in}}
	}
	function := responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{Name: "lookup"}}
	search := responses.ToolUnionParam{OfToolSearch: &responses.ToolSearchToolParam{}}
	allow := func(tools ...map[string]any) responses.ResponseNewParamsToolChoiceUnion {
		return responses.ResponseNewParamsToolChoiceUnion{OfAllowedTools: &responses.ToolChoiceAllowedParam{Mode: "auto", Tools: tools}}
	}
	const loaded = `{"type":"tool_search_output","execution":"server","tools":[{"type":"namespace","name":"crm","tools":[{"type":"function","name":"lookup"}]}]},`
	for _, tt := range []struct {
		why   string
		edit  func(*responses.ResponseNewParams)
		items string // of the response, before the call
		runs  bool
	}{
		{"in a namespace", func(p *responses.ResponseNewParams) { p.Tools = []responses.ToolUnionParam{space(lookup)} }, "", true},
		{"a custom one in a namespace", func(p *responses.ResponseNewParams) {
			p.Tools = []responses.ToolUnionParam{space(responses.NamespaceToolToolUnionParam{OfCustom: &responses.CustomToolParam{Name: "lookup"}})}
		}, "", true},
		{"a namespace of that name has another", func(p *responses.ResponseNewParams) {
			s := space(responses.NamespaceToolToolUnionParam{OfFunction: &responses.NamespaceToolToolFunctionParam{Name: "other"}})
			s.OfNamespace.Name = "lookup"
			p.Tools = []responses.ToolUnionParam{s}
		}, "", false},
		{"an allowed namespace", func(p *responses.ResponseNewParams) {
			p.Tools, p.ToolChoice = []responses.ToolUnionParam{space(lookup)}, allow(map[string]any{"type": "namespace", "name": "crm"})
		}, "", true},
		{"another namespace is allowed", func(p *responses.ResponseNewParams) {
			p.Tools, p.ToolChoice = []responses.ToolUnionParam{space(lookup)}, allow(map[string]any{"type": "namespace", "name": "erp"})
		}, "", false},
		{"an allowed function", func(p *responses.ResponseNewParams) {
			p.Tools, p.ToolChoice = []responses.ToolUnionParam{space(lookup)}, allow(map[string]any{"type": "function", "name": "lookup"})
		}, "", true},
		{"loaded by an item of the input", func(p *responses.ResponseNewParams) {
			p.Tools = []responses.ToolUnionParam{search}
			p.Input.OfInputItemList = append(p.Input.OfInputItemList, responses.ResponseInputItemUnionParam{
				OfAdditionalTools: &responses.ResponseInputItemAdditionalToolsParam{Tools: []responses.ToolUnionParam{function}}})
		}, "", true},
		{"loaded by the response itself", func(p *responses.ResponseNewParams) { p.Tools = []responses.ToolUnionParam{search} }, loaded, true},
		{"overridden with JSON", func(p *responses.ResponseNewParams) {
			p.Tools = []responses.ToolUnionParam{param.Override[responses.ToolUnionParam](json.RawMessage(`{"type":"namespace","name":"crm","tools":[]}`))}
		}, "", true},
		{"not offered", func(p *responses.ResponseNewParams) { p.Tools = []responses.ToolUnionParam{search} }, "", false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			const call = `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"lookup","namespace":"crm","arguments":"{}"}`
			loop := sse(t, "", `{"id":"resp_1","status":"completed","output":[`+tt.items+call+`]}`, completedBody)
			loop.Tools = []fnloop.Tool{echo("lookup", "found")}
			loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { tt.edit(p); return nil }
			ans, err := loop.Run(t.Context(), "hi")
			require.NoError(t, err)
			require.Len(t, ans.Calls, 1)
			assert.Equal(t, "crm", ans.Calls[0].Namespace)
			if tt.runs {
				assert.Equal(t, "found", ans.Calls[0].Text)
			} else {
				assert.Equal(t, fnloop.ErrUnknownTool, ans.Calls[0].Err)
			}
		})
	}
	t.Run("loaded in an earlier run", func(t *testing.T) {
		loop := sse(t, "", `{"id":"resp_1","status":"completed","output":[`+loaded+`{"type":"message","content":[{"type":"output_text","text":"I found it."}]}]}`,
			`{"id":"resp_2","status":"completed","output":[{"type":"function_call","call_id":"call_1","name":"lookup","namespace":"crm","arguments":"{}"}]}`, completedBody)
		loop.State = fnloop.Stateless
		loop.Tools = []fnloop.Tool{echo("lookup", "found")}
		loop.BeforeRequest = func(_ context.Context, p *responses.ResponseNewParams) error { p.Tools = nil; return nil }
		ans, err := loop.Run(t.Context(), "hi")
		require.NoError(t, err)
		ans, err = loop.Continue(t.Context(), store(t, ans), "look it up")
		require.NoError(t, err)
		assert.Equal(t, "found", ans.Calls[0].Text)
	})
}

const completedBody = `{"id":"resp_9","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"done"}]}]}`
