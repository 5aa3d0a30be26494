package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/docker"
)

// A finding is what the doctor says of one thing.
type finding struct {
	what string
	ok   bool
	is   string
	mend string // what to do; may be empty
}

// errSick means that askpy cannot answer a question as things are.
var errSick = errors.New("askpy cannot answer questions here; the list above says what to do")

// doctor is the command that looks at what askpy needs. Neither the request
// that it sends nor the sandboxes that it starts cost anything.
func doctor(ctx context.Context, opts options, env environment, stdout io.Writer) error {
	if len(opts.args) > 1 {
		return usagef("askpy doctor takes no %q", opts.args[1])
	}
	api := checkAPI(ctx, env)
	runners := []finding{checkBubblewrap(ctx, opts), checkDocker(ctx, opts), checkRuntime(env)}
	var b strings.Builder
	usable := false
	for _, f := range append(append([]finding{api}, runners...), checkHome(env)) {
		mark := "ok      "
		if !f.ok {
			mark = "missing "
		}
		fmt.Fprintf(&b, "%s%-12s%s\n", mark, f.what, strings.ReplaceAll(f.is, "\n", "\n                    "))
		if f.mend != "" {
			fmt.Fprintf(&b, "                    -> %s\n", f.mend)
		}
	}
	for _, name := range candidates { // as auto tries them
		i := slices.IndexFunc(runners, func(f finding) bool { return f.what == name })
		if usable = i >= 0 && runners[i].ok; usable {
			fmt.Fprintf(&b, "Programs run in %s, unless --runner names another.\n", name)
			break
		}
	}
	if !usable {
		b.WriteString("One of bubblewrap, docker and runtime is enough.\n")
	}
	if _, err := io.WriteString(stdout, terminal.Printable(env.scrubber().Hide(cliWords.Replace(b.String())))); err != nil {
		return err
	}
	if !api.ok || !usable {
		return errSick
	}
	return nil
}

// checkAPI sends a request that asks for nothing. An API with the right key
// refuses that as a bad request, at no cost.
func checkAPI(ctx context.Context, env environment) finding {
	f := finding{what: "API"}
	if env.key == "" {
		f.is, f.mend = "OPENAI_API_KEY is not set", "export OPENAI_API_KEY=your key"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := env.baseURL.JoinPath("responses")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url.String(), strings.NewReader("{}"))
	if err != nil {
		f.is = err.Error()
		return f
	}
	req.Header.Set("Authorization", "Bearer "+env.key)
	req.Header.Set("Content-Type", "application/json")
	transport := newTransport()
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		f.is, f.mend = fmt.Sprintf("%s: %v", env.baseURL.Redacted(), err), "is OPENAI_BASE_URL right, and does the network reach it?"
		return f
	}
	res.Body.Close()
	f.is = fmt.Sprintf("%s answers %s", url.Redacted(), res.Status)
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		f.ok, f.is = true, env.baseURL.Redacted()+" answers and takes the key"
	case http.StatusUnauthorized, http.StatusForbidden:
		f.mend = "is OPENAI_API_KEY right, and is it a key of this server? export OPENAI_API_KEY=your key sets another"
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.mend = "the server is there but has no time; try again later"
	default:
		f.mend = "this is not the Responses API; is OPENAI_BASE_URL right? most of them end in /v1"
		if path.Base(env.baseURL.Path) != "v1" {
			f.mend += ": export OPENAI_BASE_URL=" + env.baseURL.JoinPath("v1").Redacted()
		}
	}
	return f
}

// packages are those that models like to use, with what pip calls them.
var packages = []string{"numpy", "pandas", "matplotlib", "scipy", "sympy"}

func checkBubblewrap(ctx context.Context, opts options) finding {
	f := finding{what: "bubblewrap"}
	r := &bubblewrap.Runner{Python: opts.python}
	defer r.Close() //nolint:errcheck // what it finds wrong is found before
	protection, err := r.Protection(ctx)
	if err != nil {
		f.is = err.Error()
		if e, ok := errors.AsType[*bubblewrap.Error](err); ok {
			f.is, f.mend = "there is no "+e.Missing, e.Advice
			if e.Err != nil {
				f.is += ": " + e.Err.Error()
			}
		}
		return f
	}
	f.ok = true
	f.is = fmt.Sprintf("version %s with Python %s (%s)", protection.Version, protection.PythonVersion, protection.Python)
	for _, s := range protection.Missing {
		f.is += "\n" + s
	}
	if protection.NotForked != "" {
		f.is += "\neach program starts an interpreter, which takes longer than to fork one: " + protection.NotForked
	}
	if lacks := f.packages(ctx, r); len(lacks) > 0 {
		f.mend = "askpy --packages " + strings.Join(lacks, ",") + " lets programs import them"
	}
	return f
}

// packages adds which packages the programs of a runner have, and gives those that
// they lack.
func (f *finding) packages(ctx context.Context, r fnloop.Runner) (lacks []string) {
	has, lacks := findPackages(ctx, r)
	if len(has) > 0 {
		f.is += "\nprograms can import " + strings.Join(has, ", ")
	}
	if len(lacks) > 0 {
		f.is += "\nprograms cannot import " + strings.Join(lacks, ", ")
	}
	return lacks
}

// findPackages asks a sandbox which packages it has.
func findPackages(ctx context.Context, r fnloop.Runner) (has, lacks []string) {
	names, err := json.Marshal(packages)
	if err != nil {
		return nil, nil
	}
	res, err := r.Run(ctx, fnloop.Program{
		Source: "import importlib.util, json\nfor name in json.loads('" + string(names) + "'):\n    if importlib.util.find_spec(name): print(name)",
	})
	if err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
		return nil, nil
	}
	found := strings.Fields(res.Stdout)
	for _, name := range packages {
		if len(found) > 0 && found[0] == name {
			has, found = append(has, name), found[1:]
		} else {
			lacks = append(lacks, name)
		}
	}
	return has, lacks
}

// checkDocker pulls nothing.
func checkDocker(ctx context.Context, opts options) finding {
	f := finding{what: "docker"}
	r := &docker.Runner{Image: opts.image}
	defer r.Close() //nolint:errcheck // what it finds wrong is found before
	image := r.Image
	if image == "" {
		image = docker.DefaultImage
	}
	err := r.Probe(ctx)
	e, ok := errors.AsType[*docker.Error](err)
	switch {
	case err == nil:
		f.ok, f.is = true, "programs run in the image "+image
		if lacks := f.packages(ctx, r); len(lacks) > 0 {
			f.mend = "askpy --runner docker --packages " + strings.Join(lacks, ",") + " lets programs import them; --image names another image"
		}
	case errors.Is(err, docker.ErrNoImage):
		f.ok, f.is, f.mend = true, "the engine answers, and the image "+image+" is not there yet", "askpy pulls it for the first program; docker pull "+image+" does so now"
	case ok:
		f.is, f.mend = e.Err.Error(), e.Advice
	default:
		f.is = err.Error()
	}
	return f
}

// checkRuntime runs nothing there: it would cost money.
func checkRuntime(env environment) finding {
	if env.runtimeKey == "" {
		return finding{what: "runtime", is: "RUNTIME_API_KEY is not set", mend: "export RUNTIME_API_KEY=your key, if you have an account of Runtime Cloud"}
	}
	return finding{what: "runtime", ok: true, is: "RUNTIME_API_KEY is set; it was not tried, since a sandbox costs money"}
}

// checkHome tries to write where conversations are kept.
func checkHome(env environment) finding {
	f := finding{what: "sessions", is: env.home, mend: "export ASKPY_HOME=a folder that can be written to"}
	if env.home == "" {
		f.is = "there is no folder to keep conversations in"
		return f
	}
	err := os.MkdirAll(env.home, 0o700)
	if err == nil {
		var file *os.File
		if file, err = os.CreateTemp(env.home, ".doctor-"); err == nil {
			file.Close()
			err = os.Remove(file.Name())
		}
	}
	if err != nil {
		f.is = fmt.Sprintf("%s cannot be written to: %v", filepath.Clean(env.home), cause(err))
		return f
	}
	f.ok, f.mend = true, ""
	return f
}
