package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fnloop/fnloop/internal/relay"
)

type chunks struct {
	mu  sync.Mutex
	got []string
}

func (c *chunks) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, string(p))
	return len(p), nil
}

func TestWriterCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c chunks
		w := relay.New(&c)
		for i := range 100 {
			fmt.Fprintf(w, "line %d\n", i)
		}
		synctest.Wait()
		fmt.Fprint(w, "the end")
		w.Close(time.Second)
		got := strings.Join(c.got, "")
		if !strings.HasPrefix(got, "line 0\n") || !strings.HasSuffix(got, "line 99\nthe end") || strings.Contains(got, "left out") {
			t.Errorf("got %q", got)
		}
	})
}

func TestWriterKeepsRunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c chunks
		w := relay.New(&c)
		for _, b := range []byte("a€😀é\xff\xe2\x82") {
			w.Write([]byte{b})
			synctest.Wait()
		}
		w.Close(time.Second)
		if got := strings.Join(c.got, ""); got != "a€😀é\xff\xe2\x82" {
			t.Errorf("got %q", got)
		}
		for _, s := range c.got[:len(c.got)-2] {
			if !utf8.ValidString(s) {
				t.Errorf("a chunk is %q", s)
			}
		}
	})
}

// gate is a writer that waits for leave before each write.
type gate struct {
	chunks
	leave chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.leave
	return g.chunks.Write(p)
}

func TestWriterDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{leave: make(chan struct{})}
		w := relay.New(g)
		const total = 3_000_000
		piece := []byte(strings.Repeat("€", 1000))
		for range total / len(piece) {
			w.Write(piece[:1001])
			w.Write(piece[1001:])
		}
		close(g.leave)
		synctest.Wait()
		w.Write([]byte("the end"))
		w.Close(time.Second)
		got := strings.Join(g.got, "")
		if !utf8.ValidString(got) {
			t.Error("a rune was split")
		}
		// How many notes there are depends on when the writer was first asked.
		note := regexp.MustCompile(`\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n`)
		missing := 0
		for _, m := range note.FindAllStringSubmatch(got, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			missing += n
		}
		parts := note.Split(got, -1)
		came := len(strings.Join(parts, ""))
		if missing == 0 || came+missing != total+len("the end") {
			t.Errorf("%d bytes came and %d are said to be missing, of %d", came, missing, total)
		}
		first, last := parts[0], parts[len(parts)-1]
		if !strings.HasSuffix(last, "€the end") || len(last) < 100_000 || len(first) < 100_000 {
			t.Errorf("%d bytes came before the first note and %d after the last", len(first), len(last))
		}
	})
}

// What a program prints last is what its reader waits for.
func TestWriterThatFellBehindGetsTheEnd(t *testing.T) {
	for _, lag := range []int{0, 1, 100_000, 131_072, 131_073, 262_144, 262_145, 400_000, 5_000_000} {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{leave: make(chan struct{})}
				w := relay.New(g)
				w.Write([]byte("first\n"))
				synctest.Wait() // the other writer has it and does not return
				for left := lag; left > 0; left -= 999 {
					w.Write(bytes.Repeat([]byte("x"), min(left, 999)))
				}
				w.Write([]byte("\nanswer: 42\n"))
				go close(g.leave)
				w.Close(time.Second)
				got := strings.Join(g.got, "")
				if !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "x\nanswer: 42\n") && lag > 0 {
					t.Errorf("of %d bytes came %d: %.20q … %q", lag, len(got), got, got[max(0, len(got)-40):])
				}
				if left := strings.Contains(got, "left out"); left != (lag > 393_000) {
					t.Errorf("of %d bytes %d came, some are said to be missing: %v", lag, len(got), left)
				}
			})
		})
	}
}

func TestCloseLeavesAStuckWriterBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{leave: make(chan struct{})}
		w := relay.New(g)
		w.Write([]byte("a"))
		begin := time.Now()
		w.Close(100 * time.Millisecond)
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("Close() took %v", took)
		}
		w.Write(bytes.Repeat([]byte("b"), 1<<20))
		close(g.leave)
		synctest.Wait()
		if got := strings.Join(g.got, ""); got != "a" {
			t.Errorf("got %q", got)
		}
	})
}

type broken struct{ n int }

func (b *broken) Write([]byte) (int, error) {
	b.n++
	return 0, errors.New("no")
}

func TestWriterStopsAtAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(broken)
		w := relay.New(b)
		for range 10 {
			w.Write([]byte("x"))
			synctest.Wait()
		}
		w.Close(time.Second)
		if b.n != 1 {
			t.Errorf("the broken writer was called %d times", b.n)
		}
	})
}
