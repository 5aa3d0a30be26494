package runtimetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fnloop/fnloop/runners/runtimecloud/runtimetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// caller makes plain requests.
type caller struct {
	t    *testing.T
	http http.RoundTripper
	base string
	key  string
	n    int
}

func newCaller(t *testing.T) (*runtimetest.Server, *caller) {
	srv := new(runtimetest.Server)
	return srv, &caller{t: t, http: srv, base: "http://localhost", key: runtimetest.Key}
}

type reply struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (r reply) code() string {
	e, _ := r.json["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

func (c *caller) do(method, path, body, key string) reply {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if strings.Contains(path, "/files/content") {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(b)}
	json.Unmarshal(b, &r.json)
	return r
}

// call makes a request with a key of its own and expects a code, or success.
func (c *caller) call(method, path, body, code string) reply {
	c.t.Helper()
	c.n++
	key := ""
	if method != http.MethodGet {
		key = fmt.Sprint("key-", c.n)
	}
	r := c.do(method, path, body, key)
	if r.code() != code || (code == "") != (r.status == 200) {
		c.t.Errorf("%s %s %s = %d %s, want code %q", method, path, body, r.status, r.text, code)
	}
	if id := r.header.Get("x-request-id"); id == "" || code != "" && !strings.Contains(r.text, `"requestId":"`+id+`"`) {
		c.t.Errorf("%s %s has the request ID %q and the answer %s", method, path, id, r.text)
	}
	return r
}

func (c *caller) create(body string) string {
	c.t.Helper()
	id, _ := c.call("POST", "/v1/sandboxes", body, "").json["id"].(string)
	return "/v1/sandboxes/" + id
}

func TestRoutes(t *testing.T) {
	_, c := newCaller(t)
	sb := c.create("")
	c.call("GET", "/v1/me", "", "")
	c.call("GET", "/v1/nothing", "", "route_not_found")
	c.call("GET", "/", "", "route_not_found")
	c.call("GET", "/v1//sandboxes", "", "route_not_found")
	c.call("GET", "/v1/sandboxes/../me", "", "route_not_found")
	c.call("PATCH", "/v1/sandboxes", "{}", "method_not_allowed")
	c.call("GET", sb+":exec", "", "method_not_allowed")
	c.call("POST", sb+":nothing", "{}", "route_not_found")
	c.call("POST", sb+"/files:mkdir", "{}", "unsupported")
	c.call("GET", "/v1/sandboxes/none", "", "not_found")
	if r := c.do("POST", sb+":stop", "{}", ""); r.code() != "invalid_request" {
		t.Errorf("a change without a key = %s", r.text)
	}
	c.key = runtimetest.OtherKey
	c.call("GET", sb, "", "not_found")
	c.call("DELETE", sb, "", "not_found")
	c.key = runtimetest.ReadOnlyKey
	c.call("GET", sb, "", "")
	c.call("DELETE", sb, "", "forbidden")
	c.key = "wrong"
	c.call("GET", sb, "", "unauthorized")
}

// All wrong fields are told at once, and nothing is made.
func TestValidation(t *testing.T) {
	srv, c := newCaller(t)
	labels := func(n int) string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("l", i)] = "x"
		}
		b, _ := json.Marshal(map[string]any{"labels": m})
		return string(b)
	}
	for body, paths := range map[string][]string{
		`{"vcpus":2,"timeoutSeconds":5}`:                      {"timeoutSeconds", "vcpus"},
		`{"vcpu":0,"memoryMiB":64,"diskMiB":1}`:               {"diskMiB", "memoryMiB", "vcpu"},
		`{"vcpu":17,"memoryMiB":65537,"diskMiB":409601}`:      {"diskMiB", "memoryMiB", "vcpu"},
		`{"idlePauseSeconds":9,"timeoutSeconds":86401}`:       {"idlePauseSeconds", "timeoutSeconds"},
		`{"onLeaseEnd":"keep","onTimeout":"keep"}`:            {"onLeaseEnd", "onTimeout"},
		`{"vcpu":"2","labels":[],"network":{"open":1}}`:       {"labels", "network", "vcpu"},
		`{"image":"a","snapshot":"b"}`:                        {"snapshot"},
		`{"vcpu":null}`:                                       {"vcpu"},
		`{"env":{"A":"` + strings.Repeat("x", 33<<10) + `"}}`: {"env"},
		labels(33): {"labels"},
		`[]`:       {""},
	} {
		r := c.call("POST", "/v1/sandboxes", body, "invalid_request")
		var w struct {
			Error struct {
				Details struct {
					Issues []struct{ Path, Message string }
				}
			}
		}
		if err := json.Unmarshal([]byte(r.text), &w); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range w.Error.Details.Issues {
			got = append(got, i.Path)
		}
		if !slices.Equal(got, paths) {
			t.Errorf("%.60s: issues at %q, want %q", body, got, paths)
		}
	}
	if srv.Created() != 0 {
		t.Errorf("%d sandboxes were made", srv.Created())
	}
	c.call("POST", "/v1/sandboxes", `{"region":"moon"}`, "invalid_region")
	c.call("POST", "/v1/sandboxes", `{"maxCostMicros":6000,"timeoutSeconds":300}`, "budget_exceeded")
	sb := c.create(labels(32))
	c.create(`{"maxCostMicros":7000,"timeoutSeconds":300,"funding":"trial","pausable":false,"onLeaseEnd":"stop"}`)
	for _, body := range []string{
		`{}`, `{"argv":[]}`, `{"argv":["a"],"command":"a"}`, `{"argv":["a"],"timeoutMs":0}`, `{"argv":["a"],"timeoutMs":86400001}`,
		`{"argv":["a"],"cwd":"here"}`, `{"argv":["a"],"stdinBase64":"?"}`, `{"argv":"a"}`, `{"argv":["a"],"shell":true}`,
	} {
		c.call("POST", sb+":exec", body, "invalid_request")
	}
	c.call("PUT", sb+"/files/content?path=main.py", "x", "invalid_request")
	c.call("PUT", sb+"/files/content?path=/a/../b", "x", "invalid_request")
	c.call("PUT", sb+"/files/content?path=/b", strings.Repeat("x", 1<<20+1), "file_too_large")
	c.call("GET", "/v1/sandboxes?limit=101", "", "invalid_request")
}

func TestIdempotency(t *testing.T) {
	srv, c := newCaller(t)
	first := c.do("POST", "/v1/sandboxes", `{"timeoutSeconds":300}`, "k")
	again := c.do("POST", "/v1/sandboxes", `{"timeoutSeconds":300}`, "k")
	if again.json["id"] != first.json["id"] || again.json["replayed"] != true || again.header.Get("Idempotency-Replayed") != "true" || srv.Created() != 1 {
		t.Errorf("again = %s", again.text)
	}
	if r := c.do("POST", "/v1/sandboxes", `{"timeoutSeconds":600}`, "k"); r.status != 422 || r.code() != "idempotency_key_reused" {
		t.Errorf("another body = %s", r.text)
	}
	sb := "/v1/sandboxes/" + first.json["id"].(string)
	if r := c.do("POST", sb+":stop", `{}`, "k"); r.code() != "operation_conflict" {
		t.Errorf("another operation = %s", r.text)
	}
	c.call("DELETE", sb, "", "")
	c.call("DELETE", sb, "", "") // the same answer again
	c.call("GET", sb, "", "not_found")
	if r := c.do("POST", "/v1/sandboxes", `{"timeoutSeconds":300}`, "k"); r.json["state"] != "running" || srv.Created() != 1 {
		t.Errorf("the old answer is no longer remembered: %s", r.text)
	}
	// A refusal is not remembered.
	srv.Fail(runtimetest.StepCreate, runtimetest.Fault{Code: "no_capacity"})
	if r := c.do("POST", "/v1/sandboxes", "", "room"); r.code() != "no_capacity" {
		t.Errorf("%s", r.text)
	}
	if r := c.do("POST", "/v1/sandboxes", "", "room"); r.status != 200 {
		t.Errorf("%s", r.text)
	}
}

// What time does to a sandbox.
func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		state := func(sb string) any { return c.call("GET", sb, "", "").json["state"] }

		deleted := c.create(`{"timeoutSeconds":60,"onLeaseEnd":"delete","idlePauseSeconds":0}`)
		stopped := c.create(`{"timeoutSeconds":60,"onTimeout":"stop","idlePauseSeconds":0}`)
		idle := c.create(`{}`)
		asleep := c.create(`{"autoWake":false}`)
		time.Sleep(59 * time.Second)
		if state(deleted) != "running" || state(stopped) != "running" || state(idle) != "running" {
			t.Error("they do not run")
		}
		time.Sleep(2 * time.Second)
		c.call("GET", deleted, "", "not_found")
		if r := c.call("GET", stopped, "", ""); r.json["state"] != "stopped" || r.json["diskKept"] != true || r.json["stopReason"] != "time_limit" {
			t.Errorf("%s", r.text)
		}
		if r := c.call("GET", idle, "", ""); r.json["state"] != "paused" || r.json["stopReason"] != "idle" {
			t.Errorf("%s", r.text)
		}
		c.call("POST", asleep+":exec", `{"argv":["true"]}`, "sandbox_paused")
		c.call("POST", idle+":exec", `{"argv":["true"]}`, "")
		if state(idle) != "running" {
			t.Error("a command does not wake it")
		}
		c.call("POST", stopped+":exec", `{"argv":["true"]}`, "sandbox_stopped")
		c.call("POST", stopped+":stop", `{}`, "")
		c.call("POST", asleep+":wake", `{}`, "")
		c.call("POST", asleep+":wake", `{}`, "not_paused")
		c.call("POST", asleep+":pause", `{}`, "")

		short := c.create(`{"timeoutSeconds":60,"onLeaseEnd":"delete"}`)
		if r := c.call("POST", short+":exec", `{"argv":["a"],"timeoutMs":61000}`, "time_limit_too_short"); !strings.Contains(r.text, `"secondsLeft":60`) {
			t.Errorf("%s", r.text)
		}
		c.call("POST", short+":extend", `{"seconds":60}`, "")
		c.call("POST", short+":exec", `{"argv":["a"],"timeoutMs":61000}`, "")

		srv.StartDelay, srv.Hasty = 20*time.Second, true
		slow := c.create(`{}`)
		if state(slow) != "starting" {
			t.Error("it runs at once")
		}
		if r := c.call("GET", slow+"?waitFor=running&timeoutSeconds=5", "", ""); r.json["state"] != "starting" {
			t.Errorf("%s", r.text)
		}
		if r := c.call("GET", slow+"?waitFor=running&timeoutSeconds=60", "", ""); r.json["state"] != "running" {
			t.Errorf("%s", r.text)
		}
	})
}

func TestRoomAndList(t *testing.T) {
	srv, c := newCaller(t)
	srv.MaxRunning, srv.PageSize = 3, 2
	for i := range 3 {
		c.create(fmt.Sprintf(`{"labels":{"app":"a","n":"%d"}}`, i))
	}
	r := c.call("POST", "/v1/sandboxes", "", "no_credit_running_limit")
	if r.status != 409 || !strings.Contains(r.text, `"concurrent":3`) {
		t.Errorf("%d %s", r.status, r.text)
	}
	srv.RoomCode, srv.RoomStatus = "trial_busy", 503
	if r := c.call("POST", "/v1/sandboxes", "", "trial_busy"); r.status != 503 {
		t.Errorf("%d %s", r.status, r.text)
	}
	var ids []string
	for cursor := ""; ; {
		r := c.call("GET", "/v1/sandboxes?label=app:a&cursor="+cursor, "", "")
		for _, sb := range r.json["data"].([]any) {
			ids = append(ids, sb.(map[string]any)["id"].(string))
		}
		next, more := r.json["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if !slices.Equal(ids, srv.Live()) {
		t.Errorf("listed %q of %q", ids, srv.Live())
	}
	if r := c.call("GET", "/v1/sandboxes?label=app:a&label=n:1&state=running", "", ""); len(r.json["data"].([]any)) != 1 {
		t.Errorf("%s", r.text)
	}
}

func TestFiles(t *testing.T) {
	srv, c := newCaller(t)
	srv.ChunkBytes = 4
	sb := c.create("")
	c.call("PUT", sb+"/files/content?path=/workspace/a", "hello\x00", "")
	r := c.do("GET", sb+"/files/content?path=/workspace/a", "", "")
	if r.text != "hello\x00" || r.header.Get("x-content-length") != "6" || len(r.header.Get("x-content-sha256")) != 64 {
		t.Errorf("%v %q", r.header, r.text)
	}
	c.call("GET", sb+"/files/content?path=/workspace/b", "", "file_not_found")
	// sha256 of "0123456789"
	up := c.call("POST", sb+"/uploads", `{"path":"/workspace/b","size":10,"sha256":"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"}`, "")
	to := sb + "/uploads/" + up.json["uploadId"].(string)
	c.call("PUT", to+"?offset=4", "4567", "")
	c.call("PUT", to+"?offset=0", "0123", "")
	c.call("PUT", to+"?offset=1", "1", "invalid_request")
	c.call("POST", to+":commit", "{}", "upload_incomplete")
	c.call("PUT", to+"?offset=8", "89", "")
	c.call("POST", to+":commit", "{}", "")
	c.call("POST", to+":commit", "{}", "transfer_not_found")
	if r := c.do("GET", sb+"/files/content?path=/workspace/b", "", ""); r.text != "0123456789" {
		t.Errorf("%q", r.text)
	}
	c.call("POST", sb+"/uploads", `{"path":"/etc/b","size":10,"sha256":""}`, "invalid_request")
}

func TestExec(t *testing.T) {
	srv, c := newCaller(t)
	srv.Exec = func(_ context.Context, cmd *runtimetest.Command) runtimetest.Exit {
		switch cmd.Argv[0] {
		case "cat":
			cmd.Stdout.Write(cmd.Stdin)
		case "bash":
			fmt.Fprint(cmd.Stderr, cmd.Argv[2], cmd.Env["A"])
			return runtimetest.Exit{Code: 5}
		case "killed":
			return runtimetest.Exit{Signal: 9}
		}
		return runtimetest.Exit{}
	}
	sb := c.create(`{"env":{"A":"a"}}`)
	r := c.call("POST", sb+":exec", `{"argv":["cat"],"stdin":"hi"}`, "")
	if r.json["stdout"] != "hi" || r.json["exitCode"] != 0.0 || r.json["stdoutTruncated"] != false || r.json["stderrTruncated"] != false || r.json["timedOut"] != false {
		t.Errorf("%s", r.text)
	}
	r = c.call("POST", sb+":exec", `{"command":"x; y","env":{"A":"b"}}`, "")
	if r.json["stderr"] != "x; yb" || r.json["exitCode"] != 5.0 {
		t.Errorf("%s", r.text)
	}
	r = c.call("POST", sb+":exec", `{"argv":["killed"]}`, "")
	if code, there := r.json["exitCode"]; code != nil || !there || r.json["timedOut"] != false {
		t.Errorf("%s", r.text)
	}
	long, _ := json.Marshal(map[string]any{"argv": []string{"cat"}, "stdin": strings.Repeat("x", 2<<20)})
	r = c.call("POST", sb+":exec", string(long), "")
	if len(r.json["stdout"].(string)) != 64<<10 || r.json["stdoutTruncated"] != true {
		t.Errorf("%d bytes, %v", len(r.json["stdout"].(string)), r.json["stdoutTruncated"])
	}
	long, _ = json.Marshal(map[string]any{"argv": []string{"cat"}, "stdin": strings.Repeat("x", 2<<20), "timeoutMs": 60001})
	if r = c.call("POST", sb+":exec", string(long), ""); len(r.json["stdout"].(string)) != 1<<20 {
		t.Errorf("%d bytes", len(r.json["stdout"].(string)))
	}
	stream := c.do("POST", sb+":exec", `{"argv":["cat"],"stdin":"a€","stream":true}`, "stream")
	lines := strings.Split(strings.TrimSpace(stream.text), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"start"`) || !strings.Contains(lines[1], `"data":"a€","offset":0`) || !strings.Contains(lines[2], `"exit"`) {
		t.Errorf("%s", stream.text)
	}
	var start struct{ ProcessID string }
	json.Unmarshal([]byte(lines[0]), &start)
	rest := c.do("GET", sb+"/processes/"+start.ProcessID+"/output?cursor=1&follow=true", "", "")
	if !strings.HasPrefix(rest.text, `{"data":"€","offset":1`) {
		t.Errorf("%s", rest.text)
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		srv.Exec = func(ctx context.Context, cmd *runtimetest.Command) runtimetest.Exit {
			fmt.Fprint(cmd.Stdout, "tick")
			<-ctx.Done()
			return runtimetest.Exit{Signal: 9}
		}
		sb := c.create("")
		start := time.Now()
		r := c.call("POST", sb+":exec", `{"argv":["a"],"timeoutMs":1500}`, "")
		if r.json["timedOut"] != true || r.json["exitCode"] != nil || r.json["stdout"] != "tick" || time.Since(start) != 1500*time.Millisecond {
			t.Errorf("%s after %v", r.text, time.Since(start))
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		srv.Rate, srv.Burst = 10, 20
		for range 20 {
			c.call("GET", "/v1/me", "", "")
		}
		if r := c.call("GET", "/v1/me", "", "rate_limited"); r.status != 429 || r.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.status, r.text)
		}
		time.Sleep(time.Second)
		c.call("GET", "/v1/me", "", "")
		if srv.Limited() != 1 {
			t.Errorf("Limited() = %d", srv.Limited())
		}
	})
}

// The answers without a connection are those of one.
func TestTransports(t *testing.T) {
	for _, fault := range []runtimetest.Fault{
		{}, {Drop: true}, {Half: true}, {Late: true}, {Location: "/v1/me"}, {Status: 502, Body: "<html>"}, {Code: "busy", Status: 503, RetryAfter: "1"},
	} {
		var got []string
		for _, real := range []bool{false, true} {
			srv, c := newCaller(t)
			transport := new(http.Transport)
			defer transport.CloseIdleConnections()
			if real {
				c.base, c.http = srv.Start(t), transport
			}
			srv.Fail(runtimetest.StepMe, fault)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+"/v1/me", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+c.key)
			resp, err := c.http.RoundTrip(req)
			if err != nil {
				got = append(got, "no answer")
				if fault.Drop != errors.Is(err, io.EOF) {
					t.Errorf("%+v: %v", fault, err)
				}
				continue
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			got = append(got, fmt.Sprint(resp.StatusCode, resp.Header.Get("Location"), resp.Header.Get("Retry-After"), resp.Header.Get("x-request-id"),
				resp.Header.Get("runtime-late-answer"), string(bytes.TrimSpace(body)), err != nil))
		}
		if got[0] != got[1] {
			t.Errorf("%+v: without a connection %q, with one %q", fault, got[0], got[1])
		}
	}
}
