package members

import (
	"slices"

	"txnode/memory/layout"
	"txnode/rdma"
)

// State is what is known of a blade.
type State uint8

// States of a blade.
const (
	Unasked State = iota // no member that is alive has begun a round
	Asked                // a round has begun, and members have not answered
	Heard                // a member hears it
	Gone                 // no member can reach it
)

// String returns the word.
func (s State) String() string { return [...]string{"unasked", "asked", "heard", "gone"}[s] }

// Judgement is what the members say of a blade.
type Judgement struct {
	State  State
	Round  uint32   // of the questions; 0: there is none
	Hears  []uint32 // members that hear the blade, in this round
	Absent []uint32 // members that have not answered
}

// Waits reports whether the answer of a member is waited for.
func (j Judgement) Waits(member uint32) bool { return slices.Contains(j.Absent, member) }

// Judge says how things stand with a blade, when those processes are alive whose leases have not
// ended. A process that has resigned is not alive.
func Judge(l *layout.Layout, b rdma.BladeID, ended func(process uint32) bool) Judgement {
	says := func(member uint32) (s layout.Sight) {
		for _, s := range l.Sights {
			if s.Member == member && s.Blade == b {
				return s
			}
		}
		return s
	}
	var alive []uint32
	if l.Witnessed {
		alive = append(alive, layout.Witness)
	}
	for i := range l.Processes {
		if p := &l.Processes[i]; !p.Resigned() && !ended(p.ID) {
			alive = append(alive, p.ID)
		}
	}
	var j Judgement
	for _, m := range alive {
		if s := says(m); s.Says == layout.Silent || s.Says == layout.Troubled {
			j.Round = max(j.Round, s.Round)
		}
	}
	if j.Round == 0 {
		return j
	}
	silent := false
	for _, m := range alive {
		switch s := says(m); {
		case s.Round < j.Round:
			j.Absent = append(j.Absent, m)
		case s.Says == layout.Hears:
			j.Hears = append(j.Hears, m)
		default:
			silent = silent || s.Says == layout.Silent
		}
	}
	switch {
	case len(j.Hears) > 0:
		j.State = Heard
	case len(j.Absent) > 0 || !silent:
		j.State = Asked
	default:
		j.State = Gone
	}
	return j
}

// Answer is what a member is to note that has asked a blade, and has found what it says. again: it
// begins another round if the last one has ended with the blade heard. noted is false if that is in
// the catalog already, or nothing need be said.
func Answer(l *layout.Layout, member uint32, b rdma.BladeID, found layout.Says, again bool,
	ended func(process uint32) bool) (s layout.Sight, noted bool) {
	var was layout.Sight
	last := uint32(0)
	for _, x := range l.Sights {
		if x.Blade == b {
			last = max(last, x.Round)
			if x.Member == member {
				was = x
			}
		}
	}
	j := Judge(l, b, ended)
	s = layout.Sight{Member: member, Blade: b, Says: found, Round: j.Round}
	switch {
	case found == layout.Hears && j.Round == 0:
		s = layout.Sight{Member: member, Blade: b} // what it said is over
		return s, was.Says != 0
	case found != layout.Hears && (j.Round == 0 || j.State == Heard && again):
		s.Round = last + 1
	}
	return s, s != was
}

// Testify notes in a layout what the witness has found of blades. fresh: what an earlier witness
// has said is over. It returns the entries that have changed. The witness takes all processes for
// alive: it has no view of their leases, and only answers.
func Testify(l *layout.Layout, found map[rdma.BladeID]layout.Says, fresh bool) []layout.Entry {
	was := l.SightEntries()
	l.Witnessed = true
	if fresh {
		for _, s := range l.SightsOf(layout.Witness) {
			s.Says = 0
			l.See(s)
		}
	}
	for b := range l.Blades {
		says, ok := found[rdma.BladeID(b)] // there are MaxBlades
		if !ok || l.Blades[b].State != layout.BladeUp {
			continue
		}
		if s, noted := Answer(l, layout.Witness, rdma.BladeID(b), says, false, living); noted { // there are MaxBlades
			l.See(s)
		}
	}
	return layout.Difference(was, l.SightEntries())
}

// InQuestion reports whether a member asks about a blade, and the witness has not answered.
func InQuestion(l *layout.Layout, b rdma.BladeID) bool {
	return Judge(l, b, living).Waits(layout.Witness)
}

// living takes all processes for alive.
func living(uint32) bool { return false }
