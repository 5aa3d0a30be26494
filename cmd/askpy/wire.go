package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/fnloop/fnloop/cmd/askpy/internal/recording"
	"github.com/fnloop/fnloop/cmd/askpy/internal/terminal"
	"github.com/fnloop/fnloop/fixtures"
)

// A wire carries the requests to the API, or to what stands in for it.
type wire interface {
	http.RoundTripper
	// finish is called once the run is over, with its error. It returns the
	// error that the user should see.
	finish(err error) error
}

// isBuiltin reports whether the built-in conversation answers the prompt.
func isBuiltin(opts options, env environment, prompt string) bool {
	return env.key == "" && opts.record == "" && opts.replay == "" && opts.session == "" && opts.out == "" && len(opts.files) == 0 &&
		strings.TrimSpace(prompt) == fixtures.FibPrompt
}

// openWire chooses the wire. Whatever is wrong with its file shows here, before
// anything is sent.
func openWire(opts options, env environment, prompt string, p *terminal.Progress) (wire, error) {
	live := newTransport()
	switch {
	case opts.replay != "":
		player, err := recording.Open(opts.replay, env.scrubber())
		if _, unread := errors.AsType[*fs.PathError](err); unread {
			return nil, usagef("--replay %s: the file cannot be read: %v", opts.replay, cause(err))
		}
		if err != nil {
			return nil, usagef("--replay %s: %v", opts.replay, err)
		}
		p.Note("replaying " + opts.replay + ": no request is sent")
		return replayed{player, opts.replay, p}, nil
	case isBuiltin(opts, env, prompt):
		const name = "the built-in conversation"
		p.Note("OPENAI_API_KEY is not set: replaying " + name + " with " + defaultModel + ", with its program run anew")
		player, err := recording.Parse(name, fixtures.Fib, env.scrubber())
		return replayed{player, name, p}, err
	case env.key == "":
		return nil, usagef("OPENAI_API_KEY is not set; set it to your key of the API (anything will do for a server that takes none), replay a recording with --replay FILE, or try askpy %q, which is recorded", fixtures.FibPrompt)
	case opts.record != "":
		recorder, err := recording.Create(opts.record, live, env.scrubber())
		switch {
		case errors.Is(err, fs.ErrExist):
			return nil, usagef("--record %s: the file exists already; remove it or name another", opts.record)
		case err != nil:
			return nil, usagef("--record %s: the file cannot be written: %v", opts.record, cause(err))
		}
		return recorded{recorder, opts.record, p}, nil
	}
	return direct{live}, nil
}

// replayed is a wire that answers from a recording.
type replayed struct {
	*recording.Player
	name     string
	progress *terminal.Progress
}

func (r replayed) finish(err error) error {
	if unknown := r.Err(); unknown != nil {
		return unknown
	}
	if left, all := r.Left(); 0 < left && left < all {
		r.progress.Note(fmt.Sprintf("%d of the %d requests in %s were not made", left, all, r.name))
	}
	return err
}

// recorded is a wire that writes a recording.
type recorded struct {
	*recording.Recorder
	name     string
	progress *terminal.Progress
}

func (r recorded) finish(err error) error {
	requests, saved := r.Close()
	switch {
	case saved != nil:
		return errors.Join(err, fmt.Errorf("the recording %s could not be written: %w", r.name, cause(saved)))
	case requests > 0:
		r.progress.Note(fmt.Sprintf("recorded in %s, requests: %d", r.name, requests))
	}
	return err
}

// direct is a wire that neither records nor replays.
type direct struct{ http.RoundTripper }

func (direct) finish(err error) error { return err }
