package blockline

import (
	"encoding/binary"
	"math/bits"
)

// Offsets of the words of a block.
const (
	VersionOff  = 0
	MetaOff     = 8
	ChecksumOff = 16
	KeyOff      = 24 // contents
	FreeEnd     = 32 // of what a free block has, but for the guard
	GuardOff    = 56
	LineSize    = 64
)

// Widths and bits.
const (
	// SequenceBits is the width of a transaction's number in a version; above it is its
	// coordinator's.
	SequenceBits     = 39
	CoordinatorShift = SequenceBits + 1
	// MaxSequence is the least number in a version that is no transaction's.
	MaxSequence = 1<<SequenceBits - 2
	// HeldBit distinguishes a lock from a version.
	HeldBit = 1

	StateShift = 36
	StateMask  = 15
)

// States of a block: record.State says what they mean.
const (
	StateFree = iota
	StateLive
	StateAbsent
	StateNode
)

// Line is the first line of a block.
type Line = [LineSize]byte

// Word is the little-endian word of a line at an offset.
func Word(b *Line, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// LineSum hashes the line of the block at an address, but for checksum and guard. What a record
// does not use is zero. The three multiplications depend on nothing but the line, so the processor
// does them at once: a commit waits for this, and so does a read.
//
// Callers in a hurry have its two halves inline: the compiler takes them, but not the whole.
func LineSum(b *Line, addr uint64) uint64 {
	return HeadSum(Word(b, VersionOff), Word(b, MetaOff), addr) ^ BodySum(b, Word(b, KeyOff))
}

// HeadSum is what version and meta contribute to LineSum.
func HeadSum(version, meta, addr uint64) uint64 {
	hi, lo := bits.Mul64(version^addr*0x9e3779b97f4a7c15, meta^0xa0761d6478bd642f)
	return hi ^ lo
}

// BodySum is what the four words from KeyOff on contribute, the first of which is given.
func BodySum(b *Line, key uint64) uint64 {
	h, l := bits.Mul64(key^0xe7037ed1a0b428db, Word(b, KeyOff+8)^0x8ebc6af09c88c6e3)
	x, y := bits.Mul64(Word(b, KeyOff+16)^0x589965cc75374cc3, Word(b, KeyOff+24)^0x1d8e4e27c47d124f)
	return h ^ l ^ x ^ y
}

// Renumber gives a free block, of which b is the first line, another number of its freeing.
func Renumber(b *Line, addr, number uint64) {
	binary.LittleEndian.PutUint64(b[KeyOff:], number)
	binary.LittleEndian.PutUint64(b[ChecksumOff:], LineSum(b, addr))
}
