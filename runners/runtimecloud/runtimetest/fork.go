package runtimetest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A snapshot is what a sandbox had at a moment. Its fields never change but for
// deleted, which Server.mu guards.
type snapshot struct {
	id, owner                string
	labels                   map[string]string
	vcpu, memoryMiB, diskMiB int64
	files                    map[string][]byte
	kernels                  []kernelCopy
	created, ready           time.Time
	deleted                  bool
}

func (n *snapshot) state() string {
	if time.Now().Before(n.ready) {
		return "capturing"
	}
	return "ready"
}

func (n *snapshot) object() map[string]any {
	return map[string]any{
		"id": n.id, "kind": "snapshot", "state": n.state(), "mode": "memory", "labels": n.labels,
		"createdAt": n.created.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

// Snapshots gives the IDs of those that were not deleted.
func (s *Server) Snapshots() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for _, n := range s.snapshots {
		if !n.deleted {
			left = append(left, n.id)
		}
	}
	return left
}

func (s *Server) snapshotOf(owner, id string) *snapshot {
	for _, n := range s.snapshots {
		if n.id == id && n.owner == owner && !n.deleted {
			return n
		}
	}
	return nil
}

// capture gives what sb has. The caller holds s.mu, which is given up in between.
func (s *Server) capture(c *call, sb *sandbox) (*snapshot, *apiError) {
	kernels, refusal := s.copies(c.Context(), sb)
	if refusal != nil {
		return nil, refusal
	}
	n := &snapshot{
		owner: c.owner, vcpu: sb.vcpu, memoryMiB: sb.memoryMiB, diskMiB: sb.diskMiB,
		files: maps.Clone(sb.files), kernels: kernels, created: time.Now(),
	}
	if len(kernels) > 0 {
		maps.DeleteFunc(n.files, func(name string, _ []byte) bool { return strings.HasPrefix(name, workspace+"/") })
		for name, data := range kernels[0].files {
			n.files[workspace+"/"+name] = data
		}
	}
	return n, nil
}

// source gives the sandbox that is to be copied: one that runs or is paused. It
// returns with s.mu held.
func (s *Server) source(c *call) (*sandbox, *apiError) {
	s.mu.Lock()
	sb, refusal := s.find(c)
	switch {
	case refusal != nil:
		return nil, refusal
	case sb.state == "stopped":
		return nil, refuse(http.StatusConflict, "sandbox_stopped", "The sandbox is stopped.")
	case sb.cells > 0: // a copy would be in the middle of the cell, which the stand-in cannot make
		return nil, refuse(http.StatusServiceUnavailable, "unsupported", "A cell runs.")
	}
	return sb, nil
}

// fork makes copies that run. What the service answers when some of them do not
// start is not documented; here they are in the answer, stopped.
func (s *Server) fork(c *call) (*answer, *apiError) {
	f := c.fields()
	count := f.integer("count", 1, 1, 10, false)
	labels := f.pairs("labels", 32)
	f.text("name", "")
	f.flag("keepSnapshot", false)
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.source(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if refusal := s.room(c.owner, int(count)); refusal != nil {
		refusal.details.(map[string]any)["field"] = "count"
		return nil, refusal
	}
	from, refusal := s.capture(c, sb)
	if refusal != nil {
		return nil, refusal
	}
	if labels == nil {
		labels = sb.labels
	}
	data := []map[string]any{}
	for i := range int(count) {
		copied := &sandbox{
			owner: sb.owner, labels: labels, env: sb.env, vcpu: sb.vcpu, memoryMiB: sb.memoryMiB, diskMiB: sb.diskMiB,
			timeout: sb.timeout, idlePause: sb.idlePause, onEnd: sb.onEnd, autoWake: sb.autoWake, maxCost: sb.maxCost,
			net: sb.net, files: maps.Clone(from.files), uploads: make(map[string]*upload), languages: maps.Clone(sb.languages),
		}
		s.add(copied)
		if i < c.fault.Fork {
			s.halt(copied, "stopped", "startup_failed", time.Now())
		} else {
			for _, k := range from.kernels {
				if refusal := s.copyOf(c.Context(), copied, k); refusal != nil {
					return nil, refusal
				}
			}
		}
		data = append(data, s.object(copied))
	}
	return ok(map[string]any{"sandboxes": data}), nil
}

func (s *Server) snapshot(c *call) (*answer, *apiError) {
	f := c.fields()
	f.text("name", "")
	f.text("mode", "memory", "memory", "disk")
	f.integer("retentionDays", 0, 1, 365, false)
	labels := f.pairs("labels", 32)
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.source(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	n, refusal := s.capture(c, sb)
	if refusal != nil {
		return nil, refusal
	}
	s.seq++
	n.id, n.labels, n.ready = fmt.Sprintf("snap-%d", s.seq), labels, n.created.Add(s.StartDelay)
	s.snapshots = append(s.snapshots, n)
	return ok(n.object()), nil
}

func (s *Server) readSnapshot(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.snapshotOf(c.owner, c.path[1])
	if n == nil {
		return nil, refuse(http.StatusNotFound, "snapshot_not_found", "No snapshot %s.", c.path[1])
	}
	return ok(n.object()), nil
}

func (s *Server) forget(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.snapshotOf(c.owner, c.path[1])
	if n == nil {
		return nil, refuse(http.StatusNotFound, "snapshot_not_found", "No snapshot %s.", c.path[1])
	}
	n.deleted = true
	return ok(map[string]any{"id": n.id, "deleted": true}), nil
}

func (s *Server) retention(c *call) (*answer, *apiError) {
	f := c.fields()
	days := int64(0)
	if raw, there := f.left["days"]; there && string(raw) == "null" {
		delete(f.left, "days")
	} else {
		days = f.integer("days", 0, 1, 365, false)
	}
	return s.change(c, f, func(sb *sandbox) *apiError {
		sb.retention = days
		return nil
	})
}

// An image is built from a recipe. One that has no-such-package in it fails.
type image struct {
	id, name string
	failed   bool
	ready    time.Time
}

func (i *image) object() map[string]any {
	o := map[string]any{"id": i.id, "kind": "image", "name": i.name, "state": "building"}
	switch {
	case time.Now().Before(i.ready):
	case i.failed:
		o["state"] = "failed"
	default:
		o["state"] = "ready"
	}
	return o
}

func (s *Server) newImage(c *call) (*answer, *apiError) {
	f := c.fields()
	name := f.text("name", "")
	var recipe struct {
		Base     string            `json:"base"`
		Apt      []string          `json:"apt"`
		Pip      []string          `json:"pip"`
		NPM      []string          `json:"npm"`
		Commands []string          `json:"commands"`
		Files    map[string]string `json:"files"`
		Env      map[string]string `json:"env"`
		Workdir  string            `json:"workdir"`
	}
	f.get("recipe", &recipe, "a recipe")
	if name == "" {
		f.wrong("name", "is needed")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	i := &image{
		id: fmt.Sprintf("img-%d", s.seq), name: name, ready: time.Now().Add(s.InstallDelay),
		failed: slices.Contains(append(recipe.Pip, recipe.Apt...), "no-such-package"),
	}
	s.images = append(s.images, i)
	return ok(i.object()), nil
}

// imageLog answers with what the build printed. Its form is not documented.
func (s *Server) imageLog(c *call) (*answer, *apiError) {
	a, refusal := s.readImage(c)
	if refusal != nil {
		return nil, refusal
	}
	if a.body.(map[string]any)["state"] == "failed" {
		return ok([]byte("step 1\nERROR: No matching distribution found for no-such-package\n")), nil
	}
	return ok([]byte("step 1\n")), nil
}

func (s *Server) readImage(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.images {
		if i.id == c.path[1] {
			return ok(i.object()), nil
		}
	}
	return nil, refuse(http.StatusNotFound, "image_not_found", "No image %s.", c.path[1])
}
