package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/chatstore"
)

// The test binary is the server too, so that one can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("CHAT_TEST_SERVE") != "" {
		main()
		return
	}
	if os.Getenv("CHAT_TEST_LOADED") != "" {
		serveLoaded()
		return
	}
	os.Exit(m.Run())
}

// A process is a server that runs by itself.
type process struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	url  string
	mu   sync.Mutex
	out  bytes.Buffer
}

// launch starts a server with a database of its own, unless the arguments name one.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: append([]string{"-db", filepath.Join(t.TempDir(), "chat.db")}, args...)}
	p.start("127.0.0.1:0")
	t.Cleanup(func() {
		if p.cmd != nil {
			p.end(syscall.SIGTERM)
		}
	})
	return p
}

func (p *process) start(addr string) {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], append([]string{"-addr", addr}, p.args...)...)
	p.cmd.Env = append(os.Environ(), "CHAT_TEST_SERVE=1", "OPENAI_API_KEY=")
	p.cmd.Stderr = &locked{p: p}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, p.cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	require.NoError(p.t, err, p.output())
	p.url = strings.TrimSpace(strings.TrimPrefix(line, "The chat is at "))
	go io.Copy(&locked{p: p}, lines)
}

type locked struct{ p *process }

func (l *locked) Write(b []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// end ends the server with a signal and returns its exit code.
func (p *process) end(s syscall.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return code
}

// again starts the server anew, where browsers look for it.
func (p *process) again() {
	p.t.Helper()
	p.start(strings.TrimPrefix(p.url, "http://"))
}

// A visitor is a user without a browser.
type visitor struct {
	t   *testing.T
	url string
	http.Client
}

func visit(t *testing.T, url string) *visitor {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &visitor{t, url, http.Client{Jar: jar}}
}

// A reply is what the server said.
type answered struct {
	status int
	header http.Header
	body   string
}

func (v *visitor) do(method, path, contentType string, body io.Reader, header ...string) answered {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, body)
	require.NoError(v.t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := v.Do(req)
	require.NoError(v.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	return answered{res.StatusCode, res.Header, string(b)}
}

func (v *visitor) get(path string, header ...string) answered {
	v.t.Helper()
	return v.do(http.MethodGet, path, "", nil, header...)
}

// newChat begins a chat. The user's first request is made by one at a time: it sets
// the cookie.
func (v *visitor) newChat() string {
	v.t.Helper()
	r := v.do(http.MethodPost, "/chats", "", nil)
	require.Equal(v.t, http.StatusCreated, r.status, r.body)
	var c chatstore.Chat
	require.NoError(v.t, json.Unmarshal([]byte(r.body), &c))
	return c.ID
}

type upload struct {
	name string
	data []byte
}

// send posts a message: fields are names and values in turn.
func (v *visitor) send(chat string, files []upload, fields ...string) answered {
	v.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(v.t, w.WriteField(fields[i], fields[i+1]))
	}
	for _, f := range files {
		part, err := w.CreateFormFile("file", f.name)
		require.NoError(v.t, err)
		part.Write(f.data)
	}
	require.NoError(v.t, w.Close())
	return v.do(http.MethodPost, "/chats/"+chat+"/runs", w.FormDataContentType(), &body)
}

// A state is what the page is told of a chat.
type state struct {
	Chat    chatstore.Chat  `json:"chat"`
	Runs    []chatstore.Run `json:"runs"`
	Running bool            `json:"running"`
}

func (v *visitor) state(chat string) state {
	v.t.Helper()
	r := v.get("/chats/" + chat)
	require.Equal(v.t, http.StatusOK, r.status, r.body)
	var s state
	require.NoError(v.t, json.Unmarshal([]byte(r.body), &s))
	return s
}

// ask posts a message to the end of a chat and waits for the end of the run.
func (v *visitor) ask(chat, text string, files ...upload) state {
	v.t.Helper()
	s := v.state(chat)
	r := v.send(chat, files, "version", fmt.Sprint(s.Chat.Version), "parent", s.Chat.Head, "text", text)
	require.Equal(v.t, http.StatusAccepted, r.status, r.body)
	return v.wait(chat)
}

func (v *visitor) wait(chat string) state {
	v.t.Helper()
	var s state
	require.Eventually(v.t, func() bool { s = v.state(chat); return !s.Running }, 30*time.Second, 20*time.Millisecond)
	return s
}

// needs skips a test where something is not installed, and fails it if CI is set.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}
