package interpreter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

func plain(text string) map[string][]byte { return map[string][]byte{"text/plain": []byte(text)} }

func TestExecution_Text(t *testing.T) {
	limits := fnloop.Limits{Time: 5 * time.Second, Memory: 512 << 20}
	for _, c := range []struct {
		why  string
		e    interpreter.Execution
		want string
	}{
		{"a value is the result",
			interpreter.Execution{Status: "ok", Displays: []interpreter.Display{{Main: true, Data: plain("<'1'>")}}},
			`{"status":"ok","result":"<'1'>"}`},
		{"nothing at all is said in words",
			interpreter.Execution{Status: "ok"},
			`{"status":"ok","notice":"The cell showed nothing. Only printed text and the value of the last expression are shown."}`},
		{"images are counted, other displays are texts",
			interpreter.Execution{Status: "ok", Displays: []interpreter.Display{
				{Data: map[string][]byte{"image/png": nil, "text/plain": []byte("<Figure>")}}, {Data: plain("a table")}}},
			`{"status":"ok","shown":["a table"],"images":1}`},
		{"a killed cell",
			interpreter.Execution{Status: "timeout", Restored: true, Cause: "timeout", Limits: limits, Stdout: "a\n"},
			`{"status":"timeout","notice":"The cell was stopped at its time limit of 5s. All variables are as they were before this cell, because it did not react and the interpreter had to be killed. What it did to files stays. It was not run again.","stdout":"a\n"}`},
		{"a lost session names what is gone",
			interpreter.Execution{Status: "lost", Loss: &interpreter.Loss{Cause: "signal", Detail: "SIGSEGV", Names: []string{"df", "x"}, FilesKept: true}},
			`{"status":"lost","notice":"The interpreter crashed (SIGSEGV); a new one is ready. Variables, functions and imports of earlier cells are gone (df, x), files are kept. The cell was not run again."}`},
		{"a loss between two cells comes first",
			interpreter.Execution{Status: "ok", Stdout: "1\n", Loss: &interpreter.Loss{Cause: "restart", FilesKept: true}},
			`{"status":"ok","notice":"Before this cell the interpreter was restarted; a new one is ready. Variables, functions and imports of earlier cells are gone, files are kept.","stdout":"1\n"}`},
		{"what is left running, and files",
			interpreter.Execution{Status: "error", Threads: 2, Processes: 1, MemoryKills: 1, Limits: limits, Omitted: 2,
				Error: &interpreter.Error{Name: "ValueError", Value: "no"}, MoreFiles: 3,
				Files: []interpreter.FileChange{{Name: "a.csv", Size: 3, Change: "new"}, {Name: "b", Change: "removed"}}},
			`{"status":"error","notice":"A process was killed because the session ran out of its 512 MiB of memory. 2 more displays were not shown. Still running: 2 threads, 1 process.","error":"ValueError: no","files":["new a.csv (3 bytes)","removed b","and 3 more"]}`},
	} {
		assert.Equal(t, c.want, c.e.Text(), c.why)
	}
}

func TestExecution_TextIsBounded(t *testing.T) {
	long := strings.Repeat("\x01é", 40_000)
	e := interpreter.Execution{
		Status: "error", Stdout: long, Stderr: long, Background: long,
		Error: &interpreter.Error{Name: "E", Traceback: long},
		Loss:  &interpreter.Loss{Detail: long, Names: strings.Fields(strings.Repeat(strings.Repeat("n", 9000)+" ", 50))},
	}
	for i := range 64 {
		e.Displays = append(e.Displays, interpreter.Display{Main: i == 0, Data: plain(long)})
		e.Files = append(e.Files, interpreter.FileChange{Name: strings.Repeat("\x01", 1000), Change: "new"})
	}
	text := e.Text()
	assert.LessOrEqual(t, len(text), fnloop.DefaultMaxOutput)
	var d struct{ Stdout string }
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	assert.Contains(t, d.Stdout, "bytes left out")
	assert.Contains(t, fmt.Sprint(text[:20]), "error")
}
