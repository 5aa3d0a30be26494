package bubblewrap

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

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
