package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
)

// A slash is a command of the chat.
type slash struct {
	name, argument, text string
	run                  func(q *question, argument string) error
}

// slashes are filled in by init, since one of them lists them.
var slashes []slash

func init() {
	slashes = []slash{
		{"/file", "[PATH]", "send a file with the next prompt; without a path, list what goes with it", (*question).attach},
		{"/model", "[NAME]", "ask another model from now on", (*question).setModel},
		{"/approve", "[on|off]", "ask before each program is run, or do not", (*question).setApprove},
		{"/tools", "", "say what the model can use, and where programs run", (*question).tell},
		{"/undo", "", "take the last prompt and its answer back; what programs did stays", (*question).undo},
		{"/history", "", "show the conversation", (*question).history},
		{"/usage", "", "say how many tokens this chat has used, and how full the conversation is", (*question).usage},
		{"/help", "", "show this list", (*question).slashHelp},
		{"/quit", "", "end the chat; so does Ctrl-D", func(*question, string) error { return errLeft }},
	}
}

// slash runs a command of the chat.
func (q *question) slash(name, argument string) error {
	var names []string
	for _, s := range slashes {
		if names = append(names, s.name); s.name != name && !(name == "/exit" && s.name == "/quit") {
			continue
		}
		if argument != "" && s.argument == "" {
			return usagef("%s takes no %q", s.name, argument)
		}
		return s.run(q, argument)
	}
	if near := closest(name, names); near != "" {
		return usagef("there is no command %s; did you mean %s?", name, near)
	}
	return usagef("there is no command %s; /help lists them, and a prompt that begins with a slash goes after a blank", name)
}

// print shows what a command was asked for.
func (q *question) print(format string, args ...any) error {
	_, err := fmt.Fprint(q.stderr, terminal.Printable(fmt.Sprintf(format, args...)))
	return err
}

func (q *question) slashHelp(string) error {
	var b strings.Builder
	for _, s := range slashes {
		b.WriteString(item(strings.TrimSpace(s.name+" "+s.argument), s.text, 20))
	}
	b.WriteString("\tA backslash at the end of a line goes on in the next; so does what is pasted.\n\tCtrl-C stops the answer and keeps the chat.\n")
	return q.print("%s", strings.ReplaceAll(b.String(), "\t", "  "))
}

// attach sends a file with the next prompt.
func (q *question) attach(path string) error {
	if path == "" && len(q.attached) == 0 {
		return q.print("no file goes with the next prompt; /file PATH adds one\n")
	}
	if path != "" {
		path = expand(path)
		paths := []string{path}
		for _, a := range q.attached {
			paths = append(paths, a.path)
		}
		all, err := readAttachments(paths)
		if err != nil {
			return usagef("%s", strings.ReplaceAll(err.Error(), "--file", "/file"))
		}
		data := slices.ContainsFunc(all, func(a attachment) bool { return a.part == nil })
		if data && q.sessions == nil {
			return usagef("/file %s: data needs an interpreter that stays alive, which this runner cannot keep", path)
		}
		q.attached = append(q.attached, all[0])
	}
	for _, a := range q.attached {
		what := "for the model to see"
		if a.part == nil {
			what = "for the Python interpreter"
		}
		if err := q.print("goes with the next prompt: %s (%d bytes), %s\n", a.path, a.size, what); err != nil {
			return err
		}
	}
	return nil
}

// expand is a path as a shell would have it: without quotes, and with the home
// folder for a tilde.
func expand(path string) string {
	if n := len(path) - 1; n > 0 && path[0] == path[n] && (path[0] == '"' || path[0] == '\'') {
		path = path[1:n]
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// setModel asks another model from now on.
func (q *question) setModel(name string) error {
	if name != "" {
		if !isModel(name) {
			return usagef("/model %s is no name of a model; it should look like %s", name, defaultModel)
		}
		q.opts.model = name
		q.recall()
		if q.session != nil && q.last != nil {
			if err := q.store(q.last); err != nil {
				return err
			}
		}
	}
	return q.print("the model is %s\n", q.opts.model)
}

func (q *question) setApprove(word string) error {
	switch word {
	case "on":
		if q.approver == nil {
			return usagef("/approve on: there is no terminal to ask on")
		}
		q.opts.approve = true
	case "off":
		q.opts.approve = false
	case "":
	default:
		return usagef("/approve takes on or off, and no %q", word)
	}
	if q.opts.approve {
		return q.print("you are asked before a program is run\n")
	}
	return q.print("programs are run without asking\n")
}

// tell says what the model can use.
func (q *question) tell(string) error {
	loop := q.loop(q.wire)
	for _, t := range loop.Tools {
		first, _, _ := strings.Cut(strings.TrimSpace(t.Description), "\n")
		first, _, _ = strings.Cut(first, ". ")
		if err := q.print("%s\n", wrap(t.Name+": "+strings.TrimSuffix(first, "."), 76, "    ")); err != nil {
			return err
		}
	}
	if err := q.print("programs run in %s\n", runnerName(q.runner)); err != nil {
		return err
	}
	return q.setApprove("")
}

// undo takes the last prompt and its answer back.
func (q *question) undo(string) error {
	m, ok := q.notes.Undo(q.last)
	if !ok {
		return q.print("there is nothing to take back\n")
	}
	q.last = m.Before
	if err := q.store(q.last); err != nil {
		return err
	}
	return q.print("took back: %s\n", title(cmp.Or(m.Prompt, "a prompt with files alone")))
}

// history shows the conversation.
func (q *question) history(string) error {
	if q.last == nil || len(q.last.History()) == 0 {
		return q.print("nothing was said yet\n")
	}
	for _, e := range q.last.History() {
		text := strings.TrimSpace(e.Text)
		switch {
		case e.Call != nil:
			text = fmt.Sprintf("[%s]", e.Call.Name)
		case e.Role == "user":
			text = "> " + strings.ReplaceAll(text, "\n", "\n  ")
		}
		for _, p := range e.Parts {
			text += fmt.Sprintf("\n  [%s]", cmp.Or(p.FileName, "picture"))
		}
		if text == "" {
			continue
		}
		if e.Unanswered {
			text += "\n  (not answered)"
		}
		if err := q.print("%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

// usage says what the chat has used.
func (q *question) usage(string) error {
	if q.used == nil {
		q.used = new(fnloop.Answer)
	}
	text := usageLine(q.used)
	if q.last != nil && q.last.ContextTokens > 0 {
		text += fmt.Sprintf("; the conversation has %d tokens", q.last.ContextTokens)
	}
	return q.print("%s\n", text)
}

// completeLine gives what may stand for the last word of a line: a command, or a file
// after /file.
func completeLine(line string) []string {
	name, argument, more := strings.Cut(line, " ")
	var words []string
	switch {
	case !more && strings.HasPrefix(name, "/"):
		for _, s := range slashes {
			word := s.name
			if s.argument != "" {
				word += " "
			}
			words = append(words, word)
		}
	case name == "/approve":
		words = []string{"on", "off"}
	case name == "/file":
		found, err := filepath.Glob(glob.Replace(expand(argument)) + "*")
		if err != nil {
			return nil
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				path += string(filepath.Separator)
			}
			// The editor completes what follows the last blank.
			words = append(words, strings.TrimPrefix(path, argument[:strings.LastIndexByte(argument, ' ')+1]))
		}
	}
	return words
}

// glob keeps what is typed from being a pattern.
var glob = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
