//go:build unix

// Package pgtest starts a PostgreSQL for a test.
package pgtest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Installed reports whether there is a PostgreSQL to start.
func Installed() bool { return len(installed()) > 0 }

// installed are the folders of its programs, of each version.
func installed() []string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	return found
}

// Start starts a PostgreSQL of the test's own, which nothing but a socket leads to,
// and returns its address. The test is skipped where PostgreSQL is not installed,
// and fails if CI is set.
func Start(t *testing.T) string {
	t.Helper()
	found := installed()
	if len(found) == 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("PostgreSQL is not installed")
		}
		t.Skip("PostgreSQL is not installed")
	}
	bin := found[len(found)-1]
	dir, err := os.MkdirTemp("/tmp", "pg") // a short name, as sockets have
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := owner(t, dir)
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	out, err := command("initdb", "-D", dir+"/data", "-A", "trust", "-U", "test", "-E", "UTF8", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := command("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-F")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGQUIT)
		server.Wait()
	})
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		out, err := command("pg_isready", "-h", dir).CombinedOutput()
		if err == nil {
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatalf("PostgreSQL does not take connections: %v\n%s", err, out)
		}
	}
	return "postgres://test@/postgres?host=" + dir
}

// owner gives the folder to the user that PostgreSQL runs as: it refuses to be run
// by root.
func owner(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
