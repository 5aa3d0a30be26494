package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// valuesOf are the values that a flag's completion offers: words, or what a
// command prints. Flags that take a file offer files.
var (
	valuesOf  = map[string][]string{"runner": nil, "effort": {"minimal", "low", "medium", "high"}} // runner: see completions
	fileFlags = []string{"schema", "python", "record", "replay"}
)

// sessionNames prints the names of sessions, for completion.
const sessionNames = `askpy sessions 2>/dev/null | cut -d' ' -f1`

// completion is the command that prints the completion for a shell.
func completion(args []string, w io.Writer) error {
	shells := map[string]func() string{"bash": bash, "zsh": zsh, "fish": fish}
	if len(args) != 1 || shells[args[0]] == nil {
		return usagef("name a shell, as in askpy completion bash; there are %s", strings.Join(slices.Sorted(maps.Keys(shells)), ", "))
	}
	_, err := io.WriteString(w, shells[args[0]]())
	return err
}

// flagWords are all spellings of the flags.
func flagWords() (words []string) {
	flagSet(new(options)).VisitAll(func(f *pflag.Flag) {
		words = append(words, "--"+f.Name)
		if f.Shorthand != "" {
			words = append(words, "-"+f.Shorthand)
		}
	})
	return words
}

// spellings are those of one flag, for a case of the shell.
func spellings(name string) string {
	f := flagSet(new(options)).Lookup(name)
	if f.Shorthand == "" {
		return "--" + name
	}
	return "--" + name + "|-" + f.Shorthand
}

func words(name string) []string {
	if name == "runner" {
		return runnerNames()
	}
	return valuesOf[name]
}

func commandNames() []string { return slices.Sorted(maps.Keys(commands)) }

func bash() string {
	var b strings.Builder
	b.WriteString(`# For ~/.bashrc: eval "$(askpy completion bash)"
_askpy() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
	case $prev in
`)
	for _, name := range slices.Sorted(maps.Keys(valuesOf)) {
		fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", spellings(name), strings.Join(words(name), " "))
	}
	fmt.Fprintf(&b, "\t%s|rm) COMPREPLY=($(compgen -W \"$(%s)\" -- \"$cur\")); return ;;\n", spellings("session"), sessionNames)
	fmt.Fprintf(&b, "\tcompletion) COMPREPLY=($(compgen -W 'bash fish zsh' -- \"$cur\")); return ;;\n")
	fmt.Fprintf(&b, "\tsessions) COMPREPLY=($(compgen -W 'rm' -- \"$cur\")); return ;;\n")
	fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", strings.Join(each(fileFlags, spellings), "|"))
	fmt.Fprintf(&b, `	esac
	case $cur in
	-*) COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	*) [ "$COMP_CWORD" -gt 1 ] || COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	esac
}
complete -F _askpy askpy
`, strings.Join(flagWords(), " "), strings.Join(commandNames(), " "))
	return b.String()
}

func zsh() string {
	var b strings.Builder
	b.WriteString("#compdef askpy\n# For a file _askpy in a folder of $fpath, or for ~/.zshrc: eval \"$(askpy completion zsh)\"\n_askpy() {\n\tlocal -a flags=(\n")
	flagSet(new(options)).VisitAll(func(f *pflag.Flag) {
		value, text := pflag.UnquoteUsage(f)
		text = strings.NewReplacer("[", "(", "]", ")", "'", "", ":", " -").Replace(text)
		action := ""
		if f.NoOptDefVal == "" {
			switch {
			case words(f.Name) != nil:
				action = fmt.Sprintf(":%s:(%s)", value, strings.Join(words(f.Name), " "))
			case f.Name == "session":
				action = fmt.Sprintf(":%s:($(%s))", value, sessionNames)
			case slices.Contains(fileFlags, f.Name):
				action = fmt.Sprintf(":%s:_files", value)
			default:
				action = fmt.Sprintf(":%s: ", value)
			}
		}
		if f.Shorthand != "" {
			fmt.Fprintf(&b, "\t\t'(-%s --%s)'{-%[1]s,--%[2]s}'[%s]%s'\n", f.Shorthand, f.Name, text, action)
		} else {
			fmt.Fprintf(&b, "\t\t'--%s[%s]%s'\n", f.Name, text, action)
		}
	})
	fmt.Fprintf(&b, "\t)\n\t_arguments -s $flags '1:prompt or command:(%s)' '*: : '\n}\n", strings.Join(commandNames(), " "))
	b.WriteString("if [ \"$funcstack[1]\" = _askpy ]; then _askpy \"$@\"; else compdef _askpy askpy; fi\n")
	return b.String()
}

func fish() string {
	var b strings.Builder
	b.WriteString("# For ~/.config/fish/completions/askpy.fish\ncomplete -c askpy -f\n")
	fmt.Fprintf(&b, "complete -c askpy -n __fish_is_first_token -a '%s'\n", strings.Join(commandNames(), " "))
	b.WriteString("complete -c askpy -n '__fish_seen_subcommand_from completion' -a 'bash fish zsh'\n")
	fmt.Fprintf(&b, "complete -c askpy -n '__fish_seen_subcommand_from sessions' -a 'rm (%s)'\n", sessionNames)
	flagSet(new(options)).VisitAll(func(f *pflag.Flag) {
		_, text := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, "complete -c askpy -l %s", f.Name)
		if f.Shorthand != "" {
			fmt.Fprintf(&b, " -s %s", f.Shorthand)
		}
		if f.NoOptDefVal == "" {
			switch {
			case words(f.Name) != nil:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(words(f.Name), " "))
			case f.Name == "session":
				fmt.Fprintf(&b, " -r -a '(%s)'", sessionNames)
			case slices.Contains(fileFlags, f.Name):
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
		}
		fmt.Fprintf(&b, " -d '%s'\n", strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text))
	})
	return b.String()
}

func each(list []string, f func(string) string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}
