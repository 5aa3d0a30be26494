package interpreter_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
)

// A conversation goes from one machine to another, and back.
func TestSessionsHost(t *testing.T) {
	upload := func(ctx context.Context, s *interpreter.Session) error {
		return s.Put(ctx, "data.csv", strings.NewReader("1,2"))
	}
	one := managed(t, &interpreter.Sessions{Runner: definer(), Host: "one", OnOpen: upload})
	two := managed(t, &interpreter.Sessions{Runner: definer(), Host: "two"})
	onOne := asks(t, one, python("c1", "a"), rt.Text("ok"), python("c2", "b"), python("c3", "c"), rt.Text("ok"),
		python("c4", "d"), rt.Text("ok"), python("c5", "e"), rt.Text("ok"))
	elsewhere := *onOne
	onTwo := &elsewhere
	onTwo.Tools = []fnloop.Tool{two.Tool()}
	host := func(a *fnloop.Answer) string {
		name, err := two.HostOf(a)
		require.NoError(t, err)
		return name
	}
	assert.Empty(t, host(new(fnloop.Answer)), "there is no session yet")

	first, err := onOne.Run(t.Context(), "Go.")
	require.NoError(t, err)
	assert.Equal(t, "one", host(first))

	second, err := onTwo.Continue(t.Context(), restarted(t, first), "On.")
	require.NoError(t, err)
	lost := result(t, second.Calls[0])
	assert.Equal(t, "Before this cell the conversation has moved to another machine; a new one is ready."+
		" Variables, functions and imports of earlier cells are gone (a), and so are files.", lost.Notice)
	assert.Equal(t, "b", lost.Stdout)
	assert.Empty(t, result(t, second.Calls[1]).Notice, "it is told once")
	assert.Equal(t, "two", host(second))
	third, err := onTwo.Continue(t.Context(), restarted(t, second), "On.")
	require.NoError(t, err)
	assert.Empty(t, result(t, third.Calls[0]).Notice)
	assert.Equal(t, "b c d", result(t, third.Calls[0]).Stdout)

	fourth, err := onOne.Continue(t.Context(), restarted(t, third), "Back.")
	require.NoError(t, err)
	back := result(t, fourth.Calls[0])
	assert.Contains(t, back.Notice, "(b, c, d), files are kept", "OnOpen has put them back")
	assert.Equal(t, "e", back.Stdout, "what it had when it was here before would be a surprise")
}

// Where the runner keeps a session any process is as good as another.
func TestSessionsHost_kept(t *testing.T) {
	r := keeper()
	one := managed(t, &interpreter.Sessions{Runner: r, Host: "one"})
	two := managed(t, &interpreter.Sessions{Runner: r, Host: "two"})
	first, err := asks(t, one, python("c1", "a"), rt.Text("ok")).Run(t.Context(), "Go.")
	require.NoError(t, err)
	name, err := two.HostOf(first)
	require.NoError(t, err)
	assert.Empty(t, name)
}

func TestSessionsHost_bad(t *testing.T) {
	for _, tt := range []struct{ name, host, why string }{
		{"a space", "my host", "it would be escaped or cut somewhere"},
		{"a quote", `a"b`, "it takes more room in the state than it has bytes"},
		{"other letters", "hôte", "likewise"},
		{"too long", strings.Repeat("a", interpreter.MaxHost+1), "the state of a tool has a bound"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := managed(t, &interpreter.Sessions{Runner: definer(), Host: tt.host})
			_, _, err := s.Session(t.Context(), new(fnloop.Answer))
			require.ErrorContains(t, err, "Sessions.Host is", tt.why)
		})
	}
	s := managed(t, &interpreter.Sessions{Runner: definer()})
	_, err := s.HostOf(nil)
	require.ErrorContains(t, err, "the Answer is nil")
}

// A state with all that it may hold has to fit into an Answer.
func TestSessionsHost_fits(t *testing.T) {
	s := managed(t, &interpreter.Sessions{Runner: definer(), Host: strings.Repeat("h", interpreter.MaxHost)})
	var names []string
	for range 500 {
		names = append(names, strings.Repeat("n", 20)+string(rune('a'+len(names)%26)))
	}
	a, err := asks(t, s, python("c1", strings.Join(names, " ")), rt.Text("ok")).Run(t.Context(), "Go.")
	require.NoError(t, err)
	require.NoError(t, a.Calls[0].Err)
	assert.LessOrEqual(t, len(a.ToolState["python"]), fnloop.MaxToolState-interpreter.MaxRef, "with room for the Ref of a Keeper")
}
