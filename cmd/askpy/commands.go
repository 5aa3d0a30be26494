package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"unicode"
)

// A command is what askpy does instead of asking when its first argument is the
// command's name.
type command struct {
	// run gets the arguments after the name in opts, too. It is nil for the
	// chat, which asks, and for mcp, which reads standard input.
	run func(ctx context.Context, opts options, env environment, stdout io.Writer) error
	// anyhow says that it runs whatever is wrong with the environment.
	anyhow bool
}

const chatCommand = "chat"

// commands are filled in by init, since completion lists them.
var commands map[string]command

func init() {
	commands = map[string]command{
		chatCommand: {},
		mcpCommand:  {},
		"sessions": {run: func(_ context.Context, opts options, env environment, stdout io.Writer) error {
			return sessions(opts.args[1:], env, stdout)
		}},
		"doctor": {run: doctor},
		"completion": {anyhow: true, run: func(_ context.Context, opts options, _ environment, stdout io.Writer) error {
			return completion(opts.args[1:], stdout)
		}},
		"help": {anyhow: true, run: printer(help)},
		"man":  {anyhow: true, run: printer(manual)},
	}
}

// misspelt is the command that a prompt of one word is most likely meant to be, or
// empty. Short words are near to too many.
func misspelt(word string, args []string) string {
	if len(args) != 1 || len(word) < 5 || strings.ContainsFunc(word, unicode.IsSpace) || commands[word].run != nil {
		return ""
	}
	return closest(word, commandNames())
}

// printer makes a command that prints a text.
func printer(text func() string) func(context.Context, options, environment, io.Writer) error {
	return func(_ context.Context, opts options, _ environment, stdout io.Writer) error {
		if len(opts.args) > 1 {
			return usagef("askpy %s takes no %q", opts.args[0], opts.args[1])
		}
		_, err := io.WriteString(stdout, text())
		return err
	}
}

// afterDashes reports whether an argument stands after --, as a prompt does that
// is the name of a command.
func afterDashes(args []string, arg string) bool {
	i := slices.Index(args, "--")
	return i >= 0 && !slices.Contains(args[:i], arg)
}
