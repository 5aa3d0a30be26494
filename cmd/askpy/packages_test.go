package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/responsestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// On a machine whose Python need not have them a program computes with packages,
// in a sandbox without a network.
func TestPackages(t *testing.T) {
	needSandbox(t)
	r := new(bubblewrap.Runner)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	packagestest.Need(t, r)
	x := packagestest.NewIndex(t)
	wheel := x.AddWheel(t, packagestest.Numpy)
	x.AddWheel(t, packagestest.Wheel{Name: "extra", Version: "1.1", Files: map[string]string{"extra.py": "n = 7"}})
	list := filepath.Join(t.TempDir(), "requirements.txt")
	require.NoError(t, os.WriteFile(list, []byte("extra  # of the test\n"), 0o600))

	const program = `import numpy, extra, socket
print((numpy.arange(5) + numpy.arange(5)).sum() + extra.n)
try: socket.create_connection(("127.0.0.1", PORT), 2)
except OSError: print("no network")`
	code, err := json.Marshal(map[string]string{"code": strings.Replace(program, "PORT", x.URL[strings.LastIndex(x.URL, ":")+1:], 1)})
	require.NoError(t, err)
	for range 2 {
		server := responsestest.NewServer(responsestest.Call("call_1", "run_python", string(code)), responsestest.Text("27"))
		defer server.Close()
		status, stdout, stderr := askpy(t, map[string]string{"OPENAI_API_KEY": server.Key, "OPENAI_BASE_URL": server.URL},
			"--private", "--verbose", "--runner", "bubblewrap", "--packages", "numpy>=2,<3", "--requirements", list, "What is it?")
		assert.Equal(t, 0, status, stderr)
		assert.Equal(t, "27\n", stdout)
		assert.Contains(t, stderr, "27")
		assert.Contains(t, stderr, "no network")
		require.NoError(t, server.Err())
		sent := string(server.Requests()[0].Body)
		assert.Contains(t, sent, "extra 1.1, numpy 2.1.0")
	}
	assert.Equal(t, 1, x.Fetched(wheel), "the layer is there the second time")

	status, _, stderr := askpy(t, map[string]string{"OPENAI_API_KEY": "k"}, "--private", "--packages", "no-such-package", "hi")
	assert.Equal(t, 1, status)
	assert.Regexp(t, `--packages: .*\n(.*\n)*.*No matching distribution found for no-such-package`, stderr)
}

func TestPackages_usage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--runner", "fake", "--packages", "numpy", "hi"}, "--packages and --requirements are for --runner bubblewrap, docker and runtime"},
		{[]string{"--requirements", "", "hi"}, "give the name of a file"},
	} {
		status, _, stderr := askpy(t, map[string]string{"OPENAI_API_KEY": "k"}, c.args...)
		assert.Equal(t, 2, status)
		assert.Contains(t, stderr, c.want)
	}
}
