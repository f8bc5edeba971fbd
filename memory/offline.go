package memory

import "txnode/rdma"

// What follows reads the structures of this package from bytes, without a Space:
// for tools that look at databases which may be too damaged to be opened.

// HeaderCopies is how many copies of its header a region has.
const HeaderCopies = headerCopies

// RegionHeaderSize is the size of one copy in bytes.
const RegionHeaderSize = regionHeader

// HeaderOffset is where in a region copy i of the header is.
func HeaderOffset(i int) uint64 { return headerOffset(i) }

// ParseHeaderCopy reads copy i of a region's header from p, RegionHeaderSize bytes
// at least. blank: all of them are zero. Otherwise err is nil, ErrForeign (no
// header at all), ErrFormat or ErrDamaged.
func ParseHeaderCopy(p []byte, i int) (h RegionHeader, blank bool, err error) {
	return decodeHeader(p, i)
}

// Encode returns the bytes of copy i of the header.
func (h RegionHeader) Encode(i int) []byte {
	p := make([]byte, regionHeader)
	h.encode(p, i)
	return p
}

// HeaderOf is the header that the region of a blade should have. The epoch in a
// region may be smaller: that in which it was written.
func (l *Layout) HeaderOf(b rdma.BladeID) RegionHeader { return l.headerOf(b) }

// ExtentUnit is the granule of the extents in an index segment, in bytes.
func ExtentUnit(segmentSize uint32) uint32 { return granule(segmentSize) }

// ExtentTable is the size of the table of extents at the start of an index
// segment in bytes: a word for each granule of the segment.
func ExtentTable(segmentSize uint32) uint32 { return segmentSize / granule(segmentSize) * 8 }

// FirstExtent is the smallest offset of an extent in an index segment.
func FirstExtent(segmentSize uint32) uint32 {
	return tableGranules(segmentSize) * granule(segmentSize)
}

// ParseExtentWord returns how many granules the extent at a has, whose word in the
// table is w. A word that is zero says that no extent starts there: 0, true. ok is
// false for a word that was never written for this place.
func ParseExtentWord(a Addr, w uint64) (granules uint32, ok bool) {
	n := uint32(w & (1<<lengthBits - 1))
	return n, w == 0 || n > 0 && w == extentWord(a, n)
}
