package runtimecloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// What a zero field of a [Runner] means for sessions.
const (
	DefaultIdle           = 10 * time.Minute
	DefaultSessionMaxCost = 1_000_000 // for the life of a session, in microdollars
)

const (
	day = 24 * time.Hour
	// contextID names the interpreter of a session in its sandbox.
	contextID = "fnloop"
	// keepLabel has the number of days for which a session is kept.
	keepLabel = "keep"
	// installTime is how long the first use of a language may take that has to be
	// installed. The service says 30 to 90 seconds.
	installTime = 4 * time.Minute
	// controlTime is for a call that answers at once.
	controlTime = 15 * time.Second
)

var (
	_ interpreter.Opener  = (*Runner)(nil)
	_ interpreter.Resumer = (*Runner)(nil)
	_ interpreter.Keeper  = (*session)(nil)
	_ interpreter.Pauser  = (*session)(nil)
	_ interpreter.Forker  = (*session)(nil)
)

// ErrSpent is within the error of a session whose sandbox was stopped because the
// session, or the account, has no money left. Another would be a way around that
// bound, so that there is none. [interpreter.Sessions.End] removes what is left.
var ErrSpent = errors.New("its money is used up")

// A session is an interpreter in a sandbox of its own. It implements
// [interpreter.Driver].
type session struct {
	runner   *Runner
	client   *client
	limits   fnloop.Limits
	grace    time.Duration
	language string
	preload  []string // modules
	keep     bool
	sandbox  string // its ID
	label    string // the value of its label "run", where that is known
	asked    time.Time
	vcpu     int
	memory   int64 // MiB
	puts     chan struct{}

	life context.Context // ended by Close and Release
	end  context.CancelCauseFunc
	once sync.Once

	mu      sync.Mutex
	context string
	process string            // of the interpreter, where it is known
	fresh   bool              // no cell has run in it
	dead    bool              // it has to be restarted
	lost    *interpreter.Loss // to be told with the next cell
	names   []string          // after the last cell
	kills   int64             // of processes for want of memory, until now
	running *cellRun          // or nil
	files   map[string]interpreter.File
	stale   bool            // files may not be all that there are
	touched map[string]bool // from here since files was made
}

// OpenInterpreter implements [interpreter.Opener]: the interpreter is one of the
// service's own, in a sandbox that lives as long as the session and has no
// network once it is ready. The errors are those of [Runner.Run].
func (r *Runner) OpenInterpreter(ctx context.Context, c interpreter.Config) (interpreter.Driver, error) {
	s, err := r.openSession(ctx, c, "")
	if err != nil {
		return nil, broken(ctx, err)
	}
	return s, nil
}

// openSession opens a session that begins empty, or with what a snapshot has.
func (r *Runner) openSession(ctx context.Context, c interpreter.Config, snapshot string) (_ *session, err error) {
	limits, err := r.checkProgram(fnloop.Program{Language: c.Language, Limits: c.Limits})
	if err != nil {
		return nil, err
	}
	client, err := r.start()
	if err != nil {
		return nil, err
	}
	if !r.enter() {
		return nil, ErrClosed
	}
	defer r.work.Done()
	if err := checkPackages(c.Packages); err != nil {
		return nil, err
	}
	run, plan := newRunID(), r.plan(c.Language, slices.Concat(r.Packages, c.Packages))
	j := &job{
		runner: r, client: client, ctx: ctx, run: run, began: time.Now(), limits: limits, plan: plan,
		body: encode(r.sessionBody(run, limits, plan, snapshot)),
	}
	if err := j.create(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			j.remove()
		}
	}()
	s := r.newSession(client, c, limits, plan.language)
	s.sandbox, s.label, s.asked = j.sandbox.ID, run, j.asked
	s.vcpu, s.memory = j.sandbox.VCPU, j.sandbox.MemoryMiB
	if err := client.awaitRunning(ctx, j.sandbox); err != nil {
		return nil, err
	}
	if err := s.retain(ctx); err != nil {
		return nil, err
	}
	if snapshot != "" {
		if err := s.adopt(ctx); err != nil {
			return nil, err
		}
	} else {
		if s.context, s.process, err = j.ready(true); err == nil {
			err = s.load(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := r.addSession(s); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *Runner) newSession(client *client, c interpreter.Config, limits fnloop.Limits, language string) *session {
	s := &session{
		runner: r, client: client, limits: limits, grace: max(0, c.Grace), language: language, keep: r.Keep > 0,
		preload: c.Preload,
		puts:    make(chan struct{}, 4), // more uploads at once are refused
		fresh:   true, stale: true,
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// addSession has Close see to s. The error is ErrClosed where that was called.
func (r *Runner) addSession(s *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if r.sessions == nil {
		r.sessions = make(map[*session]struct{})
	}
	r.sessions[s] = struct{}{}
	r.live[s.sandbox] = struct{}{}
	return nil
}

// sessionBody is the body of a create for a session. A snapshot has its size.
func (r *Runner) sessionBody(run string, limits fnloop.Limits, p plan, snapshot string) createBody {
	body := r.createBody(run, limits, p)
	body.IdlePauseSeconds = 0
	if idle := cmp.Or(r.Idle, DefaultIdle); idle > 0 {
		body.IdlePauseSeconds = int(ceil(int64(idle), int64(time.Second)))
	}
	body.MaxTotalCostMicros = max(0, cmp.Or(r.SessionMaxCostMicros, DefaultSessionMaxCost))
	body.TimeoutSeconds = int64(maxSandbox / time.Second)
	if r.Keep > 0 {
		// It ends when it was not used for that long, and not at an age.
		body.TimeoutSeconds, body.OnLeaseEnd = 0, "pause"
		body.Labels[keepLabel] = strconv.FormatInt(r.keepDays(), 10)
	}
	if snapshot != "" {
		body.Network = r.Network // nothing is installed
		body.Snapshot, body.Image, body.VCPU, body.MemoryMiB, body.DiskMiB = snapshot, "", 0, 0, 0
	}
	return body
}

// keepDays is for how long the service keeps a paused session. One that is not to
// be kept is gone after a day should this process end without a word.
func (r *Runner) keepDays() int64 { return max(1, ceil(int64(r.Keep), int64(day))) }

// kept reports whether the sandbox is that of a session which is to stay. A stopped
// one has lost what it was kept for.
func (sb *sandbox) kept(now time.Time) bool {
	days, err := strconv.Atoi(sb.Labels[keepLabel])
	if err != nil || days < 1 || sb.State == "stopped" {
		return false
	}
	used := sb.used()
	if sb.PausedAt.After(used) {
		used = sb.PausedAt
	}
	// The service deletes it at that age itself, and an hour is for its clock.
	return now.Before(used.Add(time.Duration(days)*day + time.Hour))
}

// used is when the sandbox was last used, or made.
func (sb *sandbox) used() time.Time {
	if sb.LastActiveAt.After(sb.CreatedAt) {
		return sb.LastActiveAt
	}
	return sb.CreatedAt
}

// retain has the service delete the sandbox when it was paused for long.
func (s *session) retain(ctx context.Context) error {
	return s.client.do(ctx, &request{
		op: "keep", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, ":retention"), key: newKey(),
		body: fmt.Appendf(nil, `{"days":%d}`, s.runner.keepDays()), answer: 30 * time.Second,
	}, nil)
}

// newKey is the idempotency key of a call that belongs to no run.
func newKey() string { return stepKey(newRunID(), "") }

// An apiContext is an interpreter as the API tells of it.
type apiContext struct {
	ID        string `json:"id"`
	Language  string `json:"language"`
	ProcessID string `json:"processId"`
}

// newContext starts an interpreter. The first use of some languages installs them.
func (c *client) newContext(ctx context.Context, sandbox, language string) (*apiContext, error) {
	var made apiContext
	err := c.do(ctx, &request{
		op: "start the interpreter", sandbox: sandbox, method: http.MethodPost, path: sandboxPath(sandbox, "/interpreter/contexts"), key: newKey(),
		body: encode(map[string]string{"id": contextID, "language": language, "cwd": workspace}), budget: installTime + time.Minute,
	}, &made)
	if err == nil && made.ID == "" {
		err = &Error{Op: "start the interpreter", Code: codeRequest, Status: http.StatusOK, Message: "the answer names no context", Sandbox: sandbox}
	}
	return &made, err
}

func (s *session) path(rest string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sandboxPath(s.sandbox, "/interpreter/contexts/"+url.PathEscape(s.context)+rest)
}

// look gives the session's interpreter as it is, or nil where there is none.
func (s *session) look(ctx context.Context) (*apiContext, error) {
	var list struct{ Data []*apiContext }
	err := s.client.do(ctx, &request{
		op: "find the interpreter", sandbox: s.sandbox, method: http.MethodGet, path: sandboxPath(s.sandbox, "/interpreter/contexts"),
		answer: time.Minute, budget: 2 * time.Minute, // it may have to wake
	}, &list)
	if err != nil {
		return nil, s.judge(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range list.Data {
		if c.ID == s.context {
			return c, nil
		}
	}
	return nil, nil
}

// adopt takes over the interpreter of a sandbox that is not new.
func (s *session) adopt(ctx context.Context) error {
	s.mu.Lock()
	s.context = cmp.Or(s.context, contextID)
	was := s.process
	s.mu.Unlock()
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	if found == nil {
		if found, err = s.client.newContext(ctx, s.sandbox, s.language); err != nil {
			return s.judge(ctx, err)
		}
	}
	s.mu.Lock()
	s.context, s.process = found.ID, found.ProcessID
	s.fresh = false
	dead := found.ProcessID == ""
	lost := was != "" && was != found.ProcessID
	s.mu.Unlock()
	if lost {
		s.lose(s.causeOf(ctx, was))
	}
	if dead {
		return s.restart(ctx)
	}
	return nil
}

// lose notes a loss for the next cell to tell of.
func (s *session) lose(cause interpreter.Cause, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = &interpreter.Loss{Cause: cause, Detail: detail, FilesKept: true}
	s.names, s.fresh = nil, true
}

// causeOf says why a process of an interpreter ended, as far as it can be known.
func (s *session) causeOf(ctx context.Context, process string) (interpreter.Cause, string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTime)
	defer cancel()
	var p struct {
		State    string
		ExitCode *int
	}
	err := s.client.do(ctx, &request{
		op: "ask for the interpreter's end", sandbox: s.sandbox, method: http.MethodGet,
		path: sandboxPath(s.sandbox, "/processes/"+url.PathEscape(process)), answer: controlTime,
	}, &p)
	switch {
	case err == nil && p.State == "exited" && p.ExitCode != nil:
		return interpreter.CauseExit, fmt.Sprintf("exit status %d", *p.ExitCode)
	case err != nil || p.State != "killed":
		return interpreter.CauseExit, ""
	}
	kills, known := s.client.oomKills(ctx, s.sandbox)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.kills; known {
		if s.kills = kills; kills > before {
			return interpreter.CauseMemory, fmt.Sprintf("%d MiB", s.limits.Memory>>20)
		}
	}
	return interpreter.CauseSignal, ""
}

// spentReasons stop a sandbox whose money is used up.
var spentReasons = []string{"lifetime_cap", "insufficient_funds", "spending_limit", "authority_revoked"}

// judge finds out what a refusal means for the session: that its sandbox is gone,
// that its money is, or nothing.
func (s *session) judge(ctx context.Context, err error) error {
	e, ok := asError(err)
	if !ok || ctx.Err() != nil || e.Status != http.StatusNotFound && !slices.Contains(goneCodes, e.Code) {
		return err
	}
	sb, asked := s.client.read(ctx, s.sandbox)
	switch {
	case asked != nil && isCode(asked, "not_found"):
		return fmt.Errorf("%w: %w", interpreter.ErrGone, err)
	case asked != nil: // it cannot be told
		return errors.Join(err, asked)
	case sb.State != "stopped" && sb.State != "stopping":
		return err
	case slices.Contains(spentReasons, sb.StopReason):
		return fmt.Errorf("%w (%s): %w", ErrSpent, sb.StopReason, err)
	}
	return fmt.Errorf("%w (%s): %w", interpreter.ErrGone, sb.StopReason, err)
}

// Info implements [interpreter.Driver].
func (s *session) Info() interpreter.Info {
	info := interpreter.Info{Dir: workspace, Limits: s.limits}
	if s.language == fnloop.LanguagePython {
		info.Python = s.runner.Environment().Python
	}
	return info
}

// Interrupt implements [interpreter.Driver].
func (s *session) Interrupt(ctx context.Context) (bool, error) {
	s.mu.Lock()
	run := s.running
	s.mu.Unlock()
	if run == nil {
		return false, nil
	}
	ran, err := s.interrupt(ctx)
	if ran {
		run.interrupt(false)
	}
	return ran, err
}

// interrupt stops the cell that runs, and reports whether one did.
func (s *session) interrupt(ctx context.Context) (bool, error) {
	var answer struct{ Interrupted bool }
	err := s.client.do(ctx, &request{
		op: "interrupt", sandbox: s.sandbox, method: http.MethodPost, path: s.path(":interrupt"), key: newKey(),
		body: []byte("{}"), answer: controlTime, budget: controlTime,
	}, &answer)
	if err != nil {
		return false, s.judge(ctx, err)
	}
	return answer.Interrupted, nil
}

// Restart implements [interpreter.Driver].
func (s *session) Restart(ctx context.Context) error { return s.restart(ctx) }

func (s *session) restart(ctx context.Context) error {
	var made apiContext
	err := s.client.do(ctx, &request{
		op: "restart", sandbox: s.sandbox, method: http.MethodPost, path: s.path(":restart"), key: newKey(),
		body: []byte("{}"), answer: time.Minute, budget: 2 * time.Minute,
	}, &made)
	if err != nil {
		return s.judge(ctx, err)
	}
	if made.ProcessID == "" { // what the answer has is not documented
		found, err := s.look(ctx)
		if err != nil {
			return err
		}
		if found != nil {
			made = *found
		}
	}
	s.mu.Lock()
	s.process, s.fresh, s.dead, s.names = made.ProcessID, true, false, nil
	s.mu.Unlock()
	_ = s.load(ctx) // what could be imported once is there, or the cell says so
	return nil
}

// aside runs a cell that is not the user's.
func (s *session) aside(ctx context.Context, op, code string, limit time.Duration) (a cellAnswer, err error) {
	s.mu.Lock()
	name := s.context
	s.mu.Unlock()
	err = s.client.do(ctx, &request{
		op: op, sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, "/interpreter:run"), key: newKey(),
		body: encode(map[string]any{"code": code, "context": name, "timeoutMs": limit.Milliseconds()}), answer: limit + controlTime, budget: 2*limit + controlTime,
	}, &a)
	return a, err
}

// loadTime is how long it may take to import what is to be there ahead.
const loadTime = time.Minute

// load imports the modules that are to be there before the first cell.
func (s *session) load(ctx context.Context) error {
	if len(s.preload) == 0 || s.language != fnloop.LanguagePython {
		return nil
	}
	for _, m := range s.preload {
		if !moduleName.MatchString(m) {
			return &fnloop.PackageError{Field: "Preload", Reason: fmt.Sprintf("%q is not the name of a module, as numpy or matplotlib.pyplot are", m)}
		}
	}
	code := "def _fnloop():\n    import " + strings.Join(s.preload, ", ") + "\n_fnloop(); del _fnloop\n"
	a, err := s.aside(ctx, "preload", code, loadTime)
	switch {
	case err != nil:
		return err
	case a.Status != interpreter.StatusOK:
		e := &fnloop.PackageError{Field: "Preload", Reason: fmt.Sprintf("the modules %s were not imported: %s", strings.Join(s.preload, ", "), a.Status)}
		if a.Error != nil {
			e.Reason = fmt.Sprintf("the modules %s cannot be imported: %s: %s", strings.Join(s.preload, ", "), a.Error.Name, a.Error.Value)
		}
		return e
	}
	return nil
}

var moduleName = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// errReleased ends what a session does when it is closed or released.
var errReleased = errors.New("the session was closed")

// Close implements [interpreter.Driver]: the sandbox is deleted.
func (s *session) Close() (err error) {
	s.once.Do(func() {
		s.end(errReleased)
		r := s.runner
		r.dropSession(s)
		err = r.removeSandbox(context.Background(), s.sandbox, Charge{Sandbox: s.sandbox, Run: s.label}, s.asked, s.vcpu, s.memory)
	})
	return err
}

// Release implements [interpreter.Keeper].
func (s *session) Release() error {
	if !s.keep {
		return s.Close()
	}
	s.once.Do(func() {
		s.mu.Lock()
		run := s.running
		s.mu.Unlock()
		if run != nil { // nobody will read what comes of it
			ctx, cancel := context.WithTimeout(s.life, controlTime)
			_, _ = s.Interrupt(ctx)
			select {
			case <-run.done:
			case <-ctx.Done():
			}
			cancel()
		}
		s.end(errReleased)
		s.runner.dropSession(s)
		s.runner.setLive(s.sandbox, false)
	})
	return nil
}

func (r *Runner) dropSession(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// closeSessions ends the sessions that are open, or lets them go.
func (r *Runner) closeSessions() {
	r.mu.Lock()
	open := slices.Collect(maps.Keys(r.sessions))
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range open {
		all.Go(func() { _ = s.Release() }) // what it leaves is in the LeakError
	}
	all.Wait()
}

// Ref implements [interpreter.Keeper]. It names the sandbox, the context and the
// process.
func (s *session) Ref() string {
	if !s.keep {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return url.Values{
		"sandbox": {s.sandbox}, "context": {s.context}, "process": {s.process}, "language": {s.language}, "run": {s.label},
	}.Encode()
}

// parseRef reads a Ref of a session or of a snapshot.
func parseRef(ref string) (url.Values, error) {
	v, err := url.ParseQuery(ref)
	if err != nil || v.Get("sandbox") == "" && v.Get("snapshot") == "" {
		return nil, &ConfigError{Field: "ref", Reason: "is no reference of a session or snapshot of this package"}
	}
	return v, nil
}

// ResumeInterpreter implements [interpreter.Resumer]. A paused sandbox is woken.
// An interpreter that is another than the one of ref has lost its variables, which
// the next cell tells.
func (r *Runner) ResumeInterpreter(ctx context.Context, c interpreter.Config, ref string) (interpreter.Driver, error) {
	s, err := r.resume(ctx, c, ref)
	if err != nil {
		return nil, broken(ctx, err)
	}
	return s, nil
}

func (r *Runner) resume(ctx context.Context, c interpreter.Config, ref string) (*session, error) {
	v, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	c.Language = cmp.Or(v.Get("language"), c.Language)
	if snapshot := v.Get("snapshot"); snapshot != "" {
		s, err := r.openSession(ctx, c, snapshot)
		if err != nil {
			if isCode(err, "snapshot_not_found") {
				err = fmt.Errorf("%w: %w", interpreter.ErrGone, err)
			}
			return nil, err
		}
		s.reseed(ctx)
		return s, nil
	}
	limits, err := r.checkProgram(fnloop.Program{Language: c.Language, Limits: c.Limits})
	if err != nil {
		return nil, err
	}
	client, err := r.start()
	if err != nil {
		return nil, err
	}
	if !r.enter() {
		return nil, ErrClosed
	}
	defer r.work.Done()
	s := r.newSession(client, c, limits, cmp.Or(c.Language, fnloop.LanguagePython))
	s.sandbox, s.label, s.asked, s.keep = v.Get("sandbox"), v.Get("run"), time.Now(), true
	s.context, s.process = v.Get("context"), v.Get("process")
	s.vcpu, s.memory = cmp.Or(r.VCPU, 2), limits.Memory>>20
	if err := s.adopt(ctx); err != nil {
		if errors.Is(err, interpreter.ErrGone) {
			// A stopped one has lost its memory, and its disk still costs.
			r.work.Go(func() { _ = client.remove(context.WithoutCancel(ctx), s.sandbox) }) // Sweep finds it
		}
		return nil, err
	}
	if err := r.addSession(s); err != nil {
		return nil, err
	}
	return s, nil
}

// EndInterpreter implements [interpreter.Resumer].
func (r *Runner) EndInterpreter(ctx context.Context, ref string) error {
	v, err := parseRef(ref)
	if err != nil {
		return err
	}
	client, err := r.start()
	if err != nil {
		return err
	}
	if snapshot := v.Get("snapshot"); snapshot != "" {
		return client.removeSnapshot(ctx, snapshot)
	}
	return client.remove(ctx, v.Get("sandbox"))
}

// Pause implements [interpreter.Pauser].
func (s *session) Pause(ctx context.Context) error {
	err := s.client.do(ctx, &request{
		op: "pause", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, ":pause"), key: newKey(),
		body: []byte("{}"), prefer: "wait=60", answer: 90 * time.Second,
	}, nil)
	if err == nil || isCode(err, "sandbox_paused") {
		return nil
	}
	if err = s.judge(ctx, err); isCode(err, "not_running") {
		if sb, asked := s.client.read(ctx, s.sandbox); asked == nil && (sb.State == "paused" || sb.State == "pausing") {
			return nil
		}
	}
	return err
}

// Cost is what a session has cost so far, by its [interpreter.Session.Ref]. The
// amount is the service's, which settles it when the session is paused and every
// half hour. Where there is no Ref, as the session is not kept, [Runner.Charged]
// has the cost at the end.
func (r *Runner) Cost(ctx context.Context, ref string) (Charge, error) {
	v, err := parseRef(ref)
	if err == nil && v.Get("sandbox") == "" {
		err = &ConfigError{Field: "ref", Reason: "is that of a snapshot, whose storage is billed apart"}
	}
	if err != nil {
		return Charge{}, err
	}
	client, err := r.start()
	if err != nil {
		return Charge{}, err
	}
	sb, err := client.read(ctx, v.Get("sandbox"))
	if err != nil {
		return Charge{}, err
	}
	charge := Charge{Sandbox: sb.ID, Run: sb.Labels["run"], Alive: time.Since(sb.CreatedAt)}
	if sb.ChargedMicros != nil {
		charge.Micros = *sb.ChargedMicros
	}
	return charge, nil
}
