package docker

import (
	"context"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// OpenInterpreter implements [interpreter.Opener]: the interpreter has a
// container as a program has, one of those that are kept ready where there is
// one. Its error is an [*Error] where no container can be made.
func (r *Runner) OpenInterpreter(ctx context.Context, c interpreter.Config) (_ interpreter.Driver, err error) {
	if err := (fnloop.Program{Language: c.Language}).Check(); err != nil {
		return nil, err
	}
	bounds := r.bounds()
	limits := bounds.Limits(c.Limits)
	if err := bounds.CheckProgram(fnloop.Program{}, limits, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := r.sessionSpec(ctx, e, c, limits.Memory)
	if err == nil {
		err = bounds.CheckProgram(fnloop.Program{}, limits, e.memory)
	}
	var s *sandbox
	if err == nil {
		s, _, err = e.pool.Get(ctx, spec)
	}
	if err != nil {
		r.engine.Leave()
		return nil, err
	}
	session := s.conn.NewSession(supervisor.SessionConfig{
		Limits: limits, Grace: c.Grace, Copy: !c.NoCopy, Rlimits: spec.Rlimits(), Compiled: &e.session,
		Remove: func() {
			s.Remove()
			r.engine.Leave()
		},
	})
	if !r.sessions.Add(session) {
		return nil, &Error{Err: ErrClosed}
	}
	return session, nil
}
