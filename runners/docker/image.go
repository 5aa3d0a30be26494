package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// findImage gives the identifier of the runner's image, and its search path.
func (r *Runner) findImage(ctx context.Context, e *engine) (id, path string, err error) {
	name := cmp.Or(r.Image, DefaultImage)
	image, err := e.api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return "", "", &Error{Host: e.place.host, Err: fmt.Errorf("%w: %s", ErrNoImage, name), Advice: "pull it with Runner.Prepare, or docker pull " + name}
	}
	if err != nil {
		return "", "", e.classify(ctx, err)
	}
	path = searchPath
	if image.Config != nil {
		for _, kv := range image.Config.Env {
			own, _ := strings.CutPrefix(kv, "PATH=")
			for dir := range strings.SplitSeq(own, ":") {
				if strings.HasPrefix(dir, "/") && !slices.Contains(strings.Split(path, ":"), dir) {
					path += ":" + dir
				}
			}
		}
	}
	e.base = image.RootFS.Layers
	return image.ID, path, nil
}

// Prepare pulls the image if it is not there, installs the runner's packages, and
// then runs a first program.
// It is for the start of a service: no call of [Runner.Run] ever pulls. Calls
// beside each other pull once.
func (r *Runner) Prepare(ctx context.Context) error {
	for !r.pull.TryLock() {
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	defer r.pull.Unlock()
	err := r.Probe(ctx)
	if !errors.Is(err, ErrNoImage) {
		return err
	}
	if err := r.pullImage(ctx); err != nil {
		return err
	}
	return r.Probe(ctx)
}

func (r *Runner) pullImage(ctx context.Context) error {
	cli, place, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	name := cmp.Or(r.Image, DefaultImage)
	limit := cmp.Or(r.Pull, DefaultPull)
	pull, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the pull of %s took more than %v", name, limit))
	defer cancel()
	fail := func(err error) error {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if pull.Err() != nil {
			err = context.Cause(pull)
		}
		return &Error{Host: place.host, Err: fmt.Errorf("%w: %s: %w", ErrNoImage, name, err), Advice: "is its name right, and can the engine reach the registry?"}
	}
	stream, err := cli.ImagePull(pull, name, client.ImagePullOptions{})
	if err != nil {
		return fail(err)
	}
	for message, err := range stream.JSONMessages(pull) {
		if err == nil && message.Error != nil {
			err = message.Error // within an answer that began well
		}
		if err != nil {
			return fail(err)
		}
		if r.Progress != nil {
			p := Progress{Image: name, Layer: message.ID, Status: message.Status}
			if message.Progress != nil {
				p.Current, p.Total = message.Progress.Current, message.Progress.Total
			}
			r.Progress(p)
		}
	}
	return nil
}
