package interpreter

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
)

// Defaults of a Sessions' fields.
const (
	DefaultIdle = 20 * time.Minute
	DefaultMax  = 100
)

// Sessions are the interpreters of many conversations, one for each that needs
// it:
//
//	sessions := &interpreter.Sessions{Runner: &bubblewrap.Runner{}}
//	defer sessions.Close()
//	loop.Tools = []fnloop.Tool{sessions.Tool()}
//
// The session of a conversation is opened at its first call, found again through
// [fnloop.Answer.ToolState], and closed when it was idle for long. What is then
// gone, the model reads with its next cell. Set the fields before first use and
// leave them; from then on Sessions are safe for any number of goroutines, and
// must not be copied.
type Sessions struct {
	// Runner keeps the interpreters. Required; it must be an [Opener] or wrap one.
	Runner fnloop.Runner
	// Config is that of each session.
	Config Config
	// Name is the tool's. Empty means "python".
	Name string
	// Idle is how long a session is kept that nobody uses. Zero means
	// DefaultIdle, negative for ever. While a cell runs or a file is passed, a
	// session is not idle.
	Idle time.Duration
	// Max is how many sessions there are at once. Zero means DefaultMax, negative
	// any number. At the bound the one that has been idle for longest is closed; a
	// busy one never is, so a call may have to wait for one.
	Max int
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
	// that OnCell kept. Its error is that of the opening.
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
	session *Session
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
	if a == nil {
		return nil, nil, fmt.Errorf("interpreter: the Answer is nil; a new conversation begins with new(fnloop.Answer)")
	}
	st, err := readState(a.ToolState[s.name()])
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
	var lost *Loss
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, fmt.Errorf("interpreter: %w", ErrClosed)
		}
		if sl := s.live[st.Ref]; sl != nil && sl.session != nil {
			s.use(sl)
			s.mu.Unlock()
			return sl, nil
		}
		if st.Ref != "" && lost == nil {
			lost = &Loss{Cause: CauseHost, Names: st.Names}
			if cause, ok := s.ended[st.Ref]; ok {
				lost.Cause = cause
			}
		}
		if s.max() < 0 || s.count < s.max() {
			break
		}
		if victim := s.longestIdle(); victim != nil {
			s.remove(victim, CauseEvicted)
			s.mu.Unlock()
			s.shut(victim)
			continue
		}
		if s.free == nil {
			s.free = make(chan struct{})
		}
		free := s.free
		s.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return nil, fmt.Errorf("interpreter: all %d sessions are busy: %w", s.max(), context.Cause(ctx))
		}
	}
	s.count++ // and the mutex is held
	s.mu.Unlock()
	session, restored, err := s.open(ctx)
	s.mu.Lock()
	if err == nil && s.closed {
		s.mu.Unlock()
		_ = session.Close() // nobody has used it
		s.mu.Lock()
		err = fmt.Errorf("interpreter: %w", ErrClosed)
	}
	defer s.mu.Unlock()
	if err != nil {
		s.count--
		s.wake()
		return nil, err
	}
	if lost != nil && st.Cells > 0 {
		lost.FilesKept = restored
		session.told(lost)
	}
	sl := &slot{ref: rand.Text(), session: session, users: 1}
	if s.live == nil {
		s.live = make(map[string]*slot)
	}
	s.live[sl.ref] = sl
	*st = state{Ref: sl.ref, Images: st.Images}
	return sl, nil
}

// open opens a session and lets OnOpen put files there. It reports whether there
// are any.
func (s *Sessions) open(ctx context.Context) (session *Session, restored bool, err error) {
	session, err = Open(ctx, s.Runner, s.Config)
	if err != nil || s.OnOpen == nil {
		return session, false, err
	}
	var files []File
	if err = s.OnOpen(ctx, session); err == nil {
		files, err = session.List(ctx)
	}
	if err != nil {
		_ = session.Close() // nobody has used it
		return nil, false, fmt.Errorf("interpreter: the files of the conversation: %w", err)
	}
	return session, len(files) > 0, nil
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

// shut closes a session that was removed.
func (s *Sessions) shut(sl *slot) {
	_ = sl.session.Close() // its runner tries again
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	s.wake()
}

// Len is how many sessions are open.
func (s *Sessions) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Close ends all sessions, the busy ones too, and returns when nothing is left of
// them. Calls that come later fail. Closing twice does nothing.
func (s *Sessions) Close() error {
	s.mu.Lock()
	s.closed = true
	var all []*slot
	for _, sl := range s.live {
		all = append(all, sl)
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
