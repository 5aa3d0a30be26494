package runtimecloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxFile is the size of the largest file that one request can write.
const maxFile = 1 << 20

// A sandbox is what the API tells of one. Fields that are not used here are
// left out.
type sandbox struct {
	ID            string            `json:"id"`
	Labels        map[string]string `json:"labels"`
	State         string            `json:"state"`
	StopReason    string            `json:"stopReason"`
	VCPU          int               `json:"vcpu"`
	MemoryMiB     int64             `json:"memoryMiB"`
	CreatedAt     time.Time         `json:"createdAt"`
	LastActiveAt  time.Time         `json:"lastActiveAt"`
	PausedAt      time.Time         `json:"pausedAt"`
	ChargedMicros *int64            `json:"chargedMicros"`
}

// createBody is the body of a create. The zero values of the fields without
// omitempty mean something: without internet, and without a pause when idle.
type createBody struct {
	Labels             map[string]string `json:"labels"`
	Env                map[string]string `json:"env,omitempty"`
	VCPU               int               `json:"vcpu,omitempty"`
	MemoryMiB          int64             `json:"memoryMiB,omitempty"`
	DiskMiB            int               `json:"diskMiB,omitempty"`
	TimeoutSeconds     int64             `json:"timeoutSeconds"`
	OnLeaseEnd         string            `json:"onLeaseEnd"`
	IdlePauseSeconds   int               `json:"idlePauseSeconds"`
	MaxTotalCostMicros int64             `json:"maxTotalCostMicros,omitempty"`
	Network            Network           `json:"network"`
	Image              string            `json:"image,omitempty"`
	Snapshot           string            `json:"snapshot,omitempty"`
	Region             string            `json:"region,omitempty"`
}

func sandboxPath(id, rest string) string { return "/v1/sandboxes/" + url.PathEscape(id) + rest }

// create asks for a sandbox. Once stop is closed it makes no further attempt,
// but still waits for the answer to the one under way: the service may make
// the sandbox whether or not somebody listens.
func (c *client) create(ctx context.Context, run string, body []byte, room time.Duration, stop <-chan struct{}) (*sandbox, error) {
	var sb sandbox
	err := c.do(ctx, &request{
		op: "create", method: http.MethodPost, path: "/v1/sandboxes", key: stepKey(run, "create"),
		prefer: "wait=60", body: body, room: room, stop: stop,
	}, &sb)
	if err != nil {
		return nil, err
	}
	if sb.ID == "" {
		return nil, &Error{Op: "create", Code: codeRequest, Status: http.StatusOK, Message: "the answer names no sandbox", uncertain: true}
	}
	return &sb, nil
}

// awaitRunning waits until sb runs, which it mostly does already.
func (c *client) awaitRunning(ctx context.Context, sb *sandbox) error {
	giveUp := time.Now().Add(2 * time.Minute)
	for sb.State != "running" {
		switch sb.State {
		case "starting", "resuming":
		default:
			return &Error{Op: "start", Code: codeStart, Message: fmt.Sprintf("the sandbox is %s before it ran: %s", sb.State, sb.StopReason), Sandbox: sb.ID}
		}
		if time.Now().After(giveUp) {
			return &Error{Op: "start", Code: codeStart, Message: "the sandbox is still starting", Sandbox: sb.ID}
		}
		asked := time.Now()
		if err := c.do(ctx, &request{
			op: "start", sandbox: sb.ID, method: http.MethodGet, path: sandboxPath(sb.ID, "?waitFor=running&timeoutSeconds=60"),
		}, sb); err != nil {
			return err
		}
		// A service that does not wait is not asked again at once.
		if sb.State != "running" && time.Since(asked) < time.Second && !sleep(ctx, nil, time.Second) {
			return c.describe(ctx, &request{op: "start", sandbox: sb.ID}, nil)
		}
	}
	return nil
}

func (c *client) read(ctx context.Context, id string) (*sandbox, error) {
	var sb sandbox
	err := c.do(ctx, &request{op: "read", sandbox: id, method: http.MethodGet, path: sandboxPath(id, ""), answer: 10 * time.Second, budget: 20 * time.Second}, &sb)
	return &sb, err
}

// write puts a file into the sandbox, in one request if it fits.
func (c *client) write(ctx context.Context, run, id, path string, data []byte) error {
	if len(data) > maxFile {
		sum := sha256.Sum256(data)
		return c.upload(ctx, run, id, path, bytes.NewReader(data), int64(len(data)), hex.EncodeToString(sum[:]))
	}
	if data == nil {
		data = []byte{} // an empty file has a body too
	}
	return c.do(ctx, &request{
		op: "write", sandbox: id, method: http.MethodPut, path: sandboxPath(id, "/files/content?path="+url.QueryEscape(path)),
		key: stepKey(run, "write"), raw: true, body: data, answer: 30 * time.Second,
	}, nil)
}

// upload puts a file of more than maxFile into the sandbox, chunk by chunk.
func (c *client) upload(ctx context.Context, run, id, path string, data io.ReaderAt, size int64, sum string) (err error) {
	var up struct {
		UploadID   string `json:"uploadId"`
		ChunkBytes int64  `json:"chunkBytes"`
	}
	call := func(ctx context.Context, step, method, path string, raw bool, body []byte, out any) error {
		return c.do(ctx, &request{
			op: "write", sandbox: id, method: method, path: sandboxPath(id, path),
			key: stepKey(run, step), raw: raw, body: body, answer: 30 * time.Second,
		}, out)
	}
	err = call(ctx, "upload", http.MethodPost, "/uploads", false, encode(struct {
		Path   string `json:"path"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}{path, size, sum}), &up)
	if err != nil {
		return err
	}
	if up.UploadID == "" || up.ChunkBytes <= 0 || up.ChunkBytes > 1<<26 {
		return &Error{Op: "write", Code: codeRequest, Status: http.StatusOK, Message: "the answer names no upload", Sandbox: id}
	}
	to := "/uploads/" + url.PathEscape(up.UploadID)
	defer func() {
		if err != nil { // it would take the place of another
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = call(ctx, "abort", http.MethodPost, to+":abort", false, []byte("{}"), nil)
		}
	}()
	for at := int64(0); at < size; at += up.ChunkBytes {
		chunk := make([]byte, min(up.ChunkBytes, size-at))
		if n, err := data.ReadAt(chunk, at); n < len(chunk) {
			return err
		}
		offset := strconv.FormatInt(at, 10)
		if err := call(ctx, "chunk "+offset, http.MethodPut, to+"?offset="+offset, true, chunk, nil); err != nil {
			return err
		}
	}
	return call(ctx, "commit", http.MethodPost, to+":commit", false, []byte("{}"), nil)
}

// setNetwork replaces the sandbox's rules and waits until its host holds it to
// them.
func (c *client) setNetwork(ctx context.Context, run, id string, rules Network) error {
	var policy struct {
		Internet bool `json:"internet"`
		Enforced bool `json:"enforced"`
	}
	r := &request{
		op: "network", sandbox: id, method: http.MethodPut, path: sandboxPath(id, "/network"),
		key: stepKey(run, "network"), body: encode(rules), answer: 30 * time.Second,
	}
	for range 20 {
		if err := c.do(ctx, r, &policy); err != nil {
			return err
		}
		if policy.Enforced && policy.Internet == rules.Internet {
			return nil
		}
		if !sleep(ctx, nil, 500*time.Millisecond) {
			return c.describe(ctx, r, nil)
		}
		r = &request{op: "network", sandbox: id, method: http.MethodGet, path: sandboxPath(id, "/network"), answer: 30 * time.Second}
	}
	return &Error{Op: "network", Code: codeStart, Message: "the sandbox's host does not enforce its network rules", Sandbox: id}
}

// How a delete is tried. It is safe to repeat whatever the service answers, and
// what is left standing costs money.
const (
	deleteAnswer = 15 * time.Second
	deleteBudget = time.Minute
)

// remove deletes a sandbox, or stops it where that cannot be done: a stopped
// one costs its disk alone. An error means that it was not deleted.
func (c *client) remove(ctx context.Context, id string) error {
	err := c.do(ctx, &request{
		op: "delete", sandbox: id, method: http.MethodDelete, path: sandboxPath(id, ""),
		key: stepKey(id, "delete"), always: true, answer: deleteAnswer, budget: deleteBudget,
	}, nil)
	if err == nil || isCode(err, "not_found") {
		return nil
	}
	c.stop(ctx, id) //nolint:errcheck // the delete's failure is the one to tell of
	return err
}

// stop ends the sandbox and keeps its disk. The answer has what was charged.
func (c *client) stop(ctx context.Context, id string) (*sandbox, error) {
	var sb sandbox
	err := c.do(ctx, &request{
		op: "stop", sandbox: id, method: http.MethodPost, path: sandboxPath(id, ":stop"),
		key: stepKey(id, "stop"), body: []byte("{}"), prefer: "wait=60", budget: deleteBudget,
	}, &sb)
	return &sb, err
}

// list calls yield for every sandbox with the label, stopped ones too.
func (c *client) list(ctx context.Context, name, value string, yield func(*sandbox)) error {
	query := url.Values{"label": {name + ":" + value}, "includeStopped": {"true"}, "limit": {"50"}}
	for {
		var page struct {
			Data       []*sandbox `json:"data"`
			NextCursor string     `json:"nextCursor"`
		}
		if err := c.do(ctx, &request{
			op: "list", method: http.MethodGet, path: "/v1/sandboxes?" + query.Encode(), answer: deleteAnswer, budget: deleteBudget,
		}, &page); err != nil {
			return err
		}
		for _, sb := range page.Data {
			if sb.Labels[name] == value { // what cannot be told apart is not ours to delete
				yield(sb)
			}
		}
		if page.NextCursor == "" || page.NextCursor == query.Get("cursor") {
			return nil
		}
		query.Set("cursor", page.NextCursor)
	}
}
