// Package flock locks files, for processes that have nothing else in common. The
// kernel ends a lock with the process that holds it, however that ends.
package flock

import (
	"context"
	"os"
	"time"
)

// Wait locks f exclusively, as soon as nobody else has a lock on it. Where files
// cannot be locked it does nothing.
func Wait(ctx context.Context, f *os.File) error {
	for wait := 10 * time.Millisecond; Supported && !Exclusive(f); wait = min(2*wait, 200*time.Millisecond) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return nil
}
