package fnloop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	rt "github.com/fnloop/fnloop/responsestest"
)

// flaky is a runner whose programs end as it is told, one after the other.
func flaky(ends ...error) fnloop.Runner {
	return runnerFunc(func(context.Context, fnloop.Program) (fnloop.Result, error) {
		end := ends[0]
		ends = ends[1:]
		zero := 0
		return fnloop.Result{ExitCode: &zero, End: fnloop.EndExit}, end
	})
}

func TestBrokenSandboxIsLoud(t *testing.T) {
	broken, refused := errors.New("no space left"), fnloop.Unavailable(errors.New("no Linux"))
	for _, tt := range []struct {
		name  string
		ends  []error
		err   error // of the run
		logs  int
		calls int // with an output
	}{
		{"it works", []error{nil, nil}, nil, 0, 2},
		{"once", []error{broken, nil}, nil, 1, 2},
		{"now and then", []error{broken, nil, broken, nil, broken}, nil, 3, 5},
		{"twice in a row", []error{nil, broken, broken}, broken, 2, 2},
		{"it refuses", []error{refused}, fnloop.ErrUnavailable, 1, 0},
		{"it refuses later", []error{nil, fmt.Errorf("pool: %w", refused)}, fnloop.ErrUnavailable, 1, 1},
		{"a bad program is none of it", []error{&fnloop.ProgramError{Field: "source", Reason: "x"}, &fnloop.ProgramError{Field: "source", Reason: "x"}}, nil, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, custom := range []bool{false, true} {
				var script []rt.Reply
				for i := range tt.ends {
					if custom {
						script = append(script, rt.CustomCall(fmt.Sprint("call_", i), "run_python", "print(1)"))
					} else {
						script = append(script, rt.Call(fmt.Sprint("call_", i), "run_python", `{"code":"print(1)"}`))
					}
				}
				loop, srv := play(t, append(script, rt.Text("done"))...)
				var log bytes.Buffer
				loop.Logger = slog.New(slog.NewJSONHandler(&log, nil))
				loop.Tools = []fnloop.Tool{fnloop.PythonTool(flaky(tt.ends...), fnloop.Limits{})}
				if custom {
					loop.Tools = []fnloop.Tool{fnloop.CustomPythonTool(flaky(tt.ends...), fnloop.Limits{})}
				}
				ans, err := loop.Run(t.Context(), "hi")
				assert.Len(t, ans.Calls, tt.calls)
				assert.Equal(t, tt.logs, bytes.Count(log.Bytes(), []byte(`"level":"ERROR"`)))
				for _, r := range srv.Requests() {
					assert.NotContains(t, string(r.Body), "no space left", "that is not for the model")
				}
				if tt.err == nil {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, tt.err)
				require.ErrorAs(t, err, new(*fnloop.ToolError))
				assert.Equal(t, fnloop.StopAborted, ans.Stop)
				assert.Contains(t, log.String(), `"error":`)

				// When it works again, the program is run again.
				loop.Tools = []fnloop.Tool{fnloop.PythonTool(flaky(nil), fnloop.Limits{})}
				if custom {
					loop.Tools = []fnloop.Tool{fnloop.CustomPythonTool(flaky(nil), fnloop.Limits{})}
				}
				ans, err = loop.Continue(t.Context(), store(t, ans), "")
				require.NoError(t, err)
				assert.Equal(t, "done", ans.Text)
			}
		})
	}
}

// A sandbox whose program the caller stopped has not failed.
func TestStoppedProgramIsNoBrokenSandbox(t *testing.T) {
	loop, _ := play(t, rt.Call("call_1", "run_python", `{"code":"x"}`))
	var log bytes.Buffer
	loop.Logger = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	loop.Tools = []fnloop.Tool{fnloop.PythonTool(runnerFunc(func(ctx context.Context, _ fnloop.Program) (fnloop.Result, error) {
		cancel()
		return fnloop.Result{}, ctx.Err()
	}), fnloop.Limits{})}
	_, err := loop.Run(ctx, "hi")
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, log.String())
}
