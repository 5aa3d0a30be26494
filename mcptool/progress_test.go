package mcptool_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/responsestest"
)

// What a server says of its progress is live output of the call, and what it says
// later is nobody's.
func TestProgress(t *testing.T) {
	t.Parallel()
	tools, err := one("progress 3").connect(t).Tools(t.Context())
	require.NoError(t, err)
	srv := responsestest.NewServer(responsestest.Call("call_1", "rude__act", `{}`), responsestest.Call("call_2", "rude__act", `{}`), responsestest.Text("ok"))
	defer srv.Close()
	loop := &fnloop.Loop{Client: srv.Client(), Model: "gpt-6-astra", Tools: tools}
	got := make(map[string]*strings.Builder)
	for e, err := range loop.Events(t.Context(), nil, "go") {
		require.NoError(t, err)
		if out, ok := e.(fnloop.CallOutput); ok {
			if got[out.ID] == nil {
				got[out.ID] = new(strings.Builder)
			}
			got[out.ID].WriteString(out.Text)
		}
	}
	require.NoError(t, srv.Err())
	for _, id := range []string{"call_1", "call_2"} {
		require.Contains(t, got, id)
		assert.True(t, strings.HasPrefix("1/3 step 1\n2/3 step 2\n3/3 step 3\n", got[id].String()), "%q", got[id])
	}
}
