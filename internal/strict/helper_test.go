package strict_test

import (
	"errors"
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/strict"
)

// goNames matches what a model has no use for.
var goNames = regexp.MustCompile(`json: |Go value|Go struct|strict_test|strict\.|goroutine|\.go:|\bint64\b|\bfloat64\b|reflect\.|\*[A-Z]`)

// requireArgumentError checks the promises that every text for the model keeps.
func requireArgumentError(t testing.TB, err error, args string) *strict.ArgumentError {
	t.Helper()
	require.Error(t, err, "%q", args)
	e, ok := errors.AsType[*strict.ArgumentError](err)
	require.True(t, ok, "%T: %v", err, err)
	text := e.Error()
	require.NotEmpty(t, text)
	require.LessOrEqual(t, len(text), 2000)
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, r := range text {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			t.Fatalf("control character %U in %q", r, text)
		}
	}
	return e
}
