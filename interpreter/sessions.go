package interpreter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
)

// Defaults of a Sessions' fields.
const (
	DefaultIdle = 20 * time.Minute
	DefaultMax  = 100
)

// MaxHost is how long a [Sessions.Host] is at most, in bytes.
const MaxHost = 253

// Sessions are the interpreters of many conversations, one for each that needs
// it:
//
//	sessions := &interpreter.Sessions{Runner: &bubblewrap.Runner{}}
//	defer sessions.Close()
//	loop.Tools = []fnloop.Tool{sessions.Tool()}
//
// The session of a conversation is opened at its first call, found again through
// [fnloop.Answer.ToolState], and closed when it was idle for long. What is then
// gone, the model reads with its next cell. Where the runner keeps a session by
// itself ([Session.Ref]), it is let go instead, and found again by whoever
// continues the Answer, in this process or another; [Sessions.End] ends it. Set the fields before first use and
// leave them; from then on Sessions are safe for any number of goroutines, and
// must not be copied.
type Sessions struct {
	// Runner keeps the interpreters. Required; it must be an [Opener] or wrap one.
	Runner fnloop.Runner
	// Config is that of each session.
	Config Config
	// Name is the tool's. Empty means that of the Config's Language, "python".
	Name string
	// Idle is how long a session is kept that nobody uses. Zero means
	// DefaultIdle, negative for ever. While a cell runs or a file is passed, a
	// session is not idle.
	Idle time.Duration
	// Max is how many sessions there are at once. Zero means DefaultMax, negative
	// any number. At the bound the one that has been idle for longest is closed; a
	// busy one never is, so a call may have to wait for one.
	Max int
	// Host names this process among all that the conversations may come to, for
	// [Sessions.HostOf]. It is part of stored Answers: a name that a router knows, and
	// no secret. At most MaxHost bytes of ASCII without spaces, quotes and
	// backslashes; any other is the error of each call. Empty means none.
	Host string
	// NoImages keeps images from the model, for models and servers that cannot
	// take them. It reads how many there are all the same.
	NoImages bool
	// Upload, if not nil, stores an image where the model can be shown it from,
	// and returns that place, such as the ID of an uploaded file. Otherwise an
	// image is part of the call's output, and so of stored Answers: see
	// [MaxImageBytes].
	Upload func(ctx context.Context, mime string, data []byte) (fnloop.Content, error)
	// OnOpen, if not nil, is called with each session before anything runs in it,
	// with the context of what it was opened for, so that the files of the
	// conversation can be put there: those that a user has uploaded, and those
	// that OnCell kept. It is called again when the sandbox of a session is lost and
	// another one takes its place. It must not run cells. Its error is that of the
	// opening.
	OnOpen func(ctx context.Context, s *Session) error
	// OnCell, if not nil, is called with each execution before the model reads
	// of it, so that figures and files can be kept: s has the files. It is called
	// within the call of the tool, whose context it gets. Its error is the host's
	// trouble: it ends the run, as one of [fnloop.Abort] does.
	OnCell func(ctx context.Context, s *Session, e Execution) error

	mu     sync.Mutex
	live   map[string]*slot // by reference
	count  int              // of sessions that are open, opening or closing
	ended  map[string]Cause // why sessions of the past are gone, as far as it is kept
	free   chan struct{}    // closed when a session may have become idle
	closed bool
}

// maxEnded is how many sessions of the past are remembered.
const maxEnded = 10_000

// A slot is a session with what its manager knows of it.
type slot struct {
	ref     string
	session *Session      // nil while it is looked for
	found   chan struct{} // closed when that is over
	users   int
	idle    *time.Timer // nil while there are users
	since   time.Time   // when it became idle

	turn  queue    // guards what follows
	cells int      // that were run
	names []string // after the last of them
}

func (s *Sessions) max() int {
	if s.Max == 0 {
		return DefaultMax
	}
	return s.Max
}

// Session gives the session of the conversation that an Answer is the state of,
// for files that a user uploads. If there is none it is opened, and a note of it
// is put into the Answer's ToolState: store the Answer then. A new conversation
// begins with an Answer of its own:
//
//	answer := new(fnloop.Answer)
//	session, release, err := sessions.Session(ctx, answer)
//	...
//	answer, err = loop.Continue(ctx, answer, "What is in data.csv?")
//
// The session is busy until release is called, which must be done, once. Do not
// close it.
func (s *Sessions) Session(ctx context.Context, a *fnloop.Answer) (session *Session, release func(), err error) {
	st, err := s.stateOf(a)
	if err != nil {
		return nil, nil, err
	}
	slot, err := s.acquire(ctx, &st)
	if err != nil {
		return nil, nil, err
	}
	raw, err := st.json()
	if err != nil {
		s.release(slot)
		return nil, nil, err
	}
	if a.ToolState == nil {
		a.ToolState = make(map[string]jsonValue)
	}
	a.ToolState[s.name()] = raw
	return slot.session, sync.OnceFunc(func() { s.release(slot) }), nil
}

// acquire gives the session that st names, or a new one that it names then, with
// what the conversation has lost by that. It must be released.
func (s *Sessions) acquire(ctx context.Context, st *state) (*slot, error) {
	if s.Host != "" && (len(s.Host) > MaxHost || !plain.MatchString(s.Host)) {
		return nil, fmt.Errorf("interpreter: Sessions.Host is %.40q; it has at most %d bytes of ASCII, without spaces, quotes and backslashes", s.Host, MaxHost)
	}
	sl, err := s.reserve(ctx, st.Ref)
	if err != nil || sl.session != nil {
		return sl, err
	}
	// There is room for one, and nobody else looks for it meanwhile.
	lost := s.lost(st)
	if _, can := fnloop.RunnerAs[Resumer](s.Runner); can && st.Kept != "" {
		session, err := Resume(ctx, s.Runner, s.Config, st.Kept)
		switch {
		case err == nil:
			session.know(st.Names)
			session.onOpen = s.OnOpen
			sl.cells, sl.names = st.Cells, st.Names
			if err := s.fill(sl, session); err != nil {
				return nil, err
			}
			st.Kept, st.Host = session.Ref(), ""
			return sl, nil
		case !errors.Is(err, ErrGone):
			s.drop(sl)
			return nil, err
		}
		lost.Cause = CauseSandbox
	}
	session, restored, err := s.open(ctx)
	if err != nil {
		s.drop(sl)
		return nil, err
	}
	if lost != nil && st.Cells > 0 {
		lost.FilesKept = restored
		session.told(lost)
	}
	s.rename(sl, rand.Text())
	if err := s.fill(sl, session); err != nil {
		return nil, err
	}
	*st = state{Ref: sl.ref, Kept: session.Ref(), Images: st.Images}
	if st.Kept == "" {
		st.Host = s.Host
	}
	return sl, nil
}

// HostOf is the [Sessions.Host] of the process that has the session of the
// conversation that a is the state of, or had it last. It is for routers of a back
// end: a message that comes to another process can be passed on to this one, as
// long as it is there. It is empty where any process is as good: there is no
// session, or its runner keeps it.
func (s *Sessions) HostOf(a *fnloop.Answer) (string, error) {
	st, err := s.stateOf(a)
	return st.Host, err
}

// lost says why the session of st is not there, or is nil if there never was one.
func (s *Sessions) lost(st *state) *Loss {
	if st.Ref == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := &Loss{Cause: CauseHost, Names: st.Names}
	if cause, ok := s.ended[st.Ref]; ok {
		lost.Cause = cause
	} else if st.Host != s.Host && st.Host != "" && s.Host != "" {
		lost.Cause = CauseMoved
	}
	return lost
}

// reserve gives the session of ref where it is open, or else a slot for it, which
// is to be filled or dropped.
func (s *Sessions) reserve(ctx context.Context, ref string) (*slot, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, fmt.Errorf("interpreter: %w", ErrClosed)
		}
		var wait chan struct{}
		sl := s.live[ref]
		switch {
		case sl != nil && sl.session != nil:
			s.use(sl)
			s.mu.Unlock()
			return sl, nil
		case sl != nil:
			wait = sl.found
		case s.max() < 0 || s.count < s.max():
			sl = &slot{ref: ref, found: make(chan struct{}), users: 1}
			if ref == "" {
				sl.ref = rand.Text()
			}
			if s.live == nil {
				s.live = make(map[string]*slot)
			}
			s.live[sl.ref] = sl
			s.count++
			s.mu.Unlock()
			return sl, nil
		default:
			if victim := s.longestIdle(); victim != nil {
				s.remove(victim, CauseEvicted)
				s.mu.Unlock()
				s.shut(victim)
				continue
			}
			if s.free == nil {
				s.free = make(chan struct{})
			}
			wait = s.free
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			if sl != nil {
				return nil, fmt.Errorf("interpreter: the session is still looked for: %w", context.Cause(ctx))
			}
			return nil, fmt.Errorf("interpreter: all %d sessions are busy: %w", s.max(), context.Cause(ctx))
		}
	}
}

// fill gives a slot its session. If there was a Close meanwhile, that is its
// error, and the session is let go.
func (s *Sessions) fill(sl *slot, session *Session) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = session.Release() // nobody has used it
		s.drop(sl)
		return fmt.Errorf("interpreter: %w", ErrClosed)
	}
	defer s.mu.Unlock()
	sl.session = session
	close(sl.found)
	return nil
}

// rename gives a slot that is not filled another reference.
func (s *Sessions) rename(sl *slot, ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, sl.ref)
	sl.ref = ref
	s.live[ref] = sl
}

// drop forgets a slot that is not filled.
func (s *Sessions) drop(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, sl.ref)
	close(sl.found)
	s.count--
	s.wake()
}

// open opens a session and lets OnOpen put files there. It reports whether there
// are any.
func (s *Sessions) open(ctx context.Context) (session *Session, restored bool, err error) {
	session, err = Open(ctx, s.Runner, s.Config)
	if err != nil || s.OnOpen == nil {
		return session, false, err
	}
	if restored, err = filled(ctx, session, s.OnOpen); err != nil {
		_ = session.Close() // nobody has used it
		return nil, false, err
	}
	session.onOpen = s.OnOpen
	return session, restored, nil
}

// use keeps a session from being closed. The mutex is held.
func (s *Sessions) use(sl *slot) {
	sl.users++
	if sl.idle != nil {
		sl.idle.Stop()
		sl.idle = nil
	}
}

// release lets a session become idle.
func (s *Sessions) release(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.users--
	if sl.users > 0 || s.live[sl.ref] != sl {
		return
	}
	sl.since = time.Now()
	if s.Idle >= 0 {
		wait := s.Idle
		if wait == 0 {
			wait = DefaultIdle
		}
		sl.idle = time.AfterFunc(wait, func() { s.expire(sl) })
	}
	s.wake()
}

// wake lets those look again who wait for a session. The mutex is held.
func (s *Sessions) wake() {
	if s.free != nil {
		close(s.free)
		s.free = nil
	}
}

// expire closes a session that was idle for too long.
func (s *Sessions) expire(sl *slot) {
	s.mu.Lock()
	if sl.idle == nil || s.live[sl.ref] != sl { // it was used, or closed, since
		s.mu.Unlock()
		return
	}
	s.remove(sl, CauseIdle)
	s.mu.Unlock()
	s.shut(sl)
}

// longestIdle is nil if all are busy. The mutex is held.
func (s *Sessions) longestIdle() *slot {
	var first *slot
	for _, sl := range s.live {
		if sl.users == 0 && (first == nil || sl.since.Before(first.since)) {
			first = sl
		}
	}
	return first
}

// remove forgets a session, but for the cause. The mutex is held, and shut has to
// follow without it.
func (s *Sessions) remove(sl *slot, cause Cause) {
	delete(s.live, sl.ref)
	if sl.idle != nil {
		sl.idle.Stop()
		sl.idle = nil
	}
	if s.ended == nil {
		s.ended = make(map[string]Cause)
	}
	for ref := range s.ended {
		if len(s.ended) < maxEnded {
			break
		}
		delete(s.ended, ref)
	}
	s.ended[sl.ref] = cause
}

// shut closes a session that was removed, or lets it go where its runner keeps it.
func (s *Sessions) shut(sl *slot) {
	_ = sl.session.Release() // its runner tries again
	s.shrink()
}

// shrink counts one session less.
func (s *Sessions) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	s.wake()
}

// End ends the session of the conversation that a is the state of, for good, also
// where its runner keeps it and nobody has it open: when the conversation is
// deleted. The note of it is taken out of a. It is no error if there is none.
func (s *Sessions) End(ctx context.Context, a *fnloop.Answer) error {
	st, err := s.stateOf(a)
	if err != nil || st.Ref == "" {
		return err
	}
	s.mu.Lock()
	sl := s.live[st.Ref]
	open := sl != nil && sl.session != nil
	if open {
		s.remove(sl, CauseSandbox)
	}
	s.mu.Unlock()
	switch {
	case open:
		err = sl.session.Close()
		s.shrink()
	case st.Kept != "":
		err = End(ctx, s.Runner, st.Kept)
	}
	if err == nil {
		delete(a.ToolState, s.name())
	}
	return err
}

// Fork gives a copy of a with a session of its own, that has what the session of
// a has now, so that the conversation can be continued in two ways that do not
// meet. Do this before the first of them is continued, as a session does not go
// back. Without a session there is only the copy. Its error has [ErrUnsupported]
// in it where the runner cannot copy a session.
func (s *Sessions) Fork(ctx context.Context, a *fnloop.Answer) (*fnloop.Answer, error) {
	st, err := s.stateOf(a)
	if err != nil {
		return nil, err
	}
	b := *a
	b.ToolState = maps.Clone(a.ToolState)
	if st.Ref == "" {
		return &b, nil
	}
	sl, err := s.acquire(ctx, &st)
	if err != nil {
		return nil, err
	}
	defer s.release(sl)
	to, err := s.reserve(ctx, "")
	if err != nil {
		return nil, err
	}
	if err := sl.turn.enter(ctx); err != nil {
		s.drop(to)
		return nil, err
	}
	to.cells, to.names = sl.cells, sl.names
	copies, err := sl.session.Fork(ctx, 1)
	sl.turn.leave()
	if err != nil {
		s.drop(to)
		return nil, err
	}
	if err := s.fill(to, copies[0]); err != nil {
		return nil, err
	}
	s.release(to)
	st.Ref, st.Kept = to.ref, copies[0].Ref()
	if b.ToolState[s.name()], err = st.json(); err != nil {
		return nil, err
	}
	return &b, nil
}

// stateOf is what a holds of its session.
func (s *Sessions) stateOf(a *fnloop.Answer) (state, error) {
	if a == nil {
		return state{}, errNoAnswer
	}
	return readState(a.ToolState[s.name()])
}

var errNoAnswer = errors.New("interpreter: the Answer is nil; a new conversation begins with new(fnloop.Answer)")

// Len is how many sessions are open.
func (s *Sessions) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Close ends all sessions, the busy ones too, and returns when nothing is left of
// them; those that their runner keeps are let go. Calls that come later fail.
// Closing twice does nothing.
func (s *Sessions) Close() error {
	s.mu.Lock()
	s.closed = true
	var all []*slot
	for _, sl := range s.live {
		if sl.session != nil {
			all = append(all, sl)
		}
	}
	for _, sl := range all {
		s.remove(sl, CauseHost)
	}
	s.wake()
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, sl := range all {
		wg.Go(func() { s.shut(sl) })
	}
	wg.Wait()
	return nil
}
