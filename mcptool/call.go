package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
)

// call makes a call. A session that turns out to be gone before the call was sent is
// replaced, once; a call that may have run is never made again.
func (c *Conn) call(ctx context.Context, tool string, args json.RawMessage) (fnloop.Output, error) {
	for again := true; ; again = false {
		s, err := c.open(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return fnloop.Output{}, ctx.Err()
			}
			return fnloop.Output{Text: fmt.Sprintf("the server %s cannot be reached, so the call was not made", c.server.Name)}, err
		}
		x := &exchange{method: methodCall}
		err = c.callOnce(ctx, s, x, tool, args)
		if err == nil {
			return output(x.result), nil
		}
		if ctx.Err() != nil {
			return fnloop.Output{}, ctx.Err()
		}
		sent, status := x.written.Load(), int(x.status.Load())
		switch {
		case status == http.StatusNotFound, status == http.StatusBadRequest && s.ID() != "", errors.Is(err, mcp.ErrSessionMissing):
			sent = false // the server does not know the session, and has run nothing
		case answer(err) != nil, status != 0:
			out := c.server.failed(err, sent)
			if status != 0 && answer(err) == nil {
				out.Text = fmt.Sprintf("the server %s answered with %d %s", c.server.Name, status, http.StatusText(status))
				if status >= http.StatusInternalServerError {
					out.Text += "; what the call did is not known"
				}
			}
			return out, &ServerError{Server: c.server.Name, Err: err, url: c.server.URL}
		}
		c.drop(s)
		if !sent && again {
			continue
		}
		return c.server.failed(err, sent), c.failure(s, err)
	}
}

// callOnce makes a call in a session, and passes on what the server says of its
// progress.
func (c *Conn) callOnce(ctx context.Context, s *session, x *exchange, tool string, args json.RawMessage) error {
	defer x.end()
	params := &mcp.CallToolParams{Name: tool, Arguments: args, Meta: c.server.meta(ctx)}
	if w, _ := fnloop.LiveOutput(ctx); w != nil {
		token := "fnloop-" + strconv.FormatInt(c.tokens.Add(1), 10)
		params.SetProgressToken(token)
		p := &progress{w: w, lines: make(chan string, 16), over: make(chan struct{})}
		c.progress.Store(token, p)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.write()
		}()
		defer func() {
			c.progress.Delete(token)
			close(p.over)
			<-done
		}()
	}
	ctx, stop := s.within(withExchange(ctx, x))
	defer stop()
	_, err := s.CallTool(ctx, params)
	return err
}

// answer is what a server has answered instead of a result, or nil.
func answer(err error) *jsonrpc.Error {
	a, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || a.Message == "rejected by transport" { // go-sdk's own, which it does not export
		return nil
	}
	return a
}

// failed is what the model reads of a call that has no result.
func (s *Server) failed(err error, sent bool) fnloop.Output {
	out := fnloop.Output{IsError: true}
	switch a := answer(err); {
	case a == nil && !sent:
		out.Text = fmt.Sprintf("the connection to the server %s failed before the call was made", s.Name)
	case a == nil, a.Message == lostText:
		out.Text = fmt.Sprintf("the connection to the server %s was lost while the call ran; what it did is not known", s.Name)
	case strings.HasPrefix(a.Message, leftOutText):
		out.Text = "the call was made, but " + a.Message
	default:
		out.Text = "the server refused the call: " + a.Message
	}
	return out
}

// A progress passes on what a server says of one call. A reader that is slow holds up
// nobody else: it misses some of it.
type progress struct {
	w     io.Writer
	lines chan string
	over  chan struct{} // closed when the call has ended
}

func (p *progress) write() {
	for {
		select {
		case line := <-p.lines:
			io.WriteString(p.w, line)
			continue
		default:
		}
		select {
		case line := <-p.lines:
			io.WriteString(p.w, line)
		case <-p.over:
			return
		}
	}
}

// notify takes in what a server says of the progress of a call.
func (c *Conn) notify(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	p, ok := c.progress.Load(fmt.Sprint(req.Params.ProgressToken))
	if !ok {
		return
	}
	select {
	case p.(*progress).lines <- progressLine(req.Params):
	default:
	}
}

func progressLine(p *mcp.ProgressNotificationParams) string {
	const most = 2000
	line := strconv.FormatFloat(p.Progress, 'g', -1, 64)
	if p.Total > 0 {
		line += "/" + strconv.FormatFloat(p.Total, 'g', -1, 64)
	}
	if p.Message != "" {
		line += " " + cut(p.Message, most)
	}
	return line + "\n"
}
