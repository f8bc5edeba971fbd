package layout

import (
	"encoding/binary"
	"slices"

	"txnode/rdma"
)

// Says is what a member has found when it asked a blade.
type Says uint8

// Answers of members.
const (
	Hears    Says = iota + 1 // the blade answers, or refuses to talk to this member, which shows that it lives
	Silent                   // nothing is heard of the blade, or nothing listens at its address
	Troubled                 // this member could not ask: it lacks descriptors, ports, memory, a name or a permission
	saysEnd
)

// String returns the word.
func (s Says) String() string {
	return [...]string{"nothing", "hears", "silent", "troubled", "?"}[min(s, saysEnd)]
}

// Witness is the number under which the server of the catalog answers. No process has it.
const Witness = 0

// Sight is what a member says of a blade in a round of questions. A member that hears
// nothing of a blade begins a round; the others answer with its number. Package
// memory/members says what follows.
//
// Invariants: 0 < Says, 0 < Round, and the member is Witness or has registered.
type Sight struct {
	Member uint32
	Blade  rdma.BladeID
	Says   Says
	Round  uint32
}

const prefixSight = "sight/"

// EntryOfSights is the entry of what a member says of all blades. The witness has one also when it
// says nothing: it is there.
func EntryOfSights(member uint32, all []Sight) Entry {
	p := []byte{}
	for _, s := range all {
		p = binary.LittleEndian.AppendUint16(p, uint16(s.Blade))
		p = append(p, byte(s.Says))
		p = binary.LittleEndian.AppendUint32(p, s.Round)
	}
	return seal(KeyOf(prefixSight, member), entrySight, p)
}

func decodeSights(d *payload, member uint32) (all []Sight) {
	for len(d.p) > 0 && !d.fail {
		s := Sight{Member: member, Blade: rdma.BladeID(d.u16()), Says: Says(d.u8()), Round: d.u32()}
		d.fail = d.fail || s.Says == 0 || s.Says >= saysEnd || s.Round == 0 || len(all) > 0 &&
			s.Blade <= all[len(all)-1].Blade
		all = append(all, s)
	}
	d.fail = d.fail || len(all) == 0 && member != Witness
	return all
}

// SightEntries are the entries of all that is said.
func (l *Layout) SightEntries() (out []Entry) {
	if l.Witnessed && len(l.SightsOf(Witness)) == 0 {
		out = append(out, EntryOfSights(Witness, nil))
	}
	for i, s := range l.Sights {
		if i == 0 || s.Member != l.Sights[i-1].Member {
			out = append(out, EntryOfSights(s.Member, l.SightsOf(s.Member)))
		}
	}
	return out
}

// SightsOf is what a member says, by blade.
func (l *Layout) SightsOf(member uint32) (all []Sight) {
	for _, s := range l.Sights {
		if s.Member == member {
			all = append(all, s)
		}
	}
	return all
}

// Unheard reports whether a member says in the last round of questions that nothing is heard of a
// blade, and no member hears it.
func (l *Layout) Unheard(b rdma.BladeID) (unheard bool) {
	last := uint32(0)
	for _, s := range l.Sights {
		if s.Blade == b {
			last = max(last, s.Round)
		}
	}
	for _, s := range l.Sights {
		if s.Blade != b || s.Round < last {
			continue
		}
		if s.Says == Hears {
			return false
		}
		unheard = unheard || s.Says == Silent
	}
	return unheard
}

// See notes what a member says of a blade; Says 0: nothing any more.
func (l *Layout) See(s Sight) {
	i, found := slices.BinarySearchFunc(l.Sights, s, func(a, b Sight) int {
		if a.Member != b.Member {
			return int(int64(a.Member) - int64(b.Member))
		}
		return int(a.Blade) - int(b.Blade)
	})
	switch {
	case s.Says == 0 && found:
		l.Sights = slices.Delete(slices.Clone(l.Sights), i, i+1)
	case s.Says == 0:
	case found:
		l.Sights = slices.Clone(l.Sights)
		l.Sights[i] = s
	default:
		l.Sights = slices.Insert(slices.Clone(l.Sights), i, s)
	}
}

// forgetSights forgets what is said of a blade, which is another one from now on.
func (l *Layout) forgetSights(b rdma.BladeID) {
	l.Sights = slices.DeleteFunc(slices.Clone(l.Sights), func(s Sight) bool { return s.Blade == b })
}

// HeedSights forgets what members said that are registered no more.
func (l *Layout) HeedSights() {
	l.Sights = slices.DeleteFunc(l.Sights, func(s Sight) bool {
		return s.Member != Witness && l.Process(s.Member) == nil || int(s.Blade) >= len(l.Blades)
	})
}
