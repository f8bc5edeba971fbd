package verify_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"txnode/index/blink"
	"txnode/index/bucket"
	"txnode/index/tree"
	"txnode/memory"
	"txnode/memory/embedded"
	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// anatomy is where things are in a database that is closed.
type anatomy struct {
	t      testing.TB
	dir    string
	l      *layout.Layout
	v      *layout.View
	dirty  []spot         // bytes as they were before they were damaged
	leaves []layout.Addr  // of table 1, from left to right
	nodes  layout.Class   // of the leaves
	blocks []bucket.Block // that they link, in their order
	of     []int          // by block: the number of its leaf
	free   []layout.Addr  // blocks that are free, of the class of blocks[0], by address
	extent layout.Addr    // one that is reserved
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
	m := &anatomy{t: t, dir: dir, l: db.Space().Layout(), v: db.Space().View()}
	table := &m.l.Tables[0]
	m.nodes = table.Nodes
	root, err := blink.DecodeRoot(record.Image(m.get(table.Root, 0, 64)).Value())
	if err != nil {
		t.Fatal(err)
	}
	at := root.Addr
	for range root.Level {
		n, err := blink.Decode(record.Image(m.get(at, 0, int(tree.GeometryOf(table).Class.Size()))).Value())
		if err != nil {
			t.Fatal(err)
		}
		at = n.Addr(0)
	}
	for ; at != 0; at = m.leaf(at).Right() {
		for i := range m.leaf(at).Count() {
			m.blocks, m.of = append(m.blocks, m.leaf(at).Block(i)), append(m.of, len(m.leaves))
		}
		m.leaves = append(m.leaves, at)
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
	for _, r := range m.l.Reserved {
		m.extent = r.Addr
	}
	return m
}

// leaf is the leaf at a, as the primary has it.
func (m *anatomy) leaf(a layout.Addr) bucket.Leaf {
	m.t.Helper()
	l, _, err := tree.Leaf(record.Image(m.get(a, 0, int(m.nodes.Size()))).Value())
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

// leafOf is the leaf of block number i.
func (m *anatomy) leafOf(i int) layout.Addr { return m.leaves[m.of[i]] }

// relink changes entries of the leaf at a, on all copies.
func (m *anatomy) relink(a layout.Addr, changes ...bucket.Change) {
	m.t.Helper()
	var b bucket.Builder
	room := blink.Geometry{Class: m.nodes}.Room() - bucket.HeadSize
	if n, err := b.Apply(room, m.leaf(a), changes); err != nil || n != 1 {
		m.t.Fatalf("%d images, %v", n, err)
	}
	m.setNode(a, b.AppendBody(b.AppendHead(nil, 0, 0), 0))
}

// setNode writes the value of a leaf to all copies.
func (m *anatomy) setNode(a layout.Addr, value []byte) {
	img := make(record.Image, m.nodes.Size())
	n := img.Put(a, record.MakeTxID(1, 1), record.Node, 1, m.nodes, 0, nil, value)
	for k := range m.v.Copies(a) {
		m.put(a, k, img[:n])
	}
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

// live is the number of a block with a live record, unlike those before it.
func (m *anatomy) live(after int) int {
	for i := after + 1; i < len(m.blocks); i++ {
		if record.Image(m.get(m.blocks[i].Addr, 0, 64)).Meta().State() == record.Live {
			return i
		}
	}
	m.t.Fatal("no record")
	return 0
}

// roomy is the number of a live record whose leaf has room for one more.
func (m *anatomy) roomy() int {
	room := blink.Geometry{Class: m.nodes}.Room() - bucket.HeadSize
	for i := m.live(-1); ; i = m.live(i) {
		if l := m.leaf(m.leafOf(i)); l.Count() < bucket.Capacity(room, l.Depth()) {
			return i
		}
	}
}

// key is the key of block number i.
func (m *anatomy) key(i int) []byte {
	return record.Image(m.get(m.blocks[i].Addr, 0, 64)).Key()
}

// long is a record whose value is behind the first line.
func (m *anatomy) long() layout.Addr {
	for i := m.live(-1); ; i = m.live(i) {
		if record.Image(m.get(m.blocks[i].Addr, 0, 64)).Meta().ValueLen() > 24 {
			return m.blocks[i].Addr
		}
	}
}

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

func (m *anatomy) everyByte(a layout.Addr, k, n int) {
	p := m.get(a, k, n)
	for i := range p {
		p[i] ^= 0xff
	}
	m.put(a, k, p)
}

// cleanAfter names what is repaired, but not to the bytes that were there before.
func (m *anatomy) cleanAfter(name string) bool {
	return name == "a free block that a backup thinks is in use" ||
		name == "a deleted record to which nothing leads" || name == "an entry that is lost"
}
