package runtimecloud

import "time"

// The rates that Runtime published between 23 and 28 September 2026, in
// microdollars. Later pages name none.
const (
	microsPerVCPUHour = 25_000 // of measured CPU
	microsPerGiBHour  = 7_500  // of memory, for as long as the sandbox runs
)

// A Charge is what one run cost.
type Charge struct {
	// Sandbox is the ID of the sandbox and Run the value of its label "run".
	Sandbox, Run string
	// Micros is the amount in microdollars: 1,000,000 are one US dollar. It is
	// zero, and no estimate, where the account's included usage paid.
	Micros int64
	// Estimate reports that the API told no amount and Micros was computed from
	// the rates published in September 2026, as if every vCPU had been busy: the
	// most that the run can have cost by them.
	Estimate bool
	// Alive is how long the sandbox existed as seen from here, which is a little
	// longer than what is charged.
	Alive time.Duration
}

// estimate is the most that a sandbox costs that lives for alive, rounded up.
func estimate(vcpu int, memoryMiB int64, alive time.Duration) int64 {
	perHour := float64(vcpu)*microsPerVCPUHour + float64(memoryMiB)/1024*microsPerGiBHour
	micros := perHour * alive.Hours()
	if n := int64(micros); float64(n) == micros {
		return n
	}
	return int64(micros) + 1
}
