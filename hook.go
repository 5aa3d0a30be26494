package fnloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// errLate says of a hook, or of a Responder, that it had not returned when the
// run had to.
var errLate = errors.New("did not return within Grace after the run's context had ended")

// A hookError is an error of one of the Loop's hooks.
type hookError struct {
	hook string
	err  error
}

func (e *hookError) Error() string { return "fnloop: " + e.hook + ": " + e.err.Error() }
func (e *hookError) Unwrap() error { return e.err }

// startGrace makes r.graceCtx, which ends Grace after ctx: what is not ours and has
// not returned by then is left behind. The function that it returns frees it.
func (r *run) startGrace(ctx context.Context) (stop func()) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.graceCtx = late
	forget := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(r.grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-late.Done():
		}
	})
	return func() {
		forget()
		cancel()
	}
}

// bounded calls f, which is not ours: it may panic, and it may hang. When it has
// not returned when r.graceCtx ends, bounded returns errLate, and f must not be
// relied on for anything.
func (r *run) bounded(f func() error) error {
	if r.graceCtx.Err() != nil {
		return errLate
	}
	done := make(chan error, 1) // buffered: nobody may be there any more
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned { // f called runtime.Goexit
				err = &PanicError{Stack: debug.Stack()}
			}
			done <- err
		}()
		err = guard(f)
		returned = true
	}()
	select {
	case err := <-done:
		return err
	case <-r.graceCtx.Done():
		return errLate
	}
}

// guard calls f and makes an error of a panic in it.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// callHook calls a hook of the Loop.
func (r *run) callHook(ctx context.Context, hook string, f func() error) error {
	err := r.bounded(f)
	if err == nil {
		return nil
	}
	if err == errLate {
		r.log.ErrorContext(ctx, "a hook did not return", "hook", hook)
	}
	if p, ok := errors.AsType[*PanicError](err); ok {
		r.log.ErrorContext(ctx, "a hook panicked", "hook", hook, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
	return &hookError{hook, err}
}

// clientFailure is what to make of a Client that panicked or was left behind; nil
// for any other error, and for none.
func clientFailure(err error) *failure {
	if _, panicked := err.(*PanicError); !panicked && err != errLate {
		return nil
	}
	e := &RequestError{Attempts: 1, MaybeDelivered: true, Err: fmt.Errorf("the Client: %w", err)}
	return &failure{err: e, wait: -1, maybeDelivered: true}
}
