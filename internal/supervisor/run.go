package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/relay"
)

// MaxPrinted is how much a program may print on both streams together before
// it is killed for printing without end, in bytes.
const MaxPrinted = 64 << 20

const (
	// startGrace is how long a supervisor that said it is ready may take to
	// start the program.
	startGrace = 10 * time.Second
	// drainGrace is how long after a program's end its last output may take.
	drainGrace = 2 * time.Second
	// killGrace is how long after a kill the sandbox's streams may take to end
	// before the call returns without.
	killGrace = time.Second
	// relayGrace is how long after the end a live writer may take for the rest.
	relayGrace = 100 * time.Millisecond
)

// A Sandbox is one sandbox in which [Source] has been started. It serves one
// program.
type Sandbox interface {
	// Write and Read are the supervisor's standard input and output. Both
	// return once Kill was called and the sandbox is gone.
	io.ReadWriter
	// Kill ends every process in the sandbox, and with them what Read reads
	// from. It does not wait, and may be called at any time and more than once.
	Kill()
	// Killed reports whether Kill can be said to have reached the sandbox. It is
	// asked where Read has not ended in good time after it.
	Killed() bool
	// OOMKills is how many processes of the sandbox the kernel has killed for
	// want of memory since it was made, if that is known from outside. It is
	// asked after the end, where the supervisor could not tell.
	OOMKills() (n int64, known bool)
}

// A limited is a [Sandbox] that may know from outside whether its own memory
// limit was reached, or else only one around it.
type limited interface {
	Reached() (reached, known bool)
}

// ErrNotStarted is within the error of [Conn.Run] when the sandbox failed
// before it said that the program runs.
var ErrNotStarted = errors.New("the program was not started")

// ErrNotSupervisor is within the error of [Connect] when what is in the sandbox
// is no supervisor.
var ErrNotSupervisor = errors.New("what runs there is not the supervisor")

// A Conn is the host's end of the supervisor in one sandbox.
type Conn struct {
	// Python is the version of the interpreter, such as "3.12.4".
	Python string

	sandbox Sandbox
	frames  *decoder
}

// Connect waits until the supervisor in s is ready for a program. When ctx ends
// before, the caller must kill s to have Connect return.
func Connect(s Sandbox) (*Conn, error) {
	c := &Conn{sandbox: s, frames: newDecoder(s)}
	kind, payload, err := c.frames.next()
	switch {
	case err != nil:
		return nil, err
	case kind == kindFailed:
		if reason, ok := strings.CutPrefix(string(payload), "Preload: "); ok {
			return nil, &fnloop.PackageError{Field: "Preload", Reason: reason}
		}
		return nil, errors.New(string(payload))
	case kind != kindReady:
		return nil, fmt.Errorf("%w: a frame of kind %q before it was ready", ErrNotSupervisor, kind)
	}
	c.Python = values(payload)["python"]
	return c, nil
}

// Rlimits are the resource limits of every process of a program, by their
// names in Python without the prefix, such as "nofile".
type Rlimits map[string]int64

// Lines are r as the supervisor has them.
func (r Rlimits) Lines() string {
	var b strings.Builder
	for name, limit := range r {
		fmt.Fprintf(&b, "rlimit_%s=%d\n", name, limit)
	}
	return b.String()
}

// A Command is how a program is run that is not Python's.
type Command struct {
	File string   // what the source becomes
	Env  []string // KEY=value, beside [Env]
	// Steps are commands. The last is the program; one before it that fails is the
	// end. All of them share the program's time and its output.
	Steps [][]string
}

// payload has no byte that could be taken for one of a name or an argument: NUL
// is in none, and a command of ours has no control characters.
func (c *Command) payload() string {
	parts := []string{strings.Join(append([]string{c.File}, c.Env...), "\x00")}
	for _, step := range c.Steps {
		parts = append(parts, strings.Join(step, "\x00"))
	}
	return strings.Join(parts, "\x01")
}

// Run runs p, by command where it is not nil, within limits, which must be
// complete, and makes its Result but for Startup. It returns when the answer is known; the sandbox is the caller's
// to remove then, and may be killed already.
func (c *Conn) Run(ctx context.Context, p fnloop.Program, command *Command, limits fnloop.Limits, rlimits Rlimits) (fnloop.Result, error) {
	r := run{
		sandbox: c.sandbox,
		frames:  c.frames,
		started: make(chan struct{}),
		exited:  make(chan struct{}),
		done:    make(chan struct{}),
		closed:  make(chan struct{}),
	}
	if p.Stdout != nil {
		r.live[0] = relay.New(p.Stdout)
	}
	if p.Stderr != nil {
		r.live[1] = relay.New(p.Stderr)
	}
	go r.send(p, command, limits, rlimits)
	go r.receive()
	r.wait(ctx, limits.Time)
	r.endRelays()
	return r.result(ctx, limits)
}

// A cause is what ended a program.
type cause int32

const (
	byNothing cause = iota
	byExit
	byTimeout
	byCancel
	byOutput
	byLoss
)

// A run is one program in one sandbox.
type run struct {
	sandbox Sandbox
	frames  *decoder

	// cause is written once: the first cause wins, however late the others'
	// consequences come in.
	cause atomic.Int32

	stdout, stderr fnloop.Capture
	live           [2]*relay.Writer

	started chan struct{} // the program runs
	exited  chan struct{} // its wait status is known
	done    chan struct{} // everything was received
	closed  chan struct{} // the receiver is gone, after done or without it

	// Written by the receiver before the channel that tells of them is closed.
	begin  time.Time
	status int64
	took   time.Duration
	oom    fnloop.Evidence
	limit  fnloop.Evidence // its memory limit was reached
	err    error
}

func (r *run) because(c cause) { r.cause.CompareAndSwap(int32(byNothing), int32(c)) }

// send hands the program over. A write fails when the sandbox is gone, which
// the receiver learns as well.
func (r *run) send(p fnloop.Program, command *Command, limits fnloop.Limits, rlimits Rlimits) {
	b := appendFrame(nil, kindConfig, fmt.Sprintf("time_ms=%d\n%s", limits.Time.Milliseconds(), rlimits.Lines()))
	if command != nil {
		b = appendFrame(b, kindCommand, command.payload())
	}
	b = appendFrame(b, kindProgram, p.Source)
	if len(p.Stdin) == 0 {
		b = appendFrame(b, kindInput, "")
	}
	if _, err := r.sandbox.Write(b); err != nil || len(p.Stdin) == 0 {
		return
	}
	for rest := p.Stdin; ; {
		piece := rest[:min(len(rest), maxPayload)]
		b = appendFrame(b[:0], kindInput, string(piece))
		if _, err := r.sandbox.Write(b); err != nil || len(piece) == 0 {
			return
		}
		rest = rest[len(piece):]
	}
}

// receive takes the frames in until there are no more.
func (r *run) receive() {
	defer close(r.closed)
	for {
		kind, payload, err := r.frames.next()
		if err != nil {
			r.because(byLoss)
			r.err = err
			return
		}
		if !r.inOrder(kind) {
			r.because(byLoss)
			r.err = fmt.Errorf("supervisor: a frame of kind %q out of order", kind)
			return
		}
		switch kind {
		case kindStarted:
			r.begin = time.Now()
			close(r.started)
		case kindStdout, kindStderr:
			r.print(kind, payload)
		case kindExit:
			v := values(payload)
			status, ok := number(v, "status")
			us, _ := number(v, "us")
			if !ok || us < 0 || us > math.MaxInt64/int64(time.Microsecond) {
				r.because(byLoss)
				r.err = fmt.Errorf("supervisor: no wait status and time in %q", payload)
				return
			}
			r.status, r.took = status, time.Duration(us)*time.Microsecond
			r.because(byExit)
			close(r.exited)
		case kindTimeout:
			r.because(byTimeout)
			return
		case kindDone:
			v := values(payload)
			if n, ok := number(v, "oom"); ok {
				r.oom = evidence(n)
			}
			if n, ok := number(v, "reached"); ok {
				r.limit = evidence(n)
			}
			close(r.done)
			return
		case kindFailed:
			r.because(byLoss)
			r.err = errors.New(string(payload))
			return
		default:
			r.because(byLoss)
			r.err = fmt.Errorf("supervisor: a frame of unknown kind %q", kind)
			return
		}
	}
}

// inOrder reports whether a frame may come now: a supervisor that is not itself
// any more must not be able to do harm to the host.
func (r *run) inOrder(kind byte) bool {
	switch kind {
	case kindStarted:
		return !isClosed(r.started)
	case kindExit, kindTimeout:
		return isClosed(r.started) && !isClosed(r.exited)
	case kindStdout, kindStderr:
		return isClosed(r.started)
	case kindDone:
		return isClosed(r.exited)
	}
	return true
}

func (r *run) print(kind byte, p []byte) {
	capture, live := &r.stdout, r.live[0]
	if kind == kindStderr {
		capture, live = &r.stderr, r.live[1]
	}
	_, _ = capture.Write(p) // neither fails
	if live != nil {
		_, _ = live.Write(p)
	}
	if r.stdout.Len()+r.stderr.Len() > MaxPrinted {
		if r.because(byOutput); r.cause.Load() == int32(byOutput) {
			r.sandbox.Kill()
		}
	}
}

// wait returns when it is known what ended the program and its output is in,
// or has had its time to come in.
func (r *run) wait(ctx context.Context, limit time.Duration) {
	clock := time.NewTimer(startGrace)
	defer clock.Stop()
	select {
	case <-r.started:
		clock.Reset(limit - time.Since(r.begin))
		select {
		case <-r.exited:
		case <-r.closed:
		case <-clock.C:
			r.because(byTimeout)
		case <-ctx.Done():
			r.because(byCancel)
		}
	case <-r.closed:
	case <-clock.C:
		r.because(byLoss)
	case <-ctx.Done():
		r.because(byCancel)
	}
	if r.cause.Load() == int32(byExit) {
		clock.Reset(drainGrace)
		select {
		case <-r.closed:
		case <-clock.C:
		}
		return
	}
	r.sandbox.Kill()
	clock.Reset(killGrace)
	select {
	case <-r.closed:
	case <-clock.C:
	}
}

// endRelays gives the live writers their last bytes, both within one grace.
func (r *run) endRelays() {
	end := time.Now().Add(relayGrace)
	for _, w := range r.live {
		if w != nil {
			w.Close(time.Until(end))
		}
	}
}

func (r *run) result(ctx context.Context, limits fnloop.Limits) (fnloop.Result, error) {
	res := fnloop.Result{Limits: limits}
	began := isClosed(r.started)
	if began {
		res.Duration = time.Since(r.begin)
	}
	gone := isClosed(r.closed)
	if isClosed(r.done) {
		res.OOM = r.oom
	}
	if res.OOM == fnloop.EvidenceUnknown {
		if n, known := r.sandbox.OOMKills(); known {
			res.OOM = evidence(n)
		}
	}
	var err error
	switch cause(r.cause.Load()) {
	case byExit:
		<-r.exited // closed just after the cause was set
		r.exit(&res)
	case byTimeout:
		res.Duration = limits.Time
		if gone || r.sandbox.Killed() {
			res.End, res.TimedOut = fnloop.EndTimeout, true
		} else {
			res.End = fnloop.EndLost
		}
	case byCancel:
		res.End = fnloop.EndCancelled
		err = Ended(ctx)
	case byOutput:
		res.End = fnloop.EndOutput
	default:
		res.End = fnloop.EndLost
		switch {
		case began && res.OOM == fnloop.EvidenceYes:
			res.End = fnloop.EndMemory
		case !began && gone:
			err = fmt.Errorf("%w: %w", ErrNotStarted, r.err)
		case !began:
			err = fmt.Errorf("%w within %v", ErrNotStarted, startGrace)
		}
	}
	if res.End == fnloop.EndMemory && r.belowLimit() {
		res.End = fnloop.EndHostMemory
	}
	res.SetOutput(&r.stdout, &r.stderr)
	return res, err
}

// belowLimit reports whether it is known that the memory limit was not reached.
func (r *run) belowLimit() bool {
	if l, ok := r.sandbox.(limited); ok {
		if reached, known := l.Reached(); known {
			return !reached
		}
	}
	return isClosed(r.done) && r.limit == fnloop.EvidenceNo
}

// Ended is the error of a call whose context has ended: the context's, with its
// cause where it has one of its own.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// exit reads the wait status of a program that ended by itself.
func (r *run) exit(res *fnloop.Result) {
	res.Duration = r.took
	if signal := int(r.status & 0x7f); signal != 0 {
		res.End, res.Signal = fnloop.EndSignal, signalName(signal)
		if signal == sigkill && res.OOM == fnloop.EvidenceYes {
			res.End, res.Signal = fnloop.EndMemory, ""
		}
		return
	}
	code := int(r.status >> 8 & 0xff)
	res.End, res.ExitCode = fnloop.EndExit, &code
}

func evidence(kills int64) fnloop.Evidence {
	if kills > 0 {
		return fnloop.EvidenceYes
	}
	return fnloop.EvidenceNo
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
