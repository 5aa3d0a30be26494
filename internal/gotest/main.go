// Gotest runs go test with its arguments, prints what go test would print, and
// says at the end which tests were skipped and why. Go test alone says that only
// with -v, among everything else.
//
//	go run ./internal/gotest -race ./...
//
// With -again=N as its first argument it runs the tests that failed once more,
// by themselves, when they are N or fewer. Those that pass then are called FLAKY
// and do not fail the run. That is for machines whose load nobody controls: a
// sandbox that was slow is no fault, but a panic or a data race is one however
// often it comes, and is never tried again.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status of go test.
func run(args []string, stdout, stderr io.Writer) int {
	most := 0
	if len(args) > 0 {
		if n, ok := strings.CutPrefix(args[0], "-again="); ok {
			var err error
			if most, err = strconv.Atoi(n); err != nil {
				fmt.Fprintln(stderr, "gotest: -again:", err)
				return 2
			}
			args = args[1:]
		}
	}
	rep, status := goTest(args, stdout, stderr)
	for _, s := range rep.skips {
		fmt.Fprintln(stdout, s)
	}
	if status != 0 && !rep.hard && len(rep.failed) > 0 && len(rep.failed) <= most {
		status = again(args, rep.failed, stdout, stderr)
	}
	return status
}

// again runs the failed tests once more, one at a time.
func again(args []string, failed []test, stdout, stderr io.Writer) (status int) {
	flags := args
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		flags = args[:i]
	}
	for _, t := range failed {
		only := append(slices.Clone(flags), "-count=1", "-run=^"+regexp.QuoteMeta(t.name)+"$", t.pkg)
		if _, s := goTest(only, stdout, stderr); s != 0 {
			status = s
			continue
		}
		fmt.Fprintf(stdout, "FLAKY %s of %s: it failed, and passed when it ran again by itself\n", t.name, t.pkg)
	}
	return status
}

// goTest runs go test and prints its report.
func goTest(args []string, stdout, stderr io.Writer) (summary, int) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return summary{hard: true}, 1
	}
	sum, readErr := report(events, stdout)
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return sum, cmp.Or(max(exit.ExitCode(), 0), 1) // a signal has no status
	}
	if err = errors.Join(err, readErr); err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return summary{hard: true}, 1
	}
	return sum, 0
}

// A summary is what is said of a whole run.
type summary struct {
	skips  []string // a line for each reason for which tests of a package were skipped
	failed []test   // but for subtests
	hard   bool     // something failed that is not one of them, or whose failure is no matter of load
}

type test struct{ pkg, name string }

// fault is what a test prints whose failure is one however often it passes.
var fault = regexp.MustCompile(`(?m)^(panic: |fatal error: |WARNING: DATA RACE)|race detected during execution`)

// An event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action, Package, Test, Output string
}

// A log is what a package has printed so far, by test. The name of what no test
// printed is empty.
type log struct {
	names []string // in the order in which they began
	text  map[string]*strings.Builder
	fails bool // a test failed
}

// report prints the events as go test does without -json: of a package that
// passed one line, else the output of the tests that did not pass.
func report(events io.Reader, w io.Writer) (sum summary, err error) {
	logs := map[string]*log{}
	type reason struct{ pkg, text string }
	var reasons []reason
	count := map[reason]int{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				w.Write(line)
				continue
			}
			l := logs[e.Package]
			if l == nil {
				l = &log{text: map[string]*strings.Builder{}}
				logs[e.Package] = l
			}
			switch {
			case e.Action == "build-output":
				io.WriteString(w, e.Output)
			case e.Action == "output":
				if l.text[e.Test] == nil {
					l.names = append(l.names, e.Test)
					l.text[e.Test] = new(strings.Builder)
				}
				l.text[e.Test].WriteString(e.Output)
				sum.hard = sum.hard || fault.MatchString(e.Output)
			case e.Test != "" && e.Action == "skip":
				r := reason{e.Package, why(l.take(e.Test))}
				if count[r]++; count[r] == 1 {
					reasons = append(reasons, r)
				}
			case e.Test != "" && e.Action == "pass":
				l.take(e.Test)
			case e.Test != "" && e.Action == "fail":
				if l.fails = true; !strings.Contains(e.Test, "/") {
					sum.failed = append(sum.failed, test{e.Package, e.Test})
				}
			case e.Test == "" && (e.Action == "pass" || e.Action == "skip"):
				io.WriteString(w, verdict(l.take("")))
			case e.Test == "" && e.Action == "fail":
				sum.hard = sum.hard || !l.fails // it did not build, or TestMain failed it
				last := l.take("")
				for _, name := range l.names {
					io.WriteString(w, l.take(name))
				}
				io.WriteString(w, last)
			}
		}
		if err != nil {
			for _, r := range reasons {
				tests := "test"
				if count[r] > 1 {
					tests += "s"
				}
				sum.skips = append(sum.skips, fmt.Sprintf("SKIPPED %d %s of %s: %s", count[r], tests, r.pkg, r.text))
			}
			if err == io.EOF {
				err = nil
			}
			return sum, err
		}
	}
}

// take removes and returns what a test has printed.
func (l *log) take(test string) string {
	text := l.text[test]
	if text == nil {
		return ""
	}
	delete(l.text, test)
	l.names = slices.DeleteFunc(slices.Clone(l.names), func(n string) bool { return n == test })
	return text.String()
}

// verdict is the last line of a package's own output, such as "ok fnloop 1.2s".
func verdict(text string) string {
	lines := slices.Collect(strings.Lines(text))
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// place is where in a file a test logs something.
var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// why is the reason that a skipped test gives, without the lines around it.
func why(text string) string {
	var reason []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(place.ReplaceAllString(line, ""))
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reason = append(reason, line)
		}
	}
	return cmp.Or(strings.Join(reason, " "), "it gives no reason")
}
