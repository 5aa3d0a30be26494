package mcptool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// A process is that of a server, with all that it has started.
type process struct {
	cmd     *exec.Cmd
	stdin   *os.File
	stdout  *os.File
	stderr  *tail
	mark    string // a variable in the environment of all that it has started
	timeout time.Duration

	exited chan struct{} // closed when the process itself has ended
	gone   chan struct{} // closed when all has, and its streams are closed
	err    error         // how it ended; to be read once exited is closed

	stopping sync.Once
}

// markName is the name of the variable that marks what a server has started.
const markName = "FNLOOP_MCP_SERVER"

// startProcess starts the command of s.
func startProcess(s *Server) (p *process, err error) {
	p = &process{
		mark: markName + "=" + rand.Text(), timeout: s.stopTimeout(), stderr: &tail{w: s.Stderr},
		exited: make(chan struct{}), gone: make(chan struct{}),
	}
	if s.Dir != "" { // of which the error of a start says nothing
		if _, err := os.Stat(s.Dir); err != nil {
			return nil, err
		}
	}
	var files []*os.File
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		r, w, err = os.Pipe()
		if err == nil {
			files = append(files, r, w)
		}
		return r, w
	}
	theirIn, stdin := pipe()
	stdout, theirOut := pipe()
	stderr, theirErr := pipe()
	if err == nil {
		p.cmd = exec.Command(s.Command, s.Args...)
		p.cmd.Dir, p.cmd.Env = s.Dir, append(s.environment(), p.mark)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirIn, theirOut, theirErr
		setGroup(p.cmd)
		err = p.cmd.Start()
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	for _, f := range []*os.File{theirIn, theirOut, theirErr} {
		f.Close()
	}
	p.stdin, p.stdout = stdin, stdout
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(p.stderr, stderr)
	}()
	go p.watch(stderr, copied)
	return p, nil
}

// watch waits for the end of the process, and ends what it has left.
func (p *process) watch(stderr *os.File, copied <-chan struct{}) {
	p.err = p.cmd.Wait()
	killAll(p.cmd.Process.Pid, p.mark)
	// All writers are gone, so that what they wrote can be read to its end. Should
	// one have got away, this is not waited for.
	const drain = 500 * time.Millisecond
	stderr.SetReadDeadline(time.Now().Add(drain))
	p.stdout.SetReadDeadline(time.Now().Add(drain))
	select {
	case <-copied:
	case <-time.After(2 * drain): // where pipes have no deadlines
	}
	close(p.exited)
	p.stdin.Close()
	stderr.Close()
	<-copied
	close(p.gone)
}

// stop ends the process: its input ends, then it is told to end, then it is killed,
// with all that it has started. It returns when nothing is left.
func (p *process) stop() {
	p.stopping.Do(func() {
		p.stdin.Close()
		if !p.ended(p.timeout) {
			terminate(p.cmd.Process.Pid)
			if !p.ended(p.timeout) {
				p.kill()
			}
		}
	})
	const most = 5 * time.Second // what the kernel does not end cannot be waited for
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C:
	}
	p.stdout.Close()
}

// kill ends the process at once.
func (p *process) kill() {
	select {
	case <-p.exited: // its number may be another's
	default:
		killAll(p.cmd.Process.Pid, p.mark)
		p.cmd.Process.Kill()
	}
}

// ended reports whether the process ends within d.
func (p *process) ended(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// end says how the process ended, once it has.
func (p *process) end() error {
	if p.err == nil {
		return errors.New("its process ended")
	}
	return fmt.Errorf("its process ended: %w", p.err)
}

// A tail keeps the end of what is written to it.
type tail struct {
	w io.Writer // gets all of it; may be nil

	mu   sync.Mutex
	text []byte
}

const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	if t.w != nil {
		if _, err := t.w.Write(p); err != nil {
			t.w = nil // the process must not stop for it
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-maxTail):]...)
	if n := len(t.text) - maxTail; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

// String is the end of it, from the beginning of a line if it was cut.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.text)
	if len(text) == maxTail {
		if _, rest, ok := strings.Cut(text, "\n"); ok && rest != "" {
			text = rest
		}
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.TrimSpace(text)
}
