package blink

import (
	"encoding/binary"

	"txnode/memory/layout"
)

// Offsets of the header's fields, and what lies behind it.
const (
	levelOff  = 0
	flagsOff  = 1
	countOff  = 2
	prefixOff = 4
	lowOff    = 6
	highOff   = 8
	endOff    = 10
	rightOff  = 12

	headerSize = 18
	slotSize   = 2
)

const (
	// unbounded as the length of the high fence: there is none.
	unbounded = 0xffff
	// MaxLevel bounds the height of a tree.
	MaxLevel = 63
)

// Lengths of the payload in front of an entry's suffix.
const (
	addrSize     = layout.AddrBits / 8
	childPayload = addrSize
	rowPayload   = addrSize + 1
)

// The header ends with the right link.
var _ [0]byte = [headerSize - rightOff - addrSize]byte{}

func u16(b []byte, at int) int { return int(binary.LittleEndian.Uint16(b[at:])) }

func putU16(b []byte, at, v int) { binary.LittleEndian.PutUint16(b[at:], uint16(v)) }

func addrAt(b []byte, at int) layout.Addr {
	return layout.Addr(binary.LittleEndian.Uint32(b[at:])) | layout.Addr(binary.LittleEndian.Uint16(b[at+4:]))<<32
}

func putAddr(b []byte, at int, a layout.Addr) {
	binary.LittleEndian.PutUint32(b[at:], uint32(a))
	binary.LittleEndian.PutUint16(b[at+4:], uint16(a>>32))
}

// blockAt reports whether a can be the address of a block.
func blockAt(a layout.Addr) bool {
	return a.Segment() != 0 && a < 1<<layout.AddrBits && a%layout.BlockAlign == 0
}

// commonPrefix is the length of the common prefix of a and b.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
