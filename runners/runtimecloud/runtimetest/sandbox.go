package runtimetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fnloop/fnloop/interpreter"
)

// network are the rules of a sandbox.
type network struct {
	Internet *bool    `json:"internet"`
	Allow    []string `json:"allow"`
	Deny     []string `json:"deny"`
	Connect  []string `json:"connect"`
}

// sandbox is one machine. Its fields are guarded by Server.mu. What time does to
// it is found out when it is looked at.
type sandbox struct {
	id, owner  string
	labels     map[string]string
	env        map[string]string
	vcpu       int64
	memoryMiB  int64
	diskMiB    int64
	timeout    int64 // seconds
	idlePause  int64 // seconds
	onEnd      string
	autoWake   bool
	maxCost    int64
	net        network
	netVersion int

	created, ready, active time.Time
	since                  time.Time // when it began to run, the last time
	ends                   time.Time // zero: never
	ended                  time.Time
	state                  string // running (or starting, by the clock), paused, stopped
	reason                 string
	deleted                bool
	charged                int64

	files     map[string][]byte
	uploads   map[string]*upload
	processes []*process
	oomKills  int
	ctx       context.Context // ends with the sandbox's running
	cancel    context.CancelCauseFunc

	retention int64 // days; zero: for ever
	languages map[string]bool
	kernels   []*kernel
	folder    interpreter.Driver // which holds /workspace, once there is a kernel
	gone      map[string]ended   // the processes of kernels
	cells     int                // that run or wait
	life      context.Context    // of its kernels, through pauses
	destroy   context.CancelCauseFunc
}

// Live gives the IDs of the sandboxes that were not deleted.
func (s *Server) Live() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []string
	for _, sb := range s.sandboxes {
		if s.age(sb); !sb.deleted {
			live = append(live, sb.id)
		}
	}
	return live
}

// Created is how many sandboxes there ever were.
func (s *Server) Created() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sandboxes)
}

// End ends a sandbox from outside, as the service does when its host is lost
// ("host_lost"), the sandbox has spent all it may ("lifetime_cap") or its guest
// was shut down ("host_stopped").
func (s *Server) End(id, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.id == id {
			s.halt(sb, "stopped", reason, time.Now())
		}
	}
}

// Pause pauses a sandbox from outside, whatever it does.
func (s *Server) Pause(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.id == id && sb.state == "running" {
			s.halt(sb, "paused", "requested", time.Now())
		}
	}
}

// age does to sb what should have happened by now.
func (s *Server) age(sb *sandbox) {
	now := time.Now()
	defer func() {
		if until := sb.keptUntil(); !sb.deleted && !until.IsZero() && !now.Before(until) {
			s.halt(sb, "stopped", "paused_expired", until)
			sb.deleted = true
		}
	}()
	if sb.deleted || sb.state != "running" {
		return
	}
	// What comes first happens.
	idle, spent := time.Time{}, time.Time{}
	if sb.idlePause > 0 && !sb.busy() {
		idle = later(sb.active, sb.ready).Add(time.Duration(sb.idlePause) * time.Second)
	}
	if sb.maxCost > 0 {
		left := float64(sb.maxCost-sb.charged) / sb.perHour() * float64(time.Hour)
		spent = later(sb.since, sb.ready).Add(time.Duration(left))
	}
	first := func(t time.Time, others ...time.Time) bool {
		return !t.IsZero() && !now.Before(t) && !slices.ContainsFunc(others, func(o time.Time) bool { return !o.IsZero() && o.Before(t) })
	}
	switch {
	case first(sb.ends, idle, spent):
		switch sb.onEnd {
		case "delete":
			s.halt(sb, "stopped", "time_limit", sb.ends)
			sb.deleted = true
		case "stop":
			s.halt(sb, "stopped", "time_limit", sb.ends)
		default:
			s.halt(sb, "paused", "time_limit", sb.ends)
		}
	case first(spent, idle, sb.ends):
		s.halt(sb, "stopped", "lifetime_cap", spent)
	case first(idle, spent, sb.ends):
		s.halt(sb, "paused", "idle", idle)
	}
}

// keptUntil is when a paused sandbox is deleted, or zero. That it is then deleted
// and not stopped is a guess.
func (sb *sandbox) keptUntil() time.Time {
	if sb.state != "paused" || sb.retention == 0 {
		return time.Time{}
	}
	return sb.ended.Add(time.Duration(sb.retention) * 24 * time.Hour)
}

// perHour is what a sandbox costs that waits: its memory, and a twentieth of a vCPU.
func (sb *sandbox) perHour() float64 { return 25_000*0.05 + 7_500*float64(sb.memoryMiB)/1024 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (sb *sandbox) busy() bool {
	return sb.cells > 0 || slices.ContainsFunc(sb.processes, func(p *process) bool { return !p.finished() })
}

// halt ends sb's running.
func (s *Server) halt(sb *sandbox, state, reason string, at time.Time) {
	if began := later(sb.since, sb.ready); sb.state == "running" && at.After(began) {
		sb.charged += int64(math.Round(sb.perHour() * at.Sub(began).Hours()))
	}
	sb.state, sb.reason, sb.ended = state, reason, at
	sb.cancel(fmt.Errorf("the sandbox ended: %s", reason))
	if state == "stopped" {
		s.shut(sb)
	}
}

// shown is the state as the API names it.
func (sb *sandbox) shown() string {
	if sb.state == "running" && time.Now().Before(sb.ready) {
		return "starting"
	}
	return sb.state
}

func (s *Server) object(sb *sandbox) map[string]any {
	iso := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	status := map[string]string{"starting": "pending", "running": "active"}[sb.shown()]
	if status == "" {
		status = sb.shown()
	}
	o := map[string]any{
		"id": sb.id, "kind": "sandbox", "name": nil, "labels": sb.labels, "status": status, "state": sb.shown(),
		"region": "us-east", "funding": "paid", "vcpu": sb.vcpu, "memoryMiB": sb.memoryMiB, "diskMiB": sb.diskMiB,
		"cpu": "shared", "cpuFloorMillis": 50, "pausable": true, "timeoutSeconds": sb.timeout,
		"idlePauseSeconds": sb.idlePause, "autoWake": sb.autoWake, "persistent": false, "onLeaseEnd": sb.onEnd, "onTimeout": sb.onEnd,
		"lastActiveAt": iso(sb.active), "createdAt": iso(sb.created), "readyAt": iso(sb.ready), "endsAt": iso(sb.ends),
		"expiresAt": iso(time.Now().Add(time.Hour)), "endedAt": nil, "stopReason": text(sb.reason),
		"pausedAt": nil, "pausedExpiresAt": iso(sb.keptUntil()), "chargedMicros": sb.charged, "heldMicros": 0,
	}
	if sb.shown() == "starting" {
		o["readyAt"] = nil
	}
	switch sb.state {
	case "stopped":
		o["endedAt"], o["diskKept"] = iso(sb.ended), true
	case "paused":
		o["pausedAt"] = iso(sb.ended)
	}
	if len(sb.env) > 0 {
		var names []string
		for name := range sb.env {
			names = append(names, name)
		}
		slices.Sort(names)
		o["envNames"] = names
	}
	return o
}

// find gives the caller's sandbox that the path names.
func (s *Server) find(c *call) (*sandbox, *apiError) {
	for _, sb := range s.sandboxes {
		if sb.id == c.path[1] && sb.owner == c.owner {
			if s.age(sb); !sb.deleted {
				return sb, nil
			}
		}
	}
	return nil, refuse(http.StatusNotFound, "not_found", "No sandbox %s.", c.path[1])
}

// use gives a sandbox that can take a command or a file, and wakes it if need
// be. It returns with s.mu held.
func (s *Server) use(c *call) (*sandbox, *apiError) {
	s.mu.Lock()
	sb, refusal := s.find(c)
	if refusal != nil {
		return nil, refusal
	}
	if wait := time.Until(sb.ready); wait > 0 {
		s.mu.Unlock()
		ran := pause(c.Context(), min(wait, 30*time.Second))
		s.mu.Lock()
		if !ran || time.Now().Before(sb.ready) {
			return nil, refuse(http.StatusConflict, "sandbox_not_ready", "The sandbox is starting.")
		}
		s.age(sb)
	}
	switch {
	case sb.deleted:
		return nil, refuse(http.StatusNotFound, "not_found", "No sandbox %s.", sb.id)
	case sb.state == "paused" && sb.autoWake:
		s.run(sb)
	case sb.state == "paused":
		return nil, refuse(http.StatusConflict, "sandbox_paused", "The sandbox is paused.")
	case sb.state == "stopped":
		return nil, refuse(http.StatusConflict, "sandbox_stopped", "The sandbox is stopped.")
	}
	sb.active = time.Now()
	return sb, nil
}

// run makes sb run, from now on and for its time.
func (s *Server) run(sb *sandbox) {
	now := time.Now()
	sb.state, sb.reason, sb.active, sb.since, sb.ended = "running", "", now, now, time.Time{}
	if sb.life == nil {
		sb.life, sb.destroy = context.WithCancelCause(context.Background())
	}
	sb.ctx, sb.cancel = context.WithCancelCause(context.Background())
	if sb.timeout > 0 {
		sb.ends = now.Add(time.Duration(sb.timeout) * time.Second)
	}
}

func (s *Server) me(*call) (*answer, *apiError) {
	return ok(map[string]any{
		"orgId": "org_test", "principalId": "agent_test", "credentialId": "key_test", "apiVersion": "0.2.0", "orgName": "Test", "role": "developer",
	}), nil
}

func (s *Server) create(c *call) (*answer, *apiError) {
	f := c.fields()
	sb := &sandbox{
		owner: c.owner, labels: f.pairs("labels", 32), env: f.pairs("env", 32),
		vcpu: f.integer("vcpu", 2, 1, 16, false), memoryMiB: f.integer("memoryMiB", 4096, 128, 65536, false),
		diskMiB: f.integer("diskMiB", 4096, 3072, 409600, false),
		timeout: f.integer("timeoutSeconds", 0, 60, 86400, true), idlePause: f.integer("idlePauseSeconds", 60, 10, 86400, true),
		maxCost: f.integer("maxTotalCostMicros", 0, 1, 1<<53, false), autoWake: f.flag("autoWake", true),
		files: make(map[string][]byte), uploads: make(map[string]*upload),
	}
	if sb.labels == nil {
		sb.labels = map[string]string{}
	}
	onLeaseEnd := f.text("onLeaseEnd", "pause", "pause", "stop", "delete")
	sb.onEnd = f.text("onTimeout", onLeaseEnd, "pause", "stop", "delete")
	size := 0
	for name, value := range sb.env {
		size += len(name) + len(value)
	}
	if size > 32<<10 {
		f.wrong("env", "at most 32 KiB")
	}
	internet := true
	sb.net = network{Internet: &internet}
	f.get("network", &sb.net, "network rules")
	if sb.net.Internet == nil {
		sb.net.Internet = &internet
	}
	image, snapshotID := f.text("image", ""), f.text("snapshot", "")
	if image != "" && snapshotID != "" {
		f.wrong("snapshot", "not together with image")
	}
	region := f.text("region", "us-east")
	f.text("name", "")
	f.text("funding", "", "trial", "paid")
	f.text("cpu", "shared", "shared", "reserved")
	f.integer("cpuFloorMillis", 50, 0, 16000, true)
	f.flag("pausable", true)
	firstLease := f.integer("maxCostMicros", 0, 1, 1<<53, false)
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	if region != "us-east" {
		return nil, refuse(http.StatusBadRequest, "invalid_region", "There is no region %q.", region)
	}
	worst := (float64(sb.vcpu)*25_000 + float64(sb.memoryMiB)/1024*7_500) * float64(sb.timeout) / 3600
	if firstLease > 0 && float64(firstLease) < worst {
		return nil, refuse(http.StatusConflict, "budget_exceeded", "It may cost %d microdollars.", int64(worst))
	}

	s.mu.Lock()
	if refusal := s.room(c.owner, 1); refusal != nil {
		s.mu.Unlock()
		return nil, refusal
	}
	var from *snapshot
	if snapshotID != "" {
		if from = s.snapshotOf(c.owner, snapshotID); from == nil || from.state() != "ready" {
			s.mu.Unlock()
			return nil, refuse(http.StatusNotFound, "snapshot_not_found", "No snapshot %s.", snapshotID)
		}
		sb.files = maps.Clone(from.files)
		sb.vcpu, sb.memoryMiB, sb.diskMiB = from.vcpu, from.memoryMiB, from.diskMiB
	}
	s.add(sb)
	if from != nil {
		for _, k := range from.kernels {
			if refusal := s.copyOf(c.Context(), sb, k); refusal != nil {
				s.mu.Unlock()
				return nil, refusal
			}
		}
	}
	s.mu.Unlock()
	if prefer(c) && !s.Hasty {
		pause(c.Context(), s.StartDelay) // the sandbox is made, whoever listens
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(s.object(sb)), nil
}

// room refuses more sandboxes than the account may run. The caller holds s.mu.
func (s *Server) room(owner string, more int) *apiError {
	var running []string
	for _, other := range s.sandboxes {
		if s.age(other); !other.deleted && other.state == "running" && other.owner == owner {
			running = append(running, other.id)
		}
	}
	if len(running)+more <= cmp.Or(s.MaxRunning, 100) {
		return nil
	}
	e := refuse(cmp.Or(s.RoomStatus, http.StatusConflict), "no_credit_running_limit", "%d are running.", len(running))
	if s.RoomCode != "" {
		e.code = s.RoomCode
	}
	e.details = map[string]any{"sandboxIds": running, "concurrent": len(running)}
	return e
}

// add makes sb a sandbox of the account, that runs or starts. The caller holds
// s.mu.
func (s *Server) add(sb *sandbox) {
	s.seq++
	sb.id = fmt.Sprintf("3d0c4c1e-7b0e-4a52-9f0e-%012x", s.seq)
	sb.created = time.Now()
	sb.ready = sb.created.Add(s.StartDelay)
	s.run(sb)
	s.sandboxes = append(s.sandboxes, sb)
}

// prefer reports whether the client wants the answer to wait for the outcome.
func prefer(c *call) bool {
	wait, found := strings.CutPrefix(c.Header.Get("Prefer"), "wait=")
	n, err := strconv.Atoi(wait)
	return found && err == nil && n > 0 && n <= 120
}

func (s *Server) list(c *call) (*answer, *apiError) {
	query := c.URL.Query()
	size := cmp.Or(s.PageSize, 100)
	if v := query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			return nil, refuse(http.StatusBadRequest, "invalid_request", "limit is 1 to 100.")
		}
		size = min(size, n)
	}
	after := query.Get("cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	data := []map[string]any{}
	var next any
	skipping := after != ""
	for _, sb := range s.sandboxes {
		if skipping {
			skipping = sb.id != after
			continue
		}
		if s.age(sb); sb.deleted || sb.owner != c.owner {
			continue
		}
		matches := true
		for _, label := range query["label"] {
			name, value, _ := strings.Cut(label, ":")
			matches = matches && sb.labels[name] == value
		}
		if states := query["state"]; len(states) > 0 {
			matches = matches && slices.Contains(states, sb.shown())
		}
		if !matches {
			continue
		}
		if len(data) == size {
			next = data[size-1]["id"]
			break
		}
		data = append(data, s.object(sb))
	}
	return ok(map[string]any{"data": data, "nextCursor": next}), nil
}

func (s *Server) read(c *call) (*answer, *apiError) {
	query := c.URL.Query()
	if want := query.Get("waitFor"); want != "" {
		seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
		if err != nil || seconds < 1 || seconds > 120 || !slices.Contains([]string{"running", "paused", "stopped"}, want) {
			return nil, refuse(http.StatusBadRequest, "invalid_request", "waitFor cannot be understood.")
		}
		s.waitFor(c, want, time.Duration(seconds)*time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, refusal := s.find(c)
	if refusal != nil {
		return nil, refusal
	}
	return ok(s.object(sb)), nil
}

func (s *Server) waitFor(c *call, want string, most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		s.mu.Lock()
		sb, refusal := s.find(c)
		done := refusal != nil || sb.shown() == want || sb.state != "running"
		s.mu.Unlock()
		if done || !pause(c.Context(), 10*time.Millisecond) {
			return
		}
	}
}

func (s *Server) remove(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.id != c.path[1] || sb.owner != c.owner {
			continue
		}
		if s.age(sb); sb.state != "stopped" {
			s.halt(sb, "stopped", "requested", time.Now())
		}
		sb.deleted = true
		sb.files, sb.uploads = nil, nil
		return ok(map[string]any{
			"id": sb.id, "kind": "sandbox", "name": nil, "labels": sb.labels, "status": "deleted", "state": "stopping",
			"deletedAt": sb.ended.UTC().Format(time.RFC3339), "endedAt": nil,
		}), nil
	}
	return nil, refuse(http.StatusNotFound, "not_found", "No sandbox %s.", c.path[1])
}

// change does something to the caller's sandbox and answers with it.
func (s *Server) change(c *call, f *fields, do func(*sandbox) *apiError) (*answer, *apiError) {
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, refusal := s.find(c)
	if refusal == nil {
		refusal = do(sb)
	}
	if refusal != nil {
		return nil, refusal
	}
	return ok(s.object(sb)), nil
}

func (s *Server) stop(c *call) (*answer, *apiError) {
	return s.change(c, c.fields(), func(sb *sandbox) *apiError {
		if sb.state != "stopped" {
			s.halt(sb, "stopped", "requested", time.Now())
		}
		return nil
	})
}

func (s *Server) pause(c *call) (*answer, *apiError) {
	return s.change(c, c.fields(), func(sb *sandbox) *apiError {
		if sb.state != "running" {
			return refuse(http.StatusConflict, "not_running", "The sandbox is %s.", sb.state)
		}
		s.halt(sb, "paused", "requested", time.Now())
		return nil
	})
}

func (s *Server) wake(c *call) (*answer, *apiError) {
	f := c.fields()
	f.integer("timeoutSeconds", 0, 60, 86400, true)
	return s.change(c, f, func(sb *sandbox) *apiError {
		if sb.state != "paused" {
			return refuse(http.StatusConflict, "not_paused", "The sandbox is %s.", sb.state)
		}
		s.run(sb)
		return nil
	})
}

func (s *Server) extend(c *call) (*answer, *apiError) {
	f := c.fields()
	seconds := f.integer("seconds", 60, 1, 86400, false)
	return s.change(c, f, func(sb *sandbox) *apiError {
		if !sb.ends.IsZero() {
			sb.ends = sb.ends.Add(time.Duration(seconds) * time.Second)
		}
		return nil
	})
}

func (sb *sandbox) policy() map[string]any {
	list := func(l []string) []string { return append([]string{}, l...) }
	return map[string]any{
		"sandboxId": sb.id, "internet": *sb.net.Internet, "allow": list(sb.net.Allow), "deny": list(sb.net.Deny), "connect": list(sb.net.Connect),
		"version": sb.netVersion, "enforced": true, "enforcedVersion": sb.netVersion, "openPorts": []int{}, "ports": []int{80, 443},
		"connectAllowed": false, "connectReason": "not_paid", "forbiddenPorts": []int{23, 25}, "updatedAt": nil,
	}
}

func (s *Server) rules(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, refusal := s.find(c)
	if refusal != nil {
		return nil, refusal
	}
	return ok(sb.policy()), nil
}

func (s *Server) setRules(c *call) (*answer, *apiError) {
	f := c.fields()
	internet := f.flag("internet", true)
	rules := network{Internet: &internet, Allow: f.texts("allow"), Deny: f.texts("deny"), Connect: f.texts("connect")}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, refusal := s.find(c)
	if refusal != nil {
		return nil, refusal
	}
	sb.net = rules
	sb.netVersion++
	return ok(sb.policy()), nil
}

// secret is an egress secret. Its value never leaves the stand-in.
type secret struct {
	value  string
	fields map[string]any
}

// SecretValue gives the value of an egress secret, for tests alone: no request
// can read it.
func (s *Server) SecretValue(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[name].value
}

func (s *Server) setSecret(c *call) (*answer, *apiError) {
	f := c.fields()
	value, hosts := f.text("value", ""), f.texts("hosts")
	header, format := f.text("header", ""), f.text("format", "")
	if value == "" || len(value) > 8<<10 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		f.wrong("value", "1 to 8192 characters of visible ASCII")
	}
	if len(hosts) < 1 || len(hosts) > 16 {
		f.wrong("hosts", "1 to 16 hosts")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	name := c.path[1]
	s.mu.Lock()
	defer s.mu.Unlock()
	placeholder := "rtsec_" + strings.ToLower(rand.Text())
	if old, there := s.secrets[name]; there {
		placeholder = old.fields["placeholder"].(string)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	stored := map[string]any{
		"name": name, "hosts": hosts, "placeholder": placeholder, "valueBytes": len(value), "createdAt": now, "updatedAt": now, "enforced": true,
	}
	if header != "" {
		stored["header"], stored["format"] = header, format
	}
	if s.secrets == nil {
		s.secrets = make(map[string]secret)
	}
	s.secrets[name] = secret{value, stored}
	return ok(stored), nil
}

func (s *Server) listSecrets(*call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{}
	for _, secret := range s.secrets {
		list = append(list, secret.fields)
	}
	return ok(map[string]any{"secrets": list}), nil
}

func (s *Server) unsetSecret(c *call) (*answer, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.secrets, c.path[1])
	return ok(map[string]any{"name": c.path[1], "deleted": true, "enforced": true}), nil
}
