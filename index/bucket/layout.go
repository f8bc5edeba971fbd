package bucket

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/memory/layout"
)

// Offsets of the fields of a head, and its size in bytes.
const (
	levelOff = 0
	flagsOff = 1
	countOff = 2
	depthOff = 3
	lowOff   = 4
	zeroOff  = 9
	rightOff = 10

	HeadSize = 16
)

const (
	leafFlag  = 1
	hashBytes = 5
	wordBytes = layout.AddrBits / 8
	addrShift = 6 // log2(layout.BlockAlign)
	addrBits  = layout.AddrBits - addrShift

	// MaxDepth is the number of bits of a hash.
	MaxDepth = 8 * hashBytes
	// maxCount is what fits the field.
	maxCount = 255
)

// Errors of this package. They are wrapped with what is wrong and where.
var (
	// ErrMalformed: the bytes are no leaf.
	ErrMalformed = errors.New("bucket: malformed leaf")
	// ErrExists: a Link of a block that the leaf links already, with the same hash.
	ErrExists = errors.New("bucket: block is linked already")
	// ErrMissing: a Relink or Unlink of a block that the leaf does not link.
	ErrMissing = errors.New("bucket: block is not linked")
	// ErrNotHere: a change of a hash outside of the leaf's range.
	ErrNotHere = errors.New("bucket: hash outside of the range")
	// ErrChange: a change that no leaf can take: out of order, or of an impossible block.
	ErrChange = errors.New("bucket: impossible change")
	// ErrFull: more blocks have one hash than a leaf has room for.
	ErrFull = errors.New("bucket: a leaf is full of one hash")
	// ErrBuddies: the two leaves of a merge are not the halves of one.
	ErrBuddies = errors.New("bucket: not the halves of one leaf")
)

// Hash is a hash of a key: the upper 40 bits of record.Hash.
type Hash uint64

// HashOf is the Hash of a record.Hash.
func HashOf(h uint64) Hash { return Hash(h >> (64 - MaxDepth)) }

// HashAt is the Hash of a key of AppendKey; shorter ones are of the lowest hash that begins with
// them.
func HashAt(key []byte) Hash {
	var b [8]byte
	copy(b[8-hashBytes:], key)
	return Hash(binary.BigEndian.Uint64(b[:]))
}

// AppendKey appends the hash as a key of inner nodes, whose order is that of the hashes.
func (h Hash) AppendKey(dst []byte) []byte {
	return append(dst, byte(h>>32), byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

// AppendSeparator appends the shortest key that is above those of all lower hashes, and
// not above that of h.
func (h Hash) AppendSeparator(dst []byte) []byte {
	for ; h != 0; h = h << 8 & (1<<MaxDepth - 1) {
		dst = append(dst, byte(h>>(MaxDepth-8)))
	}
	return dst
}

// width is how many hashes a leaf of a depth is responsible for.
func width(depth int) Hash { return 1 << (MaxDepth - depth) }

// skipped is how many bytes of their hashes the entries of a leaf of a depth leave out. The rest
// and the word are 8 bytes at least, so that either is one load.
func skipped(depth int) int { return min(depth/8, 3) }

// entrySize is how many bytes an entry of a leaf of a depth has.
func entrySize(depth int) int { return hashBytes - skipped(depth) + wordBytes }

// Capacity is how many entries a leaf of a depth has room for, if its block has room for so many
// bytes.
func Capacity(room, depth int) int { return min(room/entrySize(depth), maxCount) }

// Room is how many bytes have room for so many entries of any leaf.
func Room(entries int) int { return entries * entrySize(0) }

// Linked is an entry of a leaf: the word has address and class. So entries are ordered by hash, then
// word.
type Linked struct {
	hash Hash
	word uint64
}

type entry = Linked

func wordOf(a layout.Addr, c layout.Class) uint64 { return uint64(a)>>addrShift | uint64(c)<<addrBits }

func (e entry) addr() layout.Addr {
	return layout.Addr(e.word & (1<<addrBits - 1) << addrShift)
}

func (e entry) class() layout.Class { return layout.Class(e.word >> addrBits) }

// before reports whether e precedes f in a leaf. The class is no part of the order.
func (e entry) before(f entry) bool {
	return e.hash < f.hash || e.hash == f.hash && e.addr() < f.addr()
}

// blockAt reports whether a can be the address of a block.
func blockAt(a layout.Addr) bool {
	return a.Segment() != 0 && a < 1<<layout.AddrBits && a%layout.BlockAlign == 0
}

func addrAt(b []byte) layout.Addr {
	return layout.Addr(binary.LittleEndian.Uint32(b)) | layout.Addr(binary.LittleEndian.Uint16(b[4:]))<<32
}

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}
