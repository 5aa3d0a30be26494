package limit

import (
	"context"
	"runtime"
	"sync"
)

// DefaultPrograms is how many programs a runner of this machine runs at once, for
// each processor, when it is not told.
const DefaultPrograms = 4

// Slots bound how many programs of a runner run at once. The zero value is ready.
type Slots struct {
	once sync.Once
	free chan struct{}
}

// Take waits until fewer than most programs run, or ctx ends. Zero means
// DefaultPrograms for each processor, and negative no bound. What most is the
// first time counts. The caller calls release when its program has ended.
func (s *Slots) Take(ctx context.Context, most int) (release func(), err error) {
	if most < 0 {
		return func() {}, nil
	}
	if most == 0 {
		most = DefaultPrograms * runtime.NumCPU()
	}
	s.once.Do(func() { s.free = make(chan struct{}, most) })
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
