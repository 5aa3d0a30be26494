// Package screen draws what a terminal shows, for tests and for the pictures in the
// documentation. It knows what askpy and its line editor write: text, movements of
// the cursor, styles, colours, and pictures by the protocol of kitty.
package screen

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"
)

// CellWidth and CellHeight are the size of a character in pixels.
const (
	CellWidth  = 8
	CellHeight = 18
)

// A style is how a character is shown.
type style struct {
	colour            int // of the eight and the eight bright ones, from 1; zero means the default
	bold, dim, italic bool
}

// A cell is one character. The cells behind a wide one are empty.
type cell struct {
	text string
	style
}

// A picture stands at a cell and covers those to the right of it and below.
type picture struct {
	row, column int
	image       image.Image
}

// A Screen is a terminal that is so many columns wide and as long as what is written:
// nothing scrolls away.
type Screen struct {
	columns  int
	rows     [][]cell
	row, col int
	style    style
	pictures []picture
	kitty    []byte // of a picture that has not come as a whole
}

// New makes an empty Screen.
func New(columns int) *Screen { return &Screen{columns: columns} }

// Write shows all of text, which must not end within a sequence.
func (s *Screen) Write(text string) error {
	for state := -1; text != ""; {
		if text[0] == '\x1b' {
			n, err := s.sequence(text)
			if err != nil {
				return err
			}
			text, state = text[n:], -1
			continue
		}
		cluster, rest, width, next := uniseg.FirstGraphemeClusterInString(text, state)
		switch {
		case cluster == "\r\n":
			s.col = 0
			s.row++
		case cluster == "\r":
			s.col = 0
		case cluster == "\n":
			s.row++
		case cluster == "\b":
			s.col = max(s.col-1, 0)
		case cluster < " ":
		default:
			s.put(cluster, width)
		}
		text, state = rest, next
	}
	return nil
}

// put shows one character at the cursor.
func (s *Screen) put(text string, width int) {
	if s.col+width > s.columns {
		s.col = 0
		s.row++
	}
	line := s.line(s.row)
	for len(*line) < s.col+width {
		*line = append(*line, cell{text: " "})
	}
	(*line)[s.col] = cell{text, s.style}
	for i := 1; i < width; i++ {
		(*line)[s.col+i] = cell{}
	}
	s.col += width
}

func (s *Screen) line(row int) *[]cell {
	for len(s.rows) <= row {
		s.rows = append(s.rows, nil)
	}
	return &s.rows[row]
}

// sequence obeys the escape sequence that text begins with, and gives its length.
func (s *Screen) sequence(text string) (int, error) {
	if len(text) < 2 {
		return 0, fmt.Errorf("a sequence breaks off: %q", text)
	}
	switch text[1] {
	case '[':
		end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return 0, fmt.Errorf("a sequence breaks off: %q", text)
		}
		return end + 3, s.control(text[2:2+end], text[2+end])
	case '_', 'P', ']':
		end := strings.Index(text, "\x1b\\")
		n := end + 2
		if bell := strings.IndexByte(text, '\a'); text[1] == ']' && bell >= 0 && (end < 0 || bell < end) {
			end, n = bell, bell+1
		}
		if end < 0 {
			return 0, fmt.Errorf("a sequence breaks off: %.40q", text)
		}
		if rest, ok := strings.CutPrefix(text[:end], "\x1b_G"); ok {
			return n, s.graphics(rest)
		}
		return n, nil
	}
	return 2, nil
}

// control obeys a control sequence.
func (s *Screen) control(args string, command byte) error {
	if strings.HasPrefix(args, "?") || command == 'q' { // modes, and the cursor's form
		return nil
	}
	n := 1
	if first, _, _ := strings.Cut(args, ";"); first != "" {
		var err error
		if n, err = strconv.Atoi(first); err != nil {
			return fmt.Errorf("%q: %w", args, err)
		}
	}
	switch command {
	case 'A':
		s.row = max(s.row-n, 0)
	case 'B':
		s.row += n
	case 'C':
		s.col = min(s.col+n, s.columns-1)
	case 'D':
		s.col = max(s.col-n, 0)
	case 'G':
		s.col = n - 1
	case 'K', 'J':
		line := s.line(s.row)
		if len(*line) > s.col {
			*line = (*line)[:s.col]
		}
		if command == 'J' {
			s.rows = s.rows[:s.row+1]
		}
	case 'm':
		for _, code := range strings.Split(args, ";") {
			s.styled(code)
		}
	default:
		return fmt.Errorf("unknown sequence %q%c", args, command)
	}
	return nil
}

// styled changes how what follows is shown.
func (s *Screen) styled(code string) {
	n, _ := strconv.Atoi(code) // empty means zero
	switch {
	case n == 0:
		s.style = style{}
	case n == 1:
		s.style.bold = true
	case n == 2:
		s.style.dim = true
	case n == 3:
		s.style.italic = true
	case n == 22:
		s.style.bold, s.style.dim = false, false
	case n == 23:
		s.style.italic = false
	case n >= 30 && n <= 37:
		s.style.colour = n - 29
	case n == 39:
		s.style.colour = 0
	case n >= 90 && n <= 97:
		s.style.colour = n - 81
	}
}

// graphics takes a piece of a picture, and shows it with the last one.
func (s *Screen) graphics(text string) error {
	control, data, _ := strings.Cut(text, ";")
	piece, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return err
	}
	s.kitty = append(s.kitty, piece...)
	if strings.Contains(control, "m=1") {
		return nil
	}
	img, err := png.Decode(bytes.NewReader(s.kitty))
	if err != nil {
		return err
	}
	s.kitty = nil
	s.pictures = append(s.pictures, picture{s.row, s.col, img})
	s.row += (img.Bounds().Dy()+CellHeight-1)/CellHeight - 1 // the cursor stays in the last row
	return nil
}

// Text is what is shown, without blanks at the ends of lines.
func (s *Screen) Text() string {
	var b strings.Builder
	for _, line := range s.rows {
		var text strings.Builder
		for _, c := range line {
			text.WriteString(c.text)
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
