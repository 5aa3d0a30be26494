package mcptool_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/mcptool"
)

func TestReadServers(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"TOKEN": "secret", "HOME": "/home/ada"}[name]
		return v, ok
	}
	for _, c := range []struct {
		name, file string
		want       []mcptool.Server
		err        string
	}{
		{"desktop", `{"mcpServers":{"python":{"command":"askpy","args":["mcp"]},"files":{"command":"npx","args":["-y","x","${HOME}"],"env":{"B":"${TOKEN}","A":"1"}}}}`, []mcptool.Server{
			{Name: "files", Command: "npx", Args: []string{"-y", "x", "/home/ada"}, Env: []string{"A=1", "B=secret"}},
			{Name: "python", Command: "askpy", Args: []string{"mcp"}},
		}, ""},
		{"VS Code", `{"servers":{"My Server__1":{"type":"stdio","command":"x","cwd":"/tmp"},"off":{"command":"y","disabled":true}},"inputs":[]}`, []mcptool.Server{{Name: "My-Server_1", Command: "x", Dir: "/tmp"}}, ""},
		{"default", `{"mcpServers":{"a":{"command":"${X:-x}","args":["${HOME:-/}","${X:-}"]}}}`, []mcptool.Server{{Name: "a", Command: "x", Args: []string{"/home/ada", ""}}}, ""},
		{"none", `{"mcpServers":{}}`, nil, ""},
		{"another file", `{"name":"x"}`, nil, `neither "mcpServers" nor "servers"`},
		{"no JSON", `mcp`, nil, "not a file of servers"},
		{"input", `{"servers":{"a":{"command":"x","args":["${input:key}"]}}}`, nil, `server "a": the variable ${input:key} is not set`},
		{"nowhere", `{"servers":{"a":{}}}`, nil, "Server.Command (a): is empty"},
		{"old", `{"mcpServers":{"a":{"type":"sse","url":"http://h/sse"}}}`, nil, "which the protocol has given up"},
	} {
		got, err := mcptool.ReadServers([]byte(c.file), lookup)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}

	var given string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { given = r.Header.Get("Authorization") }))
	defer srv.Close()
	servers, err := mcptool.ReadServers([]byte(`{"mcpServers":{"a":{"type":"http","url":"`+srv.URL+`","headers":{"Authorization":"Bearer ${env:TOKEN}"}}}}`), lookup)
	require.NoError(t, err)
	resp, err := servers[0].HTTPClient.Get(srv.URL)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, "Bearer secret", given)

	elsewhere := httptest.NewServer(http.RedirectHandler(srv.URL, http.StatusTemporaryRedirect))
	defer elsewhere.Close()
	servers, err = mcptool.ReadServers([]byte(`{"mcpServers":{"a":{"url":"`+elsewhere.URL+`","headers":{"Authorization":"Bearer secret"}}}}`), lookup)
	require.NoError(t, err)
	resp, err = servers[0].HTTPClient.Get(elsewhere.URL)
	require.NoError(t, err)
	resp.Body.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	assert.Equal(t, srv.URL, resp.Request.URL.String())
	assert.Empty(t, given, "a server has redirected elsewhere")
}
