package docker

import (
	"context"
	"slices"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// A spec is what a container is made to.
type spec struct {
	limit.Spec
	layer   string // the image with its packages, or empty for the runner's own
	preload string // the modules that it has imported, as supervisor.Preload has them
}

// spec is that of a container for the runner's programs.
func (r *Runner) spec(e *engine, memory int64) spec {
	return spec{Spec: r.bounds().Spec(memory), layer: e.layer, preload: e.preload}
}

// env is the environment of a container's first process, with the search path of
// its image.
func (s spec) env(path string) []string {
	if s.layer != "" {
		path = supervisor.LayerPath(path)
	}
	env := supervisor.Env(path)
	if s.preload != "" {
		env = append(env, supervisor.Preload+"="+s.preload)
	}
	return env
}

// prepare sees to what containers have beside their image.
func (r *Runner) prepare(ctx context.Context, e *engine) (err error) {
	if e.preload, err = supervisor.PreloadList(r.Preload...); err != nil || e.preload == "" {
		return err
	}
	// A module that cannot be imported shows here, once.
	c, _, err := e.pool.Get(ctx, r.spec(e, r.bounds().Limits(fnloop.Limits{}).Memory))
	if err == nil {
		e.pool.Put(c)
	}
	return err
}

// sessionSpec is what the container of an interpreter is made to.
func (r *Runner) sessionSpec(ctx context.Context, e *engine, c interpreter.Config, memory int64) (s spec, err error) {
	s = r.spec(e, memory)
	s.preload, err = supervisor.PreloadList(slices.Concat(r.Preload, c.Preload)...)
	return s, err
}
