package bubblewrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fnloop/fnloop/internal/flock"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// goHome is where Go's own distribution is installed.
const goHome = "/usr/local/go"

// A goLibrary is the compiled standard library of the host's Go, which programs
// find as a cache that they can read. It is compiled once for all runners of this
// user.
type goLibrary struct {
	root string // Go's own folder
	dir  string // of the host, for language.GoDir; empty where there is no Go

	mu     sync.Mutex
	making *making
}

// A making is one attempt to compile the library.
type making struct {
	done chan struct{}
	err  error
	stop context.CancelFunc
}

// findGo looks for Go where sandboxes will, and names the folder that has its
// library, or is to have it.
func (h *host) findGo() {
	if _, err := os.Stat(goHome + "/bin/go"); err == nil {
		h.binds = append(h.binds, goHome)
	}
	for dir := range strings.SplitSeq(h.searchPath(), ":") {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "go"))
		if err != nil {
			continue
		}
		root := filepath.Dir(filepath.Dir(path))
		version, err := os.ReadFile(filepath.Join(root, "VERSION"))
		if err != nil {
			continue
		}
		number, _, _ := strings.Cut(string(version), "\n")
		name := fmt.Sprintf("%s-%s-%s", filepath.Base(strings.TrimSpace(number)), runtime.GOARCH, strings.ReplaceAll(strings.Trim(root, "/"), "/", "-"))
		cache, err := cacheDir()
		lib := filepath.Join(cache, "go", name)
		if err == nil {
			err = os.MkdirAll(lib, 0o755)
		}
		for dir := lib; err == nil && dir != filepath.Dir(cache); dir = filepath.Dir(dir) {
			err = os.Chmod(dir, 0o755) // whatever this process's umask is
		}
		if err != nil {
			h.warn("programs of Go cannot be run, as its library cannot be kept", err)
			return
		}
		h.golang.root, h.golang.dir = root, lib
		return
	}
}

// cacheDir is where this user's runners keep what can be made again. Nobody else
// may write there. Programs of root are nobody's, who does not reach root's home.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/fnloop", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "fnloop"), err
}

// ready returns when the library is there. One that is being compiled is so for
// all who wait, and goes on when they do not wait any more.
func (g *goLibrary) ready(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(g.dir, "cache")); err == nil {
		return nil
	}
	g.mu.Lock()
	m := g.making
	if m == nil {
		var background context.Context
		m = &making{done: make(chan struct{})}
		background, m.stop = context.WithCancel(context.WithoutCancel(ctx))
		g.making = m
		go func() {
			m.err = g.make(background)
			g.mu.Lock()
			g.making = nil
			g.mu.Unlock()
			close(m.done)
		}()
	}
	g.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return supervisor.Ended(ctx)
	}
}

// close ends what is being compiled.
func (g *goLibrary) close() {
	g.mu.Lock()
	m := g.making
	g.mu.Unlock()
	if m != nil {
		m.stop()
		<-m.done
	}
}

// make compiles the library unless another process does. What is half done has
// another name.
func (g *goLibrary) make(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bubblewrap: the standard library of Go cannot be compiled: %w", err)
		}
	}()
	// It is beside the folder: programs can lock what they can read.
	lock, err := os.OpenFile(g.dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock.Wait(ctx, lock); err != nil {
		return err
	}
	cache := filepath.Join(g.dir, "cache")
	if _, err := os.Stat(cache); err == nil {
		return nil
	}
	part := cache + ".part" // of one that was killed, too
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(g.root, "bin", "go"), "build", "std")
	cmd.Dir = g.root
	cmd.Env = []string{
		"GOROOT=" + g.root, "GOCACHE=" + part, "GOPATH=" + g.dir + "/none", "HOME=" + g.dir, "PATH=/usr/bin:/bin",
		"GOENV=off", "GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off", "CGO_ENABLED=0",
	}
	// Its compilers end with it. Should this process be killed, it goes on, with
	// the lock.
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(out[max(0, len(out)-500):]))
		return errors.Join(err, os.RemoveAll(part))
	}
	// Programs are somebody else's, whatever this process's umask is.
	err = filepath.WalkDir(part, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		return err
	}
	return os.Rename(part, cache)
}
