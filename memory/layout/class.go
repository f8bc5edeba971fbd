package layout

import "math/bits"

// Class is a size class of blocks: it fits 6 bits, so that an address cache
// entry can hold it beside the address. Class k has sizes of four steps per
// doubling: 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, ... bytes.
type Class uint8

// NumClasses classes reach from 64 bytes to 8 MiB.
const NumClasses = 64

// MaxBlock is the size of the largest class in bytes.
var MaxBlock = Class(NumClasses - 1).Size()

// Size is the size of the class's blocks in bytes: a multiple of BlockAlign.
func (c Class) Size() uint32 {
	k := uint32(c)
	if k < 4 {
		return (k + 1) * BlockAlign
	}
	step := k/4 - 1
	return (4 + k%4 + 1) << step * BlockAlign
}

// ClassOf returns the smallest class whose blocks hold n bytes; ok is false when
// n is larger than MaxBlock.
func ClassOf(n uint32) (c Class, ok bool) {
	lines := (max(n, 1)-1)/BlockAlign + 1
	if lines <= 4 {
		return Class(lines - 1), true
	}
	// lines-1 in [4<<s, 8<<s): four classes per s, of (5..8)<<s lines.
	s := uint32(bits.Len32(lines-1)) - 3
	k := 4 + 4*s + ((lines-1)>>s - 4)
	if k >= NumClasses {
		return 0, false
	}
	return Class(k), true
}
