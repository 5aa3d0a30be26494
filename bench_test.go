package fnloop_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	rt "github.com/fnloop/fnloop/responsestest"
)

// canned answers the first request of a conversation with four calls and every
// other with text, with the bytes that responsestest makes and none of its work.
type canned struct {
	contentType string
	calls, text []byte
}

func newCanned(b *testing.B) *canned {
	b.Helper()
	return record(b, func(loop *fnloop.Loop) error {
		_, err := loop.Run(b.Context(), "2+3?")
		return err
	})
}

// newCannedStreams is newCanned for requests that want events.
func newCannedStreams(b *testing.B) *canned {
	b.Helper()
	return record(b, func(loop *fnloop.Loop) (err error) {
		for _, err = range loop.Events(b.Context(), nil, "2+3?") {
		}
		return err
	})
}

// record keeps what the stand-in answers to a conversation.
func record(b *testing.B, converse func(*fnloop.Loop) error) *canned {
	b.Helper()
	var calls []rt.Reply
	for i := range 4 {
		calls = append(calls, rt.Call(fmt.Sprintf("call_%d", i), "add", `{"a":2,"b":3}`))
	}
	srv := rt.NewServer(rt.Join(append([]rt.Reply{rt.Reasoning("")}, calls...)...), rt.Text("five"))
	defer srv.Close()
	c := new(canned)
	transport := roundTrip(func(req *http.Request) (*http.Response, error) {
		res, err := inProcess{srv}.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(res.Body)
		res.Body = io.NopCloser(bytes.NewReader(body))
		if c.calls == nil {
			c.calls = body
		} else {
			c.text = body
		}
		c.contentType = res.Header.Get("Content-Type")
		return res, err
	})
	loop := &fnloop.Loop{Client: client(transport), Model: "gpt-test", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}}
	if err := converse(loop); err != nil {
		b.Fatal(err)
	}
	return c
}

// answer is the body that answers a request's.
func (c *canned) answer(sent []byte) []byte {
	if bytes.Contains(sent, []byte(`"previous_response_id"`)) {
		return c.text
	}
	return c.calls
}

func (c *canned) RoundTrip(req *http.Request) (*http.Response, error) {
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	body := c.answer(sent)
	return &http.Response{
		Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {c.contentType}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, nil
}

func client(t http.RoundTripper) *responses.ResponseService {
	s := responses.NewResponseService(option.WithBaseURL("http://model.invalid/v1"), option.WithAPIKey("test"),
		option.WithHTTPClient(&http.Client{Transport: t}))
	return &s
}

// BenchmarkConversation is one conversation of four calls and a text, by itself
// and side by side with the same by hand.
func BenchmarkConversation(b *testing.B) {
	c := newCanned(b)
	svc := client(c)
	loop := &fnloop.Loop{Client: svc, Model: "gpt-test", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}}
	tools := byHandTools(b)
	plain, schema := &http.Client{Transport: c}, adder().Parameters
	compare(b, way{"loop", func(ctx context.Context) (string, error) {
		ans, err := loop.Run(ctx, "2+3?")
		return ans.Text, err
	}}, way{"by hand", func(ctx context.Context) (string, error) {
		return byHand(ctx, svc, tools, "2+3?")
	}}, way{"net-http", func(ctx context.Context) (string, error) {
		return byNetHTTP(ctx, plain, "http://model.invalid/v1/responses", schema, "2+3?")
	}})
}

// BenchmarkStreamed is BenchmarkConversation with responses that are streamed.
func BenchmarkStreamed(b *testing.B) {
	c := newCannedStreams(b)
	svc := client(c)
	loop := &fnloop.Loop{Client: svc, Model: "gpt-test", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}}
	tools := byHandTools(b)
	compare(b, way{"loop", func(ctx context.Context) (string, error) {
		var text strings.Builder
		for e, err := range loop.Events(ctx, nil, "2+3?") {
			if err != nil {
				return "", err
			}
			if delta, ok := e.(fnloop.TextDelta); ok {
				text.WriteString(delta.Text)
			}
		}
		return text.String(), nil
	}}, way{"by hand", func(ctx context.Context) (string, error) {
		var text strings.Builder
		err := byHandStreamed(ctx, svc, tools, "2+3?", func(delta string) { text.WriteString(delta) })
		return text.String(), err
	}})
}

// A way is one to hold the conversation, which gives the model's answer.
type way struct {
	name string
	hold func(context.Context) (string, error)
}

// compare runs a benchmark of each way, and one of all side by side, which has
// the cost of the first as a ratio to that of the second, the way by hand.
func compare(b *testing.B, ways ...way) {
	hold := func(b *testing.B, w way) {
		if text, err := w.hold(b.Context()); err != nil || text != "five" {
			b.Fatal(w.name, text, err)
		}
	}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				hold(b, w)
			}
		})
	}
	b.Run("ratio", func(b *testing.B) {
		const batch = 200 // enough for the garbage collector to be needed
		cpu, wall, allocs := make([]time.Duration, len(ways)), make([]time.Duration, len(ways)), make([]uint64, len(ways))
		var m runtime.MemStats
		for b.Loop() {
			for i, w := range ways {
				runtime.GC() // what is left of one way is not the next one's work
				runtime.ReadMemStats(&m)
				mallocs, start, used := m.Mallocs, time.Now(), cpuTime(b)
				for range batch {
					hold(b, w)
				}
				cpu[i] += cpuTime(b) - used
				wall[i] += time.Since(start)
				runtime.ReadMemStats(&m)
				allocs[i] += m.Mallocs - mallocs
			}
		}
		n := float64(b.N * batch)
		b.ReportMetric(0, "ns/op") // of a batch of each says nothing
		b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "cpu/by-hand")
		b.ReportMetric(float64(wall[0])/float64(wall[1]), "time/by-hand")
		b.ReportMetric(float64(allocs[0])/float64(allocs[1]), "allocs/by-hand")
		b.ReportMetric(float64(cpu[0].Nanoseconds())/1e3/n, "cpu-µs/op")
		b.ReportMetric(float64(allocs[0])/n, "allocs/op")
		for i, w := range ways[2:] {
			b.ReportMetric(float64(cpu[i+2])/float64(cpu[1]), w.name+"-cpu/by-hand")
			b.ReportMetric(float64(allocs[i+2])/n, w.name+"-allocs/op")
		}
	})
}

// BenchmarkParallelCalls reports how long eight calls of 100 ms in one response
// take, as a multiple of one call's time.
func BenchmarkParallelCalls(b *testing.B) {
	const one = 100 * time.Millisecond
	var calls []rt.Reply
	for range 8 {
		calls = append(calls, rt.Call("", "nap", ""))
	}
	srv := rt.NewServer(rt.PerConversation(rt.Join(calls...), rt.Text("done")))
	defer srv.Close()
	loop := &fnloop.Loop{Client: service(srv), Model: "m", Tools: []fnloop.Tool{napper("nap", one)}}
	var took time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		if _, err := loop.Run(b.Context(), "hi"); err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
		n++
	}
	b.ReportMetric(float64(took)/float64(n)/float64(one), "calls/8-calls")
}

// BenchmarkFlood has a tool print 1 GiB and reports what that allocates.
func BenchmarkFlood(b *testing.B) {
	line := []byte(strings.Repeat("x", 4095) + "\n")
	var m runtime.MemStats
	var total uint64
	n := 0
	for b.Loop() {
		runtime.ReadMemStats(&m)
		before := m.TotalAlloc
		var c fnloop.Capture
		for range 1 << 30 / len(line) {
			c.Write(line)
		}
		code := 0
		res := fnloop.Result{ExitCode: &code}
		res.SetOutput(&c, nil)
		_ = res.Text()
		runtime.ReadMemStats(&m)
		total += m.TotalAlloc - before
		n++
	}
	b.ReportMetric(float64(total)/float64(n)/1024, "KiB/GiB")
}

// BenchmarkDelta streams text and reports what one delta costs from the bytes
// on the wire to the reader, and how late the first one is.
func BenchmarkDelta(b *testing.B) {
	const deltas = 10_000
	var body strings.Builder
	body.WriteString(frames(created))
	for range deltas {
		body.WriteString(frames(`{"type":"response.output_text.delta","sequence_number":7,"output_index":0,"content_index":0,"item_id":"msg_1","delta":"some text ","logprobs":[],"obfuscation":"x1y2z3"}`))
	}
	body.WriteString(frames(completed))
	text := body.String()
	loop := &fnloop.Loop{Model: "m", Client: client(roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
	}))}
	b.ReportAllocs()
	var took time.Duration
	runs := 0
	for b.Loop() {
		start := time.Now()
		n := 0
		for e, err := range loop.Events(b.Context(), nil, "hi") {
			if err != nil {
				b.Fatal(err)
			}
			if e.Type() == "text_delta" {
				n++
			}
		}
		if n != deltas {
			b.Fatal(n, "deltas")
		}
		took += time.Since(start)
		runs++
	}
	perDelta := float64(took) / float64(runs) / deltas
	b.ReportMetric(perDelta/1e3, "µs/delta")
	b.ReportMetric(perDelta*deltas/1e9, "cores/10k-deltas/s")
}

// BenchmarkFirstDelta reports how long after its bytes were written to a socket
// the first delta reaches the reader.
func BenchmarkFirstDelta(b *testing.B) {
	var written time.Time
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, frames(created))
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
		written = time.Now()
		io.WriteString(w, frames(delta))
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
		io.WriteString(w, frames(completed))
	}))
	defer srv.Close()
	s := responses.NewResponseService(option.WithBaseURL(srv.URL), option.WithAPIKey("k"))
	loop := &fnloop.Loop{Model: "m", Client: &s}
	var late []time.Duration
	for b.Loop() {
		for e, err := range loop.Events(b.Context(), nil, "hi") {
			if err != nil {
				b.Fatal(err)
			}
			if e.Type() == "text_delta" {
				late = append(late, time.Since(written))
			}
		}
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2])/1e3, "µs-median")
	b.ReportMetric(float64(late[len(late)*99/100])/1e3, "µs-p99")
}

// BenchmarkThousandStreams holds 1,000 streams open at once and reports the
// memory of each, for a Loop and for openai-go's own stream.
func BenchmarkThousandStreams(b *testing.B) {
	const streams = 1000
	open := func(release <-chan struct{}) *responses.ResponseService {
		return client(roundTrip(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, frames(created, delta))
				<-release
				io.WriteString(w, frames(completed))
				w.Close()
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
		}))
	}
	measure := func(b *testing.B, run func(context.Context, *responses.ResponseService, func())) float64 {
		var held uint64
		n := 0
		for b.Loop() {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			before := m.HeapInuse + m.StackInuse
			release := make(chan struct{})
			svc := open(release)
			var started, done sync.WaitGroup
			started.Add(streams)
			for range streams {
				done.Go(func() { run(b.Context(), svc, started.Done) })
			}
			started.Wait()
			runtime.GC()
			runtime.ReadMemStats(&m)
			held += m.HeapInuse + m.StackInuse - before
			close(release)
			done.Wait()
			n++
		}
		return float64(held) / float64(n) / streams / 1024
	}
	b.Run("loop", func(b *testing.B) {
		b.ReportMetric(measure(b, func(ctx context.Context, svc *responses.ResponseService, started func()) {
			loop := &fnloop.Loop{Model: "m", Client: svc}
			for e, err := range loop.Events(ctx, nil, "hi") {
				if err != nil {
					b.Error(err)
				}
				if e.Type() == "text_delta" {
					started()
				}
			}
		}), "KiB/stream")
	})
	b.Run("openai-go", func(b *testing.B) {
		b.ReportMetric(measure(b, func(ctx context.Context, svc *responses.ResponseService, started func()) {
			s := svc.NewStreaming(ctx, responses.ResponseNewParams{Model: "m"})
			for s.Next() {
				if s.Current().Type == "response.output_text.delta" {
					started()
				}
			}
			if err := s.Err(); err != nil {
				b.Error(err)
			}
		}), "KiB/stream")
	})
}

// BenchmarkTools reports what a run of one response costs by the number of its
// Loop's tools, which were checked by a run before. The answer is at once there.
func BenchmarkTools(b *testing.B) {
	type line struct {
		SKU      string   `json:"sku" jsonschema:"pattern=^[A-Z]+$"`
		Quantity int      `json:"quantity" jsonschema:"minimum=1,maximum=100"`
		Notes    []string `json:"notes"`
	}
	type order struct {
		Customer struct{ Name, Street, City, Zip, Country string }
		Lines    []line `json:"lines"`
		Kind     string `json:"kind" jsonschema:"enum=a,enum=b"`
	}
	var typed, hand []fnloop.Tool
	for i := range 64 {
		t := fnloop.MustTool(fmt.Sprint("f", i), "Orders things.", func(context.Context, order) (string, error) { return "", nil })
		typed = append(typed, t)
		hand = append(hand, fnloop.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Handle: t.Handle})
	}
	hook := func(context.Context, *responses.ResponseNewParams) error { return nil }
	for _, c := range []struct {
		name  string
		tools []fnloop.Tool
		hook  func(context.Context, *responses.ResponseNewParams) error
	}{
		{"none", nil, nil}, {"none_hook", nil, hook},
		{"64_typed", typed, nil}, {"64_by_hand", hand, nil}, {"64_hook", typed, hook},
	} {
		b.Run(c.name, func(b *testing.B) {
			loop := &fnloop.Loop{Client: instant{}, Model: "m", Tools: c.tools, BeforeRequest: c.hook}
			b.ReportAllocs()
			for b.Loop() {
				l := *loop
				if _, err := l.Run(b.Context(), "hi"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// instant answers without looking.
type instant struct{}

func (instant) New(context.Context, responses.ResponseNewParams, ...option.RequestOption) (*responses.Response, error) {
	return &responses.Response{ID: "r", Status: "completed", Output: []responses.ResponseOutputItemUnion{{
		Type: "message", Content: []responses.ResponseOutputMessageContentUnion{{Type: "output_text", Text: "done"}},
	}}}, nil
}

// BenchmarkNewTool makes the first tool of README, whose type has no tags, and
// one whose fields are described and bounded. The first time that a type is
// seen its schema is made, and then it is remembered.
func BenchmarkNewTool(b *testing.B) {
	type payment struct {
		Cents int `json:"cents"`
	}
	type forecast struct {
		City string `json:"city" jsonschema:"description=Name of the city."`
		Unit string `json:"unit" jsonschema:"enum=celsius,enum=fahrenheit"`
	}
	for _, c := range []struct {
		name string
		make func()
	}{
		{"README", func() {
			fnloop.MustTool("pay", "Pays an amount.", func(context.Context, payment) (string, error) { return "", nil })
		}},
		{"tags", func() {
			fnloop.MustTool("weather", "", func(context.Context, forecast) (string, error) { return "", nil })
		}},
	} {
		b.Run(c.name+"/first", func(b *testing.B) {
			b.ReportAllocs()
			start := cputime.Used()
			for b.Loop() {
				fnloop.ForgetTypes()
				c.make()
			}
			b.ReportMetric(float64(cputime.Used()-start)/1e3/float64(b.N), "CPU-µs/tool")
		})
		b.Run(c.name+"/again", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.make()
			}
		})
	}
}
