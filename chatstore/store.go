// Package chatstore keeps conversations in SQLite or PostgreSQL, for chat back ends
// and for queues of jobs:
//
//	store := &chatstore.Store{DB: db}
//	err := store.Migrate(ctx)
//	...
//	chat, err := store.NewChat(ctx, owner)
//	run, err := store.Post(ctx, owner, chat.ID, chatstore.Message{Text: "Hello"})
//	for event, err := range run.Events(ctx, loop) {
//		... // the Answer of each step is in the database before the next one begins
//	}
//
// A [Chat] is a conversation of one owner. A message and its answer are a [Run].
// Runs are only added: each names the one that it continues, and the chat names the
// last one. To edit a message is to continue the run before it once more.
//
// # One writer
//
// [Store.Post] begins a run, and [Store.Take] goes on with one that a process has
// left behind. Whoever did so last is the only one that can store something of the
// run, or a file that it made, and the run before it in the chat can store nothing any more. As each call is
// stored before it starts, a process that has lost its run starts no further call,
// without any lock that has to be kept alive. A chat counts its runs, and a message
// says which count its writer has seen, so that of two messages that come at once
// one is refused.
//
// # Databases
//
// A Store needs a *sql.DB alone, and imports no driver. Its tables begin with
// fnloop_; [Schema] has them. It was tested with modernc.org/sqlite and with
// github.com/jackc/pgx/v5/stdlib. Open a file of SQLite so that writers wait for
// each other, which that driver does for
//
//	file:chat.db?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)
package chatstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// Defaults of a Store's fields.
const (
	DefaultPeriod   = 24 * time.Hour
	DefaultMaxFile  = 25 << 20
	DefaultMaxFiles = 100 << 20
	DefaultPatience = time.Minute
)

// Schema makes the tables where there are none. The statements are those that
// SQLite and PostgreSQL both understand.
const Schema = `
CREATE TABLE IF NOT EXISTS fnloop_chats (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	title   TEXT NOT NULL,
	head    TEXT NOT NULL,   -- the last run, empty if there is none
	version BIGINT NOT NULL, -- counts the runs
	created BIGINT NOT NULL  -- in seconds since 1970, as all times are
);
CREATE INDEX IF NOT EXISTS fnloop_chats_owner ON fnloop_chats (owner);
CREATE TABLE IF NOT EXISTS fnloop_runs (
	id       TEXT PRIMARY KEY,
	chat     TEXT NOT NULL REFERENCES fnloop_chats,
	parent   TEXT NOT NULL,    -- the run that it continues, empty for the first
	prompt   TEXT NOT NULL,    -- a Prompt as JSON
	answer   TEXT NOT NULL,    -- a fnloop.Answer as JSON
	events   TEXT NOT NULL,    -- a fnloop.Transcript as JSON
	tokens   BIGINT NOT NULL,
	ended    BOOLEAN NOT NULL,
	writer   TEXT NOT NULL,    -- the Run value that may store; empty where another run follows
	revision BIGINT NOT NULL,  -- counts what was stored
	created  BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS fnloop_runs_chat ON fnloop_runs (chat, created);
CREATE TABLE IF NOT EXISTS fnloop_files (
	chat    TEXT NOT NULL REFERENCES fnloop_chats,
	name    TEXT NOT NULL,
	picture BOOLEAN NOT NULL, -- it is for people to look at, and not in the work folder
	size    BIGINT NOT NULL,
	data    BYTEA NOT NULL,
	PRIMARY KEY (chat, name)
);`

var (
	// ErrNotFound: there is no such chat, run or file, or it is another owner's.
	ErrNotFound = errors.New("chatstore: there is no such chat, run or file")
	// ErrConflict: the chat has gone on since the message's version of it.
	ErrConflict = errors.New("chatstore: the chat has gone on")
	// ErrTaken: the run has ended, another process goes on with it, or another run
	// follows it. Nothing more of it is stored.
	ErrTaken = errors.New("chatstore: the run is over or goes on elsewhere")
)

// A BudgetError says that an owner has used the [Store]'s Budget.
type BudgetError struct{ Used, Budget int64 }

func (e *BudgetError) Error() string {
	return fmt.Sprintf("chatstore: %d of %d tokens were used", e.Used, e.Budget)
}

// An InputError says what is wrong with a [Message] or a form. Reason is a sentence
// that its writer can be shown.
type InputError struct{ Field, Reason string }

func (e *InputError) Error() string { return "chatstore: " + e.Field + ": " + e.Reason }

// A Store keeps the chats of many owners. Set the fields before first use and leave
// them; from then on it is safe for concurrent use. Any number of processes may use
// one database.
type Store struct {
	// DB is the database. Required. The Store does not close it.
	DB *sql.DB
	// Running reports whether the run of a chat goes on, as [fnloop.Hub.Running]
	// does, where one process runs all of them. A chat whose run goes on takes no
	// message. Nil means that each run does that has not ended: it waits for a
	// process to Take it.
	Running func(chat string) bool
	// Budget is how many tokens the runs of one owner that began within Period may
	// use, all together. Runs that go on at the same time count too: each looks
	// before each of its requests, so a run can exceed the budget by one response.
	// Zero means no limit.
	Budget int64
	// Period is the time that Budget is for. Zero means DefaultPeriod.
	Period time.Duration
	// MaxFile is the size of the largest file that is kept, and MaxFiles that of
	// all files of a chat, in bytes. Zero means DefaultMaxFile and DefaultMaxFiles,
	// negative no limit.
	MaxFile, MaxFiles int64
	// View is what is kept of the events of a run.
	View fnloop.View
	// Patience is how long a run waits for a database that is away, each time that it
	// stores something. Zero means DefaultPatience, negative no time.
	Patience time.Duration
	// OnBegin, if not nil, is called in the transaction that begins a run, so that
	// a job can be added that does it. Its error is that of Post, and nothing was
	// begun then.
	OnBegin func(context.Context, *sql.Tx, *Run) error
	// Logger gets an error record for what the host should look into: runs that
	// failed, and what could not be stored. Nil means none.
	Logger *slog.Logger

	sessions *interpreter.Sessions
}

// Migrate makes the tables where there are none.
func (s *Store) Migrate(ctx context.Context) (err error) {
	for range 3 { // two processes that do so at once can get into each other's way
		if _, err = s.DB.ExecContext(ctx, Schema); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("chatstore: making the tables: %w", err)
	}
	return nil
}

// A Chat is a conversation of one owner.
type Chat struct {
	ID    string `json:"id"`
	Owner string `json:"-"`
	// Title is how the first message begins.
	Title string `json:"title"`
	// Head is the last run, empty if there is none.
	Head string `json:"head"`
	// Version counts the runs that were begun.
	Version int64 `json:"version"`
}

// NewChat begins a chat of an owner, which is any name that the host has for a user.
func (s *Store) NewChat(ctx context.Context, owner string) (Chat, error) {
	c := Chat{ID: newID(), Owner: owner, Title: "New chat"}
	_, err := s.DB.ExecContext(ctx, `INSERT INTO fnloop_chats (id, owner, title, head, version, created) VALUES ($1, $2, $3, '', 0, $4)`,
		c.ID, c.Owner, c.Title, time.Now().Unix())
	if err != nil {
		return Chat{}, fmt.Errorf("chatstore: a new chat: %w", err)
	}
	return c, nil
}

// Chats are the latest chats of an owner that have a run, the newest first.
func (s *Store) Chats(ctx context.Context, owner string, most int) ([]Chat, error) {
	list := []Chat{}
	err := s.all(ctx, func(row scanner) error {
		c := Chat{Owner: owner}
		err := row.Scan(&c.ID, &c.Title, &c.Head, &c.Version)
		list = append(list, c)
		return err
	}, `SELECT id, title, head, version FROM fnloop_chats WHERE owner = $1 AND version > 0 ORDER BY created DESC, id LIMIT $2`, owner, most)
	return list, err
}

// Chat is a chat of an owner.
func (s *Store) Chat(ctx context.Context, owner, id string) (Chat, error) {
	c := Chat{ID: id, Owner: owner}
	err := s.one(ctx, []any{&c.Title, &c.Head, &c.Version}, `SELECT title, head, version FROM fnloop_chats WHERE owner = $1 AND id = $2`, owner, id)
	return c, err
}

// Tokens are how many tokens the owner's runs have used that began within Period,
// those that go on included, as far as they are stored.
func (s *Store) Tokens(ctx context.Context, owner string) (int64, error) {
	return s.tokens(ctx, owner, "")
}

func (s *Store) tokens(ctx context.Context, owner, except string) (n int64, err error) {
	since := time.Now().Add(-cmp.Or(s.Period, DefaultPeriod))
	err = s.one(ctx, []any{&n}, `SELECT COALESCE(SUM(tokens), 0) FROM fnloop_runs JOIN fnloop_chats ON fnloop_chats.id = fnloop_runs.chat
		WHERE owner = $1 AND fnloop_runs.created > $2 AND fnloop_runs.id <> $3`, owner, since.Unix(), except)
	return n, err
}

func (s *Store) patience() time.Duration {
	return max(cmp.Or(s.Patience, DefaultPatience), 0)
}

// patiently calls f again while the database is away, until ctx ends or the
// Store's Patience does.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	began := time.Now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := f()
		_, refused := errors.AsType[*InputError](err)
		if err == nil || refused || errors.Is(err, ErrTaken) || time.Since(began)+wait > s.patience() {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

type scanner interface{ Scan(...any) error }

// one scans a row. That there is none is ErrNotFound, and so is a name that no
// row can have.
func (s *Store) one(ctx context.Context, into []any, query string, args ...any) error {
	for _, arg := range args {
		if text, ok := arg.(string); ok && text != clean(text) {
			return ErrNotFound
		}
	}
	err := s.DB.QueryRowContext(ctx, query, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("chatstore: reading: %w", err)
	}
	return nil
}

// all calls scan for each row.
func (s *Store) all(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	rows, err := s.DB.QueryContext(ctx, query, args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return fmt.Errorf("chatstore: reading: %w", err)
	}
	return nil
}

func newID() string { return strings.ToLower(rand.Text()) }

// clean leaves out what PostgreSQL and the API do not take in a text.
func clean(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return strings.ReplaceAll(text, "\x00", "")
}
