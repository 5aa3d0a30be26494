// Package otelloop traces and measures the runs of a [fnloop.Loop] with
// OpenTelemetry:
//
//	loop.Observer = otelloop.New(otelloop.Options{AgentName: "support"})
//
// A run is a span invoke_agent. Its children are a span chat for each response,
// with all attempts to get it, and a span execute_tool for each call. The
// context of a span reaches the request, the handler and the runner, so that
// what they trace stands below it, a run of another Loop too.
//
// Names and attributes are those of the OpenTelemetry semantic conventions for
// generative AI, version 0.1.0 of the repository semantic-conventions-genai,
// which are still in development. What the model reads and writes is not
// recorded unless [Options.Content] is set.
//
// The package imports the API of OpenTelemetry alone: a program chooses the SDK
// and the exporter, and without them the Observer does next to nothing.
package otelloop
