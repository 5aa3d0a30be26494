package fnloop

import (
	"bytes"
	"io"
	"strings"
)

// An eventBody reads the body of a streamed response and gives it the form that
// openai-go's decoder of server-sent events takes. Lines end in LF, where the
// standard allows CR alone too. A JSON document in place of the stream, which is
// what servers that cannot stream answer, is one event. What is no text passes
// as it is: openai-go has decoders of other kinds.
type eventBody struct {
	io.ReadCloser
	form   bodyForm
	start  []byte // of what may become a byte order mark
	cr     bool   // the last byte was a CR, so that an LF belongs to it
	rest   []byte // to be read next
	err    error  // of the body, once rest was read
	buffer [4 << 10]byte
}

const byteOrderMark = "\ufeff"

type bodyForm int

const (
	unknownBody bodyForm = iota
	eventLines
	jsonDocument
	otherBody
)

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		n, err := b.ReadCloser.Read(b.buffer[:])
		b.rest = b.convert(b.buffer[:n])
		if b.err = err; err == io.EOF && b.form == jsonDocument {
			b.rest = append(bytes.Clone(b.rest), "\n\n"...)
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// convert changes a piece of the body in place, where it can.
func (b *eventBody) convert(piece []byte) []byte {
	var prefix string
	if b.form == unknownBody {
		piece = append(b.start, piece...)
		if piece = bytes.TrimPrefix(piece, []byte(byteOrderMark)); strings.HasPrefix(byteOrderMark, string(piece)) {
			b.start = piece
			return nil
		}
		if piece = bytes.TrimLeft(piece, " \t\r\n"); len(piece) == 0 {
			return nil
		}
		switch c := piece[0]; {
		case c == '{':
			b.form, prefix = jsonDocument, "data: "
		case c < ' ':
			b.form = otherBody
		default:
			b.form = eventLines
		}
	}
	switch b.form {
	case jsonDocument: // a line break in it is white space
		for i, c := range piece {
			if c == '\n' || c == '\r' {
				piece[i] = ' '
			}
		}
	case eventLines:
		out := piece[:0]
		for _, c := range piece {
			after := b.cr
			b.cr = c == '\r'
			switch {
			case c == '\n' && after: // the line has ended
			case c == '\r':
				out = append(out, '\n')
			default:
				out = append(out, c)
			}
		}
		piece = out
	}
	if prefix != "" {
		return append([]byte(prefix), piece...)
	}
	return piece
}
