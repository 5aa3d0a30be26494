package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

const (
	// removeTime bounds one attempt to remove a container.
	removeTime = 5 * time.Second
	// firstWait and lastWait are how long after an attempt the next one comes,
	// at first and at most.
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
	// lateTime is how long a container may come to be after its creation was
	// given up, counted from when the engine answers again.
	lateTime = 30 * time.Second
	// closeTime bounds what Close waits for removals.
	closeTime = 20 * time.Second
	// reapFirst and reapEvery are when what other programs left behind is looked
	// for again.
	reapFirst = 10 * time.Second
	reapEvery = 5 * time.Minute
)

// debts are the containers that the engine has, or may have, because of us. One
// is entered before its creation is asked for, and struck out when the engine
// says that it is gone. The zero value has none and is safe for concurrent use.
type debts struct {
	mu   sync.Mutex
	all  map[string]*debt // by the name or identifier of the container
	wake chan struct{}    // has one when another became due
}

// A debt is one container.
type debt struct {
	due bool // it has to be removed
	// late means that the engine was asked for it and did not answer: it may
	// come to be at any time. missed is when the engine first said that it has
	// no such container.
	late   bool
	missed time.Time
	// foreign means that another program made it.
	foreign bool
}

// enter writes a container down.
func (d *debts) enter(name string, as debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[string]*debt)
	}
	if d.all[name] == nil {
		d.all[name] = &as
	}
}

// strike says that a container is gone.
func (d *debts) strike(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, name)
}

// demand has a container removed by and by.
func (d *debts) demand(name string, late bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if debt := d.all[name]; debt != nil {
		debt.due, debt.late = true, debt.late || late
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// due are the containers to be removed.
func (d *debts) due() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, debt := range d.all {
		if debt.due {
			names = append(names, name)
		}
	}
	return names
}

// ours is how many of the containers this program made.
func (d *debts) ours() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, debt := range d.all {
		if !debt.foreign {
			n++
		}
	}
	return n
}

// absent says that the engine has no such container now, and reports whether it
// can come to be no more.
func (d *debts) absent(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	debt := d.all[name]
	if debt == nil || !debt.late {
		return true
	}
	if debt.missed.IsZero() {
		debt.missed = time.Now()
	}
	return time.Since(debt.missed) > lateTime
}

// remove removes a container, now or else by and by.
func (e *engine) remove(ctx context.Context, name string) {
	if err := e.tryRemove(ctx, name); err != nil {
		e.debts.demand(name, false)
		e.logger.warn("a container was not removed yet", slog.String("container", name), slog.Any("err", err))
	}
}

// errLate is the error of a container that may yet come to be.
var errLate = errors.New("it may yet come to be")

// tryRemove removes a container and strikes it out when it is gone.
func (e *engine) tryRemove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	_, err := e.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) {
		if err = nil; !e.debts.absent(name) {
			return errLate
		}
	}
	if err == nil {
		e.debts.strike(name)
	}
	return err
}

// settle tries once to remove each container that is due. The error is that of
// an engine that does not answer, which is not asked further.
func (e *engine) settle(ctx context.Context) (err error) {
	for _, name := range e.debts.due() {
		if err := e.tryRemove(ctx, name); err != nil && unreachable(err) {
			return err
		}
	}
	return nil
}

// settleAll removes all that is due, as long as the engine answers.
func (e *engine) settleAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var err error
	for wait := firstWait; e.debts.pressing() > 0 && err == nil; wait = min(2*wait, lastWait) {
		if err = e.ping(ctx, pingTime); err == nil {
			err = e.settle(ctx)
		}
		if e.debts.pressing() > 0 && err == nil {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	if n := e.debts.pressing(); n > 0 {
		return &Error{Host: e.place.host, Err: fmt.Errorf("%d containers are not removed: %w", n, err),
			Advice: "the next runner of this user removes them"}
	}
	return nil
}

// pressing is how many of the containers of this program are known to be there.
func (d *debts) pressing() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, debt := range d.all {
		if debt.due && !debt.foreign && debt.missed.IsZero() {
			n++
		}
	}
	return n
}

// clean removes what could not be removed at once, and what other programs left
// behind, until ctx ends.
func (e *engine) clean(ctx context.Context) {
	wait := firstWait
	reap := time.NewTimer(reapFirst)
	defer reap.Stop()
	var again <-chan time.Time
	for {
		if again == nil && len(e.debts.due()) > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.debts.wake:
			wait = firstWait
		case <-again:
			again = nil
			_ = e.settle(ctx) // an engine that does not answer is asked again
			wait = min(2*wait, lastWait)
		case <-reap.C:
			e.reap(ctx)
			e.reapLayers(ctx)
			reap.Reset(reapEvery)
		}
	}
}

// A logger is a [slog.Logger] that may be nil.
type logger struct{ to *slog.Logger }

func (l logger) warn(message string, attrs ...slog.Attr) {
	if l.to != nil {
		l.to.LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
	}
}
