package runtimecloud

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/relay"
)

// A job is one Run.
type job struct {
	runner  *Runner
	client  *client
	ctx     context.Context // of the caller of Run, who waits for the job
	run     string
	began   time.Time
	limits  fnloop.Limits
	body    []byte // of the create: a retry must send the same bytes
	plan    plan
	asked   time.Time // for the sandbox
	sandbox *sandbox
}

// lateCreate is how long the answer to a create is waited for when the caller
// has gone, before what it made is looked up by its label.
const lateCreate = 10 * time.Second

// settlePause is between the two looks: a create may land after the first.
const settlePause = 5 * time.Second

func (j *job) do(p fnloop.Program) (fnloop.Result, error) {
	res := fnloop.Result{Limits: j.limits}
	err := j.create()
	var name, process string
	asCell := j.plan.installs
	if err == nil {
		defer j.remove()
		if err = j.client.awaitRunning(j.ctx, j.sandbox); err == nil {
			name, process, err = j.ready(asCell)
		}
	}
	if err == nil && asCell {
		return j.cell(p, name, process, res)
	}
	if err == nil {
		err = j.client.write(j.ctx, j.run, j.sandbox.ID, workspace+"/"+kinds[j.plan.language].file, []byte(p.Source))
	}
	if err != nil {
		if j.ctx.Err() != nil {
			res.End = fnloop.EndCancelled
		}
		return res, err
	}
	return j.exec(p, res)
}

// create gets the sandbox. It answers at once when the caller goes, and then
// sees to it that no sandbox stays.
func (j *job) create() error {
	r := j.runner
	type answer struct {
		sandbox *sandbox
		err     error
	}
	answered := make(chan answer, 1)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(j.ctx))
	j.asked = time.Now()
	r.work.Go(func() {
		room := r.RoomWait
		if room == 0 {
			room = DefaultRoomWait
		}
		sb, err := j.client.create(ctx, j.run, j.body, room, j.ctx.Done())
		if err == nil {
			r.setLive(sb.ID, true)
		}
		answered <- answer{sb, err}
	})
	select {
	case a := <-answered:
		cancel(nil)
		j.sandbox = a.sandbox
		j.settle(a.err)
		if a.err != nil && j.ctx.Err() != nil {
			return j.client.describe(j.ctx, &request{op: "create"}, nil)
		}
		return a.err
	case <-j.ctx.Done():
	}
	r.work.Go(func() {
		defer cancel(nil)
		late := time.AfterFunc(lateCreate, func() { cancel(errNoAnswer) })
		defer late.Stop()
		a := <-answered
		if a.err == nil {
			j.sandbox = a.sandbox
			j.remove()
			return
		}
		j.settle(a.err)
	})
	return j.client.describe(j.ctx, &request{op: "create"}, nil)
}

// settle deletes what a create that failed with err may have made all the same.
func (j *job) settle(err error) {
	e, ok := asError(err)
	if !ok || !e.uncertain {
		return
	}
	r := j.runner
	r.work.Go(func() {
		ctx := context.WithoutCancel(j.ctx)
		for try := range 2 {
			if try > 0 {
				sleep(ctx, nil, settlePause)
			}
			var found []string
			if err := j.client.list(ctx, "run", j.run, func(sb *sandbox) { found = append(found, sb.ID) }); err != nil {
				r.leak(ctx, "", j.run, err)
				return
			}
			for _, id := range found {
				j.removeID(ctx, id, nil)
			}
		}
	})
}

// exec runs the program and says how it ended.
func (j *job) exec(p fnloop.Program, res fnloop.Result) (fnloop.Result, error) {
	var stdout, stderr fnloop.Capture
	x := &execution{sandbox: j.sandbox.ID}
	var closeOut, closeErr func()
	x.stdout, closeOut = live(&stdout, p.Stdout)
	x.stderr, closeErr = live(&stderr, p.Stderr)
	sent := time.Now()
	err := j.client.exec(j.ctx, x, stepKey(j.run, "exec"), &command{
		Argv: kinds[j.plan.language].argv,
		Cwd:  workspace,
		// What a program printed before it is killed must not be lost in a buffer.
		Env:         map[string]string{"PYTHONUNBUFFERED": "1"},
		StdinBase64: p.Stdin,
		TimeoutMs:   ceil(int64(j.limits.Time), int64(time.Millisecond)),
	})
	closeOut()
	closeErr()
	started := x.started
	if started.IsZero() {
		started = sent
	}
	res.Startup = started.Sub(j.began)
	res.Duration = time.Since(started)
	switch {
	case err == nil:
		x.ended(&res)
		j.findOOM(&res)
	case err == errFlood:
		res.End, err = fnloop.EndOutput, nil
	case j.ctx.Err() != nil:
		res.End = fnloop.EndCancelled
	default:
		if e, ok := asError(err); ok && (x.process != "" || e.lost()) {
			res.End = fnloop.EndLost
			if j.ownFault() {
				err = nil
			}
		}
	}
	res.SetOutput(&stdout, &stderr)
	if x.missing {
		res.StdoutTruncated, res.StderrTruncated = true, true
	}
	return res, err
}

// liveGrace is how long a program's writers have for what they lag behind.
const liveGrace = 100 * time.Millisecond

// live gives a writer to capture and, without ever waiting for it, to w.
func live(capture *fnloop.Capture, w io.Writer) (both io.Writer, stop func()) {
	if w == nil {
		return capture, func() {}
	}
	r := relay.New(w)
	return io.MultiWriter(capture, r), func() { r.Close(liveGrace) }
}

// ended takes over what the service says of the program's end.
func (x *execution) ended(res *fnloop.Result) {
	ev := x.exit
	if ev.DurationMs != nil {
		res.Duration = milliseconds(*ev.DurationMs)
	}
	switch {
	case ev.TimedOut || ev.State == "timed_out":
		res.End, res.TimedOut = fnloop.EndTimeout, true
	case ev.State == "killed" && ev.ExitCode != nil && signals[*ev.ExitCode-128] != "":
		// It is not documented whether a signal comes as no status or as a shell
		// gives it. A program that exits with such a status has the state "exited".
		res.End, res.Signal = fnloop.EndSignal, signals[*ev.ExitCode-128]
	case ev.ExitCode != nil && ev.State != "killed":
		res.End, res.ExitCode = fnloop.EndExit, ev.ExitCode
	}
}

// findOOM finds out whether the kernel killed a program that was killed. The API
// does not say so, but the microVM has a kernel of its own that counts such
// kills. It is one more round trip, for such programs alone.
func (j *job) findOOM(res *fnloop.Result) {
	if res.End != fnloop.EndUnknown && res.Signal != "SIGKILL" {
		return
	}
	ctx, cancel := context.WithTimeout(j.ctx, 5*time.Second)
	defer cancel()
	switch n, known := j.client.oomKills(ctx, j.sandbox.ID); {
	case !known:
	case n == 0:
		res.OOM = fnloop.EvidenceNo
	default:
		res.End, res.Signal, res.OOM = fnloop.EndMemory, "", fnloop.EvidenceYes
	}
}

// oomKills is how many processes of the sandbox were killed for want of memory.
func (c *client) oomKills(ctx context.Context, sandbox string) (n int64, known bool) {
	var count bytes.Buffer
	x := &execution{sandbox: sandbox, stdout: &count, stderr: io.Discard}
	err := c.exec(ctx, x, newKey(), &command{Argv: []string{"grep", "-w", "oom_kill", "/proc/vmstat"}, Cwd: "/", TimeoutMs: 2000})
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscanf(count.String(), "oom_kill %d", &n)
	return n, err == nil
}

// signals are those that end a program on Linux, by number.
var signals = map[int]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
	24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}

// ownFault reports whether the sandbox went away by the program's own doing:
// root in it can shut it down, and a program can use up its time and money.
func (j *job) ownFault() bool {
	sb, err := j.client.read(j.ctx, j.sandbox.ID)
	if err != nil {
		return false
	}
	switch sb.StopReason {
	case "host_stopped", "time_limit", "lease_expired", "lifetime_cap":
		return true
	}
	return false
}

// remove deletes the job's sandbox, off the caller's path.
func (j *job) remove() {
	sb := j.sandbox
	j.runner.work.Go(func() { j.removeID(context.WithoutCancel(j.ctx), sb.ID, sb) })
}

// removeID deletes a sandbox and tells what it cost. sb is nil where nothing
// more than the ID is known.
func (j *job) removeID(ctx context.Context, id string, sb *sandbox) {
	vcpu, memory := cmp.Or(j.runner.VCPU, 2), j.limits.Memory>>20
	if sb != nil && sb.VCPU > 0 && sb.MemoryMiB > 0 {
		vcpu, memory = sb.VCPU, sb.MemoryMiB
	}
	_ = j.runner.removeSandbox(ctx, id, Charge{Sandbox: id, Run: j.run}, j.asked, vcpu, memory) // Close tells of it
}

// removeSandbox deletes a sandbox and tells what it cost. An error means that it
// was not deleted, which Close tells too.
func (r *Runner) removeSandbox(ctx context.Context, id string, charge Charge, asked time.Time, vcpu int, memory int64) error {
	var charged *int64
	if r.Charged != nil {
		// What was charged is settled by a stop, and is gone with the sandbox.
		if stopped, err := r.client.stop(ctx, id); err == nil && stopped.State == "stopped" {
			charged = stopped.ChargedMicros
		}
	}
	err := r.client.remove(ctx, id)
	if err != nil {
		r.leak(ctx, id, "", err)
	}
	r.setLive(id, false)
	if r.Charged == nil {
		return err
	}
	charge.Alive = time.Since(asked)
	if charged != nil {
		charge.Micros = *charged
	} else {
		charge.Micros, charge.Estimate = estimate(vcpu, memory, charge.Alive), true
	}
	r.Charged(ctx, charge)
	return err
}

// leak notes what could not be deleted.
func (r *Runner) leak(ctx context.Context, id, run string, err error) {
	r.mu.Lock()
	if id != "" && !slices.Contains(r.leaked.Sandboxes, id) {
		r.leaked.Sandboxes = append(r.leaked.Sandboxes, id)
	}
	if run != "" {
		r.leaked.Runs = append(r.leaked.Runs, run)
	}
	r.mu.Unlock()
	r.client.log.LogAttrs(ctx, slog.LevelError, "runtimecloud: not deleted",
		slog.String("sandbox", id), slog.String("run", run), slog.Any("error", err))
}

func asError(err error) (*Error, bool) { return errors.AsType[*Error](err) }
