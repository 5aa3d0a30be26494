package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/pool"
	"github.com/fnloop/fnloop/internal/supervisor"
)

const (
	// callTime bounds a question to the engine that is answered from its memory.
	callTime = 10 * time.Second
	// patience is how long what the engine was asked for may take until it is
	// asked whether it is there at all, and silence how long the answer to that
	// may take, unless Startup is less. An engine on a busy machine needs a while,
	// one that is stopped never answers.
	patience = 2 * time.Second
	silence  = 5 * time.Second
	// reapGrace is how long the first call waits for the removal of what was left
	// behind before.
	reapGrace = time.Second
)

// api is the part of the engine's client that is used.
type api = *client.Client

// warm has the containers, also where none is kept ready.
type warm = pool.Pool[spec, *sandbox]

// An engine is what a Runner is connected to.
type engine struct {
	api       api
	place     endpoint
	startup   time.Duration
	image     string // its digest or identifier: a tag may come to mean another
	path      string // the search path in a container
	languages language.Finder
	etc       etc
	cgroups   cgroups
	memory    int64    // of the engine's host, in bytes; zero where it is not known
	version   string   // of cgroups there, "1" or "2", where it is known
	unlimited []string // what cannot be enforced
	podman    bool     // and not Docker
	seccomp   string   // our policy, or where it is
	lease     *lease
	pool      *warm
	debts     debts
	logger    logger
	session   supervisor.Compiled
	base      []string // the parts of that image
	layers    lazy.Map[string]
	told      sync.Mutex // held while Installing is called, and for notes
	notes     []string   // of the layers that are used
	layer     string     // the image with the runner's packages, or empty
	preload   string     // the modules that interpreters have imported

	stop context.CancelFunc // ends clean
	work sync.WaitGroup     // clean

	inspecting sync.Mutex
	python     string // empty until it was asked
	packages   []string
}

// ping reports whether the engine answers, as an [*Error] or nil.
func (e *engine) ping(ctx context.Context, limit time.Duration) error {
	ask, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := e.api.Ping(ask, client.PingOptions{}); err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return e.place.refused(err)
	}
	return nil
}

// attend gives a context that ends with ctx, or as soon as the engine does not
// answer any more, which is its cause then. The function must be called.
func (e *engine) attend(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	wait := min(patience, e.startup/4)
	timer := time.AfterFunc(wait, func() {
		for ctx.Err() == nil {
			if err := e.ping(ctx, min(silence, e.startup/2)); err != nil {
				cancel(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	})
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// classify makes an Error of what the engine answered to a question that was
// asked with ctx.
func (e *engine) classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if unreachable(err) {
		return e.place.refused(err)
	}
	return &Error{Host: e.place.host, Err: err}
}

// unreachable reports whether err means that no answer came from the engine.
func unreachable(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist)
}

// errNotReady is within the error of a start that took too long, while the engine
// answered.
var errNotReady = errors.New("a container was not ready in time")

// isSilence reports whether err is that of an engine that does not answer, which
// it will not do for others either.
func isSilence(err error) bool {
	return errors.Is(err, ErrNotAnswering) && !errors.Is(err, errNotReady) || errors.Is(err, ErrNoSocket) || errors.Is(err, ErrPermission)
}

// ended is the error of a context that has ended: that of this package which is
// its cause, else its own with the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if _, ours := errors.AsType[*Error](cause); ours || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// begin begins to remove what programs that are gone left behind, and waits for
// that for a moment, so that the next start after a crash usually finds nothing.
func (e *engine) begin(ctx context.Context) {
	clean, stop := context.WithCancel(context.Background())
	e.stop = stop
	swept := make(chan struct{})
	e.work.Go(func() {
		e.reap(clean)
		close(swept)
		e.clean(clean)
	})
	select {
	case <-swept:
	case <-time.After(reapGrace):
	case <-ctx.Done():
	}
}

// close removes what is there of ours. What it could not remove is in its error,
// and its lease stays for the next runner to judge it by.
func (e *engine) close() error {
	e.pool.Close()
	e.stop()
	e.work.Wait()
	err := e.settleAll()
	if e.debts.ours() == 0 {
		err = errors.Join(err, e.lease.remove())
	}
	return errors.Join(err, e.lease.release(), e.api.Close())
}
