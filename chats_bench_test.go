package fnloop_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop"
)

// A firstWrite is a browser that tells when it gets its first event.
type firstWrite struct {
	header http.Header
	first  func()
}

func (w *firstWrite) Header() http.Header { return w.header }
func (w *firstWrite) WriteHeader(int)     {}
func (w *firstWrite) Flush()              {}
func (w *firstWrite) Write(p []byte) (int, error) {
	w.first()
	return len(p), nil
}

// BenchmarkChats is 200 chats at once, each a run of a Hub that a browser follows:
// how long the first event takes to get there, and what a chat holds while the
// model writes, beside what openai-go's own stream holds.
func BenchmarkChats(b *testing.B) {
	const chats = 200
	var firsts []time.Duration
	held := func(open func(i int, svc *responses.ResponseService, first func())) float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		before := m.HeapInuse + m.StackInuse
		release := make(chan struct{})
		svc := client(roundTrip(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, frames(created, delta))
				<-release
				io.WriteString(w, frames(completed))
				w.Close()
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
		}))
		var begun, done sync.WaitGroup
		begun.Add(chats)
		for i := range chats {
			done.Go(func() { open(i, svc, sync.OnceFunc(begun.Done)) })
		}
		begun.Wait()
		runtime.GC()
		runtime.ReadMemStats(&m)
		after := m.HeapInuse + m.StackInuse
		close(release)
		done.Wait()
		return float64(after-before) / chats / 1024
	}
	var ours, theirs float64
	n := 0
	for b.Loop() {
		hub := &fnloop.Hub{Linger: -1}
		var mu sync.Mutex
		ours += held(func(i int, svc *responses.ResponseService, first func()) {
			id := fmt.Sprint(i)
			loop := &fnloop.Loop{Client: svc, Model: "m"}
			begin := time.Now()
			err := hub.Start(b.Context(), id, func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
				return loop.Events(ctx, nil, "hi")
			})
			if err != nil {
				b.Error(err)
			}
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
			hub.ServeSSE(&firstWrite{make(http.Header), sync.OnceFunc(func() {
				mu.Lock()
				firsts = append(firsts, time.Since(begin))
				mu.Unlock()
				first()
			})}, req, id, fnloop.SSE{})
		})
		theirs += held(func(_ int, svc *responses.ResponseService, first func()) {
			s := svc.NewStreaming(b.Context(), responses.ResponseNewParams{Model: "m"})
			for s.Next() {
				first()
			}
			if err := s.Err(); err != nil {
				b.Error(err)
			}
		})
		n++
	}
	slices.Sort(firsts)
	b.ReportMetric(float64(firsts[len(firsts)/2].Microseconds())/1000, "p50-first-ms")
	b.ReportMetric(ours/float64(n), "KiB/chat")
	b.ReportMetric(theirs/float64(n), "KiB/openai-go-stream")
}
