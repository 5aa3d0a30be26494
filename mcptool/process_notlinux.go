//go:build !linux

package mcptool

// unread is not known on this system.
func (p *process) unread() (n int, known bool) { return 0, false }
