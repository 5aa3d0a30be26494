package terminal

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Image shows a PNG on a terminal that is known to show some: kitty and Ghostty by
// the graphics protocol of kitty, iTerm2 and WezTerm by that of iTerm2. It reports
// whether it did.
func (p *Progress) Image(png []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet || p.graphics == "" {
		return false
	}
	p.endLine()
	p.erase()
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

// Graphics is how a terminal shows images, by what its environment says: "kitty",
// "iterm", or empty for not at all.
func Graphics(getenv func(string) string) string {
	switch term, program := getenv("TERM"), getenv("TERM_PROGRAM"); {
	case getenv("TMUX") != "" || strings.HasPrefix(term, "screen"): // passes no images on
		return ""
	case term == "xterm-kitty" || term == "xterm-ghostty" || getenv("KITTY_WINDOW_ID") != "":
		return "kitty"
	case program == "iTerm.app" || program == "WezTerm":
		return "iterm"
	}
	return ""
}
