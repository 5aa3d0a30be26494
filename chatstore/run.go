package chatstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fnloop/fnloop"
)

// A Run is a message with the answer to it. Those that [Store.Post] and [Store.Take]
// return are to be done, by one call of Events; those of [Store.Runs] are to be
// shown.
type Run struct {
	ID     string          `json:"id"`
	Chat   string          `json:"-"`
	Parent string          `json:"parent"` // the run that it continues
	Prompt Prompt          `json:"prompt"`
	Seen   json.RawMessage `json:"events"` // what the owner has seen, as a fnloop.Transcript has it
	Ended  bool            `json:"ended"`
	// Answer is where the run got to. It is nil in what Runs returns.
	Answer *fnloop.Answer `json:"-"`

	store    *Store
	owner    string
	writer   string
	revision int64
	spent    int64 // tokens, by processes that were here before
	begun    bool  // by Events
}

// Runs are those that lead to the chat's last one, the oldest first, as a page shows
// them.
func (s *Store) Runs(ctx context.Context, c Chat) ([]Run, error) {
	list := []Run{}
	err := s.all(ctx, func(row scanner) error {
		r := Run{Chat: c.ID}
		var prompt, events []byte
		err := row.Scan(&r.ID, &r.Parent, &prompt, &events, &r.Ended)
		if err == nil {
			err = json.Unmarshal(prompt, &r.Prompt)
		}
		r.Seen = events
		list = append(list, r)
		return err
	}, `WITH RECURSIVE path AS (
			SELECT id, parent, 0 AS n FROM fnloop_runs WHERE chat = $1 AND id = $2
			UNION ALL SELECT r.id, r.parent, n + 1 FROM fnloop_runs r JOIN path ON r.id = path.parent)
		SELECT r.id, r.parent, r.prompt, r.events, r.ended FROM fnloop_runs r JOIN path ON path.id = r.id ORDER BY n DESC`, c.ID, c.Head)
	return list, err
}

// Run reads one run of a chat, with its Answer.
func (s *Store) Run(ctx context.Context, c Chat, id string) (*Run, error) {
	r := &Run{ID: id, Chat: c.ID}
	var prompt, events, answer []byte
	err := s.one(ctx, []any{&r.Parent, &prompt, &events, &answer, &r.Ended, &r.revision},
		`SELECT parent, prompt, events, answer, ended, revision FROM fnloop_runs WHERE chat = $1 AND id = $2`, c.ID, id)
	if err != nil {
		return nil, err
	}
	return r, r.decode(prompt, events, answer)
}

func (r *Run) decode(prompt, events, answer []byte) error {
	r.Seen, r.Answer = events, new(fnloop.Answer)
	if err := errors.Join(json.Unmarshal(prompt, &r.Prompt), json.Unmarshal(answer, r.Answer)); err != nil {
		return fmt.Errorf("chatstore: run %s: %w", r.ID, err)
	}
	return nil
}

// Take makes this process the one that goes on with a run which has not ended: one
// that Post of another process has begun, or that a process has left behind when it
// died. Whoever was at it before can store nothing any more, and so starts no further
// call. The error is [ErrTaken] where there is nothing to go on with.
func (s *Store) Take(ctx context.Context, id string) (*Run, error) {
	r := &Run{ID: id, store: s, writer: rand.Text()}
	var prompt, events, answer []byte
	err := s.one(ctx, []any{&r.Chat, &r.Parent, &prompt, &events, &answer, &r.spent},
		`UPDATE fnloop_runs SET writer = $1, revision = revision + 1 WHERE id = $2 AND NOT ended AND writer <> ''
		RETURNING chat, parent, prompt, events, answer, tokens`, r.writer, id)
	if errors.Is(err, ErrNotFound) {
		if err = s.one(ctx, []any{&r.Chat}, `SELECT chat FROM fnloop_runs WHERE id = $1`, id); err == nil {
			err = ErrTaken
		}
	}
	if err == nil {
		err = s.one(ctx, []any{&r.owner}, `SELECT owner FROM fnloop_chats WHERE id = $1`, r.Chat)
	}
	if err != nil {
		return nil, err
	}
	return r, r.decode(prompt, events, answer)
}

// Hold calls f in a transaction that holds the run: until it ends nobody takes the
// run over, and no message follows it. It is for what belongs to the run and is in
// the same database, such as its events for readers on other machines, or the effect
// of a handler: a process that comes back after a stall changes nothing by it. The
// transaction is committed when f returns nil, and rolled back with the error of f
// otherwise.
//
// The error is [ErrTaken], and f was not called, when the run goes on elsewhere, when
// another one follows it, or when r is only to be shown. A run that has ended can be
// held until another one follows. In SQLite all other writers wait for f, and in
// PostgreSQL those who want the run. A process that stalls within f holds them up:
// PostgreSQL's idle_in_transaction_session_timeout bounds that.
func (r *Run) Hold(ctx context.Context, f func(*sql.Tx) error) error {
	if r.store == nil {
		return ErrTaken
	}
	tx, err := r.store.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("chatstore: holding a run: %w", err)
	}
	defer tx.Rollback()
	// This write changes nothing. A SELECT holds nothing in SQLite, and a row in
	// PostgreSQL only in words that SQLite does not know.
	held, err := tx.ExecContext(ctx, `UPDATE fnloop_runs SET writer = writer WHERE id = $1 AND writer = $2`, r.ID, r.writer)
	var n int64
	if err == nil {
		n, err = held.RowsAffected()
	}
	if err != nil {
		return fmt.Errorf("chatstore: holding a run: %w", err)
	}
	if n == 0 {
		return ErrTaken
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("chatstore: holding a run: %w", err)
	}
	return nil
}

// save stores how far the run got.
func (r *Run) save(ctx context.Context, a *fnloop.Answer, seen *record, ended bool) error {
	answer, err := json.Marshal(a)
	if err != nil {
		return err
	}
	events, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	return r.store.patiently(ctx, func() error {
		done, err := r.store.DB.ExecContext(ctx, `UPDATE fnloop_runs SET answer = $1, events = $2, tokens = $3, ended = $4, revision = revision + 1
			WHERE id = $5 AND writer = $6`, string(answer), string(events), r.spent+a.Usage.TotalTokens, ended, r.ID, r.writer)
		if err != nil {
			return fmt.Errorf("chatstore: storing a run: %w", err)
		}
		if n, err := done.RowsAffected(); err != nil {
			return fmt.Errorf("chatstore: storing a run: %w", err)
		} else if n == 0 {
			return ErrTaken
		}
		return nil
	})
}

// finish stores the Answer of a run that has ended, whatever has ended it.
func (r *Run) finish(ctx context.Context, a *fnloop.Answer, seen *record) error {
	const write = 5 * time.Second // for the last attempt
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.store.patience()+write)
	defer cancel()
	return r.save(ctx, a, seen, true)
}
