package verify_test

import (
	"fmt"
	"slices"
	"testing"

	"txnode/index/race"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/verify"
)

// want is a finding that damage leads to.
type want struct {
	kind verify.Kind
	addr layout.Addr
	copy int
}

// damage is one of a kind. do returns what is to be found, exactly; repairs says that a
// repair brings back every byte.
type damage struct {
	name    string
	repairs bool
	do      func(m *anatomy) []want
}

// partDamages are those of a directory that has more than eight entries.
var partDamages = []damage{
	{"where a part of the directory is", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+80, 0, m.word(m.ix.Root()+80, 0)+64)
		return []want{{verify.KindRoot, m.ix.Root() + 80, 0}}
	}},
	{"where a part of the directory is, forgotten", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+80, 0, 0)
		return []want{{verify.KindRoot, m.ix.Root() + 80, 0}}
	}},
	{"where a part of the directory is, of a backup", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+80, 1, 0)
		return []want{{verify.KindReplica, m.ix.Root() + 80, 1}}
	}},
	{"a part of the directory", true, func(m *anatomy) []want {
		a := m.entry(8) - 64
		m.flip(a, 0)
		return []want{{verify.KindRoot, a, 0}}
	}},
	{"a backup's part of the directory", true, func(m *anatomy) []want {
		a := m.entry(8) - 64
		m.flip(a+24, 1)
		return []want{{verify.KindRoot, a, 1}}
	}},
	{"a directory entry in a part", true, func(m *anatomy) []want {
		m.putWord(m.entry(9), 0, 12345)
		return []want{{verify.KindRoot, m.entry(9), 0}}
	}},
}

// damages are the others.
var damages = []damage{
	{"a record's body", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.flip(a+record.KeyOff+9, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a record's value", true, func(m *anatomy) []want {
		a := m.long()
		m.flip(a+record.LineSize+3, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"bytes that belong to no record", true, func(m *anatomy) []want {
		m.flip(m.long()+record.KeyOff+8, 0)
		return []want{{verify.KindRecord, m.long(), 0}}
	}},
	{"a record's key", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.flip(a+record.KeyOff, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a record's meta word", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.everyByte(a+record.MetaOff, 0, 8)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a record's state", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.MetaOff, 0, m.word(a+record.MetaOff, 0)&^(15<<36))
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a record wiped", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.put(a, 0, make([]byte, 64))
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a record on all copies", false, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		for k := range m.v.Copies(a) {
			m.flip(a+record.KeyOff, k)
		}
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a backup's record", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.flip(a+record.KeyOff+9, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"a backup's guard", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.GuardOff, 1, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"a guard at another version", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.GuardOff, 0, uint64(record.FreeAt(record.MakeTxID(1, 99999))))
		return []want{{verify.KindGuard, a, 0}}
	}},
	{"a guard held by nobody who was", true, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1<<24-1, 5))))
		return []want{{verify.KindGuard, a, 0}}
	}},
	{"a lock of the dead", false, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindLock, a, 0}}
	}},
	{"a damaged record under a lock of the dead", false, func(m *anatomy) []want {
		a := m.blocks[m.live(-1)].Addr
		m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		m.flip(a+record.KeyOff, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a lock on a free block", false, func(m *anatomy) []want {
		m.putWord(m.free[0]+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindLock, m.free[0], 0}}
	}},
	{"a free block that a backup thinks is in use", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.put(m.free[0], 1, m.get(m.blocks[i].Addr, 0, 64))
		return []want{{verify.KindReplica, m.free[0], 1}}
	}},
	{"the fingerprint of a slot", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.flip(m.slots[i]+7, 0)
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"the address of a slot", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 0, m.word(m.slots[i], 0)^1<<40)
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"a slot into the middle of a line", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 0, m.word(m.slots[i], 0)^8)
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"the class of a slot", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 0, m.word(m.slots[i], 0)^1<<48)
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"a slot that points to another's block", true, func(m *anatomy) []want {
		i := m.live(-1)
		j := m.live(i)
		w := m.word(m.slots[i], 0)
		m.putWord(m.slots[i], 0, w&^(1<<48-1)|m.word(m.slots[j], 0)&(1<<48-1)&^(63<<48))
		m.putWord(m.slots[i], 0, m.word(m.slots[j], 0)&^(255<<56)|w&(255<<56))
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"a slot lost on the primary", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 0, 0)
		return []want{{verify.KindSlot, m.slots[i], 0}}
	}},
	{"a slot lost on all copies but one", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 0, 0)
		wants := []want{{verify.KindSlot, m.slots[i], 0}}
		for k := 2; k < m.v.Copies(m.slots[i]); k++ {
			m.putWord(m.slots[i], k, 0)
			wants = append(wants, want{verify.KindReplica, m.slots[i], k})
		}
		return wants
	}},
	{"a slot lost on a backup", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.putWord(m.slots[i], 1, 0)
		return []want{{verify.KindReplica, m.slots[i], 1}}
	}},
	{"a slot damaged on a backup", true, func(m *anatomy) []want {
		i := m.live(-1)
		m.flip(m.slots[i]+1, 1)
		return []want{{verify.KindReplica, m.slots[i], 1}}
	}},
	{"a remnant of a slot on a backup", true, func(m *anatomy) []want {
		i, e := m.roomy()
		m.putWord(e, 1, m.word(m.slots[i], 0))
		return []want{{verify.KindReplica, e, 1}}
	}},
	{"a slot with the word of its neighbour", false, func(m *anatomy) []want {
		for i := m.live(-1); ; i = m.live(i) {
			j := m.live(i)
			if m.slots[i]&^63 == m.slots[j]&^63 {
				m.putWord(m.slots[i], 0, m.word(m.slots[j], 0))
				return []want{{verify.KindSlot, m.slots[i], 0}, {verify.KindDuplicate, m.slots[j], 0}}
			}
		}
	}},
	{"a slot lost on all copies", true, func(m *anatomy) []want {
		i := m.foremost()
		m.everywhere(m.slots[i], 0)
		return []want{{verify.KindOrphan, m.blocks[i].Addr, 0}}
	}},
	{"a slot of a second choice lost on the primary, with the mark that says so", true, func(m *anatomy) []want {
		a, bit := m.marked()
		wants := []want{{verify.KindSlot, m.lone, 0}}
		m.putWord(m.lone, 0, 0)
		for k := range m.v.Copies(a) {
			m.putWord(a, k, m.word(a, k)&^bit)
			wants = append(wants, want{verify.KindBucket, a, k})
		}
		return wants
	}},
	{"two slots of a block", false, func(m *anatomy) []want {
		i, e := m.roomy()
		m.everywhere(e, m.word(m.slots[i], 0))
		return []want{{verify.KindDuplicate, max(e, m.slots[i]), 0}, {verify.KindDuplicate, 0, 0}}[:1]
	}},
	{"two slots of a key", false, func(m *anatomy) []want {
		i, e := m.roomy()
		a := m.free[0]
		m.seal(a, m.blocks[0].Class, record.Live, record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key(), nil)
		m.everywhere(e, uint64(race.MakeSlot(race.Slot(m.word(m.slots[i], 0)).Fingerprint(), m.blocks[0].Class, a)))
		return []want{{verify.KindDuplicate, max(e, m.slots[i]), 0}}
	}},
	{"a slot of a free block", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.seal(m.blocks[i].Addr, m.blocks[i].Class, record.Free, nil, nil)
		return []want{{verify.KindDangling, m.slots[i], 0}}
	}},
	{"a slot in the wrong bucket", false, func(m *anatomy) []want {
		i := m.live(-1)
		for j := m.live(i); ; j = m.live(j) {
			if e := m.emptySlot(j); e != 0 && (e-m.slots[i] > 4*192 && m.slots[i]-e > 4*192) &&
				m.table(e) == m.table(m.slots[i]) && m.far(i, e) {
				m.everywhere(e, m.word(m.slots[i], 0))
				m.everywhere(m.slots[i], 0)
				return []want{{verify.KindSlot, e, 0}, {verify.KindOrphan, m.blocks[i].Addr, 0}}
			}
		}
	}},
	{"a slot that is moving", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.everywhere(m.slots[i], m.word(m.slots[i], 0)|1<<55)
		return []want{{verify.KindSplit, m.slots[i], 0}}
	}},
	{"a bucket's header", true, func(m *anatomy) []want {
		a := m.slots[0]&^63 + 56
		m.flip(a+1, 0)
		return []want{{verify.KindBucket, a, 0}}
	}},
	{"a bucket's header on a backup", true, func(m *anatomy) []want {
		a := m.slots[0]&^63 + 56
		m.flip(a+7, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"a bucket's header on all copies", false, func(m *anatomy) []want {
		a := m.slots[0]&^63 + 56
		m.everywhere(a, 12345)
		return []want{{verify.KindBucket, a, 0}}
	}},
	{"a mark that is missing", true, func(m *anatomy) []want {
		a, bit := m.marked()
		m.everywhere(a, m.word(a, 0)&^bit)
		var all []want
		for k := range m.v.Copies(a) {
			all = append(all, want{verify.KindBucket, a, k})
		}
		return all
	}},
	{"a mark too many on a backup", true, func(m *anatomy) []want {
		a, bit := m.marked()
		for b := uint64(1) << 29; ; b <<= 1 {
			if b != bit && m.word(a, 0)&b == 0 {
				m.putWord(a, 1, m.word(a, 0)|b)
				return []want{{verify.KindReplica, a, 1}}
			}
		}
	}},
	{"a count of marks that was not finished", false, func(m *anatomy) []want {
		a, _ := m.marked()
		m.everywhere(a, m.word(a, 0)|1<<28)
		return []want{{verify.KindSplit, a, 0}}
	}},
	{"a sub-table's first line", true, func(m *anatomy) []want {
		a := race.Entry(m.word(m.entry(1), 0)).Table()
		m.flip(a+16, 0)
		return []want{{verify.KindSubTable, a, 0}}
	}},
	{"a backup's first line of a sub-table", true, func(m *anatomy) []want {
		a := race.Entry(m.word(m.entry(1), 0)).Table()
		m.flip(a+40, 1)
		return []want{{verify.KindSubTable, a, 1}}
	}},
	{"a lock of a sub-table", false, func(m *anatomy) []want {
		a := race.Entry(m.word(m.entry(0), 0)).Table()
		m.everywhere(a+56, 9<<16)
		return []want{{verify.KindLock, a + 56, 0}}
	}},
	{"a split that was not finished", false, func(m *anatomy) []want {
		a := race.Entry(m.word(m.entry(0), 0)).Table()
		m.everywhere(a+48, uint64(race.Entry(m.word(m.entry(1), 0)).Table()))
		return []want{{verify.KindSplit, a + 48, 0}}
	}},
	{"a split that was not finished, half of its headers changed", false, func(m *anatomy) []want {
		e := race.Entry(m.word(m.entry(0), 0))
		m.everywhere(e.Table()+48, uint64(race.Entry(m.word(m.entry(1), 0)).Table()))
		m.everywhere(e.Table()+56, 9<<16)
		m.everywhere(e.Table()+64+56, uint64(race.MakeHeader(1, e.Depth()+1, 0)))
		return []want{{verify.KindSplit, e.Table() + 48, 0}, {verify.KindLock, e.Table() + 56, 0}}
	}},
	{"a lock of the directory", false, func(m *anatomy) []want {
		m.everywhere(m.ix.Root()+72, 9<<16)
		return []want{{verify.KindLock, m.ix.Root() + 72, 0}}
	}},
	{"the root", true, func(m *anatomy) []want {
		m.flip(m.ix.Root()+9, 0)
		return []want{{verify.KindRoot, m.ix.Root(), 0}}
	}},
	{"a backup's root", true, func(m *anatomy) []want {
		m.flip(m.ix.Root(), 1)
		return []want{{verify.KindRoot, m.ix.Root(), 1}}
	}},
	{"the root on all copies", false, func(m *anatomy) []want {
		m.everywhere(m.ix.Root(), 0)
		return []want{{verify.KindRoot, m.ix.Root(), 0}}
	}},
	{"the global depth, too large", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+64, 0, 99)
		return []want{{verify.KindRoot, m.ix.Root() + 64, 0}}
	}},
	{"the root, the global depth and the directory", true, func(m *anatomy) []want {
		wants := []want{{verify.KindRoot, m.ix.Root(), 0}, {verify.KindRoot, m.ix.Root() + 64, 0}}
		n := 1 << m.depth()
		for i := range n {
			m.putWord(m.entry(i), 0, 12345)
			wants = append(wants, want{verify.KindRoot, m.entry(i), 0})
		}
		m.flip(m.ix.Root(), 0)
		m.putWord(m.ix.Root()+64, 0, 99)
		return wants
	}},
	{"the global depth, too small", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+64, 0, uint64(m.depth()-1))
		return []want{{verify.KindRoot, m.ix.Root() + 64, 0}}
	}},
	{"the global depth of a backup", true, func(m *anatomy) []want {
		m.putWord(m.ix.Root()+64, 1, uint64(m.depth()+1))
		return []want{{verify.KindReplica, m.ix.Root() + 64, 1}}
	}},
	{"a directory entry", true, func(m *anatomy) []want {
		m.putWord(m.entry(1), 0, 12345)
		return []want{{verify.KindRoot, m.entry(1), 0}}
	}},
	{"the depth of a directory entry", true, func(m *anatomy) []want {
		m.putWord(m.entry(1), 0, m.word(m.entry(1), 0)-1<<48)
		return []want{{verify.KindRoot, m.entry(1), 0}}
	}},
	{"a directory entry of a backup", true, func(m *anatomy) []want {
		m.putWord(m.entry(0), 1, 0)
		return []want{{verify.KindReplica, m.entry(0), 1}}
	}},
	{"an extent", true, func(m *anatomy) []want {
		a := m.extentWord(m.ix.Root())
		m.flip(a, 0)
		return []want{{verify.KindExtent, a, 0}}
	}},
	{"an extent of a backup", true, func(m *anatomy) []want {
		a := m.extentWord(m.ix.Root())
		m.flip(a+5, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"an extent lost on the primary", true, func(m *anatomy) []want {
		a := m.extentWord(m.ix.Root())
		m.putWord(a, 0, 0)
		return []want{{verify.KindExtent, a, 0}}
	}},
	{"an extent lost on all copies", false, func(m *anatomy) []want {
		m.everywhere(m.extentWord(m.ix.Root()), 0)
		return []want{{verify.KindExtent, m.ix.Root(), 0}}
	}},
	{"a log area that nobody has", false, func(m *anatomy) []want {
		for id := range m.l.Segments {
			if m.l.Segments[id].Kind == layout.KindLog {
				a := layout.MakeAddr(layout.SegmentID(id), 3*testLog+4096)
				m.putWord(a, 0, 1)
				return []want{{verify.KindLog, a, 0}}
			}
		}
		return nil
	}},
}

// TestDamageIsFound damages a database in one way after another: each is found where
// it is and reported as what it is, once; a repair brings back the bytes where that
// is promised, and reports what it did; where it is not, it changes nothing.
func TestDamageIsFound(t *testing.T) { damagesAreFound(t, damages, 8) }

func TestDamageOfPartsIsFound(t *testing.T) { damagesAreFound(t, partDamages, 2) }

// damagesAreFound is TestDamageIsFound with such damages, and with so many groups in a sub-table.
func damagesAreFound(t *testing.T, damages []damage, groups uint32) {
	for _, v := range []variant{{2, 1, occ.PolicyDefault}, {3, 2, occ.PolicyDefault}} {
		if testing.Short() && v.backups == 1 {
			continue // which can be repaired is told apart by two backups
		}
		dir := t.TempDir()
		populateOf(t, dir, v, 300, groups)
		m := dissect(t, dir)
		for _, d := range damages {
			t.Run(fmt.Sprintf("backups=%d/%s", v.backups, d.name), func(t *testing.T) {
				m.t = t
				defer m.heal()
				wants := d.do(m)
				_, found := check(t, dir, false)
				compare(t, wants, found)
				for _, f := range found {
					if f.Repaired || f.Failed != nil || f.Unfinished {
						t.Errorf("repaired without being asked to, or taken for what the next opening settles: %v", f)
					}
				}
				sum, found := check(t, dir, true)
				if _, again := check(t, dir, false); d.repairs {
					if len(again) > 0 || !m.whole() {
						t.Errorf("after repair, bytes as before: %v;\n%s", m.whole(), show(again))
					}
					if !sum.Clean() || sum.Repaired != uint64(len(found)) {
						t.Errorf("%+v", sum)
					}
				} else if sum.Clean() && !m.cleanAfter(d.name) {
					t.Errorf("nothing is left to do: %+v\n%s", sum, show(found))
				}
			})
		}
		if _, found := check(t, dir, false); len(found) > 0 {
			t.Errorf("the tests left damage:\n%s", show(found))
		}
	}
}

func compare(t *testing.T, wants []want, found []verify.Finding) {
	t.Helper()
	ok := len(found) == len(wants)
	for _, w := range wants {
		ok = ok && slices.ContainsFunc(found, func(f verify.Finding) bool {
			return f.Kind == w.kind && f.Addr == w.addr && f.Copy == w.copy
		})
	}
	if !ok {
		t.Errorf("want %v, found\n%s", wants, show(found))
	}
}

// TestRepairKeepsTheLastCopy wipes a record on the primary and, beside it, what is
// needed to know that it was one: its backup must survive a repair.
func TestRepairKeepsTheLastCopy(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 100)
	m := dissect(t, dir)
	i := m.live(-1)
	a := m.blocks[i].Addr
	backup := m.get(a, 1, 64)
	m.put(a, 0, make([]byte, 64))
	m.everywhere(m.ix.Root(), 0) // the index cannot be walked
	for range 2 {
		_, found := check(t, dir, true)
		compare(t, []want{{verify.KindRoot, m.ix.Root(), 0}, {verify.KindReplica, a, 1}}, found)
		if got := m.get(a, 1, 64); !slices.Equal(got, backup) {
			t.Fatal("the last copy of a record was overwritten")
		}
	}
}
