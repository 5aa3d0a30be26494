package screen

import (
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"strings"

	"github.com/rivo/uniseg"
)

// The colours of the picture: those of a dark terminal, of which each can be read on
// its background.
const (
	background = "#1d2129"
	foreground = "#dfe3ea"
	dimmed     = "#8f98a8"
)

var colours = [...]string{
	foreground, "#4b5262", "#ef7a85", "#8ccf7e", "#e5c76b", "#67b0e8", "#c47fd5", "#6cbfbf", foreground,
	dimmed, "#ef7a85", "#8ccf7e", "#e5c76b", "#67b0e8", "#c47fd5", "#6cbfbf", "#ffffff",
}

const margin = 16

// SVG is a picture of the screen, with what it is of for those who cannot see it.
func (s *Screen) SVG(title string) string {
	rows := len(s.rows)
	for rows > 0 && strings.TrimSpace(textOf(s.rows[rows-1])) == "" {
		rows--
	}
	for _, p := range s.pictures {
		rows = max(rows, p.row+(p.image.Bounds().Dy()+CellHeight-1)/CellHeight)
	}
	width, height := s.columns*CellWidth+2*margin, rows*CellHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n", width, height, background)
	fmt.Fprintf(&b, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13" fill="%s">`+"\n", foreground)
	for i, line := range s.rows[:min(rows, len(s.rows))] {
		for _, r := range runs(line) {
			if r.text == "" {
				continue
			}
			// Blanks side by side would be shown as one.
			fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%d"%s>%s</text>`+"\n",
				margin+r.column*CellWidth, margin+i*CellHeight+13, uniseg.StringWidth(r.text)*CellWidth, r.attributes(), escaped(strings.ReplaceAll(r.text, " ", "\u00a0")))
		}
	}
	b.WriteString("</g>\n")
	for _, p := range s.pictures {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)" shape-rendering="crispEdges">`+"\n", margin+p.column*CellWidth, margin+p.row*CellHeight)
		for _, r := range areas(p.image) {
			fmt.Fprintf(&b, `<path d="M%d %dh%dv%dh-%[3]dz" fill="#%02[5]x%02x%02x"/>`+"\n", r.Min.X, r.Min.Y, r.Dx(), r.Dy(), r.c.R, r.c.G, r.c.B)
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func textOf(line []cell) string {
	var b strings.Builder
	for _, c := range line {
		b.WriteString(c.text)
	}
	return b.String()
}

func escaped(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) //nolint:errcheck // a Builder takes all
	return b.String()
}

// A run is text of one style.
type run struct {
	column int
	text   string
	style
}

// runs are those of a line. Blanks between words do not end one.
func runs(line []cell) []run {
	var all []run
	for i, c := range line {
		if last := len(all) - 1; last >= 0 && (all[last].style == c.style || c.text == "") {
			all[last].text += c.text
			continue
		}
		all = append(all, run{i, c.text, c.style})
	}
	for i := range all {
		text := strings.TrimLeft(all[i].text, " ")
		all[i].column += len(all[i].text) - len(text)
		all[i].text = strings.TrimRight(text, " ")
	}
	return all
}

func (r run) attributes() string {
	text := ""
	switch {
	case r.dim:
		text = fmt.Sprintf(` fill="%s"`, dimmed)
	case r.colour > 0:
		text = fmt.Sprintf(` fill="%s"`, colours[r.colour])
	}
	if r.bold {
		text += ` font-weight="bold"`
	}
	if r.italic {
		text += ` font-style="italic"`
	}
	return text
}

// An area is a rectangle of one colour.
type area struct {
	image.Rectangle
	c color.RGBA
}

// areas divide an image into rectangles: a chart has few of them, which any page may
// show, where it might not let a picture hold another one.
func areas(img image.Image) []area {
	bounds := img.Bounds()
	var all, above []area // above are those that end in the row before
	for y := range bounds.Dy() {
		var row []area
		for x := range bounds.Dx() {
			r, g, b, a := img.At(bounds.Min.X+x, bounds.Min.Y+y).RGBA()
			over := func(v uint32) uint8 { return uint8((v + 0xffff - a) >> 8) } // on white
			c := color.RGBA{over(r), over(g), over(b), 255}
			if last := len(row) - 1; last >= 0 && row[last].c == c {
				row[last].Max.X++
				continue
			}
			row = append(row, area{image.Rect(x, y, x+1, y+1), c})
		}
		var next []area
		for _, a := range row {
			for i, up := range above {
				if up.c == a.c && up.Min.X == a.Min.X && up.Max.X == a.Max.X {
					a.Min.Y = up.Min.Y
					above = append(above[:i:i], above[i+1:]...)
					break
				}
			}
			next = append(next, a)
		}
		all = append(all, above...) // nothing of the row goes on with them
		above = next
	}
	return append(all, above...)
}
