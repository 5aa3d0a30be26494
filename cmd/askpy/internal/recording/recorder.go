// Package recording keeps conversations with the Responses API in files, without
// their secrets, and answers from such files.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"sync"

	"go.yaml.in/yaml/v4"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
)

// header stands at the top of each recording.
const header = `# A conversation with the Responses API, recorded by askpy --record. Headers are
# left out but for the few that matter, addresses are relative to the API's, and
# keys, organisations, projects and request ids read ` + scrubbed + `. JSON is indented.
`

// A Recorder sends requests on and writes the conversation to a file when it is
// over.
type Recorder struct {
	next  http.RoundTripper
	scrub Scrubber
	file  *os.File // made at once, so that nothing is sent in vain

	mu       sync.Mutex
	cassette *cassette.Cassette
}

// Create makes the file, which must not be there, and a Recorder for it.
func Create(name string, next http.RoundTripper, scrub Scrubber) (*Recorder, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	c := cassette.New(name)
	c.MarshalFunc = yaml.Marshal
	return &Recorder{next: next, scrub: scrub, file: f, cassette: c}, nil
}

// RoundTrip sends the request. What comes back is recorded once it was read to
// its end.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
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
func (r *Recorder) add(req *http.Request, sent []byte, res *http.Response, got []byte) {
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
func (r *Recorder) body(b []byte) string {
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

// Close writes the file, and returns how many requests are in it. Without any it
// removes the file, as it does when it cannot be written.
func (r *Recorder) Close() (requests int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if requests = len(r.cassette.Interactions); requests > 0 {
		err = r.cassette.SaveWithFS(oneFile{r.file})
	}
	if e := r.file.Close(); err == nil {
		err = e
	}
	if err != nil || requests == 0 {
		err = errors.Join(err, os.Remove(r.file.Name()))
	}
	return requests, err
}

// oneFile makes go-vcr write to a file that is open.
type oneFile struct{ *os.File }

func (oneFile) ReadFile(string) ([]byte, error) { return nil, errors.ErrUnsupported }
func (oneFile) IsFileExists(string) bool        { return false }

func (f oneFile) WriteFile(_ string, data []byte) error {
	_, err := f.Write(append([]byte(header), data...))
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
