package chatstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// A Problem is the event of what the owner has to know of the host's trouble.
type Problem struct {
	// Code is "files" when the files of the message could not be passed to the
	// interpreter, "not_stored" for an Answer, "figure" for a figure that is not
	// kept, and "taken" when the chat has gone on elsewhere.
	Code string `json:"code"`
	// Message says it in English.
	Message string `json:"message"`
}

// Type returns "problem".
func (Problem) Type() string { return "problem" }

var problems = map[string]Problem{
	"files":      {"files", "The files could not be passed to the interpreter. Your message is kept; continue to try again."},
	"not_stored": {"not_stored", "The answer could not be stored. Your message and the finished calls are kept; continue when the database is back."},
	"taken":      {"taken", "The chat has gone on elsewhere. Load it again."},
}

// runKey is where the context of a run has it.
type runKey struct{}

// RunFrom is the run that a context belongs to, as that of a handler does. It is for
// [Run.Hold]; do not change the Run.
func RunFrom(ctx context.Context) (*Run, bool) {
	r, ok := ctx.Value(runKey{}).(*Run)
	return r, ok
}

// ChatID is the ID of the chat whose run a context belongs to, or empty.
func ChatID(ctx context.Context) string {
	if r, ok := RunFrom(ctx); ok {
		return r.Chat
	}
	return ""
}

// Events does the run, as [fnloop.Loop.Events] would, and stores how far it gets:
// before each call starts, when one has finished, and at the end. A process that
// dies loses nothing but the text that was being written, and Take goes on. The
// loop's own Checkpoint is called after each that was stored.
//
// Figures are kept as files, and their events are [Figure]. The end has been stored
// when [fnloop.Done] comes; if that was not possible within the Store's Patience, a
// [Problem] comes before it. A Run is done once.
//
// A run is left behind, for Take or a message to go on with, when its process dies,
// when the reader breaks off, and when its context ends with the cause
// [fnloop.ErrDraining], as [fnloop.Hub.Drain] ends it.
func (r *Run) Events(ctx context.Context, loop *fnloop.Loop) iter.Seq2[fnloop.Event, error] {
	return func(yield func(fnloop.Event, error) bool) {
		if r.store == nil || r.begun {
			yield(fnloop.Done{Answer: &fnloop.Answer{Stop: fnloop.StopInvalid}}, fmt.Errorf("%w: this Run is not to be done, or not again", ErrTaken))
			return
		}
		r.begun = true
		ctx := context.WithValue(ctx, runKey{}, r)
		seen := &record{Transcript: fnloop.Transcript{View: r.store.View}, finished: make(map[string]bool)}
		if err := json.Unmarshal(r.Seen, seen); err != nil {
			r.log(ctx, "what was seen of a run cannot be read", err)
		}
		for _, c := range r.Answer.Calls { // which an earlier run has told of
			seen.finished[callKey(c)] = true
		}
		if err := r.upload(ctx); err != nil {
			r.log(ctx, "a file was not put into the work folder", err)
			kept := *r.Answer
			kept.Stop = fnloop.StopAborted
			if yield(problems["files"], nil) {
				yield(fnloop.Done{Answer: &kept}, err)
			}
			return
		}
		for e, err := range r.loop(loop, seen).Events(ctx, r.Answer, "") {
			if shown, ok := e.(interpreter.Shown); ok {
				e = r.figure(ctx, shown)
			}
			seen.add(e)
			if done, ok := e.(fnloop.Done); ok && !left(ctx, done.Answer) {
				if p := r.end(ctx, done.Answer, err, seen); p != nil && !yield(*p, nil) {
					return
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// A record has what the owner has seen of a run. A call that has finished is in it
// when its checkpoint is stored, which is before its event comes, so that nobody who
// goes on with the run has to tell of it again.
type record struct {
	fnloop.Transcript
	mu       sync.Mutex
	finished map[string]bool // by callKey
}

func callKey(c fnloop.CallResult) string { return fmt.Sprint(c.Turn, " ", c.ID) }

func (t *record) add(e fnloop.Event) {
	if e, ok := e.(fnloop.CallFinished); ok {
		t.finish(e.CallResult)
		return
	}
	t.Add(e)
}

func (t *record) finish(calls ...fnloop.CallResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range calls {
		if key := callKey(c); !t.finished[key] {
			t.finished[key] = true
			t.Add(fnloop.CallFinished{CallResult: c})
		}
	}
}

// left reports whether a run was stopped because its process ends. It stays as the
// last checkpoint has it, for another process to take.
func left(ctx context.Context, a *fnloop.Answer) bool {
	return a.Stop == fnloop.StopCancelled && errors.Is(context.Cause(ctx), fnloop.ErrDraining)
}

// loop is a copy of l that stores the run and keeps within the budget.
func (r *Run) loop(l *fnloop.Loop, seen *record) *fnloop.Loop {
	mine := *l
	mine.Checkpoint = func(ctx context.Context, a *fnloop.Answer) error {
		seen.finish(a.Calls...)
		if err := r.save(ctx, a, seen, false); err != nil {
			return err
		}
		if l.Checkpoint != nil {
			return l.Checkpoint(ctx, a)
		}
		return nil
	}
	budget := r.store.Budget
	if budget <= 0 {
		return &mine
	}
	if l.MaxTokens <= 0 || l.MaxTokens > budget {
		mine.MaxTokens = budget
	}
	// Others count where they leave less than mine.MaxTokens of their bound.
	excess := func(others, bound int64) int64 { return max(others-(bound-mine.MaxTokens), 0) }
	mine.OtherTokens = func(ctx context.Context) (int64, error) {
		used, err := r.store.tokens(ctx, r.owner, r.ID)
		if err != nil {
			return 0, err
		}
		others := excess(used+r.spent, budget)
		if l.MaxTokens > 0 && l.OtherTokens != nil {
			if used, err = l.OtherTokens(ctx); err != nil {
				return 0, err
			}
			others = max(others, excess(used, l.MaxTokens))
		}
		return others, nil
	}
	return &mine
}

// end stores the end of the run, and gives the problem of it, if there is one.
func (r *Run) end(ctx context.Context, a *fnloop.Answer, runErr error, seen *record) *Problem {
	err := r.finish(ctx, a, seen)
	if runErr != nil && !errors.Is(runErr, fnloop.ErrApproval) && !errors.Is(runErr, context.Canceled) && !errors.Is(err, ErrTaken) {
		r.log(ctx, "a run failed", runErr, "stop", a.Stop)
	}
	if err == nil {
		return nil
	}
	r.log(ctx, "an answer was not stored", err)
	p := problems["not_stored"]
	if errors.Is(err, ErrTaken) {
		p = problems["taken"]
	}
	return &p
}

func (r *Run) log(ctx context.Context, text string, err error, more ...any) {
	if r.store.Logger != nil {
		r.store.Logger.ErrorContext(ctx, text, append([]any{"chat", r.Chat, "run", r.ID, "error", err}, more...)...)
	}
}

// A Figure is the event of what a cell shows, in the form for a page. Store keeps
// pictures as files of the chat.
type Figure struct {
	// Call is the ID of the call.
	Call string `json:"call"`
	// Picture is the name of a file. HTML can hold scripts: show it in a frame that
	// runs none. Text is there when there is neither.
	Picture string `json:"picture,omitempty"`
	HTML    string `json:"html,omitempty"`
	Text    string `json:"text,omitempty"`
}

// Type returns "figure".
func (Figure) Type() string { return "figure" }

// pictures are the kinds of pictures that a page can show, the best first.
var pictures = []struct{ mime, suffix string }{{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/svg+xml", ".svg"}}

// figure stores the picture of a display.
func (r *Run) figure(ctx context.Context, d interpreter.Shown) fnloop.Event {
	for _, kind := range pictures {
		data := d.Data[kind.mime]
		if data == nil {
			continue
		}
		name := "figure-" + newID() + kind.suffix
		err := r.store.patiently(ctx, func() error { return r.store.putFile(ctx, r, File{name, data, true}) })
		if full, ok := errors.AsType[*InputError](err); ok {
			return Problem{"figure", "A figure is not shown. " + full.Reason}
		}
		if err != nil {
			r.log(ctx, "a figure was not stored", err)
			return Problem{"figure", "A figure could not be stored, so it is not shown."}
		}
		return Figure{Call: d.Call, Picture: name}
	}
	return Figure{Call: d.Call, HTML: string(d.Data["text/html"]), Text: string(d.Data["text/plain"])}
}
