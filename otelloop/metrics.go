package otelloop

import (
	"context"
	"time"

	"github.com/fnloop/fnloop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics has the instruments; those that are not wanted are nil.
type metrics struct {
	duration   metric.Float64Histogram // of responses
	firstChunk metric.Float64Histogram

	inputTokens, outputTokens metric.Int64Histogram // of one response
	used                      []usageCounter

	runDuration, callDuration metric.Float64Histogram
	inferenceCalls, toolCalls metric.Int64Histogram // of one run
	oldTokens                 metric.Int64Histogram // of OldMetrics
}

type usageCounter struct {
	metric.Int64Counter
	of func(fnloop.Usage) int64
}

func newMetrics(m metric.Meter, old bool) metrics {
	var out metrics
	if old {
		out.duration = seconds(m, "gen_ai.client.operation.duration", "Duration of a response, with its retries.", secondBounds)
		out.firstChunk = seconds(m, "gen_ai.client.operation.time_to_first_chunk", "Time to the first event of a stream.", secondBounds)
		out.oldTokens = counts(m, "gen_ai.client.token.usage", "{token}", "Tokens of a response.", tokenBounds)
		return out
	}
	out.duration = seconds(m, "gen_ai.client.inference.duration", "Duration of a response, with its retries.", secondBounds)
	out.firstChunk = seconds(m, "gen_ai.client.inference.time_to_first_chunk", "Time to the first event of a stream.", secondBounds)
	out.inputTokens = counts(m, "gen_ai.client.inference.operation.input_tokens", "{token}", "Input tokens of a response.", tokenBounds)
	out.outputTokens = counts(m, "gen_ai.client.inference.operation.output_tokens", "{token}", "Output tokens of a response.", tokenBounds)
	out.runDuration = seconds(m, "gen_ai.invoke_agent.duration", "Duration of a run.", runBounds)
	out.inferenceCalls = counts(m, "gen_ai.invoke_agent.inference_calls", "{inference_call}", "Responses of a run.", countBounds)
	out.toolCalls = counts(m, "gen_ai.invoke_agent.tool_calls", "{tool_call}", "Calls of a run.", countBounds)
	out.callDuration = seconds(m, "gen_ai.execute_tool.duration", "Duration of a call.", secondBounds)
	for _, c := range []struct {
		name string
		of   func(fnloop.Usage) int64
	}{
		{"input_tokens", func(u fnloop.Usage) int64 { return u.InputTokens }},
		{"output_tokens", func(u fnloop.Usage) int64 { return u.OutputTokens }},
		{"cache_read.input_tokens", func(u fnloop.Usage) int64 { return u.CachedTokens }},
		{"cache_write.input_tokens", func(u fnloop.Usage) int64 { return u.CacheWriteTokens }},
		{"reasoning.output_tokens", func(u fnloop.Usage) int64 { return u.ReasoningTokens }},
	} {
		counter, err := m.Int64Counter("gen_ai.client.inference.usage."+c.name, metric.WithUnit("{token}"))
		if err != nil {
			otel.Handle(err)
			continue
		}
		out.used = append(out.used, usageCounter{counter, c.of})
	}
	return out
}

func seconds(m metric.Meter, name, description string, bounds []float64) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		otel.Handle(err)
	}
	return h
}

func counts(m metric.Meter, name, unit, description string, bounds []float64) metric.Int64Histogram {
	h, err := m.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		otel.Handle(err)
	}
	return h
}

// enabled reports whether anybody collects what is measured. All instruments
// are of one meter, so that one is asked for all.
func (m *metrics) enabled(ctx context.Context) bool { return m.duration.Enabled(ctx) }

func (m *metrics) run(ctx context.Context, start []attribute.KeyValue, model string, d time.Duration, a *fnloop.Answer, kind string) {
	if m.runDuration == nil || !m.runDuration.Enabled(ctx) {
		return
	}
	set := labels(start, kind, attribute.String(keyRequestModel, model))
	m.runDuration.Record(ctx, d.Seconds(), set)
	m.inferenceCalls.Record(ctx, int64(a.Responses), set)
	m.toolCalls.Record(ctx, int64(len(a.Calls)), set)
}

func (m *metrics) response(ctx context.Context, start []attribute.KeyValue, model string, d time.Duration, end fnloop.ResponseEnd, kind string) {
	if !m.duration.Enabled(ctx) {
		return
	}
	more := []attribute.KeyValue{attribute.String(keyRequestModel, model)}
	if end.Model != "" {
		more = append(more, attribute.String(keyResponseModel, end.Model))
	}
	set := labels(start, kind, more...)
	m.duration.Record(ctx, d.Seconds(), set)
	if end.FirstEvent > 0 {
		m.firstChunk.Record(ctx, end.FirstEvent.Seconds(), set)
	}
	if m.oldTokens != nil {
		if end.ID != "" {
			m.oldTokens.Record(ctx, end.Usage.InputTokens, labels(start, kind, append(more, attribute.String(keyTokenType, "input"))...))
			m.oldTokens.Record(ctx, end.Usage.OutputTokens, labels(start, kind, append(more, attribute.String(keyTokenType, "output"))...))
		}
		return
	}
	if end.ID != "" {
		m.inputTokens.Record(ctx, end.Usage.InputTokens, set)
		m.outputTokens.Record(ctx, end.Usage.OutputTokens, set)
	}
	used := labels(start, kind, append(more, attribute.String(keyModality, "text"))...)
	for _, c := range m.used {
		c.Add(ctx, c.of(end.Usage), used) // zero too, so that the series exists
	}
}

func (m *metrics) call(ctx context.Context, start []attribute.KeyValue, tool string, d time.Duration, kind string) {
	if m.callDuration == nil || !m.callDuration.Enabled(ctx) {
		return
	}
	if kind == "unknown_tool" {
		tool = "_OTHER" // a name that the model made up: there is no end of them
	}
	m.callDuration.Record(ctx, d.Seconds(), labels(start, kind, attribute.String(keyToolName, tool), attribute.String(keyToolType, "function")))
}

func labels(start []attribute.KeyValue, kind string, more ...attribute.KeyValue) metric.MeasurementOption {
	set := make([]attribute.KeyValue, 0, len(start)+len(more)+1)
	set = append(append(set, start...), more...)
	if kind != "" {
		set = append(set, attribute.String(keyErrorType, kind))
	}
	return metric.WithAttributeSet(attribute.NewSet(set...))
}
