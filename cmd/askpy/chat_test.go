package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fnloop/fnloop/cmd/askpy/internal/screen"
	"github.com/fnloop/fnloop/responsestest"
)

// chatOnTerminal starts a chat in a home of its own, whose process ID it gives.
func chatOnTerminal(t *testing.T, server *responsestest.Server, home, args string, env ...string) (*terminal, int) {
	t.Helper()
	x := onTerminal(t, server, "stty cols 80 rows 30; echo pid $$; exec askpy "+args, append(env, "ASKPY_HOME="+home)...)
	pid, err := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(x.expect(`pid \d+\r\n`)))
	if err != nil {
		t.Fatal(err)
	}
	return x, pid
}

// A person edits prompts, also over several lines, gets them back by the arrow keys,
// stops an answer with Ctrl-C, and ends the chat with Ctrl-D.
func TestChat(t *testing.T) {
	server := responsestest.NewServer(
		responsestest.Text("Ja."), responsestest.Text("One and two and three.").Broken(responsestest.Freeze, 5), responsestest.Text("Again."), responsestest.Text("More."),
	)
	defer server.Close()
	home := t.TempDir()
	x, _ := chatOnTerminal(t, server, home, "chat --runner fake")
	x.expect(`chat with gpt-6-astra; /help lists the commands, Ctrl-D ends it\r\n`)
	x.expect(`> `)
	x.send("a日本b\x1b[D\x1b[Dé👩‍👩‍👧!\r") // goes in before the last two characters
	x.expect(`Ja\.\r\n`)
	x.expect(`> `)
	x.send("first\\\rsecond\r")
	x.expect(`One`)
	x.send("\x03")
	x.expect(`askpy: interrupted\r\naskpy: the text above is not the whole answer\r\n`)
	x.expect(`an empty line goes on with it`)
	x.expect(`> `)
	x.send("\x03") // where nothing runs
	x.expect(`Ctrl-D or /quit ends the chat`)
	x.expect(`> `)
	x.send("\x1b[200~pasted\rtext\x1b[201~\r")
	x.expect(`Again\.\r\n`)
	x.expect(`> `)
	x.send("\x1b[A\x1b[A\x1b[A\r")
	x.expect(`More\.\r\n`)
	x.expect(`> `)
	x.send("\x04")
	x.expect(`"askpy chat -c" goes on with this chat\r\n`)
	x.end(0)
	requests := server.Requests()
	if len(requests) != 4 {
		t.Fatalf("%d requests, want 4", len(requests))
	}
	for i, want := range []string{`"content":"a日é👩‍👩‍👧!本b"`, `"content":"first\nsecond"`, `"content":"pasted\ntext"`, `"content":"a日é👩‍👩‍👧!本b"`} {
		if !strings.Contains(string(requests[i].Body), want) {
			t.Errorf("request %d has no %s: %s", i+1, want, requests[i].Body)
		}
	}
}

// In a terminal of any size what was typed and what was answered stands there once,
// in its order, also where characters are wide and lines are broken.
func TestChat_sizes(t *testing.T) {
	const prompt, answer = "Wie heißt 東京 auf Deutsch, und wie viele Menschen leben dort heute? 👩‍👩‍👧", "Tokio; über 14 Millionen Menschen. 東京は日本の首都です。"
	for _, size := range []struct{ columns, rows int }{{24, 8}, {80, 24}, {200, 60}} {
		t.Run(strconv.Itoa(size.columns), func(t *testing.T) {
			server := responsestest.NewServer(responsestest.Text(answer))
			defer server.Close()
			x := onTerminal(t, server, fmt.Sprintf("stty cols %d rows %d; exec askpy chat --runner fake", size.columns, size.rows), "ASKPY_HOME="+t.TempDir())
			shown := x.expect(`> `)
			x.send(prompt)
			time.Sleep(200 * time.Millisecond) // so that it is shown before it is sent
			x.send("\r")
			shown += x.expect(`です。\r\n`)
			shown += x.expect(`> `)
			x.send("\x04")
			shown += x.end(0)
			s := screen.New(size.columns)
			if err := s.Write(shown); err != nil {
				t.Fatal(err)
			}
			// A terminal leaves a column empty where a wide character does not fit.
			text := strings.NewReplacer("\n", "", " ", "").Replace(s.Text())
			for _, want := range []string{">" + prompt + answer + ">", "endsit>"} {
				if want = strings.ReplaceAll(want, " ", ""); strings.Count(text, want) != 1 {
					t.Errorf("%q is not there once:\n%s", want, s.Text())
				}
			}
		})
	}
}

// Commands and files are completed, also those with a blank in their names.
func TestChat_complete(t *testing.T) {
	server := responsestest.NewServer()
	defer server.Close()
	x, _ := chatOnTerminal(t, server, t.TempDir(), "chat --runner fake")
	if err := os.Mkdir(filepath.Join(x.cmd.Dir, "my data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(x.cmd.Dir, "my data", "a b.csv"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.expect(`> `)
	for _, keys := range []string{"/fi", "\t", "my", "\t", "a", "\t", "\r"} {
		x.send(keys)
		time.Sleep(100 * time.Millisecond) // as a person types
	}
	x.expect(`goes with the next prompt: my data/a b\.csv \(2 bytes\)`)
	x.expect(`> `)
	x.send("/mod\tgpt-z\r")
	x.expect(`the model is gpt-z\r\n`)
	x.expect(`> `)
	x.send("\x04")
	x.end(0)
}

// Another chat has what was typed in the one before. A private one leaves nothing.
func TestChat_history(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text("A."), responsestest.Text("B."), responsestest.Text("C."))
	defer server.Close()
	home := t.TempDir()
	for _, step := range []struct{ args, keys, answer string }{
		{"", "remember me\r", `A\.\r\n`},
		{" --private", "forget me\r", `B\.\r\n`},
		{"", "\x1b[A\r", `C\.\r\n`},
	} {
		x, _ := chatOnTerminal(t, server, home, "chat --runner fake"+step.args)
		x.expect(`> `)
		x.send(step.keys)
		x.expect(step.answer)
		x.expect(`> `)
		x.send("\x04")
		x.end(0)
	}
	if last := server.Requests()[2]; !strings.Contains(string(last.Body), `"content":"remember me"`) {
		t.Errorf("the model was sent %s", last.Body)
	}
	files, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(home, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "forget me") {
			t.Errorf("%s has the private prompt", f.Name())
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read %s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// A chat that is killed in the middle of a program goes on, in a chat and without one.
func TestChat_killed(t *testing.T) {
	needSandbox(t)
	const wait = `{"code":"import time\nprint('begun', flush=True)\ntime.sleep(600)"}`
	for _, again := range []string{"chat -c", "-c"} {
		t.Run(again, func(t *testing.T) {
			server := responsestest.NewServer(
				responsestest.Text("Hi."), responsestest.Call("call_1", "python", wait), responsestest.Text("I see."),
			)
			defer server.Close()
			home := t.TempDir()
			x, pid := chatOnTerminal(t, server, home, "chat --runner bubblewrap --timeout 600s")
			x.expect(`> `)
			x.send("Hello.\r")
			x.expect(`Hi\.\r\n`)
			x.expect(`> `)
			x.send("Wait.\r")
			x.expect(`stdout\| begun`)
			p, err := os.FindProcess(pid)
			if err != nil || p.Kill() != nil {
				t.Fatal("it could not be killed")
			}
			x.end(137)
			x, _ = chatOnTerminal(t, server, home, again+" --runner bubblewrap")
			x.expect(`not finished: python \(call_1\) was running when the last run ended; it is not run again\r\n`)
			if again == "chat -c" {
				x.expect(`> `)
				x.send("\r")
			}
			x.expect(`I see\.\r\n`)
			if again == "chat -c" {
				x.expect(`> `)
				x.send("\x04")
			}
			x.end(0)
			if last := server.Requests()[2]; !strings.Contains(string(last.Body), "interrupted") {
				t.Errorf("the model was sent %s", last.Body)
			}
		})
	}
}

// Programs are asked for in the chat, which can be changed in it. Ctrl-C at the
// question leaves the program waiting; another prompt says no to it.
func TestChat_approve(t *testing.T) {
	needSandbox(t)
	server := responsestest.NewServer(
		responsestest.Call("call_1", "python", `{"code":"print('ra' + 'n')"}`), responsestest.Text("One."),
		responsestest.Call("call_2", "python", `{"code":"2"}`), responsestest.Text("Two."),
		responsestest.Call("call_3", "python", `{"code":"print('fr' + 'ee')"}`), responsestest.Text("Three."),
	)
	defer server.Close()
	x, _ := chatOnTerminal(t, server, t.TempDir(), "chat --approve --runner bubblewrap")
	x.expect(`> `)
	x.send("Run.\r")
	x.expect(`python wants to run this program \(1 of 1\):\r\n`)
	x.expect(`Run it\? y, n, or why not: `)
	x.send("y\r")
	x.expect(`stdout\| ran`)
	x.expect(`One\.\r\n`)
	x.expect(`> `)
	x.send("Run again.\r")
	x.expect(`Run it\? y, n, or why not: `)
	x.send("\x03")
	x.expect(`not finished: python \(call_2\) waits for approval\r\n`)
	x.expect(`> `)
	x.send("Do not.\r")
	x.expect(`Two\.\r\n`)
	x.expect(`> `)
	x.send("/approve off\r")
	x.expect(`programs are run without asking\r\n`)
	x.expect(`> `)
	x.send("Go.\r")
	x.expect(`stdout\| free`)
	x.expect(`Three\.\r\n`)
	x.expect(`> `)
	x.send("\x04")
	x.end(0)
	if body := string(server.Requests()[3].Body); !regexp.MustCompile(`not approved and was not run.*call_2.*Do not\.`).MatchString(body) {
		t.Errorf("the model was sent %s", body)
	}
}

// A signal to end ends the chat wherever it is, and leaves the terminal as it was.
func TestChat_terminated(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text("A."))
	defer server.Close()
	x := onTerminal(t, server, "sh -c 'echo pid $$; exec askpy chat --runner fake'; echo status $?; stty -a")
	pid, err := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(x.expect(`pid \d+\r\n`)))
	if err != nil {
		t.Fatal(err)
	}
	x.expect(`> `)
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(syscall.SIGTERM) != nil {
		t.Fatal("it could not be asked to end")
	}
	x.expect(`status 130\r\n`)
	if got := x.expect(`[ -]echo `); !strings.HasSuffix(got, " echo ") {
		t.Errorf("the terminal shows nothing that is typed: %q", got)
	}
	x.end(0)
}

// What a chat waits for at its beginning can be given up, as the download of an image.
func TestChat_interruptedOpening(t *testing.T) {
	begun := make(chan struct{}, 9)
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	defer engine.Close()
	server := responsestest.NewServer()
	defer server.Close()
	x, _ := chatOnTerminal(t, server, t.TempDir(), "chat --runner docker", "DOCKER_HOST=tcp://"+engine.Listener.Addr().String())
	<-begun
	x.send("\x03")
	x.expect(`askpy: interrupted\r\n`)
	x.end(130)
}

// A terminal that cannot move its cursor has lines, as a pipe has.
func TestChat_dumb(t *testing.T) {
	server := responsestest.NewServer(responsestest.Text("A."))
	defer server.Close()
	x, _ := chatOnTerminal(t, server, t.TempDir(), "chat --runner fake", "TERM=dumb")
	x.expect(`each line of standard input is a prompt`)
	x.send("Hi.\n")
	if got := x.expect(`A\.\r\n`); strings.Contains(got, "\x1b") {
		t.Errorf("the terminal shows %q", got)
	}
	x.send("\x04")
	x.end(0)
}
