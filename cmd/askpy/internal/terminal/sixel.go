package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"image/png"
	"strings"
)

// The largest picture that is shown as sixels, in pixels: a wider one is made
// smaller, and one with more of them is not shown.
const (
	maxSixelWidth  = 1000
	maxSixelPixels = 50 << 20
)

// sixels gives a PNG as what terminals show that know DEC's sixel graphics: bands of
// six rows, each painted colour by colour.
func sixels(data []byte) (string, error) {
	config, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	if config.Width*config.Height > maxSixelPixels {
		return "", errors.New("the picture is too large")
	}
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	img := reduced(smaller(full))
	width, height := img.Rect.Dx(), img.Rect.Dy()
	var b strings.Builder
	fmt.Fprintf(&b, "\x1bPq\"1;1;%d;%d", width, height)
	for i, c := range img.Palette {
		r, g, bl, _ := c.RGBA()
		fmt.Fprintf(&b, "#%d;2;%d;%d;%d", i, r*100/0xffff, g*100/0xffff, bl*100/0xffff)
	}
	for top := 0; top < height; top += 6 {
		rows := min(6, height-top)
		var used [256]bool
		for _, i := range img.Pix[top*img.Stride : (top+rows-1)*img.Stride+width] {
			used[i] = true
		}
		for i, is := range used {
			if !is {
				continue
			}
			fmt.Fprintf(&b, "#%d", i)
			last, run := byte(0), 0
			for x := range width {
				bits := byte(0)
				for y := range rows {
					if int(img.Pix[(top+y)*img.Stride+x]) == i {
						bits |= 1 << y
					}
				}
				if bits != last && run > 0 {
					repeat(&b, last, run)
					run = 0
				}
				last = bits
				run++
			}
			if last != 0 {
				repeat(&b, last, run)
			}
			b.WriteByte('$')
		}
		b.WriteByte('-')
	}
	b.WriteString("\x1b\\")
	return b.String(), nil
}

// repeat writes a sixel so many times.
func repeat(b *strings.Builder, bits byte, n int) {
	if n > 3 {
		fmt.Fprintf(b, "!%d%c", n, '?'+bits)
		return
	}
	for range n {
		b.WriteByte('?' + bits)
	}
}

// smaller is an image on white that is not too wide.
func smaller(img image.Image) *image.RGBA {
	bounds := img.Bounds()
	step := (bounds.Dx() + maxSixelWidth - 1) / maxSixelWidth
	out := image.NewRGBA(image.Rect(0, 0, bounds.Dx()/step, bounds.Dy()/step))
	white := image.NewUniform(color.White)
	draw.Draw(out, out.Rect, white, image.Point{}, draw.Src)
	if step == 1 {
		draw.Draw(out, out.Rect, img, bounds.Min, draw.Over)
		return out
	}
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			pixel := image.NewUniform(img.At(bounds.Min.X+x*step, bounds.Min.Y+y*step))
			draw.Draw(out, image.Rect(x, y, x+1, y+1), pixel, image.Point{}, draw.Over)
		}
	}
	return out
}

// reduced is an image of at most 256 colours: its own where it has no more.
func reduced(img *image.RGBA) *image.Paletted {
	own := map[color.RGBA]bool{}
	var colours color.Palette
	for i := 0; i < len(img.Pix) && len(colours) <= 256; i += 4 {
		c := color.RGBA{img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3]}
		if !own[c] {
			own[c] = true
			colours = append(colours, c)
		}
	}
	drawer := draw.Drawer(draw.Src)
	if len(colours) > 256 {
		colours, drawer = palette.Plan9, draw.FloydSteinberg
	}
	out := image.NewPaletted(img.Rect, colours)
	drawer.Draw(out, img.Rect, img, image.Point{})
	return out
}
