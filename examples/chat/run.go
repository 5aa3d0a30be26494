package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// view is what a user sees of a run.
var view = fnloop.View{Outputs: true}

// A shown is what a cell shows, in the form for the page. Pictures are files of
// the chat.
type shown struct {
	Call    string `json:"call"`
	Picture string `json:"picture,omitempty"`
	HTML    string `json:"html,omitempty"`
	Text    string `json:"text,omitempty"`
}

func (shown) Type() string { return "shown" }

// A problem is what the user has to know of the server's trouble.
type problem struct {
	Message string `json:"message"`
}

func (problem) Type() string { return "problem" }

// events does a run that was begun, and stores how far it gets: before each call
// starts and when one has finished, so that a server that dies loses nothing, and
// at the end.
func (s *server) events(ctx context.Context, c chat, r run, most int64) iter.Seq2[fnloop.Event, error] {
	return func(yield func(fnloop.Event, error) bool) {
		ctx := context.WithValue(ctx, chatKey{}, c.ID)
		seen := fnloop.Transcript{View: view}
		loop := *s.loop
		loop.MaxTokens = most
		loop.Checkpoint = func(ctx context.Context, a *fnloop.Answer) error {
			return s.store.save(ctx, r.ID, a, &seen, false)
		}
		if err := s.upload(ctx, r); err != nil {
			s.log.ErrorContext(ctx, "a file was not uploaded", "chat", c.ID, "error", err)
			kept := *r.Answer
			kept.Stop = fnloop.StopAborted
			if yield(problem{"The files could not be passed to the interpreter. Your message is kept; continue to try again."}, nil) {
				yield(fnloop.Done{Answer: &kept}, err)
			}
			return
		}
		for e, err := range loop.Events(ctx, r.Answer, "") {
			if display, ok := e.(interpreter.Shown); ok {
				e = s.show(ctx, c, display)
			}
			seen.Add(e)
			if done, ok := e.(fnloop.Done); ok {
				if err != nil && !errors.Is(err, fnloop.ErrApproval) && !errors.Is(err, context.Canceled) {
					s.log.ErrorContext(ctx, "a run failed", "chat", c.ID, "stop", done.Answer.Stop, "error", err)
				}
				if err := s.saveAnswer(ctx, r, done.Answer, &seen); err != nil {
					s.log.ErrorContext(ctx, "an answer was not stored", "chat", c.ID, "error", err)
					if !yield(problem{"The answer could not be stored. Your message and the finished calls are kept; continue when the database is back."}, nil) {
						return
					}
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// upload puts the files of the prompt into the work folder.
func (s *server) upload(ctx context.Context, r run) error {
	if len(r.Prompt.Files) == 0 {
		return nil
	}
	session, release, err := s.sessions.Session(ctx, r.Answer)
	if err != nil {
		return err
	}
	defer release()
	return restore(ctx, s.store, session, r.Prompt.Files)
}

// saveAnswer stores the Answer of a run that has ended, whatever has ended it, and
// tries for a while.
func (s *server) saveAnswer(ctx context.Context, r run, a *fnloop.Answer, events *fnloop.Transcript) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		if err = s.store.save(ctx, r.ID, a, events, true); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// show stores the picture of a display. HTML can hold scripts: the page puts it
// into a frame that runs none.
func (s *server) show(ctx context.Context, c chat, d interpreter.Shown) fnloop.Event {
	for mime, suffix := range map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg"} {
		data := d.Data[mime]
		if data == nil {
			continue
		}
		_, size, err := s.store.names(ctx, c.ID)
		if err == nil && size+int64(len(data)) > maxFiles {
			return problem{fmt.Sprintf("A figure is not shown: the files of this chat have reached %d MiB.", maxFiles>>20)}
		}
		f := file{"figure-" + newID() + suffix, true, data}
		if err == nil {
			err = putFile(ctx, s.store.db, c.ID, f)
		}
		if err != nil {
			s.log.ErrorContext(ctx, "a figure was not stored", "chat", c.ID, "error", err)
			return problem{"A figure could not be stored, so it is not shown."}
		}
		return shown{Call: d.Call, Picture: f.name}
	}
	return shown{Call: d.Call, HTML: string(d.Data["text/html"]), Text: string(d.Data["text/plain"])}
}
