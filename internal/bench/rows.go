package main

import (
	"cmp"
	"fmt"
	"strings"
)

// A row is one line of the table.
type row struct {
	what   string
	pkg    string // below the module; "" is the module's own package
	bench  string // without "Benchmark"
	figure string // {unit} stands for that metric, {sub unit} for that of a benchmark within
}

const module = "github.com/fnloop/fnloop"

// path is the import path of the row's package.
func (r row) path() string { return strings.TrimSuffix(module+"/"+r.pkg, "/") }

// command measures the row alone.
func (r row) command() string {
	return fmt.Sprintf("`go test -run '^$' -bench '%s$' %s`", r.bench, cmp.Or(strings.TrimSuffix("./"+r.pkg, "./"), "."))
}

// Rows are what README shows.
var rows = []row{
	{"CPU of one conversation (four calls, then text), against the loop written by hand on openai-go", "", "Conversation",
		"{ratio time/by-hand} of the time, {ratio allocs/by-hand} of the allocations, {loop allocs/op} of them"},
	{"eight calls of 100 ms in one response", "", "ParallelCalls", "{calls/8-calls} times one call"},
	{"1,000 streams at once", "", "ThousandStreams", "{loop KiB/stream} KiB each; openai-go's own stream {openai-go KiB/stream} KiB"},
	{"200 chats at once, each a run of a `Hub` that a browser follows", "", "Chats",
		"{KiB/chat} KiB each, beside {KiB/openai-go-stream} KiB of openai-go's own stream; half of the first events within {p50-first-ms} ms"},
	{"a delta, from the bytes on the wire to the reader of `Events`", "", "Delta", "{µs/delta} µs"},
	{"a delta through `aisdk`", "aisdk", "Delta", "{ns/op} ns"},
	{"a tool that prints 1 GiB", "", "Flood", "{KiB/GiB} KiB allocated on the host"},
	{"a run of 20 calls over a WebSocket, where a request's set-up takes 5 ms", "", "WebSocket",
		"{Run websocket-ms/run} ms; over HTTP {Run http-ms/run} ms"},
	{"bubblewrap, warm: `print(fib(40))`, program in to Result out, against `python3 main.py` without a sandbox", "runners/bubblewrap", "Warm", "{ratio} of the time"},
	{"bubblewrap, cold: the same", "runners/bubblewrap", "Cold", "{ratio} of the time"},
	{"bubblewrap: 200 calls, four at a time, against bare `python3`", "runners/bubblewrap", "Load", "{ratio} times as many a second"},
	{"bubblewrap: one line printed in another language, against the same commands without a sandbox", "runners/bubblewrap", "Languages",
		"JavaScript {javascript ratio}, TypeScript {typescript ratio}, R {r ratio}, Java {java ratio}, Go {go ratio}; bash, which does next to nothing, {bash ratio}"},
	{"Docker, warm: `print(fib(40))`, against `python3 main.py` without a sandbox", "runners/docker", "Warm", "{ratio} of the time"},
	{"Docker, cold: the same, against `docker run`", "runners/docker", "Cold", "{ratio} of the time"},
	{"Docker: 200 calls, four at a time, against `docker run`", "runners/docker", "Load", "{ratio} times as many a second"},
}
