package screen_test

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/cmd/askpy/internal/screen"
)

func TestScreen(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"lines", "a\r\nb\nc\r\n", "a\nb\n c\n"},
		{"a line that is written again", "wait, 0s\r\x1b[KDone.\r\n", "Done.\n"},
		{"a line that is too long", "0123456789abc", "0123456789\nabc\n"},
		{"a wide character that does not fit", "012345678国x", "012345678\n国x\n"},
		{"movements", "ab\x1b[2D1\x1b[1C2\x1b[1B\x1b[1G3\x1b[A\x1b[2C4", "1b24\n3\n"},
		{"what is below goes", "a\r\nb\r\nc\x1b[2A\x1b[0J\r\n", "a\n"},
		{"styles and modes", "\x1b[1ma\x1b[22m \x1b[?25l\x1b[2;35mb\x1b[0m\x1b[1 q", "a b\n"},
		{"other pictures and titles", "a\x1bPq#0~\x1b\\b\x1b]0;title\ac", "abc\n"},
		{"emoji of several runes", "👩‍👩‍👧|\b\b\b\x1b[K", "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := screen.New(10)
			require.NoError(t, s.Write(test.text))
			assert.Equal(t, test.want, s.Text())
		})
	}
	for _, broken := range []string{"\x1b", "\x1b[3", "\x1b_Gm=0;x", "\x1b[5Z", "\x1b_Gm=0;iVBO\x1b\\"} {
		assert.Error(t, screen.New(10).Write(broken), broken)
	}
}

// The picture is XML, has the text with its styles, and the areas of an image.
func TestSVG(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 4, 3))
	for x := range 4 {
		for y := range 3 {
			img.SetRGBA(x, y, color.RGBA{255, 255, 255, 255})
		}
	}
	img.SetRGBA(1, 1, color.RGBA{255, 0, 0, 255})
	img.SetRGBA(1, 2, color.RGBA{255, 0, 0, 255})
	var data bytes.Buffer
	require.NoError(t, png.Encode(&data, img))
	s := screen.New(20)
	require.NoError(t, s.Write("\x1b[1m<a>\x1b[22m b \x1b[35m&\x1b[39m\r\n\x1b_Gf=100,a=T,m=0;"+base64.StdEncoding.EncodeToString(data.Bytes())+"\x1b\\\r\nend\r\n"))
	svg := s.SVG("a & b")
	for _, want := range []string{
		"<title>a &amp; b</title>",
		`font-weight="bold">&lt;a&gt;</text>`,
		`fill="#c47fd5">&amp;</text>`,
		`<path d="M1 1h1v2h-1z" fill="#ff0000"/>`,
		`<path d="M0 0h4v1h-4z" fill="#ffffff"/>`,
		`>end</text>`,
	} {
		assert.Contains(t, svg, want)
	}
	assert.Equal(t, 4, strings.Count(svg, "<path"))
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
}
