package otelloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/otelloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// recorders are an SDK that keeps what it gets.
type recorders struct {
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
}

func record(o otelloop.Options) (*otelloop.Observer, recorders) {
	r := recorders{tracetest.NewSpanRecorder(), metric.NewManualReader()}
	o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	o.MeterProvider = metric.NewMeterProvider(metric.WithReader(r.reader))
	return otelloop.New(o), r
}

// named gives the ended spans of a name.
func (r recorders) named(name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(r.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

func (r recorders) one(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	spans := r.named(name)
	require.Len(t, spans, 1, "spans named %s", name)
	return spans[0]
}

func (r recorders) measured(t *testing.T) map[string]metricdata.Aggregation {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &data))
	out := make(map[string]metricdata.Aggregation)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			out[m.Name] = m.Data
		}
	}
	return out
}

func attrs(list []attribute.KeyValue) map[string]any {
	out := make(map[string]any)
	for _, kv := range list {
		out[string(kv.Key)] = kv.Value.AsInterface()
	}
	return out
}

func script(t *testing.T, replies ...rt.Reply) *fnloop.Loop {
	t.Helper()
	srv := rt.NewServer(replies...)
	t.Cleanup(func() {
		srv.Close()
		require.NoError(t, srv.Err())
	})
	return &fnloop.Loop{Client: srv.Client(), Model: "gpt-test", Attempts: 1}
}

func tool(name string, h func(context.Context) (string, error)) fnloop.Tool {
	return fnloop.MustTool(name, "Does "+name+".", func(ctx context.Context, _ struct{}) (string, error) { return h(ctx) })
}

const secret = "the-users-secret"

// TestTrace is a conversation with four calls at once, one of which runs another
// Loop.
func TestTrace(t *testing.T) {
	obs, got := record(otelloop.Options{AgentName: "desk", ServerAddress: "api.example", ServerPort: 8443})
	inner := script(t, rt.Text("inner"))
	inner.Observer = obs
	var seen trace.SpanContext
	loop := script(t,
		rt.Join(rt.Call("c1", "look", `{}`), rt.Call("c2", "fail", `{}`), rt.Call("c3", "sub", `{}`), rt.Call("c4", "look", `{}`)),
		rt.Text(secret))
	loop.Observer = obs
	loop.Tools = []fnloop.Tool{
		tool("look", func(ctx context.Context) (string, error) {
			seen = trace.SpanContextFromContext(ctx)
			return secret, nil
		}),
		tool("fail", func(context.Context) (string, error) { return "", errors.New(secret) }),
		tool("sub", func(ctx context.Context) (string, error) {
			a, err := inner.Run(ctx, secret)
			return a.Text, err
		}),
	}
	loop.Parallel = 1 // so that seen is written by one at a time
	var answer *fnloop.Answer
	for e, err := range loop.Events(t.Context(), nil, secret) {
		require.NoError(t, err)
		if done, ok := e.(fnloop.Done); ok {
			answer = done.Answer
		}
	}
	require.Equal(t, secret, answer.Text)

	runs := got.named("invoke_agent desk")
	require.Len(t, runs, 2)
	run := runs[slices.IndexFunc(runs, func(s sdktrace.ReadOnlySpan) bool { return !s.Parent().IsValid() })]
	sub := got.one(t, "execute_tool sub")
	parents := make(map[string][]string)
	names := map[trace.SpanID]string{run.SpanContext().SpanID(): "run"}
	for _, s := range got.spans.Ended() {
		if names[s.SpanContext().SpanID()] == "" {
			names[s.SpanContext().SpanID()] = s.Name()
		}
	}
	for _, s := range got.spans.Ended() {
		assert.Equal(t, run.SpanContext().TraceID(), s.SpanContext().TraceID(), "all is one trace")
		parents[names[s.Parent().SpanID()]] = append(parents[names[s.Parent().SpanID()]], s.Name())
	}
	assert.ElementsMatch(t, []string{"chat gpt-test", "execute_tool look", "execute_tool look", "execute_tool fail", "execute_tool sub", "chat gpt-test"}, parents["run"])
	assert.Equal(t, []string{"invoke_agent desk"}, parents["execute_tool sub"])
	assert.Equal(t, []string{"chat gpt-test"}, parents["invoke_agent desk"], "the inner run has its response")
	assert.Equal(t, got.named("execute_tool look")[1].SpanContext().SpanID(), seen.SpanID(), "a handler stands within its span")

	first := got.named("chat gpt-test")[0]
	set := attrs(first.Attributes())
	assert.Equal(t, trace.SpanKindClient, first.SpanKind())
	for key, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-test",
		"server.address": "api.example", "server.port": int64(8443), "openai.api.type": "responses",
		"gen_ai.request.stream": true, "gen_ai.response.finish_reasons": []string{"tool_call"}, "gen_ai.output.type": "text",
		"fnloop.attempts": int64(1), "gen_ai.response.model": "gpt-test",
	} {
		assert.Equal(t, want, set[key], key)
	}
	assert.Contains(t, set, "gen_ai.response.id")
	assert.Positive(t, set["gen_ai.usage.input_tokens"])
	assert.Positive(t, set["gen_ai.response.time_to_first_chunk"])
	assert.NotContains(t, set, "error.type")

	assert.Equal(t, "c3", attrs(sub.Attributes())["gen_ai.tool.call.id"])
	failed := got.one(t, "execute_tool fail")
	assert.Equal(t, "tool_error", attrs(failed.Attributes())["error.type"])
	assert.Equal(t, codes.Error, failed.Status().Code)

	set = attrs(run.Attributes())
	assert.Equal(t, "answered", set["fnloop.stop"])
	assert.EqualValues(t, 1, set["fnloop.turns"])
	assert.Equal(t, codes.Unset, run.Status().Code)

	for _, s := range got.spans.Ended() {
		assert.NotContains(t, fmt.Sprint(s.Name(), s.Attributes(), s.Status(), s.Events()), secret, "content is off by default")
	}
}

func TestContent(t *testing.T) {
	obs, got := record(otelloop.Options{Content: true, MaxContent: 20})
	loop := script(t, rt.Call("c1", "look", `{}`), rt.Text("Done."))
	loop.Observer, loop.Instructions = obs, "Be brief."
	loop.Tools = []fnloop.Tool{tool("look", func(context.Context) (string, error) { return strings.Repeat("ü", 15), nil })}
	_, err := loop.Run(t.Context(), "Hello \xff"[:6]+"you")
	require.NoError(t, err)
	chats := got.named("chat gpt-test")
	first, second := attrs(chats[0].Attributes()), attrs(chats[1].Attributes())
	assert.JSONEq(t, `[{"role":"user","parts":[{"type":"text","content":"Hello you"}]}]`, first["gen_ai.input.messages"].(string))
	assert.JSONEq(t, `[{"type":"text","content":"Be brief."}]`, first["gen_ai.system_instructions"].(string))
	assert.JSONEq(t, `[{"role":"assistant","finish_reason":"tool_call","parts":[{"type":"tool_call","id":"c1","name":"look","arguments":{}}]}]`,
		first["gen_ai.output.messages"].(string))
	cut := strings.Repeat("ü", 10) + "…"
	assert.JSONEq(t, `[{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"`+cut+`"}]}]`, second["gen_ai.input.messages"].(string))
	assert.Equal(t, cut, attrs(got.one(t, "execute_tool look").Attributes())["gen_ai.tool.call.result"], "a cut falls between runes")
}

func TestErrors(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	ask := tool("ask", func(context.Context) (string, error) { return "", nil })
	ask.NeedsApproval = func(context.Context, fnloop.Call) bool { return true }
	abort := tool("abort", func(context.Context) (string, error) { return "", fnloop.Abort(errors.New(secret)) })
	for _, tt := range []struct {
		name, why string
		ctx       context.Context
		reply     rt.Reply
		run, chat string // error.type, or empty
	}{
		{"a code", "the API's own word is best", t.Context(), rt.Error(400, "context_length_exceeded", secret), "request", "context_length_exceeded"},
		{"a status", "a page of a proxy has no code", t.Context(), rt.HTTP(502, "<html>"), "request", "502"},
		{"a failed response", "the same code inside a 200", t.Context(), rt.Failed("server_error", secret), "failed", "server_error"},
		{"no connection", "nothing came", t.Context(), rt.Drop(), "request", "connection"},
		{"an approval", "to wait for a person is no error", t.Context(), rt.Call("c1", "ask", `{}`), "", ""},
		{"an abort", "the response was good, the run was not", t.Context(), rt.Call("c1", "abort", `{}`), "aborted", ""},
		{"the caller", "who ended it before it began", cancelled, rt.Reply{}, "cancelled", "cancelled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			obs, got := record(otelloop.Options{})
			var loop *fnloop.Loop
			if tt.ctx.Err() != nil {
				loop = script(t)
			} else {
				loop = script(t, tt.reply)
			}
			loop.Observer, loop.Tools = obs, []fnloop.Tool{ask, abort}
			loop.Run(tt.ctx, "Go.")
			for name, want := range map[string]string{"invoke_agent": tt.run, "chat gpt-test": tt.chat} {
				s := got.one(t, name)
				kind, _ := attrs(s.Attributes())["error.type"].(string)
				assert.Equal(t, want, kind, "%s: %s", name, tt.why)
				assert.Equal(t, want != "", s.Status().Code == codes.Error, name)
				assert.NotContains(t, fmt.Sprint(s.Attributes(), s.Status()), secret)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	play := func(o otelloop.Options) map[string]metricdata.Aggregation {
		obs, got := record(o)
		loop := script(t, rt.Join(rt.Call("c1", "look", `{}`), rt.Call("c2", "look", `{}`)), rt.Text("Done."))
		loop.Observer = obs
		loop.Tools = []fnloop.Tool{tool("look", func(context.Context) (string, error) { return "", nil })}
		_, err := loop.Run(t.Context(), "Go.")
		require.NoError(t, err)
		return got.measured(t)
	}
	now := play(otelloop.Options{})
	want := []string{
		"gen_ai.client.inference.duration", "gen_ai.client.inference.operation.input_tokens", "gen_ai.client.inference.operation.output_tokens",
		"gen_ai.client.inference.usage.input_tokens", "gen_ai.client.inference.usage.output_tokens", "gen_ai.client.inference.usage.cache_read.input_tokens",
		"gen_ai.client.inference.usage.cache_write.input_tokens", "gen_ai.client.inference.usage.reasoning.output_tokens",
		"gen_ai.invoke_agent.duration", "gen_ai.invoke_agent.inference_calls", "gen_ai.invoke_agent.tool_calls", "gen_ai.execute_tool.duration",
	}
	var names []string
	for name := range now {
		names = append(names, name)
	}
	assert.ElementsMatch(t, want, names)

	d := now["gen_ai.client.inference.duration"].(metricdata.Histogram[float64]).DataPoints
	require.Len(t, d, 1)
	assert.EqualValues(t, 2, d[0].Count, "two responses")
	assert.Equal(t, []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}, d[0].Bounds)
	calls := now["gen_ai.invoke_agent.tool_calls"].(metricdata.Histogram[int64]).DataPoints[0]
	assert.EqualValues(t, 2, calls.Sum)
	assert.EqualValues(t, 2, now["gen_ai.invoke_agent.inference_calls"].(metricdata.Histogram[int64]).DataPoints[0].Sum)
	used := now["gen_ai.client.inference.usage.input_tokens"].(metricdata.Sum[int64]).DataPoints[0]
	sum := now["gen_ai.client.inference.operation.input_tokens"].(metricdata.Histogram[int64]).DataPoints[0].Sum
	assert.Equal(t, sum, used.Value)
	assert.Positive(t, used.Value)
	for name, data := range now {
		assert.NotContains(t, fmt.Sprint(data), "c1", "%s: no IDs among the labels, of which there is no end", name)
	}

	before := play(otelloop.Options{OldMetrics: true})
	assert.Len(t, before, 2)
	tokens := before["gen_ai.client.token.usage"].(metricdata.Histogram[int64]).DataPoints
	assert.Len(t, tokens, 2, "input and output")
	assert.Contains(t, before, "gen_ai.client.operation.duration")
}

func TestConversationID(t *testing.T) {
	type key struct{}
	obs, got := record(otelloop.Options{ConversationID: func(ctx context.Context) string { return ctx.Value(key{}).(string) }})
	loop := script(t, rt.Text("Hi."))
	loop.Observer = obs
	_, err := loop.Run(context.WithValue(t.Context(), key{}, "chat-7"), "Hello")
	require.NoError(t, err)
	assert.Equal(t, "chat-7", attrs(got.one(t, "invoke_agent").Attributes())["gen_ai.conversation.id"])
}

// BenchmarkNoProvider is what the Observer costs a program that has set up no
// OpenTelemetry: a response with a call, and their run.
func BenchmarkNoProvider(b *testing.B) {
	obs := otelloop.New(otelloop.Options{})
	ctx := b.Context()
	info := fnloop.ResponseInfo{Request: 1, Params: new(responses.ResponseNewParams)}
	b.ReportAllocs()
	for b.Loop() {
		run, _ := obs.ObserveRun(ctx, fnloop.RunInfo{Model: "gpt-test"})
		obs.ObserveResponse(run, info)
		obs.ObserveCall(run, fnloop.CallInfo{Call: fnloop.Call{Name: "look"}})
	}
}
