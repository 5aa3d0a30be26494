package runtimecloud

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// How failed attempts are repeated. The API's own clients go by the same
// numbers.
const (
	maxRetries  = 4                // of failures that may have been carried out
	maxPause    = 30 * time.Second // between two attempts, whatever the API asks for
	callTimeout = 5 * time.Minute  // for one call, its retries included
	// The API starts every answer within two minutes: one that has not begun by
	// then is lost, and is asked for again under its key.
	answerTimeout = 125 * time.Second
)

// schedule decides whether and when a call is tried again. A failure falls into
// one of three classes, each with a budget of its own: there is no room, which
// is worth a wait of minutes; nothing ran, which may be repeated until the
// call's deadline; or the request may have been carried out, which is repeated
// a few times under the same key.
type schedule struct {
	deadline  time.Time // of the call; time spent waiting for room is added
	roomUntil time.Time // zero: do not wait for room
	always    bool      // repeat every failure of the service, 500 too

	tries, busy, full int
}

// next gives the pause before the next attempt, or false when e is the answer.
func (s *schedule) next(e *Error) (time.Duration, bool) {
	now := time.Now()
	if s.roomUntil.After(now) && e.wantsRoom() {
		pause := jitter(backoff(500*time.Millisecond, s.full, 8*time.Second), 0.25)
		if e.retryBody {
			pause = max(e.retryAfter, patience(s.full))
		}
		pause = min(pause, s.roomUntil.Sub(now))
		s.full++
		s.deadline = s.deadline.Add(pause)
		return pause, true
	}
	var pause time.Duration
	switch {
	case e.wantsRoom():
		return 0, false
	case e.nothingRan():
		pause = 250 * time.Millisecond
		if e.retryAfter >= 0 {
			pause = e.retryAfter
		}
		pause = jitter(min(max(pause<<min(s.busy, 3), patience(s.busy)), maxPause), 0.1)
		s.busy++
	case s.tries < maxRetries && (e.Retryable() || e.redirected() || s.always && e.Status >= 500):
		if e.retryAfter >= 0 {
			pause = jitter(min(e.retryAfter, maxPause), 0.1)
		} else {
			pause = jitter(backoff(250*time.Millisecond, s.tries, 8*time.Second), 0.5)
		}
		s.tries++
	default:
		return 0, false
	}
	if now.Add(pause).After(s.deadline) {
		return 0, false
	}
	return pause, true
}

// patience is the shortest pause after n others of which there may be any number:
// one who is told not to wait would else ask as fast as the limit of requests
// allows, for minutes.
func patience(n int) time.Duration { return backoff(10*time.Millisecond, n, 250*time.Millisecond) }

// redirected reports whether the answer was a redirect. The API sends none, so
// it comes from something between and is as good as no answer.
func (e *Error) redirected() bool { return e.Status >= 300 && e.Status < 400 }

func backoff(first time.Duration, n int, limit time.Duration) time.Duration {
	return min(first<<min(n, 16), limit)
}

// jitter gives d times a random factor from 1-spread to 1+spread.
func jitter(d time.Duration, spread float64) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}

// sleep waits for d, or until ctx or stop ends.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}

// parseRetryAfter reads a number of seconds, which may have a fraction, or a
// date. It is negative when there is none.
func parseRetryAfter(v string) time.Duration {
	if v == "" {
		return -1
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s >= 0 {
			return milliseconds(s * 1000)
		}
		return -1
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return -1
}

// A limiter spreads requests so that no more than rate of them start a second,
// after burst at once. Who comes first is served first.
type limiter struct {
	rate, burst float64

	mu     sync.Mutex
	tokens float64 // below zero: promised to those who wait
	last   time.Time
}

func newLimiter(rate, burst float64) *limiter {
	return &limiter{rate: rate, burst: burst, tokens: burst, last: time.Now()}
}

func (l *limiter) wait(ctx context.Context) error {
	l.mu.Lock()
	now := time.Now()
	l.tokens = min(l.burst, l.tokens+now.Sub(l.last).Seconds()*l.rate)
	l.last = now
	l.tokens--
	d := time.Duration(-l.tokens / l.rate * float64(time.Second))
	l.mu.Unlock()
	if d <= 0 {
		return ctx.Err()
	}
	if sleep(ctx, nil, d) {
		return nil
	}
	l.mu.Lock()
	l.tokens++
	l.mu.Unlock()
	return ctx.Err()
}
