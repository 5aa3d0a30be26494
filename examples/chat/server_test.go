package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
	"github.com/fnloop/fnloop/internal/pgtest"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// within is a server in this process, with a model of the test's own.
func within(t *testing.T, dsn string, replies ...rt.Reply) *server {
	t.Helper()
	return withinOn(t, &fake.Runner{}, dsn, replies...)
}

func withinOn(t *testing.T, runner fnloop.Runner, dsn string, replies ...rt.Reply) *server {
	t.Helper()
	model := rt.NewServer(replies...)
	t.Cleanup(model.Close)
	store, err := openStore(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { store.DB.Close() })
	sessions := &interpreter.Sessions{Runner: runner}
	t.Cleanup(func() { sessions.Close() })
	store.KeepFiles(sessions)
	s := &server{store: store, hub: new(fnloop.Hub), log: slog.New(slog.DiscardHandler)}
	store.Running, store.Patience = s.hub.Running, 300*time.Millisecond
	s.loop = &fnloop.Loop{
		Client: model.Client(), Model: "gpt-test", State: fnloop.Stateless,
		Tools: []fnloop.Tool{sessions.Tool(), ordersTool(store.DB), refundTool(store.DB)},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = s.hub.Drain(ctx)
	})
	return s
}

func (s *server) visit(t *testing.T) *visitor {
	web := httptest.NewServer(s.handler())
	t.Cleanup(web.Close)
	return visit(t, web.URL)
}

func database(t *testing.T) string { return filepath.Join(t.TempDir(), "chat.db") }

func picture(t *testing.T) []byte {
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 3))))
	return b.Bytes()
}

func TestServer_badInput(t *testing.T) {
	v := within(t, database(t), rt.Always(react)).visit(t)
	id := v.newChat()
	refund := v.newChat()
	waits := v.ask(refund, "refund A-1001")
	require.Len(t, waits.Runs, 1)
	other := v.newChat()
	others := v.ask(other, "hello").Runs[0].ID

	for _, tt := range []struct {
		name   string
		chat   string
		files  []upload
		fields []string
		status int
		text   string
	}{
		{"nothing", id, nil, []string{"version", "0"}, 400, "The message is empty"},
		{"only spaces", id, nil, []string{"version", "0", "text", " \n"}, 400, "The message is empty"},
		{"no version", id, nil, []string{"text", "hi"}, 400, "version"},
		{"an old version", other, nil, []string{"version", "0", "text", "hi"}, 409, "another tab"},
		{"a version of the future", other, nil, []string{"version", "2", "text", "hi"}, 409, "another tab"},
		{"a parent that there is not", id, nil, []string{"version", "0", "parent", "abc", "text", "hi"}, 404, "no such"},
		{"a parent of another chat", id, nil, []string{"version", "0", "parent", others, "text", "hi"}, 404, "no such"},
		{"a chat that there is not", "nochat", nil, []string{"version", "0", "text", "hi"}, 404, "no such"},
		{"a picture that is text", id, []upload{{"a.png", []byte("<html>")}}, []string{"version", "0"}, 400, "a.png"},
		{"half a picture's header", id, []upload{{"a.jpg", []byte("\xff\xd8")}}, []string{"version", "0"}, 400, "a.jpg"},
		{"an empty picture", id, []upload{{"a.gif", nil}}, []string{"version", "0"}, 400, "a.gif"},
		{"one good picture and a bad one", id, []upload{{"a.png", picture(t)}, {"b.png", []byte("x")}}, []string{"version", "0"}, 400, "b.png"},
		{"a hidden file", id, []upload{{".bashrc", []byte("x")}}, []string{"version", "0"}, 400, ".bashrc"},
		{"too large", id, []upload{{"big.bin", make([]byte, chatstore.DefaultMaxFile+1)}}, []string{"version", "0"}, 400, "25 MiB"},
		{"a decision of nothing", refund, nil, []string{"version", "1", "parent", waits.Chat.Head, "decisions", "{}"}, 400, "decisions"},
		{"a decision that is no JSON", refund, nil, []string{"version", "1", "parent", waits.Chat.Head, "decisions", "yes"}, 400, "decisions"},
		{"a decision on a call that there is not", refund, nil, []string{"version", "1", "parent", waits.Chat.Head, "decisions", `{"call_999":{"approve":true}}`}, 409, "call_999"},
		{"a decision elsewhere", other, nil, []string{"version", "1", "parent", others, "decisions", `{"call_1":{"approve":true}}`}, 409, "call_1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := v.send(tt.chat, tt.files, tt.fields...)
			assert.Equal(t, tt.status, got.status, got.body)
			assert.Contains(t, got.body, tt.text)
			assert.Contains(t, got.body, `{"error":`)
		})
	}
	t.Run("100 MiB", func(t *testing.T) {
		body := io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n"), io.LimitReader(zeros{}, 100<<20))
		got := v.do(http.MethodPost, "/chats/"+id+"/runs", "multipart/form-data; boundary=x", body)
		assert.Equal(t, 413, got.status)
		assert.Contains(t, got.body, "32 MiB")
	})
	t.Run("no form", func(t *testing.T) {
		got := v.do(http.MethodPost, "/chats/"+id+"/runs", "application/json", strings.NewReader("{}"))
		assert.Equal(t, 400, got.status, got.body)
	})
	t.Run("from another site", func(t *testing.T) {
		req, err := http.NewRequest(http.MethodPost, v.url+"/chats", nil)
		require.NoError(t, err)
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		res, err := v.Do(req)
		require.NoError(t, err)
		res.Body.Close()
		assert.Equal(t, 403, res.StatusCode)
	})
	assert.Empty(t, v.state(id).Runs, "nothing came of any of it")
	assert.Len(t, v.state(refund).Runs, 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// What one user has another one cannot reach.
func TestServer_othersChats(t *testing.T) {
	s := within(t, database(t), rt.Always(react))
	v := s.visit(t)
	id := v.newChat()
	state := v.ask(id, "see", upload{"notes.txt", []byte("secret")}, upload{"a.png", picture(t)})
	pic := state.Runs[0].Prompt.Pictures[0]
	require.Equal(t, 200, v.get("/chats/"+id+"/files/notes.txt").status)
	got := v.get("/chats/" + id + "/files/" + pic)
	require.Equal(t, "image/png", got.header.Get("Content-Type"))
	assert.Contains(t, got.header.Get("Content-Security-Policy"), "sandbox")
	assert.Contains(t, v.get("/chats/"+id+"/files/notes.txt").header.Get("Content-Disposition"), "attachment")

	stranger := visit(t, v.url)
	stranger.newChat()
	for _, path := range []string{"", "/events", "/files/notes.txt", "/files/" + pic} {
		assert.Equal(t, 404, stranger.get("/chats/"+id+path).status, path)
	}
	assert.Equal(t, 404, stranger.do(http.MethodPost, "/chats/"+id+"/stop", "", nil).status)
	assert.Equal(t, 404, stranger.send(id, nil, "version", "1", "parent", state.Chat.Head, "text", "hi").status)
	for _, name := range []string{"..%2f..%2fetc%2fpasswd", "%00", "nothing.txt"} {
		assert.Contains(t, []int{400, 404}, v.get("/chats/"+id+"/files/"+name).status, name)
	}
}

// A site that leads its own name to the server is not answered: for a browser its pages
// are of the same origin.
func TestServer_foreignHost(t *testing.T) {
	const usual = "127.0.0.1,localhost"
	for _, c := range []struct {
		hosts, host string
		status      int
	}{
		{usual, "127.0.0.1:8080", 200},
		{usual, "localhost:8080", 200},
		{usual, "evil.example:8080", 404},
		{usual, "localhost.evil.example", 404},
		{"chat.example", "chat.example", 200},
		{"chat.example", "127.0.0.1:8080", 404},
		{"", "any.example", 200},
	} {
		s := &server{hosts: c.hosts}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = c.host
		s.handler().ServeHTTP(w, r)
		assert.Equal(t, c.status, w.Code, "%q at %q", c.host, c.hosts)
	}
}

// Of tabs that post at once one is taken.
func TestServer_tabsAtOnce(t *testing.T) {
	v := within(t, database(t), rt.Always(react)).visit(t)
	id := v.newChat()
	for round := range 5 {
		head := v.state(id).Chat.Head
		var wg sync.WaitGroup
		results := make(chan answered, 6)
		for tab := range cap(results) {
			wg.Go(func() {
				results <- v.send(id, nil, "version", strconv.Itoa(round), "parent", head, "text", fmt.Sprintf("message of tab %d", tab))
			})
		}
		wg.Wait()
		close(results)
		taken := 0
		for r := range results {
			if r.status == http.StatusAccepted {
				taken++
			} else {
				assert.Equal(t, http.StatusConflict, r.status, r.body)
			}
		}
		require.Equal(t, 1, taken)
		got := v.wait(id)
		require.Len(t, got.Runs, round+1, "nothing twice")
		require.True(t, got.Runs[round].Ended, "and nothing lost")
	}
}

// An approval is used once, however often it is sent and from where the chat is
// continued.
func TestServer_approvedTwice(t *testing.T) {
	s := within(t, database(t), rt.Always(react))
	v := s.visit(t)
	id := v.newChat()
	waits := v.ask(id, "refund A-1003")
	var call string
	for _, raw := range waits.events(t) {
		if raw.Type == "approval_requested" {
			call = raw.ID
		}
	}
	require.NotEmpty(t, call)
	approve := fmt.Sprintf(`{%q:{"approve":true}}`, call)
	var wg sync.WaitGroup
	statuses := make(chan int, 4)
	for range cap(statuses) {
		wg.Go(func() {
			statuses <- v.send(id, nil, "version", "1", "parent", waits.Chat.Head, "decisions", approve).status
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	assert.Equal(t, map[int]int{202: 1, 409: 3}, count)
	done := v.wait(id)
	var refund string
	require.NoError(t, s.store.DB.QueryRowContext(t.Context(), "SELECT refund FROM orders WHERE id = 'A-1003'").Scan(&refund))
	assert.Equal(t, id+"/"+call, refund)
	got := v.send(id, nil, "version", "2", "parent", waits.Chat.Head, "decisions", approve)
	assert.Equal(t, 400, got.status, "only the last run can be decided on")
	got = v.send(id, nil, "version", "2", "parent", done.Chat.Head, "decisions", approve)
	assert.Equal(t, 409, got.status, got.body)
}

type seen struct {
	Type, ID, Text, Message string
	Answer                  struct{ Stop, Text string }
}

// events are those of the last run.
func (s state) events(t *testing.T) (list []seen) {
	t.Helper()
	require.NotEmpty(t, s.Runs)
	require.NoError(t, json.Unmarshal(s.Runs[len(s.Runs)-1].Seen, &list))
	return list
}

func (s state) stop(t *testing.T) string {
	t.Helper()
	list := s.events(t)
	require.NotEmpty(t, list)
	return list[len(list)-1].Answer.Stop
}

// A reader that says the event of another chat gets the run from its beginning.
func TestServer_foreignEventID(t *testing.T) {
	v := within(t, database(t), rt.Always(react)).visit(t)
	a, b := v.newChat(), v.newChat()
	v.ask(a, "hello")
	v.ask(b, "hello")
	whole := v.get("/chats/" + b + "/events").body
	first, _, _ := strings.Cut(whole, "\n")
	ids := func(body string) (list []string) {
		for line := range strings.Lines(body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				list = append(list, strings.TrimSpace(id))
			}
		}
		return list
	}
	own, foreign := ids(whole), ids(v.get("/chats/"+a+"/events").body)
	require.Greater(t, len(own), 3)
	assert.Equal(t, own[3:], ids(v.get("/chats/"+b+"/events", "Last-Event-ID", own[2]).body))
	assert.Equal(t, own, ids(v.get("/chats/"+b+"/events", "Last-Event-ID", foreign[2]).body))
	assert.True(t, strings.HasPrefix(first, "id: "))
}

// What the database loses is said, and what it had is there when it is back.
func TestServer_databaseAway(t *testing.T) {
	dsn := database(t)
	asked, back := make(chan bool), make(chan bool)
	s := within(t, dsn, rt.Func(func(*rt.Turn) rt.Reply {
		asked <- true
		<-back
		return rt.Text("an answer")
	}))
	v := s.visit(t)
	id := v.newChat()
	require.Equal(t, 202, v.send(id, nil, "version", "0", "text", "keep this").status)
	<-asked
	require.NoError(t, s.store.DB.Close())
	for path, method := range map[string]string{"": "GET", "/events": "GET", "/stop": "POST"} {
		got := v.do(method, "/chats/"+id+path, "", nil)
		assert.Equal(t, 503, got.status)
		assert.JSONEq(t, `{"error":"The server has a problem and has changed nothing. Try again."}`, got.body)
	}
	back <- true
	require.Eventually(t, func() bool { return !s.hub.Running(id) }, 10*time.Second, 10*time.Millisecond)
	var types, texts []string
	for e := range s.hub.Follow(t.Context(), id, "") {
		types = append(types, e.Type())
		if p, ok := e.(chatstore.Problem); ok {
			texts = append(texts, p.Message)
		}
	}
	assert.Equal(t, []string{"problem", "done"}, types[len(types)-2:])
	require.Len(t, texts, 1)
	assert.Contains(t, texts[0], "continue when the database is back")

	// Another server goes on.
	again := within(t, dsn, rt.Always(react))
	web := httptest.NewServer(again.handler())
	t.Cleanup(web.Close)
	v.url = web.URL
	kept := v.state(id)
	require.Len(t, kept.Runs, 1)
	assert.Equal(t, "keep this", kept.Runs[0].Prompt.Text)
	assert.False(t, kept.Runs[0].Ended)
	require.Equal(t, 202, v.send(id, nil, "version", "1", "parent", kept.Chat.Head).status)
	assert.Equal(t, "answered", v.wait(id).stop(t))
}

// Files that cannot reach an interpreter are kept with the message.
func TestServer_noInterpreter(t *testing.T) {
	dsn := database(t)
	runner := struct{ fnloop.Runner }{&fake.Runner{}} // which hides that it can keep one
	v := withinOn(t, runner, dsn, rt.Always(react)).visit(t)
	id := v.newChat()
	got := v.ask(id, "keep this", upload{"data.csv", []byte("a,b")})
	require.Len(t, got.Runs, 1)
	assert.False(t, got.Runs[0].Ended)
	stream := v.get("/chats/" + id + "/events").body
	assert.Contains(t, stream, "event: problem\n")
	assert.Contains(t, stream, `"error":"aborted"`, "the stream has an end, so that the page does not ask again")
	assert.Equal(t, "a,b", v.get("/chats/"+id+"/files/data.csv").body)

	// The runner is mended, and the chat goes on.
	again := within(t, dsn, rt.Always(react))
	web := httptest.NewServer(again.handler())
	t.Cleanup(web.Close)
	v.url = web.URL
	require.Equal(t, 202, v.send(id, nil, "version", "1", "parent", got.Chat.Head).status)
	assert.Equal(t, "answered", v.wait(id).stop(t))
}

func TestServer_budget(t *testing.T) {
	s := within(t, database(t), rt.Always(func(t *rt.Turn) rt.Reply {
		r := rt.Call("", "orders", `{"customer":""}`)
		r.Usage = &rt.Usage{InputTokens: 40, OutputTokens: 10}
		return r
	}))
	s.store.Budget = 120
	v := s.visit(t)
	id := v.newChat()
	assert.Equal(t, "max_tokens", v.ask(id, "orders, again and again").stop(t), "a run ends when the budget does")
	got := v.send(v.newChat(), nil, "version", "0", "text", "hi")
	assert.Equal(t, 429, got.status)
	assert.Contains(t, got.body, "150 tokens in the last day, of 120")
	assert.Contains(t, v.get("/chats").body, `"tokens":150`)
	other := visit(t, v.url)
	assert.Equal(t, 202, other.send(other.newChat(), nil, "version", "0", "text", "hi").status, "another user has a budget of his own")
}

// A server that is told to end completes the answers that are being written.
func TestServer_drain(t *testing.T) {
	dsn := database(t)
	p := launch(t, "-db", dsn)
	v := visit(t, p.url)
	id := v.newChat()
	require.Equal(t, 202, v.send(id, nil, "version", "0", "text", "hello").status)
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.output())
	p.again()
	got := v.state(id)
	require.Len(t, got.Runs, 1)
	assert.Equal(t, "answered", got.stop(t))
}

// A connection that a browser has opened ahead, and not used, does not make the end
// of a server a failure.
func TestServer_unusedConnection(t *testing.T) {
	p := launch(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, http.StatusOK, visit(t, p.url).get("/chats").status, "which the server has taken by now")
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.output())
}

func TestServer_trace(t *testing.T) {
	p := launch(t, "-trace", "stdout")
	v := visit(t, p.url)
	id := v.newChat()
	v.ask(id, "which orders are there?")
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.output())
	for _, want := range []string{`"Name": "invoke_agent chat"`, `"Name": "execute_tool orders"`, id} {
		assert.Contains(t, p.output(), want)
	}
	assert.NotContains(t, p.output(), "which orders", "what users write is not traced")
}

func TestServer_badFlags(t *testing.T) {
	for _, tt := range []struct{ args, text string }{
		{"-sandbox chroot", `-sandbox is "chroot"`},
		{"-db /nonexistent/chat.db", "the database of -db"},
		{"-db postgres://127.0.0.1:1/x?connect_timeout=1", "the database of -db"},
		{"-addr 999.0.0.1:1", "999.0.0.1"},
		{"-budget many", "budget"},
		{"-trace console", "-trace"},
	} {
		args := strings.Fields(tt.args)
		if args[0] != "-db" {
			args = append(args, "-db", database(t))
		}
		require.ErrorContains(t, serve(t.Context(), args, io.Discard), tt.text, tt.args)
	}
}

// The statements are those that PostgreSQL understands too.
func TestServer_postgres(t *testing.T) {
	s := within(t, pgtest.Start(t), rt.Always(react))
	v := s.visit(t)
	id := v.newChat()
	v.ask(id, "Zeichne äöü \u0000 \U0001F600", upload{"data.bin", []byte{0, 1, 0xff}})
	got := v.ask(id, "which orders are there?")
	require.Len(t, got.Runs, 2)
	assert.Equal(t, "answered", got.stop(t))
	assert.Equal(t, "\x00\x01\xff", v.get("/chats/"+id+"/files/data.bin").body)
	assert.Equal(t, 409, v.send(id, nil, "version", "1", "text", "late").status)
	assert.Contains(t, v.get("/chats").body, id)
}
