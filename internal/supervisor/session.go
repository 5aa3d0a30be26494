package supervisor

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// The rest of the supervisor, for a session, and the worker that runs its cells.
// A leading newline tells source from what was compiled before.
var (
	//go:embed session.py
	sessionPython string
	//go:embed worker.py
	workerPython string
	//go:embed display.py
	displayPython string

	sessionSource = "\n" + compact(sessionPython)
	workerSource  = "\n" + compact(workerPython) + compact(displayPython)
)

// WorkDir is the work folder of a session.
const WorkDir = "/tmp/workspace"

// The frames of a session, beside those of a program. In:
const (
	kindSession   = 'B' // the rest of the supervisor, and then once more the worker
	kindCell      = 'X' // a cell: its number, its time limit in milliseconds, its source
	kindInterrupt = 'i' // a cell that has to stop, and why
	kindRestart   = 'T'
	kindFile      = 'f' // something to do with files; also the answer
)

// Out:
const (
	kindCompiled    = 'K' // a piece of what the Python above was compiled to
	kindBackground  = 'B' // what was printed between two cells
	kindDisplay     = 'V' // a display, or its last piece
	kindDisplayMore = 'v'
	kindClaim       = 'c' // what the worker says of the cell
	kindFileChange  = 'L'
	kindEnd         = 'Z' // the cell ended: what is known of it
	kindRestarted   = 't'
)

const (
	maxCompiled   = 1 << 20
	maxClaim      = 256 << 10
	maxDisplay    = 8 << 20
	maxBackground = 2 << 20
	// answerGrace is how long what is not a cell may take.
	answerGrace = 15 * time.Second
	// backstop is how much longer than its limit and grace a cell may take
	// before its sandbox is killed.
	backstop = 5 * time.Second
)

// Compiled keeps what an interpreter compiled, for the other sandboxes that have
// the same. Its zero value is ready and safe for concurrent use.
type Compiled struct {
	mu              sync.Mutex
	session, worker []byte
}

func (c *Compiled) get() (session, worker []byte, compiled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.worker == nil {
		return []byte(sessionSource), []byte(workerSource), false
	}
	return c.session, c.worker, true
}

func (c *Compiled) set(session, worker []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.worker = session, worker
}

// A SessionConfig is what a session is begun with. All of it must be set.
type SessionConfig struct {
	Limits   fnloop.Limits
	Grace    time.Duration // negative for none
	Copy     bool
	Rlimits  Rlimits
	Compiled *Compiled
	// Remove removes the sandbox after it was killed.
	Remove func()
}

// A Session is an interpreter that stays alive in one sandbox. It implements
// [interpreter.Driver].
type Session struct {
	conn   *Conn
	config SessionConfig
	gone   chan struct{} // the receiver has ended
	remove sync.Once

	write sync.Mutex // held while a frame is written

	mu        sync.Mutex
	of        *Sessions // or nil
	err       error
	number    uint32
	cell      *cell // the one that runs, or nil
	calls     uint32
	answers   map[uint32]chan answer
	restarted chan struct{}
	oom       int64 // how many processes were killed until the last cell

	background []byte // for the next cell
	compiled   [2][]byte
	started    bool // all that was compiled is there
}

// A cell is one that runs.
type cell struct {
	events  interpreter.Events
	claim   []byte
	display []byte
	drop    bool // the display is too large
	e       interpreter.Execution
	facts   map[string]string
	done    chan struct{}
}

// An answer is a part of one to a question about files.
type answer struct {
	kind byte // m: more follow, k: done, e: an error
	data []byte
}

// NewSession makes a session of a sandbox that waits for its program.
func (c *Conn) NewSession(config SessionConfig) *Session {
	s := &Session{conn: c, config: config, gone: make(chan struct{}), answers: make(map[uint32]chan answer)}
	text := fmt.Appendf(nil, "memory=%d\ngrace_ms=%d\noutput=%d\n", config.Limits.Memory, max(0, config.Grace.Milliseconds()), MaxPrinted)
	if !config.Copy {
		text = append(text, "copy=0\n"...)
	}
	for name, limit := range config.Rlimits {
		text = fmt.Appendf(text, "rlimit_%s=%d\n", name, limit)
	}
	session, worker, compiled := config.Compiled.get()
	s.started = compiled
	b := appendFrame(nil, kindConfig, string(text))
	b = appendFrame(b, kindSession, string(session))
	b = appendFrame(b, kindSession, string(worker))
	go s.receive()
	s.write.Lock() // nothing goes before it
	go func() {
		defer s.write.Unlock()
		_, _ = c.sandbox.Write(b) // what fails the receiver learns as well
	}()
	return s
}

// send writes whole frames.
func (s *Session) send(b []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	_, err := s.conn.sandbox.Write(b)
	return err
}

// receive takes the frames in until there are no more.
func (s *Session) receive() {
	defer close(s.gone)
	for {
		kind, payload, err := s.conn.frames.next()
		if err == nil {
			err = s.take(kind, payload)
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			s.conn.sandbox.Kill()
			return
		}
	}
}

// take takes one frame in. Its error ends the session.
func (s *Session) take(kind byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cell
	switch kind {
	case kindFailed:
		return errors.New(string(payload))
	case kindCompiled:
		return s.keep(payload)
	case kindRestarted:
		if s.restarted != nil {
			close(s.restarted)
			s.restarted = nil
		}
		return nil
	case kindFile:
		if len(payload) < 5 {
			return errors.New("supervisor: a short answer about a file")
		}
		call := binary.BigEndian.Uint32(payload)
		if to := s.answers[call]; to != nil {
			select {
			case to <- answer{payload[4], bytes.Clone(payload[5:])}:
			default:
				return errors.New("supervisor: too many answers about a file")
			}
		}
		return nil
	}
	if kind == kindBackground {
		if c != nil {
			c.events.Background(payload)
		} else if len(s.background)+len(payload) <= maxBackground {
			s.background = append(s.background, payload...)
		}
		return nil
	}
	if c == nil {
		return fmt.Errorf("supervisor: a frame of kind %q outside of a cell", kind)
	}
	switch kind {
	case kindStdout:
		c.events.Stdout(payload)
	case kindStderr:
		c.events.Stderr(payload)
	case kindDisplayMore, kindDisplay:
		c.show(payload, kind == kindDisplay)
	case kindClaim:
		if len(c.claim)+len(payload) <= maxClaim {
			c.claim = append(c.claim, payload...)
		}
	case kindFileChange:
		if len(payload) < 9 || len(c.e.Files) == interpreter.MaxChanges {
			return errors.New("supervisor: a bad change of a file")
		}
		c.e.Files = append(c.e.Files, interpreter.FileChange{
			Change: map[byte]string{'n': interpreter.FileNew, 'c': interpreter.FileChanged, 'r': interpreter.FileRemoved}[payload[0]],
			Size:   int64(binary.BigEndian.Uint64(payload[1:])),
			Name:   string(payload[9:]),
		})
	case kindEnd:
		c.facts = values(payload)
		if n, ok := number(c.facts, "cell"); !ok || n != int64(s.number) {
			return fmt.Errorf("supervisor: the end of a cell that does not run: %q", payload)
		}
		s.cell = nil
		close(c.done)
	default:
		return fmt.Errorf("supervisor: a frame of unknown kind %q", kind)
	}
	return nil
}

// keep takes in a piece of what was compiled. It comes before the worker is
// started, so that it is not the word of a cell.
func (s *Session) keep(payload []byte) error {
	if len(payload) == 0 || s.started || len(s.compiled[0])+len(s.compiled[1]) > maxCompiled {
		return errors.New("supervisor: compiled code out of order")
	}
	switch payload[0] {
	case 's':
		s.compiled[0] = append(s.compiled[0], payload[1:]...)
	case 'w':
		s.compiled[1] = append(s.compiled[1], payload[1:]...)
	default:
		s.started = true
		s.config.Compiled.set(s.compiled[0], s.compiled[1])
	}
	return nil
}

// show takes in a piece of a display: a line that says whether it is the cell's
// value, a line for each form with its type and size, an empty line, and the
// forms one after the other. It is the word of the code.
func (c *cell) show(piece []byte, last bool) {
	if len(c.display)+len(piece) > maxDisplay {
		c.drop, c.display = true, nil
	}
	if !c.drop {
		c.display = append(c.display, piece...)
	}
	if !last {
		return
	}
	b, dropped := c.display, c.drop
	c.display, c.drop = nil, false
	head, rest, ok := bytes.Cut(b, []byte("\n\n"))
	if dropped || !ok {
		c.e.Omitted++
		return
	}
	d := interpreter.Display{Data: make(map[string][]byte)}
	for i, line := range strings.Split(string(head), "\n") {
		if i == 0 {
			d.Main = line == "1"
			continue
		}
		name, size, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > len(rest) {
			break
		}
		d.Data[name], rest = rest[:n:n], rest[n:]
	}
	c.events.Display(d)
}

// Info implements [interpreter.Driver].
func (s *Session) Info() interpreter.Info {
	return interpreter.Info{Python: s.conn.Python, Dir: WorkDir, Limits: s.config.Limits}
}

// Run implements [interpreter.Driver].
func (s *Session) Run(ctx context.Context, in interpreter.Cell, events interpreter.Events) (interpreter.Execution, error) {
	limits := s.config.Limits
	if in.Limits.Time != 0 {
		limits.Time = in.Limits.Time
	}
	c := &cell{events: events, done: make(chan struct{})}
	s.mu.Lock()
	if isClosed(s.gone) {
		s.mu.Unlock()
		return interpreter.Execution{}, s.isGone()
	}
	s.number++
	n := s.number
	s.cell = c
	if len(s.background) > 0 {
		events.Background(s.background)
		s.background = nil
	}
	s.mu.Unlock()

	head := binary.BigEndian.AppendUint32(nil, n)
	head = binary.BigEndian.AppendUint64(head, uint64(max(1, limits.Time.Milliseconds())))
	begin := time.Now()
	if err := s.send(appendFrame(nil, kindCell, string(head)+in.Source)); err != nil {
		s.conn.sandbox.Kill()
		<-s.gone
		return interpreter.Execution{}, s.isGone()
	}
	limit := limits.Time + max(0, s.config.Grace) + backstop
	clock := time.NewTimer(limit)
	defer clock.Stop()
	stop := ctx.Done()
	late := false
wait:
	for {
		select {
		case <-c.done:
			break wait
		case <-s.gone:
			break wait
		case <-stop:
			stop = nil
			clock.Reset(min(limit-time.Since(begin), max(0, s.config.Grace)+backstop))
			_ = s.interrupt(n, "cancel")
		case <-clock.C:
			late = true
			s.conn.sandbox.Kill()
			clock.Reset(killGrace)
			select {
			case <-c.done:
			case <-s.gone:
			case <-clock.C:
			}
			break wait
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell = nil
	e := c.e
	e.Limits = limits
	if !isClosed(c.done) {
		// The sandbox went away under it.
		e.Duration = time.Since(begin)
		e.Status, e.Cause = interpreter.StatusLost, interpreter.CauseSandbox
		switch kills, known := s.conn.sandbox.OOMKills(); {
		case ctx.Err() != nil:
			e.Status, e.Cause = interpreter.StatusInterrupted, interpreter.CauseInterrupt
		case late:
			e.Status, e.Cause = interpreter.StatusTimeout, interpreter.CauseTimeout
		case known && kills > s.oom:
			e.Cause = interpreter.CauseMemory
		}
		e.Loss = &interpreter.Loss{Cause: e.Cause}
		if e.Cause == interpreter.CauseSandbox && s.err != nil && s.err != io.EOF {
			e.Loss.Detail = s.err.Error()
		}
		return e, nil
	}
	s.conclude(c, &e)
	return e, nil
}

// isGone is the error of what was asked of a sandbox that is not there.
func (s *Session) isGone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && s.err != io.EOF {
		return fmt.Errorf("%w: %w", interpreter.ErrGone, s.err)
	}
	return interpreter.ErrGone
}

// conclude makes of facts and claims how a cell ended. The mutex is held.
func (s *Session) conclude(c *cell, e *interpreter.Execution) {
	claims := claims(c.claim)
	us, _ := number(c.facts, "us")
	e.Duration = time.Duration(us) * time.Microsecond
	more, _ := number(c.facts, "more")
	processes, _ := number(c.facts, "processes")
	e.MoreFiles, e.Processes = int(more), int(processes)
	e.Threads, e.Tasks = count(claims['h']), count(claims['a'])
	e.Omitted += count(claims['o'])
	for name := range strings.SplitSeq(claims['g'], "\n") {
		if name != "" && len(e.Names) < maxNames {
			e.Names = append(e.Names, name)
		}
	}
	kills := s.kills(c.facts)

	if claims['s'] == "error" {
		e.Status = interpreter.StatusError
		e.Error = &interpreter.Error{Name: claims['n'], Value: claims['v'], Traceback: claims['t']}
	} else {
		e.Status = interpreter.StatusOK
	}
	status, died := number(c.facts, "status")
	if died {
		var name, detail string
		e.Cause, name, detail = ended(status, kills)
		e.Status = interpreter.StatusError
		e.Error = &interpreter.Error{Name: name, Value: "the interpreter ended under the cell: " + detail}
		if e.Cause == interpreter.CauseMemory {
			e.Error.Value = fmt.Sprintf("the session ran out of its %d MiB of memory", s.config.Limits.Memory>>20)
			detail = fmt.Sprintf("%d MiB", s.config.Limits.Memory>>20)
			kills--
		}
		if c.facts["why"] != "" {
			e.Error = nil
			e.Cause = map[string]interpreter.Cause{"timeout": interpreter.CauseTimeout, "output": interpreter.CauseOutput}[c.facts["why"]]
			if e.Cause == "" {
				e.Cause = interpreter.CauseInterrupt
			}
			detail = ""
		}
		_, e.Restored = c.facts["restored"]
		if !e.Restored {
			e.Loss = &interpreter.Loss{Cause: e.Cause, Detail: detail, FilesKept: true}
		}
	} else if before, ok := number(c.facts, "before"); ok {
		// It ended between two cells, and there was no copy.
		cause, _, detail := ended(before, kills)
		e.Loss = &interpreter.Loss{Cause: cause, Detail: detail, FilesKept: true}
	}
	switch c.facts["why"] {
	case "timeout":
		e.Status = interpreter.StatusTimeout
	case "cancel", "interrupt":
		e.Status = interpreter.StatusInterrupted
	case "output":
		e.Status = interpreter.StatusError
		e.Error = &interpreter.Error{Name: "OutputLimit", Value: fmt.Sprintf("the cell printed more than %d MiB", MaxPrinted>>20)}
	default:
		if e.Loss != nil && died {
			e.Status, e.Error = interpreter.StatusLost, nil
		}
	}
	e.MemoryKills = int(max(0, kills))
}

const maxNames = 200

// kills is how many processes were killed for want of memory in this cell,
// without copies of the worker, by whoever can tell.
func (s *Session) kills(facts map[string]string) int64 {
	n, ok := number(facts, "oom")
	if !ok {
		if n, ok = s.conn.sandbox.OOMKills(); !ok {
			return 0
		}
	}
	before := s.oom
	s.oom = n
	copies, _ := number(facts, "copies")
	return max(0, n-before-copies)
}

// ended reads the wait status of a worker.
func ended(status, kills int64) (cause interpreter.Cause, name, detail string) {
	if signal := int(status & 0x7f); signal != 0 {
		if signal == sigkill && kills > 0 {
			return interpreter.CauseMemory, "MemoryError", ""
		}
		return interpreter.CauseSignal, "Crash", signalName(signal)
	}
	return interpreter.CauseExit, "Exit", fmt.Sprintf("exit status %d", status>>8&0xff)
}

// claims reads what the worker said of a cell: fields of a key, a length and a
// text each.
func claims(b []byte) map[byte]string {
	m := make(map[byte]string)
	for len(b) >= 5 {
		n := binary.BigEndian.Uint32(b[1:])
		if int64(n) > int64(len(b)-5) {
			break
		}
		m[b[0]] = strings.ToValidUTF8(string(b[5:5+n]), "\uFFFD")
		b = b[5+n:]
	}
	return m
}

// count is the number in s, if it is a likely one.
func count(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// Interrupt implements [interpreter.Driver].
func (s *Session) Interrupt(context.Context) (bool, error) {
	s.mu.Lock()
	n, running := s.number, s.cell != nil
	s.mu.Unlock()
	if isClosed(s.gone) {
		return false, s.isGone()
	}
	if !running {
		return false, nil
	}
	return true, s.interrupt(n, "interrupt")
}

func (s *Session) interrupt(n uint32, why string) error {
	return s.send(appendFrame(nil, kindInterrupt, string(binary.BigEndian.AppendUint32(nil, n))+why))
}

// Restart implements [interpreter.Driver].
func (s *Session) Restart(ctx context.Context) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.restarted = done
	s.mu.Unlock()
	if err := s.send(appendFrame(nil, kindRestart, "")); err != nil {
		s.conn.sandbox.Kill()
		<-s.gone
	}
	clock := time.NewTimer(answerGrace)
	defer clock.Stop()
	select {
	case <-done:
		return nil
	case <-s.gone:
		return s.isGone()
	case <-ctx.Done():
		return ctx.Err()
	case <-clock.C:
		s.conn.sandbox.Kill()
		<-s.gone
		return s.isGone()
	}
}

// Close implements [interpreter.Driver].
func (s *Session) Close() error {
	s.remove.Do(func() {
		s.conn.sandbox.Kill()
		clock := time.NewTimer(killGrace)
		defer clock.Stop()
		select {
		case <-s.gone:
		case <-clock.C:
		}
		s.config.Remove()
		s.mu.Lock()
		of := s.of
		s.mu.Unlock()
		if of != nil {
			of.drop(s)
		}
	})
	return nil
}
