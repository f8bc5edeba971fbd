package race

import (
	"encoding/binary"
	"fmt"

	"txnode/memory/layout"
)

// Geometry of buckets and groups (RACE, section 3.2, figures 4 and 6).
const (
	lineSize     = 64
	slotsPerLine = 7
	groupLines   = 3 // main bucket, overflow bucket, main bucket
	groupSize    = groupLines * lineSize
	groupSlots   = groupLines * slotsPerLine
	combinedSize = 2 * lineSize // a main bucket and the overflow bucket beside it
	headerOff    = slotsPerLine * 8
)

// The root extent.
const (
	magicOff    = 0
	geometryOff = 8
	dirOff      = lineSize
	magic       = 0x53544f4c53_4e5854 // "TXNSLOTS"
)

// Sizes of tables.
const (
	smallGroups = 127  // 2,667 slots, 24 KiB
	largeGroups = 1023 // 21,483 slots, 192 KiB: of a table for more than smallKeys keys
	smallKeys   = 32 << 10
	maxDepth    = 20
	// plannedLoad is how full sub-tables become that are made for a number of keys, in 1/16.
	plannedLoad = 12
)

// geometry is what never changes of a table.
type geometry struct {
	groups uint32 // of a sub-table
	depth  uint8  // there are 1<<depth sub-tables
	table  uint16
}

// geometryFor returns the geometry of a table for a number of keys.
func geometryFor(table uint16, keys uint64) geometry {
	g := geometry{groups: smallGroups, table: table}
	if keys > smallKeys {
		g.groups = largeGroups
	}
	for g.depth < maxDepth && uint64(g.groups)*groupSlots*plannedLoad/16<<g.depth < keys {
		g.depth++
	}
	return g
}

func (g geometry) word() uint64 {
	return uint64(g.groups) | uint64(g.depth)<<32 | uint64(g.table)<<48
}

func parseGeometry(w uint64) (geometry, bool) {
	g := geometry{groups: uint32(w), depth: uint8(w >> 32), table: uint16(w >> 48)}
	return g, g.groups >= 2 && g.depth <= maxDepth && g.tableSize() <= layout.MaxSegmentSize
}

// tableSize is the size of a sub-table in bytes.
func (g geometry) tableSize() uint32 { return g.groups * groupSize }

// rootSize is the size of the root extent in bytes.
func (g geometry) rootSize() uint32 { return dirOff + 8<<g.depth }

// suffix is the number of the sub-table of a hash.
func (g geometry) suffix(hash uint64) uint32 { return uint32(hash) & (1<<g.depth - 1) }

// place returns the offsets in a sub-table of the two combined buckets of a hash.
func (g geometry) place(hash uint64) (o1, o2 uint32) {
	n := uint64(g.groups)
	g1 := uint64(uint32(hash>>24)) * n >> 32
	m := hash * 0x9e3779b97f4a7c15
	g2 := g1 + 1 + (m>>32)*(n-1)>>32
	if g2 >= n {
		g2 -= n
	}
	o1 = uint32(g1)*groupSize + uint32(hash>>23&1)*lineSize
	o2 = uint32(g2)*groupSize + uint32(m>>31&1)*lineSize
	return o1, o2
}

// mainLine is which of the two lines of the combined bucket at o is the main bucket; the other one
// is the overflow bucket, which lies in the middle of its group.
func mainLine(o uint32) uint32 { return o / lineSize % groupLines }

// Slot is a word of a bucket: where the block of a key is. 0: it is empty.
//
//	 63         56 55  54 53    48 47                0
//	+-------------+------+--------+-------------------+
//	| fingerprint |  0   | class  |      address      |
//	+-------------+------+--------+-------------------+
type Slot uint64

const (
	fpShift    = 56
	classShift = 48
	classMask  = 63
	addrMask   = 1<<layout.AddrBits - 1
)

// MakeSlot composes the slot of a key with this hash.
func MakeSlot(hash uint64, class layout.Class, a layout.Addr) Slot {
	return Slot(hash>>fpShift<<fpShift) | Slot(class)<<classShift | Slot(a)
}

// Class is the size class of the block.
func (s Slot) Class() layout.Class { return layout.Class(s >> classShift & classMask) }

// Addr is where the block is; 0 for an empty slot.
func (s Slot) Addr() layout.Addr { return layout.Addr(s & addrMask) }

// Header is the last word of a bucket: which keys the bucket is responsible for and, in a main
// bucket, what has become of those for which the bucket had no room.
//
//	 63    56 55         40 39      29 28        8 7      0
//	+--------+-------------+----------+-----------+--------+
//	|  0xb5  |    table    |  marks   |  suffix   | depth  |
//	+--------+-------------+----------+-----------+--------+
//
// Marks is a filter: the bit of a fingerprint is set if a key with that fingerprint may be in its
// second choice.
type Header uint64

const (
	headerTag = 0xb5
	markShift = 29
	markBits  = 11
	markMask  = Header(1<<markBits-1) << markShift
)

// header is the header of a bucket of a sub-table, without marks.
func (g geometry) header(suffix uint32) Header {
	return headerTag<<56 | Header(g.table)<<40 | Header(suffix)<<8 | Header(g.depth)
}

// markBit is the bit that stands for the fingerprint of a hash.
func markBit(hash uint64) Header { return 1 << (markShift + uint(hash>>fpShift)*markBits>>8) }

// Marked reports whether keys with the fingerprint of this hash, whose first choice the bucket is,
// may be in their second.
func (h Header) Marked(hash uint64) bool { return h&markBit(hash) != 0 }

// base is the header without marks.
func (h Header) base() Header { return h &^ markMask }

// String returns "depth 3 suffix 5 table 7 marks 00000100000".
func (h Header) String() string {
	return fmt.Sprintf("depth %d suffix %d table %d marks %0*b", uint8(h), uint32(h>>8)&(1<<maxDepth-1),
		uint16(h>>40), markBits, h&markMask>>markShift)
}

// word is the little-endian word of p at off.
func word(p []byte, off uint32) uint64 { return binary.LittleEndian.Uint64(p[off:]) }
