// Package limit has the bounds that all runners on this machine hold programs
// to, with one meaning and one set of defaults.
package limit

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// What the zero values of [Bounds] mean.
const (
	DefaultTime      = 10 * time.Second
	DefaultMemory    = 512 << 20
	DefaultPIDs      = 128
	DefaultTmp       = 64 << 20
	DefaultOpenFiles = 256
)

// The smallest bounds that an interpreter starts in.
const (
	MinMemory    = 32 << 20 // bytes
	MinOpenFiles = 16
)

// More than the kernel has numbers for, or by default allows.
const (
	maxPIDs      = 4<<20 - 1
	maxCPUs      = 8192
	maxOpenFiles = 1 << 20
)

// Bounds are the fields of a runner that bound its programs.
type Bounds struct {
	Time      time.Duration // of programs that bring none
	Memory    int64         // bytes; likewise
	PIDs      int           // processes and threads
	CPUs      float64       // processors to keep busy; zero stays zero
	Tmp       int64         // bytes; the size of /tmp and of /dev/shm
	OpenFiles int           // descriptors of each process
}

// Check reports whether the fields make sense: below zero is a mistake and not
// no limit.
func (b Bounds) Check() error {
	switch {
	case b.PIDs < 0 || b.PIDs > maxPIDs:
		return fmt.Errorf("PIDs is %d; it must be from 0 to %d", b.PIDs, maxPIDs)
	case !(b.CPUs >= 0 && b.CPUs <= maxCPUs):
		return fmt.Errorf("CPUs is %v; it must be from 0 to %d", b.CPUs, maxCPUs)
	case b.Tmp < 0:
		return fmt.Errorf("field Tmp is %d; it must not be negative", b.Tmp)
	case b.OpenFiles != 0 && (b.OpenFiles < MinOpenFiles || b.OpenFiles > maxOpenFiles):
		return fmt.Errorf("OpenFiles is %d; it must be 0 or from %d to %d", b.OpenFiles, MinOpenFiles, maxOpenFiles)
	}
	return nil
}

// Limits are those of a program with the defaults filled in.
func (b Bounds) Limits(l fnloop.Limits) fnloop.Limits {
	return fnloop.Limits{
		Time:   cmp.Or(l.Time, b.Time, DefaultTime),
		Memory: cmp.Or(l.Memory, b.Memory, DefaultMemory),
	}
}

// CheckProgram reports whether p can be run within limits if its language is
// there, as a [*fnloop.ProgramError] or nil. The machine has total bytes of memory, or zero
// where that is not known.
func (b Bounds) CheckProgram(p fnloop.Program, limits fnloop.Limits, total int64) error {
	p.Language = ""
	if err := p.Check(); err != nil {
		return err
	}
	switch room := b.Spec(limits.Memory).Tmp / 2; {
	case limits.Time < 0:
		return &fnloop.ProgramError{Field: "limits.time", Reason: fmt.Sprintf("%v is negative", limits.Time)}
	case limits.Memory < MinMemory:
		return &fnloop.ProgramError{Field: "limits.memory", Reason: fmt.Sprintf("%d bytes are less than the %d that Python needs", limits.Memory, int64(MinMemory))}
	case total > 0 && limits.Memory > total:
		return &fnloop.ProgramError{Field: "limits.memory", Reason: fmt.Sprintf("%d bytes are more than the %d that the host has", limits.Memory, total)}
	case int64(len(p.Source)) > room:
		return &fnloop.ProgramError{Field: "source", Reason: fmt.Sprintf("%d bytes are more than half of /tmp, %d", len(p.Source), room)}
	}
	return nil
}

// A Spec is what a sandbox is made to.
type Spec struct {
	Memory    int64 // bytes
	Tmp       int64 // bytes; of /tmp, and of /dev/shm
	PIDs      int   // beside the supervisor
	CPUs      float64
	OpenFiles int
}

// Spec is that of a sandbox with so much memory. The two writable directories
// count as memory, so they have at most a quarter of it each.
func (b Bounds) Spec(memory int64) Spec {
	return Spec{
		Memory:    memory,
		Tmp:       min(cmp.Or(b.Tmp, DefaultTmp), memory/4),
		PIDs:      cmp.Or(b.PIDs, DefaultPIDs),
		CPUs:      b.CPUs,
		OpenFiles: cmp.Or(b.OpenFiles, DefaultOpenFiles),
	}
}

// Rlimits are for the supervisor to set for the program: it may itself need
// more than they allow.
func (s Spec) Rlimits() supervisor.Rlimits {
	return supervisor.Rlimits{
		"core":   0,
		"fsize":  s.Tmp,
		"nofile": int64(s.OpenFiles),
		"stack":  8 << 20,
	}
}
