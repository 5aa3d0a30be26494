package chatstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"log"
	"net/http"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

var loop = &fnloop.Loop{Model: "gpt-6-astra"}

func user(*http.Request) string { return "ann" }

// A page posts a message and follows the run that answers it, which goes on when
// the page is closed. examples/chat is a whole program.
func Example_chat() {
	db, err := sql.Open("sqlite", "file:chat.db?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	hub := new(fnloop.Hub)
	store := &chatstore.Store{DB: db, Running: hub.Running, Budget: 1_000_000}
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	sessions := &interpreter.Sessions{Runner: &bubblewrap.Runner{}}
	store.KeepFiles(sessions)
	loop.Tools = []fnloop.Tool{sessions.Tool()}

	http.HandleFunc("POST /chats/{chat}", func(w http.ResponseWriter, r *http.Request) {
		message, err := chatstore.ReadForm(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		run, err := store.Post(r.Context(), user(r), r.PathValue("chat"), message)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		if err := hub.Start(r.Context(), run.Chat, func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
			return run.Events(ctx, loop)
		}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("GET /chats/{chat}/events", func(w http.ResponseWriter, r *http.Request) {
		chat, err := store.Chat(r.Context(), user(r), r.PathValue("chat"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		hub.ServeSSE(w, r, chat.ID, fnloop.SSE{})
	})
}

// A queue on the same database: a job is added with the run, and a worker on
// whatever machine does it. If that worker dies, the next one to get the job goes on.
func ExampleStore_Take() {
	db, err := sql.Open("pgx", "postgres://app@db/app")
	if err != nil {
		log.Fatal(err)
	}
	store := &chatstore.Store{DB: db, OnBegin: func(ctx context.Context, tx *sql.Tx, r *chatstore.Run) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO jobs (run) VALUES ($1)", r.ID)
		return err
	}}
	work := func(ctx context.Context, id string) error {
		run, err := store.Take(ctx, id)
		if err != nil {
			return err // with ErrTaken there is nothing left to do
		}
		var text strings.Builder
		for event, err := range run.Events(ctx, loop) {
			switch e := event.(type) {
			case fnloop.TextDelta:
				text.WriteString(e.Text) // or publish it to those who watch
			case fnloop.Done:
				fmt.Println(text.String(), e.Answer.Stop)
				return err
			}
		}
		return nil
	}
	_ = work
}
