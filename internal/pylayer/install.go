package pylayer

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
)

//go:embed install.py
var installer string

// What an install may use.
const (
	InstallTime   = 15 * time.Minute
	InstallMemory = 2 << 30
	InstallPIDs   = 512
	InstallFiles  = 1024 // descriptors of a process
	// MaxBytes is how large a layer may be, and MaxEntries how many files and
	// folders it may have.
	MaxBytes   = 8 << 30
	MaxEntries = 500_000
	// spare is how much of the disk is left free, in bytes.
	spare = 256 << 20
)

// InstallDir is the folder that the sandbox of an install can write to, on a
// disk. The layer is in it, under the name of the last part of
// [supervisor.LayerDir].
const InstallDir = "/opt/fnloop"

// Rlimits are those of an install, whose sandbox has so many.
func Rlimits(of supervisor.Rlimits) supervisor.Rlimits {
	of["fsize"] = MaxBytes
	return of
}

// Key names the layer for an interpreter, which the text identifies: the same
// packages from the same places for the same interpreter have the same.
func (l *List) Key(interpreter string) string {
	// Credentials change more often than what they open.
	parts := [][]string{{installer, interpreter}, slices.Clone(l.requirements), slices.Clone(l.constraints)}
	for _, option := range []string{"index-url", "extra-index-url", "find-links", "trusted-host", "no-index", "pre", "prefer-binary"} {
		parts = append(parts, slices.Clone(l.pip.options[option]))
	}
	for i := range parts {
		for k := range parts[i] {
			parts[i][k] = userinfo.ReplaceAllString(parts[i][k], "$1")
		}
	}
	text, _ := json.Marshal(parts) // strings can be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Folders are the folders of this machine that packages are looked for in.
func (l *List) Folders() []string { return l.pip.folders }

// String says which packages the list names.
func (l *List) String() string { return l.redact(strings.Join(l.requirements, ", ")) }

// Program is the program that installs the list, for a sandbox that has a
// network and [InstallDir]. Uv is the path of uv there, or empty. Told gets what
// the installer prints, line by line.
func (l *List) Program(uv string, told func(line string)) fnloop.Program {
	given, _ := json.Marshal(map[string]any{ // so can these
		"requirements": strings.Join(l.requirements, "\n") + "\n",
		"constraints":  strings.Join(l.constraints, "\n"),
		"pip":          l.pip.config(),
		"uv":           uv,
		"uv_variables": l.pip.uv(),
		"variables":    l.pip.variables,
		"cert":         l.pip.cert,
		"client_cert":  l.pip.clientCert,
		"netrc":        l.pip.netrc,
		"most":         int64(MaxBytes),
		"spare":        int64(spare),
	})
	p := fnloop.Program{Source: installer, Stdin: given, Limits: fnloop.Limits{Time: InstallTime, Memory: InstallMemory}}
	if told != nil {
		p.Stdout = &lines{to: func(line string) { told(l.redact(line)) }}
	}
	return p
}

// lastLines is how much of what an installer printed is in an error.
const lastLines = 30

// Failure says why an install failed, or nil.
func (l *List) Failure(res fnloop.Result, err error) error {
	bad := &fnloop.PackageError{Field: "Packages"}
	why := strings.TrimSpace(res.Stderr)
	switch {
	case err != nil:
		return fmt.Errorf("%s: the install: %w", bad.Field, err)
	case res.ExitCode != nil && *res.ExitCode == 0:
		return nil
	case res.TimedOut:
		bad.Reason = fmt.Sprintf("the install took more than %v", InstallTime)
	case res.End == fnloop.EndMemory:
		bad.Reason = fmt.Sprintf("the install needed more than %d MiB of memory", res.Limits.Memory>>20)
	case res.ExitCode == nil:
		bad.Reason = fmt.Sprintf("the install was ended: %s", why)
	case why != "":
		bad.Reason = why
	default:
		bad.Reason = "they cannot be installed"
	}
	bad.Reason = l.redact(bad.Reason)
	said := strings.Split(strings.TrimSpace(res.Stdout), "\n")
	bad.Output = l.redact(strings.Join(said[max(0, len(said)-lastLines):], "\n"))
	return bad
}

// A lines calls a function for each line that is written to it.
type lines struct {
	to   func(string)
	mu   sync.Mutex
	rest []byte
}

var _ io.Writer = (*lines)(nil)

// Write takes the next bytes in.
func (w *lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		w.to(strings.TrimSpace(string(line)))
		w.rest = rest
	}
}
