package mcptool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
)

// What is taken of one server's list. A request lists no more than 128 tools.
const (
	maxPages = 100
	maxPage  = 20_000 // entries of one
	maxTools = 1000   // and as many that cannot be used
)

// A LeftOutError names the tools of a server that cannot be used. [Conn.Tools] and
// [Tools] return it beside the others, which can.
type LeftOutError struct {
	Server string // its name
	Tools  []LeftOut
}

// A LeftOut is a tool that cannot be used. Tool is the server's own name for it,
// which may be empty, and Reason says why.
type LeftOut struct{ Tool, Reason string }

func (e *LeftOutError) Error() string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "mcptool: server %s: left out: ", e.Server)
	for i, t := range e.Tools[:min(len(e.Tools), most)] {
		if i > 0 {
			b.WriteString("; ")
		}
		if t.Tool != "" {
			fmt.Fprintf(&b, "%.80q: ", t.Tool)
		}
		b.WriteString(t.Reason)
	}
	if n := len(e.Tools) - most; n > 0 {
		fmt.Fprintf(&b, "; and %d more", n)
	}
	return b.String()
}

// Tools gives the tools of a session that you have made with go-sdk, with what s
// says of their use. s needs a Name, and no Command or URL. The caller closes
// session, after the last run.
//
// go-sdk hands a schema on as a map, so that the order of its members is lost, and
// with it the exact value of numbers above 2^53. There is no live output of
// progress, and no new session when this one ends. [Connect] has all that.
func Tools(ctx context.Context, session *mcp.ClientSession, s Server) ([]fnloop.Tool, error) {
	if err := s.checkUse(); err != nil {
		return nil, err
	}
	if s.Command != "" || s.URL != "" {
		return nil, &fnloop.ConfigError{Field: "Server.Command", Reason: "or URL is set beside a session; use Connect for it"}
	}
	if session == nil {
		return nil, &fnloop.ConfigError{Field: "session", Reason: "is nil"}
	}
	l := &listing{server: &s}
	err := l.pages(func(cursor string) (string, error) {
		page, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return "", err
		}
		for _, t := range page.Tools {
			l.add(encode(t), nil)
		}
		return page.NextCursor, nil
	})
	if err != nil {
		return nil, &ServerError{Server: s.Name, Err: err}
	}
	return l.tools(func(ctx context.Context, tool string, args json.RawMessage) (fnloop.Output, error) {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args, Meta: s.meta(ctx)})
		switch {
		case ctx.Err() != nil:
			return fnloop.Output{}, ctx.Err()
		case err != nil:
			return s.failed(err, !errors.Is(err, mcp.ErrConnectionClosed)), &ServerError{Server: s.Name, Err: err}
		}
		return output(encode(result)), nil
	})
}

// encode is v as JSON, without HTML escapes.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// A listing is a server's list of tools as it comes in.
type listing struct {
	server *Server
	found  []described
	left   []LeftOut
	names  map[string]bool
}

// A described is a tool as its server describes it.
type described struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations struct {
		Title string `json:"title"`
	} `json:"annotations"`
}

// pages reads pages until there are no more. read reads the one at a cursor and
// gives the next one.
func (l *listing) pages(read func(cursor string) (string, error)) error {
	seen := make(map[string]bool)
	cursor := ""
	for range maxPages {
		next, err := read(cursor)
		switch {
		case err != nil:
			return err
		case l.full():
			l.found = l.found[:min(len(l.found), maxTools)]
			l.omit("", fmt.Sprintf("what comes after the first %d tools", maxTools))
			return nil
		case next == "":
			return nil
		case seen[next]:
			l.omit("", "what comes after a page that was listed before: the server repeats itself")
			return nil
		}
		seen[next], cursor = true, next
	}
	l.omit("", fmt.Sprintf("what comes after %d pages", maxPages))
	return nil
}

// full reports whether more was listed than is taken.
func (l *listing) full() bool { return len(l.found) > maxTools || len(l.left) > maxTools }

func (l *listing) omit(tool, reason string) { l.left = append(l.left, LeftOut{tool, reason}) }

// add takes in one tool as the server wrote it. known are the names of those that
// go-sdk can call; nil means all.
func (l *listing) add(raw json.RawMessage, known map[string]bool) {
	if l.full() {
		return
	}
	var d described
	if err := json.Unmarshal(raw, &d); err != nil || d.Name == "" || known != nil && !known[d.Name] {
		l.omit(d.Name, "it is not described as a tool has to be")
		return
	}
	switch s := l.server; {
	case len(s.Only) > 0 && !slices.Contains(s.Only, d.Name), slices.Contains(s.Except, d.Name):
	case l.names[d.Name]:
		l.omit(d.Name, "the server lists it twice; the first one is taken")
	default:
		if l.names == nil {
			l.names = make(map[string]bool)
		}
		l.names[d.Name] = true
		l.found = append(l.found, d)
	}
}

// tools makes tools of what was listed, whose calls are made by call.
func (l *listing) tools(call func(ctx context.Context, tool string, args json.RawMessage) (fnloop.Output, error)) ([]fnloop.Tool, error) {
	s := l.server
	for _, name := range s.Only {
		if !l.names[name] && !slices.Contains(s.Except, name) {
			l.omit(name, "the server has no tool of that name, which Server.Only lists")
		}
	}
	tools := make([]fnloop.Tool, 0, len(l.found))
	taken := make(map[string]bool)
	for _, d := range l.found {
		t, err := s.tool(d)
		switch {
		case err != nil:
			l.omit(d.Name, err.Error())
			continue
		case taken[t.Name]: // of a name that was made to look like a hash
			l.omit(d.Name, fmt.Sprintf("another tool of the server is called %s too", t.Name))
			continue
		case s.Pin != nil && !s.Pin(d.Name, digest(d)):
			l.omit(d.Name, "Server.Pin refuses it: it is not as it was when it was approved")
			continue
		}
		taken[t.Name] = true
		t.Handle = func(ctx context.Context, c fnloop.Call) (fnloop.Output, error) {
			args := bytes.TrimSpace(c.Arguments)
			if len(args) == 0 {
				args = []byte("{}")
			}
			if args[0] != '{' || !json.Valid(args) {
				return fnloop.Output{}, &fnloop.ArgumentsError{Tool: c.Name, Reason: "the arguments are not a JSON object"}
			}
			return call(ctx, d.Name, args)
		}
		tools = append(tools, t)
	}
	if len(l.left) > 0 {
		return tools, &LeftOutError{Server: s.Name, Tools: l.left}
	}
	return tools, nil
}

// tool is the tool that d describes, without its handler.
func (s *Server) tool(d described) (fnloop.Tool, error) {
	description := d.Description
	for _, other := range []string{d.Title, d.Annotations.Title} {
		if description == "" {
			description = other
		}
	}
	if n := len(description) + len(d.InputSchema); n > maxDescribed {
		return fnloop.Tool{}, fmt.Errorf("its description and schema have %d bytes, more than the %d that are sent with each request", n, maxDescribed)
	}
	params, strict, err := parameters(d.InputSchema)
	if err != nil {
		return fnloop.Tool{}, err
	}
	return fnloop.Tool{
		Name: ToolName(s.Name, d.Name), Description: description, Parameters: params, NonStrict: !strict,
		NeedsApproval: s.NeedsApproval, Timeout: s.Timeout,
	}, nil
}

// digest stands for what the model and a person see of a tool.
func digest(d described) string {
	schema := new(bytes.Buffer)
	if json.Compact(schema, d.InputSchema) != nil {
		schema.Write(d.InputSchema)
	}
	sum := sha256.Sum256(encode([]string{d.Name, d.Title, d.Description, d.Annotations.Title, schema.String()}))
	return hex.EncodeToString(sum[:])
}

func (s *Server) meta(ctx context.Context) mcp.Meta {
	if s.Meta == nil {
		return nil
	}
	meta := mcp.Meta{}
	for k, v := range s.Meta(ctx) {
		meta[k] = v
	}
	return meta
}
