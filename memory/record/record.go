package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"txnode/memory/internal/blockline"
	"txnode/memory/layout"
	"txnode/rdma"
)

// Offsets of the words of a block.
const (
	VersionOff  = blockline.VersionOff
	MetaOff     = blockline.MetaOff
	ChecksumOff = blockline.ChecksumOff
	KeyOff      = blockline.KeyOff
	GuardOff    = blockline.GuardOff
	LineSize    = blockline.LineSize

	// inlineKey is the largest key that lives in line 0.
	inlineKey = 32
)

// Limits.
const (
	MaxKey   = 1 << 10
	MaxValue = 1 << 20
)

// TxID names a transaction: coordinator in the upper 24 bits, sequence number in
// bits 1 to 39, bit 0 clear. Zero is no transaction. It is the version of what
// the transaction wrote, and names it in the guard words that it locks.
type TxID uint64

// Widths of a TxID.
const (
	SequenceBits = blockline.SequenceBits

	// MaxSequence is no transaction's number: from it on, they are for recovery.
	MaxSequence = blockline.MaxSequence

	coordinatorShift = blockline.CoordinatorShift
)

// Every coordinator's number fits above a sequence number.
var _ [1<<(64-coordinatorShift) - layout.MaxCoordinators]struct{}

// MakeTxID composes an id.
func MakeTxID(coordinator uint32, seq uint64) TxID {
	return TxID(coordinator)<<coordinatorShift | TxID(seq&(1<<SequenceBits-1))<<1
}

// Coordinator returns the coordinator.
func (t TxID) Coordinator() uint32 { return uint32(t >> coordinatorShift) }

// Seq returns the sequence number.
func (t TxID) Seq() uint64 { return uint64(t) >> 1 & (1<<SequenceBits - 1) }

// Guard is the word that says at once whether a record is locked and, if not,
// which version it has. Free, it is the version; held, it is the holder's TxID
// with HeldBit set. One masked compare-and-swap under HeldBit locks whatever the
// version is, and returns it.
type Guard uint64

// HeldBit distinguishes a lock from a version.
const HeldBit = blockline.HeldBit

// HeldBy is the guard of a record locked by t.
func HeldBy(t TxID) Guard { return Guard(t) | HeldBit }

// FreeAt is the guard of an unlocked record of version v.
func FreeAt(v TxID) Guard { return Guard(v) }

// Held reports whether the record is locked.
func (g Guard) Held() bool { return g&HeldBit != 0 }

// Owner is the holder of the lock, 0 when free.
func (g Guard) Owner() TxID {
	if g.Held() {
		return TxID(g &^ HeldBit)
	}
	return 0
}

// Version is the version of an unlocked record, 0 when it is held.
func (g Guard) Version() TxID {
	if g.Held() {
		return 0
	}
	return TxID(g)
}

// String returns "c7.42".
func (t TxID) String() string { return fmt.Sprintf("c%d.%d", t.Coordinator(), t.Seq()) }

// State of a block.
type State uint8

// States.
const (
	Free State = blockline.StateFree // not in use: no slot points to it
	Live State = blockline.StateLive // a record
	// Absent: a slot points to it, but the key has no value: tombstone or insert in progress
	Absent State = blockline.StateAbsent
	Node   State = blockline.StateNode // a block of an index, without a key: its value is the node

	numStates = Node + 1
)

// Valued reports whether a block in this state has contents that count: a record or a node.
func (s State) Valued() bool { return s == Live || s == Node }

// String names the state.
func (s State) String() string {
	if s < numStates {
		return [...]string{"free", "live", "absent", "node"}[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Meta is the second word of a block.
type Meta uint64

// MakeMeta composes a meta word.
func MakeMeta(state State, table uint16, class layout.Class, keyLen, valueLen int) Meta {
	return Meta(valueLen) | Meta(keyLen)<<24 | Meta(state)<<blockline.StateShift | Meta(class)<<40 | Meta(table)<<48
}

// ValueLen is the length of the value in bytes.
func (m Meta) ValueLen() int { return int(m & (1<<24 - 1)) }

// KeyLen is the length of the key in bytes.
func (m Meta) KeyLen() int { return int(m >> 24 & (1<<12 - 1)) }

// State is the state of the block.
func (m Meta) State() State { return State(m >> blockline.StateShift & blockline.StateMask) }

// Class is the size class of the block.
func (m Meta) Class() layout.Class { return layout.Class(m >> 40 & 255) }

// Table is the table that the record belongs to.
func (m Meta) Table() uint16 { return uint16(m >> 48) }

// KeyAt returns the offset of a key of keyLen bytes.
func KeyAt(keyLen int) int {
	if keyLen <= inlineKey {
		return KeyOff
	}
	return LineSize
}

// ValueAt returns the offset of the value.
func ValueAt(keyLen, valueLen int) int {
	padded := (keyLen + 7) &^ 7
	if keyLen > inlineKey {
		return LineSize + padded
	}
	if KeyOff+padded+valueLen <= GuardOff {
		return KeyOff + padded
	}
	return LineSize
}

// Size is the number of bytes that a record needs: up to the end of its value,
// rounded up to 8, and at least one line.
func Size(keyLen, valueLen int) int {
	at := ValueAt(keyLen, valueLen)
	if at < LineSize && keyLen <= inlineKey {
		return LineSize
	}
	return at + (valueLen+7)&^7
}

// ClassFor returns the class of block for a record; ok is false when there is none.
func ClassFor(keyLen, valueLen int) (layout.Class, bool) {
	return layout.ClassOf(uint32(Size(keyLen, valueLen)))
}

// Errors of Check.
var (
	// ErrTorn: the checksum does not match: the block was being written, or is damaged.
	ErrTorn = errors.New("record: checksum mismatch")
	// ErrForm: the header is impossible for a block of this size.
	ErrForm = errors.New("record: impossible header")
)

// Image is the bytes of a block, or as many as hold the record; at least one line.
type Image []byte

// Version returns the version word.
func (b Image) Version() TxID { return TxID(binary.LittleEndian.Uint64(b[VersionOff:])) }

// Meta returns the meta word.
func (b Image) Meta() Meta { return Meta(binary.LittleEndian.Uint64(b[MetaOff:])) }

// Checksum returns the checksum word.
func (b Image) Checksum() uint64 { return binary.LittleEndian.Uint64(b[ChecksumOff:]) }

// Guard returns the guard word.
func (b Image) Guard() Guard { return Guard(binary.LittleEndian.Uint64(b[GuardOff:])) }

// SetGuard sets the guard word.
func (b Image) SetGuard(g Guard) { binary.LittleEndian.PutUint64(b[GuardOff:], uint64(g)) }

// Lock returns who holds the lock, 0: nobody.
func (b Image) Lock() TxID { return b.Guard().Owner() }

// Stable reports whether the image, which has passed Check, is the state of an
// unlocked record: its guard is free and carries its version.
func (b Image) Stable() bool { return b.Guard() == FreeAt(b.Version()) }

// Stranded reports whether the block is one of the two of a record whose move is to be finished: it
// is locked by a name that no transaction has (occ/recovery/strand.go).
func (b Image) Stranded() bool {
	return b.Guard().Held() && b.Meta().State() == Live && b.Lock().Seq() >= MaxSequence
}

// Unlocked is the guard of the image when nobody has its lock any more: that of its version. A
// damaged version may look like a lock, which would be nobody's for ever.
func (b Image) Unlocked() Guard { return FreeAt(b.Version() &^ HeldBit) }

// Key returns the key; the image must have passed Check.
func (b Image) Key() []byte {
	n := b.Meta().KeyLen()
	at := KeyAt(n)
	return b[at : at+n : at+n]
}

// Value returns the value; the image must have passed Check.
func (b Image) Value() []byte {
	m := b.Meta()
	at := ValueAt(m.KeyLen(), m.ValueLen())
	return b[at : at+m.ValueLen() : at+m.ValueLen()]
}

// Check verifies the image of the block at a: nil, ErrForm or ErrTorn. need is the number of bytes
// of the record, valid when the header is possible. A caller that read too little (ErrTorn) can
// then read the rest.
func (b Image) Check(a layout.Addr) (need int, err error) {
	m := b.Meta()
	if m.State() >= numStates || m.KeyLen() > MaxKey || m.ValueLen() > MaxValue || m.Class() >= layout.NumClasses ||
		m.State() == Node && m.KeyLen() != 0 {
		return 0, ErrForm
	}
	need = Size(m.KeyLen(), m.ValueLen())
	if need > int(m.Class().Size()) {
		return 0, ErrForm
	}
	if need > len(b) {
		return need, ErrTorn
	}
	if b.sum(a, need) != b.Checksum() {
		if m == 0 && b.Version() == 0 && b.Checksum() == 0 {
			return need, nil // never used
		}
		return need, ErrTorn
	}
	return need, nil
}

// Line is the first line of a block.
type Line = blockline.Line

// GuardOf returns the guard word of a block's first line.
func GuardOf(b *Line) Guard { return Guard(binary.LittleEndian.Uint64(b[GuardOff:])) }

// CheckShort is Check and the comparison of key and table, for a block at a whose
// key is expected to be the 8 bytes of key (little-endian) and whose value fits
// line 0: the common case, in a few instructions. When ok is false nothing is known,
// and Check decides.
func CheckShort(b *Line, a layout.Addr, table uint16, key uint64) (v TxID, m Meta, ok bool) {
	v, m = TxID(binary.LittleEndian.Uint64(b[VersionOff:])), Meta(binary.LittleEndian.Uint64(b[MetaOff:]))
	const (
		fixed = 0xffff<<48 | (1<<12-1)<<24 // table and length of the key
		class = 0xff &^ (layout.NumClasses - 1) << 40
	)
	if m&(fixed|class) != Meta(table)<<48|8<<24 || m&(1<<24-1) > ShortValue || m.State()-Live > Absent-Live {
		return v, m, false
	}
	k := binary.LittleEndian.Uint64(b[KeyOff:])
	return v, m, k == key && blockline.HeadSum(uint64(v), uint64(m), uint64(a))^blockline.BodySum(b,
		k) == binary.LittleEndian.Uint64(b[ChecksumOff:])
}

// A class is one of those that exist when the bits above theirs are zero.
var _ [0]byte = [layout.NumClasses & (layout.NumClasses - 1)]byte{}

// ShortValue is the longest value, in bytes, that fits line 0 behind an 8-byte key.
const ShortValue = GuardOff - KeyOff - 8

// PutShort is Image.PutBody for an 8-byte key, as a little-endian number, and a
// value of at most ShortValue bytes.
func PutShort(b *Line, key uint64, value []byte) {
	first, second := uint64(0), uint64(0)
	switch len(value) {
	case 8:
		first = binary.LittleEndian.Uint64(value)
	case 16:
		first, second = binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])
	}
	binary.LittleEndian.PutUint64(b[KeyOff:], key)
	binary.LittleEndian.PutUint64(b[KeyOff+8:], first)
	binary.LittleEndian.PutUint64(b[KeyOff+16:], second)
	binary.LittleEndian.PutUint64(b[KeyOff+24:], 0)
	if len(value) != 8 && len(value) != 16 {
		copy(b[KeyOff+8:GuardOff], value)
	}
}

// SealShort is Image.Seal for what PutShort has made, with a guard that is free at v.
// It returns the checksum.
func SealShort(b *Line, a layout.Addr, v TxID, m Meta) uint64 {
	binary.LittleEndian.PutUint64(b[VersionOff:], uint64(v))
	binary.LittleEndian.PutUint64(b[MetaOff:], uint64(m))
	sum := blockline.HeadSum(uint64(v), uint64(m), uint64(a)) ^ blockline.BodySum(b, blockline.Word(b, KeyOff))
	binary.LittleEndian.PutUint64(b[ChecksumOff:], sum)
	binary.LittleEndian.PutUint64(b[GuardOff:], uint64(FreeAt(v)))
	return sum
}

// Seal completes the header: version, meta and checksum. Key and value are in
// place already, and the bytes that pad them to 8 are zero.
func (b Image) Seal(a layout.Addr, v TxID, m Meta) {
	binary.LittleEndian.PutUint64(b[VersionOff:], uint64(v))
	binary.LittleEndian.PutUint64(b[MetaOff:], uint64(m))
	binary.LittleEndian.PutUint64(b[ChecksumOff:], b.sum(a, Size(m.KeyLen(), m.ValueLen())))
}

// Put writes a whole image: key and value with their padding, header, and a
// guard that is free (lock 0) or held by lock. It returns the number of bytes
// that are to be written to the blade. b must have room for
// Size(len(key), len(value)).
func (b Image) Put(a layout.Addr, v TxID, state State, table uint16, class layout.Class, lock TxID,
	key, value []byte) int {
	b.PutBody(key, value)
	if lock == 0 {
		b.SetGuard(FreeAt(v))
	} else {
		b.SetGuard(HeldBy(lock))
	}
	b.Seal(a, v, MakeMeta(state, table, class, len(key), len(value)))
	return Size(len(key), len(value))
}

// AppendFree appends the WRITEs that make a block free at the replica at a, whose guard is held, of
// a line that PutFree has written to the arena at buf. Without Caps.OrderedLine the guard follows
// in a WRITE of its own: who finds it free finds the rest as well.
func AppendFree(b *rdma.Batch, a rdma.RemoteAddr, buf uint32, ordered bool) {
	if ordered {
		b.Write(a, buf, LineSize)
		return
	}
	b.Write(a, buf, GuardOff)
	a.Off += GuardOff
	b.Write(a, buf+GuardOff, LineSize-GuardOff)
}

// PutFree writes the line of a free block. number is that of its freeing, from
// memory.Space.CountFree.
func (b Image) PutFree(a layout.Addr, v TxID, table uint16, class layout.Class, number uint64) {
	clear(b[KeyOff:GuardOff])
	binary.LittleEndian.PutUint64(b[KeyOff:], number)
	b.SetGuard(FreeAt(v))
	b.Seal(a, v, MakeMeta(Free, table, class, 0, 0))
}

// Freed is the number of the freeing of a free block; 0: it was never used.
func (b Image) Freed() uint64 { return binary.LittleEndian.Uint64(b[KeyOff:]) }

// PutBody places key and value, with the padding that Seal wants, and leaves
// the header and the guard alone.
func (b Image) PutBody(key, value []byte) {
	clear(b[KeyOff:GuardOff])
	at := KeyAt(len(key))
	copy(b[at:], key)
	if at != KeyOff {
		b.pad(at + len(key))
	}
	at = ValueAt(len(key), len(value))
	copy(b[at:], value)
	b.pad(at + len(value))
}

func (b Image) pad(at int) {
	for ; at&7 != 0; at++ {
		b[at] = 0
	}
}

const (
	sumSeed = 0x9e3779b97f4a7c15
	sumMul  = 0xff51afd7ed558ccd
)

// sum hashes address, version, meta, key and value, whole words at a time: those of
// line 0 by blockline.LineSum, what lies behind it by sumWords.
func (b Image) sum(a layout.Addr, need int) uint64 {
	h := blockline.LineSum((*Line)(b), uint64(a))
	if need > LineSize {
		h = sumWords(h, b[LineSize:need])
	}
	return h
}

// sumWords walks p by pointer, as bounds checks would be half of it.
func sumWords(h uint64, p []byte) uint64 {
	from, i := unsafe.Pointer(unsafe.SliceData(p)), 0
	for ; i+16 <= len(p); i += 16 {
		h = mum(load(from, i)^h, load(from, i+8)^sumMul)
	}
	if i+8 <= len(p) {
		h = mum(load(from, i)^h, sumSeed)
	}
	return h
}

// load is the little-endian word at offset i.
func load(from unsafe.Pointer, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(from, i))[:])
}

// Mix hashes two words into one.
func Mix(x, y uint64) uint64 { return mum(x, y) }

func mum(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// Sum hashes bytes that are a multiple of 8 long, for the other structures that
// live on blades (log records, headers).
func Sum(seed uint64, p []byte) uint64 { return mum(sumWords(seed^sumSeed, p), sumMul) }

// Hash is the hash of a key within a table, for indexes and caches.
func Hash(table uint16, key []byte) uint64 {
	h := mum(uint64(table)^0xa0761d6478bd642f, uint64(len(key))^0xe7037ed1a0b428db)
	for len(key) >= 8 {
		h = mum(binary.LittleEndian.Uint64(key)^h, 0x8ebc6af09c88c6e3)
		key = key[8:]
	}
	if len(key) > 0 {
		var last [8]byte
		copy(last[:], key)
		h = mum(binary.LittleEndian.Uint64(last[:])^h, 0x589965cc75374cc3)
	}
	return mum(h^0x1d8e4e27c47d124f, 0x8ebc6af09c88c6e3)
}
