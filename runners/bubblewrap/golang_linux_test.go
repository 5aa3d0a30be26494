package bubblewrap

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/flock"
)

// fakeGo is the library of a Go whose compiler is a script.
func fakeGo(t *testing.T, dir, script string) *goLibrary {
	t.Helper()
	g := &goLibrary{root: t.TempDir(), dir: dir}
	require.NoError(t, os.MkdirAll(filepath.Join(g.root, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(g.root, "bin", "go"), []byte("#!/bin/sh\n"+script), 0o755))
	t.Cleanup(g.close)
	return g
}

// counting is a compiler that says each time that it was run, in its HOME.
const counting = `echo run >>"$HOME/runs"; umask 077; mkdir -p "$GOCACHE/00"; sleep .2; echo "$*" >"$GOCACHE/00/a"`

func runs(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "runs"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.Count(string(b), "run\n")
}

func TestGoLibraryOnce(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "cache.part", "00"), 0o755)) // of one that was killed
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cache.part", "00", "half"), nil, 0o644))
	runners := []*goLibrary{fakeGo(t, dir, counting), fakeGo(t, dir, counting)} // as two processes would
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { assert.NoError(t, runners[i%2].ready(t.Context())) })
	}
	wg.Wait()
	assert.Equal(t, 1, runs(t, dir), "it is compiled once")
	text, err := os.ReadFile(filepath.Join(dir, "cache", "00", "a"))
	require.NoError(t, err)
	assert.Equal(t, "build std\n", string(text))
	assert.NoFileExists(t, filepath.Join(dir, "cache", "00", "half"))
	info, err := os.Stat(filepath.Join(dir, "cache", "00", "a"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "programs can read it, whatever the umask was")
}

// Programs can lock what they can read, and may hold such a lock for days.
func TestGoLibraryIsNotLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "go")
	require.NoError(t, os.Mkdir(dir, 0o755))
	g := fakeGo(t, dir, "exit 1")
	require.Error(t, g.ready(t.Context())) // which makes all files there will be
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		t.Cleanup(func() { f.Close() })
		assert.True(t, flock.Exclusive(f), name)
		return nil
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	assert.NoError(t, fakeGo(t, dir, counting).ready(ctx))
}

func TestGoLibraryFails(t *testing.T) {
	dir := t.TempDir()
	g := fakeGo(t, dir, `mkdir -p "$GOCACHE/00"; echo "no space left on device" >&2; exit 1`)
	err := g.ready(t.Context())
	require.ErrorContains(t, err, "the standard library of Go cannot be compiled")
	require.ErrorContains(t, err, "no space left on device")
	assert.NoDirExists(t, filepath.Join(dir, "cache"), "what is half done is not used")
	assert.NoDirExists(t, filepath.Join(dir, "cache.part"))
	again := fakeGo(t, dir, counting)
	require.NoError(t, again.ready(t.Context()), "and is tried again")
}

func TestGoLibraryIsNotHeldUp(t *testing.T) {
	dir := t.TempDir()
	g := fakeGo(t, dir, counting)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.ready(ctx), context.Canceled, "a caller need not wait")
	require.NoError(t, g.ready(t.Context()))
	assert.Equal(t, 1, runs(t, dir), "what one began goes on for the next")

	slow := fakeGo(t, t.TempDir(), "sleep 60 & wait")
	ended := make(chan error, 1)
	go func() { ended <- slow.ready(context.Background()) }()
	require.Eventually(t, func() bool {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return slow.making != nil
	}, 5*time.Second, time.Millisecond)
	begin := time.Now()
	slow.close()
	require.Error(t, <-ended)
	assert.Less(t, time.Since(begin), 20*time.Second, "the compiler ends with the runner")
}
