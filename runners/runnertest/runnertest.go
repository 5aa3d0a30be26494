// Package runnertest tests runners. [Run] has a runner run what programs of a
// model, or of an attacker, have been seen to do.
package runnertest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
)

// Run checks that the runners made by newRunner keep the promises of
// [fnloop.Runner], and run programs of each language that their
// [fnloop.Environment] names. It makes one for each case; newRunner may give the same
// runner each time, and closes it by t.Cleanup or otherwise itself. Cases run
// beside each other.
//
// A runner that cannot do everything says so in a method
//
//	Lacks() map[string]string
//
// which gives a reason for each of these that it lacks, and the cases that need
// one are skipped with the reason:
//
//   - execution: programs are really run
//   - memory, pids: the limits on memory and on processes are enforced for all
//     processes together
//   - oom: Result.OOM is known
//   - isolation: programs cannot reach the host they run on
//   - stdin: Program.Stdin reaches the program
//   - live: Program.Stdout and Program.Stderr get output while a program runs
//   - services: the names of services and protocols are known
//   - sockets: what sockets hold is bounded with the memory
//   - fast: a run costs well under a second
func Run(t *testing.T, newRunner func(*testing.T) fnloop.Runner) {
	// What is measured in the host process is measured alone.
	for _, c := range append(alone, crowd()...) {
		t.Run(c.name, func(t *testing.T) { c.run(t, newRunner(t)) })
	}
	for _, group := range [][]testCase{contract, endings, resources, output, language, isolation, hostile, scheduling, held, service} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, newRunner(t))
			})
		}
	}
	runLanguages(t, newRunner)
}

// A testCase is one program and what is right about its Result.
type testCase struct {
	name string
	why  string   // the rule that is broken if the case fails
	lack []string // what a runner may say it lacks, beside execution

	source   string
	language string // empty is Python
	stdin    string
	limits   fnloop.Limits // a zero Time means timeLimit
	// within is how long the call may take but for its startup. Zero means
	// until shortly after the time limit.
	within time.Duration
	check  func(*verdict)

	// do replaces all of the above but name, why and lack.
	do func(*testing.T, fnloop.Runner)
	// anywhere marks a case for runners that do not execute programs too.
	anywhere bool
}

// timeLimit is that of cases that name none.
const timeLimit = 5 * time.Second

// slack is how much longer than its time limit a call may take.
const slack = 2 * time.Second

// token stands for a word in a program's source that occurs nowhere else on
// the machine. Programs give it to processes as their name, and none of that
// name may be left after the call.
const token = "TOKEN"

func (c testCase) run(t *testing.T, r fnloop.Runner) {
	t.Helper()
	c.skip(t, r)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule: %s", c.why)
		}
	})
	if c.do != nil {
		c.do(t, r)
		return
	}
	source, name := withToken(c.source)
	p := fnloop.Program{
		Source:   source,
		Language: c.language,
		Stdin:    []byte(c.stdin),
		Limits:   c.limits,
	}
	if p.Limits.Time == 0 {
		p.Limits.Time = timeLimit
	}
	within := c.within
	if within == 0 {
		within = p.Limits.Time + slack
	}
	begin := time.Now()
	res, err := r.Run(t.Context(), p)
	took := time.Since(begin) - res.Startup
	if err != nil {
		t.Fatalf("Run() error = %v", err)
	}
	if took > within {
		t.Errorf("Run() took %v after a startup of %v, want at most %v", took, res.Startup, within)
	}
	v := &verdict{T: t, Result: res}
	v.sane()
	c.check(v)
	if strings.Contains(c.source, token) {
		noneNamed(t, name)
	}
	if t.Failed() {
		t.Logf("the program:\n%s\nthe result: %s\nend %q signal %q oom %q duration %v", p.Source, abridge(res.Text()), res.End, res.Signal, res.OOM, res.Duration)
	}
}

// skip skips the case if r cannot be asked.
func (c testCase) skip(t *testing.T, r fnloop.Runner) {
	t.Helper()
	l, ok := fnloop.RunnerAs[interface{ Lacks() map[string]string }](r)
	if !ok {
		return
	}
	lacks := l.Lacks()
	need := c.lack
	if !c.anywhere {
		need = append([]string{"execution"}, need...)
	}
	for _, what := range need {
		if reason, is := lacks[what]; is {
			t.Skipf("the runner lacks %s: %s", what, reason)
		}
	}
}

// withToken gives a program's source with a new word for the token.
func withToken(source string) (with, name string) {
	name = "fnloop-" + strings.ToLower(rand.Text())
	return strings.ReplaceAll(source, token, name), name
}

// processesNamed are the processes of that name on this machine.
func processesNamed(name string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), name) {
			found = append(found, f)
		}
	}
	return found
}

// noneNamed checks that no process of that name is left. It sees those of
// sandboxes on the same machine only.
func noneNamed(t *testing.T, name string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Second)
	for {
		found := processesNamed(name)
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("processes that the program started are left: %v", found)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A verdict is a Result under judgement.
type verdict struct {
	*testing.T
	fnloop.Result
}

// sane checks what holds for every Result.
func (v *verdict) sane() {
	v.Helper()
	if (v.ExitCode != nil) != (v.End == fnloop.EndExit) {
		v.Errorf("exit code %v with the end %q: there is one only for a program that ended by itself", code(v.Result), v.End)
	}
	if v.TimedOut != (v.End == fnloop.EndTimeout) {
		v.Errorf("timed_out is %v with the end %q", v.TimedOut, v.End)
	}
	if (v.Signal != "") != (v.End == fnloop.EndSignal) {
		v.Errorf("signal %q with the end %q", v.Signal, v.End)
	}
	if !utf8.ValidString(v.Stdout) || !utf8.ValidString(v.Stderr) {
		v.Errorf("output is not valid UTF-8")
	}
	text := v.Text()
	if len(text) > fnloop.DefaultMaxOutput || !json.Valid([]byte(text)) {
		v.Errorf("Text() is %d bytes, valid JSON: %v", len(text), json.Valid([]byte(text)))
	}
	if v.Limits.Time <= 0 {
		v.Errorf("Result.Limits.Time = %v, want the one that was in force", v.Limits.Time)
	}
	if v.Duration < 0 || v.Startup < 0 {
		v.Errorf("Duration = %v, Startup = %v", v.Duration, v.Startup)
	}
}

// exits checks for an exit status.
func (v *verdict) exits(want int) {
	v.Helper()
	if v.ExitCode == nil || *v.ExitCode != want {
		v.Errorf("exit code = %s, want %d", code(v.Result), want)
	}
}

// signalled checks for a death by a signal that was not ours.
func (v *verdict) signalled(want string) {
	v.Helper()
	if v.End != fnloop.EndSignal || v.Signal != want {
		v.Errorf("end = %q by %q, want %q by %q", v.End, v.Signal, fnloop.EndSignal, want)
	}
}

// ends checks for one of some endings.
func (v *verdict) ends(want ...fnloop.Ending) {
	v.Helper()
	if !slices.Contains(want, v.End) {
		v.Errorf("end = %q, want one of %q", v.End, want)
	}
}

// prints checks all of standard output.
func (v *verdict) prints(want string) {
	v.Helper()
	if v.Stdout != want {
		v.Errorf("stdout = %q, want %q", abridge(v.Stdout), abridge(want))
	}
}

// complains checks a part of standard error.
func (v *verdict) complains(want string) {
	v.Helper()
	if !strings.Contains(v.Stderr, want) {
		v.Errorf("stderr = %q, want %q in it", abridge(v.Stderr), want)
	}
}

// silent checks that nothing was printed.
func (v *verdict) silent() {
	v.Helper()
	if v.Stderr != "" {
		v.Errorf("stderr = %q, want nothing", abridge(v.Stderr))
	}
}

// ok is the check of a program that succeeds and prints just this.
func ok(want string) func(*verdict) {
	return func(v *verdict) {
		v.Helper()
		v.exits(0)
		v.prints(want)
		v.silent()
	}
}

// status is the check of a program that ends by an exit status.
func status(want int) func(*verdict) {
	return func(v *verdict) {
		v.Helper()
		v.exits(want)
	}
}

// timeout is the check of a program that the time limit ends.
func timeout(v *verdict) {
	v.Helper()
	v.ends(fnloop.EndTimeout)
	v.complains("time limit")
}

func code(r fnloop.Result) string {
	b, _ := json.Marshal(r.ExitCode)
	return string(b)
}

// abridge is the two ends of s.
func abridge(s string) string {
	const n = 600
	if len(s) <= 2*n {
		return s
	}
	return s[:n] + " … " + s[len(s)-n:]
}

// start runs a program in the background.
func start(ctx context.Context, r fnloop.Runner, p fnloop.Program) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		res, err := r.Run(ctx, p)
		c <- answer{res, err}
	}()
	return c
}

type answer struct {
	res fnloop.Result
	err error
}
