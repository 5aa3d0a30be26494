package fnloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// inProcess serves requests without a socket, so that it works in a bubble of
// testing/synctest.
type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(req *http.Request) (res *http.Response, err error) {
	rec := httptest.NewRecorder()
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler:
			res, err = nil, io.ErrUnexpectedEOF
		default:
			panic(p)
		}
		if e := req.Context().Err(); e != nil {
			res, err = nil, e
		}
	}()
	t.handler.ServeHTTP(rec, req)
	res = rec.Result()
	res.Request = req
	return res, nil
}

func service(h http.Handler) *responses.ResponseService {
	s := responses.NewResponseService(
		option.WithBaseURL("http://model.invalid/v1"),
		option.WithAPIKey("test"),
		option.WithHTTPClient(&http.Client{Transport: inProcess{h}}),
	)
	return &s
}

// play starts a stand-in with a script and a Loop that talks to it in process.
// The test fails when the script was not played to its end.
func play(t *testing.T, script ...responsestest.Reply) (*fnloop.Loop, *responsestest.Server) {
	t.Helper()
	srv := responsestest.NewServer(script...)
	t.Cleanup(func() {
		srv.Close()
		require.NoError(t, srv.Err())
	})
	return &fnloop.Loop{Client: service(srv), Model: "gpt-test", Instructions: "Be brief."}, srv
}

// posts are the bodies of the requests that srv got.
func posts(t *testing.T, srv *responsestest.Server) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, r := range srv.Requests() {
		var body map[string]any
		require.NoError(t, json.Unmarshal(r.Body, &body))
		out = append(out, body)
	}
	return out
}

// outputs are the outputs that a request carries, as call_id and text in turn.
func outputs(t *testing.T, body map[string]any) []string {
	t.Helper()
	var out []string
	for _, it := range body["input"].([]any) {
		it := it.(map[string]any)
		if it["type"] == "function_call_output" {
			require.NotContains(t, it, "id")
			out = append(out, it["call_id"].(string), it["output"].(string))
		}
	}
	return out
}

type addInput struct {
	A int `json:"a"`
	B int `json:"b"`
}

func add(_ context.Context, in addInput) (int, error) { return in.A + in.B, nil }

func adder() fnloop.Tool { return fnloop.MustTool("add", "Adds two integers.", add) }

// raw is a tool without parameters.
func raw(name string, h func(context.Context) (string, error)) fnloop.Tool {
	return fnloop.Tool{Name: name, Handle: func(ctx context.Context, _ fnloop.Call) (fnloop.Output, error) {
		s, err := h(ctx)
		return fnloop.Output{Text: s}, err
	}}
}

func echo(name, text string) fnloop.Tool {
	return raw(name, func(context.Context) (string, error) { return text, nil })
}

// store takes an Answer through JSON, as a back end that restarts does.
func store(t *testing.T, a *fnloop.Answer) *fnloop.Answer {
	t.Helper()
	b, err := json.Marshal(a)
	require.NoError(t, err)
	back := new(fnloop.Answer)
	require.NoError(t, json.Unmarshal(b, back))
	want := *a
	want.Calls = slices.Clone(a.Calls)
	for i := range want.Calls {
		want.Calls[i].Err = nil // for the host alone
	}
	for i, item := range back.Items { // the same JSON, in other white space perhaps
		require.JSONEq(t, string(want.Items[i]), string(item))
	}
	want.Items = back.Items
	require.Equal(t, &want, back, "an Answer round-trips through JSON")
	return back
}

var errBoom = errors.New("boom")

// bubble runs f with a clock of its own, which moves only when all wait; it
// fails when a goroutine that f started is left.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
