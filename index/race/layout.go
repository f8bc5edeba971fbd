package race

import (
	"encoding/binary"
	"fmt"

	"txnode/memory/layout"
	"txnode/memory/record"
	"txnode/rdma"
)

// Geometry of a bucket and a group (RACE, section 3.2, figures 4 and 6).
const (
	lineSize     = 64
	slotsPerLine = 7
	groupLines   = 3 // main bucket, overflow bucket, main bucket
	groupSize    = groupLines * lineSize
	combinedSize = 2 * lineSize // a main bucket and the overflow bucket beside it
	groupSlots   = groupLines * slotsPerLine

	// headerOff is the place of the header in its bucket: after the slots, so
	// that a READ, which copies a line in increasing order, takes it last.
	headerOff = slotsPerLine * 8

	// tableHeader is the size of what precedes the groups of a sub-table.
	tableHeader = lineSize
)

// Places in the root extent.
const (
	rootMagicOff    = 0
	rootGeometryOff = 8
	rootSumOff      = 56
	depthOff        = 64 // the global depth
	dirLockOff      = 72 // who is changing the directory, 0: nobody
	partsOff        = 80 // where the parts of the directory are, from part rootBits on; 0: nowhere yet
	dirOff          = 256
	rootSize        = dirOff + rootEntries*8
	rootMagic       = 0x3345434152_4e5854 // "TXNRACE3": the last digit is the version of the format
)

// The first entries of the directory are in the root extent, each doubling after that fills an
// extent of its own: part k has the entries from 1<<k to 2<<k.
const (
	rootBits    = 3
	rootEntries = 1 << rootBits

	partMagicOff    = 0
	partGeometryOff = 8
	partRootOff     = 16
	partNumberOff   = 24
	partSumOff      = 56
	partHeader      = lineSize
	partMagic       = 0x3152494452_4e5854 // "TXNRDIR1"
)

// Places in the first line of a sub-table.
const (
	tableMagicOff    = 0
	tableGeometryOff = 8
	tableBirthOff    = 16 // the suffix that it was made for, and its depth then
	tableParentOff   = 24 // the sub-table that it was split from, 0: none
	tableRootOff     = 32
	tableSumOff      = 40
	tableChildOff    = 48                  // the sub-table that it is just being split into, 0: none
	tableLockOff     = 56                  // who is splitting it, 0: nobody
	tableMagic       = 0x4254425553_4e5854 // "TXNSUBTB"
)

// The two magic words must differ, and everything that is locked must be aligned.
var (
	_ = [1]struct{}{}[tableChildOff%8+tableLockOff%8+dirLockOff%8+depthOff%8+headerOff%8]
	_ [rootMagic ^ tableMagic - 1]struct{}
	_ [dirOff - partsOff - 8*(MaxMaxDepth-rootBits)]struct{} // all parts have a word
	_ [lineSize - headerOff - 8]struct{}
)

// Slot is a word of a bucket: where the block of a key is. A slot is empty if it is
// zero, or a trace: what is left of a key that was removed.
//
//	 63         56 55     54 53    48 47                0
//	+-------------+--------+--+------+-------------------+
//	| fingerprint | moving | 0| class|      address      |
//	+-------------+--------+--+------+-------------------+
//
// A slot is moving while the client that splits its sub-table carries it to the
// new one; no other client may change it then.
//
//	 63   55    54    53  48 47                0
//	+-------+-------+-------+-------------------+
//	|   0   |   1   |   0   |  random number    |    a trace
//	+-------+-------+-------+-------------------+
//
// Traces differ from each other and from zero. So a reader that finds a slot as it was
// knows that nothing has been there in between (see Unchanged).
type Slot uint64

const (
	slotMoving  Slot = 1 << 55
	slotTrace   Slot = 1 << 54
	fpShift          = 56
	classShift       = 48
	classMask        = 63
	addrMask         = 1<<layout.AddrBits - 1
	alignedMask      = layout.BlockAlign - 1
)

// MakeSlot composes a slot.
func MakeSlot(fp uint8, class layout.Class, a layout.Addr) Slot {
	return Slot(fp)<<fpShift | Slot(class)<<classShift | Slot(a)
}

// Fingerprint is 8 bits of the hash of the key.
func (s Slot) Fingerprint() uint8 { return uint8(s >> fpShift) }

// Class is the size class of the block.
func (s Slot) Class() layout.Class { return layout.Class(s >> classShift & classMask) }

// Addr is where the block is; 0 for an empty slot.
func (s Slot) Addr() layout.Addr {
	if s&slotTrace != 0 {
		return 0
	}
	return layout.Addr(s & addrMask)
}

// Empty reports whether the slot points to no block.
func (s Slot) Empty() bool { return s == 0 || s>>classShift == slotTrace>>classShift }

// trace returns what a slot holds that is emptied.
func trace(c *rdma.Coro) uint64 {
	return uint64(slotTrace) | c.Thread().Rand()&addrMask
}

// Moving reports whether the slot is being carried to another sub-table.
func (s Slot) Moving() bool { return s&slotMoving != 0 }

// Check reports what is impossible about a slot that is not empty.
func (s Slot) Check() error {
	switch {
	case s&slotTrace != 0:
		return fmt.Errorf("slot %#016x is a trace, but not only that", uint64(s))
	case s.Addr() == 0:
		return fmt.Errorf("slot %#016x has no address", uint64(s))
	case s.Addr()&alignedMask != 0:
		return fmt.Errorf("slot %#016x points into the middle of a line", uint64(s))
	}
	return nil
}

// String returns "fp 3f class 2 seg 1 +0x40".
func (s Slot) String() string {
	switch {
	case s == 0:
		return "empty"
	case s.Empty():
		return fmt.Sprintf("empty, trace %012x", uint64(s&addrMask))
	}
	m := ""
	if s.Moving() {
		m = " moving"
	}
	return fmt.Sprintf("fp %02x class %d %v%s", s.Fingerprint(), s.Class(), s.Addr(), m)
}

// Entry is a word of the directory: the sub-table of all keys whose hashes end
// with the entry's index.
//
//	 63   57 56        55      48 47                0
//	+-------+---------+----------+-------------------+
//	|   0   | filling |  depth   |     sub-table     |
//	+-------+---------+----------+-------------------+
//
// A sub-table is filling while the keys that it has been made for are carried to
// it from the one that is split: they may be in either.
type Entry uint64

const entryFilling Entry = 1 << 56

// MakeEntry composes an entry.
func MakeEntry(t layout.Addr, depth uint8) Entry { return Entry(depth)<<layout.AddrBits | Entry(t) }

// Table is where the sub-table is.
func (e Entry) Table() layout.Addr { return layout.Addr(e & addrMask) }

// Depth is the local depth of the sub-table.
func (e Entry) Depth() uint8 { return uint8(e >> layout.AddrBits) }

// Filling reports whether the sub-table is being filled by a split.
func (e Entry) Filling() bool { return e&entryFilling != 0 }

// Check reports what is impossible about an entry of a directory that has room
// for 1<<maxDepth.
func (e Entry) Check(maxDepth uint8) error {
	switch {
	case e.Table() == 0 || e.Table()&alignedMask != 0 || e>>57 != 0:
		return fmt.Errorf("%#016x is no directory entry", uint64(e))
	case e.Depth() > maxDepth:
		return fmt.Errorf("local depth %d, at most %d is possible", e.Depth(), maxDepth)
	case e.Filling() && e.Depth() == 0:
		return fmt.Errorf("sub-table of depth 0 cannot come from a split")
	}
	return nil
}

// String returns "depth 2 seg 1 +0x80".
func (e Entry) String() string {
	m := ""
	if e.Filling() {
		m = " filling"
	}
	return fmt.Sprintf("depth %d %v%s", e.Depth(), e.Table(), m)
}

// Geometry is what never changes of an index. It is stored in its root and in
// every sub-table, and compared when it is opened.
type Geometry struct {
	Groups   uint32 // bucket groups of a sub-table
	MaxDepth uint8  // the directory grows to 1<<MaxDepth entries
	Table    uint16
}

func (g Geometry) word() uint64 {
	return uint64(g.Groups) | uint64(g.MaxDepth)<<32 | slotsPerLine<<40 | uint64(g.Table)<<48
}

func parseGeometry(w uint64) (Geometry, error) {
	g := Geometry{Groups: uint32(w), MaxDepth: uint8(w >> 32), Table: uint16(w >> 48)}
	if w>>40&255 != slotsPerLine {
		return g, fmt.Errorf("buckets of %d slots, this version has %d", w>>40&255, slotsPerLine)
	}
	return g, g.validate()
}

// tableSize is the size of a sub-table in bytes.
func (g Geometry) tableSize() uint32 { return tableHeader + g.Groups*groupSize }

// partSize is the size of part k of the directory in bytes.
func partSize(k uint8) uint32 { return partHeader + 8<<k }

// putPart writes the first line of part k of the directory of the index at root.
func (g Geometry) putPart(p []byte, root layout.Addr, k uint8) {
	clear(p[:partHeader])
	binary.LittleEndian.PutUint64(p[partMagicOff:], partMagic)
	binary.LittleEndian.PutUint64(p[partGeometryOff:], g.word())
	binary.LittleEndian.PutUint64(p[partRootOff:], uint64(root))
	binary.LittleEndian.PutUint64(p[partNumberOff:], uint64(k))
	binary.LittleEndian.PutUint64(p[partSumOff:], record.Sum(partMagic, p[:partSumOff]))
}

// ParsePart decodes the first line of a part of a directory: whose it is, and which.
func ParsePart(p []byte) (g Geometry, root layout.Addr, k uint8, err error) {
	if len(p) < partHeader || binary.LittleEndian.Uint64(p[partMagicOff:]) != partMagic {
		return g, 0, 0, fmt.Errorf("no part of a directory here")
	}
	if binary.LittleEndian.Uint64(p[partSumOff:]) != record.Sum(partMagic, p[:partSumOff]) {
		return g, 0, 0, fmt.Errorf("checksum of the part of the directory is wrong")
	}
	if g, err = parseGeometry(binary.LittleEndian.Uint64(p[partGeometryOff:])); err != nil {
		return g, 0, 0, err
	}
	n := binary.LittleEndian.Uint64(p[partNumberOff:])
	if n < rootBits || n >= uint64(g.MaxDepth) {
		return g, 0, 0, fmt.Errorf("part %d of a directory of %d", n, g.MaxDepth)
	}
	return g, layout.Addr(binary.LittleEndian.Uint64(p[partRootOff:])), uint8(n), nil
}

// PartSize is the size of part k of a directory, and RootSize that of a root, in bytes.
func PartSize(k uint8) uint32 { return partSize(k) }

// RootSize is the size of the root extent of an index, in bytes.
func RootSize() uint32 { return rootSize }

// putRoot writes the first line of a root.
func (g Geometry) putRoot(p []byte) {
	clear(p[:lineSize])
	binary.LittleEndian.PutUint64(p[rootMagicOff:], rootMagic)
	binary.LittleEndian.PutUint64(p[rootGeometryOff:], g.word())
	binary.LittleEndian.PutUint64(p[rootSumOff:], record.Sum(rootMagic, p[:rootSumOff]))
}

// ParseRoot decodes the first line of a root extent.
func ParseRoot(p []byte) (Geometry, error) {
	if len(p) < lineSize {
		return Geometry{}, fmt.Errorf("no RACE index here")
	}
	if m := binary.LittleEndian.Uint64(p[rootMagicOff:]); m != rootMagic {
		if m&^(0xff<<56) == rootMagic&^(0xff<<56) {
			return Geometry{}, fmt.Errorf("RACE index of format %q, this version reads %q: load the data anew",
				p[7:8], byte(rootMagic>>56))
		}
		return Geometry{}, fmt.Errorf("no RACE index here")
	}
	if binary.LittleEndian.Uint64(p[rootSumOff:]) != record.Sum(rootMagic, p[:rootSumOff]) {
		return Geometry{}, fmt.Errorf("checksum of the root is wrong")
	}
	return parseGeometry(binary.LittleEndian.Uint64(p[rootGeometryOff:]))
}

// Birth is the first line of a sub-table: where it comes from.
type Birth struct {
	Geometry
	Suffix uint32
	Depth  uint8
	Parent layout.Addr // 0: made with the index
	Root   layout.Addr
}

func (t Birth) put(p []byte) {
	clear(p[:lineSize])
	binary.LittleEndian.PutUint64(p[tableMagicOff:], tableMagic)
	binary.LittleEndian.PutUint64(p[tableGeometryOff:], t.word())
	binary.LittleEndian.PutUint64(p[tableBirthOff:], uint64(t.Suffix)|uint64(t.Depth)<<32)
	binary.LittleEndian.PutUint64(p[tableParentOff:], uint64(t.Parent))
	binary.LittleEndian.PutUint64(p[tableRootOff:], uint64(t.Root))
	binary.LittleEndian.PutUint64(p[tableSumOff:], record.Sum(tableMagic, p[:tableSumOff]))
}

// ParseBirth decodes the first line of a sub-table.
func ParseBirth(p []byte) (Birth, error) {
	var t Birth
	if len(p) < lineSize || binary.LittleEndian.Uint64(p[tableMagicOff:]) != tableMagic {
		return t, fmt.Errorf("no sub-table here")
	}
	if binary.LittleEndian.Uint64(p[tableSumOff:]) != record.Sum(tableMagic, p[:tableSumOff]) {
		return t, fmt.Errorf("checksum of the sub-table's header is wrong")
	}
	g, err := parseGeometry(binary.LittleEndian.Uint64(p[tableGeometryOff:]))
	if err != nil {
		return t, err
	}
	b := binary.LittleEndian.Uint64(p[tableBirthOff:])
	t = Birth{
		Geometry: g, Suffix: uint32(b), Depth: uint8(b >> 32),
		Parent: layout.Addr(binary.LittleEndian.Uint64(p[tableParentOff:])),
		Root:   layout.Addr(binary.LittleEndian.Uint64(p[tableRootOff:])),
	}
	if b>>40 != 0 || t.Depth > g.MaxDepth || t.Suffix&^suffixMask(t.Depth) != 0 {
		return t, fmt.Errorf("impossible suffix %#x of depth %d", t.Suffix, t.Depth)
	}
	return t, nil
}

// Bucket is one line of a sub-table.
type Bucket struct {
	Slots  [slotsPerLine]Slot
	Header Header
}

func parseBucket(p []byte) (b Bucket) {
	for i := range b.Slots {
		b.Slots[i] = Slot(binary.LittleEndian.Uint64(p[8*i:]))
	}
	b.Header = Header(binary.LittleEndian.Uint64(p[headerOff:]))
	return b
}

// fingerprint is the part of a hash that a slot holds.
func fingerprint(hash uint64) uint8 { return uint8(hash >> fpShift) }

// place returns the offsets in a sub-table of the two combined buckets of a hash.
// They are in different groups. The directory uses the low bits of a hash and the
// fingerprint its high 8; the places come from those between, and from a product
// that mixes all of them.
func (g Geometry) place(hash uint64) (o1, o2 uint32) {
	n := uint64(g.Groups)
	g1 := uint64(uint32(hash>>24)) * n >> 32
	m := hash * 0x9e3779b97f4a7c15
	g2 := g1 + 1 + (m>>32)*(n-1)>>32
	if g2 >= n {
		g2 -= n
	}
	o1 = tableHeader + uint32(g1)*groupSize + uint32(hash>>23&1)*lineSize
	o2 = tableHeader + uint32(g2)*groupSize + uint32(m>>31&1)*lineSize
	return o1, o2
}

// mainLine is which of the two lines of the combined bucket at o is the main
// bucket; the other one is the overflow bucket, which lies in the middle of its group.
func mainLine(o uint32) uint32 { return (o - tableHeader) / lineSize % groupLines }

// Places returns the offsets in a sub-table of the two combined buckets, of 128
// bytes each, of the keys with this hash: the first choice and the second.
func (g Geometry) Places(hash uint64) (first, second uint32) { return g.place(hash) }

// MarkAt returns the offset in a sub-table of the header that says, with the bits
// of [SpillBit], which keys of this first choice are to be looked for in their
// second.
func MarkAt(first uint32) uint32 { return first + mainLine(first)*lineSize + headerOff }

// spilled reports whether the slot at offset off is in the second choice of its
// key, whose first choice is at o1.
func spilled(off, o1 uint32) bool { return off&^(lineSize-1)-o1 >= combinedSize }

// word is the little-endian word of p at off.
func word(p []byte, off int) uint64 { return binary.LittleEndian.Uint64(p[off:]) }
