package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ReadServers reads the servers of a file in the form that MCP clients use: an object
// of servers by name, below "mcpServers" (Claude Desktop, Claude Code, Cursor) or
// "servers" (VS Code), each with command, args, env and cwd, or with url and headers.
// They come sorted by name. A character that a name may not have becomes a '-'. Those
// that are "disabled" are left out.
//
// ${NAME} and ${env:NAME} stand for variables, which lookup gives, as [os.LookupEnv]
// does, and ${NAME:-text} for text where the variable is not set; any other ${…} is an
// error. Variables are replaced in values alone. Headers go to the host of the url and
// to no other one that it redirects to.
func ReadServers(data []byte, lookup func(name string) (value string, ok bool)) ([]Server, error) {
	type entry struct {
		Type     string            `json:"type"`
		Command  string            `json:"command"`
		Args     []string          `json:"args"`
		Env      map[string]string `json:"env"`
		Cwd      string            `json:"cwd"`
		URL      string            `json:"url"`
		Headers  map[string]string `json:"headers"`
		Disabled bool              `json:"disabled"`
	}
	var file struct {
		MCPServers map[string]entry `json:"mcpServers"`
		Servers    map[string]entry `json:"servers"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("mcptool: not a file of servers: %w", err)
	}
	entries := file.MCPServers
	if entries == nil {
		entries = file.Servers
	}
	if entries == nil {
		return nil, errors.New(`mcptool: not a file of servers: it has neither "mcpServers" nor "servers"`)
	}
	var servers []Server
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		if e.Disabled {
			continue
		}
		var failed error
		value := func(s string) string {
			v, err := replace(s, lookup)
			if err != nil && failed == nil {
				failed = fmt.Errorf("mcptool: server %q: %w", name, err)
			}
			return v
		}
		s := Server{Name: legalName(name), Command: value(e.Command), Dir: value(e.Cwd), URL: value(e.URL)}
		for _, a := range e.Args {
			s.Args = append(s.Args, value(a))
		}
		for _, k := range slices.Sorted(maps.Keys(e.Env)) {
			s.Env = append(s.Env, k+"="+value(e.Env[k]))
		}
		if len(e.Headers) > 0 {
			h := headers{url: s.URL, set: make(map[string]string)}
			for k, v := range e.Headers {
				h.set[k] = value(v)
			}
			s.HTTPClient = &http.Client{Transport: h}
		}
		if failed == nil && e.Type == "sse" {
			failed = fmt.Errorf("mcptool: server %q: its type is sse, which the protocol has given up; it needs one of type http", name)
		}
		if failed == nil {
			failed = s.check()
		}
		if failed != nil {
			return nil, failed
		}
		servers = append(servers, s)
	}
	return servers, nil
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// replace puts variables into s.
func replace(s string, lookup func(string) (string, bool)) (string, error) {
	var failed error
	s = variable.ReplaceAllStringFunc(s, func(match string) string {
		name, otherwise, optional := strings.Cut(strings.TrimPrefix(match[2:len(match)-1], "env:"), ":-")
		v, ok := lookup(name)
		if !ok && optional {
			return otherwise
		}
		if !ok && failed == nil {
			failed = fmt.Errorf("the variable %s is not set", match)
		}
		return v
	})
	return s, failed
}

// legalName makes the name of a server of one in a file.
func legalName(name string) string {
	name = strings.Map(func(r rune) rune {
		if checkServerName(string(r)) == nil || r == '_' {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(name, separator) {
		name = strings.ReplaceAll(name, separator, "_")
	}
	return strings.TrimRight(name, "_")
}

// headers is a transport that adds headers to what goes to the host of a URL. They
// hold secrets, which are not for a host that this one redirects to.
type headers struct {
	url string
	set map[string]string
}

func (h headers) RoundTrip(req *http.Request) (*http.Response, error) {
	if u, err := url.Parse(h.url); err == nil && u.Scheme == req.URL.Scheme && u.Host == req.URL.Host {
		req = req.Clone(req.Context())
		for k, v := range h.set {
			req.Header.Set(k, v)
		}
	}
	return http.DefaultTransport.RoundTrip(req)
}
