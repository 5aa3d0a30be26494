package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// findCgroups gives what comes before and after the identifier of a container in
// the path of its memory cgroup, of version 1, if its engine is on this machine.
// No other cgroup has such an identifier in its name.
func findCgroups(id string) (before, after string, ok bool) {
	for _, depth := range []string{"", "*/", "*/*/", "*/*/*/"} {
		for _, name := range []string{id, "docker-" + id + ".scope"} {
			found, err := filepath.Glob("/sys/fs/cgroup/memory/" + depth + name)
			if err == nil && len(found) == 1 {
				before, after, ok = strings.Cut(found[0], id)
				return before, after, ok
			}
		}
	}
	return "", "", false
}

// boundSockets bounds the memory that sockets of a cgroup hold, which version 1
// counts apart. Who is not root may not.
func boundSockets(cgroup string, memory int64) bool {
	f, err := os.OpenFile(filepath.Join(cgroup, "memory.kmem.tcp.limit_in_bytes"), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_, err = f.WriteString(strconv.FormatInt(memory, 10))
	return f.Close() == nil && err == nil
}
