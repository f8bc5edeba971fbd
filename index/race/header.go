package race

import "fmt"

// Header is the last word of a bucket: which keys the bucket is responsible for
// and, in a main bucket, what has become of those for which it had no room.
//
//	 63    56 55         40 39      29    28    27        8 7      0
//	+--------+-------------+----------+--------+-----------+--------+
//	|  0xb5  |    table    |  spills  | recount|  suffix   | depth  |
//	+--------+-------------+----------+--------+-----------+--------+
//
// Spills is a filter: the bit of a fingerprint ([SpillBit]) is set if a key with that
// fingerprint, whose first choice this is, may be in its second choice. Recount
// says that a split is finding out which of the bits are still needed.
//
// At one depth, recount is cleared at most once, and before that and after it bits
// of spills are only added; so the word never holds a value twice, as step demands.
type Header uint64

const (
	headerMark    = 0xb5
	headerRecount = Header(1) << 28
	spillShift    = 29
	spillBits     = 11
	spillMask     = Header(1<<spillBits-1) << spillShift
	suffixBits    = 20
)

// The suffix has room for the deepest directory.
var _ [suffixBits - MaxMaxDepth]struct{}

// MakeHeader composes a header; the suffix has depth bits. Nothing spills yet.
func MakeHeader(table uint16, depth uint8, suffix uint32) Header {
	return headerMark<<56 | Header(table)<<40 | Header(suffix)<<8 | Header(depth)
}

// Depth is the local depth of the sub-table that the bucket belongs to.
func (h Header) Depth() uint8 { return uint8(h) }

// Suffix is what the hashes of the bucket's keys end with.
func (h Header) Suffix() uint32 { return uint32(h>>8) & (1<<suffixBits - 1) }

// Table is the table that the bucket belongs to.
func (h Header) Table() uint16 { return uint16(h >> 40) }

// Recount reports whether a split is finding out which bits of Spills are needed.
func (h Header) Recount() bool { return h&headerRecount != 0 }

// Spills reports whether keys with the fingerprint, of which this is the first
// choice, may be in their second.
func (h Header) Spills(fp uint8) bool { return h&SpillBit(fp) != 0 }

// after reports whether a bucket that had header o may have h later.
func (h Header) after(o Header) bool {
	switch {
	case h.Base() != o.Base():
		return h.Depth() > o.Depth() && h.Depth() <= MaxMaxDepth && h.Suffix()&suffixMask(o.Depth()) == o.Suffix() &&
			h.Table() == o.Table()
	case h.Recount():
		return false
	}
	return o.Recount() || o&^h&spillMask == 0
}

// Base is the header without what is noted about spills.
func (h Header) Base() Header { return h &^ (spillMask | headerRecount) }

// SpillBit is the bit of a header that stands for a fingerprint.
func SpillBit(fp uint8) Header { return 1 << (spillShift + uint(fp)*spillBits>>8) }

// Covers reports whether the bucket is responsible for keys with this hash.
func (h Header) Covers(hash uint64) bool {
	return uint32(hash)&suffixMask(h.Depth()) == h.Suffix()
}

// Check reports what is impossible about a header of the table's index.
func (h Header) Check(table uint16) error {
	switch {
	case h>>56 != headerMark || h.Depth() > MaxMaxDepth || h.Suffix()&^suffixMask(h.Depth()) != 0:
		return fmt.Errorf("%#016x is no bucket header", uint64(h))
	case h.Table() != table:
		return fmt.Errorf("bucket belongs to table %d, not %d", h.Table(), table)
	}
	return nil
}

// String returns "depth 3 suffix 101 table 7", and, if there are any, the spills:
// ", spills 00000100000", the bit of the highest fingerprints first.
func (h Header) String() string {
	more := ""
	if h&spillMask != 0 {
		more = fmt.Sprintf(", spills %0*b", spillBits, h&spillMask>>spillShift)
	}
	if h.Recount() {
		more += ", recount"
	}
	return fmt.Sprintf("depth %d suffix %0*b table %d%s", h.Depth(), max(1, h.Depth()), h.Suffix(), h.Table(), more)
}

// suffixMask has the low depth bits; depth is at most 32.
func suffixMask(depth uint8) uint32 { return uint32(1<<depth - 1) }
