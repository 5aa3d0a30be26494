package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

// view is what a user sees of a run.
var view = fnloop.View{Outputs: true}

const (
	together = 100 * time.Millisecond // events of which are one row
	silence  = 5 * time.Second        // after which a reader looks by itself: a notification can be lost
)

// resumed begins the events of a run that another process goes on with: they are told from
// the beginning, and a page forgets what it has shown of the run.
const resumed = `[{"type":"resumed"},`

// begin makes this process the one that tells of a run. What another one has told
// since its last checkpoint did not happen, so all is told anew.
func (n *node) begin(ctx context.Context, r *chatstore.Run, j int64) error {
	events := strings.TrimSuffix(resumed, ",") + "]"
	if string(r.Seen) != "[]" {
		events = resumed + string(r.Seen[1:])
	}
	return r.Hold(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE worker_runs SET job = $1 WHERE run = $2`, j, r.ID)
		if err == nil {
			_, err = tx.ExecContext(ctx, `WITH old AS (DELETE FROM worker_events WHERE run = $1 RETURNING n)
				INSERT INTO worker_events (run, n, events, over) SELECT $1, MAX(n) + 1, $2, FALSE FROM old HAVING COUNT(*) > 0`, r.ID, events)
		}
		return err
	})
}

// tell writes the events of a run where readers on all machines find them, those of a
// moment together. A process that has lost the run writes nothing.
func (n *node) tell(ctx context.Context, r *chatstore.Run, events <-chan fnloop.Event) {
	batch, over, lost := &fnloop.Transcript{View: view}, false, false
	var due <-chan time.Time
	for open := true; open; {
		select {
		case e, more := <-events:
			if open = more; more {
				if due == nil {
					due = time.After(together)
				}
				batch.Add(e)
				over = over || e.Type() == "done"
				continue
			}
		case <-due:
		}
		if due == nil || lost {
			continue
		}
		due = nil
		data, err := json.Marshal(batch)
		if err == nil && string(data) != "[]" {
			err = r.Hold(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `WITH added AS (INSERT INTO worker_events (run, n, events, over)
					SELECT $1, COALESCE(MAX(n), 0) + 1, $2, $3 FROM worker_events WHERE run = $1 RETURNING run)
					SELECT pg_notify('worker_events', run) FROM added`, r.ID, string(data), over)
				return err
			})
		}
		switch {
		case err == nil:
			batch = &fnloop.Transcript{View: view}
		case errors.Is(err, chatstore.ErrTaken):
			lost = true
		default: // the batch grows until the database is back; what is lost at the end, chatstore has
			n.log.ErrorContext(ctx, "the events of a run were not written", "run", r.ID, "error", err)
			due = time.After(time.Second)
		}
	}
}

// follow serves the events of a chat's last run from the beginning, or from after the
// header Last-Event-ID, until it is over. Each message of the stream has a list of them.
func (n *node) follow(w http.ResponseWriter, r *http.Request, c chatstore.Chat) error {
	if c.Head == "" {
		w.WriteHeader(http.StatusNoContent) // which tells an EventSource not to come again
		return nil
	}
	after := 0
	if run, row, ok := strings.Cut(r.Header.Get("Last-Event-ID"), "-"); ok && run == c.Head {
		after, _ = strconv.Atoi(row)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	news, leave := n.feeds.join(c.Head)
	defer leave()
	for looks := true; ; { // until an error; the browser comes again
		message, over, err := n.since(r.Context(), c.Head, &after)
		if err == nil && message == "" && looks {
			message, over, err = n.stored(r.Context(), c.Head, after)
		}
		if err != nil {
			return nil
		}
		_ = out.SetWriteDeadline(time.Now().Add(30 * time.Second))
		if _, err := fmt.Fprint(w, cmp.Or(message, ":\n\n")); err != nil || out.Flush() != nil || over {
			return nil
		}
		select {
		case <-news:
			looks = false
		case <-time.After(silence):
			looks = true
		case <-r.Context().Done():
			return nil
		case <-n.ending:
			return nil
		}
	}
}

// since gives the rows of a run that follow one, as messages. JSON has no line break.
func (n *node) since(ctx context.Context, run string, after *int) (messages string, over bool, err error) {
	rows, err := n.db.QueryContext(ctx, `SELECT n, events, over FROM worker_events WHERE run = $1 AND n > $2 ORDER BY n`, run, *after)
	if err != nil {
		return "", false, err
	}
	defer rows.Close()
	for rows.Next() {
		var events string
		if err := rows.Scan(after, &events, &over); err != nil {
			return "", false, err
		}
		messages += fmt.Sprintf("id: %s-%d\ndata: %s\n\n", run, *after, events)
	}
	return messages, over, rows.Err()
}

// stored gives all of a run that is over, where the rows are gone or have no end.
func (n *node) stored(ctx context.Context, run string, after int) (message string, over bool, err error) {
	var events string
	err = n.db.QueryRowContext(ctx, `SELECT events FROM fnloop_runs WHERE id = $1 AND ended
		AND NOT EXISTS (SELECT FROM worker_events WHERE run = $1 AND n > $2)`, run, after).Scan(&events)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return "data: " + resumed + strings.TrimPrefix(events, "[") + "\n\n", true, err
}

// Feeds wake the readers of this process, by the runs that they follow.
type feeds struct {
	mu      sync.Mutex
	readers map[chan struct{}]string
}

// join gives a channel that gets a value when there is something new of a run.
func (f *feeds) join(run string) (news <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == nil {
		f.readers = make(map[chan struct{}]string)
	}
	f.readers[c] = run
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.readers, c)
	}
}

// wake wakes the readers of a run, or all of them.
func (f *feeds) wake(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, follows := range f.readers {
		if run == "" || run == follows {
			select {
			case c <- struct{}{}:
			default: // it has not looked since the last one
			}
		}
	}
}

// listen passes on what PostgreSQL notifies of, on a connection of its own.
func (n *node) listen(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		pooled, err := n.pool.Acquire(ctx)
		if err != nil {
			continue
		}
		conn := pooled.Hijack()
		_, err = conn.Exec(ctx, `LISTEN worker_events`)
		n.feeds.wake("") // for what came while nobody listened
		for err == nil {
			var news *pgconn.Notification
			if news, err = conn.WaitForNotification(ctx); err == nil {
				n.feeds.wake(news.Payload)
			}
		}
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}
