// Gotest runs go test with its arguments, prints what go test would print, and
// says at the end which tests were skipped and why. Go test alone says that only
// with -v, among everything else.
//
//	go run ./internal/gotest -race ./...
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
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status of go test.
func run(args []string, stdout, stderr io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	skips, readErr := report(events, stdout)
	err = cmd.Wait()
	for _, s := range skips {
		fmt.Fprintln(stdout, s)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return cmp.Or(max(exit.ExitCode(), 0), 1) // a signal has no status
	}
	if err = errors.Join(err, readErr); err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	return 0
}

// An event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action, Package, Test, Output string
}

// A log is what a package has printed so far, by test. The name of what no test
// printed is empty.
type log struct {
	names []string // in the order in which they began
	text  map[string]*strings.Builder
}

// report prints the events as go test does without -json: of a package that
// passed one line, else the output of the tests that did not pass. It returns a
// line for each reason for which tests of a package were skipped.
func report(events io.Reader, w io.Writer) (skips []string, err error) {
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
			case e.Test != "" && e.Action == "skip":
				r := reason{e.Package, why(l.take(e.Test))}
				if count[r]++; count[r] == 1 {
					reasons = append(reasons, r)
				}
			case e.Test != "" && e.Action == "pass":
				l.take(e.Test)
			case e.Test == "" && (e.Action == "pass" || e.Action == "skip"):
				io.WriteString(w, verdict(l.take("")))
			case e.Test == "" && e.Action == "fail":
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
				skips = append(skips, fmt.Sprintf("SKIPPED %d %s of %s: %s", count[r], tests, r.pkg, r.text))
			}
			if err == io.EOF {
				err = nil
			}
			return skips, err
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
