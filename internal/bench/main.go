// Bench runs benchmarks with go test, whose arguments are its own, prints what go
// test prints, and ends with the table of figures that README shows.
//
//	go run ./internal/bench -benchtime 1s ./...
//
// With -w=FILE as its first argument it also puts the table between the lines
// "<!-- bench -->" and "<!-- /bench -->" of that file. That wants every figure.
// With CI set a figure that is missing fails the run.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status of go test, or 1 when the table is not whole where
// it has to be.
func run(args []string, stdout, stderr io.Writer) int {
	file := ""
	if len(args) > 0 {
		if f, ok := strings.CutPrefix(args[0], "-w="); ok {
			file, args = f, args[1:]
		}
	}
	load := loadAverage()
	cmd := exec.Command("go", append([]string{"test", "-run=^$", "-bench=.", "-benchmem"}, args...)...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	res, readErr := read(io.TeeReader(out, stdout))
	status := 0
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = cmp.Or(max(exit.ExitCode(), 0), 1)
	} else if err = errors.Join(err, readErr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		status = 1
	}

	shown := rows
	if file == "" {
		shown = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !res.ran[r.path()] })
	}
	text, missing := table(shown, res, machine(res.cpu, load))
	fmt.Fprintf(stdout, "\n%s", text)
	for _, m := range missing {
		fmt.Fprintln(stdout, "MISSING", m)
	}
	switch {
	case len(missing) > 0 && os.Getenv("CI") != "":
		status = cmp.Or(status, 1)
	case file != "" && (len(missing) > 0 || status != 0):
		fmt.Fprintf(stderr, "bench: %s is left as it was, because the table is not whole\n", file)
		status = cmp.Or(status, 1)
	case file != "":
		if err := write(file, text); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			status = 1
		}
	}
	return status
}

// Results are the metrics that go test printed, by package, benchmark and unit.
type results struct {
	cpu     string
	ran     map[string]bool // packages
	metrics map[string]map[string]float64
}

// procs is the number of processors at the end of a benchmark's name.
var procs = regexp.MustCompile(`-\d+$`)

// read reads what go test -bench prints, in the form that
// https://go.dev/design/14313-benchmark-format describes.
func read(r io.Reader) (results, error) {
	res := results{ran: map[string]bool{}, metrics: map[string]map[string]float64{}}
	pkg := ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if p, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = p
			res.ran[p] = true
		}
		if c, ok := strings.CutPrefix(line, "cpu: "); ok {
			res.cpu = c
		}
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := pkg + " " + procs.ReplaceAllString(f[0], "")
		if res.metrics[name] == nil {
			res.metrics[name] = map[string]float64{}
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				res.metrics[name][f[i+1]] = v
			}
		}
	}
	return res, lines.Err()
}

// machine says where the figures are from.
func machine(cpu string, load string) string {
	where := fmt.Sprintf("Measured on %s on %d cores of %s (%s/%s)", time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), cmp.Or(cpu, "an unnamed processor"), runtime.GOOS, runtime.GOARCH)
	for _, v := range []struct{ name, command string }{
		{"Linux", "uname -r"},
		{"Python", "/usr/bin/python3 --version"},
		{"bubblewrap", "bwrap --version"},
		{"Docker", "docker version --format {{.Server.Version}}"},
	} {
		f := strings.Fields(v.command)
		out, err := exec.Command(f[0], f[1:]...).Output()
		if words := strings.Fields(string(out)); err == nil && len(words) > 0 {
			where += ", " + v.name + " " + words[len(words)-1]
		}
	}
	where += ", " + strings.Replace(runtime.Version(), "go", "Go ", 1)
	if load != "" {
		where += "; " + load + " processes wanted to run in the minute before"
	}
	return where + "."
}

// loadAverage is the first field of /proc/loadavg, or nothing.
func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(b), " ")
	return load
}

// placeholder is a metric in the figure of a row.
var placeholder = regexp.MustCompile(`\{[^}]+\}`)

// table makes the table of the rows whose packages ran, and names the benchmarks
// and metrics that are not there.
func table(rows []row, res results, where string) (text string, missing []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| what | figure | command |\n| --- | --- | --- |\n", where)
	for _, r := range rows {
		figure := placeholder.ReplaceAllStringFunc(r.figure, func(p string) string {
			bench := r.path() + " Benchmark" + r.bench
			sub, unit, within := strings.Cut(p[1:len(p)-1], " ")
			if within {
				bench += "/" + sub
			} else {
				unit = sub
			}
			v, ok := res.metrics[bench][unit]
			if !ok {
				missing = append(missing, unit+" of "+bench)
				return "?"
			}
			return number(v)
		})
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, figure, r.command())
	}
	return b.String(), missing
}

// number writes a figure with as many digits as a noisy machine is good for.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// write puts the text between the marks of a file.
func write(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const begin, end = "<!-- bench -->\n", "<!-- /bench -->\n"
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %q and %q, between which the table goes", file, begin, end)
	}
	return os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin + text + end), after}, nil), 0o644)
}
