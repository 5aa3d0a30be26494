package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// DefaultMaxOutput is the size of the largest document that [Result.Text] gives, in
// bytes of the encoded JSON, and of the largest text that a [Loop] sends for
// one call unless [Loop.MaxOutput] says otherwise.
const DefaultMaxOutput = 64 << 10

// A Result is how one run of a program ended and what it printed.
//
// The model reads the first four fields, in their order, and nothing else; the
// others are for the host alone.
type Result struct {
	// ExitCode is the program's exit status, or nil when the program did not
	// exit by itself: it was killed, or it is not known how it ended.
	ExitCode *int `json:"exit_code"`
	// TimedOut reports whether the time limit ended the program.
	TimedOut bool `json:"timed_out"`
	// Stdout is what the program printed, as valid UTF-8. If it was too long,
	// it is the head and the tail with a marker between them that counts the bytes
	// left out.
	Stdout string `json:"stdout"`
	// Stderr is the same for the standard error stream. When the program was
	// killed its last line says by what.
	Stderr string `json:"stderr"`

	// End is what ended the program.
	End Ending `json:"-"`
	// Signal is the name of the signal that ended the program, such as
	// "SIGSEGV", when End is EndSignal. It may be empty if the runner was not
	// told.
	Signal string `json:"-"`
	// OOM reports whether the kernel killed a process of the sandbox because memory
	// ran out: the program (End is EndMemory or EndHostMemory) or one of its
	// children.
	OOM Evidence `json:"-"`
	// Limits are those that the run was held to, defaults filled in.
	Limits Limits `json:"-"`
	// Startup is how long the program waited for its sandbox.
	Startup time.Duration `json:"-"`
	// Duration is how long the program ran.
	Duration time.Duration `json:"-"`
	// StdoutBytes and StderrBytes count all that the program printed.
	StdoutBytes, StderrBytes int64 `json:"-"`
	// StdoutTruncated and StderrTruncated report whether bytes were left out.
	StdoutTruncated, StderrTruncated bool `json:"-"`
}

// An Ending is what ended a program. The first cause counts: a program that the
// time limit caught stays EndTimeout although a signal then killed it.
type Ending string

// What can end a program. The zero value says that it is not known.
const (
	EndUnknown    Ending = ""
	EndExit       Ending = "exit"         // by itself, with ExitCode
	EndTimeout    Ending = "timeout"      // killed at its time limit
	EndMemory     Ending = "memory"       // killed by the kernel at its memory limit
	EndHostMemory Ending = "host_memory"  // killed by the kernel below its limit, as there was no memory outside
	EndSignal     Ending = "signal"       // killed by Signal, sent by itself or raised by a fault
	EndOutput     Ending = "output_limit" // killed for printing without end
	EndCancelled  Ending = "cancelled"    // killed because the caller's context ended
	EndLost       Ending = "sandbox_lost" // the sandbox went away under the program
)

// Evidence is what a runner knows about a fact.
type Evidence string

// The values of Evidence. The zero value says that the fact is not known.
const (
	EvidenceUnknown Evidence = ""
	EvidenceYes     Evidence = "yes"
	EvidenceNo      Evidence = "no"
)

// SetOutput takes what a program printed into r, cut so that the document of
// [Result.Text] fits into [DefaultMaxOutput], and sets the counts. Set the fields that
// say how the program ended before: they decide the last line of Stderr.
func (r *Result) SetOutput(stdout, stderr *Capture) {
	out, err := stdout.text(), stderr.text()
	r.StdoutBytes, r.StderrBytes = out.size(), err.size()
	var cutOut, cutErr bool
	r.Stdout, r.Stderr, cutOut, cutErr = r.fit(out, err, r.statusLine(), jsonText, DefaultMaxOutput)
	r.StdoutTruncated, r.StderrTruncated = cutOut, cutErr
}

// Text is the JSON document that the model reads: exit_code, timed_out, stdout
// and stderr, in that order and without HTML escapes. It is never longer than
// [DefaultMaxOutput], whatever the strings hold: longer ones are cut in their middle.
func (r Result) Text() string {
	doc, _ := r.encode(jsonText, DefaultMaxOutput)
	return string(doc)
}

// output is what the model reads of the result in a Loop, within its MaxOutput.
func (r Result) output(ctx context.Context) Output {
	doc, cut := r.encode(jsonText, min(maxOutput(ctx), DefaultMaxOutput))
	return Output{Text: string(doc), Truncated: cut || r.StdoutTruncated || r.StderrTruncated}
}

// MarshalJSON gives the document of [Result.Text]. It stays within [DefaultMaxOutput]
// even when [json.Marshal] then escapes it for HTML.
func (r Result) MarshalJSON() ([]byte, error) {
	doc, _ := r.encode(htmlSafeJSON, DefaultMaxOutput)
	return doc, nil
}

// fields has the four fields that the model reads, without Result's methods.
type fields struct {
	ExitCode *int   `json:"exit_code"`
	TimedOut bool   `json:"timed_out"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

func (r Result) encode(as encoding, limit int) (doc []byte, cut bool) {
	stdout, stderr, cutOut, cutErr := r.fit(text{head: []byte(r.Stdout)}, text{head: []byte(r.Stderr)}, "", as, limit)
	if cutOut || cutErr {
		out, err := asCut(r.Stdout, r.StdoutTruncated), asCut(r.Stderr, r.StderrTruncated)
		stdout, stderr, _, _ = r.fit(out, err, "", as, limit)
	}
	var buf bytes.Buffer
	buf.Grow(len(stdout) + len(stderr) + 128)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(as == htmlSafeJSON)
	if err := enc.Encode(fields{r.ExitCode, r.TimedOut, stdout, stderr}); err != nil {
		panic(err) // four fields of plain types cannot fail
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), cutOut || cutErr
}

// fit cuts both streams to what the document has room for. What one stream
// leaves unused of its half the other may take.
func (r *Result) fit(stdout, stderr text, note string, as encoding, limit int) (out, err string, cutOut, cutErr bool) {
	room := limit - len(`{"exit_code":,"timed_out":,"stdout":"","stderr":""}`) - len("null") - len("false")
	if r.ExitCode != nil {
		room -= len(strconv.Itoa(*r.ExitCode))
	}
	if note != "" {
		if n := len(stderr.tail); n > 0 && stderr.tail[n-1] != '\n' || n == 0 && len(stderr.head) > 0 && stderr.head[len(stderr.head)-1] != '\n' {
			note = "\n" + note
		}
		room -= encodedLen(note, as)
	}
	room = max(room, 0)
	costOut, costErr := stdout.encodedSize(room, as), stderr.encodedSize(room, as)
	roomOut, roomErr := room/2, room/2
	switch {
	case costOut+costErr <= room || costOut <= room/2:
		roomOut, roomErr = costOut, room-costOut
	case costErr <= room/2:
		roomOut, roomErr = room-costErr, costErr
	}
	out, cutOut = stdout.truncate(roomOut, as)
	err, cutErr = stderr.truncate(roomErr, as)
	return out, err + note, cutOut, cutErr
}

// statusLine is the line that tells the model what killed the program.
func (r *Result) statusLine() string {
	switch {
	case r.End == EndTimeout:
		if r.Limits.Time > 0 {
			return fmt.Sprintf("[killed: the time limit of %v was reached]\n", r.Limits.Time)
		}
		return "[killed: the time limit was reached]\n"
	case r.End == EndMemory:
		if r.Limits.Memory > 0 {
			return fmt.Sprintf("[killed: out of memory, the limit is %d MiB]\n", r.Limits.Memory>>20)
		}
		return "[killed: out of memory]\n"
	case r.End == EndHostMemory:
		return "[killed: the host of the sandbox was out of memory]\n"
	case r.End == EndSignal && r.Signal == "":
		return "[killed by a signal]\n"
	case r.End == EndSignal:
		return fmt.Sprintf("[killed by %s]\n", r.Signal)
	case r.End == EndOutput:
		return "[killed: it printed too much]\n"
	case r.End == EndCancelled:
		return "[killed: the run was cancelled]\n"
	case r.End == EndLost:
		return "[the sandbox was lost; how the program ended is not known]\n"
	case r.End == EndUnknown && r.ExitCode == nil:
		return "[how the program ended is not known]\n"
	}
	return ""
}
