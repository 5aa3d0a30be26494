package interpreter

import (
	"context"
	"sync"
)

// A queue lets one in at a time, in the order in which they came.
type queue struct {
	mu      sync.Mutex
	busy    bool
	waiting []chan struct{}
}

// enter waits for the turn of the caller, who must leave when there is no error.
func (q *queue) enter(ctx context.Context) error {
	q.mu.Lock()
	if err := ctx.Err(); err != nil {
		q.mu.Unlock()
		return err
	}
	if !q.busy {
		q.busy = true
		q.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	q.mu.Unlock()
	select {
	case <-turn:
		if ctx.Err() != nil {
			q.leave()
			return ctx.Err()
		}
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	for i, w := range q.waiting {
		if w == turn {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.mu.Unlock()
			return ctx.Err()
		}
	}
	q.mu.Unlock()
	q.leave() // the turn came all the same
	return ctx.Err()
}

// leave lets the next one in.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
}
