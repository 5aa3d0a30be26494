package runtimecloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/runtimecloud"
	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

// leave makes a sandbox that nobody looks after.
func leave(t *testing.T, srv *runtimetest.Server, key, labels string) string {
	t.Helper()
	body := `{"labels":` + labels + `,"timeoutSeconds":86400,"onLeaseEnd":"delete","idlePauseSeconds":0}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/sandboxes", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Idempotency-Key", fmt.Sprint("left ", srv.Created()))
	resp, err := srv.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var sb struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&sb); err != nil || sb.ID == "" {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return sb.ID
}

// Sweep takes what is old and ours, page by page, and spares all else.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := new(runtimetest.Server) // some are to be left
		srv.PageSize = 2
		r := newRunner(srv, new(logBuffer))
		var old []string
		for i := range 5 {
			old = append(old, leave(t, srv, secretKey, fmt.Sprintf(`{"app":"fnloop","run":"crashed-%d"}`, i)))
		}
		spared := []string{
			leave(t, srv, secretKey, `{"app":"other"}`),
			leave(t, srv, runtimetest.OtherKey, `{"app":"fnloop"}`),
		}
		srv.Exec = func(context.Context, *runtimetest.Command) runtimetest.Exit {
			time.Sleep(3 * time.Hour)
			return runtimetest.Exit{}
		}
		ended := make(chan fnloop.Result)
		go func() {
			res, err := r.Run(t.Context(), fnloop.Program{Limits: fnloop.Limits{Time: 4 * time.Hour}})
			if err != nil {
				t.Errorf("Run() = %v: a program that runs was swept away", err)
			}
			ended <- res
		}()
		time.Sleep(2 * time.Hour)
		young := leave(t, srv, secretKey, `{"app":"fnloop","run":"young"}`)

		srv.Fail(runtimetest.StepDelete, runtimetest.Fault{Status: 503, Code: "busy"})
		deleted, err := r.Sweep(t.Context(), 0)
		slices.Sort(deleted)
		if err != nil || !slices.Equal(deleted, old) {
			t.Errorf("Sweep() = %q, %v; want %q", deleted, err, old)
		}
		live := srv.Live()
		for _, id := range append(spared, young) {
			if !slices.Contains(live, id) {
				t.Errorf("Sweep() took %s", id)
			}
		}
		<-ended
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A sweep spares what is not known to be old.
func TestSweepSpares(t *testing.T) {
	requests := 0
	r := &runtimecloud.Runner{Key: secretKey, Transport: transport(func(req *http.Request) string {
		requests++
		if req.Method != http.MethodGet {
			t.Errorf("%s %s", req.Method, req.URL.Path)
		}
		return `{"data":[{"id":"a","labels":{"app":"fnloop"}},{"id":"b","labels":{"app":"fnloop"},"createdAt":null}]}`
	})}
	if deleted, err := r.Sweep(t.Context(), time.Hour); len(deleted) > 0 || err != nil || requests != 1 {
		t.Errorf("Sweep() = %q, %v", deleted, err)
	}
	if _, err := r.Sweep(t.Context(), -time.Second); !errors.As(err, new(*runtimecloud.ConfigError)) || requests != 1 {
		t.Errorf("Sweep() = %v for a negative age", err)
	}
}

// transport answers every request with JSON.
type transport func(*http.Request) string

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(req)))}, nil
}

func TestSetup(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.runner.Setup = runtimecloud.PipInstall("httpx==0.28.1")
		var commands []string
		b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			_, written := cmd.File("/workspace/main.py")
			commands = append(commands, fmt.Sprintf("%s internet=%v program=%v %v", strings.Join(cmd.Argv, " "), cmd.Internet, written, cmd.Timeout))
			return runtimetest.Exit{}
		}
		b.run(t, fnloop.Program{})
		want := []string{
			"python3 -m pip install --user --break-system-packages --no-input --no-cache-dir --disable-pip-version-check --quiet -- httpx==0.28.1 internet=true program=false 2m0s",
			"python3 main.py internet=false program=true 30s",
		}
		if !slices.Equal(commands, want) {
			t.Errorf("commands:\n%s\nwant\n%s", strings.Join(commands, "\n"), strings.Join(want, "\n"))
		}
		create := string(b.Requests(runtimetest.StepCreate)[0].Body)
		if !strings.Contains(create, `"network":{"internet":true,"allow":["pypi.org","files.pythonhosted.org"]}`) {
			t.Errorf("create: %s", create)
		}
		if got := string(b.Requests(runtimetest.StepNetwork)[0].Body); got != `{"internet":false}` {
			t.Errorf("network: %s", got)
		}
	})
}

// A program never runs where the setup failed or its network stayed open.
func TestSetupFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		exit  runtimetest.Exit
		fault runtimetest.Fault
		check func(error) bool
	}{
		{"status", runtimetest.Exit{Code: 1}, runtimetest.Fault{}, func(err error) bool {
			e, ok := errors.AsType[*runtimecloud.SetupError](err)
			return ok && *e.ExitCode == 1 && e.Output == "no such package\n" && strings.HasSuffix(err.Error(), "exited with status 1: no such package")
		}},
		{"killed", runtimetest.Exit{Signal: 9}, runtimetest.Fault{}, func(err error) bool {
			e, ok := errors.AsType[*runtimecloud.SetupError](err)
			return ok && e.ExitCode == nil && strings.Contains(err.Error(), "was killed")
		}},
		{"the network cannot be closed", runtimetest.Exit{}, runtimetest.Fault{Status: 503, Code: "network_rules_unavailable"}, func(err error) bool {
			e, ok := errors.AsType[*runtimecloud.Error](err)
			return ok && e.Op == "network"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.runner.Setup = &runtimecloud.Setup{Argv: []string{"install"}}
				b.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
					if cmd.Argv[0] == "python3" {
						t.Error("the program ran")
					}
					fmt.Fprintln(cmd.Stderr, "no such package")
					return c.exit
				}
				b.Fail(runtimetest.StepNetwork, c.fault)
				if _, err := b.runner.Run(t.Context(), fnloop.Program{}); !c.check(err) {
					t.Errorf("Run() error = %v", err)
				}
			})
		})
	}
}

func TestCharged(t *testing.T) {
	type tenant struct{}
	for _, c := range []struct {
		name     string
		faults   []runtimetest.Fault
		micros   int64
		estimate bool
	}{
		// 100 seconds of 4 GiB, and of a twentieth of a vCPU.
		{"as the API tells", nil, 868, false},
		{"estimated", []runtimetest.Fault{{Status: 500, Code: "internal_error"}}, 2223, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.Exec = func(context.Context, *runtimetest.Command) runtimetest.Exit {
					time.Sleep(100 * time.Second)
					return runtimetest.Exit{}
				}
				b.Fail(runtimetest.StepStop, c.faults...)
				var got []runtimecloud.Charge
				b.runner.Charged = func(ctx context.Context, charge runtimecloud.Charge) {
					if ctx.Value(tenant{}) != "red" || ctx.Err() != nil {
						t.Errorf("the context is %v", ctx)
					}
					got = append(got, charge)
				}
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), tenant{}, "red"))
				if _, err := b.runner.Run(ctx, fnloop.Program{Limits: fnloop.Limits{Time: 200 * time.Second}}); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := b.runner.Close(); err != nil {
					t.Fatal(err)
				}
				if len(got) != 1 || got[0].Micros != c.micros || got[0].Estimate != c.estimate || got[0].Sandbox == "" || got[0].Run == "" || got[0].Alive != 100*time.Second {
					t.Errorf("charged %+v", got)
				}
			})
		})
	}
}

func TestSetSecret(t *testing.T) {
	const value = "sk-very-secret value"
	bubble(t, func(t *testing.T, b *bench) {
		secret := runtimecloud.EgressSecret{
			Name: "WEATHER_KEY", Value: value, Hosts: []string{"api.weather.example"}, Header: "Authorization", Format: "Bearer {value}",
		}
		b.Fail(runtimetest.StepSecret, runtimetest.Fault{Drop: true})
		stored, err := b.runner.SetSecret(t.Context(), secret)
		if err != nil || !strings.HasPrefix(stored.Placeholder, "rtsec_") || stored.Name != "WEATHER_KEY" || !stored.Enforced || stored.UpdatedAt.IsZero() {
			t.Fatalf("SetSecret() = %+v, %v", stored, err)
		}
		if got := b.SecretValue("WEATHER_KEY"); got != value {
			t.Errorf("the service has %q", got)
		}
		again, err := b.runner.SetSecret(t.Context(), secret)
		if err != nil || again.Placeholder != stored.Placeholder {
			t.Errorf("SetSecret() = %+v, %v; want the same placeholder", again, err)
		}

		// A service that echoes what it was sent shows it to nobody.
		b.Fail(runtimetest.StepSecret, runtimetest.Fault{
			Status: 400, Code: "invalid_request", Message: "not " + value, Hint: "not " + value, Details: map[string]string{"value": value},
		})
		_, err = b.runner.SetSecret(t.Context(), secret)
		e, ok := errors.AsType[*runtimecloud.Error](err)
		if !ok || e.Code != "invalid_request" {
			t.Fatalf("SetSecret() error = %v", err)
		}
		for _, s := range []string{
			err.Error(), fmt.Sprintf("%+v %#v", *e, *e), string(e.Details), b.log.String(),
			fmt.Sprintf("%v %+v %#v %s %q %x", secret, secret, secret, secret.Value, secret.Value, secret.Value),
		} {
			if strings.Contains(s, value) || strings.Contains(s, fmt.Sprintf("%x", value)) {
				t.Errorf("the value is in %s", s)
			}
		}
		if j, err := json.Marshal(secret); err != nil || strings.Contains(string(j), value) {
			t.Errorf("json.Marshal() = %s, %v", j, err)
		}
		for field, bad := range map[string]runtimecloud.EgressSecret{
			"EgressSecret.Name":   {Name: "A-B", Value: "x", Hosts: []string{"a.example"}},
			"EgressSecret.Value":  {Name: "A", Value: value + "\n", Hosts: []string{"a.example"}},
			"EgressSecret.Hosts":  {Name: "A", Value: "x", Hosts: []string{"*"}},
			"EgressSecret.Format": {Name: "A", Value: "x", Hosts: []string{"a.example"}, Format: "{value}"},
		} {
			_, err := b.runner.SetSecret(t.Context(), bad)
			if e, ok := errors.AsType[*runtimecloud.ConfigError](err); !ok || e.Field != field || strings.Contains(err.Error(), value) {
				t.Errorf("SetSecret() error = %v, want one about %s", err, field)
			}
		}
	})
}

// Nothing that prints a Runner shows its key.
func TestRunnerHidesKey(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.run(t, fnloop.Program{})
		r := b.runner
		if err := r.Close(); err != nil { // it is not printed while it works
			t.Fatal(err)
		}
		key, err := json.Marshal(r.Key)
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprintf("%v %+v %#v %s %d %x %s", r, r, r, r.Key, r.Key, r.Key, key)
		if strings.Contains(shown, secretKey) || strings.Contains(shown, fmt.Sprintf("%x", secretKey)) {
			t.Errorf("the key is in %s", shown)
		}
	})
}

// A hundred programs at once share the connections and stay within the limit of
// requests a second, without an error.
func TestManyPrograms(t *testing.T) {
	srv := runtimetest.New(t)
	srv.Delay = 10 * time.Millisecond
	srv.Rate, srv.Burst = 500, 200
	srv.MaxConns = 48 // the 49th connection would be dropped
	var running, most atomic.Int64
	srv.Exec = func(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(100 * time.Millisecond)
		running.Add(-1)
		return hello(ctx, cmd)
	}
	r := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(t), Rate: 100}
	start := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if res, err := r.Run(t.Context(), fnloop.Program{}); err != nil || !isHello(res) {
				t.Errorf("Run() = %+v, %v", res, err)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	requests := srv.Requests()
	if n := srv.Limited(); n > 0 || len(requests) != 400 {
		t.Errorf("%d of %d requests were too many", n, len(requests))
	}
	if n := srv.MaxServing(); n > 48 {
		t.Errorf("%d requests at once", n)
	}
	if n := most.Load(); n > 40 {
		t.Errorf("%d programs at once", n)
	}
	// TestLimiter has the exact figures; here some come late on a busy machine.
	const late = 500 * time.Millisecond
	for i, first := range requests {
		for j, last := range requests[i:] {
			if d := last.Time.Sub(first.Time); float64(j) > 200+100*(d+late).Seconds() {
				t.Fatalf("%d requests came within %v", j, d)
			}
		}
	}
	t.Logf("100 programs in %v, at most %d requests and %d programs at once", took, srv.MaxServing(), most.Load())
}

// Connections are kept: each new one would be round trips more.
func TestConnectionsAreReused(t *testing.T) {
	api := runtimetest.New(t)
	api.Exec = hello
	var opened atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		api.ServeHTTP(w, req)
		time.Sleep(2 * time.Millisecond) // the end of an answer comes after its last bytes
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	r := &runtimecloud.Runner{Key: secretKey, URL: srv.URL, Rate: 1000}
	for range 20 {
		if res, err := r.Run(t.Context(), fnloop.Program{}); err != nil || !isHello(res) {
			t.Fatalf("Run() = %+v, %v", res, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n := opened.Load(); n > 5 { // for the program, and for deletes beside it
		t.Errorf("%d connections for 80 requests in turn", n)
	}
}

// When the account has room for eight, the others wait their turn.
func TestManyProgramsLittleRoom(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.MaxRunning = 8
		b.Delay = 100 * time.Millisecond
		b.Exec = hello
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				if res, err := b.runner.Run(t.Context(), fnloop.Program{}); err != nil || !isHello(res) {
					t.Errorf("Run() = %+v, %v", res, err)
				}
			})
		}
		wg.Wait()
		if n := b.Limited(); n > 0 {
			t.Errorf("%d requests were too many", n)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		b.Run(fmt.Sprintf("delay=%v", delay), func(b *testing.B) {
			srv := runtimetest.New(b)
			srv.Delay, srv.Rate, srv.Exec = delay, -1, hello
			r := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(b), Rate: 100_000}
			b.ReportAllocs()
			for b.Loop() {
				if res, err := r.Run(b.Context(), fnloop.Program{Source: "pass"}); err != nil || !isHello(res) {
					b.Fatal(res, err)
				}
			}
			b.StopTimer()
			if err := r.Close(); err != nil {
				b.Error(err)
			}
			if delay > 0 {
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(delay), "roundtrips/op")
			}
		})
	}
}

func BenchmarkRun100(b *testing.B) {
	srv := runtimetest.New(b)
	srv.Delay, srv.Rate, srv.Exec = 100*time.Millisecond, -1, hello
	r := &runtimecloud.Runner{Key: secretKey, URL: srv.Start(b), Rate: 100_000}
	for b.Loop() {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if res, err := r.Run(b.Context(), fnloop.Program{Source: "pass"}); err != nil || !isHello(res) {
					b.Error(res, err)
				}
			})
		}
		wg.Wait()
	}
	b.StopTimer()
	if err := r.Close(); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(srv.MaxServing()), "connections")
}
