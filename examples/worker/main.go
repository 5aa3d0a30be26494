// Command worker is a back end of many processes to copy from. Each takes prompts over
// HTTP and answers those of all of them as jobs of River. Any of them may die.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

const instructions = "You are a helpful assistant of a shop. Compute with run_python rather than guess."

// Config is what the processes differ in.
type config struct {
	db, addr    string
	jobs        int           // how many runs this process does at once; zero for one that only serves
	deaths      int           // of processes, that one run may take with it
	dead, drain time.Duration // see the flags
	budget      int64
	log         *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	c := config{deaths: 5, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.StringVar(&c.db, "db", os.Getenv("DATABASE_URL"), "the PostgreSQL, like postgres://user@host/database; $DATABASE_URL if not given")
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8080", "where to listen")
	flags.IntVar(&c.jobs, "jobs", 8, "how many prompts are answered at once; 0 for a process that only serves")
	flags.DurationVar(&c.dead, "dead", 10*time.Second, "how long a process may say nothing before others go on with its runs")
	flags.DurationVar(&c.drain, "drain", 20*time.Second, "how long runs may go on at the end; then others go on with them")
	flags.Int64Var(&c.budget, "budget", 1_000_000, "how many tokens a user may use in a day")
	model := flags.String("model", cmp.Or(os.Getenv("OPENAI_MODEL"), "gpt-6-astra"), "the model, where OPENAI_API_KEY is set")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.dead < time.Second {
		return fmt.Errorf("-dead is %v, and a process that is busy may well be silent for a second", c.dead)
	}
	runner := &bubblewrap.Runner{Logger: c.log}
	defer runner.Close()
	loop := &fnloop.Loop{
		Model: *model, Instructions: instructions, Logger: c.log,
		// A program has no effect but its output, so a process that goes on runs it again.
		Tools: []fnloop.Tool{fnloop.PythonTool(runner, fnloop.Limits{}), refundTool()},
		// Nobody waits for an answer to their request here, so a service that is busy is waited for.
		Attempts: 10, MaxRetryWait: 5 * time.Minute,
	}
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		client := responses.NewResponseService(option.WithEnvironmentProduction(), option.WithAPIKey(key))
		loop.Client = &client
	} else {
		played := responsestest.NewServer(responsestest.Always(script))
		defer played.Close()
		loop.Client = played.Client()
		loop.State = fnloop.Stateless // each process has a script of its own
	}
	if err := loop.Check(ctx); err != nil {
		return err
	}
	return serve(ctx, c, loop, stdout)
}

// A node is one process of the back end.
type node struct {
	config
	pool   *pgxpool.Pool
	db     *sql.DB // the same connections, as chatstore takes them
	store  *chatstore.Store
	queue  *river.Client[*sql.Tx]
	loop   *fnloop.Loop
	feeds  feeds
	ending <-chan struct{} // closed when the process is about to end
}

// serve serves and works until ctx ends, and then until the runs are over, or are cut
// for others to go on with.
func serve(ctx context.Context, c config, loop *fnloop.Loop, stdout io.Writer) error {
	n, err := open(ctx, c, loop)
	if err != nil {
		return err
	}
	defer n.pool.Close()
	defer n.db.Close()
	n.ending = ctx.Done()
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // until the last run of this process is over
	defer end()
	go n.listen(life)
	if c.jobs > 0 {
		if err := n.beat(life); err != nil { // before the first job
			return err
		}
		go n.live(life)
		if err := n.queue.Start(life); err != nil {
			return err
		}
	}
	web := &http.Server{Handler: n.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	fmt.Fprintf(stdout, "%s is at http://%s\n", n.queue.ID(), listener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(life, 5*time.Second)
	defer cancel()
	err = errors.Join(err, web.Shutdown(last)) // readers come again, to another process
	if c.jobs > 0 {
		err = errors.Join(err, n.queue.Stop(life))
	}
	return err
}

// open connects a process to the database, and makes what is missing in that.
func open(ctx context.Context, c config, loop *fnloop.Loop) (*node, error) {
	settings, err := pgxpool.ParseConfig(c.db)
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	settings.MaxConns = int32(c.jobs + 8)
	// A process that stalls in a transaction must not hold up those who take its runs.
	settings.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(c.dead.Milliseconds())
	n := &node{config: c, loop: loop}
	if n.pool, err = pgxpool.NewWithConfig(ctx, settings); err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	n.db = stdlib.OpenDBFromPool(n.pool)
	n.store = &chatstore.Store{DB: n.db, View: view, Budget: c.budget, OnBegin: n.enqueue, Logger: c.log}
	driver := riverdatabasesql.NewWithPgxListener(n.db, n.pool)
	if err = n.migrate(ctx, driver); err == nil {
		n.queue, err = n.newQueue(driver)
	}
	if err != nil {
		n.db.Close()
		n.pool.Close()
		return nil, err
	}
	return n, nil
}

// migrate makes all tables, in one process at a time.
func (n *node) migrate(ctx context.Context, driver *riverdatabasesql.Driver) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock(hashtext('worker'))`); err != nil {
		return err
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(hashtext('worker'))`)
	if err := n.store.Migrate(ctx); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: n.quiet()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		_, err = n.db.ExecContext(ctx, tables+shop)
	}
	return err
}

// quiet is a log for libraries.
func (n *node) quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
