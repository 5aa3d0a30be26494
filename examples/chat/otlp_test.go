package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/otelloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// TestTraceOverOTLP sends the trace of a conversation with four calls at once, one
// of which runs a Loop of its own, through the exporter that -trace uses, and reads
// on the other side what a collector would.
func TestTraceOverOTLP(t *testing.T) {
	var mu sync.Mutex
	var spans []*tracepb.Span
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/traces", r.URL.Path, "where a collector takes them")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Errorf("what came is no export request: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range req.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				assert.Equal(t, "github.com/fnloop/fnloop/otelloop", scope.Scope.Name)
				spans = append(spans, scope.Spans...)
			}
		}
	}))
	defer sink.Close()
	exporter, err := newExporter(t.Context(), sink.URL, nil)
	require.NoError(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	// A text that is not UTF-8 would make the exporter drop the whole batch.
	observer := otelloop.New(otelloop.Options{TracerProvider: provider, AgentName: "desk", Content: true})

	inner := rt.NewServer(rt.Text("inner"))
	defer inner.Close()
	sub := &fnloop.Loop{Client: inner.Client(), Model: "gpt-sub", Observer: observer}
	srv := rt.NewServer(
		rt.Join(rt.Call("c1", "look", `{}`), rt.Call("c2", "look", `{}`), rt.Call("c3", "sub", `{}`), rt.Call("c4", "look", `{}`)),
		rt.Text("Done."))
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-main", Observer: observer, Tools: []fnloop.Tool{
		fnloop.MustTool("look", "Looks.", func(context.Context, struct{}) (string, error) { return "odd \xff text", nil }),
		fnloop.MustTool("sub", "Asks another.", func(ctx context.Context, _ struct{}) (string, error) {
			a, err := sub.Run(ctx, "What?")
			return a.Text, err
		}),
	}}
	_, err = loop.Run(t.Context(), "Go.")
	require.NoError(t, err)
	require.NoError(t, provider.Shutdown(t.Context()), "all is exported by then")

	tree := lines(spans, nil, 0)
	t.Log("\n" + strings.Join(tree, "\n"))
	assert.ElementsMatch(t, []string{
		"invoke_agent desk",
		"  chat gpt-main", "  chat gpt-main",
		"  execute_tool look", "  execute_tool look", "  execute_tool look",
		"  execute_tool sub",
		"    invoke_agent desk",
		"      chat gpt-sub",
	}, tree)
	for _, s := range spans {
		assert.Equal(t, spans[0].TraceId, s.TraceId, "one trace")
		assert.Greater(t, s.EndTimeUnixNano, s.StartTimeUnixNano)
	}
	at := slices.IndexFunc(spans, func(s *tracepb.Span) bool { return s.Name == "execute_tool look" })
	assert.Contains(t, fmt.Sprint(spans[at].Attributes), "odd \uFFFD text")
}

// lines are the spans below a parent, as a tree.
func lines(spans []*tracepb.Span, parent []byte, depth int) []string {
	var out []string
	for _, s := range spans {
		if string(s.ParentSpanId) == string(parent) {
			out = append(out, strings.Repeat("  ", depth)+s.Name)
			out = append(out, lines(spans, s.SpanId, depth+1)...)
		}
	}
	return out
}
