package responsestest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// A Turn is what the scripted model sees of a request: the conversation up to it and what it allows.
type Turn struct {
	// Request is the request as it came.
	Request Request

	// Model and Instructions are those of the request.
	Model, Instructions string

	// Input is the effective input: the items of the conversation so far, then those of the request.
	Input []json.RawMessage

	// New is the part of Input that came with the request.
	New []json.RawMessage

	// Tools names the functions and custom tools that the model may call.
	Tools []string

	// Round is how many completed answers of the model the conversation holds.
	Round int

	ctx context.Context
	key string
}

// Context is done when the client goes away or the server is closed.
func (t *Turn) Context() context.Context { return t.ctx }

// Prompt returns the text of the last message of the user.
func (t *Turn) Prompt() string {
	for _, raw := range slices.Backward(t.Input) {
		o, _ := decodeObject(raw)
		if o.str("role") == "user" {
			return contentText(o["content"])
		}
	}
	return ""
}

// Output returns the output that the conversation holds for a call, and whether there is one. Of an array
// of parts it is the texts.
func (t *Turn) Output(callID string) (string, bool) {
	for _, raw := range slices.Backward(t.Input) {
		o, _ := decodeObject(raw)
		if o.has("output") && o.str("call_id") == callID {
			return contentText(o["output"]), true
		}
	}
	return "", false
}

// Outputs returns the outputs of the calls since the last message of the user, in
// order. Of an array of parts an output is the texts.
func (t *Turn) Outputs() []string {
	var outputs []string
	for _, raw := range t.Input {
		o, _ := decodeObject(raw)
		if o.str("role") == "user" {
			outputs = nil
		} else if o.has("output") {
			outputs = append(outputs, contentText(o["output"]))
		}
	}
	return outputs
}

// contentText returns a string, or the texts of an array of parts.
func contentText(v json.RawMessage) string {
	var text string
	if kindOf(v) == kindString {
		_ = json.Unmarshal(v, &text)
		return text
	}
	for _, e := range elements(v) {
		part, _ := decodeObject(e)
		text += part.str("text")
	}
	return text
}

// PerConversation is a script within a script: every conversation plays these replies from the first on,
// however many conversations run at once. The place in the script is the number of completed answers that
// the conversation holds, so it can also be forked or go back. A reply that completes nothing, such as
// [ServerError] or a cut one, is played once for each distinct request before the next one, which is how a
// client that tries again gets on. A conversation that goes on after the last reply is an error of the
// script.
func PerConversation(script ...Reply) Reply {
	var (
		mu     sync.Mutex
		played = make(map[string]int) // by place and request
	)
	// Each step ends with a reply that completes, and begins with those before it that do not.
	var steps [][]Reply
	begin := 0
	for i := range script {
		// After an answer that it did not get, a client sends the same request again.
		if completes(&script[i]) && script[i].Cut.whole() || i == len(script)-1 {
			steps = append(steps, script[begin:i+1])
			begin = i + 1
		}
	}
	return Always(func(t *Turn) Reply {
		if t.Round >= len(steps) {
			return Reply{exhausted: true}
		}
		step := steps[t.Round]
		if len(step) == 1 {
			return step[0]
		}
		mu.Lock()
		defer mu.Unlock()
		n := played[t.key]
		played[t.key]++
		return step[min(n, len(step)-1)]
	})
}

// completes reports whether the reply is a completed answer, as far as can be known before it is played.
func completes(r *Reply) bool {
	return r.Func != nil || r.Raw == nil && (r.Cut.whole() || r.Cut == Unsent) && (r.Status == "" || r.Status == "completed")
}

// A script hands out replies and keeps what went wrong with them.
type script struct {
	mu      sync.Mutex
	replies []Reply
	next    int
	faults  []error
}

// take returns the next reply and its place in the script.
func (s *script) take() (Reply, int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= len(s.replies) {
		return Reply{exhausted: true}, s.next, false
	}
	r, i := s.replies[s.next], s.next
	if !r.always {
		s.next++
	}
	return r, i, true
}

// fail records an error of the script and returns it as an answer that no client tries again.
func (s *script) fail(code, format string, args ...any) *refusal {
	err := fmt.Errorf("responsestest: "+format, args...)
	s.mu.Lock()
	s.faults = append(s.faults, err)
	s.mu.Unlock()
	return &refusal{
		Status: http.StatusInternalServerError,
		Header: http.Header{"X-Should-Retry": {"false"}},
		Body:   errorBody{Message: err.Error(), Type: "server_error", Code: &code},
	}
}

func (s *script) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := slices.Clone(s.faults)
	unused := 0
	for _, r := range s.replies[s.next:] {
		if !r.always {
			unused++
		}
	}
	if unused > 0 {
		errs = append(errs, fmt.Errorf("responsestest: %d of %d replies of the script were not asked for", unused, len(s.replies)))
	}
	return errors.Join(errs...)
}

// misfit says why a reply cannot answer the request, or returns "". What a model cannot do, because the
// request does not let it, is an error of the test: nothing of a request is inherited by the next one.
func misfit(req *request, offered map[string]tool, output []*item, r *Reply) string {
	if r.Forced {
		return ""
	}
	calls := 0
	refused := false
	for _, it := range output {
		if o := it.fields; it.kind == "message" && len(elements(o["content"])) > 0 {
			part, _ := decodeObject(elements(o["content"])[0])
			refused = refused || part.str("type") == "refusal"
		}
		if !it.calls() {
			continue
		}
		calls++
		if it.kind == "function_call" || it.kind == "custom_tool_call" {
			t, ok := offered[it.name]
			switch {
			case !ok && len(offered) == 0:
				return fmt.Sprintf("calls the tool %q, but the request offers no tools (they are not inherited)", it.name)
			case !ok:
				return fmt.Sprintf("calls the tool %q, which the request does not offer", it.name)
			case t.custom != (it.kind == "custom_tool_call"):
				return fmt.Sprintf("calls the tool %q by a %s, which it is not declared for", it.name, it.kind)
			case !req.choice.allows(it.name):
				return fmt.Sprintf("calls the tool %q, which the tool_choice of the request does not allow", it.name)
			}
		} else if req.choice.mode == "none" {
			return fmt.Sprintf("holds a %s, but the tool_choice of the request is none", it.kind)
		}
	}
	switch {
	case calls > 1 && !req.parallel:
		return fmt.Sprintf("makes %d calls, but the request says parallel_tool_calls: false", calls)
	case calls == 0 && !refused && completes(r) && req.choice.forces():
		return "makes no call, but the tool_choice of the request asks for one"
	}
	return ""
}
