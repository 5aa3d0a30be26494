package mcptool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: most}
}

// An oversize is the error for a line that is too long. It was read to its end.
type oversize struct {
	size, max int
	id        []byte // of the message in the line, as JSON; nil if there is none
}

func (e *oversize) Error() string {
	return fmt.Sprintf("a message of %d bytes is larger than the %d that are taken", e.size, e.max)
}

// next returns the next line without its end. The line at the end of the input
// needs none.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		piece, err := l.r.ReadSlice('\n')
		if len(line)+len(piece) > l.max {
			return nil, l.skip(append(line, piece...), err)
		}
		line = append(line, piece...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// skip reads to the end of a line and finds the ID in it.
func (l *lineReader) skip(begin []byte, err error) error {
	find := idFinder{}
	find.feed(begin)
	size := len(begin)
	for errors.Is(err, bufio.ErrBufferFull) {
		var piece []byte
		piece, err = l.r.ReadSlice('\n')
		find.feed(piece)
		size += len(piece)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return &oversize{size: size, max: l.max, id: find.id}
}

// An idFinder finds the member id of a JSON object that comes in pieces, of which it
// keeps nothing else.
type idFinder struct {
	id []byte // what was found

	depth             int
	inString, escaped bool
	value             bool   // what comes is a value, and not a key
	text              []byte // of the key or the value at the first level, its beginning
	key               bool   // the key was id
}

func (f *idFinder) feed(p []byte) {
	const maxText = 128
	for i := 0; i < len(p); i++ {
		if f.inString && !f.escaped && (f.depth != 1 || len(f.text) >= maxText) { // most of it
			n := bytes.IndexByte(p[i:], '"')
			if n < 0 {
				n = len(p) - i
			}
			if escape := bytes.IndexByte(p[i:i+n], '\\'); escape >= 0 {
				n = escape
			}
			if i += n; i == len(p) {
				return
			}
		}
		b := p[i]
		structural := !f.inString
		switch {
		case f.escaped:
			f.escaped = false
		case f.inString && b == '\\':
			f.escaped = true
		case b == '"':
			f.inString = !f.inString
		}
		if structural {
			switch b {
			case '{', '[':
				f.depth++
				if f.depth == 1 {
					continue
				}
			case '}', ']':
				f.depth--
				if f.depth == 0 {
					f.end()
				}
			case ':':
				if f.depth == 1 && !f.value {
					f.key, f.value, f.text = string(f.text) == `"id"`, true, f.text[:0]
					continue
				}
			case ',':
				if f.depth == 1 {
					f.end()
					continue
				}
			case ' ', '\t', '\r', '\n':
				continue
			}
		}
		if f.depth == 1 && len(f.text) < maxText {
			f.text = append(f.text, b)
		}
	}
}

// end is at the end of a member of the first level.
func (f *idFinder) end() {
	if f.value && f.key && f.id == nil {
		f.id = bytes.Clone(f.text)
	}
	f.value, f.key, f.text = false, false, f.text[:0]
}

// failure is a response that tells of an error instead of what the server sent. It
// is nil if id is none.
func failure(id []byte, text string) *jsonrpc.Response {
	msg, err := jsonrpc.DecodeMessage([]byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{}}`))
	r, ok := msg.(*jsonrpc.Response)
	if err != nil || !ok {
		return nil
	}
	r.Result, r.Error = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: text}
	return r
}
