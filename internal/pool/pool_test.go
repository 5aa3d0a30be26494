package pool_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop/internal/pool"
)

// A box is a member that counts its kind.
type box struct {
	key     string
	id      int64
	dead    atomic.Bool
	removed atomic.Bool
	of      *factory
}

func (b *box) Alive() bool { return !b.dead.Load() }

func (b *box) Remove() {
	time.Sleep(b.of.removeTime)
	if b.removed.Swap(true) {
		panic("removed twice")
	}
	b.of.live.Add(-1)
}

type factory struct {
	makeTime, removeTime time.Duration

	made, live, most atomic.Int64
	fail             atomic.Pointer[error]
}

func (f *factory) make(ctx context.Context, key string) (*box, error) {
	select {
	case <-time.After(f.makeTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := f.fail.Load(); err != nil {
		return nil, *err
	}
	n := f.live.Add(1)
	for {
		most := f.most.Load()
		if n <= most || f.most.CompareAndSwap(most, n) {
			break
		}
	}
	return &box{key: key, id: f.made.Add(1), of: f}, nil
}

func start(t *testing.T, f *factory, size int) *pool.Pool[string, *box] {
	t.Helper()
	p := &pool.Pool[string, *box]{Size: size, Make: f.make}
	t.Cleanup(func() {
		p.Close()
		if n := f.live.Load(); n != 0 {
			t.Errorf("%d members are left after Close", n)
		}
	})
	return p
}

func get(t *testing.T, p *pool.Pool[string, *box], key string, wantWarm bool) *box {
	t.Helper()
	b, warm, err := p.Get(t.Context(), key)
	if err != nil || b.key != key || warm != wantWarm {
		t.Fatalf("Get(%q) = %+v, warm %v, %v", key, b, warm, err)
	}
	return b
}

func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: 100 * time.Millisecond}
		p := start(t, f, 2)
		p.Put(get(t, p, "a", false))
		settle()
		if n := p.Ready(); n != 2 {
			t.Fatalf("%d are ready, want 2", n)
		}
		seen := make(map[int64]bool)
		for range 10 {
			begin := time.Now()
			b := get(t, p, "a", true)
			if took := time.Since(begin); took != 0 {
				t.Errorf("Get() took %v", took)
			}
			if seen[b.id] {
				t.Errorf("member %d was given twice", b.id)
			}
			seen[b.id] = true
			p.Put(b)
			settle()
		}
		if n := f.live.Load(); n != 2 {
			t.Errorf("%d are alive, want 2", n)
		}
	})
}

// A program that runs is not held up by the member that is made behind it, unless
// it takes long.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Millisecond}
		p := &pool.Pool[string, *box]{Size: 1, Delay: time.Second, Make: f.make}
		defer p.Close()
		made := func(after time.Duration) int64 {
			time.Sleep(after)
			synctest.Wait()
			return f.made.Load()
		}
		p.Put(get(t, p, "a", false))
		if n := made(10 * time.Millisecond); n != 2 {
			t.Fatalf("%d members were made, want the first and one to be ready", n)
		}
		b := get(t, p, "a", true)
		if n := made(900 * time.Millisecond); n != 2 {
			t.Errorf("%d members were made before the delay was over", n)
		}
		if n := made(200 * time.Millisecond); n != 3 {
			t.Errorf("%d members were made after the delay, want one more", n)
		}
		p.Put(b)
		p.Put(get(t, p, "a", true))
		if n := made(10 * time.Millisecond); n != 4 {
			t.Errorf("%d members were made when one came back, want one more", n)
		}
	})
}

func TestFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, new(factory), 3)
		p.Fill("a")
		settle()
		p.Put(get(t, p, "a", true))
	})
}

func TestNoPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(factory)
		p := start(t, f, 0)
		for range 3 {
			p.Put(get(t, p, "a", false))
			settle()
		}
		if f.made.Load() != 3 || f.live.Load() != 0 {
			t.Errorf("%d were made, %d are alive", f.made.Load(), f.live.Load())
		}
	})
}

func TestKeysDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(factory)
		p := start(t, f, 2)
		for _, key := range []string{"a", "b", "a", "c", "b"} {
			p.Put(get(t, p, key, false))
			settle()
			if n := p.Ready(); n != 2 {
				t.Errorf("%d are ready, want 2", n)
			}
		}
		p.Put(get(t, p, "b", true))
	})
}

func TestDeadMembersAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(factory)
		p := start(t, f, 2)
		a := get(t, p, "a", false)
		settle()
		b := get(t, p, "a", true)
		c := get(t, p, "a", true)
		p.Put(a)
		settle()
		for range 2 {
			m := get(t, p, "a", true)
			m.dead.Store(true)
			p.Put(m)
		}
		settle()
		// Members that die while they wait are not given out.
		x := get(t, p, "a", true)
		x.dead.Store(true)
		p.Put(b)
		p.Put(c)
		p.Put(x)
		settle()
		p.Put(get(t, p, "a", true))
	})
}

func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Millisecond}
		p := start(t, f, 2)
		no := errors.New("no")
		f.fail.Store(&no)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, _, err := p.Get(t.Context(), "a"); !errors.Is(err, no) {
					t.Errorf("Get() error = %v", err)
				}
			})
		}
		wg.Wait()
		settle()
		f.fail.Store(nil)
		p.Put(get(t, p, "a", false))
		settle()
		p.Put(get(t, p, "a", true))
	})
}

// What failed that was begun before a call came says nothing to that call.
func TestFailureBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Second}
		p := start(t, f, 1)
		gone := errors.New("gone")
		f.fail.Store(&gone)
		p.Fill("a")
		time.Sleep(500 * time.Millisecond)
		time.AfterFunc(600*time.Millisecond, func() { f.fail.Store(nil) })
		p.Put(get(t, p, "a", false))
		time.Sleep(5 * time.Second)
		if n := p.Ready(); n != 1 {
			t.Errorf("%d members are ready after a success, want 1", n)
		}
	})
}

// What is the matter with all members is told to all, at once, whatever they
// asked for and however few are made at a time.
func TestCommonFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Second}
		p := start(t, f, 1)
		gone := errors.New("gone")
		p.Common = func(err error) bool { return err == gone }
		f.fail.Store(&gone)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if _, _, err := p.Get(t.Context(), string(rune('a'+i%3))); err != gone {
					t.Errorf("Get() error = %v", err)
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("Get() took %v", took)
				}
			})
		}
		wg.Wait()
	})
}

// Members that died while they waited go before anybody asks for them.
func TestPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var made []*box
		f := new(factory)
		p := start(t, f, 2)
		p.Make = func(ctx context.Context, key string) (*box, error) {
			b, err := f.make(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			made = append(made, b)
			return b, err
		}
		p.Fill("a")
		settle()
		p.Prune()
		if n := p.Ready(); n != 2 {
			t.Fatalf("%d members are ready, want 2", n)
		}
		made[0].dead.Store(true)
		p.Prune()
		settle()
		if n := p.Ready(); n != 1 || !made[0].removed.Load() || made[1].removed.Load() {
			t.Errorf("%d members are ready, want the one that lives", n)
		}
		p.Put(get(t, p, "a", true))
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Second}
		p := start(t, f, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := p.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get() error = %v", err)
		}
		settle()
		settle()
		if n := p.Ready(); n != 1 {
			t.Errorf("%d are ready: what was made for a call that left is kept", n)
		}
	})
}

func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: 20 * time.Millisecond, removeTime: 5 * time.Millisecond}
		p := start(t, f, 4)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					b, _, err := p.Get(t.Context(), "a")
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(3 * time.Millisecond)
					p.Put(b)
				}
			})
		}
		wg.Wait()
		settle()
		if n := p.Ready(); n != 4 {
			t.Errorf("%d are ready, want 4", n)
		}
		if made := f.made.Load(); made > 410 {
			t.Errorf("%d were made for 400 calls", made)
		}
		if most := f.most.Load(); most > 40 {
			t.Errorf("%d were alive at once", most)
		}
	})
}

func TestStuckRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{removeTime: time.Hour}
		p := start(t, f, 0)
		for range 30 {
			b := get(t, p, "a", false)
			begin := time.Now()
			p.Put(b)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Put() took %v", took)
			}
		}
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(factory)
		p := start(t, f, 3)
		p.Put(get(t, p, "a", false))
		settle()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.live.Load(); n != 0 {
			t.Errorf("%d are alive after an hour without a call", n)
		}
		p.Put(get(t, p, "a", false))
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{makeTime: time.Second, removeTime: time.Second}
		p := start(t, f, 3)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, _, err := p.Get(t.Context(), "a"); !errors.Is(err, pool.ErrClosed) && !errors.Is(err, context.Canceled) {
				t.Errorf("Get() error = %v during Close", err)
			}
		}()
		synctest.Wait()
		p.Close()
		<-done
		if _, _, err := p.Get(t.Context(), "a"); !errors.Is(err, pool.ErrClosed) {
			t.Errorf("Get() error = %v after Close", err)
		}
	})
}
