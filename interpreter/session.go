package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
)

// DefaultGrace is the [Config.Grace] of a zero Config.
const DefaultGrace = 3 * time.Second

// A Config is what a session is opened with. Its zero value is good for use.
type Config struct {
	// Language is that of the cells, as [fnloop.Program.Language] names it. Empty
	// means Python. What this package says of Python holds for others as far as
	// they have it.
	Language string
	// Limits.Time is the time limit of cells that bring none, Limits.Memory what
	// the session may use with all its processes and files, in bytes. Zero means
	// the runner's default.
	Limits fnloop.Limits
	// Grace is how long a cell that is stopped may take to react before the
	// interpreter is killed. Zero means DefaultGrace, negative none.
	Grace time.Duration
	// NoCopy makes no copy of the interpreter ahead of each cell. It saves
	// memory: what a cell changes is there twice while it runs. A cell that has
	// to be killed then costs the session its variables.
	NoCopy bool
	// Packages are requirements as pip has them, installed before the session
	// opens: the session has these beside those of the runner.
	Packages []string
	// Preload are modules that the interpreter has imported before the first cell,
	// and after each restart, beside those of the runner.
	Preload []string
}

// check reports what is wrong with c, as a [*fnloop.ProgramError].
func (c Config) check() error {
	return (fnloop.Program{Limits: c.Limits}).Check()
}

// A Session is an interpreter that stays alive between cells. Its methods can be
// called at any time from any goroutine. Cells run one at a time, in the order
// of the calls of Run; files can be read and written while one runs.
//
// When the sandbox of a session goes away the next call opens another, and the
// next Execution tells of the loss.
type Session struct {
	opener  Opener
	config  Config
	cells   queue
	opening queue

	mu     sync.Mutex
	driver Driver // nil before it is opened and when it is gone
	info   Info
	closed bool
	life   context.Context // ended by Close
	end    context.CancelFunc

	// Guarded by mu too. The session knows of losses, whatever its driver forgets.
	count   int
	names   []string
	pending *Loss // to be told with the next Execution
	bare    bool  // nothing can be lost: no cell has run since the last loss was told

	// onOpen, if not nil, puts files into each sandbox but the first. Empty says
	// that it has yet to do so.
	onOpen func(context.Context, *Session) error
	empty  bool
}

// Open starts an interpreter on r. Its error has [ErrUnsupported] in it when r
// cannot keep one, and is that of the runner when no sandbox can be made. The
// session must be closed, and before r is.
func Open(ctx context.Context, r fnloop.Runner, c Config) (*Session, error) {
	s, err := newSession(r, c)
	if err != nil {
		return nil, err
	}
	if _, err := s.open(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// newSession gives one that is not open.
func newSession(r fnloop.Runner, c Config) (*Session, error) {
	o, ok := fnloop.RunnerAs[Opener](r)
	if !ok {
		return nil, fmt.Errorf("interpreter: %w: %T has no OpenInterpreter", ErrUnsupported, r)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	s := &Session{opener: o, config: c, bare: true}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Info says what the interpreter is.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Names are the top-level names that the session had after its last cell, as
// [Execution.Names] are.
func (s *Session) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// current is the driver, or nil where it has to be opened.
func (s *Session) current() (Driver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("interpreter: %w", ErrClosed)
	}
	return s.driver, nil
}

// open gives the driver, opened anew where it is gone.
func (s *Session) open(ctx context.Context) (Driver, error) {
	if d, err := s.current(); d != nil || err != nil {
		return d, err
	}
	ctx, stop := s.live(ctx)
	defer stop()
	if err := s.opening.enter(ctx); err != nil {
		return nil, s.why(err)
	}
	defer s.opening.leave()
	if d, err := s.current(); d != nil || err != nil {
		return d, err
	}
	d, err := s.opener.OpenInterpreter(ctx, s.config)
	if err != nil {
		return nil, s.why(err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errors.Join(fmt.Errorf("interpreter: %w", ErrClosed), d.Close())
	}
	defer s.mu.Unlock()
	s.driver, s.info, s.empty = d, d.Info(), s.onOpen != nil
	return d, nil
}

// refill has files put into a sandbox that was opened anew, and reports whether
// there are any then. It must be the caller's turn.
func (s *Session) refill(ctx context.Context) (restored bool, err error) {
	s.mu.Lock()
	empty := s.empty
	s.mu.Unlock()
	if !empty {
		return false, nil
	}
	if restored, err = filled(ctx, s, s.onOpen); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = false
	if s.pending != nil {
		s.pending.FilesKept = restored
	}
	return restored, nil
}

// filled calls onOpen and reports whether there are files then.
func filled(ctx context.Context, s *Session, onOpen func(context.Context, *Session) error) (bool, error) {
	err := onOpen(ctx, s)
	if err != nil {
		return false, fmt.Errorf("interpreter: the files of the conversation: %w", err)
	}
	files, err := s.List(ctx)
	if err != nil {
		return false, fmt.Errorf("interpreter: the files of the conversation: %w", err)
	}
	return len(files) > 0, nil
}

// live is ctx, ended by Close too.
func (s *Session) live(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// why is err, or that the session was closed if that is the reason.
func (s *Session) why(err error) error {
	if _, closed := s.current(); closed != nil {
		return closed
	}
	return err
}

// gone drops a driver whose sandbox is not there any more.
func (s *Session) gone(d Driver) {
	s.mu.Lock()
	if s.driver != d {
		s.mu.Unlock()
		return
	}
	s.driver = nil
	if !s.bare {
		s.lose(&Loss{Cause: CauseSandbox})
	}
	s.mu.Unlock()
	_ = d.Close() // it is gone, so there is nothing to do about an error
}

// lose notes a loss that is yet to be told. The mutex is held.
func (s *Session) lose(l *Loss) {
	if p := s.pending; p != nil { // two before anybody was told
		l.Names = p.Names
		l.FilesKept = l.FilesKept && p.FilesKept
	}
	for _, n := range s.names {
		if !slices.Contains(l.Names, n) {
			l.Names = append(l.Names, n)
		}
	}
	s.names, s.pending, s.bare = nil, l, !l.FilesKept
}

// told has the next execution tell of a loss that came before the session.
func (s *Session) told(l *Loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = l
}

// know notes the names that there are, as somebody else has told.
func (s *Session) know(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = names
}

// Run runs a cell and says what it did. Cells that were asked for before run
// before it. The error is nil for a cell that fails, is stopped by its limits or
// costs the session its variables: that is for the Execution to say.
//
// When ctx ends the cell is stopped as by [Session.Interrupt], and the error is
// one for which errors.Is(err, ctx.Err()) holds; the Execution beside it has
// what the cell did until then. A cell that was not started has the error too,
// and an empty Status. A [*fnloop.ProgramError] says what is wrong with c.
func (s *Session) Run(ctx context.Context, c Cell) (Execution, error) {
	if err := c.check(); err != nil {
		return Execution{}, err
	}
	if err := s.enter(ctx); err != nil {
		return Execution{}, err
	}
	defer s.cells.leave()
	begin := time.Now()
	before, _ := s.current()
	d, err := s.open(ctx)
	if err != nil {
		return Execution{}, s.notStarted(err)
	}
	if c.Limits.Time == 0 {
		c.Limits.Time = s.config.Limits.Time
	}
	for again := true; ; again = false {
		startup := time.Since(begin)
		if d == before {
			startup = 0
		}
		out := newCollector(c)
		var e Execution
		_, err := s.refill(ctx)
		if err == nil {
			e, err = d.Run(ctx, c, out)
		}
		out.close()
		if errors.Is(err, ErrGone) && again {
			// It was not started, so that this runs nothing twice.
			s.gone(d)
			if d, err = s.open(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return Execution{}, s.notStarted(err)
		}
		e.Startup = startup
		out.into(&e)
		s.account(&e)
		if e.Loss != nil && !e.Loss.FilesKept && s.onOpen != nil {
			if _, err := s.open(ctx); err == nil { // else the next cell tries again
				e.Loss.FilesKept, _ = s.refill(ctx)
			}
		}
		if e.Status == StatusInterrupted && ctx.Err() != nil {
			err = ctx.Err()
			if cause := context.Cause(ctx); cause != err {
				err = fmt.Errorf("%w: %w", err, cause)
			}
		}
		return e, err
	}
}

// enter waits until it is the caller's turn to use the interpreter.
func (s *Session) enter(ctx context.Context) error {
	ctx, stop := s.live(ctx)
	defer stop()
	if _, err := s.current(); err != nil {
		return s.notStarted(err)
	}
	if err := s.cells.enter(ctx); err != nil {
		return s.notStarted(s.why(err))
	}
	return nil
}

func (s *Session) notStarted(err error) error {
	return fmt.Errorf("the cell was not started: %w", err)
}

// account keeps what e says of the session, and adds to e what the session
// knows.
func (s *Session) account(e *Execution) {
	var dead Driver
	s.mu.Lock()
	s.count++
	e.Count = s.count
	if l := e.Loss; l != nil {
		s.lose(l)
		if !l.FilesKept { // the sandbox went with them
			dead, s.driver = s.driver, nil
		}
	} else {
		s.names, s.bare = e.Names, false
	}
	e.Names = slices.Clone(e.Names)
	e.Loss, s.pending = s.pending, nil
	s.mu.Unlock()
	if dead != nil {
		_ = dead.Close()
	}
}

// Interrupt stops the cell that runs, and does not wait for its end. It reports
// whether a cell ran. Cells that wait for their turn are not stopped.
func (s *Session) Interrupt(ctx context.Context) (bool, error) {
	d, err := s.current()
	if d == nil || err != nil {
		return false, err
	}
	ran, err := d.Interrupt(ctx)
	if errors.Is(err, ErrGone) {
		return false, nil // the next call finds out
	}
	return ran, err
}

// Restart replaces the interpreter by a fresh one, after the cells that were
// asked for before. Files are kept, and the next Execution tells of the loss of
// the variables.
func (s *Session) Restart(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.cells.leave()
	d, err := s.open(ctx)
	if err != nil {
		return err
	}
	err = d.Restart(ctx)
	if errors.Is(err, ErrGone) {
		s.gone(d)
		_, err = s.open(ctx)
		return err
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.bare || len(s.names) > 0 {
		s.lose(&Loss{Cause: CauseRestart, FilesKept: true})
	}
	return nil
}

// Close ends the interpreter with everything that it started, and returns when
// nothing is left. Cells that run or wait end with an error. Closing twice does
// nothing.
func (s *Session) Close() error { return s.finish(Driver.Close) }

// finish ends the use of the session, and of its driver by end.
func (s *Session) finish(end func(Driver) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.end()
	d := s.driver
	s.driver = nil
	s.mu.Unlock()
	var err error
	if d != nil {
		err = end(d)
	}
	_ = s.cells.enter(context.Background()) // the last cell has returned
	s.cells.leave()
	return err
}

// Put writes a file of the work folder, and makes the folders above it. An older
// file of that name is replaced, at the end and at once: a reader that fails
// leaves it as it was.
func (s *Session) Put(ctx context.Context, name string, r io.Reader) error {
	in := &counter{r: r}
	_, err := use(ctx, s, "put", name, func(d Driver) (struct{}, error) {
		err := d.Put(ctx, name, in)
		if errors.Is(err, ErrGone) && in.n > 0 {
			s.gone(d)
			err = fmt.Errorf("%v while the file was written", ErrGone)
		}
		return struct{}{}, err
	})
	return err
}

// A counter is a reader that knows whether it was read from.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Get reads a file of the work folder. The reader must be closed. For a file
// that is not there the error is one for which errors.Is(err, fs.ErrNotExist)
// holds.
func (s *Session) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return use(ctx, s, "get", name, func(d Driver) (io.ReadCloser, error) { return d.Get(ctx, name) })
}

// List gives the files of the work folder and of the folders below it, by name,
// without hidden ones and links, and at most [MaxFiles].
func (s *Session) List(ctx context.Context) ([]File, error) {
	return use(ctx, s, "list", ".", func(d Driver) ([]File, error) { return d.List(ctx) })
}

// Remove removes a file of the work folder, or a folder with all that is in it.
func (s *Session) Remove(ctx context.Context, name string) error {
	_, err := use(ctx, s, "remove", name, func(d Driver) (struct{}, error) { return struct{}{}, d.Remove(ctx, name) })
	return err
}

// use has a driver do something with a file.
func use[T any](ctx context.Context, s *Session, op, name string, do func(Driver) (T, error)) (v T, err error) {
	if err := CheckName(name); err != nil && op != "list" {
		return v, err
	}
	for again := true; ; again = false {
		d, err := s.open(ctx)
		if err != nil {
			return v, fmt.Errorf("%s %s: %w", op, name, err)
		}
		v, err = do(d)
		if errors.Is(err, ErrGone) && again {
			s.gone(d)
			continue
		}
		return v, s.why(err)
	}
}
