package runtimecloud_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// A program runs at most once and nothing stays, whatever goes wrong on the way.
func TestFaults(t *testing.T) {
	type faults = []runtimetest.Fault
	many := func(n int, f runtimetest.Fault) (list faults) {
		for range n {
			list = append(list, f)
		}
		return list
	}
	html := "<html><body>" + secretKey + strings.Repeat(" bad gateway", 100) + "</body></html>"
	for _, c := range []struct {
		name   string
		step   runtimetest.Step
		faults faults
		code   string // of the error; empty means that the program's result comes
		status int
		most   time.Duration // how long it may take; zero means a minute
		why    string
	}{
		{"401", runtimetest.StepCreate, faults{{Status: 401, Code: "unauthorized"}}, "unauthorized", 401, time.Second, "a bad key is not tried again"},
		{"402", runtimetest.StepCreate, faults{{Status: 402, Code: "insufficient_funds", Hint: "Add credit."}}, "insufficient_funds", 402, time.Second, "money is for a person to see to"},
		{"402 by its old name", runtimetest.StepCreate, faults{{Status: 402, Code: "trial_exhausted"}}, "included_usage_used_up", 402, time.Second, "both names are understood"},
		{"403", runtimetest.StepCreate, faults{{Status: 403, Code: "forbidden"}}, "forbidden", 403, time.Second, "a read-only key stays one"},
		{"400", runtimetest.StepCreate, faults{{Status: 400, Code: "invalid_trial", Details: map[string]any{"issues": []any{}}}}, "no_credit_size_limit", 400, time.Second, "the request is at fault"},
		{"422", runtimetest.StepCreate, faults{{Status: 422, Code: "idempotency_key_reused"}}, "idempotency_key_reused", 422, time.Second, "the same bytes will not do better"},
		{"413", runtimetest.StepWrite, faults{{Status: 413, Code: "file_too_large"}}, "file_too_large", 413, time.Second, "the file does not get smaller"},
		{"413 without a word", runtimetest.StepExec, faults{{Status: 413}}, "request_failed", 413, time.Second, "an answer that is not the API's has a code of ours"},
		{"429", runtimetest.StepWrite, faults{{Status: 429, Code: "rate_limited", RetryAfterMs: 400}, {Status: 429, Code: "rate_limited", RetryAfter: "0.01"}}, "", 0, 2 * time.Second, "nothing ran, and the service says when to come back"},
		{"429 without end", runtimetest.StepWrite, many(500, runtimetest.Fault{Status: 429, Code: "rate_limited", RetryAfter: "20"}), "rate_limited", 429, 6 * time.Minute, "a call has a deadline"},
		{"500", runtimetest.StepCreate, faults{{Status: 500, Code: "internal_error"}}, "internal_error", 500, time.Second, "the vendor's own clients do not repeat it"},
		{"500 after the effect", runtimetest.StepCreate, faults{{After: true, Status: 500, Code: "internal_error"}}, "internal_error", 500, time.Second, "the sandbox may be there"},
		{"500 at exec", runtimetest.StepExec, faults{{Status: 500, Code: "internal_error"}}, "internal_error", 500, time.Second, "it is not known whether the program ran"},
		{"502 with HTML", runtimetest.StepWrite, faults{{Status: 502, Body: html}}, "", 0, 0, "a proxy's hiccup"},
		{"502 with HTML, again and again", runtimetest.StepWrite, many(5, runtimetest.Fault{Status: 502, Body: html}), "request_failed", 502, 0, "five attempts are enough"},
		{"502 without a body", runtimetest.StepExec, faults{{Status: 502}, {After: true, Status: 504}}, "", 0, 0, "the command is not run twice"},
		{"503 transient", runtimetest.StepCreate, faults{{Status: 503, Code: "api_unavailable"}, {After: true, Status: 503, Code: "host_unavailable"}}, "", 0, 0, "tried again under the same key"},
		{"503 busy", runtimetest.StepExec, many(8, runtimetest.Fault{Status: 503, Code: "busy", RetryAfter: "1"}), "", 0, time.Minute, "nothing ran: such refusals do not count"},
		{"503 by its old name", runtimetest.StepWrite, many(8, runtimetest.Fault{Status: 503, Code: "fence_conflict", RetryAfterMs: 10}), "", 0, time.Minute, "fence_conflict is busy"},
		{"503 final", runtimetest.StepCreate, faults{{Status: 503, Code: "unavailable", RetryAfter: "1"}}, "unavailable", 503, time.Second, "switched off on purpose"},
		{"503 final at write", runtimetest.StepWrite, faults{{Status: 503, Code: "network_unavailable"}}, "network_unavailable", 503, time.Second, "switched off on purpose"},
		{"redirect", runtimetest.StepCreate, many(5, runtimetest.Fault{Location: "http://localhost:1/steal"}), "connection_error", 302, 0, "the key goes nowhere else"},
		{"redirect once", runtimetest.StepWrite, faults{{Location: "/v1/me", Status: 307}}, "", 0, 0, "as good as no answer"},
		{"reset before the effect", runtimetest.StepCreate, faults{{Drop: true}}, "", 0, 0, "sent again"},
		{"reset after the effect", runtimetest.StepCreate, faults{{After: true, Drop: true}, {After: true, Drop: true}}, "", 0, 0, "the same sandbox is answered again"},
		{"reset for good", runtimetest.StepCreate, many(5, runtimetest.Fault{After: true, Drop: true}), "connection_error", 0, 0, "the sandbox is found by its label"},
		{"reset at exec", runtimetest.StepExec, faults{{After: true, Drop: true}}, "", 0, 0, "the command goes on, and is not run twice"},
		{"frozen create", runtimetest.StepCreate, faults{{After: true, Freeze: true}}, "", 0, 3 * time.Minute, "an answer that has not begun in two minutes is lost"},
		{"frozen write", runtimetest.StepWrite, faults{{Freeze: true}}, "", 0, time.Minute, "asked again"},
		{"frozen exec", runtimetest.StepExec, faults{{After: true, Freeze: true}}, "", 0, time.Minute, "the answer is there to be had again"},
		{"frozen within an answer", runtimetest.StepCreate, faults{{Half: true, Freeze: true}}, "", 0, 3 * time.Minute, "as good as cut"},
		{"half an answer", runtimetest.StepCreate, faults{{Half: true}}, "", 0, 0, "the sandbox is there"},
		{"half an answer for good", runtimetest.StepCreate, many(5, runtimetest.Fault{Half: true}), "connection_error", 0, 0, "the sandbox is found by its label"},
		{"late", runtimetest.StepCreate, faults{{Late: true}}, "", 0, 0, "an answer after white space is one"},
		{"late error", runtimetest.StepWrite, faults{{Late: true, Status: 503, Code: "host_unavailable"}}, "", 0, 0, "status 200 and an error is an error, to be tried again"},
		{"late final error", runtimetest.StepCreate, faults{{Late: true, Status: 402, Code: "payment_required"}}, "payment_required", 402, time.Second, "its status counts"},
		{"late garbage", runtimetest.StepCreate, many(5, runtimetest.Fault{After: true, Late: true, Body: "<html>"}), "request_failed", 502, 0, "the sandbox is found by its label"},
		{"late error without a status", runtimetest.StepCreate, faults{{Late: true, Body: `{"error":{"code":"odd"}}`}}, "odd", 500, time.Second, "no status is 500"},
		{"late answer with an error in it", runtimetest.StepWrite, faults{{Late: true, Body: `{"error":{"code":"x"},"path":"/"}`}}, "", 0, time.Second, "only an answer that has nothing else is an error"},
		{"late error at exec", runtimetest.StepExec, faults{{Late: true, Status: 503, Code: "host_unavailable"}}, "", 0, 0, "a stream can turn out to be one too"},
		{"late final error at exec", runtimetest.StepExec, faults{{Late: true, Status: 402, Code: "spending_limit_reached"}}, "spending_limit_reached", 402, time.Second, "a stream can turn out to be one too"},
		{"no room", runtimetest.StepCreate, many(7, runtimetest.Fault{Code: "no_capacity"}), "", 0, 2 * time.Minute, "room is worth a wait"},
		{"no room, as 503", runtimetest.StepCreate, many(7, runtimetest.Fault{Status: 503, Code: "no_capacity"}), "", 0, 2 * time.Minute, "the code counts, not the status"},
		{"no room, by its old name", runtimetest.StepCreate, many(7, runtimetest.Fault{Code: "trial_busy", RetryAfterMs: 5000}), "", 0, 2 * time.Minute, "both names are understood"},
		{"no room for good", runtimetest.StepCreate, many(500, runtimetest.Fault{Code: "trial_busy"}), "no_credit_running_limit", 409, 2*time.Minute + time.Second, "the wait has a bound"},
		{"no room ever", runtimetest.StepCreate, faults{{Code: "quota_exceeded", Details: map[string]string{"field": "count"}}}, "quota_exceeded", 409, time.Second, "what can never fit is not waited for"},
		{"the sandbox stopped before the program", runtimetest.StepExec, faults{{Code: "sandbox_stopped"}}, "sandbox_stopped", 409, time.Second, "the program was not run"},
		{"the time limit is too short", runtimetest.StepExec, faults{{Code: "lease_too_short"}}, "time_limit_too_short", 409, time.Second, "refused before it ran"},

		{"stream without exit", runtimetest.StepExec, faults{{Stream: runtimetest.StreamCut, Events: 2}}, "", 0, 0, "taken up at the cursor"},
		{"stream reset", runtimetest.StepExec, faults{{Stream: runtimetest.StreamReset, Events: 3}}, "", 0, 0, "taken up at the cursor"},
		{"stream reset before start", runtimetest.StepExec, faults{{Stream: runtimetest.StreamReset}}, "", 0, 0, "the same command is answered again"},
		{"stream cut within an event", runtimetest.StepExec, faults{{Stream: runtimetest.StreamHalf, Events: 1}}, "", 0, 0, "half an event is none"},
		{"garbage in the stream", runtimetest.StepExec, faults{{Stream: runtimetest.StreamGarbage, Events: 2}}, "", 0, 0, "the rest is asked for again"},
		{"stream continues elsewhere", runtimetest.StepExec, faults{{Stream: runtimetest.StreamContinue, Events: 2}}, "", 0, 0, "taken up where it says"},
		{"stream error", runtimetest.StepExec, faults{{Stream: runtimetest.StreamError, Events: 2}}, "", 0, 0, "the command still runs"},
		{"stream error of ours", runtimetest.StepExec, faults{{Stream: runtimetest.StreamError, Events: 2, Status: 403, Code: "forbidden"}}, "forbidden", 403, time.Second, "no use in asking again"},
		{"stream frozen", runtimetest.StepExec, faults{{Stream: runtimetest.StreamFreeze, Events: 2}}, "", 0, 36 * time.Second, "asked anew when the program must have ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				var runs func() int
				b.Exec, runs = script(hello)
				b.Fail(c.step, c.faults...)
				start := time.Now()
				res, err := b.runner.Run(t.Context(), fnloop.Program{})
				took := time.Since(start)
				if most := cmp.Or(c.most, time.Minute); took > most {
					t.Errorf("it took %v, want at most %v: %s", took, most, c.why)
				}
				if c.code == "" {
					if err != nil || !isHello(res) {
						t.Errorf("Run() = %+v, %v: %s", res, err, c.why)
					}
					if n := b.Unused(); n > 0 {
						t.Errorf("%d faults were not met", n)
					}
				} else {
					e, ok := errors.AsType[*runtimecloud.Error](err)
					if !ok {
						t.Fatalf("Run() error = %v (%T): %s", err, err, c.why)
					}
					if e.Code != c.code || e.Status != c.status || e.Op != string(c.step) {
						t.Errorf("Run() error = %v, want code %s and status %d: %s", err, c.code, c.status, c.why)
					}
					if e.Status != 0 && e.RequestID == "" && e.Status != 302 && e.Code != "forbidden" {
						t.Errorf("Run() error = %v, without a request ID", err)
					}
					if res.End == fnloop.EndExit || res.ExitCode != nil {
						t.Errorf("Run() = %+v beside an error", res)
					}
					checkHidden(t, err)
				}
				if n := runs(); n > 1 {
					t.Errorf("the program ran %d times", n)
				}
				if err := b.runner.Close(); err != nil {
					t.Errorf("Close() = %v", err)
				}
				if b.Created() > 1 {
					t.Errorf("%d sandboxes were made: %s", b.Created(), c.why)
				}
				checkAttempts(t, b.Requests())
			})
		})
	}
}

// checkHidden looks for the key in whatever an error can be made to show.
func checkHidden(t *testing.T, err error) {
	t.Helper()
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s"} {
		if s := fmt.Sprintf(verb, err); strings.Contains(s, secretKey) {
			t.Errorf("%s shows the key: %s", verb, s)
		}
	}
	if e, ok := errors.AsType[*runtimecloud.Error](err); ok {
		if s := fmt.Sprintf("%+v %#v", *e, *e); strings.Contains(s, secretKey) {
			t.Errorf("the error's fields have the key: %s", s)
		}
	}
}

// checkAttempts sees to it that all attempts at a step are the same request,
// and that no two steps share a key.
func checkAttempts(t *testing.T, requests []runtimetest.Request) {
	t.Helper()
	first := map[string]runtimetest.Request{}
	for _, r := range requests {
		key := r.Header.Get("Idempotency-Key")
		if (key == "") != (r.Method == http.MethodGet) {
			t.Errorf("%s %s has the key %q", r.Method, r.Path, key)
		}
		if key == "" {
			continue
		}
		f, again := first[key]
		if !again {
			first[key] = r
			continue
		}
		if f.Method != r.Method || f.Path != r.Path || !bytes.Equal(f.Body, r.Body) {
			t.Errorf("%s %s and %s %s have one key", f.Method, f.Path, r.Method, r.Path)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	t.Setenv("RUNTIME_API_KEY", "")
	t.Setenv("RUNTIME_API_URL", "")
	for _, c := range []struct {
		name   string
		runner *runtimecloud.Runner
		field  string
	}{
		{"no key", &runtimecloud.Runner{}, "Key"},
		{"a newline", &runtimecloud.Runner{Key: secretKey + "\n"}, "Key"},
		{"a space", &runtimecloud.Runner{Key: "a " + secretKey}, "Key"},
		{"a control character", &runtimecloud.Runner{Key: secretKey + "\x7f"}, "Key"},
		{"http to a foreign host", &runtimecloud.Runner{Key: secretKey, URL: "http://api.withruntime.com"}, "URL"},
		{"http to a name that begins alike", &runtimecloud.Runner{Key: secretKey, URL: "http://localhost.example.com"}, "URL"},
		{"a user", &runtimecloud.Runner{Key: secretKey, URL: "https://" + secretKey + "@api.withruntime.com"}, "URL"},
		{"a path", &runtimecloud.Runner{Key: secretKey, URL: "https://api.withruntime.com/v1"}, "URL"},
		{"a query", &runtimecloud.Runner{Key: secretKey, URL: "https://api.withruntime.com?x"}, "URL"},
		{"another scheme", &runtimecloud.Runner{Key: secretKey, URL: "ftp://api.withruntime.com"}, "URL"},
		{"no URL", &runtimecloud.Runner{Key: secretKey, URL: "https://user:" + secretKey + "@[::1"}, "URL"},
		{"no host", &runtimecloud.Runner{Key: secretKey, URL: "https://:443"}, "URL"},
		{"no scheme", &runtimecloud.Runner{Key: secretKey, URL: "api.withruntime.com"}, "URL"},
		{"idle too soon", &runtimecloud.Runner{Key: secretKey, Idle: time.Second}, "Idle"},
		{"kept for hours", &runtimecloud.Runner{Key: secretKey, Keep: 23 * time.Hour}, "Keep"},
		{"kept for ever", &runtimecloud.Runner{Key: secretKey, Keep: 366 * 24 * time.Hour}, "Keep"},
		{"negative keep", &runtimecloud.Runner{Key: secretKey, Keep: -1}, "Keep"},
		{"the label of kept sessions", &runtimecloud.Runner{Key: secretKey, Labels: map[string]string{"keep": "1"}}, "Labels"},
		{"image and snapshot", &runtimecloud.Runner{Key: secretKey, Image: "a", Snapshot: "b"}, "Snapshot"},
		{"short life", &runtimecloud.Runner{Key: secretKey, TimeLimit: time.Second}, "TimeLimit"},
		{"many at once", &runtimecloud.Runner{Key: secretKey, Parallel: 1000}, "Parallel"},
		{"an allow-list of a closed network", &runtimecloud.Runner{Key: secretKey, Network: runtimecloud.Network{Allow: []string{"a.example"}}}, "Network"},
		{"a URL for a host", &runtimecloud.Runner{Key: secretKey, Network: runtimecloud.Network{Internet: true, Allow: []string{"https://a.example"}}}, "Network"},
		{"a label of ours", &runtimecloud.Runner{Key: secretKey, Labels: map[string]string{"run": "x"}}, "Labels"},
		{"a variable with an equals sign", &runtimecloud.Runner{Key: secretKey, Env: map[string]string{"A=B": "x"}}, "Env"},
		{"a setup of nothing", &runtimecloud.Runner{Key: secretKey, Setup: &runtimecloud.Setup{}}, "Setup.Argv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.runner.Transport = noTransport{t}
			_, err := c.runner.Run(t.Context(), fnloop.Program{})
			if e, ok := errors.AsType[*runtimecloud.ConfigError](err); !ok || e.Field != c.field {
				t.Errorf("Run() error = %v, want one about %s", err, c.field)
			}
			checkHidden(t, err)
			if s := fmt.Sprintf("%v %+v %#v", c.runner.Key, c.runner.Key, c.runner.Key); strings.Contains(s, secretKey) {
				t.Errorf("the key prints as %s", s)
			}
			if err := c.runner.Close(); err != nil {
				t.Errorf("Close() = %v", err)
			}
		})
	}
	t.Run("an option as a package", func(t *testing.T) {
		r := &runtimecloud.Runner{Key: secretKey, Packages: []string{"--index-url=x"}, Transport: noTransport{t}}
		if _, err := r.Run(t.Context(), fnloop.Program{}); !errors.As(err, new(*fnloop.PackageError)) {
			t.Errorf("Run() error = %v", err)
		}
	})
	t.Run("good addresses", func(t *testing.T) {
		for _, url := range []string{"https://api.example.com", "https://api.example.com:8443/", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "http://runtime.internal"} {
			r := &runtimecloud.Runner{Key: secretKey, URL: url, Transport: refusing{}}
			if err := r.Probe(t.Context()); errors.As(err, new(*runtimecloud.ConfigError)) {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
}

// noTransport fails a test that makes requests.
type noTransport struct{ t *testing.T }

func (n noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	n.t.Error("a request was made")
	return nil, errors.New("no")
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 403, Header: http.Header{}, Body: http.NoBody}, nil
}

func TestKeyFromEnvironment(t *testing.T) {
	srv := runtimetest.New(t)
	t.Setenv("RUNTIME_API_KEY", secretKey)
	t.Setenv("RUNTIME_API_URL", srv.Start(t))
	r := new(runtimecloud.Runner)
	if _, err := r.Run(t.Context(), fnloop.Program{}); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A transport that puts the request into its error does not show the key.
func TestTransportError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runtimecloud.Runner{Key: secretKey, Transport: telltale{}}
		err := r.Probe(t.Context())
		if e, ok := errors.AsType[*runtimecloud.Error](err); !ok || e.Code != "connection_error" || !e.Retryable() {
			t.Errorf("Probe() = %v", err)
		}
		checkHidden(t, err)
	})
}

type telltale struct{}

func (telltale) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("cannot send %v", req.Header)}
}

// An answer that is not the API's is cut short, but not within a key that it
// has in it.
func TestKeyAtTheCut(t *testing.T) {
	for before := 480; before <= 500; before++ {
		r := &runtimecloud.Runner{Key: secretKey, Transport: echo(strings.Repeat("x", before) + secretKey + strings.Repeat("y", 100))}
		err := r.Probe(t.Context())
		e, ok := errors.AsType[*runtimecloud.Error](err)
		if !ok || e.Code != "request_failed" || len(e.Message) != 500 {
			t.Fatalf("Probe() = %v", err)
		}
		if rest := strings.Trim(e.Message, "x"); !strings.HasPrefix("[redacted]yyyyyyyyyyyy", rest) {
			t.Errorf("after %d bytes the message ends in %q", before, rest)
		}
	}
}

// echo answers with a page of that text.
type echo string

func (e echo) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 403, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(e)))}, nil
}

// The caller goes while a step is under way: it comes back at once with the
// context's error and with what was printed, and no sandbox stays.
func TestCancel(t *testing.T) {
	cause := errors.New("the user left")
	for _, step := range []runtimetest.Step{
		runtimetest.StepCreate, runtimetest.StepRead, runtimetest.StepUpload, runtimetest.StepChunk, runtimetest.StepCommit,
		runtimetest.StepWrite, runtimetest.StepExec, runtimetest.StepNetwork, runtimetest.StepDelete,
	} {
		for _, how := range []struct {
			name  string
			fault runtimetest.Fault
		}{
			{"", runtimetest.Fault{}},
			{"frozen", runtimetest.Fault{Freeze: true}},
			{"frozen after the effect", runtimetest.Fault{After: true, Freeze: true}},
			{"reset after the effect", runtimetest.Fault{After: true, Drop: true}},
		} {
			t.Run(strings.TrimSpace(string(step)+" "+how.name), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					var runs func() int
					b.Exec, runs = script(func(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit {
						if cmd.Argv[0] != "python3" {
							return runtimetest.Exit{}
						}
						return hang(ctx, cmd)
					})
					b.Delay, b.StartDelay, b.Hasty = 10*time.Millisecond, time.Second, true
					p := fnloop.Program{}
					switch step {
					case runtimetest.StepCreate:
						b.Hasty = false // so that the answer comes a second after the caller has gone
					case runtimetest.StepUpload, runtimetest.StepChunk, runtimetest.StepCommit:
						p.Source = strings.Repeat("#", 3<<20)
					case runtimetest.StepNetwork:
						b.runner.Setup = &runtimecloud.Setup{Argv: []string{"true"}}
					case runtimetest.StepDelete:
						p.Limits.Time = time.Second
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					var left time.Time
					fault := how.fault
					fault.Hook = func() { left = time.Now(); cancel(cause) }
					b.Fail(step, fault)
					res, err := b.runner.Run(ctx, p)
					if step == runtimetest.StepDelete {
						if err != nil || !res.TimedOut {
							t.Errorf("Run() = %+v, %v: the program had ended", res, err)
						}
					} else {
						if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || res.End != fnloop.EndCancelled {
							t.Errorf("Run() = %+v, %v", res, err)
						}
						if took := time.Since(left); took > 50*time.Millisecond {
							t.Errorf("Run() came back %v after the cancel", took)
						}
					}
					if err := b.runner.Close(); err != nil {
						t.Errorf("Close() = %v", err)
					}
					if n := len(b.Requests(runtimetest.StepList)); n > 0 && how.name == "" {
						t.Error("the answer to the create was not waited for")
					}
					if n := runs(); n > 2 {
						t.Errorf("%d commands ran", n)
					}
					if took := time.Since(left); took > 2*time.Minute {
						t.Errorf("Close() came back %v after the cancel", took)
					}
				})
			})
		}
	}
}

func TestCancelKeepsOutput(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.Exec = hang
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		res, err := b.runner.Run(ctx, fnloop.Program{})
		if !errors.Is(err, context.DeadlineExceeded) || res.Stdout != "step 1\n" || res.TimedOut || res.ExitCode != nil || res.End != fnloop.EndCancelled {
			t.Errorf("Run() = %+v, %v", res, err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("Run() took %v", took)
		}
	})
}

// A caller that goes while there is no room leaves no sandbox behind: none is
// asked for any more.
func TestCancelWhileThereIsNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for range 500 {
			b.Fail(runtimetest.StepCreate, runtimetest.Fault{Code: "no_capacity"})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := b.runner.Run(ctx, fnloop.Program{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run() error = %v", err)
		}
		before := len(b.Requests())
		if err := b.runner.Close(); err != nil {
			t.Error(err)
		}
		if n := len(b.Requests()) - before; n > 0 {
			t.Errorf("%d more requests after the caller had gone", n)
		}
	})
}

// The sandbox is deleted however often that fails, and told of when it cannot
// be.
func TestDelete(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []runtimetest.Fault
		leak   bool
	}{
		{"404", []runtimetest.Fault{{After: true, Status: 404, Code: "not_found"}}, false},
		{"three failures", []runtimetest.Fault{{Status: 500, Code: "internal_error"}, {Drop: true}, {Status: 503, Code: "api_unavailable"}}, false},
		{"frozen", []runtimetest.Fault{{Freeze: true}}, false},
		{"lost answer", []runtimetest.Fault{{After: true, Drop: true}}, false},
		{"in use", []runtimetest.Fault{{Code: "sandbox_in_use"}}, true},
		{"for good", []runtimetest.Fault{{Status: 500, Code: "x"}, {Status: 500, Code: "x"}, {Status: 500, Code: "x"}, {Status: 500, Code: "x"}, {Status: 500, Code: "x"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := runtimetest.New(t)
				log := new(logBuffer)
				r := newRunner(srv, log)
				srv.Exec = hello
				srv.Fail(runtimetest.StepDelete, c.faults...)
				if res, err := r.Run(t.Context(), fnloop.Program{}); err != nil || !isHello(res) {
					t.Errorf("Run() = %+v, %v", res, err)
				}
				err := r.Close()
				leak, ok := errors.AsType[*runtimecloud.LeakError](err)
				if ok != c.leak {
					t.Fatalf("Close() = %v", err)
				}
				if !c.leak {
					return
				}
				if live := srv.Live(); len(live) != 1 || len(leak.Sandboxes) != 1 || leak.Sandboxes[0] != live[0] || !strings.Contains(err.Error(), live[0]) {
					t.Errorf("Close() = %v, left is %q", err, live)
				}
				if !strings.Contains(log.String(), leak.Sandboxes[0]) || !strings.Contains(log.String(), "level=ERROR") {
					t.Error("the log does not tell")
				}
				if len(srv.Requests(runtimetest.StepStop)) == 0 {
					t.Error("it was not even stopped")
				}
				time.Sleep(time.Minute)
				if deleted, err := r.Sweep(t.Context(), 30*time.Second); err != nil || len(deleted) != 1 {
					t.Errorf("Sweep() = %q, %v", deleted, err)
				}
				if err := r.Close(); err != nil {
					t.Errorf("Close() after Sweep() = %v", err)
				}
			})
		})
	}
}

// When no answer comes at all, what may be there is told by its label.
func TestUnsettledCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := runtimetest.New(t)
		r := newRunner(srv, new(logBuffer))
		for range 5 {
			srv.Fail(runtimetest.StepCreate, runtimetest.Fault{After: true, Drop: true})
			srv.Fail(runtimetest.StepList, runtimetest.Fault{Drop: true})
		}
		if _, err := r.Run(t.Context(), fnloop.Program{}); err == nil {
			t.Fatal("Run() is nil")
		}
		err := r.Close()
		leak, ok := errors.AsType[*runtimecloud.LeakError](err)
		if !ok || len(leak.Runs) != 1 || !strings.Contains(err.Error(), "run="+leak.Runs[0]) {
			t.Errorf("Close() = %v", err)
		}
		if deleted, err := r.Sweep(t.Context(), time.Nanosecond); err != nil || len(deleted) != 1 {
			t.Errorf("Sweep() = %q, %v", deleted, err)
		}
	})
}

// The sandbox goes away under the program.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		reason string
		own    bool
	}{
		{"host_stopped", true}, // root in it has shut it down
		{"lifetime_cap", true},
		{"host_lost", false},
		{"operator_stopped", false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				var runs func() int
				b.Exec, runs = script(hang)
				go func() {
					time.Sleep(5 * time.Second)
					b.End(b.Live()[0], c.reason)
				}()
				start := time.Now()
				res, err := b.runner.Run(t.Context(), fnloop.Program{})
				if res.End != fnloop.EndLost || res.Stdout != "step 1\n" || res.ExitCode != nil || res.TimedOut || (err == nil) != c.own {
					t.Errorf("Run() = %+v, %v", res, err)
				}
				if took := time.Since(start); took > 7*time.Second {
					t.Errorf("Run() took %v", took)
				}
				if runs() != 1 {
					t.Errorf("the program ran %d times", runs())
				}
			})
		})
	}
}

// A stream that never tells the end is given up, with what it brought.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		var runs func() int
		b.Exec, runs = script(hang)
		b.Fail(runtimetest.StepExec, runtimetest.Fault{Stream: runtimetest.StreamFreeze, Events: 2})
		for range 20 {
			b.Fail(runtimetest.StepOutput, runtimetest.Fault{Freeze: true})
		}
		start := time.Now()
		res, err := b.runner.Run(t.Context(), fnloop.Program{Limits: fnloop.Limits{Time: 10 * time.Second}})
		e, ok := errors.AsType[*runtimecloud.Error](err)
		if !ok || e.Code != "stream_failed" || res.End != fnloop.EndLost || res.Stdout != "step 1\n" {
			t.Errorf("Run() = %+v, %v", res, err)
		}
		if took := time.Since(start); took > 91*time.Second {
			t.Errorf("Run() took %v", took)
		}
		if runs() != 1 {
			t.Errorf("the program ran %d times", runs())
		}
	})
}

// A program may say nothing for longer than any stream lives, and the service
// may be away for a while.
func TestSilentProgram(t *testing.T) {
	for _, fault := range []runtimetest.Fault{
		{Stream: runtimetest.StreamContinue},
		{Stream: runtimetest.StreamError},
		{Status: 503, Code: "api_unavailable"},
	} {
		t.Run(string(fault.Stream)+fault.Code, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.Exec = func(context.Context, *runtimetest.Command) runtimetest.Exit {
					time.Sleep(20 * time.Minute)
					return runtimetest.Exit{Code: 4}
				}
				b.Fail(runtimetest.StepExec, runtimetest.Fault{Stream: runtimetest.StreamContinue, Events: 1})
				for range 40 {
					b.Fail(runtimetest.StepOutput, fault)
				}
				res := b.run(t, fnloop.Program{Limits: fnloop.Limits{Time: time.Hour}})
				if res.ExitCode == nil || *res.ExitCode != 4 || b.Unused() > 0 {
					t.Errorf("Run() = %+v, %d faults not met", res, b.Unused())
				}
			})
		})
	}
}

// What the stream lost is not passed over in silence.
func TestLostBytes(t *testing.T) {
	for _, fault := range []runtimetest.StreamFault{runtimetest.StreamTruncated, runtimetest.StreamGap} {
		t.Run(string(fault), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
					for i := range 4 {
						fmt.Fprintf(cmd.Stdout, "%d\n", i)
					}
					return runtimetest.Exit{}
				}
				b.Fail(runtimetest.StepExec, runtimetest.Fault{Stream: fault, Events: 2})
				res := b.run(t, fnloop.Program{})
				if res.Stdout != "0\n2\n3\n" || !res.StdoutTruncated || !res.StderrTruncated {
					t.Errorf("Run() = %+v", res)
				}
			})
		})
	}
}

// Where a stream breaks behind text that stands in for bytes, it is not known
// where it is to be taken up.
func TestResumeLossy(t *testing.T) {
	for _, c := range []struct {
		out   string
		fault runtimetest.StreamFault
		vague bool
	}{
		{"a\xff", runtimetest.StreamCut, true},
		{"a\xff", runtimetest.StreamContinue, false}, // it gives the cursor
		{"a€", runtimetest.StreamCut, false},
	} {
		bubble(t, func(t *testing.T, b *bench) {
			b.Lossy = true
			b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
				fmt.Fprint(cmd.Stdout, c.out)
				time.Sleep(time.Second)
				fmt.Fprint(cmd.Stdout, "more")
				return runtimetest.Exit{}
			}
			b.Fail(runtimetest.StepExec, runtimetest.Fault{Stream: c.fault, Events: 2})
			res := b.run(t, fnloop.Program{})
			if res.StdoutTruncated != c.vague || !c.vague && res.Stdout != strings.ToValidUTF8(c.out, "\ufffd")+"more" {
				t.Errorf("%q, %s: Run() = %+v", c.out, c.fault, res)
			}
		})
	}
}

// A stream that breaks all the time loses and repeats nothing.
func TestResume(t *testing.T) {
	for _, fault := range []runtimetest.StreamFault{runtimetest.StreamCut, runtimetest.StreamHalf, runtimetest.StreamContinue, runtimetest.StreamGarbage} {
		t.Run(string(fault), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				var want strings.Builder
				b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
					for i := range 40 {
						line := fmt.Sprintf("%d € \xff\n", i)
						want.WriteString(strings.ToValidUTF8(line, "\ufffd"))
						cmd.Stdout.Write([]byte(line))
						fmt.Fprintln(cmd.Stderr, i)
						time.Sleep(50 * time.Millisecond)
					}
					return runtimetest.Exit{}
				}
				b.Fail(runtimetest.StepExec, runtimetest.Fault{Stream: fault, Events: 3})
				for i := range 20 {
					b.Fail(runtimetest.StepOutput, runtimetest.Fault{Stream: fault, Events: 1 + i%4})
				}
				res := b.run(t, fnloop.Program{})
				if res.Stdout != want.String() || res.StdoutTruncated || strings.Count(res.Stderr, "\n") != 40 {
					t.Errorf("Stdout = %q", res.Stdout)
				}
			})
		})
	}
}
