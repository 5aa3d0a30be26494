package runtimecloud

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
)

// A Network says what a sandbox can reach. Its zero value is nothing at all,
// which the service enforces outside the sandbox, so that it binds root there
// too. Nothing can connect to a sandbox either way.
type Network struct {
	// Internet opens the public web, or the part of it that Allow names.
	Internet bool `json:"internet"`
	// Allow, when not empty, are the only destinations: "example.com",
	// "*.example.com" (which is not example.com itself), an address or a CIDR
	// range. It needs Internet.
	Allow []string `json:"allow,omitempty"`
	// Deny are never reached, whatever Allow says.
	Deny []string `json:"deny,omitempty"`
	// Connect are pairs of host and port other than the web's 80 and 443, such
	// as "db.example.com:5432". The service offers them to paying accounts.
	Connect []string `json:"connect,omitempty"`
}

func (n Network) check(field string) error {
	if !n.Internet && len(n.Allow)+len(n.Connect) > 0 {
		return &ConfigError{Field: field, Reason: "names destinations, but Internet is false"}
	}
	for _, host := range slices.Concat(n.Allow, n.Deny, n.Connect) {
		if host == "" || strings.ContainsAny(host, " \t\r\n") || strings.Contains(host, "://") {
			return &ConfigError{Field: field, Reason: fmt.Sprintf("%q is no host, address or range", host)}
		}
	}
	return nil
}

// A Setup is a command that readies each sandbox before the program is there.
// It has a network of its own, which is closed again, and enforced to be, before
// the program is written. Whatever the command left running is ended with it.
//
// It runs for every program. Where that is too slow, put the result into an
// image and name it in [Runner.Image].
type Setup struct {
	// Argv is the command, run without a shell in /workspace.
	Argv []string
	// Network is what it can reach.
	Network Network
	// Time is how long it may run. Zero means two minutes.
	Time time.Duration
}

const (
	// defaultSetupTime is for a Setup without Time.
	defaultSetupTime = 2 * time.Minute
	// packagesTime is how long pip may take.
	packagesTime = 5 * time.Minute
)

// PipInstall gives a [Setup] that installs Python packages, such as
// "httpx==0.28.1", with nothing but PyPI's hosts in reach.
func PipInstall(packages ...string) *Setup {
	// --break-system-packages lets pip run where the system's Python is marked
	// as managed by apt, as Ubuntu's is; with --user nothing of the system is
	// touched.
	argv := []string{"python3", "-m", "pip", "install", "--user", "--break-system-packages",
		"--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet", "--"}
	return &Setup{
		Argv:    append(argv, packages...),
		Network: Network{Internet: true, Allow: []string{"pypi.org", "files.pythonhosted.org"}},
	}
}

func (s *Setup) check() error {
	switch {
	case s == nil:
		return nil
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return &ConfigError{Field: "Setup.Argv", Reason: "is empty"}
	case s.Time < 0 || s.Time > maxTime:
		return &ConfigError{Field: "Setup.Time", Reason: fmt.Sprintf("%v is not between zero and %v", s.Time, maxTime)}
	}
	return s.Network.check("Setup.Network")
}

func (s *Setup) time() time.Duration {
	if s.Time == 0 {
		return defaultSetupTime
	}
	return s.Time
}

// A plan is what readies a sandbox for code of one language.
type plan struct {
	language string
	packages *Setup   // or nil
	setups   []*Setup // packages among them
	installs bool     // the language has to be installed
	network  Network  // that the sandbox begins with
	opened   bool     // it is another than that of the code
	time     time.Duration
}

func (r *Runner) plan(language string, packages []string) plan {
	p := plan{language: cmp.Or(language, fnloop.LanguagePython), network: r.Network}
	if p.installs = r.installs(p.language); p.installs {
		p.time = installTime
	}
	if len(packages) > 0 {
		p.packages = PipInstall(packages...)
		p.packages.Time = packagesTime
		p.setups = append(p.setups, p.packages)
	}
	if r.Setup != nil {
		p.setups = append(p.setups, r.Setup)
	}
	if p.opened = p.installs || len(p.setups) > 0; !p.opened {
		return p
	}
	open := Network{}
	everything := p.installs
	for _, s := range p.setups {
		p.time += s.time()
		open.Internet = open.Internet || s.Network.Internet
		everything = everything || s.Network.Internet && len(s.Network.Allow) == 0
		open.Allow = append(open.Allow, s.Network.Allow...)
		open.Connect = append(open.Connect, s.Network.Connect...)
		open.Deny = append(open.Deny, s.Network.Deny...)
	}
	if everything {
		open.Internet, open.Allow = true, nil
	}
	p.network = open
	return p
}

// ready installs what has to be, starts an interpreter if there is to be one, and
// closes the network to what code may reach before any of it is there.
func (j *job) ready(interpreter bool) (name, process string, err error) {
	for i, s := range j.plan.setups {
		err := j.setup(s, fmt.Sprint("setup", i))
		if e, failed := errors.AsType[*SetupError](err); failed && s == j.plan.packages {
			err = &fnloop.PackageError{Field: "Packages", Reason: "pip " + e.how(), Output: lastLines(e.Output, 10)}
		}
		if err != nil {
			return "", "", err
		}
	}
	start := func() error {
		made, err := j.client.newContext(j.ctx, j.sandbox.ID, j.plan.language)
		name, process = made.ID, made.ProcessID
		return err
	}
	if interpreter && j.plan.installs {
		if err := start(); err != nil {
			return "", "", err
		}
	}
	if j.plan.opened {
		if err := j.client.setNetwork(j.ctx, j.run, j.sandbox.ID, j.runner.Network); err != nil {
			return "", "", err
		}
	}
	if interpreter && !j.plan.installs {
		err = start()
	}
	return name, process, err
}

// setup runs one command.
func (j *job) setup(s *Setup, step string) error {
	var both fnloop.Capture
	x := &execution{sandbox: j.sandbox.ID, stdout: &both, stderr: &both}
	err := j.client.exec(j.ctx, x, stepKey(j.run, step), &command{Argv: s.Argv, Cwd: workspace, TimeoutMs: s.time().Milliseconds()})
	if err == errFlood {
		err = &Error{Op: "setup", Code: codeStream, Message: "the command printed too much", Sandbox: j.sandbox.ID}
	}
	if err != nil {
		return err
	}
	if ev := x.exit; ev.TimedOut || ev.ExitCode == nil || *ev.ExitCode != 0 {
		var shown fnloop.Result
		shown.ExitCode = new(0) // so that the output has no last line of ours
		shown.SetOutput(&both, new(fnloop.Capture))
		return &SetupError{Argv: s.Argv, ExitCode: ev.ExitCode, TimedOut: ev.TimedOut, Output: shown.Stdout, Sandbox: j.sandbox.ID}
	}
	return nil
}

// isCode reports whether err is the API's refusal with that code, or with 404
// where the code is "not_found".
func isCode(err error, code string) bool {
	e, ok := asError(err)
	return ok && (e.Code == code || code == "not_found" && e.Status == http.StatusNotFound)
}
