package tatp

import (
	"fmt"

	"txnode/benchmarks/workload"
)

// Options are the parameters of the benchmark. Start from DefaultOptions: the
// zero value is not valid.
type Options struct {
	// Subscribers is the number of subscribers. Default 100,000; at least 1.
	Subscribers int
	// NonUniformA is the constant A of TATP's non-uniform distribution: each bit
	// of A that is set makes subscribers more frequent whose number has it set.
	// Default AutoA; 0 draws uniformly.
	NonUniformA int
	// Mix is the percentage of each transaction type, in the order of the type
	// numbers. They sum to 100. Default 35, 10, 35, 2, 14, 2, 2.
	Mix [NumTypes]float64
	// FORDRules makes GetNewDestination and InsertCallForwarding do what FORD's
	// program does, for comparisons of verbs; see the package documentation.
	// Default false: TATP's rules.
	FORDRules bool
}

// AutoA as Options.NonUniformA stands for the value that TATP prescribes for the
// number of subscribers.
const AutoA = -1

const (
	maxSubscribers = 1 << 31
	maxA           = 1<<31 - 1
)

// DefaultOptions returns FORD's parameters, with TATP's rules.
func DefaultOptions() Options {
	return Options{
		Subscribers: 100_000,
		NonUniformA: AutoA,
		Mix:         [NumTypes]float64{35, 10, 35, 2, 14, 2, 2},
	}
}

// Validate returns nil, or an *workload.OptionsError that lists every fault.
func (o *Options) Validate() error {
	var faults []string
	if o.Subscribers < 1 || o.Subscribers > maxSubscribers {
		faults = append(faults, fmt.Sprintf("Subscribers is %d; it must be from 1 to %d",
			o.Subscribers, maxSubscribers))
	}
	if o.NonUniformA < AutoA || o.NonUniformA > maxA {
		faults = append(faults,
			fmt.Sprintf("NonUniformA is %d; it must be from 0 to %d, or %d to choose it by the number of subscribers",
				o.NonUniformA, maxA, AutoA))
	}
	if err := workload.CheckMix(o.Mix[:]); err != nil {
		faults = append(faults, fmt.Sprintf("Mix: %v", err))
	}
	if faults != nil {
		return &workload.OptionsError{Of: "tatp", Faults: faults}
	}
	return nil
}

// nonUniformA returns A as a number to AND with.
func (o *Options) nonUniformA() uint32 {
	switch {
	case o.NonUniformA != AutoA:
		return uint32(o.NonUniformA)
	case o.Subscribers <= 1_000_000:
		return 65_535
	case o.Subscribers <= 10_000_000:
		return 1_048_575
	}
	return 2_097_151
}
