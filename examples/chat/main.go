// Command chat is a chat back end to copy from. Its model calls Go functions, runs Python
// that keeps its variables, and asks before it changes something.
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
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/trace"
	_ "modernc.org/sqlite"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/otelloop"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/docker"
)

const instructions = "You are a helpful assistant of a shop. Compute with the python tool rather than guess, and show figures." +
	" Say which files you have made."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

// serve serves until ctx ends, and then until the answers that are being written are there.
func serve(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "where to listen")
	hosts := flags.String("hosts", "127.0.0.1,localhost", "the names that browsers reach it by; empty means any")
	dsn := flags.String("db", "chat.db", "a file of SQLite, or an address like postgres://user@host/database")
	sandbox := flags.String("sandbox", "bubblewrap", "where Python runs: bubblewrap or docker")
	imageName := flags.String("image", "", "the image for docker")
	model := flags.String("model", cmp.Or(os.Getenv("OPENAI_MODEL"), "gpt-6-astra"), "the model, where OPENAI_API_KEY is set")
	budget := flags.Int64("budget", 1_000_000, "how many tokens a user may use in a day")
	servers := flags.String("mcp", "", "a file of MCP servers, as Claude and VS Code have it")
	traces := flags.String("trace", "", "where traces go: stdout, or an address like http://localhost:4318")
	drain := flags.Duration("drain", 20*time.Second, "how long answers may go on at the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	var runner interface {
		fnloop.Runner
		io.Closer
	}
	switch *sandbox {
	case "bubblewrap":
		runner = &bubblewrap.Runner{Logger: log}
	case "docker":
		runner = &docker.Runner{Image: *imageName, Logger: log}
	default:
		return fmt.Errorf("-sandbox is %q, neither bubblewrap nor docker", *sandbox)
	}
	defer runner.Close()

	hub := &fnloop.Hub{Logger: log}
	store, err := openStore(ctx, *dsn)
	if err != nil {
		return err
	}
	defer store.DB.Close()
	store.Running, store.Budget, store.Logger = hub.Running, *budget, log
	sessions := &interpreter.Sessions{Runner: runner}
	defer sessions.Close()
	store.KeepFiles(sessions)

	others, disconnect, err := serverTools(ctx, *servers, log)
	if err != nil {
		return err
	}
	defer disconnect()
	loop := &fnloop.Loop{
		Model: *model, Instructions: instructions,
		Tools:  append([]fnloop.Tool{sessions.Tool(), ordersTool(store.DB), refundTool(store.DB)}, others...),
		Logger: log,
	}
	if key := os.Getenv("OPENAI_API_KEY"); key != "" {
		client := responses.NewResponseService(option.WithEnvironmentProduction(), option.WithAPIKey(key))
		loop.Client = &client
	} else {
		played := responsestest.NewServer(responsestest.Always(script))
		defer played.Close()
		loop.Client = played.Client()
		loop.State = fnloop.Stateless // the script forgets the conversations when it ends
	}
	end, err := observe(ctx, *traces, stdout, loop)
	if err != nil {
		return err
	}
	defer end()
	if err := loop.Check(ctx); err != nil {
		return err
	}

	s := &server{store: store, loop: loop, hub: hub, log: log, hosts: *hosts}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	fmt.Fprintf(stdout, "The chat is at http://%s\n", listener.Addr())
	if loop.State == fnloop.Stateless {
		fmt.Fprintln(stdout, "OPENAI_API_KEY is not set, so a script answers.")
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// Answers that are being written come first, with their readers.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), *drain)
	defer cancel()
	if err := hub.Drain(wait); err != nil {
		log.Warn("answers were cut short; their chats can go on from there", "error", err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := web.Shutdown(last); err != nil { // browsers open connections ahead, and Shutdown waits for what comes
		log.Info("connections were closed", "error", err)
		return web.Close()
	}
	return nil
}

// openStore opens a file of SQLite, or a database of a postgres:// address.
func openStore(ctx context.Context, name string) (*chatstore.Store, error) {
	driver := "pgx"
	if !strings.HasPrefix(name, "postgres://") && !strings.HasPrefix(name, "postgresql://") {
		driver, name = "sqlite", "file:"+name+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, fmt.Errorf("the database of -db: %w", err)
	}
	store := &chatstore.Store{DB: db, View: view}
	if err = store.Migrate(ctx); err == nil {
		_, err = db.ExecContext(ctx, shop)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("the database of -db: %w", err)
	}
	return store, nil
}

// observe lets the runs be traced, if that is wanted, and returns what sends the
// last of the traces.
func observe(ctx context.Context, to string, stdout io.Writer, loop *fnloop.Loop) (end func(), err error) {
	if to == "" {
		return func() {}, nil
	}
	exporter, err := newExporter(ctx, to, stdout)
	if err != nil {
		return nil, fmt.Errorf("-trace: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	loop.Observer = otelloop.New(otelloop.Options{TracerProvider: provider, AgentName: "chat", ConversationID: chatstore.ChatID})
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = provider.Shutdown(ctx)
	}, nil
}

// newExporter sends spans to standard output or to a collector.
func newExporter(ctx context.Context, to string, stdout io.Writer) (trace.SpanExporter, error) {
	if to == "stdout" {
		return stdouttrace.New(stdouttrace.WithWriter(stdout), stdouttrace.WithPrettyPrint())
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is neither stdout nor an address like http://localhost:4318", to)
	}
	if strings.Trim(u.Path, "/") == "" { // the exporter would send to the root
		u.Path = "/v1/traces"
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
}
