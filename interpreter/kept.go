package interpreter

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/fnloop/fnloop"
)

// MaxRef is how long the Ref of a [Keeper] is at most, in bytes. It has letters,
// digits and signs of ASCII, without quotes and backslashes.
const MaxRef = 1 << 10

// plain is what a Ref looks like.
var plain = regexp.MustCompile(`^[!#-\[\]-~]+$`)

// A Keeper is a [Driver] whose interpreter can stay when this process ends.
type Keeper interface {
	// Ref is what the interpreter is found again by, see [Resumer]. It is empty
	// where the interpreter ends with Close, and may be another after each call.
	Ref() string
	// Release is called in place of Close. It lets go of the interpreter, which
	// stays.
	Release() error
}

// A Resumer is an [Opener] whose interpreters can be found again, by this process
// or by another.
type Resumer interface {
	// ResumeInterpreter gives the interpreter of a Ref, or a new one that begins
	// with what a snapshot has. Its error has [ErrGone] in it where that is not
	// there any more, and is another where this cannot be told.
	ResumeInterpreter(ctx context.Context, c Config, ref string) (Driver, error)
	// EndInterpreter ends the interpreter of a Ref, or removes a snapshot. It is no
	// error if it is not there any more.
	EndInterpreter(ctx context.Context, ref string) error
}

// A Pauser is a [Driver] that can be paused: it costs less until the next call,
// which wakes it.
type Pauser interface {
	Pause(ctx context.Context) error
}

// A Forker is a [Driver] of which copies can be made while it lives, with all of
// its memory and files.
type Forker interface {
	// Fork gives n interpreters that are what this one is now, or an error and
	// none.
	Fork(ctx context.Context, n int) ([]Driver, error)
	// Snapshot keeps what the interpreter is now, and gives a Ref by which it can
	// be resumed any number of times, each time as another interpreter.
	Snapshot(ctx context.Context) (ref string, err error)
}

// Resume gives the session that [Session.Ref] names, with the variables that it
// has, or one that begins as a snapshot of [Session.Snapshot]. Its error has
// [ErrUnsupported] in it when r has no such thing, and [ErrGone] when the session
// is not there any more. After any other error it may be there still. Two
// sessions of one Ref at once are one interpreter, which knows nothing of them.
func Resume(ctx context.Context, r fnloop.Runner, c Config, ref string) (*Session, error) {
	resumer, ok := fnloop.RunnerAs[Resumer](r)
	if !ok {
		return nil, fmt.Errorf("interpreter: %w: %T has no ResumeInterpreter", ErrUnsupported, r)
	}
	s, err := newSession(r, c)
	if err != nil {
		return nil, err
	}
	d, err := resumer.ResumeInterpreter(ctx, s.config, ref)
	if err != nil {
		s.end()
		return nil, err
	}
	s.driver, s.info, s.bare = d, d.Info(), false
	return s, nil
}

// End ends the session of a [Session.Ref], or removes a snapshot, and is no error
// if it is not there any more. A session that is open is ended by
// [Session.Close].
func End(ctx context.Context, r fnloop.Runner, ref string) error {
	resumer, ok := fnloop.RunnerAs[Resumer](r)
	if !ok {
		return fmt.Errorf("interpreter: %w: %T has no EndInterpreter", ErrUnsupported, r)
	}
	return resumer.EndInterpreter(ctx, ref)
}

// Ref is what [Resume] finds the session again by, in this process or another. It
// is empty where the session cannot be kept. It can change with each cell. Who
// has it and the runner's key can use the session.
func (s *Session) Ref() string {
	d, _ := s.current()
	k, ok := d.(Keeper)
	if !ok {
		return ""
	}
	if ref := k.Ref(); len(ref) <= MaxRef && plain.MatchString(ref) {
		return ref
	}
	return ""
}

// Release ends the use of the session here, and leaves the interpreter to be
// resumed. A session without a Ref is closed.
func (s *Session) Release() error {
	if s.Ref() == "" {
		return s.Close()
	}
	return s.finish(func(d Driver) error { return d.(Keeper).Release() })
}

// Pause pauses the interpreter after the cells that were asked for before. The
// next call wakes it. Its error has [ErrUnsupported] in it where the runner
// cannot.
func (s *Session) Pause(ctx context.Context) error {
	_, err := whole(ctx, s, "be paused", func(p Pauser) (struct{}, error) { return struct{}{}, p.Pause(ctx) })
	return err
}

// Snapshot keeps what the session is now, after the cells that were asked for
// before, and gives a reference for [Resume]: each call of that begins another
// session there. It costs until [End] removes it. Its error has [ErrUnsupported]
// in it where the runner cannot.
func (s *Session) Snapshot(ctx context.Context) (ref string, err error) {
	return whole(ctx, s, "be kept as a snapshot", func(f Forker) (string, error) { return f.Snapshot(ctx) })
}

// Fork makes n sessions that have the variables, files and processes that this
// one has after the cells that were asked for before. Each must be closed. There
// are n or, with an error, none. The error has [ErrUnsupported] in it where the
// runner cannot.
func (s *Session) Fork(ctx context.Context, n int) ([]*Session, error) {
	drivers, err := whole(ctx, s, "be copied", func(f Forker) ([]Driver, error) { return f.Fork(ctx, n) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var copies []*Session
	for _, d := range drivers {
		c := &Session{opener: s.opener, config: s.config, driver: d, info: d.Info(), count: s.count, names: slices.Clone(s.names), bare: s.bare, onOpen: s.onOpen}
		if s.pending != nil {
			pending := *s.pending
			c.pending = &pending
		}
		c.life, c.end = context.WithCancel(context.Background())
		copies = append(copies, c)
	}
	return copies, nil
}

// whole has a driver do something between two cells.
func whole[T, V any](ctx context.Context, s *Session, what string, do func(T) (V, error)) (v V, err error) {
	if err := s.enter(ctx); err != nil {
		return v, err
	}
	defer s.cells.leave()
	d, err := s.open(ctx)
	if err != nil {
		return v, err
	}
	t, ok := d.(T)
	if !ok {
		return v, fmt.Errorf("interpreter: %w: it cannot %s", ErrUnsupported, what)
	}
	return do(t)
}
