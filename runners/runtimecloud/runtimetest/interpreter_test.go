package runtimetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/fake"
)

// guest runs cells such as "set x 1", "get x", "sleep 5s" and "exit".
func guest() *fake.Runner {
	var mu sync.Mutex
	vars := make(map[*fake.Interpreter]map[string]string)
	return &fake.Runner{Cells: func(ctx context.Context, i *fake.Interpreter, c interpreter.Cell) (e interpreter.Execution, err error) {
		mu.Lock()
		if vars[i] == nil {
			vars[i] = make(map[string]string)
		}
		own := vars[i]
		mu.Unlock()
		word := append(strings.Fields(c.Source), "", "", "")
		switch word[0] {
		case "set":
			own[word[1]] = word[2]
			i.Write(word[1], word[2])
		case "get":
			e.Displays = []interpreter.Display{{Main: true, Data: map[string][]byte{"text/plain": []byte(own[word[1]])}}}
		case "print":
			e.Stdout = word[1]
		case "show":
			e.Displays = []interpreter.Display{{Data: map[string][]byte{"text/html": []byte(strings.Repeat("x", 100_000)), "text/plain": []byte("small"), "application/json": []byte(`{"a":1}`), "image/png": {1}}}}
		case "sleep":
			d, _ := time.ParseDuration(word[1])
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		case "raise":
			e.Status, e.Error = interpreter.StatusError, &interpreter.Error{Name: "E", Value: "v", Traceback: "t"}
		case "exit":
			delete(vars, i)
			e.Status, e.Cause = interpreter.StatusLost, interpreter.CauseExit
			e.Loss = &interpreter.Loss{Cause: interpreter.CauseExit, Detail: "exit status 3", FilesKept: true}
			return e, nil
		}
		return e, nil
	}}
}

// cell runs one and gives the answer's fields.
func (c *caller) cell(sb, code string) map[string]any {
	c.t.Helper()
	return c.call("POST", sb+"/interpreter:run", fmt.Sprintf(`{"code":%q,"timeoutMs":10000}`, code), "").json
}

// value is the text of a cell's value.
func value(r map[string]any) string {
	results, _ := r["results"].([]any)
	for _, one := range results {
		if m := one.(map[string]any); m["main"] == true {
			return m["data"].(map[string]any)["text/plain"].(string)
		}
	}
	return ""
}

func TestCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		srv.Python = guest()
		sb := c.create(`{"idlePauseSeconds":600}`)
		defer c.call("DELETE", sb, "", "")

		// A context of one's own, and the one that is there by itself.
		r := c.call("POST", sb+"/interpreter/contexts", `{"id":"mine","language":"python"}`, "")
		process := r.json["processId"]
		if r.json["id"] != "mine" || process == nil || r.json["cwd"] != "/workspace" {
			t.Errorf("%s", r.text)
		}
		c.call("POST", sb+"/interpreter:run", `{"code":"set x 1","context":"mine"}`, "")
		r = c.call("POST", sb+"/interpreter:run", `{"code":"get x","context":"mine"}`, "")
		if r.json["status"] != "ok" || value(r.json) != "1" || r.json["contextStarted"] != false || r.json["executionCount"] != 2.0 {
			t.Errorf("%s", r.text)
		}
		if a := c.cell(sb, "get x"); value(a) != "" || a["contextStarted"] != true || a["contextId"] != "python" {
			t.Errorf("the other context: %v", a)
		}
		c.call("POST", sb+"/interpreter:run", `{"code":"1","context":"none"}`, "not_found")
		c.call("POST", sb+"/interpreter:run", `{"code":"","timeoutMs":-1}`, "invalid_request")
		c.call("POST", sb+"/interpreter:run", `{"code":"1","language":"r"}`, "interpreter_failed")

		// How cells end.
		if a := c.cell(sb, "raise"); a["status"] != "error" || a["error"].(map[string]any)["traceback"] != "t" {
			t.Errorf("an error: %v", a)
		}
		if a := c.cell(sb, "sleep 1m"); a["status"] != "timeout" {
			t.Errorf("a timeout: %v", a)
		}
		if a := c.cell(sb, "exit"); a["status"] != "lost" {
			t.Errorf("an end: %v", a)
		}
		if a := c.cell(sb, "print on"); a["stdout"] != "on" || a["contextStarted"] != true {
			t.Errorf("after it: %v", a)
		}
		c2 := *c
		c2.n = 1000
		go func() {
			time.Sleep(time.Second)
			if r := c2.call("POST", sb+"/interpreter/contexts/mine:interrupt", "{}", ""); r.json["interrupted"] != true {
				t.Errorf("%s", r.text)
			}
		}()
		r = c.call("POST", sb+"/interpreter:run", `{"code":"sleep 5s","context":"mine","timeoutMs":10000}`, "")
		if r.json["status"] != "interrupted" || r.json["durationMs"] != 1000.0 {
			t.Errorf("%s", r.text)
		}
		r = c.call("POST", sb+"/interpreter/contexts/mine:restart", "{}", "")
		if r.json["processId"] == process {
			t.Errorf("%s", r.text)
		}
		if r = c.call("GET", sb+"/processes/"+process.(string), "", ""); r.json["state"] != "killed" {
			t.Errorf("%s", r.text)
		}

		// Large values come by reference.
		a := c.cell(sb, "show")["results"].([]any)[0].(map[string]any)
		ref := a["refs"].(map[string]any)["text/html"].(map[string]any)
		file := ref["path"].(string)[strings.LastIndex(ref["path"].(string), "/")+1:]
		if r := c.call("GET", sb+"/interpreter/contexts/python/results/"+file, "", ""); len(r.text) != 100_000 || r.header.Get("x-content-sha256") != ref["sha256"] {
			t.Errorf("%d bytes, %v", len(r.text), r.header)
		}
		if data := a["data"].(map[string]any); data["image/png"] != "AQ==" || data["text/plain"] != "small" || data["application/json"].(map[string]any)["a"] != 1.0 {
			t.Errorf("the forms are %v", data)
		}

		// Files are those of the code.
		c.call("PUT", sb+"/files/content?path=/workspace/in/a.txt", "hello", "")
		r = c.call("GET", sb+"/files/list?path=/workspace&depth=9", "", "")
		if !strings.Contains(r.text, `"path":"/workspace/in/a.txt"`) || !strings.Contains(r.text, `"type":"directory"`) || !strings.Contains(r.text, `"path":"/workspace/x"`) {
			t.Errorf("%s", r.text)
		}
		if r := c.call("GET", sb+"/files/stat?path=/workspace/none", "", ""); r.json["exists"] != false {
			t.Errorf("%s", r.text)
		}
		c.call("GET", sb+"/files/content?path=/workspace/none", "", "file_not_found")
		if r := c.call("POST", sb+"/files:remove", `{"path":"/workspace/in","recursive":true}`, ""); r.json["removed"] != true {
			t.Errorf("%s", r.text)
		}
	})
}

// A paused sandbox keeps its variables, up to its last day.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		srv.Python = guest()
		sb := c.create(`{"idlePauseSeconds":600,"maxTotalCostMicros":20000}`)
		c.call("POST", sb+":retention", `{"days":366}`, "invalid_request")
		c.call("POST", sb+":retention", `{"days":2}`, "")
		c.cell(sb, "set x 1")
		time.Sleep(47 * time.Hour)
		if r := c.call("GET", sb, "", ""); r.json["state"] != "paused" || r.json["pausedExpiresAt"] == nil || r.json["chargedMicros"].(float64) < 5000 {
			t.Errorf("%s", r.text)
		}
		if a := c.cell(sb, "get x"); value(a) != "1" || a["contextStarted"] != false {
			t.Errorf("it does not know: %v", a)
		}
		for range 2 { // a sandbox that is used is not paused, until its money is gone
			time.Sleep(9 * time.Minute)
			c.cell(sb, "get x")
		}
		time.Sleep(49 * time.Hour)
		c.call("POST", sb+"/interpreter:run", `{"code":"get x"}`, "not_found")

		capped := c.create(`{"idlePauseSeconds":0,"maxTotalCostMicros":5000}`)
		time.Sleep(10 * time.Minute)
		c.call("POST", capped+":exec", `{"argv":["true"]}`, "sandbox_stopped")
		if r := c.call("GET", capped, "", ""); r.json["stopReason"] != "lifetime_cap" || r.json["chargedMicros"] != 5000.0 {
			t.Errorf("%s", r.text)
		}
	})
}

func TestCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := newCaller(t)
		srv.Python = guest()
		srv.StartDelay = time.Second
		sb := c.create(`{"labels":{"a":"b"}}`)
		c.cell(sb, "set x 1")
		c.call("PUT", sb+"/files/content?path=/workspace/f", "data", "")
		c.call("POST", sb+":fork", `{"count":11}`, "invalid_request")
		forked := c.call("POST", sb+":fork", `{"count":2,"labels":{"a":"c"}}`, "").json["sandboxes"].([]any)
		n := c.call("POST", sb+":snapshot", `{"retentionDays":1}`, "").json
		if n["state"] != "capturing" {
			t.Errorf("%v", n)
		}
		c.call("POST", "/v1/sandboxes", fmt.Sprintf(`{"snapshot":%q}`, n["id"]), "snapshot_not_found")
		time.Sleep(time.Second)
		c.cell(sb, "set x 2")
		later := c.create(fmt.Sprintf(`{"snapshot":%q}`, n["id"]))
		for i, other := range []string{"/v1/sandboxes/" + forked[0].(map[string]any)["id"].(string), "/v1/sandboxes/" + forked[1].(map[string]any)["id"].(string), later} {
			if a := c.cell(other, "get x"); value(a) != "1" || a["contextStarted"] != false {
				t.Errorf("copy %d: %v", i, a)
			}
			if r := c.call("GET", other+"/files/content?path=/workspace/f", "", ""); r.text != "data" {
				t.Errorf("copy %d: %s", i, r.text)
			}
			c.cell(other, fmt.Sprint("set x 1", i))
		}
		if a := c.cell(sb, "get x"); value(a) != "2" {
			t.Errorf("it has what a copy set: %v", a)
		}
		c.call("POST", "/v1/snapshots/"+n["id"].(string)+":delete", "{}", "")
		if left := srv.Snapshots(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		srv.MaxRunning = 5
		if r := c.call("POST", sb+":fork", `{"count":2}`, "no_credit_running_limit"); !strings.Contains(r.text, `"field":"count"`) {
			t.Errorf("%s", r.text)
		}
	})
}

func TestImages(t *testing.T) {
	_, c := newCaller(t)
	r := c.call("POST", "/v1/images", `{"name":"science","recipe":{"pip":["scipy"],"files":{"/etc/x":"y"}}}`, "")
	if r := c.call("GET", "/v1/images/"+r.json["id"].(string), "", ""); r.json["state"] != "ready" {
		t.Errorf("%s", r.text)
	}
	c.call("POST", "/v1/images", `{"recipe":{"cargo":[]}}`, "invalid_request")
	c.call("GET", "/v1/images/none", "", "image_not_found")
}

// A stream has the events in order, and once more for who asks once more.
func TestCellStream(t *testing.T) {
	srv, c := newCaller(t)
	srv.Python = guest()
	sb := c.create(`{}`)
	const body = `{"code":"print é","stream":true}`
	first := c.do("POST", sb+"/interpreter:run", body, "one")
	var kinds []string
	for line := range strings.Lines(first.text) {
		var e struct{ K string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.K)
	}
	if got := strings.Join(kinds, " "); got != "start stdout end execution" {
		t.Errorf("events: %s", got)
	}
	if again := c.do("POST", sb+"/interpreter:run", body, "one"); again.text != first.text {
		t.Errorf("once more: %s", again.text)
	}
	if again := c.cell(sb, "print x"); again["executionCount"] != 2.0 {
		t.Errorf("the cell ran twice: %v", again)
	}
	c.call("DELETE", sb, "", "")
}
