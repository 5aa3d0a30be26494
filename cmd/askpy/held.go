package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// Bounds of the interpreters that clients of askpy mcp have opened.
const (
	maxHeld  = 16
	heldIdle = interpreter.DefaultIdle
)

// heldSessions are interpreters that clients have opened, by names that cannot be
// guessed.
type heldSessions struct {
	runner fnloop.Runner
	config interpreter.Config

	mu      sync.Mutex
	byID    map[string]*heldSession
	opening int
	closed  bool
}

// A heldSession is one of them. Its fields are guarded by the mutex of all.
type heldSession struct {
	*interpreter.Session
	uses int // calls that run
	idle *time.Timer
}

// tools are those with which clients open, use and close interpreters.
func (h *heldSessions) tools() []fnloop.Tool {
	type opened struct {
		SessionID   string `json:"session_id"`
		Python      string `json:"python"`
		IdleMinutes int    `json:"idle_minutes"`
	}
	open := fnloop.MustTool("python_open", fmt.Sprintf("Opens a Python interpreter in a sandbox that stays alive between calls, as a notebook does,"+
		" and returns its session_id for python_run. It is closed when nobody uses it for %d minutes; then its variables and files are gone."+
		" There is no network, so nothing can be installed or downloaded.", int(heldIdle.Minutes())),
		func(ctx context.Context, _ struct{}) (opened, error) {
			id, s, err := h.open(ctx)
			if err != nil {
				return opened{}, err
			}
			return opened{id, s.Info().Python, int(heldIdle.Minutes())}, nil
		})
	open.DescribeSandbox(h.runner, func(env fnloop.Environment) string {
		if len(env.Packages) == 0 {
			return ""
		}
		return " Beside the standard library these packages are installed: " + strings.Join(env.Packages, ", ") + "."
	})
	run := fnloop.MustTool("python_run", "Runs Python code in an interpreter that python_open has opened: variables, functions and imports of one call"+
		" are there in the next. The value of the last expression is shown, and so are figures; use print for more. A call that is stopped keeps"+
		" the variables if possible; the result says whether it did.",
		func(ctx context.Context, in struct {
			SessionID string `json:"session_id"`
			Code      string `json:"code"`
		}) (fnloop.Output, error) {
			s, release, err := h.use(in.SessionID)
			if err != nil {
				return fnloop.Output{}, err
			}
			defer release()
			cell := interpreter.Cell{Source: in.Code}
			cell.Stdout, cell.Stderr = fnloop.LiveOutput(ctx)
			e, err := s.Run(ctx, cell)
			if e.Status == "" {
				return fnloop.Output{}, err
			}
			return shown(e), nil
		})
	end := fnloop.MustTool("python_close", "Closes an interpreter that python_open has opened. Its variables and files are gone then.",
		func(_ context.Context, in struct {
			SessionID string `json:"session_id"`
		}) (string, error) {
			s, release, err := h.use(in.SessionID)
			if err != nil {
				return "", err
			}
			defer release()
			h.forget(in.SessionID, s)
			if err := s.Close(); err != nil {
				return "", err
			}
			return "closed", nil
		})
	return []fnloop.Tool{open, run, end}
}

// shown is what a client gets of an execution: its text and its pictures.
func shown(e interpreter.Execution) fnloop.Output {
	out := fnloop.Output{Text: e.Text(), Truncated: e.Truncated}
	for _, d := range e.Displays {
		for _, kind := range []string{"image/png", "image/jpeg"} {
			if data := d.Data[kind]; data != nil {
				if c, err := fnloop.ImageData(data); err == nil {
					out.Content = append(out.Content, c)
				}
				break
			}
		}
	}
	if len(out.Content) > 0 {
		out.Content = append([]fnloop.Content{{Text: out.Text}}, out.Content...)
	}
	return out
}

// open opens an interpreter.
func (h *heldSessions) open(ctx context.Context) (id string, s *interpreter.Session, err error) {
	h.mu.Lock()
	switch {
	case h.closed:
		err = errors.New("askpy is about to end")
	case len(h.byID)+h.opening >= maxHeld:
		err = fmt.Errorf("%d interpreters are open, and there cannot be more; close one with python_close", maxHeld)
	default:
		h.opening++
	}
	h.mu.Unlock()
	if err != nil {
		return "", nil, err
	}
	s, err = interpreter.Open(ctx, h.runner, h.config)
	h.mu.Lock()
	h.opening--
	gone := h.closed
	if err == nil && !gone {
		id = rand.Text()
		held := &heldSession{Session: s}
		held.idle = time.AfterFunc(heldIdle, func() { h.expire(id, held) })
		if h.byID == nil {
			h.byID = make(map[string]*heldSession)
		}
		h.byID[id] = held
	}
	h.mu.Unlock()
	if err == nil && gone {
		s.Close()
		err = errors.New("askpy is about to end")
	}
	return id, s, err
}

// use finds an interpreter and keeps it from being closed until it is released.
func (h *heldSessions) use(id string) (s *heldSession, release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = h.byID[id]
	if s == nil {
		return nil, nil, fmt.Errorf("there is no interpreter with this session_id: it was closed, was not used for %d minutes, or askpy was started again; open another with python_open", int(heldIdle.Minutes()))
	}
	s.uses++
	s.idle.Stop()
	return s, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.uses--; s.uses == 0 && h.byID[id] == s {
			s.idle.Reset(heldIdle)
		}
	}, nil
}

// forget takes an interpreter out, and reports whether it was there.
func (h *heldSessions) forget(id string, s *heldSession) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[id] != s {
		return false
	}
	delete(h.byID, id)
	return true
}

// expire closes an interpreter that nobody has used.
func (h *heldSessions) expire(id string, s *heldSession) {
	h.mu.Lock()
	idle := s.uses == 0 && h.byID[id] == s
	if idle {
		delete(h.byID, id)
	}
	h.mu.Unlock()
	if idle {
		s.Close()
	}
}

// close closes all of them.
func (h *heldSessions) close() error {
	h.mu.Lock()
	h.closed = true
	all := h.byID
	h.byID = nil
	h.mu.Unlock()
	var errs []error
	for _, s := range all {
		s.idle.Stop()
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
