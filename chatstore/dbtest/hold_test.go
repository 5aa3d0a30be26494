package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	rt "github.com/fnloop/fnloop/responsestest"
)

// What is changed under a run is changed by the process that has it, or not at all.
func TestRun_Hold(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		_, err := s.DB.ExecContext(t.Context(), `CREATE TABLE notes (text TEXT NOT NULL)`)
		require.NoError(t, err)
		notes := func() (n int) {
			t.Helper()
			require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM notes`).Scan(&n))
			return n
		}
		note := func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), `INSERT INTO notes VALUES ('x')`)
			return err
		}
		c := newChat(t, s, "ann")
		first := ask(t, s, c, "go")
		require.NoError(t, first.Hold(t.Context(), note))
		assert.Equal(t, 1, notes())
		boom := errors.New("boom")
		require.ErrorIs(t, first.Hold(t.Context(), func(tx *sql.Tx) error { return errors.Join(note(tx), boom) }), boom)
		assert.Equal(t, 1, notes(), "it was rolled back")

		// Who takes the run waits for the one that holds it.
		taken := make(chan *chatstore.Run, 1)
		require.NoError(t, first.Hold(t.Context(), func(tx *sql.Tx) error {
			go func() {
				r, err := d.open().Take(context.WithoutCancel(t.Context()), first.ID)
				assert.NoError(t, err)
				taken <- r
			}()
			return note(tx)
		}))
		second := <-taken
		never := func(*sql.Tx) error { t.Error("it has lost the run"); return nil }
		require.ErrorIs(t, first.Hold(t.Context(), never), chatstore.ErrTaken)
		shown, err := s.Run(t.Context(), c, first.ID)
		require.NoError(t, err)
		require.ErrorIs(t, shown.Hold(t.Context(), never), chatstore.ErrTaken, "it is only to be shown")
		require.NoError(t, second.Hold(t.Context(), note))
		assert.Equal(t, 3, notes())

		// The end of a run can be told of until another one follows.
		loop := play(t, rt.Always(func(*rt.Turn) rt.Reply { return rt.Text("done") }))
		_, _, err = do(t, second, loop)
		require.NoError(t, err)
		require.NoError(t, second.Hold(t.Context(), note))
		ask(t, s, c, "and now?")
		require.ErrorIs(t, second.Hold(t.Context(), never), chatstore.ErrTaken)
	})
}

// A handler that comes back when its run was taken over has no effect.
func TestRunFrom(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		_, err := s.DB.ExecContext(t.Context(), `CREATE TABLE payments (run TEXT NOT NULL)`)
		require.NoError(t, err)
		_, ok := chatstore.RunFrom(t.Context())
		assert.False(t, ok)
		started, goOn := make(chan bool), make(chan bool)
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if len(turn.Outputs()) == 0 {
				return rt.Call("call_1", "pay", "{}")
			}
			return rt.Text("done")
		}))
		loop.Tools = []fnloop.Tool{fnloop.MustTool("pay", "Pays.", func(ctx context.Context, _ struct{}) (string, error) {
			started <- true
			<-goOn
			r, _ := chatstore.RunFrom(ctx)
			return "paid", r.Hold(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ($1)`, r.ID)
				return err
			})
		})}
		count := func() (n int) {
			require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM payments`).Scan(&n))
			return n
		}
		for _, lost := range []bool{false, true} {
			r := ask(t, s, newChat(t, s, "ann"), "pay")
			ended := make(chan error, 1)
			go func() {
				_, _, err := do(t, r, loop)
				ended <- err
			}()
			<-started
			if lost {
				next, err := d.open().Take(t.Context(), r.ID)
				require.NoError(t, err)
				_, _, err = do(t, next, loop)
				require.NoError(t, err)
			}
			goOn <- true
			if err := <-ended; lost {
				require.ErrorIs(t, err, chatstore.ErrTaken)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, 1, count(), "lost: %t", lost)
		}
	})
}

// A process that dies between a checkpoint and the stop for approval has not decided
// anything.
func TestStore_approvalAfterCrash(t *testing.T) {
	onEach(t, func(t *testing.T, d database) {
		s := d.open()
		loop := play(t, rt.Always(func(turn *rt.Turn) rt.Reply {
			if len(turn.Outputs()) == 0 {
				return rt.Join(rt.Call("call_1", "look", "{}"), rt.Call("call_2", "pay", "{}"))
			}
			return rt.Text(turn.Outputs()[1])
		}))
		ok := func(context.Context, struct{}) (string, error) { return "ok", nil }
		pay := fnloop.MustTool("pay", "Pays.", ok)
		pay.NeedsApproval = fnloop.Always
		loop.Tools = []fnloop.Tool{fnloop.MustTool("look", "Looks.", ok), pay}
		c := newChat(t, s, "ann")
		r := ask(t, s, c, "pay")
		for e := range r.Events(t.Context(), loop) {
			if _, ok := e.(fnloop.CallFinished); ok {
				break // as a process that dies would
			}
		}
		next, err := d.open().Take(t.Context(), r.ID)
		require.NoError(t, err)
		a, _, err := do(t, next, loop)
		require.ErrorIs(t, err, fnloop.ErrApproval)
		require.Len(t, a.Waiting(), 1)
		decided, err := s.Post(t.Context(), "ann", c.ID, chatstore.Message{Version: 1, Parent: r.ID, Decisions: map[string]fnloop.Decision{"call_2": {Approve: true}}})
		require.NoError(t, err)
		a, _, err = do(t, decided, loop)
		require.NoError(t, err)
		assert.Equal(t, "ok", a.Text)
	})
}
