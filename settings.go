package fnloop

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/openai/openai-go/v3/responses"
)

// Defaults of a Loop's fields. In every number and duration of a [Loop], zero
// means the default and a negative value none: no limit, no wait, no retries.
const (
	DefaultMaxTurns     = 8
	DefaultMaxCalls     = 128
	DefaultParallel     = 8
	DefaultAttempts     = 3
	DefaultMaxRetryWait = time.Minute
	DefaultGrace        = 2 * time.Second
	DefaultIdleTimeout  = 5 * time.Minute
	// DefaultMaxMedia is what the API takes of one image.
	DefaultMaxMedia = 20 << 20
)

// settings are a Loop's fields, checked and with their defaults filled in.
type settings struct {
	loop         *Loop
	logger       *slog.Logger
	tools        *toolset
	maxTurns     int
	maxCalls     int
	maxRepeats   int
	parallel     int
	maxOutput    int
	maxMedia     int
	grace        time.Duration
	idleTimeout  time.Duration
	attempts     int
	maxRetryWait time.Duration
}

func (l *Loop) settings(ctx context.Context) (*settings, error) {
	if c, ok := l.Client.(*responses.ResponseService); l.Client == nil || ok && c == nil {
		return nil, &ConfigError{Field: "Loop.Client", Reason: "is nil; give it the Responses field of openai-go's client"}
	}
	if _, ok := l.Client.(*responses.ResponseService); l.WebSocket && !ok {
		return nil, &ConfigError{Field: "Loop.WebSocket", Reason: fmt.Sprintf("is set, but a Client of type %T cannot open one; use a *responses.ResponseService", l.Client)}
	}
	if l.Model == "" && l.BeforeRequest == nil {
		return nil, &ConfigError{Field: "Loop.Model", Reason: "is empty"}
	}
	s := l.limits()
	var err error
	s.tools, err = l.toolset(ctx)
	return s, err
}

// limits are the settings that are numbers, and the log.
func (l *Loop) limits() *settings {
	s := &settings{loop: l, logger: l.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.maxTurns = setting(l.MaxTurns, DefaultMaxTurns, math.MaxInt)
	s.maxCalls = setting(l.MaxCalls, DefaultMaxCalls, math.MaxInt)
	s.maxRepeats = setting(l.MaxRepeats, 0, 0)
	s.parallel = setting(l.Parallel, DefaultParallel, -1)
	s.maxOutput = setting(l.MaxOutput, DefaultMaxOutput, math.MaxInt)
	s.maxMedia = setting(l.MaxMedia, DefaultMaxMedia, math.MaxInt)
	s.attempts = setting(l.Attempts, DefaultAttempts, 1)
	s.grace = setting(l.Grace, DefaultGrace, 0)
	s.idleTimeout = setting(l.IdleTimeout, DefaultIdleTimeout, math.MaxInt64)
	s.maxRetryWait = setting(l.MaxRetryWait, DefaultMaxRetryWait, math.MaxInt64)
	return s
}

// Check reports what is wrong with l before the first request is made: a field
// that cannot be, a tool or schema that the API would refuse, a runner that
// cannot run programs. Its error is that of [Loop.Run] then, a [*ConfigError].
// Call it when the program starts; a run makes the same checks.
func (l *Loop) Check(ctx context.Context) error {
	_, err := l.settings(ctx)
	return err
}

// setting is what a field of a Loop stands for: zero is the default, and a
// negative value is none of what the field sets.
func setting[T int | time.Duration](value, byDefault, none T) T {
	switch {
	case value == 0:
		return byDefault
	case value < 0:
		return none
	}
	return value
}

// A ConfigError says what is wrong with a Loop, a Tool, a prompt or an Answer
// to continue from. Nothing was sent.
type ConfigError struct {
	Field  string // such as "Loop.Client" or "prompt"
	Reason string
	Err    error // what was wrong, if there is more to it than Reason says
}

func (e *ConfigError) Error() string { return "fnloop: " + e.Field + ": " + e.Reason }

// Unwrap returns e.Err.
func (e *ConfigError) Unwrap() error { return e.Err }
