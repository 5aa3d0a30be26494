package capacity_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop/internal/capacity"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/capacity.md")

const page = "../../docs/capacity.md"

// The tables of the page are what the simulation says of the measured figures.
func TestTables(t *testing.T) {
	m, err := capacity.ReadMeasured()
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	tables := m.Tables()
	place := regexp.MustCompile(`(?s)(<!-- table (\w+) -->\n).*?(<!-- end -->)`)
	shown := 0
	got := place.ReplaceAllFunc(text, func(old []byte) []byte {
		parts := place.FindSubmatch(old)
		table, ok := tables[string(parts[2])]
		assert.True(t, ok, "there is no table %s", parts[2])
		shown++
		return bytes.Join([][]byte{parts[1], []byte("\n" + table + "\n"), parts[3]}, nil)
	})
	assert.Equal(t, len(tables), shown, "each table is shown once")
	if *update {
		require.NoError(t, os.WriteFile(page, got, 0o644))
		return
	}
	assert.Equal(t, string(text), string(got), "go test ./internal/capacity -update rewrites the tables")
}

// given is figures that are easy to count with.
func given() capacity.Measured {
	m := capacity.Measured{}
	for name, value := range map[string]float64{
		"run_cpu_ms": 0, "program_host_ms": 0, "cell_host_ms": 0, "delta_cpu_us": 0, "program_cpu_ms": 1000, "cell_cpu_ms": 100, "session_cpu_ms": 0,
		"base_mib": 100, "chat_kib": 1024, "session_mib": 10, "program_mib": 20,
		"write_ms": 0, "write_cpu_ms": 1, "run_statements": 5, "call_statements": 2, "run_wal_kib": 4, "call_wal_kib": 1,
	} {
		m.Figures = append(m.Figures, capacity.Figure{Name: name, Value: value})
	}
	return m
}

func host() capacity.Host {
	return capacity.Host{Processors: 4, MaxPrograms: 16, MaxSessions: 1000, Idle: time.Minute, Connections: 10}
}

// What can be said without a simulation it has to say too.
func TestSimulate(t *testing.T) {
	talk := capacity.Load{Chats: 100, Think: 8 * time.Second, Text: 2 * time.Second}
	t.Run("think and text alone give the rate", func(t *testing.T) {
		r := capacity.Simulate(given(), talk, host(), 10*time.Minute, 1)
		assert.InDelta(t, 10, r.Messages, 0.5, "100 chats, one message in ten seconds each")
		assert.InDelta(t, 20, r.Waiting, 2, "Little's law")
		assert.Equal(t, 2*time.Second, r.P50)
		assert.InDelta(t, 5*r.Messages, r.Statements, 1)
		assert.InDelta(t, 4*r.Messages, r.WALKiB, 1)
		assert.InDelta(t, 130, r.MemoryMiB, 8, "the process, and a MiB for each of up to 30 runs")
	})
	t.Run("programs share the processors", func(t *testing.T) {
		l := talk
		l.Programs, l.Chats = 1, 200
		r := capacity.Simulate(given(), l, host(), 10*time.Minute, 1)
		assert.InDelta(t, 4, r.Programs, 0.1, "all are busy")
		assert.InDelta(t, 4, r.Messages, 0.2, "a second each")
		assert.Greater(t, r.Wait95, 20*time.Second, "they wait for one of the 16 places")
	})
	t.Run("with room a program takes its own time", func(t *testing.T) {
		l := talk
		l.Programs, l.Chats = 1, 10
		r := capacity.Simulate(given(), l, host(), 10*time.Minute, 1)
		assert.InDelta(t, 3, r.P50.Seconds(), 0.05)
		assert.Zero(t, r.Wait95)
	})
	t.Run("sessions are kept", func(t *testing.T) {
		l := talk
		l.Cells = 1
		r := capacity.Simulate(given(), l, host(), 10*time.Minute, 1)
		assert.Less(t, r.Lost, 0.02, "few people think for more than a minute")
		assert.InDelta(t, 100, r.Sessions, 2)
	})
	t.Run("sessions are evicted", func(t *testing.T) {
		l, h := talk, host()
		l.Cells, h.MaxSessions = 1, 10
		r := capacity.Simulate(given(), l, h, 10*time.Minute, 1)
		assert.Greater(t, r.Lost, 0.8)
		assert.LessOrEqual(t, r.Sessions, 10.0)
	})
	t.Run("sessions end idle", func(t *testing.T) {
		l, h := talk, host()
		l.Cells, h.Idle = 1, time.Second
		r := capacity.Simulate(given(), l, h, 10*time.Minute, 1)
		assert.Greater(t, r.Lost, 0.8)
		assert.Less(t, r.Sessions, 20.0)
	})
	t.Run("a slow database holds messages up", func(t *testing.T) {
		m, h := given(), host()
		for i := range m.Figures {
			if m.Figures[i].Name == "write_ms" {
				m.Figures[i].Value = 1000
			}
		}
		h.Connections = 2
		r := capacity.Simulate(m, talk, h, 10*time.Minute, 1)
		assert.InDelta(t, 1, r.Messages, 0.1, "two writes of a second for each, two at a time")
	})
	t.Run("the same seed gives the same", func(t *testing.T) {
		l := talk
		l.Programs, l.Cells = 0.3, 0.7
		assert.Equal(t, capacity.Simulate(given(), l, host(), time.Minute, 3), capacity.Simulate(given(), l, host(), time.Minute, 3))
		assert.NotEqual(t, capacity.Simulate(given(), l, host(), time.Minute, 3), capacity.Simulate(given(), l, host(), time.Minute, 4))
	})
}
