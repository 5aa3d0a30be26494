package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	for _, test := range []struct {
		name, file string
		status     int
		want       []string // in this order
		not        []string
	}{
		{
			name: "passing tests print one line, skipped ones their reason",
			file: `func TestA(t *testing.T) { t.Log("chatter") }
				func TestB(t *testing.T) { t.Skip("no engine here") }
				func TestC(t *testing.T) { t.Run("d", func(t *testing.T) { t.Skip("no engine here") }) }
				func TestE(t *testing.T) { t.SkipNow() }`,
			want: []string{
				"ok  \texample.com/m", "SKIPPED 2 tests of example.com/m: no engine here\n",
				"SKIPPED 1 test of example.com/m: it gives no reason\n",
			},
			not: []string{"chatter", "PASS", "=== RUN"},
		},
		{
			name:   "failing tests print what they logged, others do not",
			file:   `func TestA(t *testing.T) { t.Error("wrong sum") }; func TestB(t *testing.T) { t.Log("chatter") }`,
			status: 1,
			want:   []string{"wrong sum", "--- FAIL: TestA", "FAIL\texample.com/m"},
			not:    []string{"chatter"},
		},
		{
			name:   "a panic is shown",
			file:   `func TestA(t *testing.T) { panic("at the disco") }`,
			status: 1,
			want:   []string{"panic: at the disco", "FAIL\texample.com/m"},
		},
		{
			name:   "a package that does not build says why",
			file:   `func TestA(t *testing.T) { undefined() }`,
			status: 1,
			want:   []string{"undefined: undefined", "FAIL\texample.com/m [build failed]"},
		},
		{
			name:   "what is printed outside of tests is shown when the package fails",
			file:   `func TestMain(m *testing.M) { m.Run(); println("leaked"); os.Exit(3) }; func TestA(*testing.T) {}`,
			status: 1,
			want:   []string{"leaked", "FAIL\texample.com/m"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModule(t, test.file)
			var stdout, stderr strings.Builder
			status := run([]string{"."}, &stdout, &stderr)
			assert.Equal(t, test.status, status, stderr.String())
			rest := stdout.String()
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				assert.True(t, found, "%q is not in its place in\n%s", want, stdout.String())
				rest = after
			}
			for _, not := range test.not {
				assert.NotContains(t, stdout.String(), not)
			}
		})
	}
}

// A test that fails at first and passes by itself is told apart from one that is
// wrong: the run passes, and says so.
func TestRun_again(t *testing.T) {
	const once = `if _, err := os.Stat("ran"); err != nil { os.WriteFile("ran", nil, 0o600); `
	for _, test := range []struct {
		name, file string
		again      string
		status     int
		want, not  string
	}{
		{
			name: "it passes by itself", again: "-again=1",
			file: `func TestA(t *testing.T) { ` + once + `t.Error("slow") } }; func TestB(t *testing.T) {}`,
			want: "FLAKY TestA of example.com/m: ", not: "FLAKY TestB",
		},
		{
			name: "it fails again", again: "-again=1", status: 1,
			file: `func TestA(t *testing.T) { t.Error("wrong") }`, not: "FLAKY",
		},
		{
			name: "more failed than may", again: "-again=1", status: 1,
			file: `func TestA(t *testing.T) { ` + once + `t.Error("slow") } }; func TestB(t *testing.T) { t.Error("slow") }`, not: "FLAKY",
		},
		{
			name: "nobody asked for it", again: "-v=false", status: 1,
			file: `func TestA(t *testing.T) { ` + once + `t.Error("slow") } }`, not: "FLAKY",
		},
		{
			name: "a panic is no matter of load", again: "-again=1", status: 1,
			file: `func TestA(t *testing.T) { ` + once + `panic("slow") } }`, want: "panic: slow", not: "FLAKY",
		},
		{
			name: "what TestMain found is not of a test", again: "-again=1", status: 1,
			file: `func TestMain(m *testing.M) { m.Run(); ` + once + `os.Exit(1) } }; func TestA(*testing.T) {}`, not: "FLAKY",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModule(t, test.file)
			var stdout, stderr strings.Builder
			assert.Equal(t, test.status, run([]string{test.again, "."}, &stdout, &stderr), stderr.String())
			assert.Contains(t, stdout.String(), test.want)
			assert.NotContains(t, stdout.String(), test.not)
		})
	}
}

// inModule makes a module with a test file the working directory.
func inModule(t *testing.T, file string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	imports := "package m\nimport (\n\"os\"\n\"testing\"\n)\nvar _ = os.Exit\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/m\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m_test.go"), []byte(imports+file), 0o600))
}

// What go test itself complains of reaches the reader, and fails.
func TestRun_badArguments(t *testing.T) {
	var stdout, stderr strings.Builder
	assert.NotZero(t, run([]string{"./no/such/package"}, &stdout, &stderr))
	assert.Contains(t, stdout.String()+stderr.String(), "no/such/package")
}
