//go:build unix

// Command demo shows what the worker beside it is for: two of them answer prompts, one
// is killed in the middle of a program, and the other goes on.
package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fnloop/fnloop/internal/pgtest"
)

func main() {
	binary := flag.String("worker", "bin/worker", "the worker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := show(ctx, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// A worker is a process of the back end.
type worker struct {
	name, id, url string
	cmd           *exec.Cmd
	log           bytes.Buffer
}

func start(name, binary, dsn string) (*worker, error) {
	w := &worker{name: name, cmd: exec.Command(binary, "-db", dsn, "-addr", "127.0.0.1:0", "-dead", "2s")}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OPENAI_") { // so that it never spends anybody's money
			w.cmd.Env = append(w.cmd.Env, v)
		}
	}
	w.cmd.Stderr = &w.log
	stdout, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		w.cmd.Wait()
		return nil, fmt.Errorf("worker %s does not start: %w\n%s", name, err, w.log.String())
	}
	w.id, w.url, _ = strings.Cut(strings.TrimSpace(line), " is at ")
	return w, nil
}

func show(ctx context.Context, binary string) error {
	began := time.Now()
	dsn, stop, err := pgtest.Serve()
	if err != nil {
		return err
	}
	defer stop()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var workers []*worker
	for _, name := range []string{"A", "B"} {
		w, err := start(name, binary, dsn)
		if err != nil {
			return err
		}
		defer w.cmd.Wait()
		defer w.cmd.Process.Signal(syscall.SIGTERM)
		workers = append(workers, w)
	}
	a, b := workers[0], workers[1]
	fmt.Printf("Two workers share one PostgreSQL: A is process %d, B is process %d.\n"+
		"A script is the model; the programs really run, each in a sandbox.\n", a.cmd.Process.Pid, b.cmd.Process.Pid)

	ann := &user{name: "Ann", ctx: ctx}
	if err := errors.Join(ann.ask(a, "Which numbers below 60 are prime?"), ann.read(b, nil)); err != nil {
		return err
	}
	bob := &user{name: "Bob", ctx: ctx}
	if err := errors.Join(bob.ask(b, "A refund of order A-1002, please."), bob.read(b, nil)); err != nil {
		return err
	}
	fmt.Println("  Somebody approves it, through A.")
	if err := errors.Join(bob.post(a, "decisions", `{"`+bob.waits+`": {"approve": true}}`), bob.read(b, nil)); err != nil {
		return err
	}

	cleo := &user{name: "Cleo", ctx: ctx}
	if err := cleo.ask(a, "The squares of 1 to 8, slowly."); err != nil {
		return err
	}
	var dead, alive *worker
	err = cleo.read(a, func() (*worker, error) { // when three squares were printed
		var id string
		if err := db.QueryRowContext(ctx, `SELECT j.attempted_by[cardinality(j.attempted_by)] FROM worker_runs w JOIN river_job j ON j.id = w.job WHERE j.state = 'running'`).Scan(&id); err != nil {
			return nil, err
		}
		if dead, alive = a, b; b.id == id {
			dead, alive = b, a
		}
		fmt.Printf("\n  *** Worker %s is killed in the middle of the program (kill -9). ***\n", dead.name)
		return alive, dead.cmd.Process.Kill()
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, alive.log.String())
	}
	var refunds, left int
	for left = 1; left > 0; time.Sleep(50 * time.Millisecond) { // a run's row goes after its last event
		if err := db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM refunds), (SELECT COUNT(*) FROM worker_runs)`).Scan(&refunds, &left); err != nil {
			return err
		}
	}
	fmt.Printf("\nAll is answered: %d runs are left, and %d refund was made. Cleo's conversation was finished by %s. (%.0f seconds)\n",
		left, refunds, alive.name, time.Since(began).Seconds())
	return nil
}

// A user has a chat.
type user struct {
	ctx     context.Context
	name    string
	chat    string
	version int
	head    string
	waits   string // the call that waits for approval
}

func (u *user) request(method, url, kind string, body io.Reader, v any) error {
	r, err := http.NewRequestWithContext(u.ctx, method, url, body)
	if err != nil {
		return err
	}
	r.Header.Set("User", u.name)
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, data)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// ask begins a chat.
func (u *user) ask(w *worker, text string) error {
	fmt.Printf("\n%s asks %s: %s\n", u.name, w.name, text)
	var c struct{ ID string }
	if err := u.request("POST", w.url+"/chats", "", nil, &c); err != nil {
		return err
	}
	u.chat = c.ID
	return u.post(w, "text", text)
}

func (u *user) post(w *worker, field, value string) error {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for name, value := range map[string]string{field: value, "version": fmt.Sprint(u.version), "parent": u.head} {
		if err := form.WriteField(name, value); err != nil {
			return err
		}
	}
	form.Close()
	var r struct{ Run string }
	err := u.request("POST", w.url+"/chats/"+u.chat+"/runs", form.FormDataContentType(), &b, &r)
	u.version, u.head = u.version+1, r.Run
	return err
}

// read shows the events of a run. Where a worker falls silent it goes on at the other one, from
// what it has seen. When three lines were printed, kill is called, which gives that one.
func (u *user) read(w *worker, kill func() (*worker, error)) error {
	last, printed := "", 0
	for {
		r, err := http.NewRequestWithContext(u.ctx, "GET", w.url+"/chats/"+u.chat+"/events", nil)
		if err != nil {
			return err
		}
		r.Header.Set("User", u.name)
		r.Header.Set("Last-Event-ID", last)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				last = id
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var events []event
			if err := json.Unmarshal([]byte(data), &events); err != nil {
				return err
			}
			for _, e := range events {
				u.show(e)
				if e.Type == "done" {
					resp.Body.Close()
					return nil
				}
				printed += strings.Count(e.Text, "squared")
			}
			if kill != nil && printed >= 3 {
				if w, err = kill(); err != nil {
					return err
				}
				kill = nil
				break
			}
		}
		resp.Body.Close()
	}
}

// An event is one of docs/events.md, or "resumed".
type event struct {
	Type, Text, Phase, Name string
	Repeated                bool
	Answer                  struct {
		Stop, Text string
		Pending    []struct{ ID string }
	}
}

func (u *user) show(e event) {
	switch e.Type {
	case "resumed":
		fmt.Println("  Another worker has noticed, and tells the run from the beginning:")
	case "call_started":
		again := ""
		if e.Repeated {
			again = " again, as it has no effect but its output"
		}
		fmt.Printf("  %s is run%s.\n", e.Name, again)
	case "call_output":
		fmt.Print("    ", strings.ReplaceAll(strings.TrimSuffix(e.Text, "\n"), "\n", "\n    "), "\n")
	case "approval_requested":
		fmt.Printf("  %s waits for somebody's approval.\n", e.Name)
	case "done":
		for _, c := range e.Answer.Pending {
			u.waits = c.ID
		}
		if e.Answer.Text != "" {
			fmt.Println("  The answer:", strings.ReplaceAll(e.Answer.Text, "\n", "\n    "))
		}
	}
}
