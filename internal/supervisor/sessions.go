package supervisor

import "sync"

// Sessions are those of one runner that are open. Its zero value is ready and
// safe for concurrent use.
type Sessions struct {
	mu     sync.Mutex
	open   map[*Session]bool
	closed bool
}

// Add counts s in until its Close. After Close of the Sessions it closes s and
// reports false.
func (o *Sessions) Add(s *Session) bool {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		_ = s.Close()
		return false
	}
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[*Session]bool)
	}
	o.open[s] = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = o
	return true
}

func (o *Sessions) drop(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, s)
}

// Close closes all that are open.
func (o *Sessions) Close() {
	o.mu.Lock()
	o.closed = true
	all := make([]*Session, 0, len(o.open))
	for s := range o.open {
		all = append(all, s)
	}
	o.mu.Unlock()
	var work sync.WaitGroup
	for _, s := range all {
		work.Go(func() { _ = s.Close() })
	}
	work.Wait()
}
