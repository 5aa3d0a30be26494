package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// hostname is the name of a container to itself.
const hostname = "sandbox"

// hostsText is the hosts file of a container.
const hostsText = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"127.0.1.1\t" + hostname + "\n"

// A hosts is a hosts file in the engine, in a volume of ours that stays there for
// later runners. With it the engine need not set up a network in which nothing
// is. It does that by starting its own program once more for each container,
// which takes as much of a processor as all the rest of a start.
type hosts struct {
	mu   sync.Mutex
	file string // on the engine's host; empty before it is known
	none bool   // it is of no use: the engine sets up the network
}

// hostsFile gives the file on the engine's host that containers get as their
// hosts file, or nothing where the engine makes one.
func (e *engine) hostsFile(ctx context.Context) string {
	h := &e.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == "" && !h.none {
		var err error
		if h.file, err = e.findHosts(ctx, false); err != nil && ctx.Err() == nil && !unreachable(err) {
			h.fail(e, err)
		}
	}
	return h.file
}

// mendHosts writes the file again that a container could not be given.
func (e *engine) mendHosts(ctx context.Context) {
	h := &e.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.none {
		return
	}
	var err error
	if h.file, err = e.findHosts(ctx, true); err != nil {
		h.fail(e, err)
	}
}

// giveUpHosts has the engine set up the network.
func (e *engine) giveUpHosts(err error) {
	h := &e.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(e, err)
}

func (h *hosts) fail(e *engine, err error) {
	if !h.none {
		e.logger.warn("containers get no hosts file of ours and start slower", slog.Any("err", err))
	}
	h.file, h.none = "", true
}

// useful reports whether containers that have the file are what they should be.
func (h *hosts) useful() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.none
}

// findHosts finds the file, or makes it where there is none or it has to be new.
func (e *engine) findHosts(ctx context.Context, anew bool) (string, error) {
	if e.podman {
		return "", errors.New("Podman sets up no network for it")
	}
	sum := sha256.Sum256([]byte(hostsText))
	name := "fnloop-hosts-" + hex.EncodeToString(sum[:6])
	found, err := e.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	file := path.Join(found.Volume.Mountpoint, "hosts")
	if err == nil && !anew {
		return file, nil
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
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelApp: "hosts"}},
		}}},
	})
	if err != nil {
		c.late = ctx.Err() != nil || unreachable(err)
		return "", err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	err = w.WriteHeader(&tar.Header{Name: "hosts", Mode: 0o644, Size: int64(len(hostsText)), ModTime: time.Now()})
	if err == nil {
		_, err = w.Write([]byte(hostsText))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	if _, err := e.api.CopyToContainer(ctx, c.name, client.CopyToContainerOptions{DestinationPath: dir, Content: &files}); err != nil {
		return "", err
	}
	found, err = e.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	return path.Join(found.Volume.Mountpoint, "hosts"), err
}

// noHosts reports whether err is about the file, which somebody removed.
func noHosts(err error) bool {
	return err != nil && strings.Contains(err.Error(), "bind source path does not exist")
}
