package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/examples/store"
	"github.com/fnloop/fnloop/responsestest"
	_ "modernc.org/sqlite"
)

// open gives a function that opens the same database again, as another process
// would.
func open(t *testing.T) func() *store.Store {
	file := filepath.Join(t.TempDir(), "chats.db")
	return func() *store.Store {
		t.Helper()
		db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s, err := store.Open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func load(t *testing.T, s *store.Store) *store.Conversation {
	t.Helper()
	c, err := s.Load(t.Context(), "chat-7")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConversation_goesOnInAnotherProcess(t *testing.T) {
	srv := responsestest.NewServer(
		responsestest.Call("call_1", "double", `{"n":21}`),
		responsestest.Text("It is 42."),
		responsestest.Text("You asked for 42."),
	)
	defer srv.Close()
	type input struct {
		N int `json:"n"`
	}
	loop := fnloop.Loop{Client: srv.Client(), Model: "stub-1", Tools: []fnloop.Tool{fnloop.MustTool("double", "Doubles.",
		func(_ context.Context, in input) (string, error) { return fmt.Sprint(2 * in.N), nil })}}
	process := open(t)

	if _, err := load(t, process()).Ask(t.Context(), loop, "What is twice 21?"); err != nil {
		t.Fatal(err)
	}
	answer, err := load(t, process()).Ask(t.Context(), loop, "What did I ask for?")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Text != "You asked for 42." {
		t.Errorf("the answer is %q", answer.Text)
	}
	if err := srv.Err(); err != nil {
		t.Error(err)
	}
}

// What a process stored before it died is what the next one goes on from: the
// call that has finished is not run again, and the one that ran is not either.
func TestConversation_survivesTheProcess(t *testing.T) {
	srv := responsestest.NewServer(
		responsestest.Join(responsestest.Call("call_1", "pay", `{}`), responsestest.Call("call_2", "die", `{}`)),
		responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
			paid, _ := turn.Output("call_1")
			died, _ := turn.Output("call_2")
			return responsestest.Text(paid + " / " + died)
		}),
	)
	defer srv.Close()
	process := open(t)

	payments := 0
	pay := fnloop.MustTool("pay", "Pays.", func(context.Context, struct{}) (string, error) {
		payments++
		return "paid", nil
	})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var found *store.Conversation
	die := fnloop.MustTool("die", "Dies.", func(context.Context, struct{}) (string, error) {
		found = load(t, process()) // what the next process reads if this one ends here
		end()
		return "not seen", ctx.Err()
	})
	loop := fnloop.Loop{Client: srv.Client(), Model: "stub-1", Tools: []fnloop.Tool{pay, die}, Parallel: 1}
	if _, err := load(t, process()).Ask(ctx, loop, "Pay, then die."); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	loop.Tools = []fnloop.Tool{pay, fnloop.MustTool("die", "Dies.", func(context.Context, struct{}) (string, error) { return "ran", nil })}
	answer, err := loop.Continue(t.Context(), found.Answer, "")
	if err != nil {
		t.Fatal(err)
	}
	want := "paid / interrupted: the run ended while this call was running; it has no output, and what it did is not known"
	if answer.Text != want || payments != 1 {
		t.Errorf("after %d payments the model read %q, want %q", payments, answer.Text, want)
	}
}

func TestConversation_hasOneWriter(t *testing.T) {
	srv := responsestest.NewServer(responsestest.Text("Hello!"))
	defer srv.Close()
	loop := fnloop.Loop{Client: srv.Client(), Model: "stub-1"}
	process := open(t)
	one, other := load(t, process()), load(t, process())
	if _, err := one.Ask(t.Context(), loop, "Hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Ask(t.Context(), loop, "Hello"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the error is %v, want ErrConflict", err)
	}
	if n := len(srv.Requests()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
}
