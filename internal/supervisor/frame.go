package supervisor

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxPayload is more than the supervisor ever puts into one frame.
const maxPayload = 64 << 10

// What the frames say. The first go in, the others come out.
const (
	kindConfig  = 'C' // limits, as key=number lines
	kindCommand = 'L' // how a program is run that is not Python's
	kindProgram = 'P' // the source; the program starts
	kindInput   = 'I' // a piece of its standard input, empty at the end

	kindTemplate = 'N' // the supervisor becomes a template: its code, then its settings

	kindReady   = 'R' // the interpreter is up, as key=value lines
	kindStarted = 'S' // the program runs
	kindStdout  = 'O' // a piece of its standard output
	kindStderr  = 'E'
	kindExit    = 'X' // it ended: its wait status, and for how long it ran
	kindTimeout = 'T' // it was ended, as the host was late to end it
	kindDone    = 'D' // all it printed has been sent and all it started is dead
	kindFailed  = 'F' // it could not be started, and why
)

// appendFrame appends one frame to b.
func appendFrame(b []byte, kind byte, payload string) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// A decoder reads frames in bounded memory.
type decoder struct {
	r   *bufio.Reader
	buf []byte
}

func newDecoder(r io.Reader) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, maxPayload+5)}
}

// next reads one frame. The payload is valid until the next call. The error is
// io.EOF where the stream ends between two frames.
func (d *decoder) next() (kind byte, payload []byte, err error) {
	head, err := d.r.Peek(5)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	kind = head[0]
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxPayload {
		return 0, nil, fmt.Errorf("%w: a frame of kind %q is %d bytes long", ErrNotSupervisor, kind, n)
	}
	if _, err := d.r.Discard(5); err != nil {
		return 0, nil, err
	}
	if d.buf == nil {
		d.buf = make([]byte, maxPayload)
	}
	if _, err := io.ReadFull(d.r, d.buf[:n]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, d.buf[:n], nil
}

// values reads key=value lines.
func values(payload []byte) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(string(payload)) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			m[k] = v
		}
	}
	return m
}

// number is the number at key in m, and whether there is one.
func number(m map[string]string, key string) (int64, bool) {
	n, err := strconv.ParseInt(m[key], 10, 64)
	return n, err == nil
}
