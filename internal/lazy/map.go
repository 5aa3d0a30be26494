package lazy

import "sync"

// A Map has a [Value] for each key. Its zero value is empty and safe for
// concurrent use.
type Map[T any] struct {
	mu  sync.Mutex
	all map[string]*Value[T]
}

// Value gives that of a key.
func (m *Map[T]) Value(key string) *Value[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[string]*Value[T])
	}
	if m.all[key] == nil {
		m.all[key] = new(Value[T])
	}
	return m.all[key]
}

// Close closes all values, and gives those that were opened for the caller to
// close.
func (m *Map[T]) Close() (opened []T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.all {
		if value, ok := v.Close(); ok {
			opened = append(opened, value)
		}
	}
	return opened
}
