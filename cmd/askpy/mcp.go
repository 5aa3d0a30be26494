package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	versions "github.com/fnloop/fnloop/internal/version"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/mcptool"
)

const mcpCommand = "mcp"

// resultSchema is that of a fnloop.Result.
var resultSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"exit_code":{"type":["integer","null"],"description":"The exit status; null if the program was killed."},` +
	`"timed_out":{"type":"boolean"},"stdout":{"type":"string"},"stderr":{"type":"string"}},` +
	`"required":["exit_code","timed_out","stdout","stderr"],"additionalProperties":false}`)

// mcpFlags are those that mean something where there is no question.
var mcpFlags = []string{"runner", "image", "python", "languages", "packages", "requirements", "timeout", "http", "quiet", "verbose"}

// serveMCP offers the tools to programs that have a model of their own.
func serveMCP(ctx context.Context, opts options, env environment, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if len(opts.args) > 1 {
		return usagef("askpy mcp takes no %q", opts.args[1])
	}
	for _, name := range opts.given {
		if !slices.Contains(mcpFlags, name) {
			return usagef("askpy mcp takes no --%s: the model, and the person who is asked, are the client's", name)
		}
	}
	var listener net.Listener
	if opts.http != "" {
		if listener, err = listen(ctx, opts.http, env.mcpToken); err != nil {
			return err
		}
		defer listener.Close()
	}
	progress := terminal.NewProgress(io.Discard, stderr, terminal.Options{Quiet: opts.quiet, Verbose: opts.verbose, Plain: env.noColor, Dumb: env.dumb})
	defer progress.Stop()
	runner, err := openRunner(ctx, opts, env, progress)
	if err != nil {
		return err
	}
	progress.Idle()
	if c, ok := runner.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}

	limits := fnloop.Limits{Time: opts.timeout}
	serve := mcptool.ServeOptions{
		Name: "askpy", Version: versions.Version, Token: env.mcpToken, Stdin: stdin, Stdout: stdout,
		Logger:  slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Results: map[string]json.RawMessage{"run_python": resultSchema},
	}
	tools := []fnloop.Tool{fnloop.PythonTool(runner, limits)}
	code, err := languagesOf(ctx, runner, opts)
	if err != nil {
		return err
	}
	if code != nil {
		tools = append(tools, fnloop.CodeTool(code, limits))
		serve.Results["run_code"] = resultSchema
	}
	if _, can := fnloop.RunnerAs[interpreter.Opener](runner); can {
		held := &heldSessions{runner: runner, config: interpreter.Config{Limits: limits}}
		defer func() { err = errors.Join(err, held.close()) }()
		tools = append(tools, held.tools()...)
	}

	if listener == nil {
		if err = mcptool.Serve(ctx, serve, tools...); err != nil {
			err = errors.New(bareMCP(err))
		}
	} else {
		err = serveHTTP(ctx, listener, serve, tools, stderr)
	}
	if ctx.Err() != nil { // as it should end
		err = nil
	}
	return err
}

// languagesOf is the runner for run_code: with the languages that were asked for, or
// with all that it has. It is nil if that is Python alone.
func languagesOf(ctx context.Context, r fnloop.Runner, opts options) (fnloop.Runner, error) {
	if len(opts.languages) > 0 {
		return chooseLanguages(ctx, r, opts.languages)
	}
	env, err := describe(ctx, r)
	if err != nil || len(env.Languages) < 2 {
		return nil, err
	}
	return r, nil
}

// listen listens at an address. One that others can reach needs a token.
func listen(ctx context.Context, address, token string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("--http %s: give an address such as 127.0.0.1:8080", address)
	}
	if ip := net.ParseIP(host); token == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usagef("--http %s: others can reach this address and run programs; set ASKPY_MCP_TOKEN to what they have to send, or take one of 127.0.0.1", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, usagef("--http %s: %v", address, cause(err))
	}
	return listener, nil
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, listener net.Listener, o mcptool.ServeOptions, tools []fnloop.Tool, stderr io.Writer) error {
	handler, err := mcptool.Handler(ctx, o, tools...)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	fmt.Fprintf(stderr, "askpy: listening on http://%s/mcp\n", listener.Addr())
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		const grace = 2 * time.Second
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
	})()
	if err := srv.Serve(listener); ctx.Err() == nil {
		return err
	}
	<-stopped
	return nil
}
