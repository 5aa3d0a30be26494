package supervisor

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

//go:embed template.py
var embeddedTemplate string

var templateSource = compact(embeddedTemplate)

// A Fork is what a template is told to fork a supervisor for.
type Fork struct {
	// Command is bwrap and its arguments, but for the descriptors of the seccomp
	// filter and of its information. It must start a program that copies its standard
	// input to its standard output.
	Command []string
	// Rlimits bound modules that are imported before the program.
	Rlimits Rlimits
	// Masked are files of the sandbox that nobody can read, and ReadOnly folders and
	// files that nobody can write. Those that are not there are left out. It is done
	// when bwrap has made the sandbox, as bwrap itself takes ten times as long.
	Masked, ReadOnly []string
}

// Payload is what is written to the template for f.
func (f Fork) Payload() []byte {
	body := strings.Join([]string{
		strings.Join(f.Command, "\x00"), f.Rlimits.Lines(), strings.Join(f.Masked, "\x00"), strings.Join(f.ReadOnly, "\x00"),
	}, "\x01")
	n := len(body)
	return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// Template makes of the supervisor a template. filter is the seccomp filter of those
// that it is forked into. The modules of imported are imported once, in the template,
// those of each in each of its children; both are as [PreloadList] has them. An error
// of the kind [ErrNotTemplate] is about these modules.
//
// From then on a [Fork] is written to the sandbox, with a stream socket and what is
// standard error beside it. Over the socket the child passes a descriptor of its own
// process, and waits for a byte of zero; then it passes that of the first process of
// the sandbox that it is in; then it is a supervisor like others, see [Connect].
func (c *Conn) Template(filter []byte, imported, each string) error {
	b := appendFrame(nil, kindTemplate, templateSource)
	b = appendFrame(b, kindTemplate, string(filter))
	b = appendFrame(b, kindTemplate, imported)
	b = appendFrame(b, kindTemplate, each)
	if _, err := c.sandbox.Write(b); err != nil {
		return err
	}
	kind, payload, err := c.frames.next()
	switch {
	case err != nil:
		return err
	case kind == kindFailed:
		return fmt.Errorf("%w: %s", ErrNotTemplate, payload)
	case kind != kindReady:
		return fmt.Errorf("%w: a frame of kind %q", ErrNotSupervisor, kind)
	}
	return nil
}

// ErrNotTemplate is within the error of [Conn.Template] where modules cannot be
// imported once for all.
var ErrNotTemplate = errors.New("the interpreter cannot be forked for each program")
