package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "github.com/fnloop/fnloop/cmd/askpy"
)

// askpy runs the program in this process.
func askpy(t *testing.T, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return askpyContext(t.Context(), env, args...)
}

// askpyContext is askpy with a context that may end.
func askpyContext(ctx context.Context, env map[string]string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = main.Run(ctx, args, strings.NewReader(""), &out, &errs, func(name string) string { return env[name] })
	return status, out.String(), errs.String()
}

// A server may repeat in its answer what it was sent, and add secrets of its
// own. None of them may reach the disk or the terminal.
func TestRecordScrubs(t *testing.T) {
	const (
		key  = `sk-proj/0123456789+<"key">`
		org  = "my-org-1"
		proj = "my-project-1"
		pass = "pass-word-1"
	)
	answers := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("Authorization = %q", got)
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Set-Cookie", "session=cookie-monster")
		h.Set("X-Request-Id", "req_fedcba9876543210")
		h.Set("Openai-Organization", org)
		h.Set("Openai-Project", proj)
		h.Set("Cf-Ray", "ray-of-light")
		text := fmt.Sprintf("You are %s of %s, %s; others are org-0123456789abcdefXYZ, proj_0123456789abcdefXYZ and sk-0123456789abcdef0123", key, org, proj)
		quoted, _ := json.Marshal(text)
		if answers++; answers == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"error":{"code":"overloaded","message":%s}}`, quoted)
			return
		}
		fmt.Fprintf(w, `{"id":"resp_1","object":"response","status":"completed","output":[
			{"type":"message","role":"assistant","status":"completed","id":"msg_1","content":[{"type":"output_text","text":%s,"annotations":[]}]}]}`, quoted)
	}))
	defer server.Close()
	env := map[string]string{
		"OPENAI_API_KEY": key, "OPENAI_ORG_ID": org, "OPENAI_PROJECT_ID": proj,
		"OPENAI_BASE_URL": strings.Replace(server.URL, "http://", "http://somebody:"+pass+"@", 1) + "/v1",
	}
	file := filepath.Join(t.TempDir(), "new.yaml")
	prompt := "What is " + key + "?"
	status, stdout, stderr := askpy(t, env, "--runner", "fake", "--record", file, prompt)
	if status != 0 || !strings.Contains(stdout, "You are") {
		t.Fatalf("status %d, %q\n%s", status, stdout, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{
		"0123456789", org, proj, pass, "somebody", "cookie", "Cookie", "req_", "ray-of-light",
		"Authorization", "Bearer", "Organization", "127.0.0.1", "User-Agent", "Stainless",
	} {
		if strings.Contains(string(data), secret) {
			t.Errorf("the recording has %q in it:\n%s", secret, data)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the recording is %v, want 0600 (%v)", info.Mode(), err)
	}

	// The same question is known again, with the key and, where it is not in
	// the prompt, without.
	status, _, stderr = askpy(t, map[string]string{"OPENAI_API_KEY": key}, "--runner", "fake", "--replay", file, prompt)
	if status != 0 {
		t.Errorf("status %d of the replay\n%s", status, stderr)
	}

	// An error does not show the key either.
	answers = 0
	env["OPENAI_BASE_URL"] = server.URL
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		quoted, _ := json.Marshal("no such key: " + key)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_fedcba9876543210")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"code":"invalid_api_key","message":%s}}`, quoted)
	})
	status, stdout, stderr = askpy(t, env, "--runner", "fake", "--json", "hi")
	if status != 1 || strings.Contains(stdout+stderr, "0123456789") {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
	if !strings.Contains(stderr, "req_fedcba9876543210") {
		t.Errorf("the error does not name the request:\n%s", stderr)
	}
}
