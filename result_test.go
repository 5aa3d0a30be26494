package fnloop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
)

func captured(stdout, stderr string) fnloop.Result {
	var out, err fnloop.Capture
	io.WriteString(&out, stdout)
	io.WriteString(&err, stderr)
	code := 0
	res := fnloop.Result{ExitCode: &code, End: fnloop.EndExit}
	res.SetOutput(&out, &err)
	return res
}

func TestResultText(t *testing.T) {
	code := 3
	for _, tt := range []struct {
		name, why string
		res       fnloop.Result
		want      string
	}{
		{"four fields", "their order is the contract", fnloop.Result{ExitCode: &code, Stdout: "a\n", Stderr: "b"},
			`{"exit_code":3,"timed_out":false,"stdout":"a\n","stderr":"b"}`},
		{"killed", "a killed program has no exit code", fnloop.Result{TimedOut: true, End: fnloop.EndTimeout},
			`{"exit_code":null,"timed_out":true,"stdout":"","stderr":""}`},
		{"html", "the model reads code, not web pages", fnloop.Result{ExitCode: &code, Stdout: "<&>"},
			`{"exit_code":3,"timed_out":false,"stdout":"<&>","stderr":""}`},
		{"invalid", "each bad byte is one replacement", fnloop.Result{ExitCode: &code, Stdout: "ok\xff\xfe\x00end"},
			`{"exit_code":3,"timed_out":false,"stdout":"ok` + "\ufffd\ufffd" + `\u0000end","stderr":""}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.res.Text(), tt.why)
		})
	}
}

func TestResultEpitaph(t *testing.T) {
	for _, tt := range []struct {
		name string
		res  fnloop.Result
		want string
	}{
		{"timeout", fnloop.Result{End: fnloop.EndTimeout, TimedOut: true, Limits: fnloop.Limits{Time: 5e9}}, "oops\n[killed: the time limit of 5s was reached]\n"},
		{"memory", fnloop.Result{End: fnloop.EndMemory, Limits: fnloop.Limits{Memory: 512 << 20}}, "oops\n[killed: out of memory, the limit is 512 MiB]\n"},
		{"signal", fnloop.Result{End: fnloop.EndSignal, Signal: "SIGSEGV"}, "oops\n[killed by SIGSEGV]\n"},
		{"some signal", fnloop.Result{End: fnloop.EndSignal}, "oops\n[killed by a signal]\n"},
		{"unknown", fnloop.Result{}, "oops\n[how the program ended is not known]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stderr fnloop.Capture
			io.WriteString(&stderr, "oops")
			tt.res.SetOutput(nil, &stderr)
			assert.Equal(t, tt.want, tt.res.Stderr)
			assert.EqualValues(t, 4, tt.res.StderrBytes, "the line is not the program's")
		})
	}
	t.Run("survives a flood", func(t *testing.T) {
		var stderr fnloop.Capture
		io.WriteString(&stderr, strings.Repeat("x", 1<<20))
		res := fnloop.Result{End: fnloop.EndTimeout, TimedOut: true}
		res.SetOutput(nil, &stderr)
		assert.True(t, strings.HasSuffix(res.Stderr, "x\n[killed: the time limit was reached]\n"))
		assert.LessOrEqual(t, len(res.Text()), fnloop.DefaultMaxOutput)
	})
}

func TestResultFits(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct{ name, stdout, stderr string }{
		{"plain", strings.Repeat("x", mib), ""},
		{"both", strings.Repeat("x", mib), strings.Repeat("y", mib)},
		{"just over", strings.Repeat("x", fnloop.DefaultMaxOutput), ""},
		{"newlines", strings.Repeat("\n", 70000), ""},
		{"control", strings.Repeat("\x00", 70000), strings.Repeat("\x1b", 70000)},
		{"html", strings.Repeat("<", 70000), strings.Repeat("&", 70000)},
		{"separators", strings.Repeat("\u2028", 70000), ""},
		{"invalid", strings.Repeat("\xff", 70000), strings.Repeat("\xc3", 70000)},
		{"euro", strings.Repeat("€", 100_000), ""},
		{"quotes", "", strings.Repeat(`"\`, 40000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := captured(tt.stdout, tt.stderr)
			byHand := fnloop.Result{ExitCode: res.ExitCode, Stdout: tt.stdout, Stderr: tt.stderr}
			for _, r := range []fnloop.Result{res, byHand} {
				text := r.Text()
				assert.LessOrEqual(t, len(text), fnloop.DefaultMaxOutput)
				assert.Greater(t, len(text), fnloop.DefaultMaxOutput*9/10, "room is not wasted")
				assert.True(t, utf8.ValidString(text))
				var back fnloop.Result
				require.NoError(t, json.Unmarshal([]byte(text), &back))
				b, err := json.Marshal(r)
				require.NoError(t, err)
				assert.LessOrEqual(t, len(b), fnloop.DefaultMaxOutput, "also as json.Marshal escapes it")
			}
			assert.EqualValues(t, len(tt.stdout), res.StdoutBytes)
			assert.EqualValues(t, len(tt.stderr), res.StderrBytes)
			assert.Equal(t, res.Text(), string(mustEncode(t, res)), "what SetOutput cut is not cut again")
		})
	}
}

// mustEncode encodes the strings that r holds as they are.
func mustEncode(t *testing.T, r fnloop.Result) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(struct {
		ExitCode *int   `json:"exit_code"`
		TimedOut bool   `json:"timed_out"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}{r.ExitCode, r.TimedOut, r.Stdout, r.Stderr}))
	return bytes.TrimSpace(buf.Bytes())
}

func TestResultKeepsHeadAndTail(t *testing.T) {
	res := captured("HEAD"+strings.Repeat("x", 1_000_000)+"TAIL", "short")
	assert.True(t, strings.HasPrefix(res.Stdout, "HEADx"))
	assert.True(t, strings.HasSuffix(res.Stdout, "xTAIL"))
	assert.Equal(t, "short", res.Stderr)
	assert.True(t, res.StdoutTruncated)
	assert.False(t, res.StderrTruncated)
	var missing int
	i := strings.Index(res.Stdout, "\n[")
	_, err := fmt.Sscanf(res.Stdout[i:], "\n[... %d bytes left out ...]", &missing)
	require.NoError(t, err)
	marker := fmt.Sprintf("\n[... %d bytes left out ...]\n", missing)
	assert.Equal(t, 1_000_008, len(res.Stdout)-len(marker)+missing, "the marker counts exactly what is gone")
}

func TestResultShares(t *testing.T) {
	// The quiet stream keeps all it has, the loud one takes the rest.
	res := captured(strings.Repeat("o", 1<<20), strings.Repeat("e", 20_000))
	assert.Len(t, res.Stderr, 20_000)
	assert.Greater(t, len(res.Stdout), 40_000)

	res = captured(strings.Repeat("o", 1<<20), strings.Repeat("e", 1<<20))
	assert.InDelta(t, len(res.Stdout), len(res.Stderr), 64, "two loud streams get a half each")

	res = captured(strings.Repeat("o", 32_000), strings.Repeat("e", 33_000))
	assert.False(t, res.StdoutTruncated || res.StderrTruncated, "what fits is whole")
}

func TestResultCutsOnRunes(t *testing.T) {
	for shift := range 5 {
		res := captured(strings.Repeat("a", shift)+strings.Repeat("🙂", 50_000)+strings.Repeat("b", shift), "")
		assert.NotContains(t, res.Stdout, "\ufffd", "shift %d", shift)
		assert.True(t, res.StdoutTruncated)
	}
}

func TestCaptureIsBounded(t *testing.T) {
	var c fnloop.Capture
	chunk := bytes.Repeat([]byte("A"), 32<<10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 1 << 30 / len(chunk) {
		c.Write(chunk)
	}
	runtime.ReadMemStats(&after)
	assert.EqualValues(t, 1<<30, c.Len())
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "1 GiB of output costs less than 1 MiB")
}

func TestCaptureWriteSizes(t *testing.T) {
	// Whatever the sizes of the writes, the same bytes stay.
	var all bytes.Buffer
	for i := range 40_000 {
		fmt.Fprintf(&all, "%d,", i)
	}
	want := captured(all.String(), "").Stdout
	for _, size := range []int{1, 7, 1000, 32 << 10, 70_000, 200_000} {
		var c fnloop.Capture
		for b := all.Bytes(); len(b) > 0; {
			n := min(size, len(b))
			c.Write(b[:n])
			b = b[n:]
		}
		code := 0
		res := fnloop.Result{ExitCode: &code, End: fnloop.EndExit}
		res.SetOutput(&c, nil)
		assert.Equal(t, want, res.Stdout, "writes of %d bytes", size)
	}
}

func FuzzResult(f *testing.F) {
	f.Add([]byte("a"), []byte("b"), 1)
	f.Add([]byte("\xff\xe2\x82"), []byte("\u2028<"), 30_000)
	f.Fuzz(func(t *testing.T, out, err []byte, times int) {
		times = min(max(times, 1), 70_000)
		stdout := bytes.Repeat(out, min(times, 1+200_000/(len(out)+1)))
		stderr := bytes.Repeat(err, min(times, 1+200_000/(len(err)+1)))
		res := captured(string(stdout), string(stderr))
		text := res.Text()
		if len(text) > fnloop.DefaultMaxOutput || !json.Valid([]byte(text)) || !utf8.ValidString(text) {
			t.Fatalf("%d bytes", len(text))
		}
		if text != string(mustEncode(t, res)) {
			t.Fatal("cut twice")
		}
		if b, _ := json.Marshal(res); len(b) > fnloop.DefaultMaxOutput {
			t.Fatalf("json.Marshal gives %d bytes", len(b))
		}
		if !res.StdoutTruncated && res.Stdout != strings.ToValidUTF8(string(stdout), "") && utf8.Valid(stdout) {
			t.Fatal("a stream that is not truncated is not whole")
		}
	})
}

func BenchmarkCapture(b *testing.B) {
	chunk := bytes.Repeat([]byte("A"), 32<<10)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	var c fnloop.Capture
	for b.Loop() {
		c.Write(chunk)
	}
}
