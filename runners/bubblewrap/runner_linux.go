package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/pool"
	"github.com/fnloop/fnloop/internal/pylayer"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// bootTime is how long a sandbox may take until its interpreter is ready.
const bootTime = 20 * time.Second

var errClosed = errors.New("bubblewrap: the runner is closed")

// Run implements [fnloop.Runner]. Beside the errors named there it returns an
// [*Error] where the host cannot isolate programs.
func (r *Runner) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	limits := r.bounds().Limits(p.Limits)
	if err := r.check(p, limits); err != nil {
		return fnloop.Result{}, err
	}
	if ctx.Err() != nil {
		return fnloop.Result{}, supervisor.Ended(ctx)
	}
	release, err := r.slots.Take(ctx, r.MaxPrograms)
	if err != nil {
		return fnloop.Result{}, supervisor.Ended(ctx)
	}
	defer release()
	begin := time.Now()
	h, err := r.enter(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = fnloop.Unavailable(err)
		}
		return fnloop.Result{}, err
	}
	defer r.host.Leave()
	command, err := r.command(ctx, h, p, limits)
	if err != nil {
		return fnloop.Result{}, err
	}
	return r.run(ctx, h, p, command, limits, begin)
}

// check reports whether p can be run within limits.
func (r *Runner) check(p fnloop.Program, limits fnloop.Limits) error {
	var total int64
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		total = int64(info.Totalram) * int64(info.Unit)
	}
	return r.bounds().CheckProgram(p, limits, total)
}

// enter counts a run in and gives what is known of the host. The caller must
// call r.host.Leave when it has no error.
func (r *Runner) enter(ctx context.Context) (*host, error) {
	h, err := r.host.Enter(ctx, func(ctx context.Context) (*host, error) {
		h, err := r.findHost(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.prepare(ctx, h); err != nil {
			return nil, errors.Join(err, h.close())
		}
		if h.nursery, err = r.openNursery(ctx, h); err != nil {
			if ctx.Err() != nil {
				return nil, errors.Join(supervisor.Ended(ctx), h.close())
			}
			h.protection.NotForked = err.Error()
		}
		if r.Warm > 0 {
			h.warm = &warm{Size: r.Warm, Make: h.start}
			h.sessions = &warm{Size: r.Warm, Make: h.start}
			h.warm.Fill(r.spec(h, r.bounds().Limits(fnloop.Limits{}).Memory))
		}
		return h, nil
	})
	switch {
	case err == nil:
		return h, nil
	case err == lazy.ErrClosed:
		err = errClosed
	case ctx.Err() != nil:
		err = supervisor.Ended(ctx)
	}
	return nil, err
}

// warm has the sandboxes that are kept ready.
type warm = pool.Pool[spec, *sandbox]

// run runs p in a sandbox that is ready, or else in one of its own.
func (r *Runner) run(ctx context.Context, h *host, p fnloop.Program, command *supervisor.Command, limits fnloop.Limits, begin time.Time) (fnloop.Result, error) {
	if h.warm == nil {
		return r.runCold(ctx, h, p, command, limits, begin)
	}
	s, ready, err := h.warm.Get(ctx, r.spec(h, limits.Memory))
	if err != nil && ctx.Err() != nil {
		err = supervisor.Ended(ctx)
	}
	if err != nil {
		return fnloop.Result{}, err
	}
	defer h.warm.Put(s)
	res, err := s.run(ctx, h, p, command, limits, begin)
	if ready && errors.Is(err, supervisor.ErrNotStarted) && ctx.Err() == nil {
		// It went away while it waited. Should the program have begun all the
		// same, nothing is left of what it did.
		return r.runCold(ctx, h, p, command, limits, begin)
	}
	return res, err
}

// runCold runs p in a sandbox of its own, and returns when that is removed.
func (r *Runner) runCold(ctx context.Context, h *host, p fnloop.Program, command *supervisor.Command, limits fnloop.Limits, begin time.Time) (fnloop.Result, error) {
	s, err := h.start(ctx, r.spec(h, limits.Memory))
	if err != nil {
		return fnloop.Result{}, err
	}
	defer s.Remove()
	return s.run(ctx, h, p, command, limits, begin)
}

// Probe reports whether programs can be isolated on this host, as an [*Error]
// or nil, by running one where that has not been done yet.
func (r *Runner) Probe(ctx context.Context) error {
	if _, err := r.enter(ctx); err != nil {
		return err
	}
	r.host.Leave()
	return nil
}

// Protection says what bounds programs on this host. Its error is that of
// [Runner.Probe].
func (r *Runner) Protection(ctx context.Context) (Protection, error) {
	h, err := r.enter(ctx)
	if err != nil {
		return Protection{}, err
	}
	defer r.host.Leave()
	return h.protection, nil
}

// Lacks names what programs of this runner cannot be held to on this host.
// [github.com/fnloop/fnloop/runners/runnertest] skips its cases for it.
func (r *Runner) Lacks() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	lacks := make(map[string]string)
	p, err := r.Protection(ctx)
	if err != nil {
		return lacks
	}
	if p.Cgroup == 0 {
		for _, what := range []string{"memory", "pids", "oom"} {
			lacks[what] = "the host lets no cgroup be made"
		}
	}
	if !p.Sockets {
		lacks["sockets"] = "the host counts what sockets hold for no cgroup"
	}
	return lacks
}

// Environment implements [fnloop.Describer] with what [Runner.Inspect] finds out.
// It is the zero Environment where programs cannot be run.
func (r *Runner) Environment() fnloop.Environment {
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	env, err := r.Inspect(ctx)
	if err != nil {
		return fnloop.Environment{}
	}
	return env
}

// Inspect implements [fnloop.Inspector]. The first call runs a program that looks
// for packages, and one that looks for languages. Its error says why programs
// cannot be run.
func (r *Runner) Inspect(ctx context.Context) (fnloop.Environment, error) {
	h, err := r.enter(ctx)
	if err != nil {
		return fnloop.Environment{}, err
	}
	defer r.host.Leave()
	limits := r.bounds().Limits(fnloop.Limits{})
	var languages language.Set
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { // while the packages are listed
		var err error
		if languages, err = r.languages(ctx, h); err != nil && ctx.Err() == nil {
			h.warn("other languages than Python are not known", err) // the next call that needs them looks again
		}
	})
	h.inspecting.Lock()
	defer h.inspecting.Unlock()
	if !h.inspected {
		res, err := r.run(ctx, h, fnloop.Program{Source: supervisor.Packages}, nil, limits, time.Now())
		if err != nil {
			return fnloop.Environment{}, err
		}
		if res.ExitCode == nil || *res.ExitCode != 0 {
			return fnloop.Environment{}, fmt.Errorf("bubblewrap: Python cannot list its packages: %.500s", res.Text())
		}
		h.packages, h.inspected = supervisor.Lines(res.Stdout), true
	}
	looking.Wait()
	return fnloop.Environment{
		Python:    h.protection.PythonVersion,
		Languages: languages.Languages(h.protection.PythonVersion),
		Packages:  h.packages,
		Writable:  fmt.Sprintf("/tmp (%d MiB)", r.bounds().Spec(limits.Memory).Tmp>>20),
		Limits:    limits,
	}, nil
}

// Close ends the interpreters that are open, waits for the calls that are
// running, and frees what the runner holds: sandboxes that are ready, and the
// process that programs are forked from, which also end with this process. Calls
// after it fail.
func (r *Runner) Close() error {
	r.sessions.Close()
	h, ok := r.host.Close()
	if !ok {
		return nil
	}
	if h.warm != nil {
		h.warm.Close()
		h.sessions.Close()
	}
	return h.close()
}

// A spec is what a sandbox is made to.
type spec struct {
	limit.Spec
	layer   string // the folder with its packages, or empty
	preload string // the modules that it has imported, as supervisor.Preload has them
	session bool   // it is for an interpreter that stays
	install *install
}

// spec is that of a sandbox for the runner's programs.
func (r *Runner) spec(h *host, memory int64) spec {
	return spec{Spec: r.bounds().Spec(memory), layer: h.layer, preload: h.preload}
}

// rlimits are set for the program inside. They are what there is of limits
// where there is no cgroup, and bound a single process everywhere.
func (h *host) rlimits(s spec) supervisor.Rlimits {
	l := s.Rlimits()
	if h.cgroups == nil {
		l["data"] = s.Memory
		l["nproc"] = int64(s.PIDs)
	}
	if s.install != nil {
		l = pylayer.Rlimits(l)
	}
	return l
}
