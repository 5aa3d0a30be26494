package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/fake"
	"github.com/fnloop/fnloop/runners/runtimecloud"
)

// auto is the name under which askpy chooses among candidates.
const auto = "auto"

// runners make a runner that has run a program already, or say why there cannot
// be one.
var runners = map[string]func(context.Context, options, environment, *terminal.Progress) (fnloop.Runner, error){
	"bubblewrap": newBubblewrap,
	"docker":     newDocker,
	"fake":       newFake,
	"runtime":    newRuntime,
}

// candidates are what auto tries, the best first.
//
// Whoever has set RUNTIME_API_KEY wants programs to run there: in microVMs,
// whose kernel is not this machine's. Of what runs here, bubblewrap starts in
// tens of milliseconds and needs neither a daemon nor privileges; a container
// of Docker's takes some ten times as long, shares the kernel as well, and its
// daemon is most often root's. The fake is no candidate: a model that believes
// its programs ran must not be fooled unasked.
var candidates = []string{"runtime", "bubblewrap", "docker"}

func runnerNames() []string {
	return append([]string{auto}, slices.Sorted(maps.Keys(runners))...)
}

// openRunner makes the runner that the options ask for.
func openRunner(ctx context.Context, opts options, env environment, p *terminal.Progress) (fnloop.Runner, error) {
	p.Start("looking at the sandbox")
	defer p.Idle()
	if opts.runner != auto {
		r, err := runners[opts.runner](ctx, opts, env, p)
		return r, plain(err)
	}
	var reasons []string
	chosen := candidates
	switch { // by what is for one of them alone
	case opts.image != "":
		chosen = []string{"docker"}
	case opts.python != "":
		chosen = []string{"bubblewrap"}
	case len(opts.packages) > 0:
		chosen = []string{"bubblewrap", "docker"}
	}
	for i, name := range chosen {
		r, err := runners[name](ctx, opts, env, p)
		err = plain(err)
		if err == nil {
			p.Detail("auto: took " + name + ": a first program ran there")
			for _, other := range chosen[i+1:] {
				p.Detail(fmt.Sprintf("auto: did not try %s: %s comes before it", other, name))
			}
			return r, nil
		}
		if ctx.Err() != nil || len(chosen) == 1 {
			return nil, err
		}
		if _, ok := errors.AsType[*fnloop.PackageError](err); ok {
			return nil, err // no other runner makes it right
		}
		told := p.Detail
		if name == "runtime" && env.runtimeKey != "" { // somebody counts on it
			told = p.Note
		}
		told(fmt.Sprintf("auto: did not take %s: %v", name, err))
		reasons = append(reasons, "\n    "+name+": "+strings.TrimPrefix(err.Error(), name+": "))
	}
	return nil, errors.New("programs cannot run here, since nothing isolates them:" + strings.Join(reasons, "") + "\naskpy doctor looks at each of them")
}

// runnerName is the name of a runner, as the flag has it.
func runnerName(r fnloop.Runner) string {
	switch r.(type) {
	case *bubblewrap.Runner:
		return "bubblewrap"
	case *docker.Runner:
		return "docker"
	case *runtimecloud.Runner:
		return "runtime"
	}
	return "fake"
}

func newBubblewrap(ctx context.Context, opts options, _ environment, p *terminal.Progress) (fnloop.Runner, error) {
	r := &bubblewrap.Runner{Python: opts.python, Packages: opts.packages, Installing: installing(p)}
	protection, err := r.Protection(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	p.Detail(fmt.Sprintf("bubblewrap %s with Python %s (%s)", protection.Version, protection.PythonVersion, protection.Python))
	for _, s := range protection.Missing {
		p.Detail("bubblewrap: " + s)
	}
	return r, nil
}

// newDocker pulls the image where it is missing, and says so: a download may take
// minutes.
func newDocker(ctx context.Context, opts options, _ environment, p *terminal.Progress) (fnloop.Runner, error) {
	var once sync.Once
	r := &docker.Runner{Image: opts.image, Packages: opts.packages, Installing: installing(p), Progress: func(pull docker.Progress) {
		once.Do(func() {
			p.Note("docker: pulling the image " + pull.Image)
			p.Start("pulling " + pull.Image)
		})
	}}
	if err := r.Prepare(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func newRuntime(ctx context.Context, opts options, env environment, p *terminal.Progress) (fnloop.Runner, error) {
	if env.runtimeKey == "" {
		return nil, usagef("RUNTIME_API_KEY is not set; set it to your key of Runtime Cloud for --runner runtime")
	}
	r := &runtimecloud.Runner{Key: runtimecloud.Secret(env.runtimeKey), URL: env.runtimeURL, Packages: opts.packages}
	if opts.verbose {
		r.Charged = func(_ context.Context, c runtimecloud.Charge) { p.Detail(charge(c)) }
	}
	// A limit that is too long for a sandbox shows here, and not at the model's
	// first program.
	limits := fnloop.Limits{Time: max(opts.timeout, runtimecloud.DefaultTime)}
	res, err := r.Run(ctx, fnloop.Program{Source: "pass", Limits: limits})
	if err == nil && (res.ExitCode == nil || *res.ExitCode != 0) {
		err = fmt.Errorf("runtime: a program that does nothing failed: %s", strings.TrimSpace(res.Stderr))
	}
	if err != nil {
		err = errors.Join(err, r.Close())
		if e, ok := errors.AsType[*fnloop.ProgramError](err); ok {
			return nil, usagef("--timeout: %s", e.Reason)
		}
		if _, ok := errors.AsType[*runtimecloud.ConfigError](err); ok {
			return nil, usagef("--runner runtime: %v", err)
		}
		return nil, err
	}
	return r, nil
}

// charge says what a sandbox cost.
func charge(c runtimecloud.Charge) string {
	about := ""
	if c.Estimate {
		about = "at most "
	}
	return fmt.Sprintf("runtime: sandbox %s cost %s$%.6f", c.Sandbox, about, float64(c.Micros)/1e6)
}

func newFake(_ context.Context, _ options, _ environment, p *terminal.Progress) (fnloop.Runner, error) {
	p.Note("runner fake: programs are not run")
	res := fake.Exit(0, "")
	res.Stderr = "this program was not run: the runner is a fake\n"
	return &fake.Runner{Results: []fnloop.Result{res}}, nil
}
