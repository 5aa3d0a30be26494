// Package runtimecloud runs each program in a Firecracker microVM of its own at
// Runtime Cloud, over its HTTPS API.
//
//	runner := &runtimecloud.Runner{} // with RUNTIME_API_KEY in the environment
//	defer runner.Close()
//	loop.Tools = []fnloop.Tool{fnloop.PythonTool(runner, fnloop.Limits{})}
//
// A run is three round trips in series: create a sandbox, write
// /workspace/main.py, run python3 main.py without a shell and read what it
// prints while it runs. The sandbox has no network, at most [DefaultTimeLimit]
// to live and [DefaultMaxCost] to spend, and is deleted by the service at that
// limit should this process be gone by then.
//
// # Sessions
//
// A Runner keeps interpreters too: use it with package interpreter. There is one
// sandbox for each session. The service pauses it while nobody uses it, and with
// [Runner.Keep] it is found again by another process, through an Answer or a
// reference:
//
//	runner := &runtimecloud.Runner{Keep: 30 * 24 * time.Hour}
//	sessions := &interpreter.Sessions{Runner: runner}
//
// # Nothing stays
//
// Every sandbox is deleted after its run, whatever became of the run and of its
// caller: in the background, with a deadline of its own, and [Runner.Close]
// waits for it. That of a session which is not kept is deleted by its Close. A
// sandbox whose create got no answer is found by its label. What
// cannot be deleted is in the [LeakError] of Close, and [Runner.Sweep] removes
// what a process that crashed has left.
//
// # Failures
//
// A program that fails is a Result. An error is an [*Error] with the code,
// status, hint and request ID of the API, a [*ConfigError], or one of the others
// named at [Runner.Run]. No error, log record or printed Runner holds the API
// key.
//
// Calls are repeated where their failure allows it, under one idempotency key
// and with the same bytes, so that nothing happens twice. Which failures those
// are depends on the code in the answer's body, of which there are three
// classes with a budget each (see retry.go), and on whether an answer that began
// as a success turned into an error. The retry libraries for net/http decide by
// status and count all failures alike, so the few lines are here.
//
// # Not tried against the live service
//
// This package was written from Runtime's public documentation and clients of
// 30 September to 6 October 2026 and tested against the stand-in of package
// runtimetest, which was written from the same. No request of it has ever
// reached the live service. docs/runtime.md lists what is not known.
package runtimecloud
