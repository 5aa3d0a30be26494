package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fnloop/fnloop/runners/runtimecloud"
)

// An entry of the help names something and says what it is.
type entry struct{ name, text string }

const about = `Askpy asks a model a question and lets it compute the answer with Python programs, which run in a sandbox.`

var usages = []entry{
	{`askpy [flags] "prompt"`, "ask"},
	{`askpy [flags] "prompt" < data.csv`, "ask about what is on standard input, which follows the prompt"},
	{`askpy [flags] < prompt.txt`, "take the prompt from there; so does askpy -"},
	{`askpy -c ["prompt"]`, "go on with the last conversation, or finish it"},
	{`askpy chat [-c] ["prompt"]`, "ask again and again in one conversation; /help in it lists its commands"},
	{`askpy mcp [--http ADDRESS]`, "give the sandbox to other programs, as a server of the Model Context Protocol"},
	{`askpy sessions [rm NAME...]`, "list or remove the conversations that are kept"},
	{`askpy doctor`, "look at what askpy needs, and say how to get what is missing"},
	{`askpy completion SHELL`, "print the completion for bash, zsh or fish"},
	{`askpy man`, "print the manual page"},
}

var variables = []entry{
	{"OPENAI_API_KEY", `the key of the API; without one only a recording can be replayed, such as the built-in one of "compute fib(40)"`},
	{"OPENAI_BASE_URL", "the API's address (default " + defaultBaseURL + ")"},
	{"OPENAI_ORG_ID", "the organisation, if the key has several"},
	{"OPENAI_PROJECT_ID", "the project, if the key has several"},
	{"OPENAI_MODEL", "the default of --model"},
	{"RUNTIME_API_KEY", "the key of Runtime Cloud, for the runner runtime"},
	{"RUNTIME_API_URL", "its address (default " + runtimecloud.DefaultURL + ")"},
	{"DOCKER_HOST", "the engine of the runner docker (default: the one that the docker command uses)"},
	{"ASKPY_HOME", "the folder of the conversations that are kept (default: askpy in $XDG_STATE_HOME, or where the system keeps such things)"},
	{"ASKPY_IMAGES", "how the terminal shows figures: kitty, iterm, sixel or none (default: by what the terminal says that it is)"},
	{"ASKPY_MCP_TOKEN", "what clients of askpy mcp --http have to send"},
	{"NO_COLOR", "if set, no colours, and answers as the model wrote them"},
}

var statuses = []entry{
	{"0", "the model answered"},
	{"1", "the run failed"},
	{"2", "wrong usage; nothing was sent"},
	{"3", "the model wanted more rounds than --max-turns"},
	{"130", "interrupted"},
}

var examples = []string{
	`askpy "How many primes are there below ten million?"`,
	`askpy --file sales.csv --out charts "Plot the sales by month."`,
	`askpy -c "And by city?"`,
	`askpy --approve --timeout 1m "Check Goldbach's conjecture up to a million."`,
	`git log --since=2.weeks | askpy "What has changed?"`,
}

// help is the text of --help, for terminals of 80 columns.
func help() string {
	var b strings.Builder
	b.WriteString(wrap(about, 80, "") + "\n\nUsage:\n\n")
	for _, u := range usages {
		fmt.Fprintf(&b, "\t%s\n\t    %s\n", u.name, u.text)
	}
	b.WriteString("\nThe answer goes to standard output, on a terminal as it comes. Everything else\ngoes to standard error.\n")
	fs := flagSet(new(options))
	for _, g := range groups {
		b.WriteString("\n" + g.title + ":\n\n")
		for _, name := range g.flags {
			f := fs.Lookup(name)
			_, text := pflag.UnquoteUsage(f)
			b.WriteString(item(flagName(f), text, 20))
		}
	}
	list := func(title string, entries []entry, width int) {
		b.WriteString("\n" + title + ":\n\n")
		for _, e := range entries {
			b.WriteString(item(e.name, e.text, width))
		}
	}
	list("Environment", variables, 19)
	list("Exit status", statuses, 5)
	b.WriteString("\nExamples:\n\n\t" + strings.Join(examples, "\n\t") + "\n")
	return b.String()
}

// flagName is how a flag is written, as in "-m, --model NAME".
func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.NoOptDefVal == "" {
		value, _ := pflag.UnquoteUsage(f)
		name += " " + value
	}
	return name
}

// item is a name and its text in a column that begins at width, or below the
// name where that is longer.
func item(name, text string, width int) string {
	indent := strings.Repeat(" ", width)
	body := wrap(text, 70-width, "\t"+indent)
	if len(name) >= width {
		return "\t" + name + "\n\t" + indent + body + "\n"
	}
	return "\t" + name + indent[len(name):] + body + "\n"
}

// wrap breaks text into lines of at most width bytes, with prefix before all but
// the first. The help is ASCII.
func wrap(text string, width int, prefix string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n" + prefix)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
