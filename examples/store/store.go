// Package store shows how a back end keeps conversations in a database: a row
// for each, with the Answer as JSON. It is an example to copy, not a package to
// import.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fnloop/fnloop"
)

// ErrConflict: the conversation has gone on elsewhere since it was loaded.
var ErrConflict = errors.New("the conversation has gone on elsewhere")

// A Store keeps conversations.
type Store struct{ db *sql.DB }

// Open makes the table where there is none.
func Open(ctx context.Context, db *sql.DB) (*Store, error) {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS conversations (
		id      TEXT PRIMARY KEY,
		version INTEGER NOT NULL, -- counts the writes
		answer  TEXT NOT NULL     -- a fnloop.Answer; jsonb in PostgreSQL
	)`)
	return &Store{db}, err
}

// A Conversation is a row as it was read, and changes with each Save.
type Conversation struct {
	store   *Store
	id      string
	version int64
	Answer  *fnloop.Answer
}

// Load reads a conversation, or begins one.
func (s *Store) Load(ctx context.Context, id string) (*Conversation, error) {
	c := &Conversation{store: s, id: id, Answer: new(fnloop.Answer)}
	var stored []byte
	err := s.db.QueryRowContext(ctx, `SELECT version, answer FROM conversations WHERE id = $1`, id).Scan(&c.version, &stored)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(stored, c.Answer)
	}
	if err != nil {
		return nil, fmt.Errorf("conversation %q: %w", id, err)
	}
	return c, nil
}

// Save writes a, unless another process has written the row since.
func (c *Conversation) Save(ctx context.Context, a *fnloop.Answer) error {
	stored, err := json.Marshal(a)
	if err != nil {
		return err
	}
	res, err := c.store.db.ExecContext(ctx, `INSERT INTO conversations (id, version, answer) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, answer = excluded.answer
		WHERE conversations.version = excluded.version - 1`, c.id, c.version+1, string(stored))
	if err != nil {
		return fmt.Errorf("conversation %q: %w", c.id, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("conversation %q: %w", c.id, ErrConflict), err)
	}
	c.version, c.Answer = c.version+1, a
	return nil
}

// Ask goes on with the conversation. The prompt is stored first, so that it is
// not lost; Checkpoint stores each step; and the end is stored also when ctx has
// ended, as it does when a user closes the page.
func (c *Conversation) Ask(ctx context.Context, loop fnloop.Loop, prompt string) (*fnloop.Answer, error) {
	c.Answer.AddPrompt(prompt)
	if err := c.Save(ctx, c.Answer); err != nil {
		return c.Answer, err
	}
	loop.Checkpoint = c.Save // loop is a copy
	answer, err := loop.Continue(ctx, c.Answer, "")
	return answer, errors.Join(err, c.Save(context.WithoutCancel(ctx), answer))
}
