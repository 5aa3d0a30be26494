package docker

import (
	"cmp"
	"context"
)

// Protection says what bounds programs in an engine, beside their time and what
// a container is made with.
type Protection struct {
	// Cgroup is the version of cgroups on the engine's host, or zero where that
	// is not known.
	Cgroup int
	// Memory and PIDs mean that the engine enforces these limits for all
	// processes of a program together.
	Memory, PIDs bool
	// Sockets means that what waits in the sockets of a program is bounded too.
	// Version 2 of cgroups counts it as memory. Version 1 counts it apart, and
	// the engine has no option for that: it is bounded, to the memory limit once
	// more, where this process is root on the engine's host.
	Sockets bool
}

// Protection says what bounds programs in this engine. Its error is that of
// [Runner.Probe].
func (r *Runner) Protection(ctx context.Context) (Protection, error) {
	e, err := r.enter(ctx)
	if err != nil {
		return Protection{}, err
	}
	defer r.engine.Leave()
	p := Protection{Memory: true, PIDs: true, Sockets: e.cgroups.bounded()}
	switch e.version {
	case "1":
		p.Cgroup = 1
	case "2":
		p.Cgroup = 2
	}
	for _, what := range e.unlimited {
		switch what {
		case "memory":
			p.Memory = false
		case "pids":
			p.PIDs = false
		}
	}
	return p, nil
}

// Lacks names what programs of this runner cannot be held to with this engine.
// [github.com/fnloop/fnloop/runners/runnertest] skips its cases for it.
func (r *Runner) Lacks() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.Startup, DefaultStartup))
	defer cancel()
	lacks := make(map[string]string)
	p, err := r.Protection(ctx)
	if err != nil {
		return lacks
	}
	const no = "the engine cannot enforce it"
	if !p.Memory {
		lacks["memory"], lacks["oom"] = no, no
	}
	if !p.PIDs {
		lacks["pids"] = no
	}
	if !p.Sockets {
		lacks["sockets"] = "version 1 of cgroups counts it apart, and this process is not root on the engine's host"
	}
	lacks["services"] = "an image may not list them"
	if r.Runtime != "" {
		lacks["oom"] = "not every runtime tells"
	}
	return lacks
}
