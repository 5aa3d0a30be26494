package runtimecloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// MaxFork is how many copies [interpreter.Session.Fork] makes at most.
const MaxFork = 10

// reseeds tell the random numbers of copies apart, by language, as far as a cell
// can: those of the language itself, and of libraries that are loaded. Generators
// that code has made are not known, and those of Java, Go and JavaScript cannot be
// seeded anew.
var reseeds = map[string]string{
	fnloop.LanguagePython: `try:
    __import__("random").seed()
    for n, f in (("numpy", lambda m: m.random.seed()), ("torch", lambda m: m.seed())):
        if n in __import__("sys").modules: f(__import__("sys").modules[n])
except BaseException:
    pass
`,
	fnloop.LanguageR:    "set.seed(NULL)",
	fnloop.LanguageBash: "RANDOM=$(od -An -N2 -tu2 /dev/urandom)",
}

// reseed tells the session's random numbers apart from those of other copies.
func (s *session) reseed(ctx context.Context) {
	code := reseeds[s.language]
	if code == "" {
		return
	}
	// A copy whose numbers are those of another is still one.
	_, _ = s.aside(ctx, "seed", code, 5*time.Second)
}

// untouched are the refusals of a request that was not even begun.
var untouched = []int{400, 401, 402, 403, 404, 405, 413, 422, 429}

// Fork implements [interpreter.Forker]. It waits for no room.
func (s *session) Fork(ctx context.Context, n int) (_ []interpreter.Driver, err error) {
	if n < 1 || n > MaxFork {
		return nil, &ConfigError{Field: "n", Reason: fmt.Sprintf("%d copies, want 1 to %d", n, MaxFork)}
	}
	r := s.runner
	if !r.enter() {
		return nil, ErrClosed
	}
	defer r.work.Done()
	run := newRunID()
	body := r.sessionBody(run, s.limits, plan{}, "")
	j := &job{runner: r, client: s.client, ctx: ctx, run: run, asked: time.Now(), limits: s.limits}
	var made struct{ Sandboxes []*sandbox }
	err = s.client.do(ctx, &request{
		op: "fork", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, ":fork"), key: stepKey(run, "fork"), prefer: "wait=60",
		body: encode(map[string]any{"count": n, "labels": body.Labels}),
	}, &made)
	if err != nil {
		if e, ok := asError(err); ok { // it may have failed half-way, and some of them run
			e.uncertain = !slices.Contains(untouched, e.Status) && !slices.Contains(finalCodes, e.Code)
		}
		j.settle(err)
		return nil, s.judge(ctx, err)
	}
	for _, sb := range made.Sandboxes {
		r.setLive(sb.ID, true)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, sb := range made.Sandboxes { // those that started too: it is all or none
			r.work.Go(func() { j.removeID(context.WithoutCancel(ctx), sb.ID, sb) })
		}
	}()
	if len(made.Sandboxes) != n {
		return nil, &Error{Op: "fork", Code: codeStart, Message: fmt.Sprintf("%d of %d copies were made", len(made.Sandboxes), n), Sandbox: s.sandbox}
	}
	copies, errs := make([]interpreter.Driver, n), make([]error, n)
	var all sync.WaitGroup
	for i, sb := range made.Sandboxes {
		all.Go(func() { copies[i], errs[i] = s.copyIn(ctx, j, sb) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, d := range copies {
		if err := r.addSession(d.(*session)); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

// copyIn takes over one copy of the session.
func (s *session) copyIn(ctx context.Context, j *job, sb *sandbox) (interpreter.Driver, error) {
	if sb.State != "paused" { // as its source may have been: what comes next wakes it
		if err := s.client.awaitRunning(ctx, sb); err != nil {
			return nil, err
		}
	}
	c := s.runner.newSession(s.client, interpreter.Config{Grace: s.grace, Preload: s.preload}, s.limits, s.language)
	c.sandbox, c.label, c.asked, c.vcpu, c.memory = sb.ID, j.run, j.asked, sb.VCPU, sb.MemoryMiB
	s.mu.Lock()
	c.context, c.names, c.kills = s.context, s.names, s.kills
	s.mu.Unlock()
	if err := c.retain(ctx); err != nil {
		return nil, err
	}
	if err := c.adopt(ctx); err != nil {
		return nil, err
	}
	c.reseed(ctx)
	return c, nil
}

// Snapshot implements [interpreter.Forker]. A snapshot is kept for as long as a
// session is, and costs its storage. What it holds has the size of the session's
// sandbox.
func (s *session) Snapshot(ctx context.Context) (string, error) {
	var snapshot struct{ ID, State string }
	err := s.client.do(ctx, &request{
		op: "snapshot", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, ":snapshot"), key: newKey(), prefer: "wait=10",
		body: encode(map[string]any{
			"mode": "memory", "retentionDays": s.runner.keepDays(), "labels": map[string]string{"app": s.runner.app()},
		}),
	}, &snapshot)
	if err != nil {
		return "", s.judge(ctx, err)
	}
	giveUp := time.Now().Add(2 * time.Minute)
	for snapshot.State != "ready" && err == nil {
		switch {
		case snapshot.ID == "" || snapshot.State == "failed" || time.Now().After(giveUp):
			err = &Error{Op: "snapshot", Code: codeStart, Message: fmt.Sprintf("the snapshot is %q", snapshot.State), Sandbox: s.sandbox}
		case !sleep(ctx, nil, 500*time.Millisecond):
			err = s.client.describe(ctx, &request{op: "snapshot", sandbox: s.sandbox}, nil)
		default:
			err = s.client.do(ctx, &request{
				op: "snapshot", sandbox: s.sandbox, method: http.MethodGet, path: "/v1/snapshots/" + url.PathEscape(snapshot.ID), answer: 30 * time.Second,
			}, &snapshot)
		}
	}
	if err != nil {
		if snapshot.ID != "" {
			s.runner.work.Go(func() { _ = s.client.removeSnapshot(context.WithoutCancel(ctx), snapshot.ID) }) // its days end
		}
		return "", err
	}
	return url.Values{"snapshot": {snapshot.ID}, "language": {s.language}}.Encode(), nil
}

// removeSnapshot deletes a snapshot. One that is not there is no error.
func (c *client) removeSnapshot(ctx context.Context, id string) error {
	err := c.do(ctx, &request{
		op: "remove the snapshot", method: http.MethodPost, path: "/v1/snapshots/" + url.PathEscape(id) + ":delete", key: stepKey(id, "delete"),
		body: []byte("{}"), always: true, answer: deleteAnswer, budget: deleteBudget,
	}, nil)
	if err != nil && !isCode(err, "not_found") {
		return err
	}
	return nil
}
