package interpreter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/excerpt"
)

// maxTold is how many names or files a text lists.
const maxTold = 40

// document is what a model reads of an Execution. Empty fields are left out.
type document struct {
	Status     Status   `json:"status"`
	Notice     string   `json:"notice,omitempty"`
	Result     string   `json:"result,omitempty"`
	Shown      []string `json:"shown,omitempty"`
	Images     int      `json:"images,omitempty"`
	Background string   `json:"background_output,omitempty"`
	Stdout     string   `json:"stdout,omitempty"`
	Stderr     string   `json:"stderr,omitempty"`
	Error      string   `json:"error,omitempty"`
	Files      []string `json:"files,omitempty"`
}

// Text is what a model reads of e: a JSON document without HTML escapes, of at
// most [fnloop.DefaultMaxOutput] bytes. Images are counted and are not in it.
func (e Execution) Text() string { return e.text() }

// text is Text with more to notice.
func (e Execution) text(notices ...string) string {
	notices = append(notices, e.Notice())
	notices = slices.DeleteFunc(notices, func(s string) bool { return s == "" })
	d := document{
		Status: e.Status, Notice: strings.Join(notices, " "),
		Background: e.Background, Stdout: e.Stdout, Stderr: e.Stderr,
	}
	for _, v := range e.Displays {
		text := string(v.Data["text/plain"])
		image := v.image()
		switch {
		case v.Main:
			d.Result = text
		case text != "" && !image:
			d.Shown = append(d.Shown, text)
		}
		if image {
			d.Images++
		}
	}
	if e.Error != nil {
		if d.Error = e.Error.Traceback; d.Error == "" {
			d.Error = e.Error.Error()
		}
	}
	for i, f := range e.Files {
		if i == maxTold {
			break
		}
		line := f.Change + " " + f.Name
		if f.Change != FileRemoved {
			line += fmt.Sprintf(" (%d bytes)", f.Size)
		}
		d.Files = append(d.Files, line)
	}
	if more := len(e.Files) - len(d.Files) + e.MoreFiles; more > 0 {
		d.Files = append(d.Files, fmt.Sprintf("and %d more", more))
	}
	return d.fit()
}

// image reports whether a model can be shown d as an image.
func (d Display) image() bool {
	_, png := d.Data["image/png"]
	_, jpeg := d.Data["image/jpeg"]
	return png || jpeg
}

// fit encodes d. Where that is too long, every text is cut to a length at which
// all of them fit.
func (d document) fit() string {
	for limit := fnloop.DefaultMaxOutput; ; limit = limit * 3 / 4 {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(d.cut(limit)) // strings and a number
		if buf.Len()-1 <= fnloop.DefaultMaxOutput {
			return strings.TrimSuffix(buf.String(), "\n")
		}
	}
}

// cut is d with no text longer than limit, about.
func (d document) cut(limit int) document {
	d.Shown, d.Files = slices.Clone(d.Shown), slices.Clone(d.Files)
	texts := []*string{&d.Notice, &d.Result, &d.Background, &d.Stdout, &d.Stderr, &d.Error}
	for i := range d.Shown {
		texts = append(texts, &d.Shown[i])
	}
	for i := range d.Files {
		texts = append(texts, &d.Files[i])
	}
	for _, t := range texts {
		s := *t
		if len(s) <= limit {
			continue
		}
		head, tail := strings.ToValidUTF8(s[:limit/2], ""), strings.ToValidUTF8(s[len(s)-limit/2:], "")
		*t = head + fmt.Sprintf(excerpt.Marker, len(s)-len(head)-len(tail)) + tail
	}
	return d
}

// Notice is what has to be known beside what the cell did, in sentences: what
// stopped it, what is gone and what is kept. It is empty when there is nothing.
func (e Execution) Notice() string {
	var s []string
	say := func(format string, args ...any) { s = append(s, fmt.Sprintf(format, args...)) }
	if l := e.Loss; l != nil && e.Status != StatusLost {
		say("Before this cell %s.", l.gone())
	}
	switch e.Status {
	case StatusTimeout:
		say("The cell was stopped at its time limit of %v.", e.Limits.Time)
	case StatusInterrupted:
		say("The cell was interrupted.")
	}
	switch {
	case e.Status == StatusLost && e.Loss != nil:
		say("%s%s. The cell was not run again.", strings.ToUpper(e.Loss.gone()[:1]), e.Loss.gone()[1:])
	case e.Restored:
		why := "it ended the interpreter"
		switch e.Cause {
		case CauseTimeout, CauseInterrupt, CauseOutput:
			why = "it did not react and the interpreter had to be killed"
		case CauseMemory:
			why = "it ran out of memory"
		}
		say("All variables are as they were before this cell, because %s. What it did to files stays. It was not run again.", why)
	}
	if e.MemoryKills > 0 {
		say("A process was killed because the session ran out of its %d MiB of memory.", e.Limits.Memory>>20)
	}
	if e.Omitted > 0 {
		say("%d more displays were not shown.", e.Omitted)
	}
	var left []string
	for _, c := range []struct {
		n    int
		what string
	}{{e.Threads, "thread"}, {e.Processes, "process"}, {e.Tasks, "asyncio task"}} {
		switch {
		case c.n == 1:
			left = append(left, "1 "+c.what)
		case c.n > 1:
			left = append(left, fmt.Sprintf("%d %s", c.n, plural(c.what)))
		}
	}
	if len(left) > 0 {
		say("Still running: %s.", strings.Join(left, ", "))
	}
	if e.Status == StatusOK && len(s) == 0 && e.silent() {
		say("The cell showed nothing. Only printed text and the value of the last expression are shown.")
	}
	return strings.Join(s, " ")
}

func plural(word string) string {
	if strings.HasSuffix(word, "ss") {
		return word + "es"
	}
	return word + "s"
}

// silent reports whether nothing at all came of the cell.
func (e Execution) silent() bool {
	return e.Stdout == "" && e.Stderr == "" && e.Background == "" && len(e.Displays) == 0 && len(e.Files)+e.MoreFiles == 0
}

// gone says what is gone and why, as a sentence without its end.
func (l *Loss) gone() string {
	why := map[Cause]string{
		CauseTimeout:   "the interpreter was stopped, because a cell did not react at its time limit",
		CauseInterrupt: "the interpreter was stopped, because a cell did not react to an interrupt",
		CauseOutput:    "the interpreter was stopped, because a cell printed without end",
		CauseMemory:    "the interpreter ran out of memory and was killed",
		CauseExit:      "the interpreter ended by itself",
		CauseSignal:    "the interpreter crashed",
		CauseSandbox:   "the interpreter's sandbox went away",
		CauseRestart:   "the interpreter was restarted",
		CauseIdle:      "the interpreter was closed, because nobody had used it for long",
		CauseEvicted:   "the interpreter was closed, because others needed its place",
		CauseHost:      "the program that kept the interpreter was restarted",
		CauseMoved:     "the conversation has moved to another machine",
	}[l.Cause]
	if why == "" {
		why = "the interpreter was replaced"
		if l.Cause != "" {
			why += " (" + string(l.Cause) + ")"
		}
	}
	if l.Detail != "" {
		why += " (" + l.Detail + ")"
	}
	why += "; a new one is ready. Variables, functions and imports of earlier cells are gone"
	if n := l.Names; len(n) > maxTold {
		why += fmt.Sprintf(" (%s and %d more)", strings.Join(n[:maxTold], ", "), len(n)-maxTold)
	} else if len(n) > 0 {
		why += " (" + strings.Join(n, ", ") + ")"
	}
	if l.FilesKept {
		return why + ", files are kept"
	}
	return why + ", and so are files"
}
