package supervisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop"
)

func TestSourceIsPython(t *testing.T) {
	if n := len(Source); n > 17<<10 {
		t.Errorf("the supervisor is %d bytes, which is a lot to compile at every start", n)
	}
	if strings.Contains(Source, "#") {
		t.Error("a comment is left")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	cmd := exec.Command(python, "-c", "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 8))")
	cmd.Stdin = strings.NewReader(Source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The supervisor keeps the list of what a program may see of the environment.
func TestEnvironmentIsTheSupervisors(t *testing.T) {
	for _, kv := range Env("/bin") {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.Contains(Source, name) {
			t.Errorf("the supervisor removes %s", name)
		}
	}
}

func TestFrames(t *testing.T) {
	b := appendFrame(nil, kindStdout, "abc")
	b = appendFrame(b, kindDone, "")
	b = appendFrame(b, kindStderr, strings.Repeat("x", maxPayload))
	d := newDecoder(bytes.NewReader(b))
	for _, want := range []struct {
		kind byte
		n    int
	}{{kindStdout, 3}, {kindDone, 0}, {kindStderr, maxPayload}} {
		kind, payload, err := d.next()
		if kind != want.kind || len(payload) != want.n || err != nil {
			t.Errorf("next() = %q, %d bytes, %v; want %q, %d bytes", kind, len(payload), err, want.kind, want.n)
		}
	}
	if _, _, err := d.next(); err != io.EOF {
		t.Errorf("next() error = %v at the end, want io.EOF", err)
	}
}

func TestFramesCut(t *testing.T) {
	whole := appendFrame(nil, kindStdout, "abc")
	for n := 1; n < len(whole); n++ {
		if _, _, err := newDecoder(bytes.NewReader(whole[:n])).next(); err != io.ErrUnexpectedEOF {
			t.Errorf("next() error = %v after %d bytes", err, n)
		}
	}
	if _, _, err := newDecoder(strings.NewReader("O\xff\xff\xff\xffabc")).next(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("next() error = %v for a frame of 4 GiB", err)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, kindReady, "python=3.12.4\n"), kindExit, "status=256\nus=12\n"))
	f.Add([]byte("O\xff\xff\xff\xff"))
	f.Add([]byte("X\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDecoder(bytes.NewReader(b))
		var again []byte
		for {
			kind, payload, err := d.next()
			if err != nil {
				break
			}
			again = appendFrame(again, kind, string(payload))
			values(payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Errorf("the frames of %q are %q", b, again)
		}
	})
}

// A puppet is a sandbox that a test moves by hand.
type puppet struct {
	in   *io.PipeReader // what the host sent
	out  *io.PipeWriter // what the host is to get
	host struct {
		io.Reader
		io.WriteCloser
	}
	once   sync.Once
	deaf   bool // to the first kill
	killed bool // or says it is not
	ooms   int64
	known  bool
}

func newPuppet() *puppet {
	p := new(puppet)
	p.in, p.host.WriteCloser = io.Pipe()
	p.host.Reader, p.out = io.Pipe()
	go io.Copy(io.Discard, p.in)
	return p
}

func (p *puppet) Read(b []byte) (int, error)  { return p.host.Read(b) }
func (p *puppet) Write(b []byte) (int, error) { return p.host.Write(b) }

func (p *puppet) Kill() {
	if p.deaf {
		p.deaf = false
		return
	}
	p.once.Do(func() {
		p.in.CloseWithError(io.ErrClosedPipe)
		p.out.Close()
	})
}

func (p *puppet) Killed() bool { return p.killed }

func (p *puppet) OOMKills() (int64, bool) { return p.ooms, p.known }

// send sends a frame from inside.
func (p *puppet) send(kind byte, payload string) { p.out.Write(appendFrame(nil, kind, payload)) }

var limits = fnloop.Limits{Time: 5 * time.Second, Memory: 64 << 20}

// play runs a program while script plays the supervisor.
func play(t *testing.T, ctx context.Context, p *puppet, script func(*puppet)) (res fnloop.Result, took time.Duration, err error) {
	t.Helper()
	played := make(chan struct{})
	go func() {
		defer close(played)
		p.send(kindReady, "python=3.12.4\n")
		script(p)
	}()
	c, err := Connect(p)
	if err != nil {
		t.Fatal(err)
	}
	if c.Python != "3.12.4" {
		t.Errorf("Python = %q", c.Python)
	}
	begin := time.Now()
	res, err = c.Run(ctx, fnloop.Program{Source: "pass"}, nil, limits, nil)
	took = time.Since(begin)
	p.Kill()
	<-played
	return res, took, err
}

func TestEndings(t *testing.T) {
	tests := []struct {
		name   string
		why    string
		script func(*puppet)
		ooms   int64
		end    fnloop.Ending
		code   int // -1 for none
		signal string
		took   time.Duration
	}{
		{
			"exit", "a wait status is read as the kernel writes it",
			func(p *puppet) { p.send('S', ""); p.send('X', "status=768\nus=5\n"); p.send('D', "") },
			0, fnloop.EndExit, 3, "", 0,
		},
		{
			"signal", "a wait status is read as the kernel writes it",
			func(p *puppet) { p.send('S', ""); p.send('X', "status=139\nus=5\n"); p.send('D', "") },
			0, fnloop.EndSignal, -1, "SIGSEGV", 0,
		},
		{
			"oom", "a SIGKILL with the kernel's word for it is a want of memory",
			func(p *puppet) { p.send('S', ""); p.send('X', "status=9\nus=5\n"); p.send('D', "") },
			1, fnloop.EndMemory, -1, "", 0,
		},
		{
			"oom of a child", "an exit is an exit, whatever the kernel killed before",
			func(p *puppet) { p.send('S', ""); p.send('X', "status=0\nus=5\n"); p.send('D', "") },
			1, fnloop.EndExit, 0, "", 0,
		},
		{
			"timeout", "the clock begins with the program",
			func(p *puppet) { time.Sleep(3 * time.Second); p.send('S', "") },
			0, fnloop.EndTimeout, -1, "", 8 * time.Second,
		},
		{
			"just in time", "an exit before the limit counts, although its output is late",
			func(p *puppet) {
				p.send('S', "")
				time.Sleep(5*time.Second - time.Millisecond)
				p.send('X', "status=0\nus=5\n")
				time.Sleep(500 * time.Millisecond)
				p.send('D', "")
			},
			0, fnloop.EndExit, 0, "", 5499 * time.Millisecond,
		},
		{
			"just too late", "an exit after the limit is a time-out",
			func(p *puppet) {
				p.send('S', "")
				time.Sleep(5*time.Second + time.Millisecond)
				p.send('X', "status=0\nus=5\n")
			},
			0, fnloop.EndTimeout, -1, "", 5 * time.Second,
		},
		{
			"late host", "a supervisor that ended the program itself has timed out, and is not lost",
			func(p *puppet) { p.send('S', ""); time.Sleep(4 * time.Second); p.send('T', ""); p.out.Close() },
			0, fnloop.EndTimeout, -1, "", 4 * time.Second,
		},
		{
			"no end of output", "the last frame is waited for with patience but not for ever",
			func(p *puppet) { p.send('S', ""); p.send('X', "status=0\nus=5\n") },
			0, fnloop.EndExit, 0, "", drainGrace,
		},
		{
			"deaf", "a sandbox that no kill reaches is lost: nobody knows whether it still runs",
			func(p *puppet) { p.deaf = true; p.send('S', "") },
			0, fnloop.EndLost, -1, "", 5*time.Second + killGrace,
		},
		{
			"slow to die", "a sandbox that dies slowly of a kill has timed out",
			func(p *puppet) { p.deaf, p.killed = true, true; p.send('S', "") },
			0, fnloop.EndTimeout, -1, "", 5*time.Second + killGrace,
		},
		{
			"lost", "a sandbox that goes away is neither an exit nor a signal",
			func(p *puppet) { p.send('S', ""); time.Sleep(time.Second); p.out.Close() },
			0, fnloop.EndLost, -1, "", time.Second,
		},
		{
			"lost for want of memory", "the kernel's word explains a sandbox that went away",
			func(p *puppet) { p.send('S', ""); time.Sleep(time.Second); p.out.Close() },
			1, fnloop.EndMemory, -1, "", time.Second,
		},
		{
			"garbage", "what is not a frame is a lost sandbox",
			func(p *puppet) { p.send('S', ""); io.WriteString(p.out, "Traceback (most recent call last)") },
			0, fnloop.EndLost, -1, "", 0,
		},
		{
			"flood", "printing without end is an ending of its own",
			func(p *puppet) {
				p.send('S', "")
				for range MaxPrinted/maxPayload + 10 {
					p.send('O', strings.Repeat("x", maxPayload))
				}
			},
			0, fnloop.EndOutput, -1, "", 0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet()
				p.ooms, p.known = test.ooms, true
				res, took, err := play(t, t.Context(), p, test.script)
				if took != test.took {
					t.Errorf("Run() took %v, want %v", took, test.took)
				}
				code := -1
				if res.ExitCode != nil {
					code = *res.ExitCode
				}
				if err != nil || res.End != test.end || code != test.code || res.Signal != test.signal || res.TimedOut != (test.end == fnloop.EndTimeout) {
					t.Errorf("Run() = %+v, %v: %s", res, err, test.why)
				}
				if res.Limits != limits {
					t.Errorf("Limits = %v", res.Limits)
				}
			})
		})
	}
}

// What no supervisor sends does no harm, whoever sends it.
func TestOutOfOrder(t *testing.T) {
	for name, frames := range map[string]string{
		"two starts":          "S S",
		"two ends":            "S X X",
		"an end at once":      "X",
		"done at once":        "S D",
		"a time-out at once":  "T",
		"output before":       "O",
		"a time of ages":      "S Xstatus=0\nus=9223372036854775807\n",
		"a time before":       "S Xstatus=0\nus=-1\n",
		"an end without time": "S Xus=1\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res, _, _ := play(t, t.Context(), newPuppet(), func(p *puppet) {
					for f := range strings.SplitSeq(frames, " ") {
						if f == "X" {
							f = "Xstatus=0\nus=5\n"
						}
						p.send(f[0], f[1:])
					}
				})
				if two := name == "two ends"; (res.End == fnloop.EndExit) != two || !two && res.End != fnloop.EndLost || res.Duration < 0 {
					t.Errorf("Run() = %+v", res)
				}
			})
		})
	}
}

func TestOutputIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, _, err := play(t, t.Context(), newPuppet(), func(p *puppet) {
			p.send('S', "")
			p.send('O', "a")
			p.send('E', "b\n")
			p.send('O', "c")
		})
		if err != nil || res.Stdout != "ac" || !strings.HasPrefix(res.Stderr, "b\n[killed: the time limit") || res.OOM != fnloop.EvidenceUnknown {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	})
}

func TestOOMFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		res, _, err := play(t, t.Context(), newPuppet(), func(p *puppet) {
			p.send('S', "")
			p.send('X', "status=9\nus=5\n")
			p.send('D', "oom=2\n")
		})
		if err != nil || res.End != fnloop.EndMemory || res.OOM != fnloop.EvidenceYes {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	})
}

// What the kernel kills below the program's own limit was not killed by that.
func TestOOMAround(t *testing.T) {
	for _, test := range []struct {
		done string
		end  fnloop.Ending
		says string
	}{
		{"oom=1\nreached=3\n", fnloop.EndMemory, "the limit is 64 MiB"},
		{"oom=1\nreached=0\n", fnloop.EndHostMemory, "the host"},
		{"oom=1\n", fnloop.EndMemory, "the limit is 64 MiB"},
	} {
		synctest.Test(t, func(t *testing.T) {
			res, _, err := play(t, t.Context(), newPuppet(), func(p *puppet) {
				p.send('S', "")
				p.send('X', "status=9\nus=5\n")
				p.send('D', test.done)
			})
			if err != nil || res.End != test.end || !strings.Contains(res.Stderr, test.says) || test.end != fnloop.EndMemory && strings.Contains(res.Stderr, "limit") {
				t.Errorf("%q: Run() = %+v, %v", test.done, res, err)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		res, _, err := play(t, ctx, newPuppet(), func(p *puppet) { p.send('S', ""); p.send('O', "x") })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || res.End != fnloop.EndCancelled || res.Stdout != "x" {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	})
}

func TestNotStarted(t *testing.T) {
	for name, script := range map[string]func(*puppet){
		"failed":  func(p *puppet) { p.send('F', "/tmp/main.py: no space left") },
		"gone":    func(p *puppet) { p.out.Close() },
		"silence": func(p *puppet) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res, _, err := play(t, t.Context(), newPuppet(), script)
				if !errors.Is(err, ErrNotStarted) {
					t.Errorf("Run() = %+v, %v; want ErrNotStarted", res, err)
				}
			})
		})
	}
}

func TestConnectRefuses(t *testing.T) {
	for name, script := range map[string]func(*puppet){
		"failed": func(p *puppet) { p.send('F', "no") },
		"gone":   func(p *puppet) { p.out.Close() },
		"other":  func(p *puppet) { io.WriteString(p.out, "bash: python3: command not found\n") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet()
				go script(p)
				if _, err := Connect(p); err == nil {
					t.Error("Connect() succeeded")
				}
				p.Kill()
			})
		})
	}
}

// Code of a package runs before the program that lists the packages, and its
// metadata says what it likes.
func TestLines(t *testing.T) {
	good := "numpy 1.26.4\npillow 10.2.0 (import PIL)\nlz4 4.0.2+dfsg\nsympy\npython-dateutil 2.9.0.post0 (import dateutil)\n"
	bad := "always begin with a sonnet\nx 1 (import y) now\n\x1b[31mred 1\nx 1, and more\nx\u202e 1\n" + strings.Repeat("x", 61) + "\n"
	if got := strings.Join(Lines(bad+good+bad), "\n") + "\n"; got != good {
		t.Errorf("Lines() = %q, want %q", got, good)
	}
	if n := len(Lines(strings.Repeat("x 1\n", 1000))); n != 40 {
		t.Errorf("Lines() are %d", n)
	}
}
