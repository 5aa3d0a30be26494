package seccomp

import (
	"encoding/binary"
	"fmt"
)

// Instructions of the classic BPF machine, as in linux/filter.h.
const (
	load   = 0x20 // A = the word at k
	and    = 0x54 // A &= k
	jump   = 0x05
	jumpEQ = 0x15
	jumpGT = 0x25
	jumpGE = 0x35
	ret    = 0x06
)

// Verdicts, as in linux/seccomp.h.
const (
	allow = 0x7fff0000
	errno = 0x00050000
)

// Where struct seccomp_data has its fields. Arguments are low word first, as
// both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32 marks the system calls of the third ABI of x86-64.
const x32 = 0x40000000

// An instruction is one struct sock_filter.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// architectures are those that the policy has numbers for.
var architectures = map[string]struct {
	audit  uint32 // AUDIT_ARCH_*
	column int    // in numbers
}{
	"amd64": {0xc000003e, 0},
	"arm64": {0xc00000b7, 1},
}

// Program is the policy as a filter for the kernel: an array of struct
// sock_filter for an architecture by its name in Go. System calls of any other
// architecture, which the same kernel may take as well, do not exist for the
// program.
func Program(goarch string) ([]byte, error) {
	filter, err := assemble(goarch)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(filter)*8)
	for _, in := range filter {
		b = binary.LittleEndian.AppendUint16(b, in.code)
		b = append(b, in.jt, in.jf)
		b = binary.LittleEndian.AppendUint32(b, in.k)
	}
	return b, nil
}

func assemble(goarch string) ([]instruction, error) {
	arch, ok := architectures[goarch]
	if !ok {
		return nil, fmt.Errorf("seccomp: no policy for the architecture %q", goarch)
	}
	f := []instruction{
		{load, 0, 0, offArch},
		{jumpEQ, 1, 0, arch.audit},
		{ret, 0, 0, errno | enosys},
		{load, 0, 0, offNumber},
	}
	if goarch == "amd64" {
		f = append(f, instruction{jumpGE, 0, 1, x32}, instruction{ret, 0, 0, errno | enosys})
	}
	for _, rule := range Policy {
		for _, name := range rule.Names {
			number, known := numbers[name]
			if !known {
				return nil, fmt.Errorf("seccomp: no number for %q", name)
			}
			if number[arch.column] == none {
				continue
			}
			body := verdict(rule)
			f = append(f, instruction{jumpEQ, 0, uint8(len(body)), number[arch.column]})
			f = append(f, body...)
		}
	}
	return append(f, instruction{ret, 0, 0, allow}), nil
}

// verdict is what follows the test for the number: it returns the rule's error
// if all conditions hold, or falls out of its end with the number in A.
func verdict(rule Rule) []instruction {
	deny := instruction{ret, 0, 0, errno | uint32(rule.Errno)}
	if len(rule.Args) == 0 {
		return []instruction{deny}
	}
	// Each condition is made to fall through where it holds and to jump to the
	// end where it does not; miss marks those jumps until the end is known.
	const miss = 0xff
	var body []instruction
	for _, arg := range rule.Args {
		low, high := uint32(arg.Value), uint32(arg.Value>>32)
		lowAt, highAt := uint32(offArgs+8*arg.Index), uint32(offArgs+8*arg.Index+4)
		switch arg.Op {
		case Equal:
			body = append(body,
				instruction{load, 0, 0, highAt}, instruction{jumpEQ, 0, miss, high},
				instruction{load, 0, 0, lowAt}, instruction{jumpEQ, 0, miss, low})
		case MaskedEqual:
			body = append(body,
				instruction{load, 0, 0, highAt}, instruction{and, 0, 0, uint32(arg.Mask >> 32)}, instruction{jumpEQ, 0, miss, high},
				instruction{load, 0, 0, lowAt}, instruction{and, 0, 0, uint32(arg.Mask)}, instruction{jumpEQ, 0, miss, low})
		case NotEqual:
			body = append(body,
				instruction{load, 0, 0, highAt}, instruction{jumpEQ, 0, 2, high},
				instruction{load, 0, 0, lowAt}, instruction{jumpEQ, miss, 0, low})
		case AtLeast:
			body = append(body,
				instruction{load, 0, 0, highAt}, instruction{jumpGT, 3, 0, high}, instruction{jumpEQ, 0, miss, high},
				instruction{load, 0, 0, lowAt}, instruction{jumpGE, 0, miss, low})
		}
	}
	body = append(body, deny)
	for i := range body {
		if body[i].code&0x07 != jump {
			continue
		}
		end := uint8(len(body) - i - 1)
		if body[i].jt == miss {
			body[i].jt = end
		}
		if body[i].jf == miss {
			body[i].jf = end
		}
	}
	return append(body, instruction{load, 0, 0, offNumber})
}
