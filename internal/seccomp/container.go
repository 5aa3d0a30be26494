package seccomp

import "slices"

// sandboxing are what bubblewrap does before a program is there: it makes
// namespaces, a root and a name in them, and talks to the kernel about a loopback
// interface.
var sandboxing = []string{"clone", "unshare", "mount", "umount2", "pivot_root", "sethostname"}

// netlink is the family of sockets by which an interface is set up.
const netlink = 16

// ContainerProfile is a profile for a container in which bubblewrap makes
// sandboxes: [Profile] without what that needs. The programs in them have the
// whole policy before them.
func ContainerProfile() string {
	var rules []Rule
	for _, rule := range Policy {
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return slices.Contains(sandboxing, name) })
		if len(rule.Names) == 0 {
			continue
		}
		if slices.Contains(rule.Names, "socket") && rule.Args[0].Op == AtLeast && rule.Args[0].Index == 0 {
			for n := rule.Args[0].Value; n < netlink; n++ {
				rules = append(rules, family(Equal, n))
			}
			rule = family(AtLeast, netlink+1)
		}
		rules = append(rules, rule)
	}
	return document(rules)
}
