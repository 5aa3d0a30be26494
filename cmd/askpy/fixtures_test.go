package main_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fnloop/fnloop/fixtures"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

var update = flag.Bool("update", false, "write the recorded conversations of fixtures anew")

// header says how a conversation was made. What it says is what TestFixtures does.
const header = `# How this was made: by "go generate ./fixtures", with no model and no key. The
# service is its stand-in, the package responsestest, and what the model says is
# written by hand in cmd/askpy/fixtures_test.go. The requests are those that askpy
# made, and the outputs are what the code printed and drew in the sandbox.
#
`

const fibProgram = `def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

print(fib(40))
`

// The cells of the conversation about sales need nothing but Python.
const (
	loadCell = `import csv

with open("sales.csv", newline="") as f:
    rows = list(csv.DictReader(f))
print(len(rows), "rows, such as", rows[0])
`
	sumCell = `totals = {}
for row in rows:
    totals[row["city"]] = totals.get(row["city"], 0) + int(row["units"])
totals
`
	chartCell = `import struct, zlib

WIDTH, HEIGHT, BAR = 360, 220, 80
COLOURS = [b"\x4c\x78\xa8", b"\xf5\x85\x18", b"\x54\xa2\x4b"]

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

class Chart:
    def __init__(self, values):
        lines = [bytearray(b"\xff" * 3 * WIDTH) for _ in range(HEIGHT)]
        for n, value in enumerate(values):
            left = 3 * (30 + n * (BAR + 30))
            for line in lines[HEIGHT - 10 - 200 * value // max(values):HEIGHT - 10]:
                line[left:left + 3 * BAR] = COLOURS[n] * BAR
        lines[HEIGHT - 10][:] = b"\x00" * 3 * WIDTH
        self.png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0))
                    + chunk(b"IDAT", zlib.compress(b"".join(b"\x00" + line for line in lines))) + chunk(b"IEND", b""))

    def _repr_png_(self):
        return self.png

    def __repr__(self):
        return "a chart of " + ", ".join(totals)

with open("totals.csv", "w", newline="") as f:
    csv.writer(f).writerows([("city", "units"), *totals.items()])
Chart(list(totals.values()))
`
	salesAnswer = "Porto sells the most: 731 units in the half-year, against 561 in Oslo and 439 in Quito. " +
		"The chart has a bar for each, in the order Oslo, Porto, Quito; totals.csv has the numbers."
)

// conversations are those in fixtures: what askpy is asked, and what the model
// says.
var conversations = []struct {
	file   string
	args   []string
	model  func(*testing.T) []responsestest.Reply
	answer string
}{
	{
		file: "fib40.yaml", args: []string{fixtures.FibPrompt},
		model: func(t *testing.T) []responsestest.Reply {
			return []responsestest.Reply{says(t, 1, "run_python", fibProgram), responsestest.Text("fib(40) = 102334155")}
		},
		answer: "fib(40) = 102334155",
	},
	{
		file: "sales.yaml", args: []string{"--file", "../../fixtures/sales.csv", fixtures.SalesPrompt},
		model: func(t *testing.T) []responsestest.Reply {
			return []responsestest.Reply{
				says(t, 1, "python", loadCell), says(t, 2, "python", sumCell), says(t, 3, "python", chartCell), responsestest.Text(salesAnswer),
			}
		},
		answer: salesAnswer,
	},
}

// says is a response of the model that asks for code to be run.
func says(t *testing.T, n int, tool, code string) responsestest.Reply {
	t.Helper()
	arguments, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		t.Fatal(err)
	}
	return responsestest.Call(fmt.Sprintf("call_%d", n), tool, string(arguments))
}

// TestFixtures makes the recorded conversations again and compares them with
// those in fixtures.
func TestFixtures(t *testing.T) {
	needSandbox(t)
	t.Setenv("TMPDIR", t.TempDir()) // where figures go
	for _, c := range conversations {
		t.Run(c.file, func(t *testing.T) {
			replies := c.model(t)
			for i := range replies {
				// An estimate would depend on the description of the Python at hand.
				replies[i].Usage = &responsestest.Usage{InputTokens: 240 + 100*int64(i), OutputTokens: 80}
			}
			server := responsestest.NewServer(replies...)
			defer server.Close()
			file := filepath.Join(t.TempDir(), c.file)
			env := map[string]string{"OPENAI_API_KEY": server.Key, "OPENAI_BASE_URL": server.URL}
			args := append([]string{"--runner", "bubblewrap", "--record", file}, c.args...)
			status, stdout, stderr := askpy(t, env, args...)
			if status != 0 || stdout != c.answer+"\n" {
				t.Fatalf("run(%q) = %d, %q\n%s", args, status, stdout, stderr)
			}
			if err := server.Err(); err != nil {
				t.Fatal(err)
			}
			recorded, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, name := header+string(recorded), filepath.Join("../../fixtures", c.file)
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := stable(got), stable(string(want)); got != want {
				t.Errorf("fixtures/%s is not what is recorded now; if that is meant, run go generate ./fixtures\n%s", c.file, firstDifference(got, want))
			}
		})
	}
}

// A conversation is played on the machine at hand, with the interpreter that is
// there: the code runs, and what comes of it is kept.
func TestFixturesReplay(t *testing.T) {
	needSandbox(t)
	t.Setenv("TMPDIR", t.TempDir()) // where figures go
	for _, c := range conversations {
		t.Run(c.file, func(t *testing.T) {
			args := append([]string{"--runner", "bubblewrap", "--replay", filepath.Join("../../fixtures", c.file)}, c.args...)
			status, stdout, stderr := askpy(t, nil, args...)
			if status != 0 || stdout != c.answer+"\n" {
				t.Fatalf("run(%q) = %d, %q\n%s", args, status, stdout, stderr)
			}
		})
	}
	out := t.TempDir()
	status, _, stderr := askpy(t, nil, "--runner", "bubblewrap", "--replay", "../../fixtures/sales.yaml", "--file", "../../fixtures/sales.csv", "--out", out, fixtures.SalesPrompt)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	totals, err := os.ReadFile(filepath.Join(out, "totals.csv"))
	if want := "city,units\r\nOslo,561\r\nPorto,731\r\nQuito,439\r\n"; err != nil || string(totals) != want {
		t.Errorf("totals.csv is %q, %v; want %q", totals, err, want)
	}
	figure, err := os.Open(filepath.Join(out, "figure-1.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer figure.Close()
	chart, err := png.Decode(figure)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := chart.At(180, 30), (color.NRGBA{0xf5, 0x85, 0x18, 0xff}); color.NRGBAModel.Convert(got) != want || chart.Bounds().Dx() != 360 {
		t.Errorf("the chart has %v in its highest bar, want %v", got, want)
	}
}

// stable gives a recording without what depends on the time and on the Python
// of the machine.
func stable(recording string) string {
	for _, member := range []string{`"(created|completed)_at": ?[0-9.]+`, `"description": ?"Runs (?:a )?Python(\\.|[^"\\])*"`, `content_length: [0-9]+`} {
		recording = regexp.MustCompile(member).ReplaceAllString(recording, "...")
	}
	return recording
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got:  " + g[i] + "\nwant: " + w[i]
		}
	}
	return "one of them ends early"
}

// needSandbox skips where bubblewrap cannot isolate programs, and fails there
// in CI.
func needSandbox(t *testing.T) {
	t.Helper()
	err := probe(t.Context())
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// probe runs a first program in bubblewrap.
func probe(ctx context.Context) error {
	r := new(bubblewrap.Runner)
	defer r.Close() // what it keeps to fork programs from
	return r.Probe(ctx)
}
