package fnloop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/cputime"
)

// slowModelEnv tells the test binary to be a slowModel in place of tests.
const slowModelEnv = "FNLOOP_TEST_SLOW_MODEL"

func TestMain(m *testing.M) {
	if os.Getenv(slowModelEnv) != "" {
		serveSlowModel()
		return
	}
	os.Exit(m.Run())
}

// A slowModel is a model that takes its time for each response, or one that
// waits until it is told to go on.
type slowModel struct {
	canned
	mu      sync.Mutex
	waiting int
	gate    chan struct{} // nil if the time passes by itself
}

const slowModelTime = 2 * time.Second

// respond waits and returns the response to a request.
func (m *slowModel) respond(ctx context.Context, request []byte) []byte {
	m.mu.Lock()
	gate := m.gate
	m.waiting++
	m.mu.Unlock()
	var passed <-chan time.Time
	if gate == nil {
		passed = time.After(slowModelTime)
	}
	select {
	case <-gate:
	case <-passed:
	case <-ctx.Done():
	}
	m.mu.Lock()
	m.waiting--
	m.mu.Unlock()
	if bytes.Contains(request, []byte(`"previous_response_id"`)) {
		return m.text
	}
	return m.calls
}

// order is "hold" or "release", which hold the requests that come next and let
// go those that wait, "free", which lets go of all, or "waiting".
func (m *slowModel) order(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.gate
	switch name {
	case "hold", "release":
		m.gate = make(chan struct{})
	case "free":
		m.gate = nil
	default:
		return m.waiting
	}
	if old != nil {
		close(old)
	}
	return m.waiting
}

func (m *slowModel) RoundTrip(req *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	body := m.respond(req.Context(), sent)
	return &http.Response{
		Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, req.Context().Err()
}

func (m *slowModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, "/order/"); ok {
		fmt.Fprint(w, m.order(name))
		return
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.TLS != nil && r.ProtoMajor != 2 {
		http.Error(w, "HTTP/2 is wanted", http.StatusHTTPVersionNotSupported)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(m.respond(r.Context(), sent))
}

// slowModelServers is where a slowModel in another process is reached.
type slowModelServers struct {
	HTTP1, HTTP2 string // addresses
	Certificate  []byte // of the second
}

// serveSlowModel reads the two responses from standard input, writes where it
// serves to standard output and ends when standard input does.
func serveSlowModel() {
	m := new(slowModel)
	in := json.NewDecoder(os.Stdin)
	if in.Decode(&m.calls) != nil || in.Decode(&m.text) != nil {
		os.Exit(1)
	}
	first, second := httptest.NewServer(m), httptest.NewUnstartedServer(m)
	second.EnableHTTP2 = true
	second.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that were not needed after all
	second.StartTLS()
	json.NewEncoder(os.Stdout).Encode(slowModelServers{first.URL, second.URL, second.Certificate().Raw})
	io.Copy(io.Discard, os.Stdin)
}

// startSlowModel starts a slowModel in a process of its own, so that its memory,
// CPU time and descriptors are not ours.
func startSlowModel(b *testing.B, c *canned) (servers slowModelServers) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), slowModelEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	enc := json.NewEncoder(in)
	enc.Encode(c.calls)
	enc.Encode(c.text)
	if err := json.NewDecoder(out).Decode(&servers); err != nil {
		b.Fatal("the model did not start: ", err)
	}
	return servers
}

// BenchmarkScale runs 2,000 conversations at once, each of a round of calls and
// two responses that take two seconds. It reports
//
//   - what each holds while it waits for the model, beside what the loop written
//     by hand on openai-go holds,
//   - how much longer than half of them the slowest hundredth takes,
//   - what one costs of CPU time, and how that compares with one of ten.
//
// The model is another process, reached over HTTP/2 as OpenAI's service is, or
// with a connection for each request and the transport that net/http has by
// default. In process there is neither, so that the Loop's own share is seen.
func BenchmarkScale(b *testing.B) {
	c := newCanned(b)
	for _, version := range []string{"http2", "http1"} {
		b.Run(version, func(b *testing.B) {
			servers := startSlowModel(b, c)
			url, transport := servers.HTTP1, http.DefaultTransport.(*http.Transport).Clone()
			if version == "http2" {
				cert, err := x509.ParseCertificate(servers.Certificate)
				if err != nil {
					b.Fatal(err)
				}
				url = servers.HTTP2
				transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
				transport.TLSClientConfig.RootCAs.AddCert(cert)
			}
			defer transport.CloseIdleConnections()
			svc := responses.NewResponseService(option.WithBaseURL(url+"/v1"), option.WithAPIKey("test"),
				option.WithHTTPClient(&http.Client{Transport: transport}))
			benchmarkScale(b, &svc, func(name string) (n int) {
				res, err := http.Get(servers.HTTP1 + "/order/" + name)
				if err != nil {
					b.Fatal(err)
				}
				defer res.Body.Close()
				fmt.Fscan(res.Body, &n)
				return n
			})
		})
	}
	b.Run("in_process", func(b *testing.B) {
		m := &slowModel{canned: *c}
		benchmarkScale(b, client(m), m.order)
	})
}

func benchmarkScale(b *testing.B, svc *responses.ResponseService, order func(string) int) {
	const many, few = 2000, 10
	loop := &fnloop.Loop{Client: svc, Model: "gpt-test", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}}
	tools := byHandTools(b)
	ours := func() {
		if ans, err := loop.Run(b.Context(), "2+3?"); err != nil || ans.Text != "five" {
			b.Error(ans.Text, err)
		}
	}
	theirs := func() {
		if text, err := byHand(b.Context(), svc, tools, "2+3?"); err != nil || text != "five" {
			b.Error(text, err)
		}
	}
	// held is the most that a conversation holds, be it while it waits for its
	// first response or for its second.
	held := func(run func()) (most float64) {
		order("hold")
		before := inUse()
		var wg sync.WaitGroup
		for range many {
			wg.Go(run)
		}
		for range 2 {
			for order("waiting") < many && !b.Failed() {
				time.Sleep(20 * time.Millisecond)
			}
			most = max(most, float64(inUse()-before)/many/1024)
			order("release")
		}
		order("free")
		wg.Wait()
		return most
	}
	// batch runs n conversations at once and adds how long each took.
	batch := func(n int, took *[]time.Duration) (cpu time.Duration) {
		runtime.GC()
		start := cputime.Used()
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range n {
			wg.Go(func() {
				begin := time.Now()
				ours()
				d := time.Since(begin)
				mu.Lock()
				*took = append(*took, d)
				mu.Unlock()
			})
		}
		wg.Wait()
		return cputime.Used() - start
	}
	var held0, held1 float64
	var cpuMany, cpuFew time.Duration
	var took, tookFew []time.Duration
	rounds := 0
	batch(few, new([]time.Duration)) // the first time of all
	for b.Loop() {
		held0 += held(ours)
		held1 += held(theirs)
		for range 3 {
			cpuFew += batch(few, &tookFew)
		}
		cpuMany += batch(many, &took)
		rounds++
	}
	slices.Sort(took)
	perMany := float64(cpuMany) / float64(len(took))
	perFew := float64(cpuFew) / float64(len(tookFew))
	b.ReportMetric(held0/float64(rounds), "KiB/conversation")
	b.ReportMetric(held1/float64(rounds), "KiB/by-hand")
	b.ReportMetric(float64(took[len(took)*99/100])/float64(took[len(took)/2]), "p99/p50")
	b.ReportMetric(perMany/1e3, "CPU-µs/conversation")
	b.ReportMetric(perMany/perFew, "cpu-2000/cpu-10")
	b.ReportMetric(0, "ns/op") // the model's
}

// inUse is what the heap and the stacks take after what is garbage is gone.
func inUse() uint64 {
	for range 4 { // what pools keep goes after two, and a stack shrinks by half each time
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
