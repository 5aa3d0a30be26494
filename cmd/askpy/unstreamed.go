package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
)

// An unstreamed is a client that asks for whole responses: it has not got what
// makes a Loop stream. It serves where nobody watches the text come, so that a
// server need not know how to stream.
type unstreamed struct{ service *responses.ResponseService }

// New implements [fnloop.Responder]. An answer that is no response is a
// *fnloop.ProtocolError, while the service would complain of its content type.
func (u unstreamed) New(ctx context.Context, params responses.ResponseNewParams, opts ...option.RequestOption) (*responses.Response, error) {
	var body []byte
	if _, err := u.service.New(ctx, params, append(opts, option.WithResponseBodyInto(&body))...); err != nil {
		return nil, err
	}
	res := new(responses.Response)
	if !json.Valid(body) || res.UnmarshalJSON(body) != nil {
		return nil, &fnloop.ProtocolError{Reason: fmt.Sprintf("not a response: the body begins with %.100q", body)}
	}
	return res, nil
}
