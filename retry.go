package fnloop

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// retryAfter is how long the headers ask to wait, or negative.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	return parseWait(h.Get("Retry-After"))
}

func seconds(s float64) time.Duration {
	const forever = 365 * 24 * time.Hour
	if !(s >= 0) {
		return -1
	}
	return time.Duration(min(s, forever.Seconds()) * float64(time.Second))
}

// parseWait reads a wait that stands alone: seconds, a duration, or the time
// when it is over. It is negative for anything else.
func parseWait(s string) time.Duration {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return seconds(n)
	}
	for _, parse := range []func(string) (time.Time, error){
		http.ParseTime,
		func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) },
	} {
		if t, err := parse(s); err == nil {
			return max(time.Until(t), 0)
		}
	}
	if m := wholeWait.FindString(s); m != "" {
		return sumOfAmounts(m)
	}
	return -1
}

// An amount of time is written as in "6m0s", "350 ms" or "an hour"; several of
// them follow each other as in "1 hour, 5 minutes and 3.5 seconds".
const (
	waitNumber  = `\d+(?:\.\d+)?`
	waitAmount  = `(?:(?:` + waitNumber + `(?:d|h|ms|m|s))+\b|(?:` + waitNumber + ` ?|\b(?:an?|one) )(?:milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)\b)`
	waitAmounts = waitAmount + `(?:(?:,? and |, | )` + waitAmount + `)*`
	waitAsk     = `(?i)\b(?:try(?:ing)? again|retry(?:ing)?|wait|available again|resets?)\b[^.\d]{0,40}?`
)

var (
	wholeWait = regexp.MustCompile(`(?i)^` + waitAmounts + `$`)
	// A wait in a message follows a word that asks for one, with few words
	// between. A number alone counts where it can mean nothing else.
	waitText  = regexp.MustCompile(waitAsk + `\b(` + waitAmounts + `)`)
	waitUntil = regexp.MustCompile(waitAsk + `(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d))`)
	waitBare  = regexp.MustCompile(`(?i)\bretry[- _]after[:= ]+(` + waitNumber + `)`)
	oneAmount = regexp.MustCompile(`(?i)(?:(` + waitNumber + `) ?|\b(?:an?|one) )([a-z]+)`)
)

// waitInText is the wait that an error's message asks for, or negative. Within a
// response OpenAI writes it nowhere else.
func waitInText(message string) time.Duration {
	if m := waitText.FindStringSubmatch(message); m != nil {
		return sumOfAmounts(m[1])
	}
	for _, text := range []*regexp.Regexp{waitUntil, waitBare} {
		if m := text.FindStringSubmatch(message); m != nil {
			return parseWait(m[1])
		}
	}
	return -1
}

// sumOfAmounts adds up amounts such as "1 hour, 5 minutes and 3.5s" or "6m0s".
func sumOfAmounts(s string) time.Duration {
	var sum float64
	for _, m := range oneAmount.FindAllStringSubmatch(s, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			n = 1 // a minute, one hour
		}
		switch unit := strings.ToLower(m[2]); {
		case strings.HasPrefix(unit, "ms"), strings.HasPrefix(unit, "mil"):
			n /= 1000
		case strings.HasPrefix(unit, "m"):
			n *= 60
		case strings.HasPrefix(unit, "h"):
			n *= 60 * 60
		case strings.HasPrefix(unit, "d"):
			n *= 24 * 60 * 60
		}
		sum += n
	}
	return seconds(sum)
}

// backoff is the wait after an attempt when the API names none: half a second,
// doubled each time up to eight, less up to a quarter so that clients spread.
func backoff(attempt int) time.Duration {
	d := min(500*time.Millisecond<<min(attempt-1, 10), 8*time.Second)
	return d - time.Duration(rand.Int64N(int64(d)/4))
}
