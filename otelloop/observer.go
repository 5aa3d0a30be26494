package otelloop

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fnloop/fnloop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options are the settings of an [Observer]. Their zero value is a good one.
type Options struct {
	// TracerProvider and MeterProvider make the spans and the metrics. Nil is
	// the global one at the time of New.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// AgentName names the runs, such as "support". Empty is left out.
	AgentName string
	// Provider is who serves the model. Empty is "openai"; of Azure it is
	// "azure.ai.openai".
	Provider string
	// ServerAddress and ServerPort are where the requests go, without a scheme.
	// Empty and zero are left out.
	ServerAddress string
	ServerPort    int
	// ConversationID, if not nil, gives the ID of the conversation that a run is
	// part of, for instance from what a middleware put into the context. Without
	// it, it is that of the API's conversation object, if there is one. An ID
	// that is made up for the trace is worth nothing: return "" instead.
	ConversationID func(context.Context) string
	// Content records what the model reads and writes: messages, instructions,
	// arguments and outputs. That is the users' data, so it is off by default.
	Content bool
	// MaxContent bounds each recorded text, in bytes. Zero is 8 KiB.
	MaxContent int
	// OldMetrics makes the two histograms of version 1.41.0 of the conventions,
	// which older dashboards know, in place of those of today. Both at once
	// would count everything twice.
	OldMetrics bool
}

// An Observer makes spans and metrics of the runs of a Loop. It is safe for
// concurrent use, by any number of Loops.
type Observer struct {
	options Options
	tracer  trace.Tracer
	metrics metrics

	runStart, responseStart, callStart []attribute.KeyValue // for the sampler
}

var _ fnloop.Observer = (*Observer)(nil)

// New makes an Observer. What OpenTelemetry refuses goes to its error handler.
func New(o Options) *Observer {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Provider == "" {
		o.Provider = "openai"
	}
	if o.MaxContent <= 0 {
		o.MaxContent = 8 << 10
	}
	obs := &Observer{
		options: o,
		tracer:  o.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		metrics: newMetrics(o.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL)), o.OldMetrics),
	}
	obs.runStart = []attribute.KeyValue{attribute.String(keyOperation, opInvokeAgent)}
	obs.callStart = []attribute.KeyValue{attribute.String(keyOperation, opExecuteTool)}
	if o.AgentName != "" {
		obs.runStart = append(obs.runStart, attribute.String(keyAgentName, o.AgentName))
		obs.callStart = append(obs.callStart, attribute.String(keyAgentName, o.AgentName))
	}
	obs.responseStart = []attribute.KeyValue{
		attribute.String(keyOperation, opChat),
		attribute.String(keyProvider, o.Provider),
		attribute.String(keyAPIType, "responses"),
	}
	if o.ServerAddress != "" {
		obs.responseStart = append(obs.responseStart, attribute.String(keyServer, o.ServerAddress))
	}
	if o.ServerPort != 0 {
		obs.responseStart = append(obs.responseStart, attribute.Int(keyPort, o.ServerPort))
	}
	return obs
}

// ObserveRun begins a span invoke_agent.
func (o *Observer) ObserveRun(ctx context.Context, info fnloop.RunInfo) (context.Context, func(*fnloop.Answer, error)) {
	name := opInvokeAgent
	if o.options.AgentName != "" {
		name += " " + o.options.AgentName
	}
	ctx, span := o.tracer.Start(ctx, name, trace.WithAttributes(o.runStart...))
	recording := span.IsRecording()
	if !recording && !o.metrics.enabled(ctx) {
		return ctx, nil
	}
	if recording {
		set := make([]attribute.KeyValue, 0, 4)
		if info.Model != "" {
			set = append(set, attribute.String(keyRequestModel, info.Model))
		}
		id := info.Conversation
		if o.options.ConversationID != nil {
			id = o.options.ConversationID(ctx)
		}
		if id != "" {
			set = append(set, attribute.String(keyConversation, id))
		}
		if o.options.Content && info.Prompt != "" {
			set = append(set, attribute.String(keyInputMessages, o.message("user", info.Prompt, "")))
		}
		span.SetAttributes(set...)
	}
	start := time.Now()
	return ctx, func(a *fnloop.Answer, err error) {
		defer span.End()
		kind := runError(a, err)
		o.metrics.run(ctx, o.runStart, info.Model, time.Since(start), a, kind)
		if !recording {
			return
		}
		set := []attribute.KeyValue{
			attribute.String(keyStop, string(a.Stop)),
			attribute.Int(keyTurns, a.Turns),
			attribute.Int64(keyInputTokens, a.Usage.InputTokens),
			attribute.Int64(keyOutputTokens, a.Usage.OutputTokens),
			attribute.StringSlice(keyFinishReasons, []string{runFinish(a)}),
		}
		if o.options.Content && a.Text != "" {
			set = append(set, attribute.String(keyOutputMessages, o.message("assistant", a.Text, runFinish(a))))
		}
		span.SetAttributes(set...)
		fail(span, kind)
	}
}

// ObserveResponse begins a span chat.
func (o *Observer) ObserveResponse(ctx context.Context, info fnloop.ResponseInfo) (context.Context, func(fnloop.ResponseEnd)) {
	model := info.Params.Model
	ctx, span := o.tracer.Start(ctx, opChat+" "+model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(o.responseStart...),
		trace.WithAttributes(attribute.String(keyRequestModel, model)))
	recording := span.IsRecording()
	if !recording && !o.metrics.enabled(ctx) {
		return ctx, nil
	}
	if recording {
		span.SetAttributes(o.request(info)...)
	}
	start := time.Now()
	return ctx, func(end fnloop.ResponseEnd) {
		defer span.End()
		kind := responseError(end)
		o.metrics.response(ctx, o.responseStart, model, time.Since(start), end, kind)
		if recording {
			span.SetAttributes(o.response(end)...)
			fail(span, kind)
		}
	}
}

func (o *Observer) request(info fnloop.ResponseInfo) []attribute.KeyValue {
	p := info.Params
	set := make([]attribute.KeyValue, 0, 12)
	if p.PreviousResponseID.Valid() {
		set = append(set, attribute.String(keyPreviousResponse, p.PreviousResponseID.Value))
	}
	if id := p.Conversation.OfString; id.Valid() {
		set = append(set, attribute.String(keyConversation, id.Value))
	}
	if info.Stream {
		set = append(set, attribute.Bool(keyStream, true))
	}
	if p.MaxOutputTokens.Valid() {
		set = append(set, attribute.Int64(keyMaxTokens, p.MaxOutputTokens.Value))
	}
	if p.Temperature.Valid() {
		set = append(set, attribute.Float64(keyTemperature, p.Temperature.Value))
	}
	if p.TopP.Valid() {
		set = append(set, attribute.Float64(keyTopP, p.TopP.Value))
	}
	if p.Reasoning.Effort != "" {
		set = append(set, attribute.String(keyReasoningLevel, string(p.Reasoning.Effort)))
	}
	if p.ServiceTier != "" {
		set = append(set, attribute.String(keyRequestTier, string(p.ServiceTier)))
	}
	switch format := p.Text.Format; {
	case format.OfJSONSchema != nil, format.OfJSONObject != nil:
		set = append(set, attribute.String(keyOutputType, "json"))
	default:
		set = append(set, attribute.String(keyOutputType, "text"))
	}
	if o.options.Content {
		set = append(set, attribute.String(keyInputMessages, o.input(p)))
		if p.Instructions.Valid() && p.Instructions.Value != "" {
			set = append(set, attribute.String(keyInstructions, o.instructions(p.Instructions.Value)))
		}
	}
	return set
}

func (o *Observer) response(end fnloop.ResponseEnd) []attribute.KeyValue {
	set := append(make([]attribute.KeyValue, 0, 14), attribute.Int(keyAttempts, end.Attempts))
	if end.ID == "" {
		return set
	}
	set = append(set,
		attribute.String(keyResponseID, end.ID),
		attribute.StringSlice(keyFinishReasons, []string{finish(end)}),
		attribute.Int64(keyInputTokens, end.Usage.InputTokens),
		attribute.Int64(keyOutputTokens, end.Usage.OutputTokens),
		attribute.Int64(keyCacheRead, end.Usage.CachedTokens),
		attribute.Int64(keyCacheWrite, end.Usage.CacheWriteTokens),
		attribute.Int64(keyReasoningTokens, end.Usage.ReasoningTokens),
	)
	if end.Model != "" {
		set = append(set, attribute.String(keyResponseModel, end.Model))
	}
	if end.ServiceTier != "" {
		set = append(set, attribute.String(keyResponseTier, end.ServiceTier))
	}
	if end.FirstEvent > 0 {
		set = append(set, attribute.Float64(keyFirstChunk, end.FirstEvent.Seconds()))
	}
	if o.options.Content {
		set = append(set, attribute.String(keyOutputMessages, o.output(end)))
	}
	return set
}

// ObserveCall begins a span execute_tool.
func (o *Observer) ObserveCall(ctx context.Context, info fnloop.CallInfo) (context.Context, func(fnloop.CallEnd)) {
	ctx, span := o.tracer.Start(ctx, opExecuteTool+" "+info.Name, trace.WithAttributes(o.callStart...),
		trace.WithAttributes(attribute.String(keyToolName, info.Name)))
	recording := span.IsRecording()
	if !recording && !o.metrics.enabled(ctx) {
		return ctx, nil
	}
	if recording {
		set := append(make([]attribute.KeyValue, 0, 6),
			attribute.String(keyToolCallID, info.ID),
			attribute.String(keyToolType, "function"),
			attribute.Int(keyTurn, info.Turn),
			attribute.Float64(keyQueued, info.Queued.Seconds()),
		)
		if info.Description != "" {
			set = append(set, attribute.String(keyToolDescription, cut(info.Description, o.options.MaxContent)))
		}
		if o.options.Content {
			set = append(set, attribute.String(keyArguments, cut(string(info.Arguments), o.options.MaxContent)))
		}
		span.SetAttributes(set...)
	}
	start := time.Now()
	return ctx, func(end fnloop.CallEnd) {
		defer span.End()
		kind := callError(end)
		o.metrics.call(ctx, o.callStart, info.Name, time.Since(start), kind)
		if !recording {
			return
		}
		if end.Result != nil {
			span.SetAttributes(attribute.Bool(keyIsError, end.Result.IsError))
			if o.options.Content {
				span.SetAttributes(attribute.String(keyResult, cut(end.Result.Text, o.options.MaxContent)))
			}
		}
		fail(span, kind)
	}
}

// fail marks a span as failed. What an error says is content, so only its kind
// is recorded.
func fail(span trace.Span, kind string) {
	if kind != "" {
		span.SetAttributes(attribute.String(keyErrorType, kind))
		span.SetStatus(codes.Error, kind)
	}
}

// runError is the error.type of a run, empty for one that went well. To wait for
// an approval is no error.
func runError(a *fnloop.Answer, err error) string {
	if err == nil || a.Stop == fnloop.StopApproval {
		return ""
	}
	return string(a.Stop)
}

// runFinish is the finish reason of a run, in the words of the conventions.
func runFinish(a *fnloop.Answer) string {
	switch a.Stop {
	case fnloop.StopAnswered, fnloop.StopEmpty:
		return "stop"
	case fnloop.StopTruncated:
		return "length"
	case fnloop.StopFiltered, fnloop.StopRefused:
		return "content_filter"
	case fnloop.StopApproval, fnloop.StopMaxTurns:
		return "tool_call"
	}
	return "error"
}

// finish is the finish reason of a response, in the words of the conventions.
func finish(end fnloop.ResponseEnd) string {
	switch {
	case end.Status == "completed" && len(end.Calls) > 0:
		return "tool_call"
	case end.Status == "completed":
		return "stop"
	case end.Reason == "max_output_tokens":
		return "length"
	case end.Reason == "content_filter":
		return "content_filter"
	}
	return "error"
}

// responseError is the error.type of a response: the API's code or status where
// there is one, and a word of few otherwise.
func responseError(end fnloop.ResponseEnd) string {
	err := end.Err
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*fnloop.RequestError](err); ok {
		switch {
		case e.Code != "":
			return e.Code
		case e.StatusCode != 0:
			return strconv.Itoa(e.StatusCode)
		}
		return "connection"
	}
	if e, ok := errors.AsType[*fnloop.ResponseError](err); ok && e.Code != "" {
		return e.Code
	}
	if _, ok := errors.AsType[*fnloop.StreamError](err); ok {
		return "stream"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "_OTHER"
}

// callError is the error.type of a call.
func callError(end fnloop.CallEnd) string {
	switch {
	case end.Result == nil && errors.Is(end.Err, context.DeadlineExceeded):
		return "timeout"
	case end.Result == nil && errors.Is(end.Err, context.Canceled):
		return "cancelled"
	case end.Result == nil:
		return "aborted"
	case !end.Result.IsError:
		return ""
	}
	if errors.Is(end.Result.Err, fnloop.ErrUnknownTool) {
		return "unknown_tool"
	}
	if _, ok := errors.AsType[*fnloop.ArgumentsError](end.Result.Err); ok {
		return "arguments"
	}
	if _, ok := errors.AsType[*fnloop.PanicError](end.Result.Err); ok {
		return "panic"
	}
	return "tool_error"
}
