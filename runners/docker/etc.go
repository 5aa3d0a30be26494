package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop/internal/supervisor"
)

// etcFiles are the files that a container has beside those of its image.
var etcFiles = map[string]string{
	"/etc/hosts":                         supervisor.Hosts,
	"/etc/pip.conf":                      supervisor.PipConf,
	supervisor.Dir + "/sitecustomize.py": supervisor.Source,
}

// An etc is a directory with etcFiles in the engine, in a volume of ours that
// stays there for later runners. With a hosts file the engine need not set up a
// network in which nothing is. It does that by starting its own program once
// more for each container, which takes as much of a processor as all the rest of
// a start. With the supervisor in a file no interpreter has to be started to write
// one, and the engine need not keep the source with what it knows of a container.
type etc struct {
	mu   sync.Mutex
	dir  string // on the engine's host; empty before it is known
	none bool   // it is of no use: the engine sets up the network
}

// etcDir gives the directory on the engine's host, or nothing where the engine
// makes what containers need.
func (e *engine) etcDir(ctx context.Context) string {
	if e.podman { // which starts nothing for a network, and writes a hosts file
		return ""
	}
	d := &e.etc
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir == "" && !d.none {
		var err error
		if d.dir, err = e.findEtc(ctx, false); err != nil && ctx.Err() == nil && !unreachable(err) {
			d.fail(e, err)
		}
	}
	return d.dir
}

// mendEtc writes the files again that a container could not be given.
func (e *engine) mendEtc(ctx context.Context) {
	d := &e.etc
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.none {
		return
	}
	var err error
	if d.dir, err = e.findEtc(ctx, true); err != nil {
		d.fail(e, err)
	}
}

// giveUpEtc has the engine set up the network.
func (e *engine) giveUpEtc(err error) {
	d := &e.etc
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail(e, err)
}

func (d *etc) fail(e *engine, err error) {
	if !d.none {
		e.logger.warn("containers get no files of ours in /etc and start slower", slog.Any("err", err))
	}
	d.dir, d.none = "", true
}

// useful reports whether containers that have the files are what they should be.
func (d *etc) useful() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.none
}

// findEtc finds the directory, or makes it where there is none or it has to be
// new.
func (e *engine) findEtc(ctx context.Context, anew bool) (string, error) {
	files, sum, err := etcArchive()
	if err != nil {
		return "", err
	}
	name := "fnloop-etc-" + sum
	found, err := e.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	if err == nil && !anew {
		return found.Volume.Mountpoint, nil
	}
	// A container that is never started has the volume, and the engine takes
	// files for that.
	c := e.newSandbox()
	defer c.abandon()
	const dir = "/fnloop"
	_, err = e.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   c.name,
		Config: &container.Config{Image: e.image, Cmd: []string{"true"}, Labels: e.lease.labels(e.image, time.Now().Add(maxAge))},
		HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{
			Type: mount.TypeVolume, Source: name, Target: dir,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelApp: "etc"}},
		}}},
	})
	if err != nil {
		c.late = ctx.Err() != nil || unreachable(err)
		return "", err
	}
	if _, err := e.api.CopyToContainer(ctx, c.name, client.CopyToContainerOptions{DestinationPath: dir, Content: files}); err != nil {
		return "", err
	}
	found, err = e.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err == nil && found.Volume.Mountpoint == "" {
		err = errors.New("the engine does not tell where its volumes are")
	}
	return found.Volume.Mountpoint, err
}

// etcArchive gives the files for the engine, and a sum of them.
func etcArchive() (_ io.Reader, sum string, err error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(etcFiles)) {
		text := etcFiles[file]
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: path.Base(file), Mode: 0o644, Size: int64(len(text))})
		}
		if err == nil {
			_, err = io.WriteString(w, text)
		}
	}
	err = errors.Join(err, w.Close())
	digest := sha256.Sum256(b.Bytes())
	return &b, hex.EncodeToString(digest[:6]), err
}

// etcFailed reports whether err, of making c, is about its files in /etc.
func (c *sandbox) etcFailed(err error) bool {
	if err == nil || c.etc == "" {
		return false
	}
	for _, part := range append(slices.Collect(maps.Keys(etcFiles)), c.etc, "Mounts denied", "bind source path") {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}
