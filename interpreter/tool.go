package interpreter

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fnloop/fnloop"
)

// What is sent to the model of the images that cells show, where [Sessions.Upload]
// does not store them elsewhere. Such images are kept in stored Answers, and sent
// again with each request of a stateless Loop.
const (
	// MaxImageBytes is how large the images of one cell are together, and
	// MaxConversationImageBytes those of one conversation. Base64 makes a third
	// more of them.
	MaxImageBytes             = 1 << 20
	MaxConversationImageBytes = 8 << 20
)

// A Shown is the event of a display that a cell shows, while it runs. The text
// and images are as the code made them, and HTML and SVG can hold scripts: a page
// puts them into a sandboxed frame, or leaves them out.
type Shown struct {
	// Call is the ID of the call.
	Call string `json:"call"`
	// Data are the forms of the display by MIME type; in JSON they are base64.
	Data map[string][]byte `json:"data"`
	// Main marks the value of the cell's last expression.
	Main bool `json:"main,omitempty"`
}

// Type returns "shown".
func (Shown) Type() string { return "shown" }

// A FilesChanged is the event of the files that a cell has made, changed or
// removed.
type FilesChanged struct {
	// Call is the ID of the call.
	Call  string       `json:"call"`
	Files []FileChange `json:"files"`
	// More counts the changes beyond those in Files.
	More int `json:"more,omitempty"`
}

// Type returns "files_changed".
func (FilesChanged) Type() string { return "files_changed" }

func (s *Sessions) name() string {
	return cmp.Or(s.Name, s.Config.Language, fnloop.LanguagePython)
}

// python reports whether cells are in Python.
func (s *Sessions) python() bool {
	return cmp.Or(s.Config.Language, fnloop.LanguagePython) == fnloop.LanguagePython
}

// Tool is the tool with which the model runs cells: it takes code, and answers
// with what [Execution.Text] says and the images that the cell has shown. The
// events of a run have [Shown] and [FilesChanged] beside the output of the cells.
//
// Calls of one response run in the order of the calls. A cell that fails is a
// result like any other. If the
// sandbox cannot be made, the model reads only that it failed, and the error is in
// [fnloop.CallResult.Err]. The model is told which packages there are, which the
// runner is asked when the tool is first used in a Loop.
func (s *Sessions) Tool() fnloop.Tool {
	type input struct {
		Code string `json:"code" jsonschema_description:"The Python code of one cell."`
	}
	tool := fnloop.MustTool(s.name(), s.description(), func(ctx context.Context, in input) (fnloop.Output, error) {
		return s.call(ctx, in.Code)
	})
	if !s.python() {
		type input struct {
			Code string `json:"code" jsonschema_description:"The code of one cell."`
		}
		tool = fnloop.MustTool(s.name(), s.description(), func(ctx context.Context, in input) (fnloop.Output, error) {
			return s.call(ctx, in.Code)
		})
	}
	tool.Ordered = true
	tool.DescribeSandbox(s.Runner, func(env fnloop.Environment) string {
		// Those of the sessions alone are named as they were asked for.
		packages := slices.Concat(env.Packages, s.Config.Packages)
		if len(packages) == 0 || !s.python() {
			return ""
		}
		return " Beside the standard library these packages are installed: " + strings.Join(packages, ", ") + "."
	})
	return tool
}

func (s *Sessions) description() string {
	var b strings.Builder
	if s.python() {
		b.WriteString("Runs Python code in a sandboxed interpreter that stays alive for this conversation, as a notebook does:" +
			" variables, functions and imports of one call are there in the next." +
			" Use it to compute instead of guessing, and to work with the user's files." +
			" The value of the last expression is shown, and so are figures and data frames; use print for more." +
			" You can use await at the top level. input() does not work.")
	} else {
		fmt.Fprintf(&b, "Runs code in the language %s in a sandboxed interpreter that stays alive for this conversation, as a notebook does:"+
			" what one call defines is there in the next."+
			" Use it to compute instead of guessing, and to work with the user's files."+
			" What is printed is shown, and so is the value of a last expression where the language has one. Nobody answers a question for input.", s.Config.Language)
	}
	b.WriteString(" The user's files are in the current folder, and the user can get files that the code writes there." +
		" There is no network, so nothing can be installed or downloaded.")
	if t := s.Config.Limits.Time; t > 0 {
		fmt.Fprintf(&b, " A call may run for %v. A call that is stopped keeps the variables if possible; the result says whether it did.", t.Round(time.Millisecond))
	}
	if m := s.Config.Limits.Memory; m > 0 {
		fmt.Fprintf(&b, " The interpreter may use %d MiB of memory.", m>>20)
	}
	return b.String()
}

// call runs one cell in the session of the conversation.
func (s *Sessions) call(ctx context.Context, code string) (fnloop.Output, error) {
	memory, ok := fnloop.ToolStateFrom(ctx)
	if !ok {
		return fnloop.Output{}, fnloop.Abort(errors.New("interpreter: the tool of Sessions was called by something that is no fnloop.Loop"))
	}
	var st state
	if _, err := memory.Get(&st); err != nil {
		return fnloop.Output{}, fnloop.Abort(fmt.Errorf("interpreter: the state of the conversation's session cannot be read: %w", err))
	}
	sl, err := s.acquire(ctx, &st)
	if err != nil {
		return failed(ctx, err)
	}
	defer s.release(sl)

	call, _ := fnloop.CallFrom(ctx)
	cell := Cell{Source: code, Display: func(d Display) { fnloop.Emit(ctx, Shown{call.ID, d.Data, d.Main}) }}
	cell.Stdout, cell.Stderr = fnloop.LiveOutput(ctx)

	e, diverged, err := sl.run(ctx, cell, &st)
	if setErr := memory.Set(st); setErr != nil {
		return fnloop.Output{}, fnloop.Abort(setErr)
	}
	if err != nil {
		return failed(ctx, err)
	}
	if len(e.Files)+e.MoreFiles > 0 {
		fnloop.Emit(ctx, FilesChanged{call.ID, e.Files, e.MoreFiles})
	}
	if s.OnCell != nil {
		if err := s.OnCell(ctx, sl.session, e); err != nil {
			return fnloop.Output{}, fnloop.Abort(err)
		}
	}
	images, note := s.images(ctx, e, &st)
	if setErr := memory.Set(st); setErr != nil {
		return fnloop.Output{}, fnloop.Abort(setErr)
	}
	out := fnloop.Output{Text: e.text(diverged, note), Truncated: e.Truncated}
	if len(images) > 0 {
		out.Content = append([]fnloop.Content{{Text: out.Text}}, images...)
	}
	return out, nil
}

// failed is the output of a cell that was not started.
func failed(ctx context.Context, err error) (fnloop.Output, error) {
	if bad, ok := errors.AsType[*fnloop.ProgramError](err); ok {
		return fnloop.Output{Text: fmt.Sprintf("the cell was not run: %s: %s", bad.Field, bad.Reason)}, err
	}
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, ErrUnsupported), errors.Is(err, ErrClosed):
		err = fnloop.Abort(err) // no other call can work either
	default:
		err = &fnloop.RunnerError{Err: err}
	}
	return fnloop.Output{Text: "the sandbox failed, so the cell was not run; this is not a fault of the code"}, err
}

// run runs a cell and brings st up to date. It says what the model has to know
// where other cells have run since st was written: a conversation that is
// continued twice has one interpreter, and must not find out by surprise.
func (sl *slot) run(ctx context.Context, c Cell, st *state) (e Execution, diverged string, err error) {
	if err := sl.turn.enter(ctx); err != nil { // each cell is counted by itself
		return e, "", err
	}
	defer sl.turn.leave()
	if others := sl.cells - st.Cells; others > 0 {
		diverged = fmt.Sprintf("Another branch of this conversation has used the same interpreter: %s that you do not see ran before this one.", cells(others))
		var strange []string
		for _, n := range sl.names {
			if !slices.Contains(st.Names, n) {
				strange = append(strange, n)
			}
		}
		if len(strange) > maxTold {
			strange = append(strange[:maxTold], "and others")
		}
		if len(strange) > 0 {
			diverged += " It may have changed any variable, and has defined " + strings.Join(strange, ", ") + "."
		} else {
			diverged += " It may have changed any variable."
		}
	}
	e, err = sl.session.Run(ctx, c)
	if e.Status == "" { // it was not started
		return e, "", err
	}
	sl.cells++
	sl.names = e.Names
	st.Cells, st.Names, st.Kept = sl.cells, bounded(e.Names), sl.session.Ref()
	return e, diverged, nil // what it did until it was stopped is its result
}

func cells(n int) string {
	if n == 1 {
		return "1 cell"
	}
	return fmt.Sprintf("%d cells", n)
}

// images are the images of a cell as the model gets them, and what to tell it of
// those that it does not get.
func (s *Sessions) images(ctx context.Context, e Execution, st *state) (parts []fnloop.Content, note string) {
	size, left := 0, 0
	for _, d := range e.Displays {
		mime := "image/png"
		data := d.Data[mime]
		if data == nil {
			mime = "image/jpeg"
			data = d.Data[mime]
		}
		switch {
		case data == nil:
		case s.NoImages:
			left++
		case s.Upload != nil:
			part, err := s.Upload(ctx, mime, data)
			if err != nil {
				left++
				continue
			}
			parts = append(parts, part)
		case size+len(data) > MaxImageBytes || st.Images+size+len(data) > MaxConversationImageBytes:
			left++
		default:
			size += len(data)
			parts = append(parts, fnloop.Content{ImageURL: "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data), Detail: "auto"})
		}
	}
	st.Images += size
	if left > 0 {
		note = fmt.Sprintf("The user sees all images. You cannot see %d of them.", left)
	}
	return parts, note
}
