// Package lazy opens a thing at its first use and closes it after its last.
package lazy

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the error of [Value.Enter] after [Value.Close].
var ErrClosed = errors.New("closed")

// A Value is a thing that is opened at its first use. Its zero value is ready
// and safe for concurrent use.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	opened  bool
	opening chan struct{} // not nil while a user opens the value
	closed  bool
	users   sync.WaitGroup
}

// Enter counts a user in and gives the value, which one of the first users opens
// while the others wait. An open that fails is tried again by the next. The
// caller must call Leave when there is no error.
func (v *Value[T]) Enter(ctx context.Context, open func(context.Context) (T, error)) (T, error) {
	var none T
	v.mu.Lock()
	for !v.opened && v.opening != nil && !v.closed {
		opening := v.opening
		v.mu.Unlock()
		select {
		case <-opening:
		case <-ctx.Done():
			return none, ctx.Err()
		}
		v.mu.Lock()
	}
	defer v.mu.Unlock()
	if v.closed {
		return none, ErrClosed
	}
	v.users.Add(1)
	if v.opened {
		return v.value, nil
	}
	opening := make(chan struct{})
	v.opening = opening
	v.mu.Unlock()
	value, err := open(ctx)
	v.mu.Lock()
	v.opening = nil
	close(opening)
	if err != nil {
		v.users.Done()
		return none, err
	}
	v.value, v.opened = value, true
	return value, nil
}

// Leave counts a user out.
func (v *Value[T]) Leave() { v.users.Done() }

// Close lets no more users in and waits for those that are. It gives the value
// for the caller to close if there is one, once.
func (v *Value[T]) Close() (value T, ok bool) {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.users.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	value, ok = v.value, v.opened
	var none T
	v.value, v.opened = none, false
	return value, ok
}
