package seccomp

import "encoding/json"

type profile struct {
	DefaultAction string        `json:"defaultAction"`
	Architectures []string      `json:"architectures"`
	Syscalls      []profileRule `json:"syscalls"`
}

type profileRule struct {
	Names    []string     `json:"names"`
	Action   string       `json:"action"`
	ErrnoRet int          `json:"errnoRet"`
	Args     []profileArg `json:"args,omitempty"`
}

type profileArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// Profile is the policy as a seccomp profile for Docker and Podman.
func Profile() string { return document(Policy) }

func document(rules []Rule) string {
	p := profile{
		DefaultAction: "SCMP_ACT_ALLOW",
		Architectures: []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"},
	}
	for _, rule := range rules {
		r := profileRule{Names: rule.Names, Action: "SCMP_ACT_ERRNO", ErrnoRet: rule.Errno}
		for _, arg := range rule.Args {
			a := profileArg{Index: arg.Index, Value: arg.Value}
			switch arg.Op {
			case Equal:
				a.Op = "SCMP_CMP_EQ"
			case NotEqual:
				a.Op = "SCMP_CMP_NE"
			case AtLeast:
				a.Op = "SCMP_CMP_GE"
			case MaskedEqual:
				// libseccomp wants the mask first.
				a.Op, a.Value, a.ValueTwo = "SCMP_CMP_MASKED_EQ", arg.Mask, arg.Value
			}
			r.Args = append(r.Args, a)
		}
		p.Syscalls = append(p.Syscalls, r)
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers cannot fail
	}
	return string(b)
}
