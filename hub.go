package fnloop

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Defaults of a Hub's fields.
const (
	DefaultKeep   = 4 << 20
	DefaultLinger = time.Minute
)

// drainGrace is how long [Hub.Drain] waits for runs that it has stopped.
const drainGrace = 10 * time.Second

var (
	// ErrNoRun: there is no run to follow, or no longer.
	ErrNoRun = errors.New("fnloop: there is no such run to follow")
	// ErrDraining: the Hub drains. No run starts any more, and it is the cause of
	// the runs that Drain stops.
	ErrDraining = errors.New("fnloop: the server is shutting down")
)

// A Hub keeps runs that outlive the request which has started them, so that a page
// that was reloaded, or a second one, can follow a run and stop it:
//
//	mux.HandleFunc("POST /chats/{chat}", func(w http.ResponseWriter, r *http.Request) {
//		id, prompt := r.PathValue("chat"), r.FormValue("prompt")
//		if err := hub.Start(r.Context(), id, func(ctx context.Context) iter.Seq2[fnloop.Event, error] {
//			return stored(id, loop.Events(ctx, load(id), prompt)) // stores the Answer of Done
//		}); err != nil {
//			http.Error(w, err.Error(), http.StatusConflict)
//		}
//	})
//	mux.HandleFunc("GET /chats/{chat}/events", func(w http.ResponseWriter, r *http.Request) {
//		hub.ServeSSE(w, r, r.PathValue("chat"), fnloop.SSE{})
//	})
//
// The ID of a run is that of its conversation, which has one run at a time. A Hub
// belongs to one process: behind a load balancer, requests for a conversation have
// to reach the process that runs it. The zero value is ready to use. Set the
// fields before first use. A Hub is safe for concurrent use and must not be
// copied.
type Hub struct {
	// Keep is about how many bytes of the events of one run are kept for readers
	// that are late or slow. Zero means DefaultKeep. A [Missed] event tells a
	// reader how many it has missed.
	Keep int
	// Linger is how long a run can be followed after its end. Zero means
	// DefaultLinger, negative not at all.
	Linger time.Duration
	// Logger gets an error record when the events of a run panic. Nil means none.
	Logger *slog.Logger

	mu       sync.Mutex
	runs     map[string]*feedLog
	active   int
	idle     chan struct{} // closed when active is zero again; nil if nobody waits
	draining bool
}

// Missed says that a reader came too late, or was too slow, for that many events.
// What happened is in the stored conversation, or in Done.
type Missed struct {
	Events int `json:"events"`
}

// Type returns "missed".
func (Missed) Type() string { return "missed" }

// A feedLog has the latest events of one run.
type feedLog struct {
	tag    string // begins the IDs of its events
	keep   int
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	more    sync.Cond
	first   int // the number of entries[0]
	entries []entry
	size    int // of all entries
	over    bool
}

type entry struct {
	event Event
	err   error
	size  int
}

// Start reads the sequence that events returns to its end, in a goroutine of its
// own. The context of events has the values of ctx but does not end with it:
// [Hub.Stop] and [Hub.Drain] end it.
// The error is [ErrBusy] while a run of that ID is going on, and [ErrDraining]
// when the Hub drains; nothing was started then.
func (h *Hub) Start(ctx context.Context, id string, events func(context.Context) iter.Seq2[Event, error]) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return ErrDraining
	}
	if old := h.runs[id]; old != nil && !old.ended() {
		return fmt.Errorf("%w: %s", ErrBusy, id)
	}
	run := &feedLog{tag: rand.Text()[:10], keep: h.Keep}
	if run.keep == 0 {
		run.keep = DefaultKeep
	}
	run.more.L = &run.mu
	ctx, run.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if h.runs == nil {
		h.runs = make(map[string]*feedLog)
	}
	h.runs[id] = run
	h.active++
	go func() {
		defer h.ended(id, run)
		defer run.cancel(nil)
		defer func() {
			if v := recover(); v != nil {
				p := &PanicError{Value: v, Stack: debug.Stack()}
				if h.Logger != nil {
					h.Logger.ErrorContext(ctx, "events panicked", "run", id, "panic", fmt.Sprint(v), "stack", string(p.Stack))
				}
				run.add(nil, p)
			}
		}()
		for e, err := range events(ctx) {
			run.add(e, err)
		}
	}()
	return nil
}

// ended notes that a run is over, and forgets it in a while.
func (h *Hub) ended(id string, run *feedLog) {
	run.mu.Lock()
	run.over = true
	run.more.Broadcast()
	run.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active--; h.active == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
	forget := func() {
		if h.runs[id] == run {
			delete(h.runs, id)
		}
	}
	if h.Linger < 0 {
		forget()
		return
	}
	wait := h.Linger
	if wait == 0 {
		wait = DefaultLinger
	}
	time.AfterFunc(wait, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		forget()
	})
}

// Running reports whether a run of that ID is going on.
func (h *Hub) Running(id string) bool {
	run := h.find(id)
	return run != nil && !run.ended()
}

func (h *Hub) find(id string) *feedLog {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[id]
}

// Stop ends the context of a run, and does not wait for its end. The cause, which
// may be nil, is in the run's error. It reports whether there was a run.
func (h *Hub) Stop(id string, cause error) bool {
	run := h.find(id)
	if run == nil || run.ended() {
		return false
	}
	run.cancel(cause)
	return true
}

// Drain lets no run start any more and returns when all have ended. If ctx ends
// first, Drain stops the runs that are left, with [ErrDraining] as the cause, and
// waits for up to ten seconds more. Its error then wraps that of ctx, and counts
// the runs that have still not ended. The Answers of stopped runs say how far they
// got, so that another process can continue them.
func (h *Hub) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.draining = true
	if h.active == 0 {
		h.mu.Unlock()
		return nil
	}
	if h.idle == nil {
		h.idle = make(chan struct{})
	}
	idle := h.idle
	h.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	for _, run := range h.runs {
		run.cancel(ErrDraining)
	}
	h.mu.Unlock()
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	select {
	case <-idle:
		return ctx.Err()
	case <-timer.C:
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("fnloop: %d runs have not ended: %w", h.active, ctx.Err())
	}
}

// Follow gives the events of a run from its beginning, or from after the event of
// that ID (see [Hub.ServeSSE]), and goes on until the run or ctx ends. An ID that is
// not of this run counts as none. The last event has the error of the run beside
// it; without such a run the error is [ErrNoRun]. A slow reader delays
// neither the run nor other readers. The events are shared: do not change them.
func (h *Hub) Follow(ctx context.Context, id, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		run := h.find(id)
		if run == nil {
			yield(nil, fmt.Errorf("%w: %s", ErrNoRun, id))
			return
		}
		for n := range run.follow(ctx, after) {
			if !yield(n.event, n.err) {
				return
			}
		}
	}
}

// ServeSSE writes the events of a run as [SSE.Write] does, each with an ID. A
// browser that connects again says in the header Last-Event-ID which one it has got
// last, and goes on from there. A run whose events panicked ends with a [Done] that
// says failed. Without such a run the answer is 204 No Content,
// which tells an EventSource not to come again.
func (h *Hub) ServeSSE(w http.ResponseWriter, r *http.Request, id string, s SSE) {
	run := h.find(id)
	if run == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	out := s.begin(w)
	defer out.End()
	for n := range run.follow(r.Context(), r.Header.Get("Last-Event-ID")) {
		if n.event == nil && n.err != nil && r.Context().Err() == nil { // it panicked, and has no Done
			n.event = Done{Answer: newAnswer(StopFailed)}
		}
		if n.event != nil && out.write(n.id, n.event, n.err != nil) != nil && h.Logger != nil {
			h.Logger.ErrorContext(r.Context(), "an event could not be sent", "run", id, "type", n.event.Type())
		}
		if out.Gone() {
			return
		}
	}
}

// A numbered is an entry with its ID.
type numbered struct {
	id string
	entry
}

func (l *feedLog) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// add appends an event, and drops the oldest ones where there are too many.
func (l *feedLog) add(e Event, err error) {
	n := entry{e, err, eventSize(e)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, n)
	l.size += n.size
	drop := 0
	for l.size > l.keep && drop < len(l.entries)-1 {
		l.size -= l.entries[drop].size
		l.entries[drop] = entry{}
		drop++
	}
	l.entries = l.entries[drop:]
	l.first += drop
	l.more.Broadcast()
}

// follow gives the entries after the one of that ID, as they come.
func (l *feedLog) follow(ctx context.Context, after string) iter.Seq[numbered] {
	next := 0
	if tag, n, ok := strings.Cut(after, "-"); ok && tag == l.tag {
		if at, err := strconv.Atoi(n); err == nil && at >= 0 {
			next = at + 1
		}
	}
	return func(yield func(numbered) bool) {
		defer context.AfterFunc(ctx, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.more.Broadcast()
		})()
		for {
			l.mu.Lock()
			next = min(next, l.first+len(l.entries)) // an ID of the future
			for next == l.first+len(l.entries) && !l.over && ctx.Err() == nil {
				l.more.Wait()
			}
			missed := max(l.first-next, 0)
			next += missed
			batch := append([]entry(nil), l.entries[next-l.first:]...)
			l.mu.Unlock()
			if ctx.Err() != nil {
				yield(numbered{entry: entry{err: context.Cause(ctx)}})
				return
			}
			if missed > 0 && !yield(numbered{entry: entry{event: Missed{missed}}}) {
				return
			}
			for _, e := range batch {
				if !yield(numbered{l.tag + "-" + strconv.Itoa(next), e}) {
					return
				}
				next++
			}
			if len(batch) == 0 { // it is over
				return
			}
		}
	}
}

// eventSize is about how many bytes an event takes.
func eventSize(e Event) int {
	const fixed = 128
	switch e := e.(type) {
	case nil, RequestStarted, CallAnnounced, ResponseFinished:
		return fixed
	case TextDelta:
		return fixed + len(e.Text)
	case ReasoningDelta:
		return fixed + len(e.Text)
	case CallOutput:
		return fixed + len(e.Text)
	case CallStarted:
		return fixed + len(e.Arguments)
	}
	data, err := json.Marshal(e)
	if err != nil {
		return fixed
	}
	return fixed + len(data)
}
