package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// A request is what is sent, as often as it takes, to get one response.
type request struct {
	params *responses.ResponseNewParams // nil once body has them all
	body   []byte                       // nil if the client writes it
}

// writesBodies reports whether the Loop writes the bodies of its requests, as most of
// the time of openai-go's service would go into that. A request that a hook may have
// edited can hold anything, and is the service's to write.
func (r *run) writesBodies() bool {
	_, own := r.loop.Client.(*responses.ResponseService)
	return own && r.loop.BeforeRequest == nil
}

// writeBody writes the body of a request that goes over HTTP.
func (r *run) writeBody(q *request) (err error) {
	if q.body != nil || !r.writesBodies() {
		return nil
	}
	q.body, err = r.requestBody(q.params)
	if !r.loop.WebSocket { // which does without this body
		q.params = nil
	}
	return err
}

// post sends a request with openai-go's own service. The response's body is yet to be
// read. A body that the Loop has written comes before the client's options, which can
// edit it as they can edit that of the service.
func (r *run) post(ctx context.Context, client *responses.ResponseService, q *request, res **http.Response, opts ...option.RequestOption) error {
	opts = append(opts, option.WithResponseInto(res), option.WithResponseBodyInto(res))
	if q.body == nil {
		_, err := newResponse(ctx, client, q.params, opts)
		return err
	}
	own := *client
	own.Options = slices.Concat([]option.RequestOption{option.WithRequestBody("application/json", q.body)}, client.Options)
	return newWithoutParams(ctx, &own, opts)
}

// newResponse calls New, which takes more than a kilobyte of parameters by value. It
// has a frame of its own, so that they are on no stack for longer than that.
//
//go:noinline
func newResponse(ctx context.Context, client Responder, params *responses.ResponseNewParams, opts []option.RequestOption) (*responses.Response, error) {
	return client.New(ctx, *params, opts...)
}

// newWithoutParams is newResponse for a request whose body is among the options. The
// compiler copies a variable of the package once, and what a pointer leads to twice.
//
//go:noinline
func newWithoutParams(ctx context.Context, client *responses.ResponseService, opts []option.RequestOption) error {
	_, err := client.New(ctx, noParams, opts...)
	return err
}

// noParams are what openai-go has least to do with.
var noParams = param.NullStruct[responses.ResponseNewParams]()

// requestBody is the JSON of a request that newRequest has made, byte for byte as
// openai-go writes it.
func (r *run) requestBody(p *responses.ResponseNewParams) ([]byte, error) {
	var b bodyWriter
	b.Grow(512 + len(r.tools.json))
	b.WriteByte('{')
	if p.Instructions.Valid() {
		b.member("instructions", p.Instructions.Value)
	}
	if p.PreviousResponseID.Valid() {
		b.member("previous_response_id", p.PreviousResponseID.Value)
	}
	if p.Store.Valid() {
		b.member("store", p.Store.Value)
	}
	if p.Conversation.OfString.Valid() {
		b.member("conversation", p.Conversation.OfString.Value)
	}
	if p.Include != nil {
		b.member("include", p.Include)
	}
	b.name("input")
	b.WriteByte('[')
	for i := range p.Input.OfInputItemList {
		if i > 0 {
			b.WriteByte(',')
		}
		b.item(&p.Input.OfInputItemList[i])
	}
	b.WriteByte(']')
	b.member("model", p.Model)
	if !param.IsOmitted(p.Text.Format) {
		b.member("text", p.Text)
	}
	if p.ToolChoice.OfToolChoiceMode.Valid() {
		b.member("tool_choice", p.ToolChoice.OfToolChoiceMode.Value)
	}
	if len(r.tools.json) > 0 {
		b.name("tools")
		b.Write(r.tools.json)
	}
	b.WriteByte('}')
	return b.Bytes(), b.err
}

// A bodyWriter writes JSON.
type bodyWriter struct {
	bytes.Buffer
	encoder *json.Encoder // to the buffer
	output  textOutput    // that is being written
	err     error
}

// name begins a member of the object that the buffer holds.
func (b *bodyWriter) name(name string) {
	if b.Len() > len("{") {
		b.WriteByte(',')
	}
	b.WriteString(`"` + name + `":`)
}

func (b *bodyWriter) member(name string, value any) {
	b.name(name)
	b.value(value)
}

func (b *bodyWriter) value(value any) {
	if b.encoder == nil {
		b.encoder = json.NewEncoder(&b.Buffer)
		b.encoder.SetEscapeHTML(false) // openai-go does not either
	}
	if err := b.encoder.Encode(value); err != nil {
		b.err = err
		return
	}
	b.Truncate(b.Len() - len("\n"))
}

// item writes an item of the input. The two kinds that nearly all are need no
// reflection on what else openai-go's types could hold.
func (b *bodyWriter) item(it *responses.ResponseInputItemUnionParam) {
	if raw, ok := it.Overrides(); ok {
		if raw, ok := raw.(json.RawMessage); ok { // recordRequest or rawOutput has seen that it is valid
			b.Write(raw)
			return
		}
	}
	switch {
	case it.OfFunctionCallOutput != nil && it.OfFunctionCallOutput.Output.OfString.Valid():
		out := it.OfFunctionCallOutput
		b.output = textOutput{Type: "function_call_output", CallID: out.CallID.Value, Output: out.Output.OfString.Value}
		if p := out.Caller.OfProgram; p != nil {
			b.output.Caller = &textCaller{p.CallerID, "program"}
		}
		b.value(&b.output)
	case it.OfMessage != nil && it.OfMessage.Content.OfString.Valid():
		b.value(&messageItem{it.OfMessage.Content.OfString.Value, string(it.OfMessage.Role)})
	default:
		data, err := it.MarshalJSON()
		if err != nil {
			b.err = err
		}
		b.Write(data)
	}
}

// A textOutput is the output of a call of a function, where it is text.
type textOutput struct {
	Output string      `json:"output"`
	CallID string      `json:"call_id"`
	Caller *textCaller `json:"caller,omitempty"`
	Type   string      `json:"type"`
}

// A textCaller is the program that made the call.
type textCaller struct {
	CallerID string `json:"caller_id"`
	Type     string `json:"type"`
}

// A messageItem is a message of text alone, as an item of a request.
type messageItem struct {
	Content string `json:"content"`
	Role    string `json:"role"`
}
