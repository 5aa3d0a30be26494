package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// printed is what go test -bench prints of two packages, with noise between.
const printed = `goos: linux
goarch: amd64
pkg: example.com/m
cpu: Some CPU @ 2 GHz
BenchmarkTalk/by_hand-2         	    2890	    469944 ns/op
BenchmarkTalk/ratio-2           	      48	  24476935 ns/op	         0.6234 allocs/by-hand	        12.25 KiB/talk
2026/01/02 a line of a log
PASS
ok  	example.com/m	7.1s
pkg: example.com/m/sub
BenchmarkWarm-2                 	       7	 155739592 ns/op	       250.4 ms/call	         0.0041 ratio
BenchmarkBroken-2               	       7	 155739592 ns/op	       NaN? odd
PASS
`

func TestRead(t *testing.T) {
	res, err := read(strings.NewReader(printed))
	require.NoError(t, err)
	assert.Equal(t, "Some CPU @ 2 GHz", res.cpu)
	assert.Equal(t, map[string]bool{"example.com/m": true, "example.com/m/sub": true}, res.ran)
	assert.Equal(t, map[string]map[string]float64{
		"example.com/m BenchmarkTalk/by_hand": {"ns/op": 469944},
		"example.com/m BenchmarkTalk/ratio":   {"ns/op": 24476935, "allocs/by-hand": 0.6234, "KiB/talk": 12.25},
		"example.com/m/sub BenchmarkWarm":     {"ns/op": 155739592, "ms/call": 250.4, "ratio": 0.0041},
		"example.com/m/sub BenchmarkBroken":   {"ns/op": 155739592},
	}, res.metrics)
}

func TestTable(t *testing.T) {
	res := results{metrics: map[string]map[string]float64{
		module + " BenchmarkTalk/ratio": {"allocs/by-hand": 0.6234, "KiB/talk": 12.25},
		module + "/sub BenchmarkWarm":   {"ms/call": 250.4, "ratio": 0.0041},
	}}
	text, missing := table([]row{
		{"a talk", "", "Talk", "{ratio allocs/by-hand} of the allocations, {ratio KiB/talk} KiB each"},
		{"a call", "sub", "Warm", "{ratio} of bare, {ms/call} ms, {calls/s} a second"},
	}, res, "Measured here.")
	assert.Equal(t, `Measured here.

| what | figure | command |
| --- | --- | --- |
| a talk | 0.62 of the allocations, 12.2 KiB each | `+"`go test -run '^$' -bench 'Talk$' .`"+` |
| a call | 0.0041 of bare, 250 ms, ? a second | `+"`go test -run '^$' -bench 'Warm$' ./sub`"+` |
`, text)
	assert.Equal(t, []string{"calls/s of " + module + "/sub BenchmarkWarm"}, missing)
}

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n"), 0o644))
	require.NoError(t, write(file, "new\n"))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "before\n<!-- bench -->\nnew\n<!-- /bench -->\nafter\n", string(b))

	require.NoError(t, os.WriteFile(file, []byte("no marks\n"), 0o644))
	assert.ErrorContains(t, write(file, "new\n"), "between which the table goes")
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "no marks\n", string(b), "nothing is lost")
}

// README's table has the rows that bench prints, whatever their figures are.
func TestReadmeHasTheRows(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "<!-- bench -->\n")
	require.True(t, ok, "README.md has no <!-- bench -->")
	text, _, ok := strings.Cut(rest, "<!-- /bench -->\n")
	require.True(t, ok, "README.md has no <!-- /bench -->")
	var got [][2]string
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| what |") && !strings.HasPrefix(line, "| ---") {
			got = append(got, [2]string{strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[2], " |\n")})
		}
	}
	var want [][2]string
	for _, r := range rows {
		want = append(want, [2]string{r.what, r.command()})
	}
	assert.Equal(t, want, got, "make bench README=README.md writes it")
	assert.NotContains(t, text, "?", "a figure is missing")
}

// A benchmark that a row names exists in the package that it names.
func TestRowsNameBenchmarks(t *testing.T) {
	for _, r := range rows {
		files, err := filepath.Glob(filepath.Join("../..", r.pkg, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			found = found || strings.Contains(string(b), "func Benchmark"+r.bench+"(b *testing.B)")
		}
		assert.True(t, found, "%s has no Benchmark%s", r.path(), r.bench)
	}
}
