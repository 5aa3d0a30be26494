package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/pylayer"
	"github.com/fnloop/fnloop/internal/supervisor"
	"github.com/fnloop/fnloop/interpreter"
)

// A spec is what a container is made to.
type spec struct {
	limit.Spec
	layer   string // the image with its packages, or empty for the runner's own
	preload string // the modules that it has imported, as supervisor.Preload has them
	install bool   // packages are installed in it
}

// spec is that of a container for the runner's programs.
func (r *Runner) spec(e *engine, memory int64) spec {
	return spec{Spec: r.bounds().Spec(memory), layer: e.layer, preload: e.preload}
}

// env is the environment of a container's first process, with the search path of
// its image.
func (s spec) env(path string) []string {
	env := supervisor.Env(path)
	if s.preload != "" {
		env = append(env, supervisor.Preload+"="+s.preload, supervisor.PreloadRlimits+"="+s.Rlimits().Lines())
	}
	return env
}

// prepare sees to what containers have beside their image.
func (r *Runner) prepare(ctx context.Context, e *engine) error {
	preload, err := supervisor.PreloadList(r.Preload...)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	if e.layer, err = r.findLayer(ctx, e, r.Packages); err != nil {
		return err
	}
	if e.layer != "" {
		e.pool.Prune() // of what was made for the probe
	}
	if e.preload = preload; preload == "" {
		return nil
	}
	// A module that cannot be imported shows here, once.
	c, _, err := e.pool.Get(ctx, r.spec(e, r.bounds().Limits(fnloop.Limits{}).Memory))
	if err == nil {
		e.pool.Put(c)
	}
	return err
}

// sessionSpec is what the container of an interpreter is made to.
func (r *Runner) sessionSpec(ctx context.Context, e *engine, c interpreter.Config, memory int64) (s spec, err error) {
	s = r.spec(e, memory)
	if s.preload, err = supervisor.PreloadList(slices.Concat(r.Preload, c.Preload)...); err != nil {
		return s, fmt.Errorf("docker: %w", err)
	}
	if len(c.Packages) > 0 {
		s.layer, err = r.findLayer(ctx, e, slices.Concat(r.Packages, c.Packages))
	}
	return s, err
}

// findLayer gives the image with packages, which are installed where they are not
// there yet; empty where there are none.
func (r *Runner) findLayer(ctx context.Context, e *engine, packages []string) (string, error) {
	if len(packages) == 0 {
		return "", nil
	}
	list, err := pylayer.Parse(packages, "")
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	key := list.Key(e.image + "\n" + r.Python)
	told := func(line string) {
		if r.Installing != nil {
			e.told.Lock()
			defer e.told.Unlock()
			r.Installing(line)
		}
	}
	v := e.layers.Value(key)
	image, err := v.Enter(ctx, func(ctx context.Context) (string, error) { return r.openLayer(ctx, e, list, key, told) })
	switch {
	case err == nil:
		v.Leave()
		return image, nil
	case ctx.Err() != nil:
		return "", ended(ctx)
	}
	if _, ours := errors.AsType[*Error](err); !ours {
		err = fmt.Errorf("docker: %w", err)
	}
	return "", err
}

// layerName is the name of the image with packages.
func layerName(key string) string { return "fnloop-packages:" + key }

// layerNote is a file of this machine that is locked by who makes the image with
// packages, and whose time is when that was last asked for.
func layerNote(key string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "fnloop", "images")
	return filepath.Join(dir, key), os.MkdirAll(dir, 0o700)
}

// openLayer gives the image with packages, made where there is none.
func (r *Runner) openLayer(ctx context.Context, e *engine, list *pylayer.List, key string, told func(string)) (string, error) {
	note, err := layerNote(key)
	if err != nil {
		return "", &fnloop.PackageError{Field: "Packages", Reason: fmt.Sprintf("their lock cannot be made: %v", err)}
	}
	image, err := e.layerImage(ctx, key, told)
	if image == "" && err == nil {
		var unlock func()
		if unlock, err = pylayer.Lock(ctx, note, told); err != nil {
			return "", err
		}
		defer unlock()
		if image, err = e.layerImage(ctx, key, told); image == "" && err == nil {
			image, err = r.makeLayer(ctx, e, list, key, told)
		}
	}
	if err != nil {
		return "", err
	}
	e.told.Lock()
	defer e.told.Unlock()
	e.notes = append(e.notes, note)
	touch(note)
	return image, nil
}

// touch notes the use of packages. Where that cannot be written they are another
// machine's, as it were, and stay.
func touch(note string) {
	if f, err := os.OpenFile(note, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		f.Close()
		now := time.Now()
		_ = os.Chtimes(note, now, now)
	}
}

// layerImage gives the image with packages, or nothing. The engine knows images
// by the sums of their contents; what only has the name is not taken.
func (e *engine) layerImage(ctx context.Context, key string, told func(string)) (string, error) {
	image, err := e.api.ImageInspect(ctx, layerName(key))
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", e.classify(ctx, err)
	}
	parts := image.RootFS.Layers
	if image.Config == nil || image.Config.Labels[labelKey] != key || len(parts) != len(e.base)+1 || !slices.Equal(parts[:len(e.base)], e.base) {
		told("the packages are made again: the image " + layerName(key) + " is not the one that was made")
		return "", nil
	}
	return image.ID, nil
}

// makeLayer has packages installed in a container with a network, and makes an
// image of the runner's with nothing more than their files.
func (r *Runner) makeLayer(ctx context.Context, e *engine, list *pylayer.List, key string, told func(string)) (string, error) {
	told("installing " + list.String())
	p := list.Program("", told)
	if e.memory > 0 {
		p.Limits.Memory = min(p.Limits.Memory, e.memory)
	}
	s := spec{Spec: limit.Bounds{PIDs: pylayer.InstallPIDs, CPUs: cmp.Or(r.CPUs, DefaultCPUs), OpenFiles: pylayer.InstallFiles}.Spec(p.Limits.Memory), install: true}
	c, err := r.start(ctx, e, s)
	if err != nil {
		return "", err
	}
	defer c.Remove()
	c.attend(ctx)
	res, err := c.conn.Run(ctx, p, nil, p.Limits, pylayer.Rlimits(s.Rlimits()))
	if gone := c.gone(); gone != nil {
		return "", gone
	}
	if err := list.Failure(res, err); err != nil {
		return "", err
	}
	if _, err := c.ended(ctx); err != nil {
		return "", e.classify(ctx, err)
	}
	from, err := e.api.CopyFromContainer(ctx, c.name, client.CopyFromContainerOptions{SourcePath: supervisor.LayerDir})
	if err != nil {
		return "", e.classify(ctx, err)
	}
	defer from.Content.Close()
	image, err := e.commitLayer(ctx, from.Content, key)
	if err != nil && strings.Contains(err.Error(), "no space left") {
		err = &fnloop.PackageError{Field: "Packages", Reason: "the engine's disk is full: " + err.Error()}
	}
	return image, err
}

// commitLayer makes the image of the files in an archive, which is that of a
// folder. There is no image before all of them are in it.
func (e *engine) commitLayer(ctx context.Context, archive io.Reader, key string) (string, error) {
	b := e.newSandbox()
	defer b.abandon()
	_, err := e.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:       b.name,
		Config:     &container.Config{Image: e.image, Cmd: []string{"true"}, Labels: e.lease.labels(e.image, time.Now().Add(maxAge))},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		b.late = ctx.Err() != nil || unreachable(err)
		return "", e.classify(ctx, err)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := writeLayer(w, archive)
		w.CloseWithError(err)
		done <- err
	}()
	_, err = e.api.CopyToContainer(ctx, b.name, client.CopyToContainerOptions{DestinationPath: "/", Content: r})
	r.CloseWithError(errors.New("the engine took no more"))
	if bad := <-done; bad != nil && ctx.Err() == nil {
		return "", &fnloop.PackageError{Field: "Packages", Reason: bad.Error()}
	}
	if err != nil {
		return "", e.classify(ctx, err)
	}
	made, err := e.api.ContainerCommit(ctx, b.name, client.ContainerCommitOptions{
		Reference: layerName(key), NoPause: true,
		Changes: []string{"LABEL " + labelApp + "=packages", "LABEL " + labelKey + "=" + key, "LABEL " + labelLease + "="},
	})
	if err != nil {
		return "", e.classify(ctx, err)
	}
	return made.ID, nil
}

// writeLayer writes the archive of a layer's files, as they are in an image.
func writeLayer(to io.Writer, archive io.Reader) error {
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: pylayer.InstallDir[1:] + "/", Mode: 0o755}); err != nil {
		return err
	}
	_, err := pylayer.Copy(archive, path.Base(supervisor.LayerDir), func(h *tar.Header, r io.Reader) error {
		h.Name = path.Join(supervisor.LayerDir[1:], h.Name)
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(w, r)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// installFolder makes the folders in which an install may write.
func installFolder(ctx context.Context, c *sandbox) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{path.Base(supervisor.LayerDir), "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Uid: 65534, Gid: 65534}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := c.e.api.CopyToContainer(ctx, c.name, client.CopyToContainerOptions{DestinationPath: pylayer.InstallDir, Content: &b})
	return err
}

// reapLayers removes the images of packages that nobody here has used for long.
// The engine keeps those of which there are containers.
func (e *engine) reapLayers(ctx context.Context) {
	e.told.Lock()
	for _, note := range e.notes {
		touch(note)
	}
	e.told.Unlock()
	ask, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := e.api.ImageList(ask, client.ImageListOptions{Filters: make(client.Filters).Add("label", labelApp+"=packages")})
	if err != nil {
		return
	}
	for _, image := range list.Items {
		note, err := layerNote(image.Labels[labelKey])
		if err != nil || filepath.Base(note) != image.Labels[labelKey] {
			continue
		}
		info, err := os.Stat(note)
		if err != nil || time.Since(info.ModTime()) < pylayer.Unused {
			continue // another machine's, or in use
		}
		if _, err := e.api.ImageRemove(ask, image.ID, client.ImageRemoveOptions{}); err == nil {
			_ = os.Remove(note) // the next time
		}
	}
}
