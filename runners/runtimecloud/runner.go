package runtimecloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
)

// DefaultURL is where the API is.
const DefaultURL = "https://api.withruntime.com"

// What a zero field of a [Runner] means.
const (
	DefaultTime      = 30 * time.Second  // for a program
	DefaultMemory    = 4 << 30           // of a sandbox, in bytes
	DefaultTimeLimit = 300 * time.Second // for a sandbox
	DefaultMaxCost   = 50_000            // for a sandbox, in microdollars
	DefaultParallel  = 40                // programs at once
	DefaultRate      = 50                // requests a second
	DefaultRoomWait  = 2 * time.Minute   // for a sandbox to become free
	DefaultApp       = "fnloop"          // label of the sandboxes
)

// Bounds of the service.
const (
	maxTime    = 23 * time.Hour // for a program; its sandbox may live for 24 hours
	minSandbox = time.Minute
	maxSandbox = 24 * time.Hour
	minMemory  = 128 // MiB
	maxMemory  = 64 << 10
	workspace  = "/workspace"
)

// A Runner runs each program in a microVM of its own at Runtime Cloud and
// deletes it afterwards. It implements [fnloop.Runner] and [fnloop.Describer].
// Its zero value works where RUNTIME_API_KEY is set.
//
// Set the fields before the first use and do not copy a Runner after it; then
// it is safe for concurrent use. Close it: sandboxes are deleted after Run has
// returned, and a program that exits before that is done leaves them to the
// service's own time limit.
type Runner struct {
	// Key is the API key. Empty means the environment variable RUNTIME_API_KEY.
	Key Secret
	// URL is the scheme and host of the API. Empty means the environment variable
	// RUNTIME_API_URL, and where that is empty too [DefaultURL]. Plain http is
	// for this machine alone.
	URL string

	// Time and Memory are the limits of programs that bring none: zero means
	// [DefaultTime] and [DefaultMemory]. Memory, in bytes, is that of the whole
	// microVM, kernel and all, and at least 128 MiB. The service keeps microVMs
	// of the default size ready; another size starts more slowly.
	Time   time.Duration
	Memory int64
	// VCPU is the number of virtual CPUs. Zero means the service's default, 2.
	VCPU int
	// DiskMiB is the size of the disk. Zero means the service's default, 4096.
	DiskMiB int
	// Image, or Snapshot, is what sandboxes start from: an ID, or for an image a
	// "name", "name:tag" or "name@version". Both empty means the service's
	// Ubuntu with Python 3.12.
	Image, Snapshot string
	// Region is where sandboxes run. Empty means the service's default.
	Region string

	// Network is what programs can reach. Its zero value is nothing.
	Network Network
	// Packages are requirements as pip has them, such as "httpx==0.28.1". They are
	// installed into every sandbox before any code is there, with nothing but PyPI's
	// hosts in reach, and for every program: put much into an image. What cannot be
	// installed is a [*fnloop.PackageError] with pip's last lines. Options of pip and
	// files of the host are none.
	Packages []string
	// Setup, when not nil, readies every sandbox before the program is there, and
	// after Packages.
	Setup *Setup
	// Env are environment variables of the sandboxes, at most 32. Programs can
	// read them: for a key that a program must use, see [Runner.SetSecret].
	Env map[string]string
	// App is the label "app" of the sandboxes, by which [Runner.Sweep] knows
	// them. Empty means [DefaultApp]. Labels can be seen by all of the account.
	App string
	// Labels are further labels.
	Labels map[string]string

	// TimeLimit is how long a sandbox may exist; the service deletes it then,
	// whatever became of us. Zero means [DefaultTimeLimit]. It is at least a
	// minute, and is raised for a program that may run longer.
	TimeLimit time.Duration
	// MaxCostMicros is the most that one sandbox may cost, in microdollars; the
	// service stops it then. Zero means [DefaultMaxCost], negative no bound.
	MaxCostMicros int64
	// Idle is how long a session may be unused before the service pauses it: a
	// paused one costs its storage alone, and its next cell wakes it. Zero means
	// [DefaultIdle], negative never. It is at least ten seconds and at most a day.
	Idle time.Duration
	// Keep has sessions stay when this process ends or lets them go, and is how
	// long the service keeps a paused one, in whole days from 1 to 365. Zero keeps
	// none: a session is deleted when it is closed, and should this process be gone
	// by then, a day after it was paused.
	Keep time.Duration
	// SessionMaxCostMicros is MaxCostMicros for the sandbox of a session, all its
	// life. Zero means [DefaultSessionMaxCost], negative no bound.
	SessionMaxCostMicros int64
	// Charged, when not nil, is called once for every sandbox that there was,
	// after its end, with what it cost, from a goroutine that Close waits for.
	// The context has the values of the one that Run got and never ends. To learn
	// the amount the sandbox is stopped before it is deleted, which is one more
	// request.
	Charged func(context.Context, Charge)

	// Parallel is how many programs run at once; more wait. Zero means
	// [DefaultParallel]. It is at most 40: each holds one connection, of which
	// the service takes 64 from one address, and deletes have some for
	// themselves.
	Parallel int
	// Rate is how many requests are made a second, all in all, after a burst of
	// twice as many. Zero means [DefaultRate], which is what the service grants
	// a key.
	Rate int
	// RoomWait is how long a program waits for a sandbox when the account or the
	// service has no room for one. Zero means [DefaultRoomWait], negative not at
	// all.
	RoomWait time.Duration
	// Transport makes the HTTP requests. Nil means a pool of 48 connections that
	// goes by the proxy variables of the environment. The Runner's Close does not
	// close one given here.
	Transport http.RoundTripper
	// Logger gets a debug record per request and an error for every sandbox that
	// could not be deleted. Nil discards them. The key is never logged.
	Logger *slog.Logger

	once     sync.Once
	client   *client
	startErr error
	slots    chan struct{}

	mu       sync.Mutex
	closed   bool
	work     sync.WaitGroup      // runs and what they left to do
	live     map[string]struct{} // IDs of sandboxes that a Sweep must not touch
	sessions map[*session]struct{}
	leaked   LeakError
}

var (
	_ fnloop.Runner    = (*Runner)(nil)
	_ fnloop.Describer = (*Runner)(nil)
)

// start checks the fields and makes the client, once.
func (r *Runner) start() (*client, error) {
	r.once.Do(func() {
		if r.startErr = r.check(); r.startErr != nil {
			return
		}
		rate := float64(cmp.Or(r.Rate, DefaultRate))
		log := r.Logger
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		r.client, r.startErr = newClient(
			cmp.Or(r.URL, os.Getenv("RUNTIME_API_URL"), DefaultURL),
			cmp.Or(r.Key, Secret(os.Getenv("RUNTIME_API_KEY"))),
			r.Transport, newLimiter(rate, 2*rate), log)
		r.slots = make(chan struct{}, cmp.Or(r.Parallel, DefaultParallel))
		r.live = make(map[string]struct{})
	})
	return r.client, r.startErr
}

func (r *Runner) check() error {
	bad := func(field, format string, args ...any) error {
		return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Image != "" && r.Snapshot != "":
		return bad("Snapshot", "cannot be used together with Image")
	case r.Parallel < 0 || r.Parallel > DefaultParallel:
		return bad("Parallel", "%d is not between 0 and %d", r.Parallel, DefaultParallel)
	case r.Rate < 0:
		return bad("Rate", "%d is negative", r.Rate)
	case r.VCPU < 0 || r.VCPU > 16:
		return bad("VCPU", "%d is not between 0 and 16", r.VCPU)
	case r.DiskMiB != 0 && (r.DiskMiB < 3072 || r.DiskMiB > 409600):
		return bad("DiskMiB", "%d is neither 0 nor between 3072 and 409600", r.DiskMiB)
	case r.TimeLimit != 0 && (r.TimeLimit < minSandbox || r.TimeLimit > maxSandbox):
		return bad("TimeLimit", "%v is not between %v and %v", r.TimeLimit, minSandbox, maxSandbox)
	case r.Time < 0 || r.Time > maxTime:
		return bad("Time", "%v is not between 0 and %v", r.Time, maxTime)
	case r.Memory < 0 || r.Memory > maxMemory<<20:
		return bad("Memory", "%d bytes are not between 0 and 64 GiB", r.Memory)
	case r.Idle > 0 && (r.Idle < 10*time.Second || r.Idle > day):
		return bad("Idle", "%v is not between 10s and a day", r.Idle)
	case r.Keep != 0 && (r.Keep < day || r.Keep > 365*day):
		return bad("Keep", "%v is neither zero nor between 1 and 365 days", r.Keep)
	case len(r.Env) > 32:
		return bad("Env", "%d variables are more than 32", len(r.Env))
	case len(r.Labels) > 29:
		return bad("Labels", "%d are more than 29", len(r.Labels))
	}
	for name := range r.Env {
		if !envName.MatchString(name) {
			return bad("Env", "%q is no name for an environment variable", name)
		}
	}
	for name := range r.Labels {
		if name == "app" || name == "run" || name == keepLabel || name == "" {
			return bad("Labels", "%q is for the Runner to set", name)
		}
	}
	if err := checkPackages(r.Packages); err != nil {
		return err
	}
	return errors.Join(r.Network.check("Network"), r.Setup.check())
}

func checkPackages(packages []string) error {
	for _, p := range packages {
		if p == "" || p[0] == '-' || strings.ContainsAny(p, "\r\n\x00") {
			return &fnloop.PackageError{Field: "Packages", Reason: fmt.Sprintf("%q is no requirement that can be installed there: want a name, with a version or not", p)}
		}
	}
	return nil
}

// Probe asks the service whether the key is good, so that a bad one is told at
// the start and not by the first program.
func (r *Runner) Probe(ctx context.Context) error {
	c, err := r.start()
	if err != nil {
		return err
	}
	return c.do(ctx, &request{op: "probe", method: http.MethodGet, path: "/v1/me", answer: 15 * time.Second, budget: 30 * time.Second}, nil)
}

// Environment says what programs find there. Of an image or a snapshot only
// the limits are known.
func (r *Runner) Environment() fnloop.Environment {
	env := fnloop.Environment{Network: r.Network.Internet, Limits: r.limits(fnloop.Limits{}), Languages: slices.Clone(languages)}
	if !r.ownImage() {
		for i := range env.Languages {
			env.Languages[i].Version = ""
		}
	} else {
		env.Python = "3.12"
		env.Packages = append([]string{"numpy 1.26.4", "pandas 2.1.4", "matplotlib 3.6.3"}, r.Packages...)
		env.Writable = workspace
		if r.DiskMiB == 0 {
			env.Writable += " (about 2.5 GiB)"
		}
	}
	return env
}

// limits fills in what l leaves to the Runner.
func (r *Runner) limits(l fnloop.Limits) fnloop.Limits {
	l.Time = cmp.Or(l.Time, r.Time, DefaultTime)
	l.Memory = cmp.Or(l.Memory, r.Memory, DefaultMemory)
	l.Memory = max(ceil(l.Memory, 1<<20), minMemory) << 20
	return l
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// Run runs p in a fresh sandbox. It returns when the program ended; the sandbox
// is deleted after that, which Close waits for.
//
// The errors are [*fnloop.ProgramError] for a program that cannot be run here,
// [*ConfigError], [*Error], [*SetupError] and [ErrClosed]. When the sandbox goes
// away under the program by the program's own doing, or at its time or cost
// limit, the Result has the ending [fnloop.EndLost] and the error is nil; when
// it goes away by the service's fault there is an error beside such a Result.
// The program is never run twice.
func (r *Runner) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	res, err := r.run(ctx, p)
	return res, broken(ctx, err)
}

// checkProgram says what is wrong with p, and gives the limits that hold for it.
func (r *Runner) checkProgram(p fnloop.Program) (fnloop.Limits, error) {
	limits := r.limits(p.Limits)
	if err := p.CheckFor(languages); err != nil {
		return limits, err
	}
	switch {
	case limits.Time > maxTime:
		return limits, &fnloop.ProgramError{Field: "limits.time", Reason: fmt.Sprintf("%v is more than the %v of a sandbox", limits.Time, maxTime)}
	case limits.Memory > maxMemory<<20:
		return limits, &fnloop.ProgramError{Field: "limits.memory", Reason: fmt.Sprintf("%d bytes are more than the 64 GiB of a sandbox", limits.Memory)}
	case len(p.Stdin) > 0 && r.installs(p.Language):
		return limits, &fnloop.ProgramError{Field: "stdin", Reason: fmt.Sprintf("a program in %s gets none here, unless Image has the language", p.Language)}
	}
	return limits, nil
}

func (r *Runner) run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	limits, err := r.checkProgram(p)
	if err != nil {
		return fnloop.Result{}, err
	}
	c, err := r.start()
	if err != nil {
		return fnloop.Result{}, err
	}
	if !r.enter() {
		return fnloop.Result{}, ErrClosed
	}
	defer r.work.Done()
	began := time.Now()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return fnloop.Result{Limits: limits, End: fnloop.EndCancelled}, c.describe(ctx, &request{op: "wait for a slot"}, nil)
	}
	j := &job{
		runner: r, client: c, ctx: ctx, run: newRunID(), began: began, limits: limits,
		plan: r.plan(p.Language, r.Packages),
	}
	j.body = encode(r.createBody(j.run, limits, j.plan))
	return j.do(p)
}

// enter counts a run, unless the Runner is closed.
func (r *Runner) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Add(1)
	return true
}

// Close ends the sessions that are open, or lets go of those that are kept, waits
// until the programs that run have ended and all their sandboxes are deleted, and gives a [*LeakError] when some could not be. Run answers
// [ErrClosed] from then on. To end programs, cancel their contexts. Deletes have
// a bound in time: Close returns within a few minutes of the last program's end,
// whatever the service does.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.closeSessions()
	r.work.Wait()
	if c, err := r.start(); err == nil && r.Transport == nil {
		c.http.CloseIdleConnections()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leaked.Sandboxes)+len(r.leaked.Runs) == 0 {
		return nil
	}
	return &LeakError{slices.Clone(r.leaked.Sandboxes), slices.Clone(r.leaked.Runs)}
}

// Sweep deletes the sandboxes with the Runner's label "app" that nobody has used for
// age, as a program that crashed leaves them, and gives their IDs. Those of
// programs and sessions that this Runner runs are spared, but not those of other
// processes: age must be more than the longest run takes there, and than their
// sessions are left alone. Zero means an hour; a negative age is a [*ConfigError].
//
// Sessions that are kept ([Runner.Keep]) are spared for as long as they are to be
// kept, unless they were stopped and have nothing left to keep.
func (r *Runner) Sweep(ctx context.Context, age time.Duration) (deleted []string, err error) {
	if age < 0 {
		return nil, &ConfigError{Field: "age", Reason: fmt.Sprintf("%v is negative", age)}
	}
	c, err := r.start()
	if err != nil {
		return nil, err
	}
	before := time.Now().Add(-cmp.Or(age, time.Hour))
	var old []string
	err = c.list(ctx, "app", r.app(), func(sb *sandbox) {
		if !sb.CreatedAt.IsZero() && sb.used().Before(before) && !r.isLive(sb.ID) && !sb.kept(time.Now()) {
			old = append(old, sb.ID)
		}
	})
	errs := []error{err}
	for _, id := range old {
		if err := c.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		deleted = append(deleted, id)
		r.mu.Lock()
		r.leaked.Sandboxes = slices.DeleteFunc(r.leaked.Sandboxes, func(leaked string) bool { return leaked == id })
		r.mu.Unlock()
	}
	return deleted, errors.Join(errs...)
}

func (r *Runner) app() string { return cmp.Or(r.App, DefaultApp) }

func (r *Runner) isLive(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.live[id]
	return ok
}

// setLive notes a sandbox as in use, or as no longer.
func (r *Runner) setLive(id string, live bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live {
		r.live[id] = struct{}{}
	} else {
		delete(r.live, id)
	}
}

// createBody is the body of a create for a program.
func (r *Runner) createBody(run string, limits fnloop.Limits, p plan) createBody {
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = make(map[string]string, 3)
	}
	labels["app"], labels["run"] = r.app(), run
	life := limits.Time + p.time
	body := createBody{
		Labels: labels, Env: r.Env, VCPU: r.VCPU, DiskMiB: r.DiskMiB,
		// What is left over is for the start and for what comes between the steps.
		TimeoutSeconds: min(max(ceil(int64(cmp.Or(r.TimeLimit, DefaultTimeLimit)), int64(time.Second)),
			ceil(int64(life+time.Minute), int64(time.Second))), int64(maxSandbox/time.Second)),
		OnLeaseEnd:         "delete",
		MaxTotalCostMicros: max(0, cmp.Or(r.MaxCostMicros, DefaultMaxCost)),
		Network:            p.network, Image: r.Image, Snapshot: r.Snapshot, Region: r.Region,
	}
	if limits.Memory != DefaultMemory { // else it may be a sandbox that is kept ready
		body.MemoryMiB = limits.Memory >> 20
	}
	return body
}
