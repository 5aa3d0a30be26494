package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/version"
)

// legacy is the revision of the protocol that servers speak which do not know of
// newer ones.
const legacy = "2025-11-25"

// A Conn is a connection to a server. When the server ends, or loses the session,
// the next call connects anew. It is safe for concurrent use.
type Conn struct {
	server Server
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	connecting chan struct{} // held while a session is made
	mu         sync.Mutex    // of what follows
	session    *session      // nil when there is none
	protocol   string        // the revision that the server spoke; empty when that is not known
	ending     sync.WaitGroup

	tokens   atomic.Int64
	progress sync.Map // token to *progress
}

// A session is one process, or one session over HTTP.
type session struct {
	*mcp.ClientSession
	ctx     context.Context // ends when the session is given up
	cancel  context.CancelFunc
	process *process // nil over HTTP
}

// Connect starts the server, or reaches it, and agrees with it on a revision of the
// protocol. ctx bounds that and nothing later. Close the Conn after the last run.
//
// The error is a [*fnloop.ConfigError] for a field that cannot be, else a
// [*ServerError].
func Connect(ctx context.Context, s Server) (*Conn, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &Conn{server: s, connecting: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if _, err := c.open(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ConnectAll connects to servers side by side. It returns the connections that were
// made, in the order of the servers, and an error that names each of the other
// servers: one that is down does not keep the others from working. With a server
// that cannot be, or two of one name, nothing is started.
func ConnectAll(ctx context.Context, servers ...Server) ([]*Conn, error) {
	names := make(map[string]bool)
	for i := range servers {
		s := &servers[i]
		if err := s.check(); err != nil {
			return nil, err
		}
		if names[s.Name] {
			return nil, &fnloop.ConfigError{Field: "Server.Name", Reason: fmt.Sprintf("%q is the name of two servers", s.Name)}
		}
		names[s.Name] = true
	}
	conns, errs := make([]*Conn, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { conns[i], errs[i] = Connect(ctx, s) })
	}
	wg.Wait()
	made := conns[:0]
	for _, c := range conns {
		if c != nil {
			made = append(made, c)
		}
	}
	return made, errors.Join(errs...)
}

// Name is that of the [Server].
func (c *Conn) Name() string { return c.server.Name }

// Close ends the connection, and a process with all that it has started: its input
// ends, after [Server.StopTimeout] it is told to end, and after as long again it is
// killed. Calls that run end with an error. Closing twice does nothing.
func (c *Conn) Close() error {
	c.cancel()
	c.connecting <- struct{}{} // no session is being made then
	defer func() { <-c.connecting }()
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s != nil {
		s.end()
	}
	c.ending.Wait()
	return nil
}

// end ends the session and what runs in it.
func (s *session) end() {
	s.cancel() // of calls, which go-sdk would wait for
	if s.process != nil {
		s.process.stop()
	}
	_ = s.ClientSession.Close()
}

// open returns the session, and makes one where there is none.
func (c *Conn) open(ctx context.Context) (*session, error) {
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.ctx.Err() != nil {
		return nil, &ServerError{Server: c.server.Name, Err: ErrClosed}
	}
	c.mu.Lock()
	s, protocol := c.session, c.protocol
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.server.startTimeout(), fmt.Errorf("it was not ready after %v, which Server.StartTimeout allows", c.server.startTimeout()))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	s, err := c.start(ctx, protocol)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.session, c.protocol = s, s.InitializeResult().ProtocolVersion
	c.mu.Unlock()
	return s, nil
}

// drop gives up a session that is of no use any more.
func (c *Conn) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
		c.ending.Go(s.end)
	}
}

// start makes a session. A server that does not answer the first message of newer
// revisions, or ends because of it, is started again and spoken to as an older one.
func (c *Conn) start(ctx context.Context, protocol string) (*session, error) {
	if protocol != "" {
		return c.attempt(ctx, protocol, false)
	}
	s, err := c.attempt(ctx, "", true)
	if err == nil || ctx.Err() != nil || !startAgain(err) {
		return s, err
	}
	first := err
	s, err = c.attempt(ctx, legacy, false)
	if answer(err) != nil && errors.Is(first, errSilent) {
		s, err = c.attempt(ctx, "", false) // it is a newer one, and slow
	}
	return s, err
}

// startAgain reports whether another attempt may succeed.
func startAgain(err error) bool {
	return errors.Is(err, errSilent) || errors.Is(err, errEnded)
}

// errEnded is in the error of an attempt whose process ended.
var errEnded = errors.New("the server ended")

// attempt makes a session that speaks a revision, or the newest that both know. If
// probe is set the server must say its first word soon.
func (c *Conn) attempt(ctx context.Context, protocol string, probe bool) (s *session, err error) {
	s = new(session)
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	var transport mcp.Transport
	if c.server.URL != "" {
		transport = c.overHTTP()
		if probe {
			timer := time.AfterFunc(5*probeTimeout, func() { give(errSilent) })
			defer timer.Stop()
		}
	} else {
		p, err := startProcess(&c.server)
		if err != nil {
			s.cancel()
			return nil, &ServerError{Server: c.server.Name, Err: fmt.Errorf("it cannot be started: %w", err)}
		}
		conn := newStdioConn(p, c.server.maxMessage(), c.server.logger())
		s.process, transport = p, conn
		defer context.AfterFunc(ctx, p.kill)() // go-sdk would give it time
		if probe {
			go func() {
				if conn.silent(ctx) {
					give(errSilent)
				}
			}()
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "fnloop", Version: version.Version}, &mcp.ClientOptions{
		Logger:                      c.server.logger(),
		Capabilities:                &mcp.ClientCapabilities{}, // or the server asks for what nobody answers
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: c.notify,
	})
	s.ClientSession, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err == nil {
		return s, nil
	}
	s.cancel()
	failed := &ServerError{Server: c.server.Name, Err: err, url: c.server.URL}
	if ctx.Err() != nil {
		failed.Err = context.Cause(ctx)
	}
	if s.process != nil {
		s.process.kill()
		s.process.stop()
		failed.Stderr = s.process.stderr.String()
		if answer(err) == nil && ctx.Err() == nil {
			failed.Err = fmt.Errorf("%w before it could be used: %w", errEnded, err)
			if s.process.err != nil {
				failed.Err = fmt.Errorf("%w before it could be used: %w", errEnded, s.process.err)
			}
		}
	}
	return nil, failed
}

// overHTTP is the transport to a URL.
func (c *Conn) overHTTP() mcp.Transport {
	client := new(http.Client)
	if c.server.HTTPClient != nil {
		*client = *c.server.HTTPClient
	}
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = &watcher{next: next, max: c.server.maxMessage(), log: c.server.logger()}
	return &mcp.StreamableClientTransport{
		Endpoint: c.server.URL, HTTPClient: client, OAuthHandler: c.server.OAuth, MaxEventSize: c.server.maxMessage(),
		DisableStandaloneSSE: true, // it would only bring what is not listened to
	}
}

// Tools asks the server for its tools, all pages of them, and gives those that can
// be used. The others are named in a [*LeftOutError] beside them; any other error
// means that there are none. The list is asked for each time, so it is that of the
// moment; a run keeps the tools that its Loop has.
//
// A tool is strict where its schema passes [fnloop.CheckStrict], else NonStrict.
// Its schema is sent as the server wrote it, and the server judges the arguments.
func (c *Conn) Tools(ctx context.Context) ([]fnloop.Tool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.server.startTimeout(), errors.New("it did not list its tools within Server.StartTimeout"))
	defer cancel()
	for again := true; ; again = false {
		s, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		l := &listing{server: &c.server}
		err = l.pages(func(cursor string) (string, error) { return c.page(ctx, s, l, cursor) })
		if err == nil {
			return l.tools(c.call)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if answer(err) == nil {
			c.drop(s)
			if again {
				continue
			}
			return nil, c.failure(s, err)
		}
		return nil, &ServerError{Server: c.server.Name, Err: err, url: c.server.URL}
	}
}

// page reads one page into l, and gives the cursor of the next one.
func (c *Conn) page(ctx context.Context, s *session, l *listing, cursor string) (next string, err error) {
	x := &exchange{method: methodList}
	defer x.end()
	ctx, stop := s.within(withExchange(ctx, x))
	defer stop()
	params := &mcp.ListToolsParams{Cursor: cursor}
	got, err := s.ListTools(ctx, params)
	if err != nil {
		return "", err
	}
	var page struct {
		Tools json.RawMessage `json:"tools"`
	}
	err = json.Unmarshal(x.result, &page)
	tools, more, listErr := elements(page.Tools, maxPage)
	if err = errors.Join(err, listErr); err != nil {
		return "", fmt.Errorf("its list of tools is not of the form that the protocol asks for: %w", err)
	}
	known := make(map[string]bool, len(got.Tools))
	for _, t := range got.Tools {
		known[t.Name] = true
	}
	for _, raw := range tools {
		l.add(raw, known)
	}
	if more {
		l.omit("", fmt.Sprintf("what comes after the first %d of a page", maxPage))
	}
	return got.NextCursor, nil
}

// within is ctx that ends with the session, too.
func (s *session) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// failure is the error for the host of a session that is given up.
func (c *Conn) failure(s *session, err error) *ServerError {
	e := &ServerError{Server: c.server.Name, Err: err, url: c.server.URL}
	if s.process != nil {
		const most = time.Second // its streams may end before it does
		if s.process.ended(most) {
			e.Err = s.process.end()
		}
		e.Stderr = s.process.stderr.String()
	}
	return e
}
