package bubblewrap

import (
	"context"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// OpenInterpreter implements [interpreter.Opener]: the interpreter has a sandbox
// as a program has, one of those that are kept ready where there is one. Its
// error is an [*Error] where the host cannot isolate programs.
func (r *Runner) OpenInterpreter(ctx context.Context, c interpreter.Config) (_ interpreter.Driver, err error) {
	if err := (fnloop.Program{Language: c.Language}).Check(); err != nil {
		return nil, err
	}
	limits := r.bounds().Limits(c.Limits)
	if err := r.check(fnloop.Program{}, limits); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := r.sessionSpec(ctx, h, c, limits.Memory)
	var s *sandbox
	if err == nil {
		s, err = h.sandbox(ctx, spec)
	}
	if err != nil {
		r.host.Leave()
		return nil, err
	}
	session := s.conn.NewSession(supervisor.SessionConfig{
		Limits: limits, Grace: c.Grace, Copy: !c.NoCopy, Rlimits: h.rlimits(s.spec), Compiled: &h.session,
		Remove: func() {
			s.Remove()
			r.host.Leave()
		},
	})
	if !r.sessions.Add(session) {
		return nil, errClosed
	}
	return session, nil
}

// sandbox gives a sandbox that is alive.
func (h *host) sandbox(ctx context.Context, s spec) (*sandbox, error) {
	if h.sessions != nil {
		s, _, err := h.sessions.Get(ctx, s)
		return s, err
	}
	return h.start(ctx, s)
}
