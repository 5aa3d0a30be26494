package fake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// OpenInterpreter implements [interpreter.Opener]: cells are answered by Cells,
// and files are kept in memory.
func (r *Runner) OpenInterpreter(ctx context.Context, c interpreter.Config) (interpreter.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := (fnloop.Program{Language: c.Language}).CheckFor(r.Env.Languages); err != nil {
		return nil, err
	}
	return r.newInterpreter(r.limits(c.Limits), nil), nil
}

func (r *Runner) newInterpreter(limits fnloop.Limits, files map[string]file) *Interpreter {
	i := &Interpreter{runner: r, limits: limits, files: maps.Clone(files)}
	if i.files == nil {
		i.files = make(map[string]file)
	}
	i.life, i.kill = context.WithCancel(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	i.ref = fmt.Sprintf("fake/%d", len(r.opened))
	r.opened = append(r.opened, i)
	return i
}

// ResumeInterpreter implements [interpreter.Resumer], for the Refs of Keep and for
// snapshots.
func (r *Runner) ResumeInterpreter(ctx context.Context, _ interpreter.Config, ref string) (interpreter.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, i := range r.Interpreters() {
		switch {
		case ref == i.ref && i.gone() == nil:
			return i, nil
		case ref == i.ref+"/snapshot" && i.hasSnapshot():
			return i.copy(), nil
		}
	}
	return nil, fmt.Errorf("%w: %s", interpreter.ErrGone, ref)
}

// EndInterpreter implements [interpreter.Resumer].
func (r *Runner) EndInterpreter(_ context.Context, ref string) error {
	for _, i := range r.Interpreters() {
		switch ref {
		case i.ref:
			return i.Close()
		case i.ref + "/snapshot":
			i.keep(false)
		}
	}
	return nil
}

// Interpreters are those that were opened so far, in order.
func (r *Runner) Interpreters() []*Interpreter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.opened)
}

// An Interpreter is one that [Runner.OpenInterpreter] opened.
type Interpreter struct {
	runner *Runner
	ref    string
	limits fnloop.Limits
	life   context.Context // ends with the sandbox
	kill   context.CancelFunc

	mu      sync.Mutex
	files   map[string]file
	changes []interpreter.FileChange
	stop    context.CancelCauseFunc // of the cell that runs, or nil
	closed  bool
	pauses  int
	kept    bool // as a snapshot
}

type file struct {
	data     []byte
	modified time.Time
}

// The reasons for which a cell is stopped.
var (
	errInterrupt = errors.New("the cell was interrupted")
	errTimeout   = errors.New("the cell's time is over")
)

// Kill takes the sandbox away, as the end of its machine would.
func (i *Interpreter) Kill() { i.kill() }

// Closed reports whether Close was called.
func (i *Interpreter) Closed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// Pauses is how often the interpreter was paused.
func (i *Interpreter) Pauses() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pauses
}

// Ref implements [interpreter.Keeper].
func (i *Interpreter) Ref() string {
	if !i.runner.Keep {
		return ""
	}
	return i.ref
}

// Release implements [interpreter.Keeper].
func (i *Interpreter) Release() error { return nil }

// Pause implements [interpreter.Pauser].
func (i *Interpreter) Pause(context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pauses++
	return i.gone()
}

// Fork implements [interpreter.Forker].
func (i *Interpreter) Fork(_ context.Context, n int) (copies []interpreter.Driver, err error) {
	if err := i.gone(); err != nil {
		return nil, err
	}
	for range n {
		copies = append(copies, i.copy())
	}
	return copies, nil
}

// Snapshot implements [interpreter.Forker]. What it keeps is what the interpreter
// has when it is resumed.
func (i *Interpreter) Snapshot(context.Context) (string, error) {
	if err := i.gone(); err != nil {
		return "", err
	}
	i.keep(true)
	return i.ref + "/snapshot", nil
}

func (i *Interpreter) keep(kept bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept = kept
}

func (i *Interpreter) hasSnapshot() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.kept
}

func (i *Interpreter) copy() *Interpreter {
	i.mu.Lock()
	files := maps.Clone(i.files)
	i.mu.Unlock()
	c := i.runner.newInterpreter(i.limits, files)
	if i.runner.Copied != nil {
		i.runner.Copied(i, c)
	}
	return c
}

// Write makes a file as a cell would, for the next Execution to tell of.
func (i *Interpreter) Write(name, data string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change := interpreter.FileNew
	if _, there := i.files[name]; there {
		change = interpreter.FileChanged
	}
	i.files[name] = file{[]byte(data), time.Now()}
	i.changes = append(i.changes, interpreter.FileChange{Name: name, Size: int64(len(data)), Change: change})
}

// gone is the error of what was asked of a sandbox that is not there.
func (i *Interpreter) gone() error {
	if i.life.Err() != nil {
		return interpreter.ErrGone
	}
	return nil
}

// Info implements [interpreter.Driver].
func (i *Interpreter) Info() interpreter.Info {
	return interpreter.Info{Python: cmp.Or(i.runner.Env.Python, "3.12.4"), Dir: "/tmp/workspace", Limits: i.limits}
}

// Run implements [interpreter.Driver].
func (i *Interpreter) Run(ctx context.Context, c interpreter.Cell, events interpreter.Events) (interpreter.Execution, error) {
	if err := i.gone(); err != nil {
		return interpreter.Execution{}, err
	}
	limits := i.limits
	if c.Limits.Time != 0 {
		limits.Time = c.Limits.Time
	}
	inner, cancel := context.WithTimeoutCause(ctx, limits.Time, errTimeout)
	defer cancel()
	inner, stop := context.WithCancelCause(inner)
	defer stop(nil)
	defer context.AfterFunc(i.life, func() { stop(interpreter.ErrGone) })()
	i.mu.Lock()
	i.stop = stop
	i.mu.Unlock()
	begin := time.Now()
	var e interpreter.Execution
	var err error
	if i.runner.Cells != nil {
		if e, err = i.runner.Cells(inner, i, c); err != nil && inner.Err() == nil {
			return interpreter.Execution{}, err
		}
	}
	i.mu.Lock()
	i.stop = nil
	e.Files = append(e.Files, i.changes...)
	i.changes = nil
	i.mu.Unlock()
	switch cause := context.Cause(inner); {
	case inner.Err() == nil:
		e.Status = cmp.Or(e.Status, interpreter.StatusOK)
	case errors.Is(cause, errTimeout):
		e.Status = interpreter.StatusTimeout
	case errors.Is(cause, interpreter.ErrGone):
		e.Status, e.Cause = interpreter.StatusLost, interpreter.CauseSandbox
		e.Loss = &interpreter.Loss{Cause: interpreter.CauseSandbox}
	default:
		e.Status = interpreter.StatusInterrupted
	}
	if e.Background != "" {
		events.Background([]byte(e.Background))
	}
	if e.Stdout != "" {
		events.Stdout([]byte(e.Stdout))
	}
	if e.Stderr != "" {
		events.Stderr([]byte(e.Stderr))
	}
	for _, d := range e.Displays {
		events.Display(d)
	}
	e.Limits, e.Duration = limits, time.Since(begin)
	return e, nil
}

// Interrupt implements [interpreter.Driver].
func (i *Interpreter) Interrupt(context.Context) (bool, error) {
	if err := i.gone(); err != nil {
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop == nil {
		return false, nil
	}
	i.stop(errInterrupt)
	return true, nil
}

// Restart implements [interpreter.Driver].
func (i *Interpreter) Restart(context.Context) error { return i.gone() }

// Put implements [interpreter.Driver].
func (i *Interpreter) Put(ctx context.Context, name string, r io.Reader) error {
	if err := cmp.Or(i.gone(), ctx.Err()); err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.files[name] = file{data, time.Now()}
	return nil
}

// Get implements [interpreter.Driver].
func (i *Interpreter) Get(_ context.Context, name string) (io.ReadCloser, error) {
	if err := i.gone(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	f, ok := i.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "get", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(bytes.NewReader(f.data)), nil
}

// List implements [interpreter.Driver].
func (i *Interpreter) List(context.Context) ([]interpreter.File, error) {
	if err := i.gone(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []interpreter.File
	for _, name := range slices.Sorted(maps.Keys(i.files)) {
		f := i.files[name]
		list = append(list, interpreter.File{Name: name, Size: int64(len(f.data)), Modified: f.modified})
	}
	return list, nil
}

// Remove implements [interpreter.Driver].
func (i *Interpreter) Remove(_ context.Context, name string) error {
	if err := i.gone(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	before := len(i.files)
	maps.DeleteFunc(i.files, func(n string, _ file) bool { return n == name || strings.HasPrefix(n, name+"/") })
	if len(i.files) == before {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

// Close implements [interpreter.Driver].
func (i *Interpreter) Close() error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.kill()
	return nil
}
