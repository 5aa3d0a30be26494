package fnloop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

type traceKey struct{}

// tracing adds the trace of a record's context to it.
type tracing struct{ slog.Handler }

func (h tracing) Handle(ctx context.Context, r slog.Record) error {
	trace, _ := ctx.Value(traceKey{}).(string)
	r.AddAttrs(slog.String("trace", trace))
	return h.Handler.Handle(ctx, r)
}

// The records of a run say what was asked, what came and what it took, in the
// context of the run and in keys that are the same everywhere.
func TestLog(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		var out bytes.Buffer
		loop, srv := play(t,
			rt.ServerError(),
			rt.Join(rt.Call("call_1", "ok", ""), rt.Call("call_2", "fails", ""), rt.Call("call_3", "panics", "")),
			rt.Incomplete("max_output_tokens"),
		)
		loop.Parallel = 1
		loop.Logger = slog.New(tracing{slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})})
		loop.Tools = []fnloop.Tool{
			echo("ok", "yes"),
			raw("fails", func(context.Context) (string, error) { return "", errBoom }),
			raw("panics", func(context.Context) (string, error) { panic("ouch") }),
		}
		bubble(t, func(t *testing.T) {
			ctx := context.WithValue(t.Context(), traceKey{}, "t1")
			var err error
			if streamed {
				_, _, err = watch(t, loop.Events(ctx, nil, "hi"))
			} else {
				_, err = loop.Run(ctx, "hi")
			}
			require.ErrorIs(t, err, fnloop.ErrTruncated)
		})
		var requests []map[string]any
		errorsOf := make(map[string]any)
		for line := range bytes.Lines(out.Bytes()) {
			var record map[string]any
			require.NoError(t, json.Unmarshal(line, &record), string(line))
			assert.Equal(t, "t1", record["trace"], "the context of the run: %s", line)
			assert.NotContains(t, record, "err")
			switch record["msg"] {
			case "request":
				requests = append(requests, record)
			case "handler failed":
				errorsOf[record["tool"].(string)] = record["error"]
			case "handler panicked":
				errorsOf[record["tool"].(string)] = record["panic"]
			}
		}
		assert.Equal(t, map[string]any{"fails": "boom", "panics": "ouch"}, errorsOf)
		require.Len(t, requests, 3)
		failed, first, last := requests[0], requests[1], requests[2]
		assert.Contains(t, failed["error"], "500")
		assert.Equal(t, true, failed["retry"])
		assert.NotContains(t, failed, "response_id")
		assert.Equal(t, []any{1.0, 1.0}, []any{failed["request"], failed["attempt"]})
		assert.Equal(t, []any{1.0, 2.0}, []any{first["request"], first["attempt"]})
		assert.Equal(t, []any{2.0, 1.0}, []any{last["request"], last["attempt"]})
		assert.NotContains(t, first, "error")
		assert.Equal(t, "completed", first["status"])
		assert.Equal(t, srv.Requests()[1].ResponseID, first["response_id"])
		assert.Equal(t, first["response_id"], last["previous_response_id"])
		assert.Equal(t, "incomplete", last["status"])
		assert.Contains(t, last["error"], "max_output_tokens")
		for _, r := range requests {
			assert.NotEmpty(t, r["request_id"])
		}
		assert.Equal(t, "gpt-test", first["model"])
		assert.Positive(t, first["input_tokens"])
		assert.Positive(t, first["output_tokens"])
	}
}
