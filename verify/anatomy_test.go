package verify_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"txnode/index"
	"txnode/index/race"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// anatomy is where things are in a database that is closed.
type anatomy struct {
	t     testing.TB
	dir   string
	l     *layout.Layout
	v     *layout.View
	ix    *race.Index
	dirty []spot // bytes as they were before they were damaged
	// slots of table 1, and their blocks; in the order of the walk.
	slots  []layout.Addr
	blocks []index.Candidate
	free   []layout.Addr // blocks that are free, of the class of blocks[0], by address
	lone   layout.Addr   // the slot that needs what marked has returned
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
	err = m.ix.Walk(c, func(at layout.Addr, b index.Candidate) error {
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
		if s := &m.l.Segments[id]; s.Kind == layout.KindBlocks && s.Class == class {
			seg := m.get(layout.MakeAddr(layout.SegmentID(id), 0), 0, int(m.l.SegmentSize))
			for off := uint32(0); off+class.Size() <= m.l.SegmentSize; off += class.Size() {
				if record.Image(seg[off:]).Meta().State() == record.Free {
					m.free = append(m.free, layout.MakeAddr(layout.SegmentID(id), off))
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

// spoil changes a byte of a blade's file, whatever it is; heal brings it back.
func (m *anatomy) spoil(b rdma.BladeID, off uint64) {
	m.t.Helper()
	m.poke(b, off, []byte{m.raw(b, off, 1)[0] ^ 0x55})
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

func (m *anatomy) get(a layout.Addr, k, n int) []byte {
	at := m.v.At(a, k)
	return m.raw(at.Blade, at.Off, n)
}

func (m *anatomy) word(a layout.Addr, k int) uint64 {
	return binary.LittleEndian.Uint64(m.get(a, k, 8))
}

func (m *anatomy) put(a layout.Addr, k int, p []byte) {
	at := m.v.At(a, k)
	m.poke(at.Blade, at.Off, p)
}

func (m *anatomy) putWord(a layout.Addr, k int, w uint64) {
	m.put(a, k, binary.LittleEndian.AppendUint64(nil, w))
}

// everywhere sets a word on all copies.
func (m *anatomy) everywhere(a layout.Addr, w uint64) {
	for k := range m.v.Copies(a) {
		m.putWord(a, k, w)
	}
}

// flip inverts a byte.
func (m *anatomy) flip(a layout.Addr, k int) {
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
func (m *anatomy) long() layout.Addr {
	for i := m.live(-1); ; i = m.live(i) {
		if record.Image(m.get(m.blocks[i].Addr, 0, 64)).Meta().ValueLen() > 24 {
			return m.blocks[i].Addr
		}
	}
}

// emptySlot is an empty slot in the bucket of slot number i.
func (m *anatomy) emptySlot(i int) layout.Addr {
	bucket := m.slots[i] &^ 63
	for k := range layout.Addr(7) {
		if race.Slot(m.word(bucket+8*k, 0)).Empty() {
			return bucket + 8*k
		}
	}
	return 0
}

// roomy is the number of a slot with a live record and an empty slot beside it.
func (m *anatomy) roomy() (int, layout.Addr) {
	for i := m.live(-1); ; i = m.live(i) {
		if e := m.emptySlot(i); e != 0 {
			return i, e
		}
	}
}

// entry is where directory entry i is.
func (m *anatomy) entry(i int) layout.Addr {
	if k := bits.Len(uint(i)) - 1; k >= 3 {
		return layout.Addr(m.word(m.ix.Root()+80+layout.Addr(8*(k-3)), 0)) + 64 + layout.Addr(8*(i-1<<k))
	}
	return m.ix.Root() + 256 + layout.Addr(8*i)
}

// depth is the global depth.
func (m *anatomy) depth() int { return int(m.word(m.ix.Root()+64, 0)) }

// extentWord is where the word of the extent at a is.
func (m *anatomy) extentWord(a layout.Addr) layout.Addr {
	return layout.MakeAddr(a.Segment(), a.Offset()/memory.ExtentUnit(m.l.SegmentSize)*8)
}

// seal writes an image of one line on all copies.
func (m *anatomy) seal(a layout.Addr, class layout.Class, state record.State, key, value []byte) {
	img := make(record.Image, class.Size())
	n := img.Put(a, record.MakeTxID(1, 1), state, 1, class, 0, key, value)
	for k := range m.v.Copies(a) {
		m.put(a, k, img[:n])
	}
}

// far reports whether an empty slot is in no bucket of slot i's key.
func (m *anatomy) far(i int, e layout.Addr) bool {
	p := m.get(m.blocks[i].Addr, 0, 64)
	key := record.Image(p).Key()
	line := uint32(e-m.table(e)) &^ 63
	first, second := m.ix.Geometry().Places(record.Hash(1, key))
	return line-first >= 128 && line-second >= 128
}

// table is the sub-table that a slot is in.
func (m *anatomy) table(slot layout.Addr) layout.Addr {
	for i := range 1 << m.depth() {
		if t := race.Entry(m.word(m.entry(i), 0)).Table(); slot-t < layout.Addr(64+192*m.ix.Geometry().Groups) {
			return t
		}
	}
	m.t.Fatalf("%v is in no sub-table", slot)
	return 0
}

// foremost is the number of a slot with a live record, with no empty one before it in the order
// in which slots are taken.
func (m *anatomy) foremost() int {
	for i := m.live(-1); ; i = m.live(i) {
		t, key := m.table(m.slots[i]), record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key()
		first, _ := m.ix.Geometry().Places(record.Hash(1, key))
		at := t + layout.Addr(race.MarkAt(first))&^63
		for at&63 < 56 && at != m.slots[i] && !race.Slot(m.word(at, 0)).Empty() {
			at += 8
		}
		if at == m.slots[i] {
			return i
		}
	}
}

// marked is the header that says that the key of some slot is in its second choice,
// and the bit of it that says so. No other key needs that.
func (m *anatomy) marked() (header layout.Addr, bit uint64) {
	needs := map[layout.Addr][]int{}
	for i := range m.slots {
		hash := record.Hash(1, record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key())
		t := m.table(m.slots[i])
		first, _ := m.ix.Geometry().Places(hash)
		if uint32(m.slots[i]-t)&^63-first >= 128 {
			a := t + layout.Addr(race.MarkAt(first))
			needs[a] = append(needs[a], i)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(needs)) {
		of := map[uint64][]int{}
		for _, j := range needs[i] {
			hash := record.Hash(1, record.Image(m.get(m.blocks[j].Addr, 0, 64)).Key())
			b := uint64(race.SpillBit(uint8(hash >> 56)))
			of[b] = append(of[b], j)
		}
		for b, all := range of {
			if len(all) == 1 {
				m.lone = m.slots[all[0]]
				return i, b
			}
		}
	}
	m.t.Fatal("no key is in its second choice")
	return 0, 0
}

func (m *anatomy) everyByte(a layout.Addr, k, n int) {
	p := m.get(a, k, n)
	for i := range p {
		p[i] ^= 0xff
	}
	m.put(a, k, p)
}

// cleanAfter names what is repaired, but not to the bytes that were there before.
func (m *anatomy) cleanAfter(name string) bool {
	return name == "a free block that a backup thinks is in use"
}
