package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/examples/balancer/forward"
	"github.com/fnloop/fnloop/interpreter"
	rt "github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/fake"
)

// A database is what the hosts share: the Answer of each conversation.
type database struct {
	mu      sync.Mutex
	answers map[string][]byte
}

func (d *database) load(chat string) (*fnloop.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := new(fnloop.Answer)
	if d.answers[chat] == nil {
		return a, nil
	}
	return a, json.Unmarshal(d.answers[chat], a)
}

func (d *database) store(chat string, a *fnloop.Answer) error {
	b, err := json.Marshal(a)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[chat] = b
	return err
}

// A host is a back end: its model runs each prompt as a cell and says what the tool
// said.
type host struct {
	*httptest.Server
	name     string
	sessions *interpreter.Sessions
}

// A fleet is hosts behind a balancer.
type fleet struct {
	t     *testing.T
	db    *database
	model *rt.Server
	hosts map[string]*host
	peers map[string]*url.URL // which the hosts share
	front *httptest.Server
	rules *balancer
}

func newFleet(t *testing.T, forwarding bool, names ...string) *fleet {
	f := &fleet{t: t, db: &database{answers: make(map[string][]byte)}, hosts: make(map[string]*host), peers: make(map[string]*url.URL)}
	f.model = rt.NewServer(rt.Always(func(turn *rt.Turn) rt.Reply {
		if outputs := turn.Outputs(); len(outputs) > 0 {
			return rt.Text(outputs[0])
		}
		code, _ := json.Marshal(map[string]string{"code": turn.Prompt()})
		return rt.Call("", "python", string(code))
	}))
	t.Cleanup(f.model.Close)
	f.rules = newBalancer(f.peers)
	for _, name := range names {
		f.add(name, forwarding)
	}
	f.front = httptest.NewServer(f.rules)
	t.Cleanup(f.front.Close)
	return f
}

// add starts a host. Its cells define the names that they list, and print all that
// there are.
func (f *fleet) add(name string, forwarding bool) *host {
	var mu sync.Mutex
	names := make(map[*fake.Interpreter][]string)
	runner := &fake.Runner{Cells: func(_ context.Context, i *fake.Interpreter, c interpreter.Cell) (interpreter.Execution, error) {
		mu.Lock()
		defer mu.Unlock()
		names[i] = append(names[i], strings.Fields(c.Source)...)
		return interpreter.Execution{Stdout: strings.Join(names[i], " "), Names: names[i]}, nil
	}}
	h := &host{name: name}
	h.sessions = &interpreter.Sessions{Runner: runner, Host: name, OnOpen: func(ctx context.Context, s *interpreter.Session) error {
		return s.Put(ctx, "data.csv", strings.NewReader("1,2"))
	}}
	f.t.Cleanup(func() { h.sessions.Close() })
	loop := &fnloop.Loop{Client: f.model.Client(), Model: "gpt-test", State: fnloop.Stateless, Tools: []fnloop.Tool{h.sessions.Tool()}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats/{chat}/runs", func(w http.ResponseWriter, r *http.Request) {
		prompt, _ := io.ReadAll(r.Body)
		a, err := f.db.load(r.PathValue("chat"))
		if err == nil {
			a, err = loop.Continue(r.Context(), a, string(prompt))
		}
		if err == nil {
			err = f.db.store(r.PathValue("chat"), a)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Test-Host", name)
		io.WriteString(w, a.Text)
	})
	var handler http.Handler = mux
	if forwarding {
		handler = &forward.Handler{Sessions: h.sessions, Peers: f.peers, Next: mux, Load: func(r *http.Request) (*fnloop.Answer, error) {
			return f.db.load(conversation(r.URL.Path))
		}}
	}
	h.Server = httptest.NewServer(handler)
	f.t.Cleanup(h.Server.Close)
	f.hosts[name] = h
	f.peers[name], _ = url.Parse(h.URL)
	return h
}

// die ends a host as a kill does.
func (f *fleet) die(name string) {
	f.hosts[name].CloseClientConnections()
	f.hosts[name].Server.Close()
	f.hosts[name].sessions.Close()
}

// say sends a prompt, and gives the host that has answered it and what its model has
// read.
func (f *fleet) say(chat, prompt string) (by string, doc struct{ Stdout, Notice string }) {
	f.t.Helper()
	res, err := http.Post(f.front.URL+"/chats/"+chat+"/runs", "text/plain", strings.NewReader(prompt))
	require.NoError(f.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusOK, res.StatusCode, string(body))
	require.NoError(f.t, json.Unmarshal(body, &doc), string(body))
	return res.Header.Get("Test-Host"), doc
}

// begin lets chats begin, and gives their hosts.
func (f *fleet) begin(n int) map[string]string {
	of := make(map[string]string)
	for i := range n {
		chat := fmt.Sprint("chat", i)
		of[chat], _ = f.say(chat, "a")
	}
	return of
}

func TestBalancer_conversationsFindTheirInterpreter(t *testing.T) {
	f := newFleet(t, false, "a", "b", "c")
	of := f.begin(30)
	for chat, host := range of {
		by, doc := f.say(chat, "b")
		assert.Equal(t, host, by)
		assert.Equal(t, "a b", doc.Stdout)
		assert.Empty(t, doc.Notice)
	}
	for name, h := range f.hosts {
		assert.NotZero(t, h.sessions.Len(), "host %s has its share", name)
	}
}

func TestBalancer_hostDies(t *testing.T) {
	for _, forwarding := range []bool{false, true} {
		t.Run(fmt.Sprint("forward ", forwarding), func(t *testing.T) {
			f := newFleet(t, forwarding, "a", "b", "c")
			of := f.begin(30)
			f.die("b")
			for chat, host := range of {
				by, doc := f.say(chat, "b")
				if host != "b" {
					assert.Equal(t, host, by, "others do not move")
					assert.Empty(t, doc.Notice)
					continue
				}
				assert.NotEqual(t, "b", by)
				assert.Equal(t, "b", doc.Stdout)
				assert.Equal(t, "Before this cell the conversation has moved to another machine; a new one is ready."+
					" Variables, functions and imports of earlier cells are gone (a), files are kept.", doc.Notice)
				_, doc = f.say(chat, "c")
				assert.Equal(t, "b c", doc.Stdout)
				assert.Empty(t, doc.Notice, "it is told once")
			}
		})
	}
}

func TestBalancer_hostComes(t *testing.T) {
	for _, tt := range []struct {
		name       string
		forwarding bool
		reason     string
	}{
		{"balancer alone", false, "the conversations that the new host takes have lost their interpreter"},
		{"hosts that forward", true, "a conversation stays where its interpreter is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, tt.forwarding, "a", "b", "c")
			const n = 40
			of := f.begin(n)
			f.add("d", tt.forwarding)
			moved, lost := 0, 0
			for chat, host := range of {
				by, doc := f.say(chat, "b")
				if by != host {
					moved++
					assert.Equal(t, "d", by, "nobody moves but to the new host")
				}
				if doc.Notice != "" {
					lost++
				}
			}
			assert.Equal(t, moved, lost)
			if tt.forwarding {
				assert.Zero(t, moved, tt.reason)
				by := ""
				for i := 0; by != "d" && i < 100; i++ {
					by, _ = f.say(fmt.Sprint("new", i), "a")
				}
				assert.Equal(t, "d", by, "new conversations come to it")
			} else {
				assert.NotZero(t, moved, tt.reason)
				assert.Less(t, moved, n/2, "a share of them")
			}
		})
	}
}

// Nothing in a request leads to a host that is not listed, or round in circles.
func TestForward_known(t *testing.T) {
	f := newFleet(t, true, "a", "b")
	of := f.begin(1)
	home := of["chat0"]
	other := "a"
	if home == "a" {
		other = "b"
	}
	post := func(header ...string) string {
		req, err := http.NewRequest(http.MethodPost, f.hosts[other].URL+"/chats/chat0/runs", strings.NewReader("b"))
		require.NoError(t, err)
		if len(header) > 0 {
			req.Header.Set(header[0], header[1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		return res.Header.Get("Test-Host")
	}
	assert.Equal(t, home, post(), "it is passed on")
	assert.Equal(t, other, post(forward.Header, "x"), "but not twice")
	delete(f.peers, home)
	a, err := f.db.load("chat0")
	require.NoError(t, err)
	a.ToolState["python"] = json.RawMessage(`{"ref":"x","cells":1,"host":"evil.example:80"}`)
	require.NoError(t, f.db.store("chat0", a))
	assert.Equal(t, other, post(), "a name that is not listed is nobody's address")
}

func TestRank(t *testing.T) {
	hosts := func() []string { return []string{"a", "b", "c"} }
	first := make(map[string]int)
	const n = 3000
	for i := range n {
		chat := fmt.Sprint(i)
		with := rank(hosts(), chat)
		first[with[0]]++
		reversed := hosts()
		slices.Reverse(reversed)
		assert.Equal(t, with, rank(reversed, chat), "the order of the list means nothing")
		without := slices.DeleteFunc(hosts(), func(h string) bool { return h == with[2] })
		assert.Equal(t, with[:2], rank(without, chat), "a host that goes changes nothing for the others")
	}
	for host, got := range first {
		assert.InDelta(t, n/3, got, n/15, "host %s has a third", host)
	}
}

func TestServe_badHosts(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{"", `has ""`},
		{"http://10.0.0.1", "which is not like"},
		{"a=10.0.0.1:80", "which is not like"},
		{"a=http://x,a=http://y", `two hosts that are named "a"`},
	} {
		err := serve(t.Context(), []string{"-hosts", tt.list})
		require.ErrorContains(t, err, tt.want)
	}
}
