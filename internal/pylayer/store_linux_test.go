package pylayer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/pylayer"
)

// BenchmarkStore opens a layer of ten thousand files, which is what the first
// program of a runner waits for.
func BenchmarkStore(b *testing.B) {
	b.Setenv("XDG_CACHE_HOME", b.TempDir())
	s, err := pylayer.OpenStore()
	require.NoError(b, err)
	open := func(build func(context.Context, string) error) {
		l, err := s.Open(b.Context(), "key", "many", func(string) {}, build)
		require.NoError(b, err)
		require.NoError(b, l.Close())
	}
	open(func(_ context.Context, scratch string) error {
		for i := range 10_000 {
			dir := filepath.Join(scratch, "python", "lib", fmt.Sprint(i/100))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportAllocs()
	for b.Loop() {
		open(nil)
	}
}
