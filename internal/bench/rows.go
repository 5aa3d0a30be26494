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
		"{ratio cpu/by-hand}, with {ratio allocs/op} allocations ({ratio allocs/by-hand}); a loop by hand on `net/http` {ratio net-http-cpu/by-hand}, with {ratio net-http-allocs/op}"},
	{"the same, streamed through `Events`", "", "Streamed", "{ratio cpu/by-hand}, with {ratio allocs/op} allocations ({ratio allocs/by-hand})"},
	{"500 conversations at once, the largest that the process gets", "", "FiveHundredConversations",
		"{loop MiB/process} MiB; by hand {by_hand MiB/process}, by hand on `net/http` {net-http MiB/process}"},
	{"2,000 conversations at once, a model of 2 s over HTTP/2", "", "Scale",
		"{http2 KiB/conversation} KiB each while they wait, by hand {http2 KiB/by-hand}; the slowest hundredth takes {http2 p99/p50} of the median; {http2 cpu-2000/cpu-10} of the CPU that each of ten takes"},
	{"eight calls of 100 ms in one response", "", "ParallelCalls", "{calls/8-calls} times one call"},
	{"CPU of the first tool of README's type; of one with tags", "", "NewTool", "{README/first CPU-µs/tool} µs; {tags/first CPU-µs/tool} µs"},
	{"decoding a call's arguments with all checks, against `encoding/json`", "internal/strict", "Decode", "{plain/ratio time/encoding-json} of the CPU"},
	{"1,000 streams at once", "", "ThousandStreams", "{loop KiB/stream} KiB each; openai-go's own stream {openai-go KiB/stream} KiB"},
	{"200 chats at once, each a run of a `Hub` that a browser follows", "", "Chats",
		"{KiB/chat} KiB each, beside {KiB/openai-go-stream} KiB of openai-go's own stream; half of the first events within {p50-first-ms} ms"},
	{"a delta, from the bytes on the wire to the reader of `Events`", "", "Delta", "{µs/delta} µs"},
	{"a delta through `aisdk`", "aisdk", "Delta", "{ns/op} ns"},
	{"a response watched by `otelloop` without a provider", "otelloop", "NoProvider", "{ns/op} ns"},
	{"a tool that prints 1 GiB", "", "Flood", "{KiB/GiB} KiB allocated on the host"},
	{"a run of 20 calls over a WebSocket, where a request's set-up takes 5 ms", "", "WebSocket",
		"{Run websocket-ms/run} ms; over HTTP {Run http-ms/run} ms"},
	{"bubblewrap, warm: `print(fib(40))`, program in to Result out, against `python3 main.py` without a sandbox", "runners/bubblewrap", "Warm", "{ratio} of the time"},
	{"bubblewrap, cold: the same, against `bwrap` with `python3 main.py`", "runners/bubblewrap", "Cold", "{ratio} of the time"},
	{"bubblewrap: 200 calls, four at a time, against `python3 main.py` without a sandbox", "runners/bubblewrap", "Load", "{throughput/bare} times as many a second"},
	{"bubblewrap: a program that imports numpy, pandas and matplotlib.pyplot, with `Preload` of them, against `python3 main.py` without a sandbox", "runners/bubblewrap", "Preload",
		"{latency ratio} of the time; four at a time {throughput throughput/bare} times as many a second"},
	{"bubblewrap: one line printed in another language, against the same commands without a sandbox", "runners/bubblewrap", "Languages",
		"JavaScript {javascript ratio}, TypeScript {typescript ratio}, R {r ratio}, Java {java ratio}, Go {go ratio}; bash, which does next to nothing, {bash ratio}"},
	{"bubblewrap: a cell `x += 1` of a session; one of 1 MB of output", "runners/bubblewrap", "Sessions",
		"median {cell p50-µs} µs, after a pause {cell-after-a-pause p50-µs} µs; {print-1MB p50-µs} µs"},
	{"Docker, warm: `print(fib(40))`, against `python3 main.py` without a sandbox", "runners/docker", "Warm", "{latency/bare} of the time"},
	{"Docker, cold: the same, against `docker run`", "runners/docker", "Cold", "{latency/docker-run} of the time"},
	{"Docker: 200 calls, four at a time, against `docker run`", "runners/docker", "Load", "{throughput/docker-run} times as many a second"},
	{"Docker: the same cells of a session", "runners/docker", "Sessions",
		"median {cell p50-µs} µs, after a pause {cell-after-a-pause p50-µs} µs; {print-1MB p50-µs} µs"},
	{"Runtime Cloud's stand-in, with answers of 100 ms", "runners/runtimecloud", "Run", "{delay=100ms roundtrips/op} round trips for a run"},
}
