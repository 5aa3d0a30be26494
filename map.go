package fnloop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A Map is a map[string]V that a tool can take: strict mode has no maps, so in
// JSON it is a list of objects with a key and a value, in the order of the keys.
//
//	type headers struct {
//		Set fnloop.Map[string] `json:"set"`
//	}
//
// A key that occurs twice is an error. [NewTool] and [RunAs] take a Map
// wherever V itself could stand.
type Map[V any] map[string]V

// A mapEntry is one key and value of a Map in JSON.
type mapEntry[V any] struct {
	Key   string `json:"key"`
	Value V      `json:"value"`
}

// JSONSchemaAlias says that the schema of a Map is that of its list of keys and
// values.
func (Map[V]) JSONSchemaAlias() any { return []mapEntry[V]{} }

// MarshalJSON writes the list of keys and values. A nil Map is an empty list.
func (m Map[V]) MarshalJSON() ([]byte, error) {
	entries := make([]mapEntry[V], 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, mapEntry[V]{key, m[key]})
	}
	return json.Marshal(entries)
}

// UnmarshalJSON reads the list of keys and values. It makes a new map and leaves
// the old one alone; null makes a nil Map.
func (m *Map[V]) UnmarshalJSON(data []byte) error {
	var entries []mapEntry[V]
	if err := json.Unmarshal(data, &entries); err != nil {
		return err
	}
	if entries == nil {
		*m = nil
		return nil
	}
	made := make(Map[V], len(entries))
	for _, e := range entries {
		if _, twice := made[e.Key]; twice {
			return fmt.Errorf("the key %.80q occurs twice", e.Key)
		}
		made[e.Key] = e.Value
	}
	*m = made
	return nil
}
