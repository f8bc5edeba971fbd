package occ

import (
	"math/bits"

	"txnode/memory/layout"
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
func (tx *Tx) logCopies(v *layout.View) int {
	return min(tx.s.eng.space.Backups()+1, v.UpBlades())
}

// logBlades are those that the log record goes to: every blade that gets a backup image, in
// front of it, and others until there are want copies. One that is leaving is among them only if
// it has what is written, or too few stay. A blade without a log area of the session is none of
// them: see logsFirst.
func (tx *Tx) logBlades(v *layout.View, want int) bladeSet {
	on := tx.s.ring.on
	logs, homes := tx.behind&on, tx.homes&on
	if all := logs | homes; all.len() == want {
		return all
	}
	for homes &^= logs; homes != 0 && logs.len() < want; {
		logs.add(homes.take())
	}
	for k := 0; logs.len() < want; k++ {
		if x := rdma.BladeID((int(tx.s.coord.ID) + k) % v.Blades()); on.has(x) &&
			(v.Stays(x) || k >= v.Blades() && v.Up(x)) {
			logs.add(x)
		}
	}
	return logs
}

// logsFirst reports whether the log record must be on all of its blades before an image goes to a
// backup: some backup has no log area of the session in which the record could be in front of the
// image. Then a recoverer that finds the image finds the record on f+1 others.
func (tx *Tx) logsFirst() bool { return tx.behind&^tx.s.ring.on != 0 }

// bladeSet is a set of blades with less than layout.MaxBlades: one bit each.
type bladeSet uint64

func (s *bladeSet) add(b rdma.BladeID) { *s |= 1 << (b % layout.MaxBlades) }

func (s bladeSet) has(b rdma.BladeID) bool { return s>>(b%layout.MaxBlades)&1 != 0 }

func (s bladeSet) len() int { return bits.OnesCount64(uint64(s)) }

// take removes the lowest blade from a set that is not empty.
func (s *bladeSet) take() rdma.BladeID {
	b := bits.TrailingZeros64(uint64(*s))
	*s &= *s - 1
	return rdma.BladeID(b)
}
