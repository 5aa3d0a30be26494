package interpreter

import (
	"bytes"
	"image"
	_ "image/gif" // the headers that are checked
	_ "image/jpeg"
	_ "image/png"
	"io"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/relay"
)

// What one cell can show.
const (
	// MaxDisplays is how many displays an Execution has at most, and
	// MaxDisplayBytes how large all of them are together.
	MaxDisplays     = 64
	MaxDisplayBytes = 16 << 20

	maxForms  = 16      // of one display
	maxPixels = 1 << 24 // of one image: 4096 by 4096
)

// relayGrace is how long after a cell's end live writers may take for the rest.
const relayGrace = 100 * time.Millisecond

// A collector takes in what a cell shows. What the code says is not trusted:
// it is bounded, and images are images.
type collector struct {
	stdout, stderr, background fnloop.Capture
	live                       [2]*relay.Writer

	displays []Display
	size     int
	omitted  int

	show chan Display // nil where nobody looks
	seen chan struct{}
}

func newCollector(c Cell) *collector {
	o := new(collector)
	for i, w := range []io.Writer{c.Stdout, c.Stderr} {
		if w != nil {
			o.live[i] = relay.New(w)
		}
	}
	if c.Display != nil {
		o.show, o.seen = make(chan Display, MaxDisplays), make(chan struct{})
		go func() {
			defer close(o.seen)
			for d := range o.show {
				c.Display(d)
			}
		}()
	}
	return o
}

func (o *collector) print(c *fnloop.Capture, live *relay.Writer, p []byte) {
	_, _ = c.Write(p) // neither fails
	if live != nil {
		_, _ = live.Write(p)
	}
}

// Stdout implements [Events].
func (o *collector) Stdout(p []byte) { o.print(&o.stdout, o.live[0], p) }

// Stderr implements [Events].
func (o *collector) Stderr(p []byte) { o.print(&o.stderr, o.live[1], p) }

// Background implements [Events].
func (o *collector) Background(p []byte) { o.print(&o.background, nil, p) }

// mime is what a MIME type looks like.
var mime = regexp.MustCompile(`^[a-z]+/[a-zA-Z0-9][a-zA-Z0-9.+-]{0,99}$`)

// Display implements [Events].
func (o *collector) Display(d Display) {
	forms := make(map[string][]byte, len(d.Data))
	size := 0
	for name, data := range d.Data {
		if len(forms) == maxForms || !mime.MatchString(name) || !honest(name, data) {
			continue
		}
		forms[name] = data
		size += len(data)
	}
	if len(forms) == 0 || len(o.displays) == MaxDisplays || o.size+size > MaxDisplayBytes {
		o.omitted++
		return
	}
	if d.Main { // there is one, and the last that claims to be it is
		for i := range o.displays {
			o.displays[i].Main = false
		}
	}
	d.Data = forms
	o.size += size
	o.displays = append(o.displays, d)
	if o.show != nil {
		o.show <- d // it has room for all
	}
}

// honest reports whether data is what its MIME type says, as far as it has to
// be: a text is one, and an image can be decoded without a surprise.
func honest(name string, data []byte) bool {
	switch name {
	case "image/png", "image/jpeg", "image/gif":
		config, format, err := image.DecodeConfig(bytes.NewReader(data))
		return err == nil && "image/"+format == name &&
			config.Width > 0 && config.Height > 0 && config.Width <= maxPixels/config.Height
	case "text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json":
		return utf8.Valid(data)
	}
	return true
}

// close gives those who look on what is left, for a moment.
func (o *collector) close() {
	end := time.Now().Add(relayGrace)
	for _, w := range o.live {
		if w != nil {
			w.Close(time.Until(end))
		}
	}
	if o.show == nil {
		return
	}
	close(o.show)
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-o.seen:
	case <-timer.C:
	}
}

// into gives e what was taken in.
func (o *collector) into(e *Execution) {
	// A Result knows how to cut what is too long.
	r := fnloop.Result{End: fnloop.EndExit, ExitCode: new(int)}
	r.SetOutput(&o.stdout, &o.stderr)
	e.Stdout, e.Stderr = r.Stdout, r.Stderr
	e.Truncated = e.Truncated || r.StdoutTruncated || r.StderrTruncated
	r.SetOutput(&o.background, new(fnloop.Capture))
	e.Background = r.Stdout
	e.Truncated = e.Truncated || r.StdoutTruncated
	e.Displays = o.displays
	e.Omitted += o.omitted
}
