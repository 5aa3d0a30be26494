// Package runtimetest has a stand-in for Runtime Cloud's API, for the tests of
// package runtimecloud and of programs that use it.
//
//	srv := runtimetest.New(t) // fails the test if a sandbox is left at its end
//	runner := &runtimecloud.Runner{URL: srv.Start(t), Key: runtimetest.Key}
//	t.Cleanup(func() { runner.Close() })
//
// It is strict: unknown fields, missing idempotency keys and keys that are used
// for two things are refused, as the service refuses them. What goes wrong in
// practice is played by a [Fault].
//
// It was written from the service's public documentation and clients, not from
// the service, and says what it does where those are silent.
package runtimetest
