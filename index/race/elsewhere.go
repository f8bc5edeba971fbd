package race

import (
	"txnode/memory/layout"
	"txnode/memory/record"
)

// A record that is damaged on its primary can be repaired from another copy, if its slot is then
// where lookups of the key come by: so a split moves the slot by the key that is on that copy. A
// block that holds another key on its primary, and is intact, has it on no other copy.

// elsewhere finds on other copies, if it is time to, the keys of items whose blocks are damaged on
// the primary, or free there and a record elsewhere.
func (m *mover) elsewhere(items []item, last bool) error {
	if !last {
		return nil
	}
	v := m.ix.space.ViewOn(m.c.Thread())
	for i := range items {
		it := &items[i]
		a := it.value.Addr()
		if it.known || it.late || it.value.Check() != nil || !m.ix.fits(v, a, it.value.Class().Size()) {
			continue
		}
		img, damage, err := m.block(v, it.value, 0)
		if err != nil {
			return err
		}
		if damage == nil && img.Meta().State() != record.Free {
			continue
		}
		it.free = it.free && (damage == nil || img.Guard().Held()) // else that is damage
		for k := 1; k < v.Copies(a) && !it.known; k++ {
			other, bad, err := m.block(v, it.value, k)
			if err != nil {
				return err
			}
			if bad != nil || damage == nil && (other.Meta().State() != record.Live || !other.Stable()) {
				continue
			}
			if _, ok := m.keyLen(other, it.value); ok {
				m.know(it, other.Key())
				it.late, it.free = false, it.free && !it.known
			}
		}
	}
	return nil
}

// block reads what counts of a copy of a slot's block. damage: it is not intact.
func (m *mover) block(v *layout.View, s Slot, k int) (img record.Image, damage, err error) {
	a, n := s.Addr(), uint32(record.LineSize)
	for {
		p, err := m.bytes(v, a, n, k)
		if err != nil {
			return nil, nil, err
		}
		need, damage := record.Image(p).Check(a)
		if uint32(need) <= n || uint32(need) > s.Class().Size() {
			return p, damage, nil
		}
		n = (uint32(need) + 7) &^ 7
	}
}
