package mcptool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/version"
)

// DefaultParallel is how many calls of a server run at once.
const DefaultParallel = 32

// ServeOptions say how tools are offered. The zero value is good for use.
type ServeOptions struct {
	// Name and Version are what the server calls itself; empty means fnloop and its
	// version. Instructions, if not empty, tell the model of the client what the
	// server is for.
	Name, Version, Instructions string
	// Results are the schemas of tools' results, by the tool's name. The text of such a
	// tool must be a JSON document that fits, and clients get it as structured
	// content too.
	Results map[string]json.RawMessage
	// MaxRequest bounds one message of the client, in bytes. Zero means
	// DefaultMaxMessage.
	MaxRequest int
	// Parallel is how many calls of all clients run at once; the others wait. Zero means
	// DefaultParallel, negative all of them.
	Parallel int
	// Token, if not empty, is what a client of [Handler] has to send: Authorization:
	// Bearer and the token.
	Token string
	// Stdin and Stdout are for [Serve]. Nil means those of the process, and then
	// nothing else may be written to its standard output.
	Stdin  io.Reader
	Stdout io.Writer
	// Logger receives errors of tools that clients are not told, and of requests over
	// HTTP. Nil discards them.
	Logger *slog.Logger
}

// Serve offers tools as an MCP server on standard input and output, to the program
// that has started this one. It returns nil when the client is gone, and the error of
// ctx when that ends; calls that run are cancelled.
//
// A call is made as a Loop makes it: arguments are checked, a panic and a timeout are
// results, and Serial and Ordered hold over all calls of the server. While a call
// runs the client is told of its progress at least every five seconds, if it asked for
// that. A call that needs approval is refused, since nobody can be asked here. An
// error of [fnloop.Abort] is logged, and the client learns that the tool failed. A
// tool that keeps a [fnloop.ToolState] finds none, so that of interpreter.Sessions would
// open an interpreter with each call: give clients a tool that opens one and names it,
// as askpy mcp does.
//
// The error is a [*fnloop.ConfigError] for tools that cannot be.
func Serve(ctx context.Context, o ServeOptions, tools ...fnloop.Tool) error {
	server, err := o.server(ctx, tools)
	if err != nil {
		return err
	}
	in, out := o.Stdin, o.Stdout
	if in == nil {
		in = os.Stdin
	}
	if out == nil {
		out = os.Stdout
	}
	err = server.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: writer{out}, MaxLineLength: o.maxRequest()})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE):
		return nil // the client has gone
	}
	return fmt.Errorf("mcptool: reading the messages of the client: %w", err)
}

// Handler offers tools as an MCP server over HTTP, at whatever path it is put. It keeps
// nothing between requests, so that any process may answer the next one. A call ends
// when its client cancels it or goes away; of clients that speak a revision before
// 2026-07-28, the message that cancels has to reach the process that runs the call.
//
// Requests of web pages from elsewhere are refused, and on the loopback interface
// those with the name of another host. Whoever can reach the server can run the tools
// unless there is a Token: listen on the loopback interface without one.
func Handler(ctx context.Context, o ServeOptions, tools ...fnloop.Tool) (http.Handler, error) {
	server, err := o.server(ctx, tools)
	if err != nil {
		return nil, err
	}
	h := http.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless:                    true, // the newest revision asks for it
		PropagateRequestCancellation: true, // or a program goes on when its client has gone
		MaxRequestBodyBytes:          int64(o.maxRequest()),
		Logger:                       o.logger(),
	}))
	h = older(o.maxRequest(), h)
	if o.Token != "" {
		h = bearer(o.Token, h)
	}
	return http.NewCrossOriginProtection().Handler(h), nil
}

func (o *ServeOptions) maxRequest() int { return orDefault(o.MaxRequest, DefaultMaxMessage) }

func (o *ServeOptions) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// bearer lets requests with the token through.
func bearer(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the bearer token is missing or wrong", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// server makes go-sdk's server of tools.
func (o *ServeOptions) server(ctx context.Context, tools []fnloop.Tool) (*mcp.Server, error) {
	s := &service{loop: &fnloop.Loop{Tools: tools, Logger: o.Logger}, log: o.logger()}
	if o.Parallel >= 0 {
		s.places = make(chan struct{}, orDefault(o.Parallel, DefaultParallel))
	}
	described, err := s.loop.DescribeTools(ctx)
	if err != nil {
		return nil, err
	}
	name, v := o.Name, o.Version
	if name == "" {
		name, v = "fnloop", version.Version
	}
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: v}, &mcp.ServerOptions{
		Instructions: o.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	offered := make(map[string]bool)
	for i := range described {
		t := &described[i]
		offered[t.Name] = true
		tool := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Parameters}
		if t.Custom {
			tool.InputSchema = customParameters
		} else if err := checkServed(t.Parameters); err != nil {
			return nil, &fnloop.ConfigError{Field: fmt.Sprintf("tool %q", t.Name), Reason: err.Error()}
		}
		if schema := o.Results[t.Name]; schema != nil {
			if err := checkServed(schema); err != nil {
				return nil, &fnloop.ConfigError{Field: fmt.Sprintf("ServeOptions.Results[%q]", t.Name), Reason: err.Error()}
			}
			tool.OutputSchema = schema
		}
		server.AddTool(tool, s.handler(t, tool.OutputSchema != nil))
	}
	for name := range o.Results {
		if !offered[name] {
			return nil, &fnloop.ConfigError{Field: fmt.Sprintf("ServeOptions.Results[%q]", name), Reason: "there is no such tool"}
		}
	}
	return server, nil
}

// customParameters are those of a tool that takes free text.
var customParameters = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`)

// checkServed reports why go-sdk would not take a schema.
func checkServed(schema json.RawMessage) error {
	var root struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(schema, &root); err != nil || root.Type != "object" {
		return errors.New(`its schema needs "type": "object" at the root`)
	}
	return nil
}

// A service runs the calls of one server.
type service struct {
	loop    *fnloop.Loop
	log     *slog.Logger
	serial  sync.RWMutex  // held for writing by a call that runs alone
	ordered sync.Map      // tool to the *sync.Mutex of its calls
	places  chan struct{} // one for each call that runs; nil if there are enough
}

// handler is the handler of one tool.
func (s *service) handler(t *fnloop.Tool, structured bool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		call := fnloop.Call{ID: "mcp", Name: t.Name, Arguments: json.RawMessage(req.Params.Arguments), Custom: t.Custom}
		if args := bytes.TrimSpace(call.Arguments); len(args) == 0 || string(args) == "null" {
			call.Arguments = json.RawMessage("{}")
		}
		if t.Custom {
			var in struct {
				Input *string `json:"input"`
			}
			if err := json.Unmarshal(call.Arguments, &in); err != nil || in.Input == nil {
				return failed("input: expected a string"), nil
			}
			call.Arguments = json.RawMessage(*in.Input)
		}
		ctx, stop := whileWanted(ctx)
		defer stop()
		report := newReport(ctx, req)
		defer report.end()
		defer s.enter(t)()
		defer s.place(ctx)()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		res, err := s.loop.Call(ctx, call, report.event)
		switch {
		case err == nil:
			return served(res.Output, structured), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, fnloop.ErrApproval):
			return failed("not run: the call needs the approval of a person, who cannot be asked here"), nil
		}
		s.log.ErrorContext(ctx, "tool failed", "tool", t.Name, "error", err)
		return failed("the tool failed"), nil
	}
}

// enter waits for the calls that the tool's calls may not run beside.
func (s *service) enter(t *fnloop.Tool) (leave func()) {
	if t.Serial {
		s.serial.Lock()
		return s.serial.Unlock
	}
	if t.Ordered {
		m, _ := s.ordered.LoadOrStore(t.Name, new(sync.Mutex))
		m.(*sync.Mutex).Lock()
		s.serial.RLock()
		return func() {
			s.serial.RUnlock()
			m.(*sync.Mutex).Unlock()
		}
	}
	s.serial.RLock()
	return s.serial.RUnlock
}

// place waits until a call may run beside the others, or ctx ends.
func (s *service) place(ctx context.Context) (leave func()) {
	if s.places == nil {
		return func() {}
	}
	select {
	case s.places <- struct{}{}:
		return func() { <-s.places }
	case <-ctx.Done():
		return func() {}
	}
}

func failed(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: true}
}

// served is what a client gets of an output.
func served(out fnloop.Output, structured bool) *mcp.CallToolResult {
	res := &mcp.CallToolResult{IsError: out.IsError}
	if len(out.Content) == 0 {
		res.Content = []mcp.Content{&mcp.TextContent{Text: out.Text}}
	}
	text := out.Text
	for i, c := range out.Content {
		if i == 0 && c.Text != "" {
			text = c.Text
		}
		res.Content = append(res.Content, servedPart(c))
	}
	if structured && !out.IsError {
		if !json.Valid([]byte(text)) {
			return failed("the tool ran, but its result is not of the form that it has to be of")
		}
		res.StructuredContent = json.RawMessage(text)
	}
	return res
}

// servedPart is a part of an output as a client gets it.
func servedPart(c fnloop.Content) mcp.Content {
	switch {
	case c.ImageURL != "":
		if kind, data, ok := fromDataURL(c.ImageURL); ok {
			return &mcp.ImageContent{MIMEType: kind, Data: data}
		}
		return &mcp.ResourceLink{URI: c.ImageURL, Name: "image"}
	case c.FileData != "":
		if kind, data, ok := fromDataURL(c.FileData); ok {
			return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: (&url.URL{Scheme: "file", Path: "/" + c.FileName}).String(), MIMEType: kind, Blob: data}}
		}
	case c.FileURL != "":
		return &mcp.ResourceLink{URI: c.FileURL, Name: "file"}
	case c.ImageID != "" || c.FileID != "":
		return &mcp.TextContent{Text: "[a file that only the API of the tool's owner can read: " + c.ImageID + c.FileID + "]"}
	}
	return &mcp.TextContent{Text: c.Text}
}

func fromDataURL(s string) (kind string, data []byte, ok bool) {
	s, ok = strings.CutPrefix(s, "data:")
	kind, encoded, found := strings.Cut(s, ";base64,")
	data, err := decode(encoded)
	return kind, data, ok && found && err == nil
}

// A writer is standard output, which stays open.
type writer struct{ io.Writer }

func (writer) Close() error { return nil }
