package terminal

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Image shows a PNG on a terminal that is known to show some, by the way that Graphics
// says. It reports whether it did.
func (p *Progress) Image(png []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet || p.graphics == "" {
		return false
	}
	sixel := ""
	if p.graphics == "sixel" {
		var err error
		if sixel, err = sixels(png); err != nil {
			return false
		}
	}
	p.endLine()
	p.erase()
	if sixel != "" {
		fmt.Fprint(p.w, sixel+"\n")
		return true
	}
	data := base64.StdEncoding.EncodeToString(png)
	if p.graphics == "iterm" {
		fmt.Fprintf(p.w, "\x1b]1337;File=inline=1;size=%d:%s\a\n", len(png), data)
		return true
	}
	const most = 4096 // of one piece, as the protocol has it
	var b strings.Builder
	for first := true; len(data) > 0; first = false {
		piece := data[:min(most, len(data))]
		data = data[len(piece):]
		more := 0
		if len(data) > 0 {
			more = 1
		}
		control := fmt.Sprintf("m=%d", more)
		if first {
			control = "f=100,a=T,q=2," + control
		}
		fmt.Fprintf(&b, "\x1b_G%s;%s\x1b\\", control, piece)
	}
	fmt.Fprint(p.w, b.String()+"\n")
	return true
}

// Graphics is how a terminal shows images, by what its environment says: "kitty" by
// the graphics protocol of kitty, "iterm" by that of iTerm2, "sixel" by that of the
// VT340, or empty for not at all. Not all terminals say what they are, so ASKPY_IMAGES
// can name one of them, or "none".
func Graphics(getenv func(string) string) string {
	switch said := getenv("ASKPY_IMAGES"); said {
	case "kitty", "iterm", "sixel":
		return said
	case "none":
		return ""
	}
	term, program := getenv("TERM"), getenv("TERM_PROGRAM")
	begins := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(term, name) })
	}
	switch {
	case getenv("TMUX") != "" || begins("screen", "tmux"): // they pass no images on
		return ""
	case term == "xterm-kitty" || term == "xterm-ghostty" || getenv("KITTY_WINDOW_ID") != "":
		return "kitty"
	case program == "iTerm.app" || program == "WezTerm":
		return "iterm"
	case begins("foot", "mlterm", "contour", "yaft") || program == "mintty" || getenv("WT_SESSION") != "":
		return "sixel"
	}
	return ""
}
