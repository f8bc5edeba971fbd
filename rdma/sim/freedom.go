package sim

// Freedom is how much of the freedom that the contract of package rdma leaves
// to a fabric this one takes. What happens is drawn from the seed.
//
//   - Tearing: a READ or WRITE of several words is divided: a part of its lines,
//     and of one line the first words, at one time, the rest at another. With
//     Options.UnorderedLines a WRITE divides any line anyhow.
//   - Overtaking: a READ takes effect after requests posted behind it.
//   - Late placement: a WRITE is placed after its completion, unless a later
//     request of its queue pair forces it.
//   - Detours: a request, and those behind it on its queue pair, arrive later
//     than those of other queue pairs.
type Freedom uint8

// Degrees of freedom.
const (
	// FreedomMild takes every freedom now and then, within the time of a few
	// requests: what is measured stays as the profile has it. The default.
	FreedomMild Freedom = iota
	// FreedomNone takes none but the jitter of the profile.
	FreedomNone
	// FreedomHostile takes each for up to a third of the requests, within several
	// round trips. For looking for bugs.
	FreedomHostile
)

// String returns the name as on a command line.
func (d Freedom) String() string {
	switch d {
	case FreedomNone:
		return "none"
	case FreedomHostile:
		return "hostile"
	default:
		return "mild"
	}
}

// freedomTable: probabilities in 1/1024, and the time within which things
// happen, in ps.
type freedomTable struct {
	tear, overtake, late, detour uint64
	window                       int64
}

func (d Freedom) table() freedomTable {
	switch d {
	case FreedomNone:
		return freedomTable{}
	case FreedomHostile:
		return freedomTable{tear: 341, overtake: 341, late: 341, detour: 102, window: 8_000_000}
	default:
		return freedomTable{tear: 64, overtake: 32, late: 64, detour: 16, window: 300_000}
	}
}
