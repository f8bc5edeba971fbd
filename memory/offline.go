package memory

import "txnode/memory/layout"

// What follows reads the structures of this package from bytes, without a Space:
// for tools that look at databases which may be too damaged to be opened.

// ExtentUnit is the granule of the extents in an index segment, in bytes.
func ExtentUnit(segmentSize uint32) uint32 { return layout.Granule(segmentSize) }

// ExtentTable is the size of the table of extents at the start of an index
// segment in bytes: a word for each granule of the segment.
func ExtentTable(segmentSize uint32) uint32 { return segmentSize / layout.Granule(segmentSize) * 8 }

// FirstExtent is the smallest offset of an extent in an index segment.
func FirstExtent(segmentSize uint32) uint32 {
	return layout.TableGranules(segmentSize) * layout.Granule(segmentSize)
}

// ParseExtentWord returns how many granules the extent at a has, whose word in the
// table is w. A word that is zero says that no extent starts there: 0, true. ok is
// false for a word that was never written for this place.
func ParseExtentWord(a layout.Addr, w uint64) (granules uint32, ok bool) {
	n := uint32(w & (1<<lengthBits - 1))
	return n, w == 0 || n > 0 && w == extentWord(a, n)
}
