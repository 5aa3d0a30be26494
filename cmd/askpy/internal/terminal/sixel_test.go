package terminal

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// painted reads sixels as a terminal does.
func painted(t *testing.T, text string) *image.RGBA {
	t.Helper()
	head := regexp.MustCompile(`^\x1bPq"1;1;(\d+);(\d+)`).FindStringSubmatch(text)
	require.NotNil(t, head, text)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	img := image.NewRGBA(image.Rect(0, 0, number(head[1]), number(head[2])))
	text, ended := strings.CutSuffix(text[len(head[0]):], "\x1b\\")
	require.True(t, ended)
	colours := map[string]color.RGBA{}
	x, y, now := 0, 0, color.RGBA{}
	for _, m := range regexp.MustCompile(`#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)(.)|[$\-?-~]`).FindAllStringSubmatch(text, -1) {
		switch {
		case m[2] != "":
			level := func(s string) uint8 { return uint8((number(s)*255 + 50) / 100) }
			colours[m[1]] = color.RGBA{level(m[2]), level(m[3]), level(m[4]), 255}
		case m[1] != "":
			now = colours[m[1]]
		case m[0] == "$":
			x = 0
		case m[0] == "-":
			x, y = 0, y+6
		default:
			n, bits := 1, m[0][0]-'?'
			if m[5] != "" {
				n, bits = number(m[5]), m[6][0]-'?'
			}
			for range n {
				for row := range 6 {
					if bits>>row&1 == 1 {
						img.SetRGBA(x, y+row, now)
					}
				}
				x++
			}
		}
	}
	return img
}

func encoded(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

// What a terminal paints is the picture, on white.
func TestSixels(t *testing.T) {
	img := image.NewNRGBA(image.Rect(0, 0, 40, 17)) // which is no whole number of bands
	for x := range 40 {
		for y := range 17 {
			if (x/7+y/5)%2 == 0 {
				img.SetNRGBA(x, y, color.NRGBA{uint8(51 * (x / 8)), 102, uint8(51 * (y / 4)), 255})
			}
		}
	}
	text, err := sixels(encoded(t, img))
	require.NoError(t, err)
	got := painted(t, text)
	assert.Equal(t, img.Bounds(), got.Bounds())
	for x := range 40 {
		for y := range 17 {
			want := color.RGBA{255, 255, 255, 255}
			if c := img.NRGBAAt(x, y); c.A != 0 {
				want = color.RGBA{c.R, c.G, c.B, 255}
			}
			if c := got.RGBAAt(x, y); near(c.R, want.R)+near(c.G, want.G)+near(c.B, want.B) > 6 {
				t.Fatalf("at %d, %d there is %v, want %v", x, y, c, want)
			}
		}
	}
}

func near(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }

// A picture with more colours than there are, and wider than a screen, is still one.
func TestSixels_large(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 2100, 90))
	for x := range 2100 {
		for y := range 90 {
			img.SetRGBA(x, y, color.RGBA{uint8(x / 9), uint8(y * 2), 128, 255})
		}
	}
	text, err := sixels(encoded(t, img))
	require.NoError(t, err)
	got := painted(t, text)
	assert.Equal(t, image.Rect(0, 0, 700, 30), got.Bounds())
	_, err = sixels([]byte("\x89PNG\r\n\x1a\n"))
	assert.Error(t, err)
}

func TestGraphics(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"kitty", map[string]string{"TERM": "xterm-kitty"}, "kitty"},
		{"Ghostty", map[string]string{"TERM": "xterm-ghostty"}, "kitty"},
		{"kitty with another TERM", map[string]string{"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"},
		{"iTerm2", map[string]string{"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"},
		{"WezTerm", map[string]string{"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"},
		{"foot", map[string]string{"TERM": "foot-extra"}, "sixel"},
		{"mlterm", map[string]string{"TERM": "mlterm-256color"}, "sixel"},
		{"Windows Terminal", map[string]string{"WT_SESSION": "6f1e"}, "sixel"},
		{"xterm, which does not say", map[string]string{"TERM": "xterm"}, ""},
		{"tmux, which passes nothing on", map[string]string{"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, ""},
		{"the user says", map[string]string{"TERM": "xterm", "ASKPY_IMAGES": "sixel"}, "sixel"},
		{"the user says no", map[string]string{"TERM": "xterm-kitty", "ASKPY_IMAGES": "none"}, ""},
	} {
		assert.Equal(t, test.want, Graphics(func(name string) string { return test.env[name] }), test.name)
	}
}
