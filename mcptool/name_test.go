package mcptool_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fnloop/fnloop/mcptool"
)

func TestToolName(t *testing.T) {
	long := strings.Repeat("n", 80)
	for _, c := range []struct{ server, tool, want string }{
		{"files", "read_file", "files__read_file"},
		{"a-b", "c__d", "a-b__c__d"},
		{"a", "_b", "a___b"},
		{"files", "fs.read file", "files__fs_read_file_74e5daea"},
		{"files", "fs/read.file", "files__fs_read_file_953de80a"},
		{"suche", "搜索", "suche_____10e29de0"},
		{"files", long, "files__" + strings.Repeat("n", 48) + "_e3486135"},
	} {
		got := mcptool.ToolName(c.server, c.tool)
		assert.Equal(t, c.want, got)
		assert.Equal(t, got, mcptool.ToolName(c.server, c.tool))
	}
}

func FuzzToolName(f *testing.F) {
	legal := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	f.Add("files", "read_file", "read.file")
	f.Add("a-b_c", "🙂", "🙃")
	f.Add("a", strings.Repeat("é", 90), strings.Repeat("é", 91))
	f.Fuzz(func(t *testing.T, server, one, other string) {
		if !regexp.MustCompile(`^[A-Za-z0-9-]{1,32}$`).MatchString(server) {
			return
		}
		a, b := mcptool.ToolName(server, one), mcptool.ToolName(server, other)
		if !legal.MatchString(a) || !strings.HasPrefix(a, server+"__") {
			t.Errorf("%q is no name of a tool of %q", a, server)
		}
		if one != other && a == b {
			t.Errorf("%q and %q are both %q", one, other, a)
		}
	})
}
