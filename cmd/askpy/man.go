package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	versions "github.com/fnloop/fnloop/internal/version"
)

// roff makes text safe within a line of a manual page.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "`", "\\`", "\n.", "\n\\&.")

// manual is the manual page, made of what the help is made of.
func manual() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH ASKPY 1 \"\" \"askpy %s\"\n.SH NAME\naskpy \\- ask a model, and let it compute with Python\n", versions.Version)
	b.WriteString(".SH SYNOPSIS\n")
	for _, u := range usages {
		fmt.Fprintf(&b, ".B %s\n.br\n", roff.Replace(u.name))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\nThe answer goes to standard output, on a terminal as it comes. Everything else goes to standard error.\n", roff.Replace(about))
	list := func(title string, entries []entry) {
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(title))
		for _, e := range entries {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(e.name), roff.Replace(e.text))
		}
	}
	list("Commands", usages)
	b.WriteString(".SH OPTIONS\n")
	fs := flagSet(new(options))
	for _, g := range groups {
		fmt.Fprintf(&b, ".SS %s\n", g.title)
		for _, name := range g.flags {
			f := fs.Lookup(name)
			_, text := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(flagName(f)), roff.Replace(text))
		}
	}
	list("Environment", variables)
	list("Exit status", statuses)
	fmt.Fprintf(&b, ".SH EXAMPLES\n.EX\n%s\n.EE\n", roff.Replace(strings.Join(examples, "\n")))
	return b.String()
}
