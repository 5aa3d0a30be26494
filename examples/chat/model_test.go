package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	rt "github.com/fnloop/fnloop/responsestest"
)

// A longModel is a model server for long tests. A stand-in keeps all that it was
// asked, so this one goes on with another every now and then.
type longModel struct {
	play func(*rt.Turn) rt.Reply

	mu   sync.Mutex
	now  *generation
	left []*generation // that still answer
}

// A generation is a stand-in with the requests that it has got.
type generation struct {
	*rt.Server
	served, open int
}

// perGeneration is how many requests a stand-in gets.
const perGeneration = 100

// start serves the model until the test ends.
func (m *longModel) start(t *testing.T) *responses.ResponseService {
	service := responses.NewResponseService(option.WithBaseURL(m.serve(t)+"/v1"), option.WithAPIKey("test"))
	return &service
}

// serve is start for a client elsewhere: it gives the address.
func (m *longModel) serve(t *testing.T) string {
	web := httptest.NewServer(m)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, g := range append(m.left, m.now) {
			if g != nil {
				g.Close()
			}
		}
	})
	return web.URL
}

func (m *longModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	if m.now == nil || m.now.served == perGeneration {
		if m.now != nil {
			m.left = append(m.left, m.now)
		}
		m.now = &generation{Server: rt.NewServer(rt.Always(m.play))}
	}
	g := m.now
	g.served++
	g.open++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		g.open--
		var over []*generation
		left := m.left[:0]
		for _, g := range m.left {
			if g.open == 0 {
				over = append(over, g)
			} else {
				left = append(left, g)
			}
		}
		clear(m.left[len(left):])
		m.left = left
		m.mu.Unlock()
		for _, g := range over {
			g.Close()
		}
	}()
	g.Server.ServeHTTP(w, r)
}

// drill is a model that does what the prompt says, line by line:
//
//	call TOOL ARGUMENTS    one call a response, in order
//	fault KIND             the last response is late, cut or an error
//	say N                  it has that many words
//	wait N                 each response is that many milliseconds late
//	pace N                 and so are the pieces of the last one
func drill(t *rt.Turn) rt.Reply {
	var calls []string
	fault, words := "", 30
	var late time.Duration
	pace := 2 * time.Millisecond
	for line := range strings.Lines(t.Prompt()) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "call":
			calls = append(calls, rest)
		case "fault":
			fault = rest
		case "say":
			words, _ = strconv.Atoi(rest)
		case "wait":
			n, _ := strconv.Atoi(rest)
			late = time.Duration(n) * time.Millisecond
		case "pace":
			n, _ := strconv.Atoi(rest)
			pace = time.Duration(n) * time.Millisecond
		}
	}
	if done := len(t.Outputs()); done < len(calls) {
		name, arguments, _ := strings.Cut(calls[done], " ")
		return unique(rt.Join(rt.Commentary("I call "+name+"."), rt.Call("call_"+rand.Text(), name, arguments)).After(late))
	}
	reply := unique(rt.Text(strings.Repeat("word ", words)).After(late).Paced(pace))
	switch fault {
	case "busy": // until it is asked again
		if t.Request.Attempt == 0 {
			return rt.RateLimited(10 * time.Millisecond)
		}
	case "down":
		return rt.HTTP(http.StatusBadGateway, "<html>bad gateway</html>", "Retry-After-Ms", "10")
	case "cut":
		reply = reply.Broken(rt.EOF, 12)
	case "reset":
		reply = reply.Broken(rt.Reset, 12)
	case "silent":
		reply = reply.Broken(rt.Freeze, 12)
	case "failed":
		return rt.Failed("server_error", "something broke", rt.Text("half"))
	}
	return reply
}

// unique gives the items of a reply IDs that no other stand-in has given: each of
// them counts from one, and a conversation may hold none twice.
func unique(r rt.Reply) rt.Reply {
	for i, item := range r.Output {
		var fields map[string]any
		if err := json.Unmarshal(item, &fields); err != nil {
			panic(err) // it was made by drill
		}
		fields["id"] = map[any]string{"message": "msg_", "function_call": "fc_"}[fields["type"]] + rand.Text()
		r.Output[i], _ = json.Marshal(fields)
	}
	return r
}

// callLine is a line of a prompt for drill.
func callLine(tool, property, value string) string {
	return fmt.Sprintf("call %s {%q:%s}\n", tool, property, strconv.Quote(value))
}
