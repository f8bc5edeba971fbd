package layout

import "fmt"

// Addr is a logical address: segment in bits 26..47, offset in bits 0..25. The
// zero Addr is no address: segment 0 is never handed out.
type Addr uint64

// SegmentID numbers segments, from 1.
type SegmentID uint32

// Epoch numbers the states of the segment map, from 1. It only grows.
type Epoch uint32

// MaxEpoch is the last one: epochs are not used again.
const MaxEpoch Epoch = 1<<32 - 1

// Widths of an address.
const (
	OffsetBits     = 26
	SegmentBits    = 22
	AddrBits       = OffsetBits + SegmentBits
	MaxSegmentSize = 1 << OffsetBits
	MaxSegments    = 1 << SegmentBits

	// BlockAlign is the alignment of every block, in bytes: a cache line.
	BlockAlign = 64
)

// MakeAddr composes an address; off must be less than MaxSegmentSize.
func MakeAddr(s SegmentID, off uint32) Addr { return Addr(s)<<OffsetBits | Addr(off) }

// Segment returns the segment.
func (a Addr) Segment() SegmentID { return SegmentID(a >> OffsetBits) }

// Offset returns the offset in the segment, in bytes.
func (a Addr) Offset() uint32 { return uint32(a) & (MaxSegmentSize - 1) }

// String returns "seg 3 +0x40".
func (a Addr) String() string { return fmt.Sprintf("seg %d +%#x", a.Segment(), a.Offset()) }
