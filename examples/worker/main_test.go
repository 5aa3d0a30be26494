package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/chatstore"
)

// The test binary is the worker too, so that there can be many, and each can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("WORKER_TEST_MODEL") == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, testConfig(), testLoop(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func testConfig() config {
	drain, _ := time.ParseDuration(os.Getenv("WORKER_TEST_DRAIN"))
	var budget int64
	fmt.Sscan(os.Getenv("WORKER_TEST_BUDGET"), &budget)
	jobs, deaths := 4, 100
	fmt.Sscan(os.Getenv("WORKER_TEST_JOBS"), &jobs)
	fmt.Sscan(os.Getenv("WORKER_TEST_DEATHS"), &deaths)
	return config{
		db: os.Getenv("WORKER_TEST_DB"), addr: "127.0.0.1:0", jobs: jobs, deaths: deaths, budget: budget,
		dead: 1500 * time.Millisecond, drain: drain, log: slog.New(begins{slog.NewTextHandler(os.Stderr, nil)}),
	}
}

// Begins tells the counter which runs this process takes.
type begins struct{ slog.Handler }

// Handle is one of a log.
func (b begins) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "a run begins" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "run" {
				report("begun", a.Value.String())
			}
			return true
		})
	}
	return b.Handler.Handle(ctx, r)
}

// report tells the counter something, and waits for it.
func report(what string, args ...string) (string, error) {
	if os.Getenv("WORKER_TEST_COUNTER") == "" {
		return "nobody counts", nil
	}
	body, _ := json.Marshal(args)
	resp, err := http.Post(fmt.Sprintf("%s/%s/%d", os.Getenv("WORKER_TEST_COUNTER"), what, os.Getpid()), "", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// testLoop has tools whose effects are counted outside of the process.
func testLoop() *fnloop.Loop {
	client := responses.NewResponseService(option.WithBaseURL(os.Getenv("WORKER_TEST_MODEL")), option.WithAPIKey(os.Getenv("WORKER_TEST_KEY")))
	effect := func(name string) fnloop.Tool {
		return fnloop.MustTool(name, "Is counted.", func(ctx context.Context, _ struct{}) (string, error) {
			r, _ := chatstore.RunFrom(ctx)
			c, _ := fnloop.CallFrom(ctx)
			return report("call", r.ID, r.Chat+"/"+c.ID)
		})
	}
	die := fnloop.MustTool("die", "Takes the process with it.", func(context.Context, struct{}) (string, error) { os.Exit(3); return "", nil })
	look := effect("look")
	look.Repeatable = true
	ask := effect("ask")
	ask.NeedsApproval = fnloop.Always
	return &fnloop.Loop{
		Client: &client, Model: "gpt-test", State: fnloop.Stateless,
		Tools: []fnloop.Tool{look, effect("pay"), ask, die, bookTool()},
		Checkpoint: func(ctx context.Context, a *fnloop.Answer) error {
			r, _ := chatstore.RunFrom(ctx)
			args := []string{r.ID}
			for _, c := range a.Calls {
				args = append(args, r.Chat+"/"+c.ID)
			}
			_, err := report("stored", args...)
			return err
		},
	}
}

// A process is a worker that runs by itself.
type process struct {
	cmd *exec.Cmd
	url string
	id  string // River's
	mu  sync.Mutex
	out bytes.Buffer
}

// launch starts a worker.
func launch(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		if t.Failed() {
			t.Logf("process %d:\n%s", p.cmd.Process.Pid, p.output())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, p.output())
	p.id, p.url, _ = strings.Cut(strings.TrimSpace(line), " is at ")
	return p
}

// Write takes what the process writes to its standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// A chat is one as its owner sees it.
type chat struct {
	Chat    chatstore.Chat
	Running bool
	Runs    []chatstore.Run
}

// request sends a request to a worker and reads its answer into v.
func request(owner, method, url, kind string, body io.Reader, v any) (status int, text string, err error) {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("User", owner)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && v != nil && resp.StatusCode < 300 {
		err = json.Unmarshal(data, v)
	}
	return resp.StatusCode, string(data), err
}

// show reads a chat.
func (p *process) show(owner, id string) (c chat, err error) {
	status, text, err := request(owner, "GET", p.url+"/chats/"+id, "", nil, &c)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, text)
	}
	return c, err
}

// post sends a form to the end of a chat as it was seen.
func (p *process) post(owner string, c chatstore.Chat, fields ...string) (status int, text string, err error) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	fields = append(fields, "version", fmt.Sprint(c.Version), "parent", c.Head)
	for i := 0; i < len(fields); i += 2 {
		form.WriteField(fields[i], fields[i+1])
	}
	form.Close()
	return request(owner, "POST", p.url+"/chats/"+c.ID+"/runs", form.FormDataContentType(), &b, nil)
}

func (p *process) newChat(t *testing.T, owner string) chatstore.Chat {
	t.Helper()
	var c chatstore.Chat
	status, text, err := request(owner, "POST", p.url+"/chats", "", nil, &c)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, text)
	return c
}
