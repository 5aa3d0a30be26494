package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
)

const defaultModel = "gpt-6-astra"

// options are what the command line says.
type options struct {
	args        []string // that are no flags
	model       string   // empty means that of the session, of the environment, or the default
	system      string   // empty means askpy's own instructions
	effort      string
	temperature *float64
	schema      string // a file
	files       []string
	out         string // a folder
	runner      string
	image       string // of the runner docker; empty means its default
	python      string // of the runner bubblewrap; empty means its default
	languages   []string
	packages    []string // requirements, for the runners that install some
	maxTurns    int
	timeout     time.Duration // of a program; zero means the runner's
	mcp         []string      // servers, or files of them
	http        string        // the address of askpy mcp
	given       []string      // the names of the flags that were set
	json        bool
	events      bool
	usage       bool
	record      string
	replay      string
	session     string // a name or a file
	last        bool
	private     bool
	approve     bool
	verbose     bool
	quiet       bool
	version     bool
	help        bool
}

// A group is a part of the help's list of flags.
type group struct {
	title string
	flags []string
}

var groups = []group{
	{"The question", []string{"model", "system", "effort", "temperature", "schema", "file"}},
	{"The programs", []string{"runner", "image", "python", "languages", "packages", "requirements", "timeout", "max-turns", "approve", "mcp", "out"}},
	{"The conversation", []string{"continue", "session", "private", "record", "replay"}},
	{"The server of askpy mcp", []string{"http"}},
	{"The output", []string{"json", "events", "usage", "verbose", "quiet", "version", "help"}},
}

// flagSet has the flags, which set opts. What stands in backquotes in a text is
// the name of the flag's value.
func flagSet(opts *options) *pflag.FlagSet {
	fs := pflag.NewFlagSet("askpy", pflag.ContinueOnError)
	fs.SetInterspersed(true)
	fs.StringVarP(&opts.model, "model", "m", "", "the model, by its `NAME` (default: that of the conversation, which remembers it, else $OPENAI_MODEL, else "+defaultModel+")")
	fs.StringVar(&opts.system, "system", "", "what the model is told to be and to do, in place of askpy's own `TEXT`")
	fs.StringVar(&opts.effort, "effort", "", "how long the model thinks: a `WORD` that it knows, such as low, medium or high")
	fs.Func("temperature", "how freely the model words its answer: a `NUMBER` from 0 to 2, for models that take one", func(s string) error {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= 0 && n <= 2) {
			return errors.New("give a number from 0 to 2")
		}
		opts.temperature = &n
		return nil
	})
	fs.StringVar(&opts.schema, "schema", "", "answer with JSON that fits the JSON schema in `FILE`")
	fs.StringArrayVarP(&opts.files, "file", "f", nil, "a `FILE` to go with the question, again for each: pictures and PDFs are for the model to see, any other is put into the folder of the Python interpreter")
	fs.StringVarP(&opts.out, "out", "o", "", "keep the figures and files that programs make in the folder `DIR`")
	fs.StringVarP(&opts.runner, "runner", "r", auto, "where programs run, by `NAME`: bubblewrap (namespaces of this Linux machine), docker (containers of Docker or Podman), runtime (microVMs of Runtime Cloud, which cost money), fake (nowhere, for trying things out), or auto (runtime if $RUNTIME_API_KEY is set, else bubblewrap, else docker: the first in which a first program runs)")
	fs.StringVar(&opts.image, "image", "", "the image for the runner docker, by `NAME`; it is pulled where it is missing (default "+docker.DefaultImage+")")
	fs.StringVar(&opts.python, "python", "", "the interpreter for the runner bubblewrap, by `PATH`, such as that of a virtual environment")
	fs.StringSliceVar(&opts.languages, "languages", nil, "let the model also write programs in these `LANGUAGES`, such as bash,javascript: those that the runner has are among bash, javascript, typescript, r, java and go")
	fs.Func("packages", "let programs import `PACKAGES`, such as numpy,'pandas>=2,<3': they are installed once, before the question, or at Runtime Cloud for each program; docs/packages.md has more", func(s string) error {
		opts.packages = append(opts.packages, splitPackages(s)...)
		return nil
	})
	fs.Func("requirements", "let programs import what the requirements file `FILE` names, as with --packages", func(s string) error {
		if s == "" {
			return errors.New("give the name of a file")
		}
		opts.packages = append(opts.packages, "-r "+s)
		return nil
	})
	fs.FuncP("timeout", "t", "how long one program may run: a `TIME` such as 30s (default: 10s, or 30s for runtime)", func(s string) (err error) {
		if opts.timeout, err = time.ParseDuration(s); err != nil || opts.timeout <= 0 {
			return errors.New("give a duration above zero, such as 30s or 2m")
		}
		return nil
	})
	opts.maxTurns = fnloop.DefaultMaxTurns
	fs.Func("max-turns", fmt.Sprintf("give up after `N` rounds of programs (default %d)", opts.maxTurns), func(s string) (err error) {
		if opts.maxTurns, err = strconv.Atoi(s); err != nil || opts.maxTurns < 1 {
			return errors.New("give a whole number, 1 or more")
		}
		return nil
	})
	fs.BoolVarP(&opts.approve, "approve", "a", false, "ask on the terminal before each program is run, and before each call of a server's tool")
	fs.StringArrayVar(&opts.mcp, "mcp", nil, "give the model the tools of an MCP `SERVER`, again for each: name=command with its arguments, name=https://address, or a file of servers as other programs have it; what it starts has your rights and no sandbox")
	fs.StringVar(&opts.http, "http", "", "listen at `ADDRESS`, such as 127.0.0.1:8080, instead of serving the program that has started askpy mcp; with $ASKPY_MCP_TOKEN set, clients have to send it as a bearer token")
	fs.BoolVarP(&opts.last, "continue", "c", false, "go on with the last conversation, with the model, instructions, packages and files that it had; without a prompt, finish what was interrupted")
	fs.StringVarP(&opts.session, "session", "s", "", "keep the conversation under `NAME` and go on with it the next time; with a dot or a slash in it the name is a file's")
	fs.BoolVar(&opts.private, "private", false, "keep nothing of the conversation for --continue, nor of what is typed in a chat")
	fs.StringVar(&opts.record, "record", "", "write the requests and responses to `FILE`, without keys and cookies")
	fs.StringVar(&opts.replay, "replay", "", "answer from the recording in `FILE`; programs do run, requests are not sent but have to be those of the recording, so give it the same question and files")
	fs.BoolVarP(&opts.json, "json", "j", false, "print one JSON object: the answer with its calls and usage, and with error if the run failed")
	fs.BoolVar(&opts.events, "events", false, "print what happens as it happens, a JSON object in each line")
	fs.BoolVarP(&opts.usage, "usage", "u", false, "tell how many tokens the run used")
	fs.BoolVarP(&opts.verbose, "verbose", "v", false, "show the programs and all of their output")
	fs.BoolVarP(&opts.quiet, "quiet", "q", false, "show nothing but errors")
	fs.BoolVar(&opts.version, "version", false, "print the version")
	fs.BoolVarP(&opts.help, "help", "h", false, "print this help")
	return fs
}

// A usageError is a mistake in how askpy was called. Its text names the flag,
// argument or variable, and says what to do.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// parse reads the command line. Its error is a *usageError.
func parse(args []string) (options, error) {
	var opts options
	fs := flagSet(&opts)
	if err := oneDash(fs, args); err != nil {
		return opts, err
	}
	if err := fs.Parse(args); err != nil {
		return opts, flagError(fs, err)
	}
	opts.args = fs.Args()
	if opts.version || opts.help {
		return opts, nil
	}
	var empty error
	fs.Visit(func(f *pflag.Flag) {
		opts.given = append(opts.given, f.Name)
		if f.Value.Type() == "string" && strings.TrimSpace(f.Value.String()) == "" && f.Name != "model" || f.Name == "model" && opts.model == "" {
			empty = usagef("--%s is empty; give it a value or leave it out", f.Name)
		}
	})
	given := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !fs.Changed(name) })
	}
	switch {
	case empty != nil:
		return opts, empty
	case given("http") && !slices.Contains(opts.args, mcpCommand):
		return opts, usagef("--http is for askpy mcp")
	case given("model") && !isModel(opts.model):
		return opts, usagef("--model is no name of a model; it should look like %s", defaultModel)
	case strings.ContainsFunc(opts.effort, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '_' }):
		return opts, usagef("--effort is a word, such as low, medium or high")
	case !utf8.ValidString(opts.system):
		return opts, usagef("--system is not valid UTF-8")
	case opts.runner != auto && runners[opts.runner] == nil:
		return opts, unknownRunner(opts.runner)
	case opts.image != "" && opts.runner != "docker" && opts.runner != auto:
		return opts, usagef("--image is for --runner docker")
	case len(opts.packages) > 0 && opts.runner == "fake":
		return opts, usagef("--packages and --requirements are for --runner bubblewrap, docker and runtime")
	case opts.python != "" && opts.runner != "bubblewrap" && opts.runner != auto:
		return opts, usagef("--python is for --runner bubblewrap")
	}
	for _, c := range []struct{ a, b, why string }{
		{"quiet", "verbose", " contradict each other; give one of them"},
		{"json", "events", " cannot go together; give one of them"},
		{"image", "python", " are for two runners; give one of them"},
		{"record", "replay", " cannot go together; give one of them"},
		{"session", "replay", " cannot go together: what was recorded is no conversation to go on with"},
		{"continue", "replay", " cannot go together: what was recorded is no conversation to go on with"},
		{"continue", "session", " cannot go together: a session goes on by itself"},
		{"mcp", "record", " cannot go together: what a server does is in no recording"},
		{"mcp", "replay", " cannot go together: what a server does is in no recording"},
		{"continue", "private", " contradict each other; give one of them"},
		{"session", "private", " contradict each other; give one of them"},
	} {
		if given(c.a, c.b) {
			return opts, usagef("--%s and --%s%s", c.a, c.b, c.why)
		}
	}
	return opts, nil
}

// isModel reports whether s can be the name of a model.
func isModel(s string) bool {
	return strings.TrimSpace(s) != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func unknownRunner(name string) error {
	mean := ""
	if near := closest(name, runnerNames()); near != "" {
		mean = "; did you mean " + near + "?"
	}
	return usagef("--runner: unknown runner %q; the runners are %s%s", name, strings.Join(runnerNames(), ", "), mean)
}

const dashed = `a prompt that begins with a dash goes after --, as in askpy -- "-5 + 3"`

// oneDash finds a long flag that is written with one dash: it would be read as
// short ones, of which the first may take the rest as its value.
func oneDash(fs *pflag.FlagSet, args []string) error {
	for i, arg := range args {
		if arg == "--" {
			return nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "--") || !strings.HasPrefix(arg, "-") || len(name) < 2 || fs.Lookup(name) == nil {
			continue
		}
		if i == 0 || !takesValue(fs, args[i-1]) {
			return usagef("there is no flag -%s; did you mean --%s?", name, name)
		}
	}
	return nil
}

// takesValue reports whether arg is a flag whose value is the next argument.
func takesValue(fs *pflag.FlagSet, arg string) bool {
	f := fs.Lookup(strings.TrimPrefix(arg, "--"))
	if len(arg) == 2 && arg[0] == '-' && arg[1] != '-' {
		f = fs.ShorthandLookup(arg[1:])
	}
	return f != nil && strings.HasPrefix(arg, "-") && f.NoOptDefVal == ""
}

// flagError makes an error of pflag's one for the user.
func flagError(fs *pflag.FlagSet, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + e.GetSpecifiedName()
		if short := e.GetSpecifiedShortnames(); short != "" {
			name = "-" + short
		}
		var names []string
		fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := closest(strings.TrimLeft(name, "-"), names); near != "" {
			return usagef("there is no flag %s; did you mean --%s?", name, near)
		}
		return usagef("there is no flag %s; %s", name, dashed)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		value, _ := pflag.UnquoteUsage(e.GetFlag())
		return usagef("--%s needs a value, as in --%[1]s %s", e.GetFlag().Name, value)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		why := e.Unwrap().Error()
		if e.GetFlag().Value.Type() == "bool" {
			why = "leave the value out, or give true or false"
		}
		return usagef("invalid value %q for flag --%s: %s", e.GetValue(), e.GetFlag().Name, why)
	}
	return usagef("%v; %s", err, dashed)
}

// closest is the name that s is most likely a misspelling or the beginning of,
// or empty.
func closest(s string, names []string) string {
	best, least := "", 2 // mistakes
	if len(s) > 5 {
		least = 3
	}
	for _, name := range names {
		d := distance(s, name)
		if len(s) > 2 && strings.HasPrefix(name, s) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters have to be put in, left out, replaced or
// exchanged with the next one to make b of a.
func distance(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows = [3][]int{last, row, before}
	}
	return rows[1][len(b)]
}
