package verify_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/verify"
)

// key is the key of slot number i.
func (m *anatomy) key(i int) []byte {
	return record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key()
}

// record makes a record with a key in a free block, and a slot for it, 0: none.
func (m *anatomy) record(key []byte, slot layout.Addr) layout.Addr {
	a, class := m.free[0], m.blocks[0].Class
	m.free = m.free[1:]
	m.seal(a, class, record.Live, key, nil)
	if slot != 0 {
		m.everywhere(slot, uint64(race.MakeSlot(uint8(record.Hash(1, key)>>56), class, a)))
	}
	return a
}

// crowd takes the empty slots of the combined bucket at a place of a sub-table, for keys of which
// this is the first choice, and returns one more.
func (m *anatomy) crowd(suffix uint64, depth uint8, table layout.Addr, place uint32) (more []byte) {
	next := uint64(1 << 40)
	another := func() []byte {
		for ; ; next++ {
			key := binary.BigEndian.AppendUint64(nil, next)
			h := record.Hash(1, key)
			if first, _ := m.ix.Geometry().Places(h); h&(1<<depth-1) == suffix && first == place {
				next++
				return key
			}
		}
	}
	for o := layout.Addr(0); o < 128; o += 8 {
		if at := table + layout.Addr(place) + o; o&63 != 56 && race.Slot(m.word(at, 0)).Empty() {
			m.record(another(), at)
		}
	}
	return another()
}

// TestOrphans: records whose slots are lost on all copies get others, where lookups of their keys
// come by. It is reported, and nothing is changed, where something else may be the key's record.
func TestOrphans(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 300)
	before, _ := check(t, dir, false)
	for name, test := range map[string]struct {
		left   int    // findings that stay
		says   string // of one of them
		change func(m *anatomy)
	}{
		"a sub-table without slots": {change: func(m *anatomy) {
			for _, s := range m.slots {
				if m.table(s) == m.table(m.slots[0]) {
					m.everywhere(s, 0)
				}
			}
		}},
		"all of them": {change: func(m *anatomy) {
			for _, s := range m.slots {
				m.everywhere(s, 0)
			}
		}},
		"no room in the first choice": {change: func(m *anatomy) {
			e := race.Entry(m.word(m.entry(0), 0))
			first, _ := m.ix.Geometry().Places(record.Hash(1, m.key(m.live(-1))))
			m.record(m.crowd(0, e.Depth(), e.Table(), first), 0)
		}},
		"no room at all": {left: 1, says: "full", change: func(m *anatomy) {
			e := race.Entry(m.word(m.entry(0), 0))
			first, _ := m.ix.Geometry().Places(record.Hash(1, m.key(m.live(-1))))
			key := m.crowd(0, e.Depth(), e.Table(), first)
			_, second := m.ix.Geometry().Places(record.Hash(1, key))
			m.crowd(0, e.Depth(), e.Table(), second)
			m.record(key, 0)
		}},
		"a deleted record": {change: func(m *anatomy) {
			m.seal(m.free[0], m.blocks[0].Class, record.Absent, m.key(m.live(-1)), nil)
		}},
		"a deleted record, and a live one of its key": {change: func(m *anatomy) {
			i := m.live(-1)
			m.seal(m.free[0], m.blocks[0].Class, record.Absent, m.key(i), nil)
			m.everywhere(m.slots[i], 0)
		}},
		"a deleted record, and on a backup its slot in the place of another": {change: func(m *anatomy) {
			i := m.live(-1)
			d := m.free[0]
			m.seal(d, m.blocks[0].Class, record.Absent, m.key(i), nil)
			m.putWord(m.slots[i], 1, m.word(m.slots[i], 1)&^(1<<48-1)|uint64(d))
		}},
		"a deleted record, and on a backup a second slot of its key": {change: func(m *anatomy) {
			i, e := m.roomy()
			d := m.free[0]
			m.seal(d, m.blocks[0].Class, record.Absent, m.key(i), nil)
			m.putWord(e, 1, m.word(m.slots[i], 1)&^(1<<48-1)|uint64(d))
		}},
		"a deleted record that lives on a copy": {left: 1, says: "copy 1 has", change: func(m *anatomy) {
			key := m.key(m.live(-1))
			m.seal(m.free[0], m.blocks[0].Class, record.Absent, key, nil)
			img := make(record.Image, m.blocks[0].Class.Size())
			m.put(m.free[0], 1,
				img[:img.Put(m.free[0], record.MakeTxID(1, 2), record.Live, 1, m.blocks[0].Class, 0, key, nil)])
		}},
		"inserted once more": {left: 1, says: "its key has another record", change: func(m *anatomy) {
			i, e := m.roomy()
			m.everywhere(m.slots[i], 0)
			m.record(m.key(i), e)
		}},
		"inserted once more, and on a backup the old slot": {left: 2, says: "its key has another record",
			change: func(m *anatomy) {
				i, e := m.roomy()
				m.putWord(m.slots[i], 0, 0)
				m.record(m.key(i), e)
			}},
		"inserted twice": {left: 2, says: "another one with the same key", change: func(m *anatomy) {
			i := m.live(-1)
			m.everywhere(m.slots[i], 0)
			m.record(m.key(i), 0)
		}},
		"beside a slot that may be its own": {left: 2, says: "may be that of its key", change: func(m *anatomy) {
			i, e := m.roomy()
			w := m.word(m.slots[i], 0)
			m.everywhere(e, w&^(1<<48-1)|uint64(m.free[0]))
			m.everywhere(m.slots[i], 0)
			for k := range m.v.Copies(m.free[0]) {
				m.flip(m.free[0]+record.KeyOff, k)
			}
		}},
		"of another version on a copy": {left: 1, says: "copy 1 has", change: func(m *anatomy) {
			i := m.live(-1)
			m.everywhere(m.slots[i], 0)
			img := make(record.Image, 64)
			img.PutFree(m.blocks[i].Addr, record.MakeTxID(1, 1), 1, m.blocks[i].Class, 1)
			m.put(m.blocks[i].Addr, 1, img)
		}},
		"in a sub-table that is being split": {left: 2, says: "a split was not finished", change: func(m *anatomy) {
			i := m.live(-1)
			m.everywhere(m.table(m.slots[i])+56, 9<<16)
			m.everywhere(m.slots[i], 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := dissect(t, copyOf(t, dir))
			test.change(m)
			m.dirty = nil
			if test.left == 0 {
				check(t, m.dir, true)
				sum, found := check(t, m.dir, false)
				if len(found) > 0 || sum.Tables[0].Records < before.Tables[0].Records {
					t.Errorf("%d records of %d;\n%s", sum.Tables[0].Records, before.Tables[0].Records, show(found))
				}
				if _, err := withRace(t, m.dir, (*race.Index).Verify); err != nil {
					t.Error(err)
				}
				return
			}
			for range 2 {
				_, found := check(t, m.dir, true)
				said := false
				for _, f := range found {
					said = said || f.Kind == verify.KindOrphan && strings.Contains(f.What, test.says)
				}
				if len(found) != test.left || !said {
					t.Errorf("%d findings are to stay;\n%s", test.left, show(found))
				}
			}
		})
	}
}
