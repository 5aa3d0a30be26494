package responsestest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop/responsestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server for the time of the test.
func serve(t *testing.T, script ...responsestest.Reply) *responsestest.Server {
	t.Helper()
	srv := responsestest.NewServer(script...)
	t.Cleanup(srv.Close)
	return srv
}

// document is a decoded JSON object.
type document map[string]any

// at returns what is found under a path of names and indexes, or nil.
func (d document) at(path ...any) any {
	var v any = map[string]any(d)
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			a, _ := v.([]any)
			if p >= len(a) {
				return nil
			}
			v = a[p]
		}
	}
	return v
}

func (d document) id() string {
	s, _ := d["id"].(string)
	return s
}

// send makes a request in the plainest way and returns the reply as it is.
func send(t *testing.T, srv *responsestest.Server, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+srv.Key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

// do makes a request and returns the decoded reply, which has to be JSON.
func do(t *testing.T, srv *responsestest.Server, method, path, body string, header ...string) (int, document) {
	t.Helper()
	resp, text := send(t, srv, method, path, body, header...)
	var d document
	require.NoError(t, json.Unmarshal([]byte(text), &d), "body %q", text)
	require.NotEmpty(t, resp.Header.Get("X-Request-Id"))
	return resp.StatusCode, d
}

// create makes a response and fails the test if it is refused.
func create(t *testing.T, srv *responsestest.Server, body string, header ...string) document {
	t.Helper()
	status, d := do(t, srv, "POST", "/responses", body, header...)
	require.Equal(t, http.StatusOK, status, "refused: %v", d["error"])
	return d
}

// refused makes a request that has to be refused and returns status and error.
func refused(t *testing.T, srv *responsestest.Server, body string, header ...string) (int, document) {
	t.Helper()
	status, d := do(t, srv, "POST", "/responses", body, header...)
	require.GreaterOrEqual(t, status, 400, "accepted: %v", d)
	e, ok := d["error"].(map[string]any)
	require.True(t, ok, "no error object: %v", d)
	for _, key := range []string{"message", "type", "param", "code"} {
		require.Contains(t, e, key, "all four keys are always there")
	}
	require.Len(t, e, 4)
	return status, e
}

// tools is the JSON of the function tools of these names.
func tools(names ...string) string {
	var list []string
	for _, n := range names {
		list = append(list, `{"type":"function","name":"`+n+`","strict":true,"parameters":`+
			`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}`)
	}
	return `"tools":[` + strings.Join(list, ",") + `]`
}

// compactJSON returns a JSON text without white space.
func compactJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	var buf bytes.Buffer
	require.NoError(t, json.Compact(&buf, b))
	return buf.String()
}
