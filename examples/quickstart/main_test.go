package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// redirect sends what is meant for the service to a stand-in.
type redirect struct {
	t    *testing.T
	to   *url.URL
	next http.RoundTripper
}

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	if got := req.URL.String(); got != "https://api.openai.com/v1/responses" {
		r.t.Errorf("a request went to %s", got)
	}
	req.URL.Scheme, req.URL.Host = r.to.Scheme, r.to.Host
	req.Host = r.to.Host
	return r.next.RoundTrip(req)
}

// The README's program runs as it stands there. The model is played; what
// it asks for is really computed.
func TestMain_answersWithWhatPythonPrinted(t *testing.T) {
	runner := &bubblewrap.Runner{}
	defer runner.Close()
	if err := runner.Probe(context.Background()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, name := range []string{"the service", "OPENAI_BASE_URL"} {
		t.Run(name, func(t *testing.T) {
			srv := responsestest.NewServer(
				responsestest.Call("call_1", "run_python", `{"code":"a, b = 0, 1\nfor _ in range(40): a, b = b, a + b\nprint(a)"}`),
				responsestest.Func(func(turn *responsestest.Turn) responsestest.Reply {
					out, _ := turn.Output("call_1")
					return responsestest.Text("It printed " + out)
				}),
			)
			defer srv.Close()
			t.Setenv("OPENAI_API_KEY", srv.Key)
			t.Setenv("OPENAI_BASE_URL", "")
			if name == "OPENAI_BASE_URL" {
				t.Setenv(name, srv.URL)
			} else {
				to, err := url.Parse(srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				old := http.DefaultTransport
				defer func() { http.DefaultTransport = old }()
				http.DefaultTransport = redirect{t, to, old}
			}
			got := output(t, main)
			if err := srv.Err(); err != nil {
				t.Error(err)
			}
			if want := `It printed {"exit_code":0,"timed_out":false,"stdout":"102334155\n","stderr":""}`; strings.TrimSpace(got) != want {
				t.Errorf("the program printed %q, want %q", got, want)
			}
		})
	}
}

// output is what f prints.
func output(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = old }()
	f()
	w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
