package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// Run implements [fnloop.Runner]. Beside the errors named there it returns an
// [*Error] where no container can be made.
func (r *Runner) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	bounds := r.bounds()
	limits := bounds.Limits(p.Limits)
	if err := bounds.CheckProgram(p, limits, 0); err != nil {
		return fnloop.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return fnloop.Result{}, err
	}
	release, err := r.slots.Take(ctx, r.MaxPrograms)
	if err != nil {
		return fnloop.Result{}, err
	}
	defer release()
	begin := time.Now()
	e, err := r.enter(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = fnloop.Unavailable(err)
		}
		return fnloop.Result{}, err
	}
	defer r.engine.Leave()
	if err := bounds.CheckProgram(p, limits, e.memory); err != nil {
		return fnloop.Result{}, err
	}
	var command *supervisor.Command
	if !language.Python(p) {
		languages, err := r.languages(ctx, e)
		if err != nil {
			return fnloop.Result{}, err
		}
		if command, err = languages.Command(p, limits.Memory); err != nil {
			return fnloop.Result{}, err
		}
	}
	return r.run(ctx, e, p, command, limits, begin)
}

// languages are those that the image has.
func (r *Runner) languages(ctx context.Context, e *engine) (language.Set, error) {
	return e.languages.Find(ctx, func(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
		limits := fnloop.Limits{Time: findTime, Memory: r.bounds().Limits(fnloop.Limits{}).Memory}
		return r.run(ctx, e, p, nil, limits, time.Now())
	})
}

// findTime is the limit of the program that looks for languages.
const findTime = time.Minute

// enter counts a run in and gives the engine. The caller must call
// r.engine.Leave when it has no error.
func (r *Runner) enter(ctx context.Context) (*engine, error) {
	e, err := r.engine.Enter(ctx, func(ctx context.Context) (*engine, error) {
		e, err := r.connect(ctx)
		if err != nil {
			return nil, err
		}
		err = r.probe(ctx, e)
		if err == nil {
			err = r.prepare(ctx, e)
		}
		if err != nil {
			r.closing.Go(func() { // nobody waits for that but Close
				if err := e.close(); err != nil {
					e.logger.warn("an engine that cannot be used was not left clean", slog.Any("err", err))
				}
			})
			return nil, err
		}
		return e, nil
	})
	if err == lazy.ErrClosed {
		return nil, &Error{Err: ErrClosed}
	}
	return e, err
}

// checkNames is the end of a program that looks whether it can find itself.
const checkNames = `
import socket
try:
    socket.create_server(("localhost", 0)).close()
    socket.gethostbyname(socket.gethostname())
except OSError as err:
    print("no names:", err)
`

// probe runs a program that looks at its sandbox, with all that programs are
// run with.
func (r *Runner) probe(ctx context.Context, e *engine) error {
	limits := fnloop.Limits{Time: cmp.Or(r.Startup, DefaultStartup), Memory: r.bounds().Limits(fnloop.Limits{}).Memory}
	res, err := r.run(ctx, e, fnloop.Program{Source: supervisor.Check + checkNames}, nil, limits, time.Now())
	wrong := err // with our files
	if names, ok := strings.CutPrefix(res.Stdout, "ok\nno names: "); err == nil && ok {
		wrong = errors.New(strings.TrimSpace(names))
	}
	if (err == nil || errors.Is(err, ErrNoPython)) && wrong != nil && e.etcDir(ctx) != "" {
		e.giveUpEtc(wrong)
		e.pool.Prune()
		res, err = r.run(ctx, e, fnloop.Program{Source: supervisor.Check}, nil, limits, time.Now())
	}
	switch {
	case err != nil:
		return err
	case res.End != fnloop.EndExit || *res.ExitCode != 0:
		return &Error{Host: e.place.host, Err: fmt.Errorf("a first program ended by %q and printed %q", res.End, res.Stderr)}
	case !strings.HasPrefix(res.Stdout, "ok\n"):
		return &Error{Host: e.place.host, Err: fmt.Errorf("%w: a program has %s", ErrNotIsolated, strings.TrimSpace(res.Stdout))}
	}
	return nil
}

func (r *Runner) run(ctx context.Context, e *engine, p fnloop.Program, command *supervisor.Command, limits fnloop.Limits, begin time.Time) (fnloop.Result, error) {
	spec := r.spec(e, limits.Memory)
	for {
		c, ready, err := e.pool.Get(ctx, spec)
		if err != nil {
			return fnloop.Result{}, err
		}
		startup := time.Since(begin)
		c.attend(ctx)
		res, err := c.conn.Run(ctx, p, command, limits, spec.Rlimits())
		res.Startup = startup
		gone := c.gone()
		e.pool.Put(c)
		switch {
		case err == nil || ctx.Err() != nil:
			return res, err
		case gone != nil:
			return res, gone
		case ready && errors.Is(err, supervisor.ErrNotStarted):
			// It went away while it waited. Should the program have begun all the
			// same, nothing is left of what it did.
			continue
		}
		return res, &Error{Host: e.place.host, Err: c.explain(err)}
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

// Environment implements [fnloop.Describer] with what [Runner.Inspect] finds out.
// It is the zero Environment where programs cannot be run.
func (r *Runner) Environment() fnloop.Environment {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.Startup, DefaultStartup))
	defer cancel()
	env, err := r.Inspect(ctx)
	if err != nil {
		return fnloop.Environment{}
	}
	return env
}

// pythonVersion is a line with the version of an interpreter. Packages can have
// other lines printed before it.
var pythonVersion = regexp.MustCompile(`(?m)^\d+\.\d+\.\d+[\w+]{0,20}$`)

// Inspect implements [fnloop.Inspector]. The first call runs a program that looks
// for Python and its packages, and one that looks for languages. Its error says
// why programs cannot be run.
func (r *Runner) Inspect(ctx context.Context) (fnloop.Environment, error) {
	e, err := r.enter(ctx)
	if err != nil {
		return fnloop.Environment{}, err
	}
	defer r.engine.Leave()
	limits := r.bounds().Limits(fnloop.Limits{})
	var languages language.Set
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { // while the packages are listed
		var err error
		if languages, err = r.languages(ctx, e); err != nil && ctx.Err() == nil {
			e.logger.warn("other languages than Python are not known", slog.Any("err", err)) // the next call that needs them looks again
		}
	})
	e.inspecting.Lock()
	defer e.inspecting.Unlock()
	if e.python == "" {
		source := "import platform\nprint(platform.python_version())\n" + supervisor.Packages
		res, err := r.run(ctx, e, fnloop.Program{Source: source}, nil, limits, time.Now())
		if err != nil {
			return fnloop.Environment{}, err
		}
		version := pythonVersion.FindStringIndex(res.Stdout)
		if res.ExitCode == nil || *res.ExitCode != 0 || version == nil {
			return fnloop.Environment{}, fmt.Errorf("docker: Python cannot list its packages: %.500s", res.Text())
		}
		e.python, e.packages = res.Stdout[version[0]:version[1]], supervisor.Lines(res.Stdout[version[1]:])
	}
	looking.Wait()
	return fnloop.Environment{
		Python:    e.python,
		Languages: languages.Languages(e.python),
		Packages:  e.packages,
		Writable:  fmt.Sprintf("/tmp (%d MiB)", r.bounds().Spec(limits.Memory).Tmp>>20),
		Limits:    limits,
	}, nil
}

// Close ends the interpreters that are open, waits for the calls that are
// running, and removes every container that the runner made. Calls after it fail. Its error says what could not be removed
// because the engine does not answer; the next runner of the same user removes
// it then.
func (r *Runner) Close() error {
	r.sessions.Close()
	e, ok := r.engine.Close()
	r.closing.Wait()
	if !ok {
		return nil
	}
	return e.close()
}
