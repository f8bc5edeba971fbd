package verify_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/log"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/record"
	"txnode/occ"
	"txnode/rdma"
	"txnode/verify"
)

// anatomy is where things are in a database that is closed.
type anatomy struct {
	t     testing.TB
	dir   string
	l     *memory.Layout
	v     *memory.View
	ix    *race.Index
	dirty []spot // bytes as they were before they were damaged
	// slots of table 1, and their blocks; in the order of the walk.
	slots  []memory.Addr
	blocks []index.Candidate
	free   []memory.Addr // blocks that are free, of the class of blocks[0], by address
}

// spot is bytes of a blade's file.
type spot struct {
	blade rdma.BladeID
	off   uint64
	p     []byte
}

// dissect opens the database, to find out what is where, and closes it.
func dissect(t testing.TB, dir string) *anatomy {
	t.Helper()
	db, err := embedded.Open(embedded.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	th, err := rdma.NewThread(db.Fabric(), rdma.ThreadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	c := th.Plain()
	m := &anatomy{t: t, dir: dir, l: db.Space().Layout(), v: db.Space().View()}
	if m.ix, err = race.Open(c, db.Space(), m.l.Tables[0].Root, 1); err != nil {
		t.Fatal(err)
	}
	err = m.ix.Walk(c, func(at memory.Addr, b index.Candidate) error {
		m.slots, m.blocks = append(m.slots, at), append(m.blocks, b)
		return nil
	})
	if err == nil {
		err = m.ix.Verify(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	class := m.blocks[0].Class
	for id := range m.l.Segments {
		if s := &m.l.Segments[id]; s.Kind == memory.KindBlocks && s.Class == class {
			seg := m.get(memory.MakeAddr(memory.SegmentID(id), 0), 0, int(m.l.SegmentSize))
			for off := uint32(0); off+class.Size() <= m.l.SegmentSize; off += class.Size() {
				if record.Image(seg[off:]).Meta().State() == record.Free {
					m.free = append(m.free, memory.MakeAddr(memory.SegmentID(id), off))
				}
			}
		}
	}
	return m
}

func (m *anatomy) file(b rdma.BladeID) string {
	return filepath.Join(m.dir, fmt.Sprintf("blade-%03d.region", b))
}

// raw reads bytes of a blade's file.
func (m *anatomy) raw(b rdma.BladeID, off uint64, n int) []byte {
	m.t.Helper()
	f, err := os.Open(m.file(b))
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, n)
	if _, err := f.ReadAt(p, int64(off)); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// poke changes bytes of a blade's file; heal brings them back.
func (m *anatomy) poke(b rdma.BladeID, off uint64, p []byte) {
	m.t.Helper()
	m.dirty = append(m.dirty, spot{b, off, m.raw(b, off, len(p))})
	m.write(b, off, p)
}

func (m *anatomy) write(b rdma.BladeID, off uint64, p []byte) {
	m.t.Helper()
	f, err := os.OpenFile(m.file(b), os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	_, err = f.WriteAt(p, int64(off))
	if err = errors.Join(err, f.Close()); err != nil {
		m.t.Fatal(err)
	}
}

// heal undoes all damage.
func (m *anatomy) heal() {
	for _, s := range slices.Backward(m.dirty) {
		m.write(s.blade, s.off, s.p)
	}
	m.dirty = nil
}

// whole reports whether all damaged bytes are as they were.
func (m *anatomy) whole() bool {
	was := map[spotKey]byte{} // the first state of each byte counts
	for _, s := range slices.Backward(m.dirty) {
		for i, x := range s.p {
			was[spotKey{s.blade, s.off + uint64(i)}] = x
		}
	}
	for k, x := range was {
		if m.raw(k.blade, k.off, 1)[0] != x {
			return false
		}
	}
	return true
}

type spotKey struct {
	blade rdma.BladeID
	off   uint64
}

func (m *anatomy) get(a memory.Addr, k, n int) []byte {
	at := m.v.At(a, k)
	return m.raw(at.Blade, at.Off, n)
}

func (m *anatomy) word(a memory.Addr, k int) uint64 {
	return binary.LittleEndian.Uint64(m.get(a, k, 8))
}

func (m *anatomy) put(a memory.Addr, k int, p []byte) {
	at := m.v.At(a, k)
	m.poke(at.Blade, at.Off, p)
}

func (m *anatomy) putWord(a memory.Addr, k int, w uint64) {
	m.put(a, k, binary.LittleEndian.AppendUint64(nil, w))
}

// everywhere sets a word on all copies.
func (m *anatomy) everywhere(a memory.Addr, w uint64) {
	for k := range m.v.Copies(a) {
		m.putWord(a, k, w)
	}
}

// flip inverts a byte.
func (m *anatomy) flip(a memory.Addr, k int) {
	m.put(a, k, []byte{m.get(a, k, 1)[0] ^ 0xff})
}

// live is the number of a slot with a live record, unlike those before it.
func (m *anatomy) live(after int) int {
	for i := after + 1; i < len(m.slots); i++ {
		if record.Image(m.get(m.blocks[i].Addr, 0, 64)).Meta().State() == record.Live {
			return i
		}
	}
	m.t.Fatal("no record")
	return 0
}

// long is a record whose value is behind the first line.
func (m *anatomy) long() memory.Addr {
	for i := m.live(-1); ; i = m.live(i) {
		if record.Image(m.get(m.blocks[i].Addr, 0, 64)).Meta().ValueLen() > 24 {
			return m.blocks[i].Addr
		}
	}
}

// emptySlot is an empty slot in the bucket of slot number i.
func (m *anatomy) emptySlot(i int) memory.Addr {
	bucket := m.slots[i] &^ 63
	for k := range memory.Addr(7) {
		if race.Slot(m.word(bucket+8*k, 0)).Empty() {
			return bucket + 8*k
		}
	}
	return 0
}

// roomy is the number of a slot with a live record and an empty slot beside it.
func (m *anatomy) roomy() (int, memory.Addr) {
	for i := m.live(-1); ; i = m.live(i) {
		if e := m.emptySlot(i); e != 0 {
			return i, e
		}
	}
}

// entry is where directory entry i is.
func (m *anatomy) entry(i int) memory.Addr { return m.ix.Root() + 128 + memory.Addr(8*i) }

// depth is the global depth.
func (m *anatomy) depth() int { return int(m.word(m.ix.Root()+64, 0)) }

// extentWord is where the word of the extent at a is.
func (m *anatomy) extentWord(a memory.Addr) memory.Addr {
	return memory.MakeAddr(a.Segment(), a.Offset()/memory.ExtentUnit(m.l.SegmentSize)*8)
}

// seal writes an image of one line on all copies.
func (m *anatomy) seal(a memory.Addr, class memory.Class, state record.State, key, value []byte) {
	img := make(record.Image, class.Size())
	n := img.Put(a, record.MakeTxID(1, 1), state, 1, class, 0, key, value)
	for k := range m.v.Copies(a) {
		m.put(a, k, img[:n])
	}
}

// want is a finding that damage leads to.
type want struct {
	kind verify.Kind
	addr memory.Addr
	copy int
}

// damages are one of each kind. do returns what is to be found, exactly; mends says
// that a repair brings back every byte.
var damages = []struct {
	name  string
	mends bool
	do    func(m *anatomy) []want
}{
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
	{"a slot lost on all copies", false, func(m *anatomy) []want {
		i := m.live(-1)
		m.everywhere(m.slots[i], 0)
		return []want{{verify.KindOrphan, m.blocks[i].Addr, 0}}
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
			if e := m.emptySlot(j); e != 0 && (e-m.slots[i] > 4*192 && m.slots[i]-e > 4*192) && m.table(e) == m.table(m.slots[i]) && m.far(i, e) {
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
			if m.l.Segments[id].Kind == memory.KindLog {
				a := memory.MakeAddr(memory.SegmentID(id), 3*testLog+4096)
				m.putWord(a, 0, 1)
				return []want{{verify.KindLog, a, 0}}
			}
		}
		return nil
	}},
}

// far reports whether an empty slot is in no bucket of slot i's key.
func (m *anatomy) far(i int, e memory.Addr) bool {
	p := m.get(m.blocks[i].Addr, 0, 64)
	key := record.Image(p).Key()
	line := uint32(e-m.table(e)) &^ 63
	first, second := m.ix.Geometry().Places(record.Hash(1, key))
	return line-first >= 128 && line-second >= 128
}

// table is the sub-table that a slot is in.
func (m *anatomy) table(slot memory.Addr) memory.Addr {
	for i := range 1 << m.depth() {
		if t := race.Entry(m.word(m.entry(i), 0)).Table(); slot-t < memory.Addr(64+192*m.ix.Geometry().Groups) {
			return t
		}
	}
	m.t.Fatalf("%v is in no sub-table", slot)
	return 0
}

// marked is the header that says that the key of some slot is in its second choice,
// and the bit of it that says so.
func (m *anatomy) marked() (header memory.Addr, bit uint64) {
	for i := range m.slots {
		hash := record.Hash(1, record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key())
		t := m.table(m.slots[i])
		first, _ := m.ix.Geometry().Places(hash)
		if uint32(m.slots[i]-t)&^63-first >= 128 {
			return t + memory.Addr(race.MarkAt(first)), uint64(race.SpillBit(uint8(hash >> 56)))
		}
	}
	m.t.Fatal("no key is in its second choice")
	return 0, 0
}

func (m *anatomy) everyByte(a memory.Addr, k, n int) {
	p := m.get(a, k, n)
	for i := range p {
		p[i] ^= 0xff
	}
	m.put(a, k, p)
}

// TestDamageIsFound damages a database in one way after another: each is found where
// it is and reported as what it is, once; a repair brings back the bytes where that
// is promised, and reports what it did; where it is not, it changes nothing.
func TestDamageIsFound(t *testing.T) {
	for _, v := range []variant{{2, 1, occ.PolicyDefault}, {3, 2, occ.PolicyDefault}} {
		dir := t.TempDir()
		populate(t, dir, v, 300)
		m := dissect(t, dir)
		for _, d := range damages {
			t.Run(fmt.Sprintf("backups=%d/%s", v.backups, d.name), func(t *testing.T) {
				m.t = t
				defer m.heal()
				wants := d.do(m)
				_, found := check(t, dir, false)
				compare(t, wants, found)
				for _, f := range found {
					if f.Repaired || f.Failed != nil {
						t.Errorf("repaired without being asked to: %v", f)
					}
				}
				sum, found := check(t, dir, true)
				if _, again := check(t, dir, false); d.mends {
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

// cleanAfter names what is repaired, but not to the bytes that were there before.
func (m *anatomy) cleanAfter(name string) bool {
	return name == "a free block that a backup thinks is in use"
}

func compare(t *testing.T, wants []want, found []verify.Finding) {
	t.Helper()
	ok := len(found) == len(wants)
	for _, w := range wants {
		ok = ok && slices.ContainsFunc(found, func(f verify.Finding) bool { return f.Kind == w.kind && f.Addr == w.addr && f.Copy == w.copy })
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

// TestHeaders damages the headers of regions, which have no address.
func TestHeaders(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	m := dissect(t, dir)
	for _, c := range []struct {
		copies []int
		remedy bool
	}{{[]int{0}, true}, {[]int{1}, true}, {[]int{0, 1}, false}} {
		for _, k := range c.copies {
			m.poke(1, memory.HeaderOffset(k)+16, []byte{0x55})
		}
		_, found := check(t, dir, false)
		if len(found) != len(c.copies) {
			t.Errorf("copies %v:\n%s", c.copies, show(found))
		}
		for i, f := range found {
			if f.Kind != verify.KindHeader || f.Blade != 1 || f.Off != memory.HeaderOffset(c.copies[i]) || f.Copy != c.copies[i] || f.Remedy != "" != c.remedy {
				t.Errorf("%v: %+v", c, f)
			}
		}
		if c.remedy {
			if sum, _ := check(t, dir, true); sum.Repaired != 1 || !m.whole() {
				t.Errorf("repair: %+v", sum)
			}
		}
		m.heal()
	}
	m.poke(0, 0, m.raw(1, 0, 64)) // another blade's
	if _, found := check(t, dir, false); len(found) != 1 || found[0].Kind != verify.KindHeader {
		t.Errorf("another blade's header:\n%s", show(found))
	}
	m.heal()
}

// TestStrangeBlade: a region that is blank, or somebody else's, is neither damage, of
// which there would be a line for every word, nor proof of anything: a repair that
// believed it would write it over the last good copy.
func TestStrangeBlade(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 50)
	m := dissect(t, dir)
	own := m.l.HeaderOf(1)
	encode := func(change func(h *memory.RegionHeader)) func(k int) []byte {
		h := own
		change(&h)
		return h.Encode
	}
	others := map[string]func(k int) []byte{
		"blank":           func(int) []byte { return make([]byte, memory.RegionHeaderSize) },
		"text":            func(int) []byte { return bytes.Repeat([]byte("text"), memory.RegionHeaderSize/4) },
		"another's":       encode(func(h *memory.RegionHeader) { h.UUID[3] ^= 1 }),
		"another blade's": encode(func(h *memory.RegionHeader) { h.Blade = 0 }),
	}
	for name, header := range others {
		for k := range memory.HeaderCopies {
			m.poke(1, memory.HeaderOffset(k), header(k))
		}
		for b := range m.l.Blades { // and damage elsewhere, which is not mended now
			m.poke(rdma.BladeID(b), uint64(m.l.SegmentSize), []byte{0x55})
		}
		for _, repair := range []bool{false, true} {
			sum, found := check(t, dir, repair)
			if len(found) != memory.HeaderCopies || !slices.Equal(sum.Strange, []rdma.BladeID{1}) || sum.Repaired != 0 || sum.Clean() {
				t.Errorf("%s, repair %v: %+v\n%s", name, repair, sum, show(found))
			}
		}
		m.heal()
	}
	// One copy that proves the blade is enough.
	m.poke(1, memory.HeaderOffset(0), others["blank"](0))
	if sum, found := check(t, dir, true); len(found) != 1 || len(sum.Strange) != 0 || sum.Repaired != 1 {
		t.Errorf("one blank copy: %+v\n%s", sum, show(found))
	}
}

// TestPending leaves a coordinator behind with a transaction that is decided and one
// whose record is of no consequence any more.
func TestPending(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir, variant{2, 1, occ.PolicyDefault}, 100)
	m := dissect(t, dir)
	db, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	coord, err := db.Space().NewCoordinator()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	i := m.live(-1)
	j := m.live(i)
	tx, old, lost := record.MakeTxID(coord.ID, 7), record.MakeTxID(coord.ID, 3), record.MakeTxID(coord.ID, 9)
	put := func(off uint64, kind log.Kind, tx record.TxID, a memory.Addr, prev record.TxID) {
		buf := make([]byte, 1024)
		var b log.Builder
		b.Reset()
		w := b.Add(buf, 64)
		copy(buf[w:], m.get(a, 0, 64))
		record.Image(buf[w:]).SetGuard(record.FreeAt(tx))
		b.Set(buf, w, log.Update, a, prev, 0, 64)
		n := b.Finish(buf, kind, tx, 0, 0)
		for _, area := range coord.Logs {
			m.poke(area.Addr.Blade, area.Addr.Off+off, buf[:n])
		}
	}
	a, b := m.blocks[i].Addr, m.blocks[j].Addr
	put(0, log.Undo, old, a, 1)
	if sum, found := check(t, dir, false); len(found) > 0 || sum.LogRecords != 1 || sum.Coordinators != 1 {
		t.Errorf("an old record: %+v\n%s", sum, show(found))
	}
	put(512, log.Redo, tx, a, record.Image(m.get(a, 0, 64)).Version())
	put(1024, log.Redo, lost, b, record.Image(m.get(b, 0, 64)).Version())
	m.putWord(a+record.GuardOff, 0, uint64(record.HeldBy(tx)))
	logs := memory.Addr(0)
	for id := range m.l.Segments {
		if s := &m.l.Segments[id]; s.Kind == memory.KindLog && s.Placement.Replicas[0].Blade == 0 && logs == 0 {
			logs = memory.MakeAddr(memory.SegmentID(id), uint32(coord.Logs[0].Addr.Off-s.Placement.Replicas[0].Base))
		}
	}
	for _, repair := range []bool{false, true} {
		_, found := check(t, dir, repair)
		compare(t, []want{{verify.KindPending, logs + 512, 0}, {verify.KindPending, logs + 1024, 0}, {verify.KindLock, a, 0}}, found)
	}
	for name, c := range map[string]struct {
		run  func(d *verify.Dump, _ *verify.Database) error
		want []string
	}{
		"log": {func(d *verify.Dump, _ *verify.Database) error { return d.Log(coord.ID, 1) },
			[]string{"transaction " + old.String(), "undo, 1 entries", "update of the block at " + a.String(), "transaction " + lost.String(), "  guard: free at version " + tx.String()}},
		"tx": {func(d *verify.Dump, _ *verify.Database) error { return d.Tx(tx) },
			[]string{"was not closed", "its record in the log on blade 0", "its record in the log on blade 1", ", locked by " + tx.String(), "1 blocks have"}},
	} {
		out, err := dump(t, dir, 0, c.run)
		for _, w := range c.want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("%s: %v, %q is not in\n%s", name, err, w, out)
			}
		}
	}
	put(2048, log.Redo, record.MakeTxID(coord.ID+1, 1), a, 1)
	if _, found := check(t, dir, false); len(found) != 5 || found[2].Kind != verify.KindLog {
		t.Errorf("a foreign record:\n%s", show(found))
	}
}
