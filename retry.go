package fnloop

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// retryAfter is how long the headers ask to wait, or negative.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	after := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(after, 64); err == nil {
		return seconds(s)
	}
	if t, err := http.ParseTime(after); err == nil {
		return max(time.Until(t), 0)
	}
	return -1
}

func seconds(s float64) time.Duration {
	const forever = 365 * 24 * time.Hour
	if !(s >= 0) {
		return -1
	}
	return time.Duration(min(s, forever.Seconds()) * float64(time.Second))
}

var tryAgainIn = regexp.MustCompile(`try again in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)`)

// waitInText is the wait that a rate limit's message asks for, or negative.
// Within a response it is written nowhere else.
func waitInText(message string) time.Duration {
	m := tryAgainIn.FindStringSubmatch(message)
	if m == nil {
		return -1
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		return -1
	}
	return d
}

// backoff is the wait after an attempt when the API names none: half a second,
// doubled each time up to eight, less up to a quarter so that clients spread.
func backoff(attempt int) time.Duration {
	d := min(500*time.Millisecond<<min(attempt-1, 10), 8*time.Second)
	return d - time.Duration(rand.Int64N(int64(d)/4))
}
