package occ

import (
	"math/bits"

	"txnode/memory"
	"txnode/rdma"
)

// spread notes which blades an item's image goes to.
func (tx *Tx) spread(it *item) {
	tx.homes.add(tx.view.At(it.addr, 0).Blade)
	for k := tx.backups(it) - 1; k > 0; k-- {
		tx.behind.add(tx.view.At(it.addr, k).Blade)
	}
}

// backups is one more than how many backups an item's image goes to.
func (tx *Tx) backups(it *item) int {
	return tx.view.Written(it.addr)
}

// logCopies is to how many blades the log record goes at least: f+1, as long as so many
// are up.
func (tx *Tx) logCopies(v *memory.View) int {
	return min(tx.s.eng.space.Backups()+1, v.UpBlades())
}

// logBlades are those that the log record goes to: every blade that gets a backup image,
// in front of it, and others until there are want copies. One that is leaving is among them only if
// it has what is written, or too few stay.
func (tx *Tx) logBlades(v *memory.View, want int) bladeSet {
	logs, homes := tx.behind, tx.homes
	if all := logs | homes; all.len() == want {
		return all
	}
	for homes &^= logs; homes != 0 && logs.len() < want; {
		logs.add(homes.take())
	}
	for k := 0; logs.len() < want; k++ {
		if x := rdma.BladeID((int(tx.s.coord.ID) + k) % v.Blades()); v.Stays(x) || k >= v.Blades() && v.Up(x) {
			logs.add(x)
		}
	}
	return logs
}

// bladeSet is a set of blades with less than memory.MaxBlades: one bit each.
type bladeSet uint64

func (s *bladeSet) add(b rdma.BladeID) { *s |= 1 << (b % memory.MaxBlades) }

func (s bladeSet) len() int { return bits.OnesCount64(uint64(s)) }

// take removes the lowest blade from a set that is not empty.
func (s *bladeSet) take() rdma.BladeID {
	b := bits.TrailingZeros64(uint64(*s))
	*s &= *s - 1
	return rdma.BladeID(b)
}
