// Package responsestest is a stand-in for OpenAI's Responses API, to be used in tests.
//
// A [Server] listens on the loopback interface, plays a script of model answers, and refuses what the
// service refuses, with the service's own error bodies: a function call left without its output, an unknown
// previous_response_id, a strict tool whose schema is not strict. It keeps state as the service does and
// answers plain requests, streaming ones and those on a WebSocket from the same script, so that any client
// can be pointed at it, a program in another process included.
//
//	srv := responsestest.NewServer(
//		responsestest.Call("call_1", "add", `{"a":2,"b":3}`),
//		responsestest.Text("2 and 3 make 5."),
//	)
//	defer srv.Close()
//	client := srv.Client() // or set OPENAI_BASE_URL to srv.URL and OPENAI_API_KEY to srv.Key
//	...
//	if err := srv.Err(); err != nil {
//		t.Error(err) // the script was not played to its end, or the requests did not fit it
//	}
//
// # Scripts
//
// A script is a list of [Reply] values. Each request that the server accepts takes the next one; a request
// that it refuses takes none. [Text], [Call], [Commentary], [Refusal], [Reasoning] and [Item] make answers,
// [Join] puts them into one response, and [Incomplete], [Failed] and [Cancelled] end it otherwise than
// completed. [Func] and [Always] compute an answer from the conversation so far, and [PerConversation]
// gives every conversation the same script of its own, however many run side by side.
//
// A script can also hold what is no answer of a model: [HTTP] is any reply of a server or of a proxy before
// it, [RateLimited] and [ServerError] are the usual ones, and [Drop] closes the connection. The field Cut of
// a Reply breaks an answer off, and the field Edit rewrites the events of a streamed one.
//
// # Fidelity
//
// Where the service's documents leave a refusal or a text open, the server has an invented one, and a
// comment in the source says so. Ids are counters (resp_1, fc_2, ...), which keeps transcripts comparable;
// call ids are those of the script. On a WebSocket, response.steer is not served.
package responsestest
