package seccomp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/seccomp"
)

var update = flag.Bool("update", false, "write examples/deploy/seccomp.json anew")

// TestContainerProfile keeps the file that people give to Docker and Kubernetes
// the policy's.
func TestContainerProfile(t *testing.T) {
	const netlink = 16
	const file = "../../examples/deploy/seccomp.json"
	var want bytes.Buffer
	require.NoError(t, json.Indent(&want, []byte(seccomp.ContainerProfile()), "", "\t"))
	want.WriteByte('\n')
	if *update {
		require.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want.String(), string(got), "go test ./internal/seccomp -update writes it")

	type rule struct {
		Names []string
		Args  []struct {
			Value uint64
			Op    string
		}
	}
	var p struct{ Syscalls []rule }
	require.NoError(t, json.Unmarshal(got, &p))
	denied := func(name string, arg uint64) bool {
		return slices.ContainsFunc(p.Syscalls, func(r rule) bool {
			if !slices.Contains(r.Names, name) {
				return false
			}
			return len(r.Args) == 0 || r.Args[0].Op == "SCMP_CMP_EQ" && r.Args[0].Value == arg || r.Args[0].Op == "SCMP_CMP_GE" && r.Args[0].Value <= arg
		})
	}
	for _, name := range []string{"clone", "unshare", "mount", "umount2", "pivot_root", "sethostname"} {
		assert.False(t, denied(name, 0), "bubblewrap needs %s", name)
	}
	assert.False(t, denied("socket", netlink), "a loopback interface is set up through it")
	for _, n := range []uint64{11, netlink - 1, netlink + 1, 40} {
		assert.True(t, denied("socket", n), "family %d", n)
	}
	for _, name := range []string{"bpf", "ptrace", "setns", "kexec_load", "init_module", "io_uring_setup", "open_by_handle_at", "fsopen"} {
		assert.True(t, denied(name, 0), "%s is for no program, and not for bubblewrap", name)
	}
}
