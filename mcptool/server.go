package mcptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/fnloop/fnloop"
)

// Defaults of a Server's fields.
const (
	DefaultStartTimeout = time.Minute
	DefaultStopTimeout  = 2 * time.Second
	DefaultMaxMessage   = 32 << 20
)

// A Server says how to reach an MCP server, and what of it is used: a Command that
// is started and speaks the protocol on its standard streams, or a URL.
//
// In its numbers and durations zero means the default.
type Server struct {
	// Name is what the server is called here. The names of its tools begin with
	// it; see [ToolName]. It has at most 32 letters, digits, '-' and '_', and is
	// required.
	Name string

	// Command is the program, Args are its arguments, and Dir is the folder that
	// it runs in; empty means the current one.
	Command string
	Args    []string
	Dir     string
	// Env has variables of the form NAME=value. Beside them the process gets HOME,
	// LOGNAME, PATH, SHELL, TERM and USER of this process (on Windows those that
	// programs need there) and nothing else.
	Env []string
	// Stderr, if not nil, gets what the process writes to its standard error. The
	// end of it is in errors anyhow.
	Stderr io.Writer

	// URL is the address of a server that is reached over HTTP. HTTPClient makes
	// the requests; nil means [http.DefaultClient]. Headers of your own are for
	// its Transport. OAuth, if not nil, authorizes the requests.
	URL        string
	HTTPClient *http.Client
	OAuth      auth.OAuthHandler

	// Only, if not empty, lists the tools that are taken, by the server's own
	// names. Except lists those that are not.
	Only, Except []string
	// NeedsApproval becomes that of each tool; nil means that no call needs
	// approval. [fnloop.Always] is such a function. The name of the call is that
	// of [ToolName].
	NeedsApproval func(context.Context, fnloop.Call) bool
	// Pin, if not nil, reports whether a tool may be used that looks as the digest
	// says. The digest is a hash of the tool's name, description and schema.
	// Keep it when you approve a tool, and refuse another one: the tool is left out
	// then.
	Pin func(tool, digest string) bool
	// Meta, if not nil, gives what is sent as _meta with a call made in ctx, such
	// as a traceparent.
	Meta func(ctx context.Context) map[string]any
	// Timeout becomes that of each tool. Zero means no limit but the run's own.
	Timeout time.Duration

	// StartTimeout bounds how long the server may take until it can be used, and
	// how long it may take to list its tools. Zero means DefaultStartTimeout.
	StartTimeout time.Duration
	// StopTimeout is how long a process may take to end by itself. It is then told
	// to end, and after as long again it is killed. Zero means DefaultStopTimeout.
	StopTimeout time.Duration
	// MaxMessage bounds one message of the server, in bytes. A result that is
	// larger is an error that the model reads. Zero means DefaultMaxMessage.
	MaxMessage int
	// Logger receives what a server does that it should not. Nil discards it.
	Logger *slog.Logger
}

// check reports what is wrong with s as a [*fnloop.ConfigError].
func (s *Server) check() error {
	bad := func(field string, format string, args ...any) error {
		if field != "Name" {
			field = fmt.Sprintf("%s (%s)", field, s.Name)
		}
		return &fnloop.ConfigError{Field: "Server." + field, Reason: fmt.Sprintf(format, args...)}
	}
	if err := s.checkUse(); err != nil {
		return err
	}
	switch {
	case s.Command == "" && s.URL == "":
		return bad("Command", "is empty, and URL too; one of them says where the server is")
	case s.Command != "" && s.URL != "":
		return bad("URL", "is set, and Command too; a server has one of them")
	case s.URL != "" && (len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "" || s.Stderr != nil):
		return bad("URL", "is set; Args, Env, Dir and Stderr are for a Command")
	case s.Command != "" && (s.HTTPClient != nil || s.OAuth != nil):
		return bad("Command", "is set; HTTPClient and OAuth are for a URL")
	}
	for _, v := range s.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return bad("Env", "%.40q is not of the form NAME=value", v)
		}
	}
	if i := slices.IndexFunc(append([]string{s.Command, s.Dir}, append(s.Args, s.Env...)...), func(v string) bool { return strings.Contains(v, "\x00") }); i >= 0 {
		return bad("Command", "there is a NUL in it, its arguments or its environment")
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return bad("URL", "is no web address; it should look like https://host/mcp")
		}
	}
	return nil
}

// checkUse is check for what a session of somebody else's needs.
func (s *Server) checkUse() error {
	if err := checkServerName(s.Name); err != nil {
		return &fnloop.ConfigError{Field: "Server.Name", Reason: err.Error()}
	}
	return nil
}

func (s *Server) startTimeout() time.Duration { return orDefault(s.StartTimeout, DefaultStartTimeout) }
func (s *Server) stopTimeout() time.Duration  { return orDefault(s.StopTimeout, DefaultStopTimeout) }
func (s *Server) maxMessage() int             { return orDefault(s.MaxMessage, DefaultMaxMessage) }

func (s *Server) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger.With("mcp_server", s.Name)
}

// orDefault is value, or the default where it is not positive: none of the limits
// of a server can be left out.
func orDefault[T int | time.Duration](value, byDefault T) T {
	if value <= 0 {
		return byDefault
	}
	return value
}

// A ServerError says what went wrong with a server, and where it is a process, the
// end of what that wrote to its standard error.
type ServerError struct {
	Server string // its name
	Stderr string
	Err    error

	url string // which may hold secrets
}

func (e *ServerError) Error() string {
	text := e.Err.Error()
	if u, err := url.Parse(e.url); err == nil && e.url != "" {
		plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		for _, secret := range []string{e.url, u.String(), u.Redacted()} {
			text = strings.ReplaceAll(text, secret, plain.String())
		}
	}
	text = fmt.Sprintf("mcptool: server %s: %s", e.Server, text)
	if e.Stderr != "" {
		text += "\nit wrote to its standard error:\n" + e.Stderr
	}
	return text
}

// Unwrap returns e.Err.
func (e *ServerError) Unwrap() error { return e.Err }

// Errors within a [*ServerError].
var (
	// ErrClosed is for what is asked of a Conn after Close.
	ErrClosed = errors.New("the connection is closed")
	errSilent = errors.New("the server does not answer")
)
