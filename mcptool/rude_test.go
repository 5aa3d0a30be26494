package mcptool_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/mcptool"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "rude" {
		var s script
		if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
			panic(err)
		}
		s.serve(os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "conform" {
		if err := conform(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A script is what a server does that keeps to nothing. It is played by the test's
// own program, in another process.
type script struct {
	// Probe is what comes of the first message of newer protocols: "" is an
	// answer that there is no such method, others are "silent", "stuck" (it
	// answers nothing from then on), "exit", "invalid" (-32602) and "modern".
	Probe  string
	Starts string // a file with a line for each start

	Before     string        // is printed first
	Delay      time.Duration // before anything is read
	IgnoreEnd  bool          // the end of the input, and SIGTERM
	Fork, Away int           // processes that stay; Away ones leave the group
	Stderr     string

	Pages   [][]string // of tools, each as JSON
	Cursors []string   // of the next page, by page

	Calls map[string]string // what a call does: see call
}

func (s script) server(t testing.TB) mcptool.Server {
	t.Helper()
	data, err := json.Marshal(s)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	return mcptool.Server{Name: "rude", Command: self, Args: []string{"rude", string(data)}, StopTimeout: 300 * time.Millisecond}
}

// connect connects to the script, and checks that nothing is left afterwards.
func (s script) connect(t testing.TB) *mcptool.Conn {
	t.Helper()
	return connect(t, s.server(t))
}

func connect(t testing.TB, s mcptool.Server) *mcptool.Conn {
	t.Helper()
	c, err := mcptool.Connect(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// one is a script with one tool, act, that does what is said.
func one(action string) script {
	return script{Pages: [][]string{{`{"name":"act","inputSchema":{"type":"object"}}`}}, Calls: map[string]string{"act": action}}
}

// tool is the tool of a connection by the server's own name for it.
func tool(t testing.TB, c *mcptool.Conn, name string) fnloop.Tool {
	t.Helper()
	tools, err := c.Tools(t.Context())
	require.NoError(t, err)
	for _, tool := range tools {
		if tool.Name == mcptool.ToolName(c.Name(), name) {
			return tool
		}
	}
	t.Fatalf("there is no tool %q", name)
	return fnloop.Tool{}
}

type rudeMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor    string          `json:"cursor"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Trace         string          `json:"traceparent"`
		} `json:"_meta"`
	} `json:"params"`
}

func (s script) serve(in io.Reader, out io.Writer) {
	if s.Starts != "" {
		f, err := os.OpenFile(s.Starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
	}
	if s.IgnoreEnd {
		signal.Ignore(syscall.SIGTERM)
	}
	for i := range s.Fork + s.Away {
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout // which then has no end
		if i >= s.Fork {
			leaveGroup(cmd)
		}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	fmt.Fprint(os.Stderr, s.Stderr)
	fmt.Fprint(out, s.Before)
	time.Sleep(s.Delay)
	stuck := false
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var m rudeMessage
		if err := json.Unmarshal(line, &m); err != nil {
			panic(err)
		}
		if m.ID == nil || stuck {
			continue
		}
		answer := func(result string) { fmt.Fprintf(out, `{"result":%s,"jsonrpc":"2.0","id":%s}`+"\n", result, m.ID) }
		refuse := func(code int, text string) {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`+"\n", m.ID, code, text)
		}
		switch m.Method {
		case "server/discover":
			switch s.Probe {
			case "":
				refuse(-32601, "no such method")
			case "invalid":
				refuse(-32602, "invalid request")
			case "exit":
				os.Exit(3)
			case "stuck":
				stuck = true
			case "modern":
				answer(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
			}
		case "initialize":
			if s.Probe == "modern" {
				refuse(-32022, "unsupported")
				continue
			}
			answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"rude","version":"1"}}`)
		case "tools/list":
			page := 0
			for i, c := range s.Cursors {
				if c == m.Params.Cursor && c != "" {
					page = min(i+1, len(s.Pages)-1)
				}
			}
			next := ""
			if page < len(s.Cursors) {
				next = s.Cursors[page]
			}
			answer(fmt.Sprintf(`{"tools":[%s],"nextCursor":%q,"ttlMs":60000,"resultType":"complete"}`, strings.Join(s.Pages[page], ","), next))
		case "tools/call":
			s.call(m, out, answer, refuse)
		}
	}
	if s.IgnoreEnd {
		time.Sleep(time.Hour)
	}
}

// lastToken is that of the call before.
var lastToken json.RawMessage

// call does what the script says: an action and what goes with it, with a space
// between them. What is no action is the result.
func (s script) call(m rudeMessage, out io.Writer, answer func(string), refuse func(int, string)) {
	action, rest, _ := strings.Cut(s.Calls[m.Params.Name], " ")
	text := func(s string) string {
		b, _ := json.Marshal(s)
		return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"resultType":"complete"}`, b)
	}
	switch action {
	case "":
		refuse(-32602, "unknown tool "+m.Params.Name)
	case "silent":
		if strings.Contains(string(m.Params.Arguments), "speak") {
			answer(text("spoken"))
		}
	case "die":
		os.Exit(3)
	case "arguments":
		answer(text(string(m.Params.Arguments) + m.Params.Meta.Trace))
	case "env":
		answer(text(strings.Join(os.Environ(), "\n")))
	case "pid":
		answer(text(strconv.Itoa(os.Getpid())))
	case "noise":
		fmt.Fprintln(out, rest)
		answer(text("after the noise"))
	case "other": // answers a call that nobody has made, and then this one twice
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":987654,"result":%s}`+"\n", text("wrong"))
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"%s","result":%s}`+"\n", m.ID, text("wrong"))
		answer(text("right"))
		answer(text("wrong"))
	case "batch": // as revision 2025-03-26 has it
		fmt.Fprintf(out, `[7, {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}, {"jsonrpc":"2.0","id":%s,"result":%s}]`+"\n", m.ID, text("right"))
	case "large":
		n, _ := strconv.Atoi(rest)
		w := bufio.NewWriter(out)
		io.WriteString(w, `{"result":{"content":[{"type":"text","text":"`)
		for block := strings.Repeat("x", 100_000); n > 0; n -= len(block) {
			io.WriteString(w, block)
		}
		fmt.Fprintf(w, `"}]},"jsonrpc":"2.0","id":%s}`+"\n", m.ID)
		w.Flush()
	case "flood": // of standard error
		line := []byte(strings.Repeat("e", 1000) + "\n")
		for range 20_000 {
			os.Stderr.Write(line)
		}
		answer(text("flooded"))
	case "progress":
		n, _ := strconv.Atoi(rest)
		for i := range n {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d,"message":"step %d"}}`+"\n", m.Params.Meta.ProgressToken, i+1, n, i+1)
		}
		if lastToken != nil {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":9,"message":"late"}}`+"\n", lastToken)
		}
		lastToken = m.Params.Meta.ProgressToken
		time.Sleep(200 * time.Millisecond) // go-sdk hands on an answer before what came ahead of it
		answer(text("done"))
	case "sleep":
		d, _ := time.ParseDuration(rest)
		time.Sleep(d)
		answer(text("slept"))
	default:
		answer(s.Calls[m.Params.Name])
	}
}

// processes are those whose command line has all of the words.
func processes(t testing.TB, words ...string) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
next:
	for _, name := range names {
		line, _ := os.ReadFile(name)
		for _, w := range words {
			if !strings.Contains(string(line), w) {
				continue next
			}
		}
		found = append(found, filepath.Base(filepath.Dir(name)))
	}
	return found
}
