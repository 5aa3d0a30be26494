package seccomp

import (
	"encoding/json"
	"slices"
	"testing"
)

// run is the kernel's machine, as far as the filters go.
func run(t *testing.T, filter []instruction, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	word := func(at uint32) uint32 {
		switch {
		case at == offNumber:
			return number
		case at == offArch:
			return arch
		}
		i := (at - offArgs) / 8
		if int(i) >= len(args) {
			return 0
		}
		if (at-offArgs)%8 == 4 {
			return uint32(args[i] >> 32)
		}
		return uint32(args[i])
	}
	var a uint32
	for pc := 0; pc < len(filter); pc++ {
		in := filter[pc]
		branch := func(taken bool) {
			if taken {
				pc += int(in.jt)
			} else {
				pc += int(in.jf)
			}
		}
		switch in.code {
		case load:
			a = word(in.k)
		case and:
			a &= in.k
		case jumpEQ:
			branch(a == in.k)
		case jumpGT:
			branch(a > in.k)
		case jumpGE:
			branch(a >= in.k)
		case ret:
			return in.k
		default:
			t.Fatalf("instruction %d has the code %#x", pc, in.code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	const x86, arm = 0xc000003e, 0xc00000b7
	tests := []struct {
		name   string
		goarch string
		arch   uint32
		number uint32
		args   []uint64
		want   uint32
	}{
		{"read", "amd64", x86, 0, nil, allow},
		{"io_setup", "amd64", x86, 206, nil, errno | enosys},
		{"io_setup", "arm64", arm, 0, nil, errno | enosys},
		{"mmap", "amd64", x86, 9, []uint64{0, 1 << 21, 3, 0x22}, allow},
		{"mmap of huge pages", "amd64", x86, 9, []uint64{0, 1 << 21, 3, 0x40022}, errno | eperm},
		{"mmap of large huge pages", "arm64", arm, 222, []uint64{0, 1 << 30, 3, 0x78040022}, errno | eperm},
		{"memfd", "amd64", x86, 319, []uint64{4096, 1}, allow},
		{"memfd of huge pages", "arm64", arm, 279, []uint64{4096, 5}, errno | eperm},
		{"ptrace", "amd64", x86, 101, nil, errno | eperm},
		{"ptrace", "arm64", arm, 117, nil, errno | eperm},
		{"clone3", "amd64", x86, 435, nil, errno | enosys},
		{"fork by clone", "amd64", x86, 56, []uint64{0x1200011}, allow},
		{"thread by clone", "amd64", x86, 56, []uint64{0x3d0f00}, allow},
		{"clone with a user namespace", "amd64", x86, 56, []uint64{0x10000011}, errno | eperm},
		{"clone with a network namespace", "arm64", arm, 220, []uint64{0x40000011}, errno | eperm},
		{"i386", "amd64", 0x40000003, 11, nil, errno | enosys},
		{"x32", "amd64", x86, x32 | 59, nil, errno | enosys},
		{"32-bit ARM", "arm64", 0x40000028, 11, nil, errno | enosys},
		{"UNIX socket", "amd64", x86, 41, []uint64{1, 1}, allow},
		{"INET socket", "amd64", x86, 41, []uint64{2, 1}, allow},
		{"INET6 socket", "arm64", arm, 198, []uint64{10, 1}, allow},
		{"NETLINK socket", "amd64", x86, 41, []uint64{16, 3}, errno | eafnosupport},
		{"ALG socket", "amd64", x86, 41, []uint64{38, 5}, errno | eafnosupport},
		{"VSOCK socket", "amd64", x86, 41, []uint64{40, 1}, errno | eafnosupport},
		{"ALG socket with bits that the kernel drops", "amd64", x86, 41, []uint64{1<<32 | 38, 5}, errno | eafnosupport},
		{"low family with bits that the kernel drops", "amd64", x86, 41, []uint64{1<<32 | 5, 5}, errno | eafnosupport},
		{"TCP", "amd64", x86, 41, []uint64{2, 1, 6}, allow},
		{"ICMPv6", "amd64", x86, 41, []uint64{10, 2, 58}, allow},
		{"DCCP", "amd64", x86, 41, []uint64{2, 6, 33}, errno | eprotonosupport},
		{"SCTP", "arm64", arm, 198, []uint64{2, 1, 132}, errno | eprotonosupport},
		{"SCTP with bits that the kernel drops", "amd64", x86, 41, []uint64{2, 1, 1<<32 | 132}, errno | eprotonosupport},
		{"MPTCP", "amd64", x86, 41, []uint64{10, 1, 262}, errno | eprotonosupport},
		{"unspecified socket", "amd64", x86, 41, []uint64{0, 1}, errno | eafnosupport},
		{"TIOCSTI", "amd64", x86, 16, []uint64{0, 0x5412}, errno | eperm},
		{"TIOCSTI with bits that the kernel drops", "amd64", x86, 16, []uint64{0, 1<<32 | 0x5412}, errno | eperm},
		{"TCGETS", "amd64", x86, 16, []uint64{0, 0x5401}, allow},
		{"lease", "amd64", x86, 72, []uint64{3, 1024, 1}, errno | eperm},
		{"lease with bits that the kernel drops", "arm64", arm, 25, []uint64{3, 1<<32 | 1024, 1}, errno | eperm},
		{"delegation", "amd64", x86, 72, []uint64{3, 1040, 0x7fff0000}, errno | eperm},
		{"asking for a lease", "amd64", x86, 72, []uint64{3, 1025}, allow},
		{"duplicating", "arm64", arm, 25, []uint64{3, 1030, 10}, allow},
		{"own limit", "amd64", x86, 302, []uint64{0, 7, 0x7fff0000, 0}, allow},
		{"reading another's limit", "amd64", x86, 302, []uint64{1, 7, 0, 0x7fff0000}, allow},
		{"setting another's limit", "amd64", x86, 302, []uint64{1, 7, 0x7fff0000, 0}, errno | eperm},
		{"setting the scheduler of the supervisor", "amd64", x86, 144, []uint64{1, 5}, errno | eperm},
		{"setting the scheduler of 1 with bits that the kernel drops", "amd64", x86, 144, []uint64{1<<32 | 1, 5}, errno | eperm},
		{"setting one's own scheduler", "amd64", x86, 144, []uint64{0, 5}, allow},
		{"setting the scheduler of a child", "arm64", arm, 119, []uint64{17, 5}, allow},
		{"setting the supervisor's parameters", "arm64", arm, 118, []uint64{1}, errno | eperm},
		{"setting the supervisor's attributes", "arm64", arm, 274, []uint64{7<<32 | 1}, errno | eperm},
		{"setting the supervisor's processors", "amd64", x86, 203, []uint64{1, 8}, errno | eperm},
		{"setting one's own processors", "arm64", arm, 122, []uint64{0, 8}, allow},
		{"nice of oneself", "amd64", x86, 141, []uint64{0, 0, 19}, allow},
		{"nice of a child", "amd64", x86, 141, []uint64{0, 17, 19}, allow},
		{"nice of the supervisor", "amd64", x86, 141, []uint64{0, 1, 19}, errno | eperm},
		{"nice of the supervisor with bits that the kernel drops", "arm64", arm, 140, []uint64{1 << 32, 1<<63 | 1, 19}, errno | eperm},
		{"nice of one's own group", "amd64", x86, 141, []uint64{1, 0, 19}, errno | eperm},
		{"nice of the supervisor's group", "amd64", x86, 141, []uint64{1<<32 | 1, 1, 19}, errno | eperm},
		{"nice of the user", "arm64", arm, 140, []uint64{2, 0, 19}, errno | eperm},
		{"I/O priority of oneself", "amd64", x86, 251, []uint64{1, 0, 3 << 13}, allow},
		{"I/O priority of the supervisor", "amd64", x86, 251, []uint64{1, 1, 3 << 13}, errno | eperm},
		{"I/O priority of the group", "arm64", arm, 30, []uint64{2, 0, 3 << 13}, errno | eperm},
		{"I/O priority of the user", "arm64", arm, 30, []uint64{3, 65534, 3 << 13}, errno | eperm},
		{"PR_SCHED_CORE", "amd64", x86, 157, []uint64{62, 1, 0}, errno | eperm},
		{"PR_SET_NAME", "arm64", arm, 167, []uint64{15}, allow},
		{"setting another's limit from high memory", "amd64", x86, 302, []uint64{1, 7, 0x7fff00000000, 0}, errno | eperm},
	}
	for _, test := range tests {
		t.Run(test.goarch+"/"+test.name, func(t *testing.T) {
			filter, err := assemble(test.goarch)
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, filter, test.arch, test.number, test.args...); got != test.want {
				t.Errorf("verdict = %#x, want %#x", got, test.want)
			}
		})
	}
}

func TestFilterIsLegal(t *testing.T) {
	for goarch := range architectures {
		filter, err := assemble(goarch)
		if err != nil {
			t.Fatal(err)
		}
		if len(filter) > 4096 {
			t.Errorf("%s: %d instructions, the kernel takes 4096", goarch, len(filter))
		}
		for i, in := range filter {
			if in.code&7 == jump && (i+1+int(in.jt) >= len(filter) || i+1+int(in.jf) >= len(filter)) {
				t.Errorf("%s: instruction %d jumps out of the filter", goarch, i)
			}
		}
		b, err := Program(goarch)
		if err != nil || len(b) != 8*len(filter) {
			t.Errorf("Program(%q) = %d bytes, %v", goarch, len(b), err)
		}
	}
	if _, err := Program("mips"); err == nil {
		t.Error("Program() made a filter for an architecture that the policy has no numbers for")
	}
}

// libseccomp, which Docker's profiles are made for, takes no two conditions on
// one argument in one rule.
func TestRulesAreExpressible(t *testing.T) {
	for _, rule := range Policy {
		var seen []uint
		for _, arg := range rule.Args {
			if slices.Contains(seen, arg.Index) {
				t.Errorf("the rule for %v has two conditions on argument %d", rule.Names, arg.Index)
			}
			seen = append(seen, arg.Index)
		}
		for _, name := range rule.Names {
			if n, ok := numbers[name]; !ok || n == [2]uint32{} {
				t.Errorf("%s has no number", name)
			}
		}
	}
}

func TestProfile(t *testing.T) {
	var p profile
	if err := json.Unmarshal([]byte(Profile()), &p); err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != "SCMP_ACT_ALLOW" || len(p.Syscalls) != len(Policy) {
		t.Fatalf("Profile() has the default %s and %d rules for %d", p.DefaultAction, len(p.Syscalls), len(Policy))
	}
	for i, rule := range p.Syscalls {
		if !slices.Equal(rule.Names, Policy[i].Names) || rule.ErrnoRet != Policy[i].Errno || len(rule.Args) != len(Policy[i].Args) {
			t.Errorf("rule %d is %+v, want that for %+v", i, rule, Policy[i])
		}
	}
}
