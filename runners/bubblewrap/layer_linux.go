package bubblewrap

import (
	"context"
	"slices"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// prepare sees to what sandboxes have beside the interpreter's own.
func (r *Runner) prepare(ctx context.Context, h *host) (err error) {
	if h.preload, err = supervisor.PreloadList(r.Preload...); err != nil || h.preload == "" {
		return err
	}
	// A module that cannot be imported shows here, once.
	s, err := h.start(ctx, r.spec(h, r.bounds().Limits(fnloop.Limits{}).Memory))
	if err == nil {
		err = s.remove()
	}
	return err
}

// sessionSpec is what the sandbox of an interpreter is made to.
func (r *Runner) sessionSpec(ctx context.Context, h *host, c interpreter.Config, memory int64) (s spec, err error) {
	s = r.spec(h, memory)
	s.preload, err = supervisor.PreloadList(slices.Concat(r.Preload, c.Preload)...)
	return s, err
}
