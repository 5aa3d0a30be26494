package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

var (
	errNotFound = errors.New("there is no such chat, message or file")
	errConflict = errors.New("the chat has gone on in another tab; look at it and send again")
)

// A run is a message of the user, or a decision, with the answer to it. Runs are
// only ever added: each names the one that it continues, and the chat names the
// last one. To edit a message is to continue the run before it once more.
type run struct {
	ID     string          `json:"id"`
	Parent string          `json:"parent"`
	Prompt prompt          `json:"prompt"`
	Events json.RawMessage `json:"events"` // what the user has seen of it
	Ended  bool            `json:"ended"`
	Answer *fnloop.Answer  `json:"-"` // where it got to
}

// A prompt is what the user has sent.
type prompt struct {
	Text     string   `json:"text"`
	Files    []string `json:"files,omitempty"`    // in the interpreter's work folder
	Pictures []string `json:"pictures,omitempty"` // for the model to see
}

// A chat is a conversation of one user.
type chat struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Head    string `json:"head"`    // the last run
	Version int64  `json:"version"` // counts the runs that were begun
}

// A file is one that a user uploaded or that code has made.
type file struct {
	name    string
	picture bool // to be looked at in the page; it is not in the work folder
	data    []byte
}

// What is kept of the files of a chat.
const (
	maxFile  = 25 << 20
	maxFiles = 100 << 20
)

const schema = `
CREATE TABLE IF NOT EXISTS chats (id TEXT PRIMARY KEY, owner TEXT NOT NULL, title TEXT NOT NULL, head TEXT NOT NULL, version BIGINT NOT NULL, created BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, chat TEXT NOT NULL REFERENCES chats, parent TEXT NOT NULL, prompt TEXT NOT NULL, answer TEXT NOT NULL, events TEXT NOT NULL, tokens BIGINT NOT NULL, ended BOOLEAN NOT NULL, created BIGINT NOT NULL);
CREATE INDEX IF NOT EXISTS runs_chat ON runs (chat);
CREATE TABLE IF NOT EXISTS files (chat TEXT NOT NULL REFERENCES chats, name TEXT NOT NULL, picture BOOLEAN NOT NULL, data BLOB NOT NULL, PRIMARY KEY (chat, name));
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, cents BIGINT NOT NULL, refund TEXT NOT NULL);
INSERT INTO orders VALUES ('A-1001', 'Mina Okafor', 'walking boots', 12900, ''), ('A-1002', 'Mina Okafor', 'rain jacket', 8450, ''),
	('A-1003', 'Jonas Lind', 'tent for two', 24900, '') ON CONFLICT (id) DO NOTHING;`

// A store keeps the chats in SQLite or PostgreSQL. The statements are those that
// both understand.
type store struct{ db *sql.DB }

// openStore opens a file of SQLite, or a database of a postgres:// address.
func openStore(ctx context.Context, name string) (*store, error) {
	driver, create := "sqlite", schema
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		driver, create = "pgx", strings.ReplaceAll(schema, "BLOB", "BYTEA")
	} else {
		name = "file:" + name + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, create); err != nil {
		db.Close()
		return nil, fmt.Errorf("the database of -db: %w", err)
	}
	return &store{db}, nil
}

// one scans a row; that there is none is errNotFound.
func (s *store) one(ctx context.Context, into []any, query string, args ...any) error {
	err := s.db.QueryRowContext(ctx, query, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return errNotFound
	}
	return err
}

// all calls scan for each row.
func (s *store) all(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *store) newChat(ctx context.Context, owner, id string) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO chats VALUES ($1, $2, 'New chat', '', 0, $3)`, id, owner, time.Now().Unix())
	return err
}

func (s *store) chats(ctx context.Context, owner string) (list []chat, err error) {
	err = s.all(ctx, func(r *sql.Rows) error {
		var c chat
		defer func() { list = append(list, c) }()
		return r.Scan(&c.ID, &c.Title, &c.Head, &c.Version)
	}, `SELECT id, title, head, version FROM chats WHERE owner = $1 AND version > 0 ORDER BY created DESC, id LIMIT 100`, owner)
	return list, err
}

func (s *store) chat(ctx context.Context, owner, id string) (c chat, err error) {
	err = s.one(ctx, []any{&c.ID, &c.Title, &c.Head, &c.Version},
		`SELECT id, title, head, version FROM chats WHERE owner = $1 AND id = $2`, owner, id)
	return c, err
}

// runs are those that lead to the chat's last one, the oldest first.
func (s *store) runs(ctx context.Context, c chat) (list []run, err error) {
	err = s.all(ctx, func(rows *sql.Rows) error {
		var r run
		var asked, events []byte
		if err := rows.Scan(&r.ID, &r.Parent, &asked, &events, &r.Ended); err != nil {
			return err
		}
		r.Events = events
		list = append(list, r)
		return json.Unmarshal(asked, &list[len(list)-1].Prompt)
	}, `WITH RECURSIVE path AS (
			SELECT id, parent, 0 AS n FROM runs WHERE chat = $1 AND id = $2
			UNION ALL SELECT r.id, r.parent, n + 1 FROM runs r JOIN path ON r.id = path.parent)
		SELECT r.id, r.parent, r.prompt, r.events, r.ended FROM runs r JOIN path ON path.id = r.id ORDER BY n DESC`, c.ID, c.Head)
	return list, err
}

// run gives one run of a chat, to be continued.
func (s *store) run(ctx context.Context, c chat, id string) (r run, err error) {
	var answer []byte
	err = s.one(ctx, []any{&r.ID, &r.Parent, &r.Ended, &answer}, `SELECT id, parent, ended, answer FROM runs WHERE chat = $1 AND id = $2`, c.ID, id)
	if err != nil {
		return r, err
	}
	r.Answer = new(fnloop.Answer)
	return r, json.Unmarshal(answer, r.Answer)
}

// begin adds a run, with the files of its prompt, and makes it the chat's last
// one, unless another one was begun since c was read: then it is errConflict and
// nothing has changed. All that comes later of the run is save.
func (s *store) begin(ctx context.Context, c chat, r run, files []file) error {
	answer, err := json.Marshal(r.Answer)
	if err != nil {
		return err
	}
	asked, err := json.Marshal(r.Prompt)
	if err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	done, err := tx.ExecContext(ctx, `UPDATE chats SET head = $1, title = $2, version = version + 1 WHERE id = $3 AND version = $4`, r.ID, c.Title, c.ID, c.Version)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errConflict
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO runs VALUES ($1, $2, $3, $4, $5, '[]', 0, FALSE, $6)`,
		r.ID, c.ID, r.Parent, string(asked), string(answer), time.Now().Unix()); err != nil {
		return err
	}
	for _, f := range files {
		if err := putFile(ctx, tx, c.ID, f); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// save stores how far a run got. A run that has ended stays as it is.
func (s *store) save(ctx context.Context, id string, a *fnloop.Answer, events *fnloop.Transcript, ended bool) error {
	answer, err := json.Marshal(a)
	if err != nil {
		return err
	}
	shown, err := json.Marshal(events)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `UPDATE runs SET answer = $1, events = $2, tokens = $3, ended = $4 WHERE id = $5 AND NOT ended`,
		string(answer), string(shown), a.Usage.TotalTokens, ended, id)
	return err
}

// tokens are those that a user has used in the last day.
func (s *store) tokens(ctx context.Context, owner string) (n int64, err error) {
	err = s.one(ctx, []any{&n}, `SELECT COALESCE(SUM(tokens), 0) FROM runs JOIN chats ON chats.id = runs.chat WHERE owner = $1 AND runs.created > $2`,
		owner, time.Now().Add(-24*time.Hour).Unix())
	return n, err
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

func putFile(ctx context.Context, db execer, chat string, f file) error {
	_, err := db.ExecContext(ctx, `INSERT INTO files VALUES ($1, $2, $3, $4)
		ON CONFLICT (chat, name) DO UPDATE SET picture = EXCLUDED.picture, data = EXCLUDED.data`, chat, f.name, f.picture, f.data)
	return err
}

// file reads one file of a chat, by a name that the user may have made up.
func (s *store) file(ctx context.Context, chat, name string) (f file, err error) {
	err = s.one(ctx, []any{&f.name, &f.picture, &f.data}, `SELECT name, picture, data FROM files WHERE chat = $1 AND name = $2`, chat, name)
	return f, err
}

// names are those of the files that belong into the work folder of a chat, and
// size is how many bytes all of its files have.
func (s *store) names(ctx context.Context, chat string) (names []string, size int64, err error) {
	err = s.all(ctx, func(r *sql.Rows) error {
		var name string
		var picture bool
		var n int64
		if err := r.Scan(&name, &picture, &n); err != nil {
			return err
		}
		if size += n; !picture {
			names = append(names, name)
		}
		return nil
	}, `SELECT name, picture, LENGTH(data) FROM files WHERE chat = $1 ORDER BY name`, chat)
	return names, size, err
}
