package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

const (
	longest    = time.Hour        // a run may take
	keepEvents = 10 * time.Minute // after a run, for readers that were away
)

// tables are what chatstore and River do not have.
const tables = `
CREATE TABLE IF NOT EXISTS worker_processes (
	id   TEXT PRIMARY KEY,     -- of River's client
	seen TIMESTAMPTZ NOT NULL  -- by the database's clock, as all times are
);
CREATE TABLE IF NOT EXISTS worker_runs ( -- those that have not ended
	run     TEXT PRIMARY KEY,
	job     BIGINT NOT NULL,                -- the one that is to do it
	deaths  INT NOT NULL DEFAULT 0,         -- of processes that did it
	stopped BOOLEAN NOT NULL DEFAULT FALSE  -- it is to be ended
);
CREATE TABLE IF NOT EXISTS worker_events (
	run    TEXT NOT NULL,
	n      BIGINT NOT NULL,   -- counts the rows of a run
	events TEXT NOT NULL,     -- a fnloop.Transcript
	over   BOOLEAN NOT NULL,  -- its last event is the last one of the run
	at     TIMESTAMPTZ NOT NULL DEFAULT now(),
	PRIMARY KEY (run, n)
);
CREATE INDEX IF NOT EXISTS worker_events_at ON worker_events (at);`

var (
	errStopped = errors.New("stopped by the user, or given up")
	errMoved   = fmt.Errorf("another process goes on with the run: %w", fnloop.ErrDraining)
	errAgain   = errors.New("the end of the run could not be stored")
)

// A job answers a prompt: it does a run of chatstore.
type job struct {
	Run string `json:"run"`
}

// Kind is River's name for it.
func (job) Kind() string { return "answer" }

// A cleaning removes what no reader wants any more.
type cleaning struct{}

// Kind is River's name for it.
func (cleaning) Kind() string { return "clean" }

func (n *node) newQueue(driver *riverdatabasesql.Driver) (*river.Client[*sql.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(n.work))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[cleaning]) error { return n.clean(ctx, keepEvents) }))
	c := &river.Config{
		Workers: workers, Logger: n.quiet(), JobTimeout: longest,
		// River's own rescue sees how long a job has run, not whether its process lives, so
		// it comes last. What is quicker is in rescue.
		RescueStuckJobsAfter: longest + time.Minute,
		SoftStopTimeout:      max(n.drain, time.Millisecond), // zero is for ever
	}
	if n.jobs > 0 {
		c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: n.jobs}}
		c.PeriodicJobs = []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return cleaning{}, nil }, nil)}
	}
	return river.NewClient(driver, c)
}

// enqueue adds the job of a run in the transaction that begins it, so that there is
// never one without the other.
func (n *node) enqueue(ctx context.Context, tx *sql.Tx, r *chatstore.Run) error {
	added, err := n.queue.InsertTx(ctx, tx, job{r.ID}, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO worker_runs (run, job) VALUES ($1, $2)`, r.ID, added.Job.ID)
	}
	return err
}

// work does a run, from wherever a process before has got to.
func (n *node) work(ctx context.Context, j *river.Job[job]) error {
	id := j.Args.Run
	stopped, err := n.isStopped(ctx, id, j.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // the run is over, or another job has it
	} else if err != nil {
		return err
	}
	r, err := n.store.Take(ctx, id)
	if errors.Is(err, chatstore.ErrTaken) {
		return n.over(ctx, id) // the process that did it died on its last step
	} else if err != nil {
		return err
	}
	if err := n.begin(ctx, r, j.ID); err != nil {
		return err
	}
	n.log.InfoContext(ctx, "a run begins", "chat", r.Chat, "run", id, "calls", len(r.Answer.Calls))

	life := context.WithoutCancel(ctx)
	running, end := context.WithCancelCause(life)
	defer end(nil)
	if stopped {
		end(errStopped)
	}
	defer context.AfterFunc(ctx, func() { end(n.cause(ctx, id, j.ID)) })()
	events, told := make(chan fnloop.Event), make(chan struct{})
	go func() {
		defer close(told)
		n.tell(life, r, events)
	}()
	taken := false
	for e, failed := range r.Events(running, n.loop) {
		err = failed
		if _, done := e.(fnloop.Done); !done || !errors.Is(context.Cause(running), fnloop.ErrDraining) {
			events <- e // it is not done where another process goes on
		}
		if p, ok := e.(chatstore.Problem); ok && p.Code == "taken" {
			taken = true
		}
	}
	close(events)
	<-told
	switch cause := context.Cause(running); {
	case taken, errors.Is(err, chatstore.ErrTaken), errors.Is(cause, errMoved):
		return nil
	case errors.Is(cause, fnloop.ErrDraining):
		return river.JobSnooze(0) // for another process, at once
	}
	return n.over(life, id)
}

// cause says to the run why River has ended the context of its job.
func (n *node) cause(ctx context.Context, run string, j int64) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("the run took more than %v", longest)
	case !errors.Is(cause, river.ErrJobCancelledRemotely):
		return fnloop.ErrDraining
	}
	if stopped, err := n.isStopped(context.WithoutCancel(ctx), run, j); err == nil && stopped {
		return errStopped
	}
	return errMoved
}

// isStopped reports whether a run that a job is to do is to be ended instead.
func (n *node) isStopped(ctx context.Context, run string, j int64) (stopped bool, err error) {
	err = n.db.QueryRowContext(ctx, `SELECT stopped FROM worker_runs WHERE run = $1 AND job = $2`, run, j).Scan(&stopped)
	return stopped, err
}

// over forgets a run that has ended. One that has not, since its end could not be
// stored, is done again from its last checkpoint: River repeats the job.
func (n *node) over(ctx context.Context, run string) error {
	done, err := n.db.ExecContext(ctx, `DELETE FROM worker_runs w USING fnloop_runs r
		WHERE w.run = $1 AND r.id = w.run AND (r.ended OR r.writer = '')`, run)
	if err != nil {
		return err
	}
	if rows, err := done.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(errAgain, err)
	}
	return nil
}

// stop ends a run, on whatever machine it is. It reports whether there was one.
func (n *node) stop(ctx context.Context, run string) (bool, error) {
	var j int64
	err := n.db.QueryRowContext(ctx, `UPDATE worker_runs w SET stopped = TRUE FROM fnloop_runs r
		WHERE w.run = $1 AND r.id = w.run AND NOT r.ended RETURNING job`, run).Scan(&j)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil { // a job that has not begun is cancelled by this, and rescue sees to its run
		_, err = n.queue.JobCancel(ctx, j)
	}
	return true, err
}

// beat says that this process lives.
func (n *node) beat(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, `INSERT INTO worker_processes (id, seen) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen = now()`, n.queue.ID())
	return err
}

// live says so again and again, and rescues the runs of processes that do not.
func (n *node) live(ctx context.Context) {
	var last time.Time
	for tick := time.NewTicker(n.dead / 5); ctx.Err() == nil; {
		err := n.beat(ctx)
		// After a stall, or a database that was away, nobody is judged until all had time to say that they live.
		if err == nil && time.Since(last) < n.dead/2 {
			err = n.rescue(ctx)
		}
		if err == nil {
			last = time.Now()
		} else if ctx.Err() == nil {
			n.log.ErrorContext(ctx, "looking after the runs of dead processes", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// rescue gives new jobs to the runs whose process is silent, and to those whose job is
// over although they are not. That a process which seemed dead comes back is no harm:
// it can store nothing, and is told to end.
func (n *node) rescue(ctx context.Context) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT w.run, w.job, w.deaths, COALESCE(j.state::text, '') FROM worker_runs w LEFT JOIN river_job j ON j.id = w.job
		WHERE j.id IS NULL OR j.finalized_at IS NOT NULL OR j.state = 'running' AND NOT EXISTS (SELECT FROM worker_processes p
			WHERE p.id = j.attempted_by[cardinality(j.attempted_by)] AND p.seen > now() - make_interval(secs => $1))
		FOR UPDATE OF w SKIP LOCKED`, n.dead.Seconds())
	if err != nil {
		return err
	}
	defer rows.Close()
	type lost struct {
		run, state string
		job        int64
		deaths     int
	}
	var all []lost
	for rows.Next() {
		var l lost
		if err := rows.Scan(&l.run, &l.job, &l.deaths, &l.state); err != nil {
			return err
		}
		all = append(all, l)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, l := range all {
		if l.state == "running" {
			if _, err := n.queue.JobCancelTx(ctx, tx, l.job); err != nil {
				return err
			}
		}
		added, err := n.queue.InsertTx(ctx, tx, job{l.run}, nil)
		if err != nil {
			return err
		}
		// What an operator has cancelled, and what takes every process with it, is not tried again.
		if _, err := tx.ExecContext(ctx, `UPDATE worker_runs SET job = $1, deaths = deaths + 1, stopped = stopped OR $2 WHERE run = $3`,
			added.Job.ID, l.state == "cancelled" || l.deaths >= n.config.deaths, l.run); err != nil {
			return err
		}
		n.log.WarnContext(ctx, "a run was left behind", "run", l.run, "job", l.state, "deaths", l.deaths+1)
	}
	return tx.Commit()
}

// clean removes the events of runs that have been over for a while.
func (n *node) clean(ctx context.Context, keep time.Duration) error {
	_, err := n.db.ExecContext(ctx, `DELETE FROM worker_events e WHERE at < now() - make_interval(secs => $1)
		AND NOT EXISTS (SELECT FROM worker_runs w WHERE w.run = e.run)`, keep.Seconds())
	if err == nil {
		_, err = n.db.ExecContext(ctx, `DELETE FROM worker_processes WHERE seen < now() - interval '1 day'`)
	}
	return err
}
