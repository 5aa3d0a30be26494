//go:build unix

// Package pgtest starts a PostgreSQL for a test or a demonstration.
package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

var errMissing = errors.New("PostgreSQL is not installed")

// Installed reports whether there is a PostgreSQL to start.
func Installed() bool {
	_, err := find()
	return err == nil
}

// Start starts a PostgreSQL of the test's own, which nothing but a socket leads to,
// and returns its address. The test is skipped where PostgreSQL is not installed,
// and fails if CI is set.
func Start(t *testing.T) string {
	t.Helper()
	address, stop, err := Serve()
	switch {
	case errors.Is(err, errMissing) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}

// Serve is Start for a program. Stop ends the server and removes its files.
func Serve() (address string, stop func(), err error) {
	bin, err := find()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "pg") // a short name, as sockets have
	if err != nil {
		return "", nil, err
	}
	var server *exec.Cmd
	end := func() {
		if server != nil {
			server.Process.Signal(syscall.SIGQUIT)
			server.Wait()
		}
		os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	as, err := owner(dir)
	if err != nil {
		return "", nil, err
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	out, err := command("initdb", "-D", dir+"/data", "-A", "trust", "-U", "test", "-E", "UTF8", "--no-sync").CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	started := command("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-F")
	if err := started.Start(); err != nil {
		return "", nil, err
	}
	server = started
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		out, err := command("pg_isready", "-h", dir).CombinedOutput()
		if err == nil {
			return "postgres://test@/postgres?host=" + dir, end, nil
		}
		if time.Since(start) > 30*time.Second {
			return "", nil, fmt.Errorf("PostgreSQL does not take connections: %w\n%s", err, out)
		}
	}
}

// find gives the folder of the server's programs, which Debian keeps out of the path.
func find() (string, error) {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin"); len(found) > 0 {
		return found[len(found)-1], nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", errMissing
	}
	return filepath.Dir(initdb), nil
}

// owner gives the folder to the user that PostgreSQL runs as: it refuses to be run
// by root.
func owner(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
