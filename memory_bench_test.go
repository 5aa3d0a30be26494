package fnloop_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
)

// BenchmarkFiveHundredConversations holds 500 conversations at once with a server
// that takes 200 ms for each response, and reports how large a process was at most
// until they were answered, and by how much it had grown since before. Each way to
// hold them has processes of its own.
func BenchmarkFiveHundredConversations(b *testing.B) {
	const child = "FNLOOP_BENCH_MEMORY" // names the way and the server
	if way, url, ok := strings.Cut(os.Getenv(child), "@"); ok {
		size, before := largest(b, 500, converser(b, way, url))
		fmt.Println("MiB:", size, size-before)
		return
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("how large a process has been is read in /proc:", err)
	}
	c := newCanned(b)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sent, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
		w.Header().Set("Content-Type", c.contentType)
		w.Write(c.answer(sent))
	}))
	defer srv.Close()
	for _, way := range []string{"loop", "by hand", "net-http"} {
		b.Run(way, func(b *testing.B) {
			var sizes, growths float64
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkFiveHundredConversations$", "-test.benchtime=1x")
				cmd.Env = append(os.Environ(), child+"="+way+"@"+srv.URL)
				out, err := cmd.CombinedOutput()
				_, said, _ := strings.Cut(string(out), "MiB: ")
				var size, growth float64
				if _, scanErr := fmt.Sscan(said, &size, &growth); err != nil || scanErr != nil {
					b.Fatalf("%v, %v: %s", err, scanErr, out)
				}
				sizes, growths = sizes+size, growths+growth
			}
			b.ReportMetric(sizes/float64(b.N), "MiB/process")
			b.ReportMetric(growths/float64(b.N), "MiB-grown/process")
		})
	}
}

// converser is a way to hold one conversation with a server.
func converser(b *testing.B, way, url string) func(context.Context) (string, error) {
	plain := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	svc := responses.NewResponseService(option.WithBaseURL(url), option.WithAPIKey("test"), option.WithHTTPClient(plain))
	loop := &fnloop.Loop{Client: &svc, Model: "gpt-test", Instructions: "Be brief.", Tools: []fnloop.Tool{adder()}}
	tools, schema := byHandTools(b), adder().Parameters
	switch way {
	case "loop":
		return func(ctx context.Context) (string, error) {
			ans, err := loop.Run(ctx, "2+3?")
			return ans.Text, err
		}
	case "by hand":
		return func(ctx context.Context) (string, error) { return byHand(ctx, &svc, tools, "2+3?") }
	}
	return func(ctx context.Context) (string, error) {
		return byNetHTTP(ctx, plain, url+"/responses", schema, "2+3?")
	}
}

// largest is how large this process was at most while it held n conversations at
// once, and how large it was before, in MiB.
func largest(b *testing.B, n int, hold func(context.Context) (string, error)) (most, before float64) {
	if _, err := hold(b.Context()); err != nil { // what is made once
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	before = processSize(b, "VmRSS")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if text, err := hold(b.Context()); err != nil || text != "five" {
				b.Error(text, err)
			}
		})
	}
	wg.Wait()
	return processSize(b, "VmHWM"), before
}

// processSize is a size of this process, in MiB: VmRSS now, VmHWM at most so far.
func processSize(b *testing.B, name string) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), name+":")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(name, err)
	}
	return kib / 1024
}
