package main

import (
	"net/http"
	"strings"

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
	return env.key == "" && opts.record == "" && opts.replay == "" && opts.session == "" && strings.TrimSpace(prompt) == fixtures.FibPrompt
}

// openWire chooses the wire. Whatever is wrong with its file shows here, before
// anything is sent.
func openWire(opts options, env environment, prompt string, p *progress) (wire, error) {
	live := http.RoundTripper(watched{newTransport(), p})
	switch {
	case opts.replay != "":
		return openReplay(opts.replay, env.scrubber(), p)
	case isBuiltin(opts, env, prompt):
		p.note("OPENAI_API_KEY is not set: replaying the built-in conversation with " + defaultModel + ", with its program run anew")
		return newReplay("the built-in conversation", fixtures.Fib, env.scrubber(), p)
	case env.key == "":
		return nil, usagef("OPENAI_API_KEY is not set; set it to your key of the API (anything will do for a server that takes none), or replay a recording with --replay FILE")
	case opts.record != "":
		return newRecording(opts.record, live, env.scrubber(), p)
	}
	return direct{live}, nil
}

// direct is a wire that neither records nor replays.
type direct struct{ http.RoundTripper }

func (direct) finish(err error) error { return err }

// watched tells of the answers that are none, since the loop may try again for
// a while.
type watched struct {
	http.RoundTripper
	progress *progress
}

func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.RoundTripper.RoundTrip(req)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		hint := ""
		if res.StatusCode == http.StatusNotFound && req.URL.Path == "/responses" {
			hint = "; should OPENAI_BASE_URL end in /v1?"
		}
		w.progress.note("the API answered " + res.Status + hint)
	}
	return res, err
}
