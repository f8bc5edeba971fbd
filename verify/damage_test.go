package verify_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"txnode/index/bucket"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
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
		m.seal(m.free[0], m.blocks[0].Class, record.Free, nil, nil)
		m.putWord(m.free[0]+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindLock, m.free[0], 0}}
	}},
	{"a free block that a backup thinks is in use", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.put(m.free[0], 1, m.get(m.blocks[i].Addr, 0, 64))
		return []want{{verify.KindReplica, m.free[0], 1}}
	}},
	{"a leaf", true, func(m *anatomy) []want {
		a := m.leaves[1]
		m.flip(a+record.LineSize+9, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a leaf wiped", true, func(m *anatomy) []want {
		a := m.leaves[1]
		m.put(a, 0, make([]byte, 64))
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a leaf of a backup", true, func(m *anatomy) []want {
		a := m.leaves[2]
		m.flip(a+record.KeyOff+3, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"a leaf on all copies", false, func(m *anatomy) []want {
		a := m.leaves[2]
		for k := range m.v.Copies(a) {
			m.flip(a+record.LineSize, k)
		}
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a lock of the dead on a leaf", false, func(m *anatomy) []want {
		a := m.leaves[0]
		m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(record.MakeTxID(1, 5))))
		return []want{{verify.KindLock, a, 0}}
	}},
	{"the root's block", true, func(m *anatomy) []want {
		a := m.l.Tables[0].Root
		m.flip(a+record.KeyOff, 0)
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"the root's block on all copies", false, func(m *anatomy) []want {
		a := m.l.Tables[0].Root
		for k := range m.v.Copies(a) {
			m.flip(a+record.KeyOff, k)
		}
		return []want{{verify.KindRecord, a, 0}}
	}},
	{"a right link that skips a leaf", false, func(m *anatomy) []want {
		a := m.leaves[0]
		value := bytes.Clone(record.Image(m.get(a, 0, int(m.nodes.Size()))).Value())
		copy(value[10:16], binary.LittleEndian.AppendUint64(nil, uint64(m.leaves[2]))[:6])
		m.setNode(a, value)
		return []want{{verify.KindNode, m.leaves[2], 0}}
	}},
	{"an entry that is lost", false, func(m *anatomy) []want {
		i := m.live(-1)
		b := m.blocks[i]
		m.relink(m.leafOf(i), bucket.Change{Op: bucket.Unlink, Hash: b.Hash, Old: b.Addr})
		return []want{{verify.KindLink, b.Addr, 0}}
	}},
	{"an entry to another key's block", false, func(m *anatomy) []want {
		i := m.live(-1)
		j := m.live(i)
		for m.blocks[j].Class != m.blocks[i].Class || m.of[j] == m.of[i] {
			j = m.live(j)
		}
		b, o := m.blocks[i], m.blocks[j]
		m.relink(m.leafOf(i), bucket.Change{Op: bucket.Relink, Hash: b.Hash, Old: b.Addr, Addr: o.Addr, Class: o.Class})
		return []want{{verify.KindLink, m.leafOf(i), 0}, {verify.KindLink, b.Addr, 0}}
	}},
	{"an entry to no block", false, func(m *anatomy) []want {
		i := m.live(-1)
		b := m.blocks[i]
		m.relink(m.leafOf(i),
			bucket.Change{Op: bucket.Relink, Hash: b.Hash, Old: b.Addr, Addr: b.Addr + 64<<20, Class: b.Class})
		return []want{{verify.KindLink, m.leafOf(i), 0}, {verify.KindLink, b.Addr, 0}}
	}},
	{"an entry of another class", false, func(m *anatomy) []want {
		i := m.live(-1)
		b := m.blocks[i]
		m.relink(m.leafOf(i),
			bucket.Change{Op: bucket.Relink, Hash: b.Hash, Old: b.Addr, Addr: b.Addr, Class: b.Class + 1})
		return []want{{verify.KindLink, m.leafOf(i), 0}, {verify.KindLink, b.Addr, 0}}
	}},
	{"an entry of a free block", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.seal(m.blocks[i].Addr, m.blocks[i].Class, record.Free, nil, nil)
		return []want{{verify.KindLink, m.leafOf(i), 0}}
	}},
	{"a row that is free on the primary alone", true, func(m *anatomy) []want {
		b := m.blocks[m.live(-1)]
		img := make(record.Image, record.LineSize)
		img.PutFree(b.Addr, record.MakeTxID(1, 1), 1, b.Class, 1)
		m.put(b.Addr, 0, img)
		return []want{{verify.KindRecord, b.Addr, 0}}
	}},
	{"two entries of a key", false, func(m *anatomy) []want {
		i := m.roomy()
		b := m.blocks[i]
		a := m.free[0]
		m.seal(a, m.blocks[0].Class, record.Live, m.key(i), nil)
		m.relink(m.leafOf(i), bucket.Change{Op: bucket.Link, Hash: b.Hash, Addr: a, Class: m.blocks[0].Class})
		return []want{{verify.KindDuplicate, m.leafOf(i), 0}}
	}},
	{"a deleted record to which nothing leads", false, func(m *anatomy) []want {
		m.seal(m.free[0], m.blocks[0].Class, record.Absent, m.key(m.live(-1)), nil)
		return []want{{verify.KindOrphan, m.free[0], 0}}
	}},
	{"a deleted record that lives on a copy", false, func(m *anatomy) []want {
		a, class, key := m.free[0], m.blocks[0].Class, m.key(m.live(-1))
		m.seal(a, class, record.Absent, key, nil)
		img := make(record.Image, class.Size())
		m.put(a, 1, img[:img.Put(a, record.MakeTxID(1, 2), record.Live, 1, class, 0, key, nil)])
		return []want{{verify.KindOrphan, a, 0}}
	}},
	{"an extent", true, func(m *anatomy) []want {
		a := m.extentWord(m.extent)
		m.flip(a, 0)
		return []want{{verify.KindExtent, a, 0}}
	}},
	{"an extent of a backup", true, func(m *anatomy) []want {
		a := m.extentWord(m.extent)
		m.flip(a+5, 1)
		return []want{{verify.KindReplica, a, 1}}
	}},
	{"an extent lost on the primary", true, func(m *anatomy) []want {
		a := m.extentWord(m.extent)
		m.putWord(a, 0, 0)
		return []want{{verify.KindExtent, a, 0}}
	}},
	{"an extent lost on all copies", false, func(m *anatomy) []want {
		m.everywhere(m.extentWord(m.extent), 0)
		return []want{{verify.KindExtent, m.extent, 0}}
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
func TestDamageIsFound(t *testing.T) {
	for _, v := range []variant{{2, 1, occ.PolicyDefault}, {3, 2, occ.PolicyDefault}} {
		if testing.Short() && v.backups == 1 {
			continue // which can be repaired is told apart by two backups
		}
		dir := t.TempDir()
		populate(t, dir, v, 300)
		reserve(t, dir)
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

// reserve reserves an extent, as a channel does.
func reserve(t *testing.T, dir string) {
	t.Helper()
	db, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	th, err := rdma.NewThread(db.Space().Fabric(), rdma.ThreadOptions{Arena: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	x, err := db.Space().NewExtent(th.Plain(), 1000)
	if err == nil {
		err = db.Space().ReserveExtent(x, func(l *layout.Layout, _ uint32) error {
			l.Reserve(layout.Reservation{Name: "test", Addr: x.Addr, Size: 1000})
			return nil
		})
	}
	if err = errors.Join(err, th.Close(), db.Close()); err != nil {
		t.Fatal(err)
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
	root := m.l.Tables[0].Root
	for k := range m.v.Copies(root) {
		m.flip(root+record.KeyOff, k) // the index cannot be walked
	}
	for range 2 {
		_, found := check(t, dir, true)
		compare(t, []want{{verify.KindRecord, root, 0}, {verify.KindReplica, a, 1}}, found)
		if got := m.get(a, 1, 64); !slices.Equal(got, backup) {
			t.Fatal("the last copy of a record was overwritten")
		}
	}
}
