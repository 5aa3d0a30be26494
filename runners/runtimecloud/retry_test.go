package runtimecloud

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestSchedule(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	refusal := func(status int, code string, after time.Duration, body bool) *Error {
		return &Error{Status: status, Code: code, retryAfter: after, retryBody: body}
	}
	for _, c := range []struct {
		name     string
		err      *Error
		room     time.Duration
		low, top time.Duration // of the first pause
		last     time.Duration // the longest one to come
		attempts int           // in all; negative: until the deadline
		why      string
	}{
		{"no answer", &Error{Code: codeConnection, retryAfter: -1}, 0, ms(125), ms(375), 3 * time.Second, 5, "four retries"},
		{"502", refusal(502, codeRequest, -1, false), 0, ms(125), ms(375), 3 * time.Second, 5, "four retries"},
		{"503 with a header", refusal(503, "host_unavailable", 2*time.Second, false), 0, ms(1800), ms(2200), ms(2200), 5, "the service knows"},
		{"503 far off", refusal(503, "host_unavailable", time.Hour, false), 0, 27 * time.Second, 33 * time.Second, 33 * time.Second, 5, "no pause is longer than 30s, give or take"},
		{"503 busy", refusal(503, "busy", -1, false), 0, ms(225), ms(275), ms(2200), -1, "doubled up to eight times"},
		{"429", refusal(429, "rate_limited", ms(400), true), 0, ms(360), ms(440), ms(3520), -1, "as the service asks, then longer"},
		{"429 without a code", refusal(429, codeRequest, -1, false), 0, ms(125), ms(375), 3 * time.Second, 5, "it proves nothing"},
		{"503 final", refusal(503, "unsupported", time.Second, false), 0, 0, 0, 0, 1, "switched off"},
		{"500", refusal(500, "internal_error", -1, false), 0, 0, 0, 0, 1, "not by itself"},
		{"409", refusal(409, "operation_conflict", -1, false), 0, 0, 0, 0, 1, "the state is wrong"},
		{"404", refusal(404, "not_found", -1, false), 0, 0, 0, 0, 1, "there is none"},
		{"late busy", &Error{Status: 503, Code: "busy", late: true, retryAfter: -1}, 0, ms(125), ms(375), 3 * time.Second, 5, "it no longer proves that nothing ran"},
		{"late guest_busy", &Error{Status: 503, Code: "guest_busy", late: true, retryAfter: -1}, 0, ms(225), ms(275), ms(2200), -1, "this one does"},
		{"room", refusal(409, "no_capacity", time.Hour, false), time.Minute, ms(375), ms(625), 10 * time.Second, -1, "the header is not for this wait"},
		{"room by the body", refusal(503, "no_capacity", 5*time.Second, true), time.Minute, 5 * time.Second, 5 * time.Second, 5 * time.Second, -1, "the body is"},
		{"room that is not waited for", refusal(503, "no_capacity", -1, false), 0, 0, 0, 0, 1, "only a create waits"},
		{"never room", &Error{Status: 409, Code: "quota_exceeded", Details: json.RawMessage(`{"field":"count"}`), retryAfter: -1}, time.Minute, 0, 0, 0, 1, "it can never fit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := schedule{deadline: start.Add(callTimeout)}
				if c.room > 0 {
					s.roomUntil = start.Add(c.room)
				}
				attempts := 1
				for {
					pause, again := s.next(c.err)
					if !again {
						break
					}
					if attempts == 1 && (pause < c.low || pause > c.top) {
						t.Errorf("the first pause is %v, want %v to %v: %s", pause, c.low, c.top, c.why)
					}
					if pause > c.last {
						t.Errorf("pause %d is %v, want at most %v: %s", attempts, pause, c.last, c.why)
					}
					time.Sleep(pause)
					attempts++
				}
				if c.attempts > 0 && attempts != c.attempts {
					t.Errorf("%d attempts, want %d: %s", attempts, c.attempts, c.why)
				}
				until := callTimeout
				if c.room > 0 {
					until = c.room
				}
				if took := time.Since(start); c.attempts < 0 && (took > until || took < until-5*time.Second) {
					t.Errorf("it went on for %v, want %v: %s", took, until, c.why)
				}
			})
		})
	}
}

// A service that says that there is nothing to wait for is not asked without a
// pause for minutes.
func TestScheduleZero(t *testing.T) {
	for _, e := range []*Error{
		{Status: 429, Code: "rate_limited", retryBody: true},
		{Status: 503, Code: "busy"},
		{Status: 409, Code: "no_capacity", retryBody: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := schedule{deadline: time.Now().Add(time.Minute)}
			if e.wantsRoom() {
				s.roomUntil = s.deadline
			}
			attempts := 1
			for pause, again := s.next(e); again; pause, again = s.next(e) {
				if attempts == 1 && pause > 20*time.Millisecond {
					t.Errorf("%s: the first pause is %v", e.Code, pause)
				}
				attempts++
				time.Sleep(pause)
			}
			if attempts > 60*5 {
				t.Errorf("%s: %d attempts in a minute", e.Code, attempts)
			}
		})
	}
}

// The time that a call waits for room is not taken from its own.
func TestRoomExtendsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadline := time.Now().Add(time.Second)
		s := schedule{deadline: deadline, roomUntil: time.Now().Add(time.Minute)}
		pause, again := s.next(&Error{Status: 409, Code: "no_capacity", retryAfter: 30 * time.Second, retryBody: true})
		if !again || pause != 30*time.Second || !s.deadline.Equal(deadline.Add(pause)) {
			t.Errorf("next() = %v, %v", pause, again)
		}
	})
}

func TestParseRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for in, want := range map[string]time.Duration{
			"":      -1,
			"1":     time.Second,
			"0.01":  10 * time.Millisecond,
			"0":     0,
			"-1":    -1,
			"soon":  -1,
			"1e300": milliseconds(1e9),
			"NaN":   -1,
			time.Now().Add(time.Minute).UTC().Format(http.TimeFormat): time.Minute,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):  0,
		} {
			if got := parseRetryAfter(in); got != want {
				t.Errorf("parseRetryAfter(%q) = %v, want %v", in, got, want)
			}
		}
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(50, 100)
		start := time.Now()
		for range 300 {
			if err := l.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 3900*time.Millisecond || took > 4100*time.Millisecond {
			t.Errorf("300 requests took %v, want 4s: a hundred at once and fifty a second", took)
		}
		// Who gives up gives the place back.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range 200 {
			if l.wait(ctx) == nil {
				t.Error("wait() = nil after the deadline")
			}
		}
		start = time.Now()
		if err := l.wait(t.Context()); err != nil || time.Since(start) > 50*time.Millisecond {
			t.Errorf("wait() = %v after %v", err, time.Since(start))
		}
	})
}

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		vcpu   int
		memory int64
		alive  time.Duration
		want   int64
	}{
		{2, 4096, 0, 0},
		{2, 4096, time.Second, 23},
		{2, 4096, 30 * time.Second, 667},
		{2, 4096, 300 * time.Second, 6667},
		{16, 65536, time.Hour, 880_000},
	} {
		if got := estimate(c.vcpu, c.memory, c.alive); got != c.want {
			t.Errorf("estimate(%d, %d, %v) = %d, want %d", c.vcpu, c.memory, c.alive, got, c.want)
		}
	}
}

// Both names of a code mean the same.
func TestRenamed(t *testing.T) {
	for old, successor := range renamed {
		e := (&wireError{Code: old, Status: 409}).toError(409)
		if e.Code != successor {
			t.Errorf("%s is %s, want %s", old, e.Code, successor)
		}
	}
	if e := (&wireError{Code: "trial_capacity"}).toError(503); !e.wantsRoom() || !e.Retryable() {
		t.Error("trial_capacity does not wait for room")
	}
}
