package runtimecloud

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

const (
	// cellGrace is how long after a cell's limit and grace its end may be told. The
	// answer can be had for a day under its key, and to give up costs its result.
	cellGrace = 5 * time.Minute
	// backstop is how much longer than its limit and grace a cell that has begun may
	// take before the interpreter is killed from here. The service stops it before,
	// and its end may have to be asked for again.
	backstop = time.Minute
	// stopTime is how long an interrupt may take beside the grace.
	stopTime = 5 * time.Second
	// maxPrinted is how much a cell may print before it is stopped. What is shown of
	// it is far less, and all of it comes over the network.
	maxPrinted = 16 << 20
	// maxRefs is how much of the values that come by reference is fetched for one
	// cell, in bytes, and fetchTime how long that may take.
	maxRefs   = interpreter.MaxDisplayBytes
	fetchTime = time.Minute
)

// A cellRun is a cell that runs.
type cellRun struct {
	s      *session
	events interpreter.Events
	done   chan struct{}
	begun  chan struct{} // closed when the cell is known to run

	stop chan struct{} // closed by interrupt

	mu    sync.Mutex
	ended bool // stop is closed
	flood bool // and because it printed too much

	// What came, over all streams of the cell: each of them begins with the first
	// event.
	started  bool
	taken    map[string]int // bytes of each stream
	results  int
	omitted  int
	fetched  int
	fetching time.Duration
	answer   *cellAnswer
}

// interrupt says that the cell is to stop, and whether because it printed too
// much.
func (c *cellRun) interrupt(flood bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended, c.flood = true, flood
		close(c.stop)
	}
}

func (c *cellRun) flooded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flood
}

// A cellAnswer is how a cell ended, as the API tells it.
type cellAnswer struct {
	Status         interpreter.Status `json:"status"`
	Stdout         string             `json:"stdout"`
	Stderr         string             `json:"stderr"`
	Results        []cellResult       `json:"results"`
	Error          *cellError         `json:"error"`
	Overflow       []overflow         `json:"overflow"`
	DurationMs     *float64           `json:"durationMs"`
	ContextStarted bool               `json:"contextStarted"`
	LostBytes      int64              `json:"lostBytes"`
}

type overflow struct {
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped"`
}

type cellResult struct {
	Main bool                       `json:"main"`
	Data map[string]json.RawMessage `json:"data"`
	Refs map[string]reference       `json:"refs"`
}

type reference struct {
	Path   string `json:"path"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type cellError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback text   `json:"traceback"`
}

// A text is a string, or a list of lines.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*t = text(strings.Join(lines, "\n"))
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// A cellEvent is what is read of each line of the answer to a cell. The rest of a
// line is read by its kind: what else it has is nobody's business.
type cellEvent struct {
	K    string          `json:"k"`
	Text json.RawMessage `json:"text"`
}

// Run implements [interpreter.Driver].
func (s *session) Run(ctx context.Context, in interpreter.Cell, events interpreter.Events) (interpreter.Execution, error) {
	none := interpreter.Execution{}
	if err := s.occupy(ctx); err != nil {
		return none, err
	}
	defer func() { <-s.runner.slots }()
	if err := s.prepare(ctx); err != nil {
		return none, err
	}
	limits := s.limits
	limits.Time = cmp.Or(in.Limits.Time, limits.Time)
	if limits.Time > maxTime {
		return none, &fnloop.ProgramError{Field: "limits.time", Reason: fmt.Sprintf("%v is more than the %v of a sandbox", limits.Time, maxTime)}
	}
	e, err := s.run(ctx, in.Source, limits, events)
	if err != nil {
		return none, err
	}
	s.after(ctx, &e)
	return e, nil
}

// occupy waits for a connection. The caller gives it back.
func (s *session) occupy(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return context.Cause(s.life)
	case s.runner.slots <- struct{}{}:
		return nil
	}
}

// prepare sees to it that there is an interpreter, and that the files before the
// cell are known.
func (s *session) prepare(ctx context.Context) error {
	s.mu.Lock()
	dead, stale := s.dead, s.stale
	s.mu.Unlock()
	if dead {
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	if !stale {
		return nil
	}
	s.mu.Lock()
	s.touched = nil
	s.mu.Unlock()
	files, err := s.list(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files, s.stale = files, false
	return nil
}

// run runs the cell in the interpreter and sees to it that it ends.
func (s *session) run(ctx context.Context, source string, limits fnloop.Limits, events interpreter.Events) (interpreter.Execution, error) {
	c := &cellRun{s: s, events: events, done: make(chan struct{}), begun: make(chan struct{}), stop: make(chan struct{}), taken: make(map[string]int)}
	s.mu.Lock()
	s.running = c
	s.mu.Unlock()
	// The cell outlives the caller for as long as it takes to stop it.
	outer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	w := &watch{c: c, limit: limits.Time, cancel: cancel, done: make(chan struct{})}
	go w.do(ctx, outer)
	sent := time.Now()
	err := c.stream(ctx, outer, source, limits.Time)
	close(c.done)
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	<-w.done
	e := interpreter.Execution{Limits: limits, Duration: time.Since(sent), Omitted: c.omitted}
	switch {
	case err == nil:
		s.conclude(outer, c, w, &e)
		return e, nil
	case errors.Is(context.Cause(outer), errReleased):
		if c.started {
			e.Status = interpreter.StatusInterrupted
			return e, nil
		}
		return e, errReleased
	case w.killed:
		// The interpreter was ended, and its stream said nothing of it.
		e.Status, e.Cause = w.status(), w.cause()
		e.Loss = &interpreter.Loss{Cause: e.Cause, FilesKept: true}
		c.limitOutput(&e)
		return e, nil
	case c.flooded(): // it has ended, and nobody needs the rest of its stream
		c.limitOutput(&e)
		return e, nil
	}
	judged := s.judge(ctx, err)
	gone := errors.Is(judged, interpreter.ErrGone) || errors.Is(judged, ErrSpent)
	switch f, _ := asError(err); {
	case ctx.Err() != nil && (c.started || f.uncertain):
		e.Status = interpreter.StatusInterrupted
		return e, nil
	case c.started && gone:
		e.Status, e.Cause = interpreter.StatusLost, interpreter.CauseSandbox
		e.Loss = &interpreter.Loss{Cause: interpreter.CauseSandbox, Detail: f.Code}
		return e, nil
	case !gone && (c.started || f.uncertain):
		// The variables are there, whatever the cell has done.
		e.Status = interpreter.StatusError
		e.Error = &interpreter.Error{Name: "ConnectionError", Value: "the end of the cell was never told; it may have run, and was not run again"}
		s.client.log.LogAttrs(ctx, slog.LevelError, "runtimecloud: the end of a cell was never told", slog.Any("error", err))
		return e, nil
	}
	return e, judged
}

// A watch sees to it that a cell ends: by its limit, and when it is to stop.
type watch struct {
	c      *cellRun
	limit  time.Duration
	cancel context.CancelCauseFunc
	done   chan struct{}

	stopped bool // by Interrupt or the caller's end
	killed  bool // the interpreter was restarted
}

func (w *watch) status() interpreter.Status {
	switch {
	case w.c.flooded():
		return interpreter.StatusError
	case w.stopped:
		return interpreter.StatusInterrupted
	}
	return interpreter.StatusTimeout
}

func (w *watch) cause() interpreter.Cause {
	switch {
	case w.c.flooded():
		return interpreter.CauseOutput
	case w.stopped:
		return interpreter.CauseInterrupt
	}
	return interpreter.CauseTimeout
}

var errNoEnd = errors.New("the interpreter was ended, and its cell did not end with it")

// do interrupts, and then ends, the interpreter of a cell that does not stop by
// itself. What is left of its stream then has ten seconds.
func (w *watch) do(ctx, outer context.Context) {
	defer close(w.done)
	c, s := w.c, w.c.s
	var limit <-chan time.Time
	begun, asked := c.begun, false
wait:
	for {
		select {
		case <-c.done:
			return
		case <-begun:
			begun = nil
			timer := time.NewTimer(w.limit + s.grace + backstop)
			defer timer.Stop()
			limit = timer.C
		case <-limit: // the service did not stop it
			break wait
		case <-c.stop:
			asked, w.stopped = true, !c.flooded()
			break wait
		case <-ctx.Done():
			asked, w.stopped = true, true
			break wait
		}
	}
	if !asked || !w.insist(outer) {
		w.killed = s.restart(outer) == nil
	}
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	select {
	case <-c.done:
	case <-end.C:
		w.cancel(errNoEnd)
	}
}

// insist interrupts the cell until the service says that it does not run, and
// reports whether it has within the grace. The cell may not have begun when it is
// first asked to stop, and its stream may lag behind its end.
func (w *watch) insist(ctx context.Context) bool {
	s := w.c.s
	grace := time.NewTimer(s.grace + stopTime)
	defer grace.Stop()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		ran, err := s.interrupt(ctx) // what fails is tried again
		if err == nil && !ran && isClosed(w.c.begun) {
			return true
		}
		again := time.NewTimer(pause)
		select {
		case <-w.c.done:
			again.Stop()
			return true
		case <-grace.C:
			again.Stop()
			return false
		case <-again.C:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stream runs the cell, and takes up its stream where that breaks. All requests
// have one key, so that the cell runs once.
func (c *cellRun) stream(ctx, outer context.Context, source string, limit time.Duration) error {
	s := c.s
	s.mu.Lock()
	name := s.context
	s.mu.Unlock()
	call := &request{
		op: "cell", sandbox: s.sandbox, method: http.MethodPost, path: sandboxPath(s.sandbox, "/interpreter:run"),
		key: newKey(), accept: "application/x-ndjson", always: true, stop: ctx.Done(),
		body: encode(map[string]any{
			"code": source, "context": name, "timeoutMs": max(1, limit.Milliseconds()),
			"interruptOnDisconnect": false, "stream": true,
		}),
	}
	begun := time.Now()
	soft, hard := begun.Add(limit+s.grace+followAfter), begun.Add(limit+s.grace+cellGrace)
	for failed := 0; ; failed++ {
		call.budget = time.Until(hard)
		call.answer = min(max(time.Until(soft), followFor), call.budget)
		before := c.progress()
		opened, err := c.follow(outer, call)
		if err == nil {
			return nil
		}
		e := s.client.describe(outer, call, err)
		e.uncertain = e.uncertain || opened && (e.Status < 400 || e.Status >= 500)
		call.stop = nil // from here on the cell may run, and its end is to be known
		final := e.Status >= 400 && e.Status < 500 && !e.Retryable() && !slices.Contains(asleepCodes, e.Code)
		if outer.Err() != nil || !opened || final {
			return e
		}
		if c.progress() != before {
			failed = 0
		}
		if failed == 10 || time.Now().After(hard) {
			return e
		}
		if !sleep(outer, nil, jitter(backoff(250*time.Millisecond, failed, 4*time.Second), 0.5)) {
			return s.client.describe(outer, call, nil)
		}
	}
}

// asleepCodes end the stream of a sandbox that the next request wakes.
var asleepCodes = []string{"sandbox_paused", "sandbox_not_ready"}

// progress is a number that grows with what has come.
func (c *cellRun) progress() (n int) {
	if c.started {
		n++
	}
	return n + c.taken["stdout"] + c.taken["stderr"] + c.results
}

// follow opens one stream and reads it, from the first event on. The error is nil
// when the cell ended.
func (c *cellRun) follow(ctx context.Context, call *request) (opened bool, err error) {
	x, err := c.s.client.open(ctx, call)
	if err != nil {
		return false, err
	}
	defer x.close()
	x.timer.Reset(call.answer)
	d := newDecoder(x.resp.Body)
	seen, results := make(map[string]int), 0
	for {
		var ev cellEvent
		line, err := d.decode(&ev)
		if err != nil {
			if err = x.cause(err); err == io.EOF {
				return true, errBroken
			}
			return true, fmt.Errorf("%w: %w", errBroken, err)
		}
		switch ev.K {
		case "start":
			if !c.started {
				c.started = true
				close(c.begun)
			}
		case "stdout", "stderr":
			var text string
			if err := json.Unmarshal(ev.Text, &text); err != nil {
				return true, fmt.Errorf("%w: %w", errBroken, err)
			}
			at := seen[ev.K]
			seen[ev.K] += len(text)
			c.print(ev.K, text[min(len(text), max(0, c.taken[ev.K]-at)):])
		case "result":
			var r cellResult
			if err := json.Unmarshal(line, &r); err != nil {
				return true, fmt.Errorf("%w: %w", errBroken, err)
			}
			if results++; results > c.results {
				c.show(ctx, r)
			}
		case "execution":
			var end struct{ Execution *cellAnswer }
			if err := json.Unmarshal(line, &end); err != nil || end.Execution == nil || end.Execution.Status == "" {
				return true, fmt.Errorf("%w: its end says nothing: %v", errBroken, err)
			}
			c.answer = end.Execution
			c.complete(ctx)
			x.timer.Reset(drainFor)
			io.Copy(io.Discard, io.LimitReader(x.resp.Body, 64<<10))
			return true, nil
		case "failure":
			var w wireError
			if err := json.Unmarshal(line, &w); err != nil {
				return true, fmt.Errorf("%w: %w", errBroken, err)
			}
			return true, w.toError(0)
		case "":
			if e := lateError(line); e != nil { // a late answer that turned out to be one
				return true, e
			}
		}
	}
}

// complete takes from the end what no stream has brought.
func (c *cellRun) complete(ctx context.Context) {
	for stream, all := range map[string]string{"stdout": c.answer.Stdout, "stderr": c.answer.Stderr} {
		if n := c.taken[stream]; len(all) > n {
			c.print(stream, all[n:])
		}
	}
	for _, r := range c.answer.Results[min(c.results, len(c.answer.Results)):] {
		c.show(ctx, r)
	}
}

// print passes output on, up to a bound.
func (c *cellRun) print(stream, text string) {
	c.taken[stream] += len(text)
	switch {
	case text == "" || c.flooded():
	case c.taken["stdout"]+c.taken["stderr"] > maxPrinted:
		c.interrupt(true)
	case stream == "stderr":
		c.events.Stderr([]byte(text))
	default:
		c.events.Stdout([]byte(text))
	}
}

// show passes a display on, with the forms that had to be fetched.
func (c *cellRun) show(ctx context.Context, r cellResult) {
	c.results++
	d := interpreter.Display{Main: r.Main, Data: make(map[string][]byte)}
	for mime, raw := range r.Data {
		if b, ok := form(mime, raw); ok {
			d.Data[mime] = b
		}
	}
	for mime, ref := range r.Refs {
		if b, ok := c.fetch(ctx, ref); ok {
			d.Data[mime] = b
		}
	}
	if len(d.Data) == 0 {
		c.omitted++
		return
	}
	c.events.Display(d)
}

// form decodes a value of a MIME type: base64 for what is no text, and JSON either
// as it is or as a text.
func form(mime string, raw json.RawMessage) ([]byte, bool) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return bytes.Clone(raw), strings.HasSuffix(mime, "json")
	}
	if strings.HasPrefix(mime, "text/") || strings.HasSuffix(mime, "json") || strings.HasSuffix(mime, "+xml") {
		return []byte(s), true
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return b, err == nil
}

// fetch gets a value that comes by reference, within the bounds of the cell. What
// it names is code's own word, so that only results of this interpreter are
// fetched, and only what was promised is taken.
func (c *cellRun) fetch(ctx context.Context, ref reference) ([]byte, bool) {
	s := c.s
	s.mu.Lock()
	below := workspace + "/.runtime/interpreter/" + s.context + "/out/"
	s.mu.Unlock()
	file, ours := strings.CutPrefix(ref.Path, below)
	if !ours || file == "" || strings.ContainsAny(file, "/\\") || strings.Trim(file, ".") == "" ||
		ref.Bytes < 0 || ref.Bytes > maxRefs-c.fetched || c.fetching >= fetchTime {
		return nil, false
	}
	began := time.Now()
	defer func() { c.fetching += time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, fetchTime-c.fetching)
	defer cancel()
	b, err := s.client.download(ctx, &request{
		op: "result", sandbox: s.sandbox, method: http.MethodGet, path: s.path("/results/" + url.PathEscape(file)),
		accept: "application/octet-stream", answer: 30 * time.Second,
	}, ref.Bytes)
	sum := sha256.Sum256(b)
	if err != nil || len(b) != ref.Bytes || ref.SHA256 != "" && hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, false
	}
	c.fetched += len(b)
	return b, true
}

// conclude makes an Execution of what the API says, and finds out what became of
// the interpreter.
func (s *session) conclude(ctx context.Context, c *cellRun, w *watch, e *interpreter.Execution) {
	a := c.answer
	e.Status = a.Status
	if a.DurationMs != nil {
		e.Duration = milliseconds(*a.DurationMs)
	}
	if a.Error != nil {
		e.Error = &interpreter.Error{Name: a.Error.Name, Value: a.Error.Value, Traceback: string(a.Error.Traceback)}
	}
	e.Truncated = a.LostBytes > 0
	for _, o := range a.Overflow {
		e.Truncated = e.Truncated || o.Dropped > 0
	}
	s.mu.Lock()
	was, fresh := s.process, s.fresh
	e.Loss, s.lost, s.fresh = s.lost, nil, false
	s.mu.Unlock()
	if a.ContextStarted {
		if !fresh { // it had ended before
			cause, detail := s.causeOf(ctx, was)
			e.Loss = &interpreter.Loss{Cause: cause, Detail: detail, FilesKept: true}
		}
		if found, err := s.look(ctx); err == nil && found != nil {
			s.mu.Lock()
			s.process = found.ProcessID
			was = s.process
			s.mu.Unlock()
		}
	}
	switch {
	case w.killed:
		e.Status, e.Cause = w.status(), w.cause()
		s.mu.Lock()
		s.fresh = true
		s.mu.Unlock()
	case a.Status == interpreter.StatusLost:
		var detail string
		e.Cause, detail = s.causeOf(ctx, was)
		if w.stopped { // it did not survive that
			e.Status, e.Cause, detail = interpreter.StatusInterrupted, interpreter.CauseInterrupt, ""
		}
		e.Loss = &interpreter.Loss{Cause: e.Cause, Detail: detail, FilesKept: true}
		s.mu.Lock()
		s.dead = true
		s.mu.Unlock()
		return
	case a.Status == interpreter.StatusTimeout || a.Status == interpreter.StatusInterrupted || c.flooded():
		if found, err := s.look(ctx); err == nil && (found == nil || found.ProcessID != was) {
			e.Cause = w.cause()
			s.mu.Lock()
			s.dead, s.fresh = found == nil || found.ProcessID == "", true
			if found != nil {
				s.process = found.ProcessID
			}
			s.mu.Unlock()
		}
	}
	if e.Cause != "" {
		e.Loss = &interpreter.Loss{Cause: e.Cause, FilesKept: true}
	}
	if e.Status != interpreter.StatusError {
		e.Error = nil
	}
	c.limitOutput(e)
}

// limitOutput says of a cell that printed too much that it did.
func (c *cellRun) limitOutput(e *interpreter.Execution) {
	if c.flooded() {
		e.Status, e.Error = interpreter.StatusError, &interpreter.Error{Name: "OutputLimit", Value: fmt.Sprintf("the cell printed more than %d MiB", maxPrinted>>20)}
	}
}

// probe prints the names that there are, whatever code has made of Python.
const probe = `try:
    __import__("sys").stdout.write("\n".join([n for n, v in list(globals().items()) if n[:1] != "_" and type(v).__name__ != "module" and n not in ("In", "Out", "exit", "quit", "get_ipython", "display")][:200])[:4096])
except BaseException:
    pass
`

// after finds out what the API does not say of a cell: what changed in the work
// folder, and which names there are.
func (s *session) after(ctx context.Context, e *interpreter.Execution) {
	s.mu.Lock()
	dead := s.dead
	if e.Loss != nil {
		s.names = nil
	}
	s.mu.Unlock()
	if e.Loss != nil && !e.Loss.FilesKept {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlTime)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	var both sync.WaitGroup
	if s.language == fnloop.LanguagePython && !dead && e.Status != interpreter.StatusLost {
		both.Go(func() { s.ask(ctx) })
	}
	both.Go(func() { e.Files, e.MoreFiles = s.changes(ctx) })
	both.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Names = slices.Clone(s.names)
}

// ask asks the interpreter for the names that there are. They are a claim of the
// code; where there is no answer the last one holds.
func (s *session) ask(ctx context.Context) {
	a, err := s.aside(ctx, "names", probe, 2*time.Second)
	if err != nil || a.Status != interpreter.StatusOK {
		return
	}
	names := []string{}
	for n := range strings.SplitSeq(a.Stdout, "\n") {
		if n != "" && len(names) < 200 {
			names = append(names, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = names
}
