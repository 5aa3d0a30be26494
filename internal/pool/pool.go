// Package pool keeps sandboxes ready for programs that are yet to come.
//
// A member of a pool serves one program and is removed then; another is made
// behind it. What is made and removed is the same as without a pool, only not
// while anybody waits.
package pool

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrClosed is the error of [Pool.Get] after [Pool.Close].
var ErrClosed = errors.New("the pool is closed")

const (
	// refillDelay is the delay of pools that have none of their own: to make a
	// member costs about as much of a processor as to run a short program.
	refillDelay = 30 * time.Millisecond
	// maxHold is how long Put may take.
	maxHold = time.Second
	// maxIdle is how long a member waits for a program.
	maxIdle = 10 * time.Minute
)

// A Member is a sandbox that waits for its program.
type Member interface {
	// Alive reports whether a program can still be given to it.
	Alive() bool
	// Remove ends the sandbox and waits until nothing of it is left.
	Remove()
}

// A Pool keeps up to Size members ready. Keys say what a member was made to: a
// member is only given to who asks for the same. Set the fields before first
// use; a Pool is safe for concurrent use.
type Pool[K comparable, M Member] struct {
	// Size is how many members are kept ready, for all keys together. With
	// zero each is made when it is asked for.
	Size int
	// Delay is how long after a member was taken the next is begun, or less where
	// the taken one comes back before: a short program goes first. Zero means 30 ms.
	Delay time.Duration
	// Make makes a member. It is called from several goroutines at once, and
	// its context ends when the pool is closed.
	Make func(context.Context, K) (M, error)
	// Common reports whether an error of Make is not of one member alone, so
	// that all who wait get it. Nil means that none is.
	Common func(error) bool

	mu      sync.Mutex
	ready   []member[K, M] // oldest first
	waiting []*waiter[K, M]
	making  map[K]int
	last    K    // what was asked for most recently, and is what is refilled
	used    bool // last is set
	failed  bool // the last attempt to refill failed: wait for the next Get
	gets    int  // how many waiters there have been
	timer   *time.Timer
	sweeper *time.Timer
	ctx     context.Context
	cancel  context.CancelFunc
	closed  bool
	work    sync.WaitGroup // makers and removers
	removes chan struct{}  // bounds the removers
}

type member[K comparable, M Member] struct {
	key   K
	m     M
	since time.Time
}

// A waiter is a Get that found nothing ready.
type waiter[K comparable, M Member] struct {
	key    K
	number int            // its place among all
	got    chan result[M] // holds one
}

type result[M Member] struct {
	m   M
	err error
}

// Get gives a member made to key: one that is ready, and then warm is true, or
// else the first that gets ready. The caller must give it back with Put.
func (p *Pool[K, M]) Get(ctx context.Context, key K) (m M, warm bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return m, false, ErrClosed
	}
	p.init()
	p.last, p.used, p.failed = key, true, false
	for i := 0; i < len(p.ready); i++ {
		if p.ready[i].key != key {
			continue
		}
		m := p.ready[i].m
		p.ready = append(p.ready[:i], p.ready[i+1:]...)
		if !m.Alive() {
			p.remove(m)
			i--
			continue
		}
		p.refillIn(cmp.Or(p.Delay, refillDelay))
		p.mu.Unlock()
		return m, true, nil
	}
	p.gets++
	w := &waiter[K, M]{key: key, number: p.gets, got: make(chan result[M], 1)}
	p.waiting = append(p.waiting, w)
	p.makeFor(key)
	p.mu.Unlock()

	select {
	case r := <-w.got:
		return r.m, false, r.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	for i := range p.waiting {
		if p.waiting[i] == w {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	select {
	case r := <-w.got: // it came all the same
		if r.err == nil {
			p.keep(key, r.m)
		}
	default:
	}
	return m, false, ctx.Err()
}

// Fill begins to make members to key, ahead of the first Get.
func (p *Pool[K, M]) Fill(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.init()
	p.last, p.used, p.failed = key, true, false
	p.makeFor(key)
}

// Put takes a used member back and removes it in the background. Where more
// come back than can be removed it holds the caller up for a while, so that
// they do not pile up, but not for long: what removes may itself be stuck.
func (p *Pool[K, M]) Put(m M) {
	p.mu.Lock()
	p.init()
	p.refillIn(0)
	p.mu.Unlock()
	held := true
	select {
	case p.removes <- struct{}{}:
	default:
		timer := time.NewTimer(maxHold)
		defer timer.Stop()
		select {
		case p.removes <- struct{}{}:
		case <-timer.C:
			held = false
		}
	}
	p.work.Go(func() {
		m.Remove()
		if held {
			<-p.removes
		}
	})
}

// Prune removes the members that are ready and can be given no program any
// more. Get makes others.
func (p *Pool[K, M]) Prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := p.ready[:0]
	for _, r := range p.ready {
		if r.m.Alive() {
			alive = append(alive, r)
		} else {
			p.remove(r.m)
		}
	}
	clear(p.ready[len(alive):])
	p.ready = alive
}

// Close removes the members that are ready and waits until those that are being
// made or removed are gone. Members that were not given back are the caller's.
func (p *Pool[K, M]) Close() {
	p.mu.Lock()
	p.closed = true
	if p.cancel != nil {
		p.cancel()
		p.timer.Stop()
		p.sweeper.Stop()
	}
	for _, r := range p.ready {
		p.remove(r.m)
	}
	p.ready = nil
	p.fail(nil, p.gets, ErrClosed)
	p.mu.Unlock()
	p.work.Wait()
}

// Ready is how many members wait for a program.
func (p *Pool[K, M]) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// The methods below are called with the mutex held, unless they say otherwise.

func (p *Pool[K, M]) init() {
	if p.making != nil {
		return
	}
	p.making = make(map[K]int)
	p.removes = make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.timer = time.AfterFunc(time.Hour, p.refill)
	p.timer.Stop()
	p.sweeper = time.AfterFunc(time.Hour, p.sweep)
	p.sweeper.Stop()
}

// refillIn has what is missing made after d.
func (p *Pool[K, M]) refillIn(d time.Duration) {
	if !p.closed && p.Size > 0 {
		p.timer.Reset(d)
	}
}

// refill makes what is missing. It is called without the mutex.
func (p *Pool[K, M]) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used && !p.failed {
		p.makeFor(p.last)
	}
}

// makeFor begins as many members for key as waiters and the pool's size ask
// for, but no more at once than the machine has use for.
func (p *Pool[K, M]) makeFor(key K) {
	if p.closed {
		return
	}
	waiters, ready := 0, 0
	for _, w := range p.waiting {
		if w.key == key {
			waiters++
		}
	}
	for _, r := range p.ready {
		if r.key == key {
			ready++
		}
	}
	spare := 0
	if key == p.last && !p.failed {
		spare = p.Size - ready
	}
	atOnce := runtime.GOMAXPROCS(0)
	if waiters > atOnce {
		atOnce = min(waiters, 4*atOnce)
	}
	for want := waiters + spare; p.making[key] < min(want, atOnce); {
		p.making[key]++
		before := p.gets
		p.work.Go(func() { p.make(key, before) })
	}
}

// make makes one member, begun when there had been so many waiters before. It
// is called without the mutex.
func (p *Pool[K, M]) make(key K, before int) {
	m, err := p.Make(p.ctx, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.making[key]--; p.making[key] == 0 {
		delete(p.making, key)
	}
	if err != nil {
		p.failed = true
		p.fail(&key, before, err)
		return
	}
	p.failed = false
	p.keepLocked(key, m)
	p.makeFor(key)
}

// fail gives err to the first waiter for key, or to all waiters where it is a
// common one or there is no key. A waiter that came later than the attempt is
// not told of what was the matter with one member, but has another made: what
// was killed while nobody asked for it is no reason to fail.
func (p *Pool[K, M]) fail(key *K, before int, err error) {
	all := key == nil || p.Common != nil && p.Common(err)
	rest := p.waiting[:0]
	done := false
	for _, w := range p.waiting {
		if !all && (done || w.number > before || w.key != *key) {
			rest = append(rest, w)
			continue
		}
		w.got <- result[M]{err: err}
		done = true
	}
	clear(p.waiting[len(rest):])
	p.waiting = rest
	if key != nil {
		p.makeFor(*key)
	}
}

// keep gives m to who waits for one, or keeps it ready. It is called without
// the mutex.
func (p *Pool[K, M]) keep(key K, m M) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepLocked(key, m)
}

func (p *Pool[K, M]) keepLocked(key K, m M) {
	for i, w := range p.waiting {
		if w.key == key {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			w.got <- result[M]{m: m}
			return
		}
	}
	if p.closed || p.Size <= 0 {
		p.remove(m)
		return
	}
	p.ready = append(p.ready, member[K, M]{key, m, time.Now()})
	// What is too much goes: what nobody asked for last, else the oldest.
	for len(p.ready) > p.Size {
		i := 0
		for j, r := range p.ready {
			if r.key != p.last {
				i = j
				break
			}
		}
		p.remove(p.ready[i].m)
		p.ready = append(p.ready[:i], p.ready[i+1:]...)
	}
	if len(p.ready) == 1 {
		p.sweeper.Reset(maxIdle)
	}
}

// sweep removes the members that nobody came for. It is called without the
// mutex.
func (p *Pool[K, M]) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) > 0 {
		left := maxIdle - time.Since(p.ready[0].since)
		if left > 0 {
			p.sweeper.Reset(left)
			return
		}
		p.remove(p.ready[0].m)
		p.ready = p.ready[1:]
	}
}

// remove removes m in the background.
func (p *Pool[K, M]) remove(m M) { p.work.Go(m.Remove) }
