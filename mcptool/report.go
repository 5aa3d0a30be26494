package mcptool

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fnloop/fnloop"
)

// How often a client is told of a call's progress: clients give a request a minute, and
// begin to count anew with each word of it.
const (
	reportAtLeast = 5 * time.Second
	reportAtMost  = 200 * time.Millisecond
)

// A report tells a client of the progress of a call. A client that is slow does not
// hold up the call.
type report struct {
	req   *mcp.CallToolRequest
	start time.Time
	wake  chan struct{}
	over  chan struct{}
	done  chan struct{}

	mu    sync.Mutex
	bytes int
	line  string // the last one that was printed
}

// newReport begins to report, if the client has asked for that. end must be called.
func newReport(ctx context.Context, req *mcp.CallToolRequest) *report {
	r := &report{req: req, start: time.Now(), wake: make(chan struct{}, 1), over: make(chan struct{}), done: make(chan struct{})}
	if req.Params.GetProgressToken() == nil {
		close(r.done)
	} else {
		go r.run(ctx)
	}
	return r
}

// event takes in what the call prints.
func (r *report) event(e fnloop.Event) {
	out, ok := e.(fnloop.CallOutput)
	if !ok {
		return
	}
	r.mu.Lock()
	r.bytes += len(out.Text)
	for line := range strings.Lines(out.Text) {
		if line = strings.TrimSpace(line); line != "" {
			r.line = line
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// end returns when nothing more is reported.
func (r *report) end() {
	close(r.over)
	<-r.done
}

func (r *report) run(ctx context.Context) {
	defer close(r.done)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a client that does not read holds up the end no longer
		select {
		case <-r.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	timer := time.NewTimer(reportAtLeast)
	defer timer.Stop()
	var progress float64
	for {
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.over:
			return
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		message, printed := r.line, r.bytes
		r.mu.Unlock()
		elapsed := time.Since(r.start)
		if message == "" {
			message = fmt.Sprintf("running for %v", elapsed.Round(time.Second))
		}
		progress = max(progress+1, elapsed.Seconds()+float64(printed)) // it must rise
		err := r.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.req.Params.GetProgressToken(), Progress: progress, Message: cut(message, 200),
		})
		if err != nil {
			return
		}
		timer.Reset(reportAtLeast)
		select {
		case <-time.After(reportAtMost):
		case <-r.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// cut is the beginning of s, at most n bytes of it.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
