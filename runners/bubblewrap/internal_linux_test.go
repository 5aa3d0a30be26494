package bubblewrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
)

func TestOwner(t *testing.T) {
	me, err := self()
	if err != nil || me.namespace == unknown || me.namespace == "" {
		t.Fatalf("self() = %+v, %v", me, err)
	}
	if got, ok := parseOwner(me.name(7)); !ok || got != me {
		t.Errorf("parseOwner(%q) = %+v, %v", me.name(7), got, ok)
	}
	for _, name := range []string{"", "fnloop", "fnloop.1.2.3", "fnloop.1.x.3.4", "fnloop.1.2.x.4", "other.1.2.3.4"} {
		if _, ok := parseOwner(name); ok {
			t.Errorf("parseOwner(%q) succeeded", name)
		}
	}
	now := time.Now()
	for _, test := range []struct {
		name string
		o    owner
		made time.Time
		gone bool
	}{
		{"this process", me, now.Add(-2 * abandoned), false},
		{"its parent's number", owner{me.namespace, os.Getppid(), me.start}, now, true},
		{"a number that nobody has", owner{me.namespace, 1 << 30, me.start}, now, true},
		{"one of another namespace", owner{"1", 1 << 30, me.start}, now, false},
		{"one of another namespace, long ago", owner{"1", me.pid, me.start}, now.Add(-2 * abandoned), true},
		{"one that does not know its namespace", owner{unknown, 1 << 30, me.start}, now, false},
	} {
		if got := test.o.gone(me, test.made); got != test.gone {
			t.Errorf("%s: gone() = %v", test.name, got)
		}
	}
	lost := me
	lost.namespace = unknown
	if lost.gone(lost, now) {
		t.Error("a process without a /proc of its own took another for gone")
	}
}

// What an interpreter says at its start must not hide that no program began.
func TestDiagnoseKeepsTheCause(t *testing.T) {
	err := diagnose([]byte("a warning\n"), supervisor.ErrNotStarted)
	if !errors.Is(err, supervisor.ErrNotStarted) || !strings.Contains(err.Error(), "a warning") {
		t.Errorf("diagnose() = %v", err)
	}
}

// However many calls come at once, a few sandboxes only are made at once.
func TestStartWaits(t *testing.T) {
	h := &host{starting: make(chan struct{}, 1)}
	h.starting <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if s, err := h.start(ctx, spec{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start() = %v, %v", s, err)
	}
}

// entered is a runner whose host is in use until the test ends.
func entered(t *testing.T) (*Runner, *host) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	r := new(Runner)
	t.Cleanup(func() { r.Close() })
	h, err := r.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.host.Leave)
	return r, h
}

// A host that is late to end a program, and does not even read what it prints,
// finds it ended.
func TestSupervisorEndsInTime(t *testing.T) {
	r, h := entered(t)
	if h.cgroups == nil {
		t.Skip("no cgroup tells which processes are left")
	}
	s, err := h.start(t.Context(), r.spec(h, DefaultMemory))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove()
	frame := func(kind byte, payload string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload))), payload...)
	}
	const source = "import os, signal\nfor i in range(20):\n if os.fork() == 0:\n  os.kill(1, signal.SIGALRM)\n  while True: pass\nwhile True: print('x' * 10000)"
	s.Write(slices.Concat(frame('C', "time_ms=500\n"), frame('P', source), frame('I', "")))
	begin := time.Now()
	for len(s.cgroup.processes()) < 10 && time.Since(begin) < 400*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(s.cgroup.processes()); n < 3 {
		t.Errorf("%d processes after %v", n, time.Since(begin))
	}
	for len(s.cgroup.processes()) > 1 {
		if time.Since(begin) > 1500*time.Millisecond {
			t.Fatalf("the processes %v are left", s.cgroup.processes())
		}
		time.Sleep(10 * time.Millisecond)
	}
	said, err := io.ReadAll(s)
	if err != nil || !strings.HasSuffix(string(said), "T\x00\x00\x00\x00") {
		t.Errorf("the supervisor said %d bytes, last %q, %v", len(said), said[max(0, len(said)-20):], err)
	}
}

// A supervisor that fails ends: its interpreter does not go on to the program's file,
// which it would run outside of the program's limits and, where it was forked, outside
// of its processes.
func TestSupervisorFails(t *testing.T) {
	r, h := entered(t)
	for name, start := range map[string]func(context.Context, spec) (*sandbox, error){"forked or not": h.start, "fresh": h.startFresh} {
		s, err := start(t.Context(), r.spec(h, DefaultMemory))
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("C\x00\x00\x00\x03x=y")) // which is no number
		if said, err := io.ReadAll(s); len(said) > 0 || err != nil {
			t.Errorf("%s: the supervisor said %q, %v", name, said, err)
		}
		s.Remove()
		<-s.quiet
		if said := string(s.stderr.bytes()); !strings.HasPrefix(said, "ValueError(") || strings.Contains(said, supervisor.Main) {
			t.Errorf("%s: standard error has %q", name, said)
		}
	}
}

// A nursery in which no sandbox can be made is released, and with it the process in it.
// What was forked before goes on, and programs are started in the other way.
func TestNurseryIsReleased(t *testing.T) {
	r, h := entered(t)
	n := h.nursery
	if n == nil {
		t.Skipf("programs are not forked here: %s", h.protection.NotForked)
	}
	up, ended := make(chan struct{}, 1), make(chan string, 1)
	go func() {
		res, err := r.Run(t.Context(), fnloop.Program{
			Source: "print('up', flush=True)\nimport time\ntime.sleep(1)\nprint('end')",
			Stdout: signalWriter(up),
		})
		ended <- fmt.Sprint(res.Stdout, err)
	}()
	<-up
	sp := r.spec(h, DefaultMemory)
	bwrap := h.bwrap
	h.bwrap = "/usr/bin/false"
	for range maxFailures {
		if !n.serves(sp) {
			t.Error("the nursery was given up too early")
		}
		if _, err := n.start(t.Context(), sp); err == nil {
			t.Error("a sandbox was made")
		}
	}
	if _, err := n.start(t.Context(), sp); !errors.Is(err, errFailing) {
		t.Errorf("start() error = %v, want errFailing", err)
	}
	h.bwrap = bwrap
	res, err := r.Run(t.Context(), fnloop.Program{Source: "print(5)"})
	if err != nil || res.Stdout != "5\n" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	if got := <-ended; got != "up\nend\n<nil>" {
		t.Errorf("the program that was forked before: %s", got)
	}
	n.work.Wait() // for the nursery to be empty
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.template != nil || len(n.retired) > 0 {
		t.Errorf("there is a template, %v, or a nursery, %v", n.template, n.retired)
	}
}

// A signalWriter is sent to at each write, unless it is full.
type signalWriter chan<- struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(p), nil
}
