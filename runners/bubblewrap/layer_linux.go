package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/pylayer"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// prepare sees to what sandboxes have beside the interpreter's own.
func (r *Runner) prepare(ctx context.Context, h *host) (err error) {
	preload, err := supervisor.PreloadList(r.Preload...)
	if err != nil {
		return fmt.Errorf("bubblewrap: %w", err)
	}
	if h.layer, err = r.findLayer(ctx, h, r.Packages); err != nil {
		return err
	}
	if h.preload = preload; preload == "" {
		return nil
	}
	// A module that cannot be imported shows here, once.
	s, err := h.start(ctx, r.spec(h, r.bounds().Limits(fnloop.Limits{}).Memory))
	if err == nil {
		err = s.remove()
	}
	return err
}

// sessionSpec is what the sandbox of an interpreter is made to.
func (r *Runner) sessionSpec(ctx context.Context, h *host, c interpreter.Config, memory int64) (s spec, err error) {
	s = r.spec(h, memory)
	s.session = true
	if s.preload, err = supervisor.PreloadList(slices.Concat(r.Preload, c.Preload)...); err != nil {
		return s, fmt.Errorf("bubblewrap: %w", err)
	}
	if len(c.Packages) > 0 {
		s.layer, err = r.findLayer(ctx, h, slices.Concat(r.Packages, c.Packages))
	}
	return s, err
}

// layers are those that a runner uses, by key.
type layers struct {
	lazy.Map[*pylayer.Layer]

	told sync.Mutex // held while Installing is called
}

// close ends the use of all.
func (l *layers) close() (err error) {
	for _, layer := range l.Close() {
		err = errors.Join(err, layer.Close())
	}
	return err
}

// findLayer gives the folder with packages, which are installed where they are
// not there yet; empty where there are none.
func (r *Runner) findLayer(ctx context.Context, h *host, packages []string) (string, error) {
	if len(packages) == 0 {
		return "", nil
	}
	list, err := pylayer.Parse(packages, h.prefix)
	if err != nil {
		return "", fmt.Errorf("bubblewrap: %w", err)
	}
	key := list.Key(h.identity)
	told := func(line string) {
		if r.Installing != nil {
			h.layers.told.Lock()
			defer h.layers.told.Unlock()
			r.Installing(line)
		}
	}
	v := h.layers.Value(key)
	layer, err := v.Enter(ctx, func(ctx context.Context) (*pylayer.Layer, error) {
		store, err := pylayer.OpenStore()
		if err != nil {
			return nil, &fnloop.PackageError{Field: "Packages", Reason: err.Error()}
		}
		return store.Open(ctx, key, list.String(), told, func(ctx context.Context, scratch string) error {
			return r.installPackages(ctx, h, list, scratch, told)
		})
	})
	switch {
	case err == nil:
		v.Leave()
		return layer.Dir, nil
	case ctx.Err() != nil:
		return "", supervisor.Ended(ctx)
	}
	return "", fmt.Errorf("bubblewrap: %w", err)
}

// An install is what the sandbox has in which packages are installed, beside a
// network.
type install struct {
	scratch string   // the folder that is pylayer.InstallDir there
	folders []string // that it can read
}

// installPackages has packages installed into a folder.
func (r *Runner) installPackages(ctx context.Context, h *host, list *pylayer.List, scratch string, told func(string)) error {
	if h.setUser {
		// It gets into the folder above by its group.
		above := filepath.Dir(scratch)
		err := errors.Join(os.Chown(scratch, nobody, nobody), os.Chown(above, -1, nobody), os.Chmod(above, 0o710))
		if err != nil {
			return err
		}
	}
	in := &install{scratch: scratch}
	for _, dir := range list.Folders() {
		if filepath.Clean(dir) != "/" {
			in.folders = append(in.folders, filepath.Clean(dir))
		}
	}
	uv, err := exec.LookPath("uv")
	if err == nil {
		uv, err = filepath.EvalSymlinks(uv)
	}
	if err != nil || !filepath.IsAbs(uv) || h.setUser && !reachable(uv) {
		uv = ""
	}
	if uv != "" {
		in.folders = append(in.folders, uv)
	}
	memory := int64(pylayer.InstallMemory)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		memory = min(memory, int64(info.Totalram)*int64(info.Unit))
	}
	open := pylayer.InstallFiles
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Max < uint64(open) {
		open = int(files.Max)
	}
	told("installing " + list.String())
	p := list.Program(uv, told)
	p.Limits.Memory = memory
	s, err := h.start(ctx, spec{
		Spec:    limit.Bounds{PIDs: pylayer.InstallPIDs, OpenFiles: open}.Spec(memory),
		install: in,
	})
	if err != nil {
		return err
	}
	res, err := s.run(ctx, h, p, nil, p.Limits, time.Now())
	if err = list.Failure(res, err); err != nil {
		s.Remove()
		return err
	}
	// Nothing may go on in there while its files are taken over.
	return s.remove()
}

// reachable reports whether a file can be read by every user.
func reachable(file string) bool {
	info, err := os.Stat(file)
	for err == nil && info.Mode().Perm()&0o005 == 0o005 {
		if file == "/" {
			return true
		}
		file = filepath.Dir(file)
		info, err = os.Stat(file)
	}
	return false
}

// network are the files of the host without which names and certificates are not
// found.
var network = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates",
}

// layerArgs are bwrap's for packages, and for the install of some.
func (s spec) layerArgs() (a []string) {
	if s.layer != "" {
		a = append(a, "--ro-bind", s.layer, supervisor.LayerDir)
	}
	if s.install == nil {
		return a
	}
	for _, name := range network {
		a = append(a, "--ro-bind-try", name, name)
	}
	for _, name := range s.install.folders {
		if !strings.HasPrefix(name, "/usr/") || strings.HasPrefix(name, "/usr/local/") {
			a = append(a, "--ro-bind-try", name, name)
		}
	}
	return append(a, "--bind", s.install.scratch, pylayer.InstallDir)
}
