package interpreter_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// A model asks for one cell and then answers, without a socket.
type model struct {
	n      int
	source string
}

func (m model) RoundTrip(req *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	call := fmt.Sprintf("call_%d", m.n)
	item := fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":%q,"name":"python","arguments":%q,"status":"completed"}`, m.n, call, code(m.source))
	if bytes.Contains(sent, []byte(`"call_id":"`+call+`"`)) {
		item = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"ok","annotations":[]}]}`
	}
	body := `{"id":"resp_1","object":"response","status":"completed","model":"gpt-test","output":[` + item + `]}`
	return &http.Response{
		Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}, nil
}

func scripted(s *interpreter.Sessions, n int, source string) *fnloop.Loop {
	service := responses.NewResponseService(option.WithBaseURL("http://model.invalid/v1"), option.WithAPIKey("test"),
		option.WithHTTPClient(&http.Client{Transport: model{n, source}}))
	return &fnloop.Loop{Client: &service, Model: "gpt-test", Tools: []fnloop.Tool{s.Tool()}}
}
