package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// Where there is no matplotlib the script draws by hand, in the sandbox that every
// machine has.
func TestScript_withoutMatplotlib(t *testing.T) {
	needs(t, "bwrap")
	runner := &bubblewrap.Runner{}
	defer runner.Close()
	session, err := interpreter.Open(t.Context(), runner, interpreter.Config{})
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.Put(t.Context(), "a.csv", strings.NewReader("city,people\nOslo,7\nBergen,2\n")))
	e, err := session.Run(t.Context(), interpreter.Cell{Source: source("load.py")})
	require.NoError(t, err)
	require.Nil(t, e.Error)
	e, err = session.Run(t.Context(), interpreter.Cell{Source: source("drawn.py")})
	require.NoError(t, err)
	require.Nil(t, e.Error)
	require.Len(t, e.Displays, 1)
	assert.Contains(t, string(e.Displays[0].Data["image/svg+xml"]), ">Bergen</text>")
}

// What the model does next, by what it reads.
func TestScript(t *testing.T) {
	for _, tt := range []struct{ name, prompt, output, want string }{
		{"no matplotlib", "draw a chart", `{"status":"error","error":"ModuleNotFoundError: No module named 'matplotlib'"}`, "_repr_svg_"},
		{"variables that are gone", "the total", `{"status":"error","error":"NameError: name 'rows' is not defined"}`, "csv.DictReader"},
		{"another error", "the total", `{"status":"error","error":"ValueError: no number"}`, "The program failed"},
		{"no sandbox", "primes", "the sandbox failed, so the cell was not run", "The program failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output, err := json.Marshal(tt.output)
			require.NoError(t, err)
			got := react(&rt.Turn{Input: []json.RawMessage{
				json.RawMessage(fmt.Sprintf(`{"role":"user","content":%q}`, tt.prompt)),
				json.RawMessage(fmt.Sprintf(`{"type":"function_call_output","call_id":"call_1","output":%s}`, output)),
			}})
			require.NotEmpty(t, got.Output)
			var all strings.Builder
			for _, item := range got.Output {
				all.Write(item)
			}
			assert.Contains(t, all.String(), tt.want)
		})
	}
}
