package responsestest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/responsestest"
)

func TestEcho(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"), responsestest.Text("hello"))
	d := create(t, srv, `{"model":"m-1","input":"hi","instructions":"Be \"brief\".","max_output_tokens":99,"parallel_tool_calls":false,
		"temperature":0.5,"top_p":0.9,"truncation":"auto","metadata":{"k":"v"},"reasoning":{"effort":"low"},"store":false,
		"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"lax"}]},
		"text":{"verbosity":"low"},"user":"u",
		"tools":[
			{"type":"function","name":"given","strict":true,"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false}},
			{"type":"function","name":"lax","strict":false,"parameters":{"type":"object"}},
			{"type":"function","name":"mended","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"]}},
			{"type":"function","name":"hopeless","parameters":{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}}}},
			{"type":"mcp","server_label":"l","server_url":"https://example.com","authorization":"secret"}]}`)
	for path, want := range map[string]any{
		"object": "response", "status": "completed", "model": "m-1", "instructions": `Be "brief".`, "max_output_tokens": 99.,
		"parallel_tool_calls": false, "temperature": .5, "top_p": .9, "truncation": "auto", "metadata": map[string]any{"k": "v"},
		"store": false, "previous_response_id": nil, "user": "u", "error": nil, "incomplete_details": nil, "background": false,
	} {
		require.Equal(t, want, d[path], path)
	}
	require.Equal(t, "low", d.at("reasoning", "effort"))
	require.Equal(t, "low", d.at("text", "verbosity"))
	require.Equal(t, "text", d.at("text", "format", "type"))
	require.Equal(t, "allowed_tools", d.at("tool_choice", "type"))
	for i, strict := range []bool{true, false, true, false} {
		require.Equal(t, strict, d.at("tools", i, "strict"), "tool %d", i)
	}
	require.Equal(t, []any{"a", "b"}, d.at("tools", 2, "parameters", "required"), "what is optional becomes required without a word")
	require.Equal(t, false, d.at("tools", 2, "parameters", "additionalProperties"))
	require.NotContains(t, d.at("tools", 3, "parameters"), "additionalProperties", "what cannot be made strict stays as it was")
	require.NotContains(t, d.at("tools", 4), "authorization")

	next := create(t, srv, `{"model":"m-2","input":"hi"}`)
	require.Nil(t, next["instructions"])
	require.Equal(t, []any{}, next["tools"])
	require.Equal(t, "auto", next["tool_choice"])
	require.Equal(t, true, next["store"])
}

func TestUsage(t *testing.T) {
	counted := responsestest.Text("hello")
	counted.Usage = &responsestest.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 5, ReasoningTokens: 2}
	absent := responsestest.Text("hello")
	absent.NoUsage = true
	srv := serve(t, counted, absent, responsestest.Text("hello"))
	d := create(t, srv, `{"model":"m","input":"hi"}`)
	require.JSONEq(t, `{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,
		"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}`, compactJSON(t, d["usage"]))
	require.NotContains(t, create(t, srv, `{"model":"m","input":"hi"}`), "usage")
	require.Positive(t, create(t, srv, `{"model":"m","input":"hi"}`).at("usage", "total_tokens"))
}

func TestStored(t *testing.T) {
	srv := serve(t, responsestest.Call("call_1", "f", `{"a":1}`), responsestest.Text("one"), responsestest.Text("other"))
	first := create(t, srv, `{"model":"m","input":"hi",`+tools("f")+`}`)
	chained := `{"model":"m","previous_response_id":"` + first.id() + `","input":[{"type":"function_call_output","call_id":"call_1","output":"1"}]}`
	second := create(t, srv, chained)
	require.Equal(t, first.id(), second["previous_response_id"])
	fork := create(t, srv, chained)
	require.Equal(t, "other", fork.at("output", 0, "content", 0, "text"), "a response can be continued more than once")

	status, d := do(t, srv, "GET", "/responses/"+second.id(), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, second["output"], d["output"])

	_, list := do(t, srv, "GET", "/responses/"+second.id()+"/input_items", "")
	require.Equal(t, "function_call_output", list.at("data", 0, "type"), "the newest comes first")
	require.Equal(t, "function_call", list.at("data", 1, "type"))
	require.Equal(t, "message", list.at("data", 2, "type"))
	require.Equal(t, list.at("data", 0, "id"), list["first_id"])
	require.Equal(t, list.at("data", 2, "id"), list["last_id"])

	status, d = do(t, srv, "POST", "/responses/"+second.id()+"/cancel", "")
	require.Equal(t, http.StatusBadRequest, status, "only background responses can be cancelled: %v", d)

	status, d = do(t, srv, "DELETE", "/responses/"+second.id(), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, true, d["deleted"])
	status, d = do(t, srv, "GET", "/responses/"+second.id(), "")
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "Response with id '"+second.id()+"' not found.", d.at("error", "message"))

	srv.Forget(first.id())
	_, e := refused(t, srv, chained)
	require.Equal(t, "previous_response_not_found", e["code"])
	require.NoError(t, srv.Err())
}

// Lists come in pages, and a conversation has the items of all its responses.
func TestLists(t *testing.T) {
	srv := serve(t, responsestest.Always(func(*responsestest.Turn) responsestest.Reply { return responsestest.Text("yes") }))
	_, c := do(t, srv, "POST", "/conversations", `{"items":[{"role":"user","content":[{"type":"input_text","text":"earlier"}]}]}`)
	id := c["id"].(string)
	var last document
	for i := range 12 {
		last = create(t, srv, fmt.Sprintf(`{"model":"m","input":"no %d","conversation":%q}`, i, id))
	}
	var texts []string
	after, pages := "", 0
	for more := true; more; pages++ {
		_, list := do(t, srv, "GET", "/conversations/"+id+"/items?order=asc&limit=10"+after, "")
		for i := range list["data"].([]any) {
			texts = append(texts, fmt.Sprint(list.at("data", i, "content", 0, "text")))
		}
		more = list["has_more"].(bool)
		after = "&after=" + list["last_id"].(string)
	}
	require.Equal(t, 3, pages)
	require.Len(t, texts, 25)
	require.Equal(t, []string{"earlier", "no 0", "yes", "no 1"}, texts[:4])
	_, list := do(t, srv, "GET", "/conversations/"+id+"/items", "")
	require.Len(t, list["data"], 20)
	require.Equal(t, last.at("output", 0, "id"), list["first_id"], "the newest comes first")
	_, list = do(t, srv, "GET", "/responses/"+last.id()+"/input_items?limit=1", "")
	require.Equal(t, "no 11", list.at("data", 0, "content", 0, "text"))
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"} {
		status, d := do(t, srv, "GET", "/conversations/"+id+"/items?"+query, "")
		require.Equal(t, http.StatusBadRequest, status, query)
		require.NotEmpty(t, d.at("error", "message"), query)
	}
	status, _ := do(t, srv, "GET", "/conversations/conv_none/items", "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestNotStored(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"))
	first := create(t, srv, `{"model":"m","input":"hi","store":false}`)
	status, _ := do(t, srv, "GET", "/responses/"+first.id(), "")
	require.Equal(t, http.StatusNotFound, status)
	status, e := refused(t, srv, `{"model":"m","input":"go on","previous_response_id":"`+first.id()+`"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "previous_response_not_found", e["code"])
}

func TestFailedIsNoHead(t *testing.T) {
	srv := serve(t, responsestest.Failed("server_error", "boom"), responsestest.Cancelled(), responsestest.Incomplete("content_filter"), responsestest.Text("hi"))
	failed := create(t, srv, `{"model":"m","input":"hi"}`)
	require.Equal(t, "failed", failed["status"])
	require.Equal(t, map[string]any{"code": "server_error", "message": "boom"}, failed["error"])
	_, e := refused(t, srv, `{"model":"m","input":"go on","previous_response_id":"`+failed.id()+`"}`)
	require.Contains(t, e["message"], "failed")
	require.Equal(t, "cancelled", create(t, srv, `{"model":"m","input":"hi"}`)["status"])
	incomplete := create(t, srv, `{"model":"m","input":"hi"}`)
	require.Equal(t, "content_filter", incomplete.at("incomplete_details", "reason"))
	create(t, srv, `{"model":"m","input":"go on","previous_response_id":"`+incomplete.id()+`"}`)
}

func TestConversations(t *testing.T) {
	srv := serve(t, responsestest.Call("call_1", "f", `{"a":1}`), responsestest.Text("done").After(50*time.Millisecond))
	_, conv := do(t, srv, "POST", "/conversations", `{}`)
	require.Equal(t, "conversation", conv["object"])
	first := create(t, srv, `{"model":"m","input":"hi","conversation":"`+conv.id()+`",`+tools("f")+`}`)
	require.Equal(t, conv.id(), first.at("conversation", "id"))
	_, e := refused(t, srv, `{"model":"m","input":"hello?","conversation":"`+conv.id()+`"}`)
	require.Equal(t, "No tool output found for function call call_1.", e["message"])

	output := `{"model":"m","input":[{"type":"function_call_output","call_id":"call_1","output":"1"}],"conversation":{"id":"` + conv.id() + `"}}`
	srv.LockConversation(conv.id(), true)
	status, e := refused(t, srv, output)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "conversation_locked", e["code"])
	require.Equal(t, "conversation", e["param"])
	srv.LockConversation(conv.id(), false)

	codes := make(chan int, 2) // one of two writers is turned away
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			resp, _ := send(t, srv, "POST", "/responses", output)
			codes <- resp.StatusCode
		})
	}
	group.Wait()
	require.Equal(t, http.StatusOK+http.StatusBadRequest, <-codes+<-codes)

	status, _ = do(t, srv, "GET", "/conversations/"+conv.id(), "")
	require.Equal(t, http.StatusOK, status)
	status, _ = do(t, srv, "DELETE", "/conversations/"+conv.id(), "")
	require.Equal(t, http.StatusOK, status)
	status, _ = refused(t, srv, `{"model":"m","input":"hi","conversation":"`+conv.id()+`"}`)
	require.Equal(t, http.StatusNotFound, status)
}

func TestStateless(t *testing.T) {
	script := responsestest.Join(responsestest.Reasoning(""), responsestest.Call("call_1", "f", `{"a":1}`), responsestest.Item(`{"type":"dream"}`))
	begin := func(t *testing.T, more ...responsestest.Reply) (srv *responsestest.Server, reasoning, call, dream string) {
		srv = serve(t, append([]responsestest.Reply{script}, more...)...)
		first := create(t, srv, `{"model":"m","store":false,"input":"hi",`+tools("f")+`}`)
		return srv, compactJSON(t, first.at("output", 0)), compactJSON(t, first.at("output", 1)), compactJSON(t, first.at("output", 2))
	}
	replay := func(items ...string) string {
		items = append([]string{`{"role":"user","content":"hi"}`}, items...)
		items = append(items, `{"type":"function_call_output","call_id":"call_1","output":"1"}`)
		return `{"model":"m","store":false,"input":[` + strings.Join(items, ",") + `],` + tools("f") + `}`
	}
	t.Run("whole", func(t *testing.T) {
		srv, reasoning, call, dream := begin(t, responsestest.Text("done"))
		create(t, srv, replay(reasoning, call, dream))
	})
	t.Run("without reasoning", func(t *testing.T) {
		srv, _, call, _ := begin(t, responsestest.Text("done"))
		create(t, srv, replay(call))
	})
	t.Run("changed byte", func(t *testing.T) {
		srv, reasoning, call, _ := begin(t)
		at := strings.Index(reasoning, `"encrypted_content":"`) + 40
		changed := reasoning[:at] + string(reasoning[at]^1) + reasoning[at+1:]
		status, e := refused(t, srv, replay(changed, call))
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, "invalid_encrypted_content", e["code"])
		require.Contains(t, e["message"], "could not be verified")
	})
	t.Run("other organization", func(t *testing.T) {
		srv, reasoning, call, _ := begin(t)
		_, e := refused(t, srv, replay(reasoning, call), "OpenAI-Organization", "org-2")
		require.Equal(t, "invalid_encrypted_content", e["code"])
		require.Contains(t, e["message"], "organization_id did not match")
	})
	t.Run("without content", func(t *testing.T) {
		srv, reasoning, call, _ := begin(t)
		id := strings.Split(strings.SplitAfter(reasoning, `"id":"`)[1], `"`)[0]
		for _, item := range []string{`{"type":"reasoning","id":"` + id + `","summary":[]}`, `{"type":"item_reference","id":"` + id + `"}`} {
			status, e := refused(t, srv, replay(item, call))
			require.Equal(t, http.StatusNotFound, status)
			require.Contains(t, e["message"], "Item with id '"+id+"' not found. Items are not persisted")
		}
	})
	t.Run("scripted content", func(t *testing.T) {
		srv := serve(t, responsestest.Item(`{"type":"reasoning","summary":[],"encrypted_content":"mine"}`), responsestest.Text("done"))
		first := create(t, srv, `{"model":"m","store":false,"input":"hi"}`)
		create(t, srv, `{"model":"m","store":false,"input":[`+compactJSON(t, first.at("output", 0))+`]}`)
	})
}

func TestPairReasoning(t *testing.T) {
	srv := serve(t, responsestest.Join(responsestest.Reasoning(""), responsestest.Text("hm")), responsestest.Text("done"))
	srv.PairReasoning = true
	first := create(t, srv, `{"model":"m","input":"hi"}`)
	reasoning, message := compactJSON(t, first.at("output", 0)), compactJSON(t, first.at("output", 1))
	_, e := refused(t, srv, `{"model":"m","input":[`+reasoning+`,{"role":"user","content":"x"}]}`)
	require.Contains(t, e["message"], "of type 'reasoning' was provided without its required following item.")
	_, e = refused(t, srv, `{"model":"m","input":[`+message+`,{"role":"user","content":"x"}]}`)
	require.Contains(t, e["message"], "of type 'message' was provided without its required 'reasoning' item: 'rs_")
	create(t, srv, `{"model":"m","input":[`+reasoning+`,`+message+`,{"role":"user","content":"x"}]}`)
}

func TestCompact(t *testing.T) {
	srv := serve(t, responsestest.Text("hello"), responsestest.Text("go on"))
	first := create(t, srv, `{"model":"m","input":"hi"}`)
	status, d := do(t, srv, "POST", "/responses/compact", `{"model":"m","previous_response_id":"`+first.id()+`"}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "response.compaction", d["object"])
	require.Equal(t, "message", d.at("output", 0, "type"))
	require.Equal(t, "compaction", d.at("output", 1, "type"))
	create(t, srv, `{"model":"m","input":`+compactJSON(t, d["output"])+`}`)
}
