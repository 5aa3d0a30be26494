package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
	"github.com/fnloop/fnloop/runners/runtimecloud"
)

const defaultModel = "gpt-6-astra"

const help = `Askpy asks a model a question and lets it compute the answer with Python
programs, which run in a sandbox.

Usage:

	askpy [flags] "prompt"
	askpy [flags] < prompt.txt
	askpy [flags] --session FILE

The answer goes to standard output, on a terminal as it comes. Everything else
goes to standard error.

Flags:

	--model NAME       the model (default $OPENAI_MODEL, else gpt-6-astra)
	--runner NAME      where programs run (default auto):
	                     bubblewrap  namespaces of this Linux machine
	                     docker      containers of Docker or Podman
	                     runtime     microVMs of Runtime Cloud, which cost money
	                     fake        nowhere, for trying things out
	                     auto        runtime if $RUNTIME_API_KEY is set, else
	                                 bubblewrap, else docker: the first in which
	                                 a first program runs
	--image NAME       the image for --runner docker, which is pulled where it is
	                   missing (default ` + docker.DefaultImage + `)
	--max-turns N      rounds of programs before giving up (default 8)
	--timeout TIME     how long one program may run, such as 30s (default: the
	                   runner's: 10s, or 30s for runtime)
	--json             print one JSON object: the answer with its calls and usage,
	                   and with error if the run failed
	--record FILE      write the conversation to FILE, without keys and cookies
	--replay FILE      answer from a recording; programs do run, requests are not
	                   sent but have to be those of the recording
	--session FILE     keep the conversation in FILE and go on with it the next
	                   time; without a prompt, finish what was interrupted
	--approve          ask on the terminal before each program is run
	--verbose          show the programs and their output
	--quiet            show nothing but errors
	--version          print the version
	--help             print this help

Environment:

	OPENAI_API_KEY     the key of the API; without one only a recording can be
	                   replayed, such as the built-in one of "compute fib(40)"
	OPENAI_BASE_URL    the API's address (default https://api.openai.com/v1)
	OPENAI_ORG_ID      the organisation, if the key has several
	OPENAI_PROJECT_ID  the project, if the key has several
	OPENAI_MODEL       the default of --model
	RUNTIME_API_KEY    the key of Runtime Cloud, for the runner runtime
	RUNTIME_API_URL    its address (default ` + runtimecloud.DefaultURL + `)
	DOCKER_HOST        the engine of the runner docker (default: the one that the
	                   docker command uses)
	NO_COLOR           if set, no colours

Exit status:

	0    the model answered
	1    the run failed
	2    wrong usage; nothing was sent
	3    the model wanted more rounds than --max-turns
	130  interrupted

Example:

	askpy --timeout 30s "How many primes are there below ten million?"
`

// options are what the command line says.
type options struct {
	args     []string // after the flags
	model    string
	runner   string
	image    string // of the runner docker; empty means its default
	maxTurns int
	timeout  time.Duration // of a program; zero means the runner's
	json     bool
	record   string
	replay   string
	session  string
	approve  bool
	verbose  bool
	quiet    bool
	version  bool
}

// A usageError is a mistake in how askpy was called. Its text names the flag,
// argument or variable, and says what to do.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// parse reads the command line. Its error is flag.ErrHelp or a *usageError.
func parse(args []string, getenv func(string) string) (options, error) {
	opts := options{
		model:    getenv("OPENAI_MODEL"),
		runner:   auto,
		maxTurns: fnloop.DefaultMaxTurns,
	}
	if opts.model == "" {
		opts.model = defaultModel
	}
	modelOf := "OPENAI_MODEL"
	flags := flag.NewFlagSet("askpy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&opts.model, "model", opts.model, "")
	flags.StringVar(&opts.runner, "runner", opts.runner, "")
	flags.StringVar(&opts.image, "image", "", "")
	flags.Func("max-turns", "", func(s string) (err error) {
		if opts.maxTurns, err = strconv.Atoi(s); err != nil || opts.maxTurns < 1 {
			return errors.New("give a whole number, 1 or more")
		}
		return nil
	})
	flags.Func("timeout", "", func(s string) (err error) {
		if opts.timeout, err = time.ParseDuration(s); err != nil || opts.timeout <= 0 {
			return errors.New("give a duration above zero, such as 30s or 2m")
		}
		return nil
	})
	switches := map[string]*bool{
		"json": &opts.json, "approve": &opts.approve, "verbose": &opts.verbose, "quiet": &opts.quiet, "version": &opts.version,
	}
	for name, value := range switches {
		flags.BoolFunc(name, "", func(s string) (err error) {
			if *value, err = strconv.ParseBool(s); err != nil {
				return errors.New("leave the value out, or give true or false")
			}
			return nil
		})
	}
	flags.StringVar(&opts.record, "record", "", "")
	flags.StringVar(&opts.replay, "replay", "", "")
	flags.StringVar(&opts.session, "session", "", "")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return opts, err
		}
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
			return opts, usagef("there is no flag --%s; a prompt that begins with a dash goes after --, as in askpy -- \"-5 + 3\"", name)
		}
		return opts, usagef("%s", strings.NewReplacer("flag -", "flag --", "argument: -", "argument: --", "for -", "for --").Replace(err.Error()))
	}
	opts.args = flags.Args()
	if opts.version {
		return opts, nil
	}
	var empty error
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "model" {
			modelOf = "--model"
		}
		if f.Value.String() == "" && slices.Contains([]string{"model", "runner", "image", "record", "replay", "session"}, f.Name) {
			empty = usagef("--%s is empty; give it a value or leave it out", f.Name)
		}
	})
	switch {
	case empty != nil:
		return opts, empty
	case strings.TrimSpace(opts.model) == "" || !utf8.ValidString(opts.model) || strings.ContainsFunc(opts.model, unicode.IsControl):
		return opts, usagef("%s is no name of a model; it should look like %s", modelOf, defaultModel)
	case opts.quiet && opts.verbose:
		return opts, usagef("--quiet and --verbose contradict each other; give one of them")
	case opts.record != "" && opts.replay != "":
		return opts, usagef("--record and --replay cannot go together; give one of them")
	case opts.session != "" && opts.replay != "":
		return opts, usagef("--session and --replay cannot go together: what was recorded is no conversation to go on with")
	case opts.image != "" && opts.runner != "docker":
		return opts, usagef("--image is for --runner docker")
	case opts.runner != auto && runners[opts.runner] == nil:
		return opts, usagef("--runner: unknown runner %q; the runners are %s", opts.runner, strings.Join(runnerNames(), ", "))
	}
	return opts, checkArguments(opts.args)
}

// checkArguments judges what stands after the flags.
func checkArguments(args []string) error {
	if len(args) < 2 {
		return nil
	}
	for _, arg := range args[1:] {
		if name := strings.TrimLeft(arg, "-"); name != arg && name != "" {
			return usagef("%s stands after the prompt %q; put flags before it", arg, args[0])
		}
	}
	return usagef("%d prompts, %q and %q; put the prompt in quotes", len(args), args[0], args[1])
}

// maxPrompt is the size of the longest text that the API takes, in bytes.
const maxPrompt = 10 << 20

// readPrompt takes the prompt from the command line or from standard input. It
// may be missing, and is empty then, where there is something to resume.
func readPrompt(ctx context.Context, opts options, stdin io.Reader, resume bool) (string, error) {
	const like = `give one, as in askpy "compute fib(40)"`
	where, prompt := "the prompt", ""
	if len(opts.args) > 0 {
		prompt = opts.args[0]
	} else {
		where = "the prompt on standard input"
		if f, ok := stdin.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			var err error
			if prompt, err = readAll(ctx, stdin); err != nil {
				return "", err
			}
		} else if !resume && opts.session == "" {
			return "", usagef("no prompt; %s", like)
		}
		if resume && strings.TrimSpace(prompt) == "" {
			return "", nil
		}
	}
	switch {
	case strings.TrimSpace(prompt) == "" && opts.session != "" && len(opts.args) == 0:
		return "", usagef("no prompt, and the conversation in %s has nothing to finish; %s", opts.session, like)
	case strings.TrimSpace(prompt) == "":
		return "", usagef("%s is empty; %s", where, like)
	case len(prompt) > maxPrompt:
		return "", usagef("%s is longer than the %d MiB that the API takes", where, maxPrompt>>20)
	case !utf8.ValidString(prompt):
		return "", usagef("%s is not valid UTF-8", where)
	}
	return prompt, nil
}

// readAll reads a prompt from r, or gives up when ctx ends: a read from a pipe
// cannot be called off.
func readAll(ctx context.Context, r io.Reader) (string, error) {
	var text []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = io.ReadAll(io.LimitReader(r, maxPrompt+1))
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-done:
	}
	if err != nil {
		return "", fmt.Errorf("reading the prompt from standard input: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
