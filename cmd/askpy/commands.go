package main

import (
	"context"
	"io"
	"slices"
)

// A command is what askpy does instead of asking when its first argument is the
// command's name. Its options have the arguments after the name, too.
type command func(ctx context.Context, opts options, env environment, stdout io.Writer) error

// commands are filled in by init, since help lists them.
var commands map[string]command

func init() {
	commands = map[string]command{
		"sessions": func(_ context.Context, opts options, env environment, stdout io.Writer) error {
			return sessions(opts.args[1:], env, stdout)
		},
		"doctor": doctor,
		"completion": func(_ context.Context, opts options, _ environment, stdout io.Writer) error {
			return completion(opts.args[1:], stdout)
		},
		"man": func(_ context.Context, opts options, _ environment, stdout io.Writer) error {
			if len(opts.args) > 1 {
				return usagef("askpy man takes no %q", opts.args[1])
			}
			_, err := io.WriteString(stdout, manual())
			return err
		},
	}
}

// afterDashes reports whether an argument stands after --, as a prompt does that
// is the name of a command.
func afterDashes(args []string, arg string) bool {
	i := slices.Index(args, "--")
	return i >= 0 && !slices.Contains(args[:i], arg)
}
