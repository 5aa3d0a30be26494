package otelloop

// The names are those of github.com/open-telemetry/semantic-conventions-genai
// v0.1.0, which has no Go package. Version 1.41.0 of the general conventions was
// the last with names for generative AI; see [Options.OldMetrics].
const (
	scope     = "github.com/fnloop/fnloop/otelloop"
	schemaURL = "https://opentelemetry.io/schemas/1.45.0"

	opChat        = "chat"
	opInvokeAgent = "invoke_agent"
	opExecuteTool = "execute_tool"

	keyOperation        = "gen_ai.operation.name"
	keyProvider         = "gen_ai.provider.name"
	keyAgentName        = "gen_ai.agent.name"
	keyConversation     = "gen_ai.conversation.id"
	keyRequestModel     = "gen_ai.request.model"
	keyPreviousResponse = "gen_ai.request.previous_response.id"
	keyStream           = "gen_ai.request.stream"
	keyMaxTokens        = "gen_ai.request.max_tokens"
	keyTemperature      = "gen_ai.request.temperature"
	keyTopP             = "gen_ai.request.top_p"
	keyReasoningLevel   = "gen_ai.request.reasoning.level"
	keyOutputType       = "gen_ai.output.type"
	keyResponseID       = "gen_ai.response.id"
	keyResponseModel    = "gen_ai.response.model"
	keyFinishReasons    = "gen_ai.response.finish_reasons"
	keyFirstChunk       = "gen_ai.response.time_to_first_chunk" // seconds
	keyInputTokens      = "gen_ai.usage.input_tokens"
	keyOutputTokens     = "gen_ai.usage.output_tokens"
	keyCacheRead        = "gen_ai.usage.cache_read.input_tokens"
	keyCacheWrite       = "gen_ai.usage.cache_write.input_tokens"
	keyReasoningTokens  = "gen_ai.usage.reasoning.output_tokens"
	keyToolName         = "gen_ai.tool.name"
	keyToolCallID       = "gen_ai.tool.call.id"
	keyToolDescription  = "gen_ai.tool.description"
	keyToolType         = "gen_ai.tool.type"
	keyServer           = "server.address"
	keyPort             = "server.port"
	keyErrorType        = "error.type"
	keyAPIType          = "openai.api.type"
	keyRequestTier      = "openai.request.service_tier"
	keyResponseTier     = "openai.response.service_tier"
	keyModality         = "gen_ai.token.modality"
	keyTokenType        = "gen_ai.token.type" // of OldMetrics

	// Content, recorded only on demand.
	keyInputMessages  = "gen_ai.input.messages"
	keyOutputMessages = "gen_ai.output.messages"
	keyInstructions   = "gen_ai.system_instructions"
	keyArguments      = "gen_ai.tool.call.arguments"
	keyResult         = "gen_ai.tool.call.result"

	// Names of our own, for which the conventions have none.
	keyStop     = "fnloop.stop"
	keyTurns    = "fnloop.turns"
	keyTurn     = "fnloop.turn"
	keyAttempts = "fnloop.attempts"
	keyQueued   = "fnloop.call.queued"   // seconds
	keyIsError  = "fnloop.call.is_error" // the model read that the call failed
)

// Bounds of the histograms' buckets, as the conventions advise.
var (
	secondBounds = doubled(0.01, 14)
	runBounds    = doubled(0.1, 13)
	countBounds  = doubled(1, 8)
	tokenBounds  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)

func doubled(first float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = first
		first *= 2
	}
	return out
}
