package mcptest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
)

// A Driver is a client in Node.js that does what a test tells it.
type Driver struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// A Step is what the client is told: "connect", "list", "call" or "close".
type Step struct {
	Do string `json:"do"`
	// Of connect: where the server is, and the revision of the protocol: "auto",
	// "legacy" or a Pin.
	Server *Target `json:"server,omitempty"`
	Mode   any     `json:"mode,omitempty"`
	// Of call. After is when it is cancelled, and Timeout what the client allows, in
	// milliseconds.
	Name      string `json:"name,omitempty"`
	Arguments any    `json:"arguments,omitempty"`
	After     int    `json:"after,omitempty"`
	Timeout   int    `json:"timeout,omitempty"`
}

// A Target is a program or an address.
type Target struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// A Pin is the only revision of the protocol that a client speaks.
type Pin struct {
	Revision string `json:"pin"`
}

// A Result is what the client made of a call.
type Result struct {
	Content []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Data     []byte `json:"data"`
		MIMEType string `json:"mimeType"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Progress   []struct {
		Progress float64 `json:"progress"`
		Message  string  `json:"message"`
	} `json:"progress"`
}

// Drive starts the client.
func Drive(t testing.TB) *Driver {
	t.Helper()
	node, script := Node(t, Client)
	cmd := exec.Command(node, script)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
	})
	return &Driver{t: t, in: in, out: bufio.NewReader(out)}
}

// Do makes a step, and decodes what came of it into result, which may be nil. It
// returns the error that the client was given, or an empty text.
func (d *Driver) Do(s Step, result any) string {
	d.t.Helper()
	if err := json.NewEncoder(d.in).Encode(s); err != nil {
		d.t.Fatal(err)
	}
	line, err := d.out.ReadBytes('\n')
	if err != nil {
		d.t.Fatalf("the client has ended: %v", err)
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		d.t.Fatal(err)
	}
	if answer.Error == "" && result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			d.t.Fatalf("%v: %s", err, answer.Result)
		}
	}
	return answer.Error
}
