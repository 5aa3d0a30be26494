package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

// mcpServers are the servers that --mcp names.
func mcpServers(flags []string) ([]mcptool.Server, error) {
	var servers []mcptool.Server
	for _, flag := range flags {
		name, where, ok := strings.Cut(flag, "=")
		if !ok || strings.ContainsAny(name, `/\.`) { // a file
			data, err := os.ReadFile(flag)
			if err != nil {
				return nil, usagef("--mcp %s: the file cannot be read: %v\na server is given as name=command or name=https://address", flag, cause(err))
			}
			more, err := mcptool.ReadServers(data, os.LookupEnv)
			if err != nil {
				return nil, usagef("--mcp %s: %s", flag, bareMCP(err))
			}
			servers = append(servers, more...)
			continue
		}
		s := mcptool.Server{Name: name}
		if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
			s.URL = where
		} else {
			words, err := splitWords(where)
			if err != nil {
				return nil, usagef("--mcp %s: %v", name, err)
			}
			if len(words) == 0 {
				return nil, usagef("--mcp %s: there is no command after the =", name)
			}
			s.Command, s.Args = words[0], words[1:]
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// splitWords splits a command as a shell does, with quotes and backslashes and
// nothing else.
func splitWords(s string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	in, escaped := false, false
	for _, r := range s {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			in, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			in, quote = true, r
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		default:
			in = true
			word.WriteRune(r)
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote is not closed")
	case escaped:
		return nil, errors.New("there is nothing after the last backslash")
	case in:
		words = append(words, word.String())
	}
	return words, nil
}

// openMCP connects to the servers of --mcp. One that is down, or has a tool that
// cannot be used, is told of and keeps nothing from working; it is an error only
// where nothing is left.
func (q *question) openMCP(ctx context.Context) error {
	servers, err := mcpServers(q.opts.mcp)
	if err != nil || len(servers) == 0 {
		return err
	}
	q.progress.Start("starting MCP servers")
	defer q.progress.Idle()
	q.servers, err = mcptool.ConnectAll(ctx, servers...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, bad := errors.AsType[*fnloop.ConfigError](err); bad {
		return usagef("--mcp: %s", bareMCP(err))
	}
	if len(q.servers) == 0 {
		return err
	}
	if err != nil {
		q.progress.Failure(bareMCP(err))
	}
	for _, c := range q.servers {
		tools, err := c.Tools(ctx)
		if err != nil {
			q.progress.Failure(bareMCP(err))
		}
		q.progress.Detail(fmt.Sprintf("server %s: tools: %d", c.Name(), len(tools)))
		q.serverTools = append(q.serverTools, tools...)
	}
	return nil
}

// bareMCP is the text of an error without the package that it is of.
func bareMCP(err error) string {
	return strings.NewReplacer("mcptool: ", "", "fnloop: ", "").Replace(err.Error())
}
