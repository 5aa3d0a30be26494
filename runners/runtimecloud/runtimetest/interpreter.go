package runtimetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

const (
	workspace = "/workspace"
	// maxInline is how much of each stream an execution has at its end. The
	// service's own figure is not documented; this is that of a command.
	maxInline = 1 << 20
	// cellTimeout is how long a cell may run that does not say. The service's own
	// default is not documented.
	cellTimeout = 60_000
)

// languages are those of cells. The later ones are installed on first use.
var languages = []string{"python", "javascript", "typescript", "bash", "r", "java", "go"}

var installed = languages[:4]

// A kernel is an interpreter of a sandbox, a "context" by the API's name. Its
// fields are guarded by Server.mu but for those that never change.
type kernel struct {
	id, language, cwd string
	env               map[string]string
	guest             fnloop.Runner
	driver            interpreter.Driver
	turn              chan struct{} // full while a cell runs

	process string // of the API's name for it; empty while none runs
	started time.Time
	count   int
	cells   []string // that ran in this process, for copies
	run     *cellRun // the latest
	ran     []*cellRun
	results map[string][]byte
}

// An ended is how a process of a kernel ended, which the API still knows.
type ended struct {
	exitCode *int
	state    string
}

// A cellRun is a cell that runs or has run, with what the API tells of it.
type cellRun struct {
	kernel *kernel
	stop   context.CancelFunc
	flag   bool // it is to be interrupted when its client goes
	over   bool // guarded by Server.mu
	done   chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and made anew at each change
	events  [][]byte
	texts   map[string]*text
	results []map[string]any
	lost    int
	answer  map[string]any
	refusal *apiError
}

// A text is one stream of a cell.
type text struct {
	kept  strings.Builder
	total int
	part  []byte // of a rune
}

func (r *cellRun) tell(event map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, encode(event))
	close(r.changed)
	r.changed = make(chan struct{})
}

// since gives the events from the nth on, and a channel that is closed when
// there are more.
func (r *cellRun) since(n int) ([][]byte, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[min(n, len(r.events)):], r.changed
}

// keepRuns is of how many cells of a kernel all events are kept, for those who ask
// once more. Of others there is the end.
const keepRuns = 4

// forget drops all that was told but the end.
func (r *cellRun) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.events); n > 1 {
		r.events = [][]byte{r.events[n-1]}
	}
	r.texts, r.results = nil, nil
}

func (r *cellRun) finish(answer map[string]any, refusal *apiError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.refusal = answer, refusal
	close(r.done)
}

// print tells of output, in whole runes.
func (r *cellRun) print(stream string, p []byte) {
	r.mu.Lock()
	t := r.texts[stream]
	b := append(t.part, p...)
	whole := len(b)
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				whole = len(b) - i
			}
			break
		}
	}
	t.part = slices.Clone(b[whole:])
	s := strings.ToValidUTF8(string(b[:whole]), "\ufffd")
	t.keep(s)
	r.mu.Unlock()
	if s != "" {
		r.tell(map[string]any{"k": stream, "text": s})
	}
}

func (t *text) keep(s string) {
	t.total += len(s)
	t.kept.WriteString(strings.ToValidUTF8(s[:min(len(s), max(0, maxInline-t.kept.Len()))], ""))
}

// flush tells of half a rune at the end.
func (r *cellRun) flush() {
	for _, stream := range []string{"stdout", "stderr"} {
		if t := r.texts[stream]; len(t.part) > 0 {
			t.part = nil
			t.keep("\ufffd")
			r.tell(map[string]any{"k": stream, "text": "\ufffd"})
		}
	}
}

// Stdout implements [interpreter.Events].
func (r *cellRun) Stdout(p []byte) { r.print("stdout", p) }

// Stderr implements [interpreter.Events].
func (r *cellRun) Stderr(p []byte) { r.print("stderr", p) }

// Background implements [interpreter.Events]. The documentation does not say what
// becomes of what is printed between two cells; here it is lost, and counted.
func (r *cellRun) Background(p []byte) { r.lost += len(p) }

// A shower is a cellRun that can put a display into the API's form, which takes the
// mutex of the Server.
type shower struct {
	*cellRun
	s *Server
}

// Display implements [interpreter.Events].
func (r shower) Display(d interpreter.Display) {
	data, refs := make(map[string]any), make(map[string]any)
	for mime, b := range d.Data {
		if mime == "application/vnd.dataresource+json" {
			mime = "application/vnd.runtime.table+json"
		}
		if len(b) > cmp.Or(r.s.Inline, 64<<10) {
			sum := sha256.Sum256(b)
			r.s.mu.Lock()
			k := r.kernel
			r.s.seq++
			file := fmt.Sprintf("%d-%d", k.count, r.s.seq)
			if k.results == nil {
				k.results = make(map[string][]byte)
			}
			k.results[file] = b
			r.s.mu.Unlock()
			refs[mime] = map[string]any{
				"path":  workspace + "/.runtime/interpreter/" + k.id + "/out/" + file,
				"bytes": len(b), "sha256": hex.EncodeToString(sum[:]),
			}
			continue
		}
		switch {
		case strings.HasSuffix(mime, "json") && json.Valid(b):
			data[mime] = json.RawMessage(b)
		case strings.HasPrefix(mime, "text/") || strings.HasSuffix(mime, "+xml"):
			data[mime] = strings.ToValidUTF8(string(b), "\ufffd")
		default:
			data[mime] = base64.StdEncoding.EncodeToString(b)
		}
	}
	result := map[string]any{"main": d.Main, "data": data, "refs": refs}
	r.mu.Lock()
	r.results = append(r.results, result)
	r.mu.Unlock()
	r.tell(map[string]any{"k": "result", "main": d.Main, "data": data, "refs": refs})
}

// guest gives who runs cells of the language.
func (s *Server) guest(language string) (fnloop.Runner, interpreter.Opener, *apiError) {
	r := s.Guests[language]
	if r == nil && language == "python" {
		r = s.Python
	}
	if r != nil {
		if o, is := fnloop.RunnerAs[interpreter.Opener](r); is {
			return r, o, nil
		}
	}
	return nil, nil, refuse(http.StatusBadGateway, "interpreter_failed", "The stand-in has nobody to run %s.", language)
}

// newKernel starts an interpreter in sb. The caller holds s.mu, which is given
// up in between.
func (s *Server) newKernel(ctx context.Context, sb *sandbox, id, language, cwd string, env map[string]string) (*kernel, *apiError) {
	if !slices.Contains(installed, language) && !sb.languages[language] {
		if !*sb.net.Internet || len(sb.net.Allow) > 0 { // from which hosts it comes is not documented
			return nil, refuse(http.StatusBadGateway, "interpreter_failed", "%s cannot be installed without a network.", language)
		}
		s.mu.Unlock()
		waited := pause(ctx, s.InstallDelay)
		s.mu.Lock()
		if !waited {
			return nil, refuse(http.StatusGatewayTimeout, "interpreter_failed", "%s was not installed.", language)
		}
		if sb.languages == nil {
			sb.languages = make(map[string]bool)
		}
		sb.languages[language] = true
	}
	r, opener, refusal := s.guest(language)
	if refusal != nil {
		return nil, refusal
	}
	k := &kernel{id: id, language: language, cwd: cwd, env: env, guest: r, turn: make(chan struct{}, 1)}
	files := make(map[string][]byte)
	if sb.folder == nil {
		for name, data := range sb.files {
			if below, is := strings.CutPrefix(name, workspace+"/"); is {
				files[below] = data
			}
		}
	}
	memory := sb.memoryMiB << 20
	s.mu.Unlock()
	d, err := opener.OpenInterpreter(context.WithoutCancel(ctx), interpreter.Config{
		Limits: fnloop.Limits{Memory: memory}, NoCopy: true, Grace: cmp.Or(s.Grace, time.Second),
	})
	for name, data := range files {
		if err == nil {
			err = d.Put(context.WithoutCancel(ctx), name, strings.NewReader(string(data)))
		}
	}
	s.mu.Lock()
	if err != nil {
		return nil, refuse(http.StatusBadGateway, "interpreter_failed", "%v", err)
	}
	k.driver = d
	if sb.deleted || sb.state == "stopped" {
		s.closing.Go(func() { d.Close() }) //nolint:errcheck // it is over
		return nil, refuse(http.StatusConflict, "sandbox_stopped", "The sandbox is stopped.")
	}
	s.begin(k)
	if sb.folder == nil {
		sb.folder = d
	}
	sb.kernels = append(sb.kernels, k)
	return k, nil
}

// begin starts the process of k, as the API sees it.
func (s *Server) begin(k *kernel) {
	s.seq++
	k.process, k.started, k.cells = fmt.Sprintf("i-%d", s.seq), time.Now(), nil
}

// die ends the process of k. An interpreter is one of the processes that the API
// knows: that is a guess.
func (s *Server) die(sb *sandbox, k *kernel, e interpreter.Execution) {
	if sb.gone == nil {
		sb.gone = make(map[string]ended)
	}
	end := ended{state: "killed"}
	if e.Loss != nil && e.Loss.Cause == interpreter.CauseExit {
		var code int
		fmt.Sscanf(e.Loss.Detail, "exit status %d", &code) //nolint:errcheck // it is zero then
		end = ended{exitCode: &code, state: "exited"}
	}
	if e.Loss != nil && e.Loss.Cause == interpreter.CauseMemory {
		sb.oomKills++
	}
	sb.gone[k.process] = end
	k.process = ""
}

func (sb *sandbox) kernel(id string) *kernel {
	for _, k := range sb.kernels {
		if k.id == id {
			return k
		}
	}
	return nil
}

// context gives the kernel that the path names. It returns with s.mu held. What
// the service answers for one that it does not know is not documented; this is
// what it answers for a sandbox that it does not know.
func (s *Server) context(c *call) (*sandbox, *kernel, *apiError) {
	sb, refusal := s.use(c)
	if refusal != nil {
		return nil, nil, refusal
	}
	k := sb.kernel(c.path[4])
	if k == nil {
		return nil, nil, refuse(http.StatusNotFound, "not_found", "No context %s.", c.path[4])
	}
	return sb, k, nil
}

func (k *kernel) object() map[string]any {
	o := map[string]any{
		"id": k.id, "language": k.language, "processId": k.process, "cwd": k.cwd,
		"state": "idle", "startedAt": k.started.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	switch {
	case k.process == "":
		o["processId"], o["state"] = nil, "dead"
	case len(k.turn) > 0:
		o["state"] = "busy"
	}
	return o
}

func (s *Server) contexts(c *call) (*answer, *apiError) {
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	data := []map[string]any{}
	for _, k := range sb.kernels {
		data = append(data, k.object())
	}
	return ok(map[string]any{"data": data}), nil
}

func (s *Server) newContext(c *call) (*answer, *apiError) {
	f := c.fields()
	language := f.text("language", "python", languages...)
	id, cwd, env := f.text("id", ""), f.text("cwd", workspace), f.pairs("env", 32)
	if !path.IsAbs(cwd) {
		f.wrong("cwd", "an absolute path")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	if id == "" {
		s.seq++
		id = fmt.Sprintf("c-%d", s.seq)
	}
	if sb.kernel(id) != nil {
		return nil, refuse(http.StatusConflict, "name_taken", "There is a context %s.", id)
	}
	k, refusal := s.newKernel(c.Context(), sb, id, language, cwd, env)
	if refusal != nil {
		return nil, refusal
	}
	return ok(k.object()), nil
}

func (s *Server) runCell(c *call) (*answer, *apiError) {
	f := c.fields()
	code := f.text("code", "")
	language := f.text("language", "python", languages...)
	id := f.text("context", "")
	ms := f.integer("timeoutMs", cellTimeout, 1, 86_400_000, true)
	interruptOnDisconnect := f.flag("interruptOnDisconnect", true)
	stream := f.flag("stream", false)
	if code == "" {
		f.wrong("code", "is needed")
	}
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, refusal := s.use(c)
	if refusal != nil {
		s.mu.Unlock()
		return nil, refusal
	}
	k := sb.kernel(cmp.Or(id, language))
	started := false
	switch {
	case k == nil && id != "" && id != language:
		s.mu.Unlock()
		return nil, refuse(http.StatusNotFound, "not_found", "No context %s.", id)
	case k == nil:
		if k, refusal = s.newKernel(c.Context(), sb, language, language, workspace, nil); refusal != nil {
			s.mu.Unlock()
			return nil, refusal
		}
		started = true
	}
	ctx, stop := context.WithCancel(sb.life)
	r := &cellRun{
		kernel: k, stop: stop, flag: interruptOnDisconnect, done: make(chan struct{}), changed: make(chan struct{}),
		texts: map[string]*text{"stdout": {}, "stderr": {}},
	}
	sb.cells++
	s.mu.Unlock()
	limit := time.Duration(ms) * time.Millisecond
	if ms == 0 {
		limit = 24 * time.Hour
	}
	go s.runIn(ctx, sb, r, code, limit, started)
	if stream {
		return &answer{status: http.StatusOK, cell: r, sandbox: sb}, nil
	}
	select {
	case <-r.done:
	case <-c.Context().Done():
		if r.flag {
			stop()
		}
		<-r.done
	}
	if r.refusal != nil {
		return nil, r.refusal
	}
	return ok(r.answer), nil
}

// runIn runs the cell, in its turn.
func (s *Server) runIn(ctx context.Context, sb *sandbox, r *cellRun, code string, limit time.Duration, started bool) {
	defer r.stop()
	k := r.kernel
	s.mu.Lock()
	turn := k.turn
	s.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		s.mu.Lock()
		sb.cells--
		s.mu.Unlock()
		r.finish(nil, refuse(http.StatusConflict, "sandbox_stopped", "%v", context.Cause(ctx)))
		return
	}
	s.mu.Lock()
	if k.process == "" {
		s.begin(k)
		started = true
	}
	k.count++
	count, d := k.count, k.driver
	k.run = r
	s.mu.Unlock()
	r.tell(map[string]any{"k": "start", "n": count})
	began := time.Now()
	e, err := d.Run(ctx, interpreter.Cell{Source: code, Limits: fnloop.Limits{Time: limit}}, shower{r, s})
	r.flush()

	s.mu.Lock()
	defer s.mu.Unlock()
	if r.over {
		return
	}
	r.over = true
	defer func() { <-turn }()
	sb.cells--
	sb.active = time.Now()
	if sb.life.Err() != nil {
		r.finish(nil, refuse(http.StatusConflict, "sandbox_stopped", "%v", context.Cause(sb.life)))
		return
	}
	if err != nil || e.Loss != nil && !e.Loss.FilesKept {
		// The local sandbox, which is all of the machine here, is no more.
		s.halt(sb, "stopped", "host_stopped", time.Now())
		r.finish(nil, refuse(http.StatusConflict, "sandbox_stopped", "The sandbox is stopped."))
		return
	}
	if e.Loss != nil && e.Cause == "" { // it had ended before
		s.die(sb, k, e)
		s.begin(k)
		started = true
	}
	status := string(e.Status)
	if e.Loss != nil && e.Cause != "" {
		s.die(sb, k, e)
		if e.Status == interpreter.StatusError {
			status = "lost"
		}
	} else {
		k.cells = append(k.cells, code)
	}
	var fault map[string]any
	if e.Error != nil && status == "error" {
		fault = map[string]any{"name": e.Error.Name, "value": e.Error.Value, "traceback": e.Error.Traceback}
		r.tell(map[string]any{"k": "error", "name": e.Error.Name, "value": e.Error.Value, "traceback": e.Error.Traceback})
	}
	overflow := []map[string]any{}
	for _, stream := range []string{"stdout", "stderr"} {
		if t := r.texts[stream]; t.total > t.kept.Len() {
			overflow = append(overflow, map[string]any{"stream": stream, "path": nil, "bytes": t.total, "dropped": t.total - t.kept.Len()})
		}
	}
	s.seq++
	answer := map[string]any{
		"id": fmt.Sprintf("x-%d", s.seq), "contextId": k.id, "language": k.language, "executionCount": count, "status": status,
		"stdout": r.texts["stdout"].kept.String(), "stderr": r.texts["stderr"].kept.String(),
		"results": append([]map[string]any{}, r.results...), "error": fault, "overflow": overflow,
		"durationMs": time.Since(began).Milliseconds(), "contextStarted": started, "lostBytes": r.lost,
	}
	r.tell(map[string]any{"k": "end"})
	r.tell(map[string]any{"k": "execution", "execution": answer})
	r.finish(answer, nil)
	if k.ran = append(k.ran, r); len(k.ran) > keepRuns {
		k.ran[0].forget()
		k.ran = k.ran[1:]
	}
}

// streamCell sends the events of a cell as they come, from the first.
func (c *call) streamCell(a *answer, s *Server) {
	r, ctx := a.cell, c.Context()
	s.mu.Lock()
	running := a.sandbox.ctx // until it is paused
	s.mu.Unlock()
	h := c.out.Header()
	h.Set("Content-Type", "application/x-ndjson")
	if c.fault.Late {
		h.Set("runtime-late-answer", "true")
	}
	c.out.WriteHeader(http.StatusOK)
	c.flush()
	fault := c.fault.Stream
	for n := 0; ; {
		over := false
		select {
		case <-r.done:
			over = true
		default:
		}
		events, changed := r.since(n)
		for _, line := range events {
			if fault != "" && n == c.fault.Events {
				c.breakCell(fault, line)
				return
			}
			n++
			c.print(line)
		}
		switch {
		case len(events) > 0:
			c.flush()
		case over:
			if r.refusal != nil {
				failure := r.refusal.envelope(c.id)["error"].(map[string]any)
				failure["k"] = "failure"
				c.print(encode(failure))
			}
			return
		default:
			select {
			case <-changed:
			case <-r.done:
			case <-running.Done():
				if a.sandbox.life.Err() == nil { // it was paused, and says nothing more
					panic(http.ErrAbortHandler)
				}
				<-r.done
			case <-ctx.Done():
				if r.flag {
					r.stop()
				}
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// breakCell ends the stream of a cell in the way of the fault, before the event in
// line.
func (c *call) breakCell(fault StreamFault, line []byte) {
	c.breakStream(fault, line, func(e *apiError) map[string]any {
		event := e.envelope(c.id)["error"].(map[string]any)
		event["k"] = "failure"
		return event
	})
}

func (s *Server) restart(c *call) (*answer, *apiError) {
	f := c.fields()
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	sb, k, refusal := s.context(c)
	if refusal != nil {
		s.mu.Unlock()
		return nil, refusal
	}
	run, turn := k.run, k.turn
	if run != nil {
		run.stop() // which kills it in the end
	}
	s.mu.Unlock()
	deaf := time.NewTimer(5 * time.Second)
	defer deaf.Stop()
	select {
	case turn <- struct{}{}:
	case <-deaf.C: // a guest that does not stop is left behind
		s.mu.Lock()
		if !run.over {
			run.over = true
			sb.cells--
			run.finish(nil, refuse(http.StatusBadGateway, "interpreter_failed", "The interpreter was restarted."))
		}
		turn = make(chan struct{}, 1)
		turn <- struct{}{}
		k.turn = turn
		s.mu.Unlock()
	case <-c.Context().Done():
		panic(http.ErrAbortHandler)
	}
	err := k.driver.Restart(context.WithoutCancel(c.Context()))
	s.mu.Lock()
	defer s.mu.Unlock()
	<-turn
	if err != nil {
		s.halt(sb, "stopped", "host_stopped", time.Now())
		return nil, refuse(http.StatusConflict, "sandbox_stopped", "The sandbox is stopped.")
	}
	if k.process != "" {
		s.die(sb, k, interpreter.Execution{})
	}
	s.begin(k)
	return ok(k.object()), nil
}

func (s *Server) interrupt(c *call) (*answer, *apiError) {
	f := c.fields()
	if refusal := f.done(); refusal != nil {
		return nil, refusal
	}
	_, k, refusal := s.context(c)
	if refusal != nil {
		s.mu.Unlock()
		return nil, refusal
	}
	d, busy := k.driver, len(k.turn) > 0
	s.mu.Unlock()
	ran := false
	if busy {
		ran, _ = d.Interrupt(c.Context())
	}
	return ok(map[string]any{"interrupted": ran}), nil
}

func (s *Server) dropContext(c *call) (*answer, *apiError) {
	sb, refusal := s.use(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	k := sb.kernel(c.path[4])
	if k == nil {
		return ok(map[string]any{"deleted": false}), nil
	}
	sb.kernels = slices.DeleteFunc(sb.kernels, func(other *kernel) bool { return other == k })
	if k.driver != sb.folder { // which holds the files
		s.closing.Go(func() { k.driver.Close() }) //nolint:errcheck // it is over
	}
	return ok(map[string]any{"deleted": true}), nil
}

func (s *Server) result(c *call) (*answer, *apiError) {
	_, k, refusal := s.context(c)
	defer s.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	data, there := k.results[c.path[6]]
	if !there {
		return nil, refuse(http.StatusNotFound, "file_not_found", "No result %s.", c.path[6])
	}
	return fileAnswer(data), nil
}

// fileAnswer is the answer to a request for a file.
func fileAnswer(data []byte) *answer {
	sum := sha256.Sum256(data)
	a := ok(data)
	a.header = http.Header{
		"X-Content-Length": {strconv.Itoa(len(data))},
		"X-Content-Sha256": {hex.EncodeToString(sum[:])},
	}
	return a
}

// shut ends the interpreters of a sandbox that ran for the last time. The caller
// holds s.mu.
func (s *Server) shut(sb *sandbox) {
	sb.destroy(errors.New("the sandbox ended: " + sb.reason))
	closed := make(map[interpreter.Driver]bool)
	for _, d := range append([]interpreter.Driver{sb.folder}, drivers(sb.kernels)...) {
		if d != nil && !closed[d] {
			closed[d] = true
			s.closing.Go(func() { d.Close() }) //nolint:errcheck // it is over
		}
	}
	for _, k := range sb.kernels {
		for _, r := range k.ran {
			r.forget()
		}
	}
	sb.kernels, sb.folder = nil, nil
}

func drivers(kernels []*kernel) (all []interpreter.Driver) {
	for _, k := range kernels {
		all = append(all, k.driver)
	}
	return all
}

// copyOf starts in the sandbox to what the kernel k of another has. There is no
// way to copy a process here, so that its cells are run once more: what they do
// must not depend on time or chance. The caller holds s.mu, which is given up in
// between.
func (s *Server) copyOf(ctx context.Context, to *sandbox, k kernelCopy) *apiError {
	made, refusal := s.newKernel(ctx, to, k.id, k.language, k.cwd, k.env)
	if refusal != nil {
		return refusal
	}
	made.process, made.count = k.process, k.count // it is the same process, in another machine
	s.mu.Unlock()
	defer s.mu.Lock()
	for _, code := range k.cells {
		if _, err := made.driver.Run(ctx, interpreter.Cell{Source: code, Limits: fnloop.Limits{Time: time.Minute}}, nowhere{}); err != nil {
			return refuse(http.StatusBadGateway, "guest_failed", "%v", err)
		}
	}
	made.cells = slices.Clone(k.cells)
	for name, data := range k.files { // as they were, whatever the cells made of them
		if err := made.driver.Put(ctx, name, strings.NewReader(string(data))); err != nil {
			return refuse(http.StatusBadGateway, "guest_failed", "%v", err)
		}
	}
	return nil
}

// A kernelCopy is what is to be known of a kernel to make another like it.
type kernelCopy struct {
	id, language, cwd, process string
	env                        map[string]string
	count                      int
	cells                      []string
	files                      map[string][]byte
}

// copies gives those of a sandbox that has kernels. The caller holds s.mu, which
// is given up in between.
func (s *Server) copies(ctx context.Context, sb *sandbox) ([]kernelCopy, *apiError) {
	var all []kernelCopy
	for _, k := range sb.kernels {
		all = append(all, kernelCopy{k.id, k.language, k.cwd, k.process, k.env, k.count, slices.Clone(k.cells), nil})
	}
	folder := sb.folder
	if folder == nil {
		return all, nil
	}
	s.mu.Unlock()
	files, err := filesOf(ctx, folder)
	s.mu.Lock()
	if err != nil {
		return nil, refuse(http.StatusBadGateway, "guest_failed", "%v", err)
	}
	if len(all) > 0 {
		all[0].files = files
	}
	return all, nil
}

func filesOf(ctx context.Context, d interpreter.Driver) (map[string][]byte, error) {
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for _, f := range list {
		r, err := d.Get(ctx, f.Name)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return nil, err
		}
		files[f.Name] = data
	}
	return files, nil
}

// nowhere are events that nobody looks at.
type nowhere struct{}

func (nowhere) Stdout([]byte)               {}
func (nowhere) Stderr([]byte)               {}
func (nowhere) Background([]byte)           {}
func (nowhere) Display(interpreter.Display) {}
