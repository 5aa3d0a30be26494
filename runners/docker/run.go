package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/pool"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// Run implements [fnloop.Runner]. Beside the errors named there it returns an
// [*Error] where no container can be made.
func (r *Runner) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	limits := r.limits(p.Limits)
	if err := p.Check(); err != nil {
		return fnloop.Result{}, err
	}
	if limits.Time < 0 {
		return fnloop.Result{}, &fnloop.ProgramError{Field: "limits.time", Reason: fmt.Sprintf("%v is negative", limits.Time)}
	}
	if limits.Memory < MinMemory {
		return fnloop.Result{}, &fnloop.ProgramError{Field: "limits.memory",
			Reason: fmt.Sprintf("%d bytes are less than the %d that Python needs", limits.Memory, int64(MinMemory))}
	}
	if room := r.tmp(limits.Memory) / 2; int64(len(p.Source)) > room {
		return fnloop.Result{}, &fnloop.ProgramError{Field: "source",
			Reason: fmt.Sprintf("%d bytes are more than half of /tmp, %d", len(p.Source), room)}
	}
	if err := ctx.Err(); err != nil {
		return fnloop.Result{}, err
	}
	begin := time.Now()
	e, err := r.enter(ctx)
	if err != nil {
		return fnloop.Result{}, err
	}
	defer r.engine.Leave()
	if e.memory > 0 && limits.Memory > e.memory {
		return fnloop.Result{}, &fnloop.ProgramError{Field: "limits.memory",
			Reason: fmt.Sprintf("%d bytes are more than the %d that the engine's host has", limits.Memory, e.memory)}
	}
	return r.run(ctx, e, p, limits, begin)
}

// enter counts a run in and gives the engine. The caller must call
// r.engine.Leave when it has no error.
func (r *Runner) enter(ctx context.Context) (*engine, error) {
	e, err := r.engine.Enter(ctx, func(ctx context.Context) (*engine, error) {
		e, err := r.connect(ctx)
		if err != nil {
			return nil, err
		}
		if err := r.probe(ctx, e); err != nil {
			e.close()
			return nil, err
		}
		return e, nil
	})
	if err == lazy.ErrClosed {
		return nil, &Error{Err: ErrClosed}
	}
	return e, err
}

// probe runs a program that looks at its sandbox, with all that programs are
// run with.
func (r *Runner) probe(ctx context.Context, e *engine) error {
	limits := fnloop.Limits{Time: or(r.Startup, DefaultStartup), Memory: r.limits(fnloop.Limits{}).Memory}
	res, err := r.run(ctx, e, fnloop.Program{Source: supervisor.Check}, limits, time.Now())
	switch {
	case err != nil:
		return err
	case res.End != fnloop.EndExit || *res.ExitCode != 0:
		return &Error{Host: e.host, Err: fmt.Errorf("a first program ended by %q and printed %q", res.End, res.Stderr)}
	case res.Stdout != "ok\n":
		return &Error{Host: e.host, Err: fmt.Errorf("%w: a program has %s", ErrNotIsolated, strings.TrimSpace(res.Stdout))}
	}
	return nil
}

func (r *Runner) run(ctx context.Context, e *engine, p fnloop.Program, limits fnloop.Limits, begin time.Time) (fnloop.Result, error) {
	spec := spec{memory: limits.Memory, tmp: r.tmp(limits.Memory)}
	for {
		c, ready, err := e.pool.Get(ctx, spec)
		if err != nil {
			return fnloop.Result{}, err
		}
		startup := time.Since(begin)
		res, err := c.conn.Run(ctx, p, limits, rlimits(spec))
		res.Startup = startup
		e.pool.Put(c)
		if err == nil || ctx.Err() != nil {
			return res, err
		}
		if ready && errors.Is(err, supervisor.ErrNotStarted) {
			// It went away while it waited. Should the program have begun all the
			// same, nothing is left of what it did.
			continue
		}
		return res, &Error{Host: e.host, Err: c.explain(err)}
	}
}

// rlimits are set for the program by the supervisor, which itself may need
// more than they allow.
func rlimits(s spec) supervisor.Rlimits {
	return supervisor.Rlimits{
		"core":   0,
		"fsize":  s.tmp,
		"nofile": 256,
		"stack":  8 << 20,
	}
}

// Probe reports whether programs can be run, as an [*Error] or nil, by running
// one where that has not been done yet.
func (r *Runner) Probe(ctx context.Context) error {
	if _, err := r.enter(ctx); err != nil {
		return err
	}
	r.engine.Leave()
	return nil
}

// Lacks names what programs of this runner cannot be held to with this engine.
// [github.com/fnloop/fnloop/runners/runnertest] skips its cases for it.
func (r *Runner) Lacks() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), or(r.Startup, DefaultStartup))
	defer cancel()
	lacks := make(map[string]string)
	e, err := r.enter(ctx)
	if err != nil {
		return lacks
	}
	defer r.engine.Leave()
	for _, what := range e.unlimited {
		lacks[what] = "the engine cannot enforce it"
	}
	if r.Runtime != "" {
		lacks["oom"] = "not every runtime tells"
	}
	return lacks
}

// Environment implements [fnloop.Describer]. It is the zero Environment where
// programs cannot be run.
func (r *Runner) Environment() fnloop.Environment {
	ctx, cancel := context.WithTimeout(context.Background(), or(r.Startup, DefaultStartup))
	defer cancel()
	e, err := r.enter(ctx)
	if err != nil {
		return fnloop.Environment{}
	}
	defer r.engine.Leave()
	limits := r.limits(fnloop.Limits{})
	e.describe.Do(func() {
		source := "import platform\nprint(platform.python_version())\n" + supervisor.Packages
		if res, err := r.run(ctx, e, fnloop.Program{Source: source}, limits, time.Now()); err == nil {
			if found := strings.Fields(res.Stdout); len(found) > 0 {
				e.python, e.packages = found[0], found[1:]
			}
		}
	})
	return fnloop.Environment{
		Python:   e.python,
		Packages: e.packages,
		Writable: fmt.Sprintf("/tmp (%d MiB)", r.tmp(limits.Memory)>>20),
		Limits:   limits,
	}
}

// Close waits for the calls that are running and removes every container that
// the runner made. Calls after it fail.
func (r *Runner) Close() error {
	e, ok := r.engine.Close()
	if !ok {
		return nil
	}
	return e.close()
}

// warm has the containers, also where none is kept ready.
type warm = pool.Pool[spec, *sandbox]

// An engine is what a Runner is connected to.
type engine struct {
	api       api
	host      string
	image     string   // its digest or identifier: a tag may come to mean another
	memory    int64    // of the engine's host, in bytes; zero where it is not known
	unlimited []string // what cannot be enforced
	podman    bool     // and not Docker
	seccomp   string   // our policy, or where it is
	lease     *lease
	pool      *warm

	describe sync.Once
	python   string
	packages []string
}

func (e *engine) close() error {
	e.pool.Close()
	return errors.Join(e.api.Close(), e.lease.release())
}
