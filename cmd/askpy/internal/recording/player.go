package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
)

// A Player answers requests from a recording.
//
// A request is known when an exchange that was not yet played has the same
// method, the same last element of the path and a body that means the same as
// JSON. Three things are not compared: the headers, the descriptions of tools,
// which tell the version of Python and the limits of whatever runner is at hand,
// and whether a stream is asked for: the answer is read in either form. Of
// pictures it is compared what they show: another version of a library stores the
// same picture in other bytes.
type Player struct {
	name  string // for messages
	scrub Scrubber

	mu       sync.Mutex
	cassette *cassette.Cassette
	unknown  error // the first request that was not known
}

// Open makes a Player of a file.
func Open(name string, scrub Scrubber) (*Player, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, string(data), scrub)
}

// Parse makes a Player of what a file has in it. The name is for messages.
func Parse(name, data string, scrub Scrubber) (*Player, error) {
	c, err := cassette.LoadWithFS(name, inMemory(data))
	switch {
	case strings.TrimSpace(data) == "":
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, errors.New("the file is not a recording of askpy --record") // the reason names types of Go
	case len(c.Interactions) == 0 || slices.Contains(c.Interactions, nil):
		return nil, errors.New("the file is not a recording of askpy --record: it has no requests")
	}
	return &Player{name: name, scrub: scrub, cassette: c}, nil
}

// inMemory makes go-vcr read from memory.
type inMemory string

func (m inMemory) ReadFile(string) ([]byte, error) { return []byte(m), nil }
func (m inMemory) WriteFile(string, []byte) error  { return errors.ErrUnsupported }
func (m inMemory) IsFileExists(string) bool        { return true }

// RoundTrip answers a request that the recording has, and refuses any other.
func (r *Player) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	var sent bytes.Buffer
	if req.Body != nil {
		_, err := sent.ReadFrom(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	made := exchange{req.Method, path.Base(req.URL.Path), r.scrub.clean(sent.String())}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.cassette.Matcher = func(_ *http.Request, recorded cassette.Request) bool {
		return len(differences(recordedRequest(recorded), made)) == 0
	}
	found, err := r.cassette.GetInteraction(&http.Request{Method: req.Method, URL: req.URL})
	if err != nil {
		if r.unknown == nil {
			r.unknown = r.describe(made)
		}
		return refusal(req), nil
	}
	res, err := found.GetHTTPResponse()
	if err != nil {
		return nil, err
	}
	res.Request = req
	res.Header = maps.Clone(res.Header)
	if res.Header == nil {
		res.Header = http.Header{}
	}
	if res.StatusCode >= http.StatusBadRequest { // nobody has to wait for a recording
		res.Header.Set("Retry-After-Ms", "0")
	}
	return res, nil
}

// refusal answers a request that is not known. An error of the wire would not
// do: the loop would take it for one of the network and try again.
func refusal(req *http.Request) *http.Response {
	return &http.Response{
		Status: "400 Bad Request", StatusCode: http.StatusBadRequest,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}, "X-Should-Retry": {"false"}},
		Body:    io.NopCloser(strings.NewReader(`{"error":{"code":"unknown_request","message":"the recording does not have this request"}}`)),
		Request: req,
	}
}

func recordedRequest(r cassette.Request) exchange {
	return exchange{r.Method, path.Base(r.URL), r.Body}
}

// describe says how a request differs from the recorded one that is closest to
// it, of those that are left.
func (r *Player) describe(made exchange) error {
	var closest []difference
	number := 0
	for i, recorded := range r.cassette.Interactions {
		if recorded.WasReplayed() {
			continue
		}
		if d := differences(recordedRequest(recorded.Request), made); number == 0 || len(d) < len(closest) {
			closest, number = d, i+1
		}
	}
	n := len(r.cassette.Interactions)
	if number == 0 {
		return fmt.Errorf("%s ends after %d requests, but one more was made:\n  %s", r.name, n, clip(made.body, 0))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s does not have the request that was made; the closest to it, number %d of %d, differs:", r.name, number, n)
	const most = 20
	for i, d := range closest {
		if i == most {
			fmt.Fprintf(&b, "\n  and in %d more places", len(closest)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s\n    recorded: %s\n    made:     %s", d.path, d.recorded, d.made)
	}
	return errors.New(b.String())
}

// Err is what is wrong with the first request that the recording does not have,
// or nil.
func (r *Player) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unknown
}

// Offers reports whether the first request offers a tool of this name.
func (r *Player) Offers(tool string) bool {
	var request struct{ Tools []struct{ Name string } }
	if json.Unmarshal([]byte(r.cassette.Interactions[0].Request.Body), &request) != nil {
		return false
	}
	return slices.ContainsFunc(request.Tools, func(t struct{ Name string }) bool { return t.Name == tool })
}

// Left says how many requests of the recording were not made, and how many it
// has in all.
func (r *Player) Left() (left, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.cassette.Interactions {
		if !i.WasReplayed() {
			left++
		}
	}
	return left, len(r.cassette.Interactions)
}
