package docker

import "sync"

// cgroups are those of the containers, where this process may do with them what
// the engine does not do, or later.
type cgroups struct {
	mu            sync.Mutex
	known         bool
	here          bool   // on this machine
	before, after string // of the identifier, in the path of a container's cgroup
	sockets       bool   // what the sockets of all containers hold is bounded
}

// enter finds out where the cgroup of a container is that was started. On
// version 1 it bounds what its sockets hold.
func (c *cgroups) enter(id, version string, memory int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.known = true
		c.before, c.after, c.here = findCgroups(id)
		c.sockets = true
	}
	if version != "2" {
		c.sockets = c.sockets && c.here && boundSockets(c.before+id+c.after, memory)
	}
}

// bounded reports whether what sockets hold is bounded.
func (c *cgroups) bounded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sockets
}

// kill kills all processes of a container, and reports whether it could. The
// engine starts a program for that, which takes its time on a busy machine.
func (c *cgroups) kill(id string) bool {
	c.mu.Lock()
	here, cgroup := c.here, c.before+id+c.after
	c.mu.Unlock()
	return here && id != "" && killCgroup(cgroup, id)
}
