package runtimecloud

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line of a stream.
const maxLine = 16 << 20

var errLongLine = fmt.Errorf("a line of the stream is longer than %d bytes", maxLine)

// An event is one line of the answer to a streamed command.
type event struct {
	Type      string `json:"type"`
	ProcessID string `json:"processId"`

	// stdout, stderr
	Data   string `json:"data"`
	Base64 []byte `json:"base64"` // what Data cannot say when it is not UTF-8
	Offset *int64 `json:"offset"` // of the first byte, in stdout and stderr together

	// truncated
	DroppedBytes int64  `json:"droppedBytes"`
	ResumeAt     *int64 `json:"resumeAt"`

	// exit
	ExitCode   *int     `json:"exitCode"`
	State      string   `json:"state"` // exited, killed, timed_out, unknown
	TimedOut   bool     `json:"timedOut"`
	DurationMs *float64 `json:"durationMs"`

	// continue, and some errors
	Cursor *int64 `json:"cursor"`

	// error; alone on its line when a late answer turned out to be one
	Error *wireError `json:"error"`
}

// output gives the bytes of a stdout or stderr event.
func (e *event) output() []byte {
	if e.Base64 != nil {
		return e.Base64
	}
	return []byte(e.Data)
}

// A decoder reads the events of a stream.
type decoder struct {
	r *bufio.Reader
}

func newDecoder(r io.Reader) *decoder {
	return &decoder{bufio.NewReaderSize(r, 64<<10)}
}

// next gives the next event of a command.
func (d *decoder) next() (e event, err error) {
	_, err = d.decode(&e)
	return e, err
}

// decode reads the next event, and gives its line, which is good until the next. A
// stream that ends between two events gives io.EOF;
// one that ends within an event, io.ErrUnexpectedEOF.
func (d *decoder) decode(v any) ([]byte, error) {
	for {
		line, err := d.line()
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			if ended {
				return nil, io.EOF
			}
			continue // late answers and idle streams are kept open with white space
		}
		if err := json.Unmarshal(line, v); err != nil {
			var corrupt base64.CorruptInputError
			if ended && !errors.As(err, &corrupt) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("a line of the stream is not an event: %w", err)
		}
		return line, nil
	}
}

// line reads up to a newline or the end, whichever comes first. It is io.EOF
// with what was left at the end.
func (d *decoder) line() ([]byte, error) {
	var long []byte
	for {
		part, err := d.r.ReadSlice('\n')
		if err == nil && long == nil {
			return part, nil
		}
		if len(long)+len(part) > maxLine {
			return nil, errLongLine
		}
		if err == nil {
			return append(long, part...), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return append(long, part...), err
		}
		long = append(long, part...)
	}
}
