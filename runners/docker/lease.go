package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop/internal/flock"
)

// The labels of our containers.
const (
	labelApp      = "io.github.fnloop"
	labelOwner    = labelApp + ".owner"    // of whom
	labelLease    = labelApp + ".lease"    // the file that its owner has locked
	labelBoot     = labelApp + ".boot"     // the machine, since when, on which the file is
	labelPID      = labelApp + ".pid"      // for people
	labelImage    = labelApp + ".image"    // for people
	labelKey      = labelApp + ".key"      // of the packages of an image
	labelDeadline = labelApp + ".deadline" // when it is left behind, whoever made it; Unix time
)

// idleAge is the age at which a container that does not run is taken for left
// behind, whoever made it.
const idleAge = time.Hour

// A lease is a file that is locked for as long as the process lives that made
// the containers with its name. The kernel ends the lock with the process,
// however that ends, and unlike a number it is never another's.
type lease struct {
	owner string
	file  *os.File // nil where files cannot be locked
	path  string
	last  atomic.Int64
}

func newLease() (*lease, error) {
	l := &lease{owner: strings.ToLower(rand.Text()[:16])}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "fnloop", "leases")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l.path = filepath.Join(dir, l.owner)
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if !flock.Exclusive(f) {
		return l, errors.Join(f.Close(), os.Remove(l.path))
	}
	l.file = f
	return l, nil
}

// remove removes the lease, of which no container is left.
func (l *lease) remove() error {
	if l.file == nil {
		return nil
	}
	policy := os.Remove(l.path + ".json") // see engine.policy
	if errors.Is(policy, fs.ErrNotExist) {
		policy = nil
	}
	return errors.Join(policy, os.Remove(l.path))
}

// release ends the lock: whatever has the name of the lease is left behind.
func (l *lease) release() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// name is a new name for a container.
func (l *lease) name() string { return fmt.Sprintf("fnloop-%s-%d", l.owner, l.last.Add(1)) }

func (l *lease) labels(image string, deadline time.Time) map[string]string {
	labels := map[string]string{
		labelApp:      "sandbox",
		labelOwner:    l.owner,
		labelLease:    "", // not that of an image which has the labels of a container
		labelBoot:     boot(),
		labelPID:      strconv.Itoa(os.Getpid()),
		labelImage:    image,
		labelDeadline: strconv.FormatInt(deadline.Unix(), 10),
	}
	if l.file != nil {
		labels[labelLease] = l.path
	}
	return labels
}

// boot names this machine since it was started.
func boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		return name
	}
	return strings.TrimSpace(string(b))
}

// orphaned reports whether a container was left behind.
func orphaned(c container.Summary, now time.Time) bool {
	labels := c.Labels
	if path := labels[labelLease]; path != "" && labels[labelBoot] == boot() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			defer f.Close()
			return flock.Exclusive(f)
		}
	}
	// Its maker is elsewhere, or cannot be asked. One that does not run is soon
	// removed by its maker, if that is there.
	if c.State != container.StateRunning && now.Sub(time.Unix(c.Created, 0)) > idleAge {
		return true
	}
	deadline, err := strconv.ParseInt(labels[labelDeadline], 10, 64)
	return err == nil && now.Unix() > deadline
}

// reap removes the containers of programs that are gone, and their leases.
// What it cannot do now is done later.
func (e *engine) reap(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := e.api.ContainerList(ask, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelApp+"=sandbox"),
	})
	if err != nil {
		return
	}
	named := make(map[string]bool)
	for _, c := range list.Items {
		named[c.Labels[labelOwner]] = true
		if c.Labels[labelOwner] != e.lease.owner && orphaned(c, time.Now()) {
			e.debts.enter(c.ID, debt{foreign: true})
			e.debts.demand(c.ID, false)
		}
	}
	_ = e.settle(ctx) // it is tried again
	// A lease stays as long as an engine may still have, or be about to have, a
	// container that only it can be judged by.
	leases, err := os.ReadDir(filepath.Dir(e.lease.path))
	if err != nil {
		return
	}
	for _, l := range leases {
		info, err := l.Info()
		if err != nil || named[strings.TrimSuffix(l.Name(), ".json")] || time.Since(info.ModTime()) < time.Hour {
			continue
		}
		path := filepath.Join(filepath.Dir(e.lease.path), l.Name())
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			if flock.Exclusive(f) {
				_ = os.Remove(path)
			}
			f.Close()
		}
	}
}
