package sim

import "time"

// FaultPlan draws faults from a seed.
type FaultPlan struct {
	Threads  int           // stop, lose, drop, late, delay and tear hit threads 0 to Threads-1
	Blades   int           // slow, partition and restart hit blades 0 to Blades-1
	Computes int           // kill, pause, trouble and clock hit compute blades 1 to Computes
	Verbs    uint64        // at a verb from 1 to Verbs
	Span     time.Duration // or at a time from 0 to Span
	N        int           // how many
	// Kinds to draw from, with equal chances; nil: those that hit threads and blades, but for stop
	// and restart, which end something for good.
	Kinds []FaultKind
}

// Draw returns the plan's faults for a seed. What lasts, lasts at most a tenth of
// the span. A blade restarts with its memory.
func (p FaultPlan) Draw(seed uint64) []Fault {
	kinds := p.Kinds
	if kinds == nil {
		kinds = []FaultKind{FaultLose, FaultDrop, FaultLate, FaultDelay, FaultTear, FaultSlow, FaultPartition}
	}
	s := mix64(seed ^ 0xfa17)
	below := func(n uint64) uint64 { return splitmix64(&s) % max(n, 1) }
	var out []Fault
	for range p.N {
		x := Fault{
			Kind: kinds[below(uint64(len(kinds)))], Thread: int(below(uint64(p.Threads))),
			Verb: 1 + below(p.Verbs), Memory: true,
		}
		at, length := time.Duration(below(uint64(p.Span))), time.Duration(1+below(uint64(p.Span/10)))
		switch x.Kind {
		case FaultDelay, FaultTear:
			x.By = time.Duration(1 + below(20_000))
		case FaultLate:
			x.By = time.Duration(1 + below(uint64(p.Span)))
		case FaultCatalog:
			x.Thread, x.Verb, x.At, x.For = -1, 0, at, length
		case FaultKill:
			x.Thread, x.Verb, x.Compute, x.At = -1, 0, 1+int(below(uint64(p.Computes))), at+1
		case FaultClock:
			x.Thread, x.Verb, x.Compute, x.X = -1, 0, 1+int(below(uint64(p.Computes))), float64(900+below(200))/1000
		case FaultTrouble:
			x.Thread, x.Verb, x.Compute, x.At, x.For = -1, 0, 1+int(below(uint64(p.Computes))), at, length
			x.Why = Whys[below(uint64(len(Whys)))]
		case FaultPause:
			x.Thread, x.Verb, x.Compute, x.At, x.For = -1, 0, 1+int(below(uint64(p.Computes))), at, length
		case FaultSlow, FaultPartition, FaultRestart:
			x.Thread, x.Verb = -1, 0
			x.Blade, x.At, x.For = int(below(uint64(p.Blades))), at, length
			if x.Kind == FaultSlow {
				x.X = float64(2 + below(19))
			}
			if x.Kind == FaultPartition && below(2) == 0 {
				x.Thread = int(below(uint64(p.Threads)))
			}
		}
		x.Memory = x.Kind == FaultRestart
		out = append(out, x)
	}
	return out
}
