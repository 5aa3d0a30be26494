package lazy_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fnloop/fnloop/internal/lazy"
)

func TestValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v lazy.Value[int]
		opened := 0
		open := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			opened++
			return 7, nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got, err := v.Enter(t.Context(), open); got != 7 || err != nil {
					t.Errorf("Enter() = %d, %v", got, err)
				}
				time.Sleep(time.Second)
				v.Leave()
			})
		}
		time.Sleep(1500 * time.Millisecond)
		start := time.Now()
		if got, ok := v.Close(); got != 7 || !ok || time.Since(start) != 500*time.Millisecond {
			t.Errorf("Close() = %d, %t after %v", got, ok, time.Since(start))
		}
		wg.Wait()
		if opened != 1 {
			t.Errorf("opened %d times", opened)
		}
		if _, ok := v.Close(); ok {
			t.Error("the value is given twice")
		}
		if _, err := v.Enter(t.Context(), open); !errors.Is(err, lazy.ErrClosed) {
			t.Errorf("Enter() after Close() = %v", err)
		}
	})
}

func TestValueOpensAgain(t *testing.T) {
	var v lazy.Value[int]
	fail := errors.New("not now")
	if _, err := v.Enter(t.Context(), func(context.Context) (int, error) { return 0, fail }); err != fail {
		t.Errorf("Enter() = %v", err)
	}
	if got, err := v.Enter(t.Context(), func(context.Context) (int, error) { return 1, nil }); got != 1 || err != nil {
		t.Errorf("Enter() = %d, %v", got, err)
	}
	v.Leave()
}

func TestValueWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v lazy.Value[int]
		go v.Enter(t.Context(), func(context.Context) (int, error) { time.Sleep(time.Hour); return 1, nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Enter(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter() = %v", err)
		}
		time.Sleep(time.Hour)
	})
}
