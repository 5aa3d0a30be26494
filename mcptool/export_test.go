package mcptool

import "io"

// What fuzz tests reach: the decoders of what servers send.
var (
	Output     = output
	Elements   = elements
	Parameters = parameters
)

// Lines reads lines of at most so many bytes, and gives each, or the ID in one that is
// too long.
func Lines(r io.Reader, most int, yield func(line []byte, id []byte)) {
	lines := newLineReader(r, most)
	for {
		line, err := lines.next()
		if long, ok := err.(*oversize); ok {
			yield(nil, long.id)
			continue
		}
		if err != nil {
			return
		}
		yield(line, nil)
	}
}
