package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"sync"

	"go.yaml.in/yaml/v4"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
)

// recordingHeader stands at the top of each recording.
const recordingHeader = `# A conversation with the Responses API, recorded by askpy --record. Headers are
# left out but for the few that matter, addresses are relative to the API's, and
# keys, organisations, projects and request ids read ` + scrubbed + `. JSON is indented.
`

// A recording is a wire that writes the conversation to a file when it is over.
type recording struct {
	next     http.RoundTripper
	scrub    scrubber
	progress *progress
	file     *os.File // made at once, so that nothing is sent in vain

	mu       sync.Mutex
	cassette *cassette.Cassette
}

func newRecording(name string, next http.RoundTripper, scrub scrubber, p *progress) (*recording, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, usagef("--record %s: the file exists already; remove it or name another", name)
	}
	if err != nil {
		return nil, usagef("--record %s: the file cannot be written: %v", name, cause(err))
	}
	c := cassette.New(name)
	c.MarshalFunc = yaml.Marshal
	return &recording{next: next, scrub: scrub, progress: p, file: f, cassette: c}, nil
}

// cause is err without the operation and the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// RoundTrip sends the request. What comes back is recorded once it was read to
// its end.
func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent bytes.Buffer
	if req.Body != nil {
		_, err := sent.ReadFrom(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent.Bytes()))
	}
	res, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	res.Body = &tee{ReadCloser: res.Body, done: func(got []byte) { r.add(req, sent.Bytes(), res, got) }}
	return res, nil
}

// add keeps an exchange, without its secrets.
func (r *recording) add(req *http.Request, sent []byte, res *http.Response, got []byte) {
	request := r.body(sent)
	response := r.body(got)
	if isStream(res.Header) {
		response = r.scrub.cleanStream(string(got))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cassette.AddInteraction(&cassette.Interaction{
		Request: cassette.Request{
			Proto: req.Proto, ProtoMajor: req.ProtoMajor, ProtoMinor: req.ProtoMinor,
			Method:        req.Method,
			URL:           path.Base(req.URL.Path),
			Headers:       pick(req.Header, "Content-Type"),
			ContentLength: int64(len(request)),
			Body:          request,
		},
		Response: cassette.Response{
			Proto: res.Proto, ProtoMajor: res.ProtoMajor, ProtoMinor: res.ProtoMinor,
			Status:        res.Status,
			Code:          res.StatusCode,
			Headers:       pick(res.Header, "Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry"),
			ContentLength: int64(len(response)),
			Body:          response,
		},
	})
}

// body is a body as it is recorded.
func (r *recording) body(b []byte) string {
	var indented bytes.Buffer
	if json.Indent(&indented, b, "", "  ") == nil {
		b = indented.Bytes()
	}
	return r.scrub.clean(string(b))
}

// pick gives the headers of these names and no others: a list of the secret
// ones would never be complete.
func pick(h http.Header, names ...string) http.Header {
	picked := http.Header{}
	for _, name := range names {
		if values := h.Values(name); len(values) > 0 {
			picked[name] = values
		}
	}
	return picked
}

func (r *recording) finish(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, n := r.file.Name(), len(r.cassette.Interactions)
	if n == 0 {
		r.file.Close()
		return errors.Join(err, os.Remove(name))
	}
	saved := r.cassette.SaveWithFS(oneFile{r.file})
	if e := r.file.Close(); saved == nil {
		saved = e
	}
	if saved != nil {
		return errors.Join(err, fmt.Errorf("the recording %s could not be written: %w", name, cause(saved)), os.Remove(name))
	}
	r.progress.note(fmt.Sprintf("recorded in %s, requests: %d", name, n))
	return err
}

// oneFile makes go-vcr write to a file that is open.
type oneFile struct{ *os.File }

func (oneFile) ReadFile(string) ([]byte, error) { return nil, errors.ErrUnsupported }
func (oneFile) IsFileExists(string) bool        { return false }

func (f oneFile) WriteFile(_ string, data []byte) error {
	_, err := f.Write(append([]byte(recordingHeader), data...))
	return err
}

// A tee keeps what is read and hands it over at its end. Whoever reads the
// stream of a response closes it at the event that ends it, which is an end too.
type tee struct {
	io.ReadCloser
	got  []byte
	done func([]byte)
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.got = append(t.got, p[:n]...)
	if err == io.EOF {
		t.end()
	}
	return n, err
}

func (t *tee) Close() error {
	if t.done != nil && streamEnded(t.got) {
		t.end()
	}
	return t.ReadCloser.Close()
}

func (t *tee) end() {
	if t.done != nil {
		t.done(t.got)
		t.done = nil
	}
}
