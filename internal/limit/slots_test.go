package limit_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop/internal/limit"
)

func TestSlots(t *testing.T) {
	for most, want := range map[int]int32{1: 1, 3: 3, 0: int32(min(500, limit.DefaultPrograms*runtime.NumCPU())), -1: 500} {
		synctest.Test(t, func(t *testing.T) {
			var s limit.Slots
			var running, peak atomic.Int32
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() {
					release, err := s.Take(t.Context(), most)
					if err != nil {
						t.Error(err)
						return
					}
					defer release()
					n := running.Add(1)
					for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
					}
					time.Sleep(time.Second)
					running.Add(-1)
				})
			}
			all.Wait()
			if peak.Load() != want {
				t.Errorf("most %d: %d ran at once, want %d", most, peak.Load(), want)
			}
		})
	}
}

func TestSlotsOfAContextThatEnds(t *testing.T) {
	var s limit.Slots
	release, err := s.Take(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, 1); err != context.DeadlineExceeded {
		t.Errorf("Take = %v", err)
	}
	release()
	if _, err := s.Take(t.Context(), 1); err != nil {
		t.Error(err)
	}
}
