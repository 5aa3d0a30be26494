package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findCgroups gives what comes before and after the identifier of a container in
// the path of its cgroup, if its engine is on this machine. No other cgroup has
// such an identifier in its name.
func findCgroups(id string) (before, after string, ok bool) {
	for _, root := range []string{"/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"} { // version 1 and 2
		for _, depth := range []string{"", "*/", "*/*/", "*/*/*/"} {
			for _, name := range []string{id, "docker-" + id + ".scope"} {
				found, err := filepath.Glob(root + depth + name)
				if err == nil && len(found) > 0 {
					return strings.Cut(found[0], id)
				}
			}
		}
	}
	return "", "", false
}

// boundSockets bounds the memory that sockets of a cgroup hold, which version 1
// counts apart. Who is not root may not.
func boundSockets(cgroup string, memory int64) bool {
	return write(filepath.Join(cgroup, "memory.kmem.tcp.limit_in_bytes"), strconv.FormatInt(memory, 10))
}

// killCgroup kills every process in a cgroup, whose last directory has the
// container's identifier in its name, and reports whether it could.
func killCgroup(cgroup, id string) bool {
	if write(filepath.Join(cgroup, "cgroup.kill"), "1") {
		return true
	}
	// The first of a container ends the others; they are killed all the same, as
	// it needs a turn for that.
	killed := false
	for range 3 {
		pids, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
		if err != nil {
			break
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			killed = killMember(pid, id) || killed
		}
	}
	return killed
}

// killMember kills a process, unless its number has become another's which is in
// no cgroup of that name.
func killMember(number, id string) bool {
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	in, err := os.ReadFile("/proc/" + number + "/cgroup")
	return err == nil && strings.Contains(string(in), id) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

func write(file, text string) bool {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_, err = f.WriteString(text)
	return f.Close() == nil && err == nil
}
