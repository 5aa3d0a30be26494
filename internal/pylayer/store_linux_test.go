package pylayer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/pylayer"
)

// openStore opens a store in a folder of the test's own, which it names.
func openStore(t *testing.T) (*pylayer.Store, string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	s, err := pylayer.OpenStore()
	require.NoError(t, err)
	return s, dir
}

// A build can do what it likes in its folder.
func TestStore_hostile(t *testing.T) {
	secrets := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "key"), []byte("secret"), 0o600))
	for what, build := range map[string]func(python string) error{
		"a link in place of the folder":       func(python string) error { return os.Symlink(secrets, python) },
		"one that leads there by its parents": func(python string) error { return os.Symlink("../../../../../../../../../.."+secrets, python) },
		"a file":                              func(python string) error { return os.WriteFile(python, nil, 0o644) },
		"nothing":                             func(string) error { return nil },
	} {
		s, dir := openStore(t)
		l, err := s.Open(t.Context(), "key", what, func(string) {}, func(_ context.Context, scratch string) error {
			return build(filepath.Join(scratch, "python"))
		})
		if !assert.Error(t, err, what) {
			l.Close()
		}
		left, err := filepath.Glob(filepath.Join(dir, "fnloop", "packages", "key*", "*"))
		require.NoError(t, err)
		assert.Empty(t, left, what)
	}
}

// A folder of any size is refused before its names are in memory.
func TestCountable(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "a"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i), "b"), nil, 0o644))
	}
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, pylayer.Countable(root, 31))
	require.ErrorContains(t, pylayer.Countable(root, 30), "more than")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("0123456789/", 100)), 0o755))
	require.ErrorContains(t, pylayer.Countable(root, 1000), "a file with the name")
}

// What a build leaves, which may run with the rights of this user, is out of
// reach for others until it is taken over without such rights.
func TestStore_reach(t *testing.T) {
	s, _ := openStore(t)
	l, err := s.Open(t.Context(), "key", "tool", func(string) {}, func(_ context.Context, scratch string) error {
		info, err := os.Stat(filepath.Dir(scratch))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077)
		tool := filepath.Join(scratch, "python", "tool")
		require.NoError(t, os.Mkdir(filepath.Dir(tool), 0o755))
		require.NoError(t, os.WriteFile(tool, nil, 0o755))
		return os.Chmod(tool, 0o755|os.ModeSetuid|os.ModeSetgid)
	})
	require.NoError(t, err)
	defer l.Close()
	for _, name := range []string{filepath.Dir(l.Dir), l.Dir, filepath.Join(l.Dir, "tool")} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode()&^os.ModeDir, name)
	}
}

// A store below a folder in which others can put another in its place is refused.
func TestOpenStore_above(t *testing.T) {
	for what, change := range map[string]func(dir string) error{
		"everybody's": func(dir string) error { return os.Chmod(dir, 0o777) },
		"another's":   func(dir string) error { return os.Chown(dir, 12345, -1) },
	} {
		dir := filepath.Join(t.TempDir(), "cache")
		require.NoError(t, os.Mkdir(dir, 0o755))
		t.Setenv("XDG_CACHE_HOME", dir)
		_, err := pylayer.OpenStore()
		require.NoError(t, err)
		if err := change(dir); err != nil {
			t.Logf("only root can try the row %s: %v", what, err)
			continue
		}
		_, err = pylayer.OpenStore()
		assert.ErrorContains(t, err, "the folder "+dir+", which has", what)
	}
}

// What a build leaves is removed although it has folders that this user cannot
// write to. To root it can be anything, so another user tries it.
func TestStore_removes(t *testing.T) {
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		self := filepath.Join(dir, "test")
		b, err := os.ReadFile(os.Args[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(self, b, 0o755))
		require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
		cmd := exec.Command(self, "-test.run=^TestStore_removes$")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		return
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	s, err := pylayer.OpenStore()
	require.NoError(t, err)
	l, err := s.Open(t.Context(), "key", "x", func(string) {}, func(_ context.Context, scratch string) error {
		for _, dir := range []string{"python", "tmp/a/b"} {
			require.NoError(t, os.MkdirAll(filepath.Join(scratch, dir), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(scratch, "tmp/a/b/file"), nil, 0o644))
		require.NoError(t, os.Chmod(filepath.Join(scratch, "tmp/a/b"), 0))
		return os.Chmod(filepath.Join(scratch, "tmp/a"), 0o500)
	})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	assert.NoDirExists(t, filepath.Join(filepath.Dir(l.Dir), "scratch"))
}

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
