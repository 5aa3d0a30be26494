package chatstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
)

// Post takes a message and begins the run that answers it. The run and its files are
// in the database then, whatever becomes of the process.
//
// The error is [ErrNotFound], [ErrConflict] when the chat has gone on since the
// message's Version of it, [fnloop.ErrBusy] while a run of the chat goes on, a
// [*BudgetError], an [*InputError] for what the owner has to change, or one of the
// database. Nothing has changed then, unless the database has begun the run and could not
// say so any more: the chat has another Head and Version in that case.
func (s *Store) Post(ctx context.Context, owner, chat string, m Message) (*Run, error) {
	c, err := s.Chat(ctx, owner, chat)
	if err != nil {
		return nil, err
	}
	if m.Version != c.Version {
		return nil, ErrConflict
	}
	head, parent := &Run{Ended: true}, &Run{Ended: true, Answer: new(fnloop.Answer)}
	if c.Head != "" {
		if head, err = s.Run(ctx, c, c.Head); err != nil {
			return nil, err
		}
	}
	if s.Running != nil && s.Running(c.ID) || s.Running == nil && !head.Ended {
		return nil, fmt.Errorf("%w: chat %s", fnloop.ErrBusy, c.ID)
	}
	if m.Parent == c.Head && c.Head != "" {
		parent = head
	} else if m.Parent != "" {
		if parent, err = s.Run(ctx, c, m.Parent); err != nil {
			return nil, err
		}
	}
	if s.Budget > 0 {
		if used, err := s.Tokens(ctx, owner); err != nil {
			return nil, err
		} else if used >= s.Budget {
			return nil, &BudgetError{used, s.Budget}
		}
	}
	r := &Run{
		ID: newID(), Chat: c.ID, Parent: m.Parent, Seen: json.RawMessage("[]"), Answer: parent.Answer,
		store: s, owner: owner, writer: rand.Text(),
	}
	if err := r.decide(c, parent, m); err != nil {
		return nil, err
	}
	files, err := r.accept(m)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx, c, r, parent, files); err != nil {
		return nil, err
	}
	return r, nil
}

// decide carries out the decisions of a message, and refuses one that would begin a
// run for nothing.
func (r *Run) decide(c Chat, parent *Run, m Message) error {
	empty := strings.TrimSpace(clean(m.Text)) == "" && len(m.Files) == 0 && len(m.Parts) == 0
	switch {
	case !empty && len(m.Decisions) == 0:
		return nil
	case m.Parent != c.Head:
		return &InputError{"parent", "Only the last message can be decided on or continued."}
	case len(m.Decisions) > 0:
		if err := r.Answer.Decide(m.Decisions); err != nil {
			return fmt.Errorf("%w: %w", ErrConflict, err)
		}
	case parent.Ended && (parent.Answer.Stop == "" || parent.Answer.Stop == fnloop.StopAnswered):
		return &InputError{"text", "The message is empty."}
	}
	return nil
}

// begin adds a run and makes it the chat's last one, unless another one was begun,
// or the parent went on, since they were read.
func (s *Store) begin(ctx context.Context, c Chat, r, parent *Run, files []File) (err error) {
	prompt, err := json.Marshal(r.Prompt)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(r.Answer)
	if err != nil {
		return err
	}
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("chatstore: beginning a run: %w", err)
	}
	defer tx.Rollback()
	exec := func(query string, args ...any) (changed bool) {
		if err != nil {
			return false
		}
		var n int64
		done, execErr := tx.ExecContext(ctx, query, args...)
		if err = execErr; err == nil {
			n, err = done.RowsAffected()
		}
		return n > 0
	}
	if c.Version == 0 {
		c.Title = r.Prompt.title()
	}
	next := exec(`UPDATE fnloop_chats SET head = $1, title = $2, version = version + 1 WHERE id = $3 AND version = $4`, r.ID, c.Title, c.ID, c.Version)
	exec(`UPDATE fnloop_runs SET writer = '' WHERE id = $1`, c.Head)
	same := parent.ID == "" || exec(`UPDATE fnloop_runs SET writer = '' WHERE id = $1 AND revision = $2`, parent.ID, parent.revision)
	exec(`INSERT INTO fnloop_runs (id, chat, parent, prompt, answer, events, tokens, ended, writer, revision, created)
		VALUES ($1, $2, $3, $4, $5, '[]', 0, FALSE, $6, 0, $7)`, r.ID, c.ID, r.Parent, string(prompt), string(answer), r.writer, time.Now().Unix())
	if err == nil && (!next || !same) {
		return ErrConflict
	}
	if err == nil {
		err = s.putFiles(ctx, tx, c.ID, files)
	}
	if err == nil && s.OnBegin != nil {
		err = s.OnBegin(ctx, tx, r)
	}
	if err == nil {
		err = tx.Commit()
	}
	if _, ok := errors.AsType[*InputError](err); err == nil || ok {
		return err
	}
	return fmt.Errorf("chatstore: beginning a run: %w", err)
}
