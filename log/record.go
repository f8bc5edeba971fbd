package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"txnode/memory"
	"txnode/memory/record"
)

// Kind says what the images of a record are.
type Kind uint8

// Kinds of records.
const (
	Redo Kind = 1 // new images: the transaction is committed
	Undo Kind = 2 // old images: the transaction may be undone
)

// EntryKind says what happens to a block.
type EntryKind uint8

// Kinds of entries.
const (
	Update EntryKind = 1 + iota // the block's image changes; insert and delete are changes of state
	Move                        // the record moves here from block From, whose slot is replaced
	Dead                        // superseded within the transaction: ignore
	numEntryKinds
)

// Layout constants, in bytes.
const (
	HeaderSize      = 32
	EntryHeaderSize = 32

	magic  = 0x474c5854 // "TXLG"
	format = 1
)

// Errors of Decode.
var (
	// ErrNoRecord: the bytes do not start with a log record.
	ErrNoRecord = errors.New("log: no record here")
	// ErrTorn: a record starts here but its checksum does not match.
	ErrTorn = errors.New("log: record is torn or damaged")
)

// Entry is one decoded entry. Image aliases the decoded bytes.
type Entry struct {
	Kind  EntryKind
	Addr  memory.Addr
	Prev  record.TxID
	From  memory.Addr
	Image record.Image
}

// Record is one decoded record.
type Record struct {
	Kind Kind
	Tx   record.TxID
	// Generation is that of the checkpoint before which the transaction's images may
	// not be durable (memory.Space.Checkpoint); 0: nobody has promised that they are.
	Generation uint32
	// Ahead: when the record was written, the coordinator had drawn at most so many ids
	// larger than Tx; exact up to 31, then a power of two less one, rounded up. Their transactions may have
	// committed before, and their records may be overwritten.
	Ahead   uint64
	Length  int
	Entries []Entry
}

// Builder lays out a record in a buffer that is registered memory. Offsets it
// returns are relative to the buffer. The zero Builder is empty.
type Builder struct {
	n       int // bytes used
	entries int
}

// Reset starts a new record.
func (b *Builder) Reset() { b.n, b.entries = HeaderSize, 0 }

// Len is the length of the record so far, in bytes.
func (b *Builder) Len() int { return b.n }

// Entries is the number of entries so far, dead ones included.
func (b *Builder) Entries() int { return b.entries }

// Need is how long the record will be after an entry with an image of size bytes.
func (b *Builder) Need(size int) int { return b.n + EntryHeaderSize + (size+7)&^7 }

// Fits reports whether an entry with an image of size bytes, a multiple of 8, still
// fits a buffer of capacity bytes.
func (b *Builder) Fits(size, capacity int) bool {
	return b.n+EntryHeaderSize+size <= capacity && b.entries < MaxEntries
}

// Add reserves an entry whose image has room for size bytes and returns the
// offset of the image. buf must have Need(size) bytes. The entry is Dead until Set.
func (b *Builder) Add(buf []byte, size int) int {
	size = (size + 7) &^ 7
	e := buf[b.n : b.n+EntryHeaderSize]
	binary.LittleEndian.PutUint64(e, uint64(Dead)<<48)
	binary.LittleEndian.PutUint64(e[8:], 0)
	binary.LittleEndian.PutUint64(e[16:], uint64(size)<<32)
	binary.LittleEndian.PutUint64(e[24:], 0)
	at := b.n + EntryHeaderSize
	b.n = at + size
	b.entries++
	return at
}

// Set completes the entry whose image is at offset image: its first n bytes.
func (b *Builder) Set(buf []byte, image int, kind EntryKind, addr memory.Addr, prev record.TxID, from memory.Addr, n int) {
	e := buf[image-EntryHeaderSize : image]
	binary.LittleEndian.PutUint64(e, uint64(addr)|uint64(kind)<<48)
	binary.LittleEndian.PutUint64(e[8:], uint64(prev))
	binary.LittleEndian.PutUint32(e[16:], uint32(n))
	binary.LittleEndian.PutUint64(e[24:], uint64(from))
}

// Kill marks the entry whose image is at offset image as superseded.
func (b *Builder) Kill(buf []byte, image int) {
	b.Set(buf, image, Dead, 0, 0, 0, 0)
}

// Room is how many bytes the image at offset image was reserved with.
func Room(buf []byte, image int) int {
	return int(binary.LittleEndian.Uint32(buf[image-EntryHeaderSize+20:]))
}

// Finish writes the header and returns the length of the record in bytes. ahead is how
// many transaction ids the coordinator has drawn since that of tx, see Record.Ahead.
func (b *Builder) Finish(buf []byte, kind Kind, tx record.TxID, generation uint32, ahead uint64) int {
	binary.LittleEndian.PutUint64(buf, magic|format<<32|uint64(kind)<<40|packAhead(ahead)<<42|uint64(b.entries)<<48)
	binary.LittleEndian.PutUint64(buf[8:], uint64(tx))
	binary.LittleEndian.PutUint64(buf[16:], uint64(b.n)|uint64(generation)<<32)
	binary.LittleEndian.PutUint64(buf[24:], checksum(buf[:b.n]))
	return b.n
}

// Six bits for a number of ids: itself up to exactAhead, and how many bits it has if it
// is larger, up to all that there are.
const (
	exactAhead = 31
	aheadBits  = 5 // of exactAhead
)

func packAhead(n uint64) uint64 {
	if n <= exactAhead {
		return n
	}
	return min(exactAhead+uint64(bits.Len64(n))-aheadBits, 63)
}

func unpackAhead(p uint64) uint64 {
	switch {
	case p <= exactAhead:
		return p
	case p == 63:
		return record.MaxSequence
	}
	return 1<<(p-exactAhead+aheadBits) - 1
}

// MaxEntries is the largest number of entries of a record.
const MaxEntries = 1<<16 - 1

// checksum hashes header and body. The halves of the body are hashed apart, so that
// the processor does both at once: a commit waits for this.
func checksum(p []byte) uint64 {
	body := p[HeaderSize:]
	half := len(body) / 2 &^ 15
	x := record.Sum(magic, p[:24])
	y := record.Sum(magic+1, body[:half])
	z := record.Sum(magic+2, body[half:])
	return x ^ bits.RotateLeft64(y, 21) ^ bits.RotateLeft64(z, 42)
}

// Peek returns the length of the record that starts in p, of which at least
// HeaderSize bytes are there, or ErrNoRecord.
func Peek(p []byte) (int, error) {
	if len(p) < HeaderSize {
		return 0, ErrNoRecord
	}
	h := binary.LittleEndian.Uint64(p)
	n := int(binary.LittleEndian.Uint32(p[16:]))
	if h&(1<<40-1) != magic|format<<32 || n < HeaderSize || n&7 != 0 {
		return 0, ErrNoRecord
	}
	return n, nil
}

// Decode reads the record that starts in p. It never panics, whatever p holds.
func Decode(p []byte) (Record, error) {
	n, err := Peek(p)
	if err != nil {
		return Record{}, err
	}
	if n > len(p) {
		return Record{}, fmt.Errorf("%w: it claims %d bytes, %d are there", ErrTorn, n, len(p))
	}
	p = p[:n]
	if checksum(p) != binary.LittleEndian.Uint64(p[24:]) {
		return Record{}, fmt.Errorf("%w: checksum", ErrTorn)
	}
	h := binary.LittleEndian.Uint64(p)
	r := Record{
		Kind:       Kind(h >> 40 & 3),
		Tx:         record.TxID(binary.LittleEndian.Uint64(p[8:])),
		Generation: binary.LittleEndian.Uint32(p[20:]),
		Ahead:      unpackAhead(h >> 42 & 63),
		Length:     n,
	}
	if r.Kind != Redo && r.Kind != Undo {
		return Record{}, fmt.Errorf("%w: kind %d", ErrTorn, r.Kind)
	}
	at := HeaderSize
	for i := range int(h >> 48) {
		if n-at < EntryHeaderSize {
			return Record{}, fmt.Errorf("%w: entry %d is cut off", ErrTorn, i)
		}
		e := p[at:]
		w := binary.LittleEndian.Uint64(e)
		size, room := int(binary.LittleEndian.Uint32(e[16:])), int(binary.LittleEndian.Uint32(e[20:]))
		from := binary.LittleEndian.Uint64(e[24:])
		kind := EntryKind(w >> memory.AddrBits)
		if kind == 0 || w>>memory.AddrBits >= uint64(numEntryKinds) || from>>memory.AddrBits != 0 || room&7 != 0 || size > room ||
			room > n-at-EntryHeaderSize || kind != Dead && size < record.LineSize {
			return Record{}, fmt.Errorf("%w: entry %d has kind %d, image of %d bytes in %d", ErrTorn, i, w>>memory.AddrBits, size, room)
		}
		at += EntryHeaderSize
		if kind != Dead {
			r.Entries = append(r.Entries, Entry{
				Kind:  kind,
				Addr:  memory.Addr(w & (1<<memory.AddrBits - 1)),
				Prev:  record.TxID(binary.LittleEndian.Uint64(e[8:])),
				From:  memory.Addr(from),
				Image: record.Image(p[at : at+size]),
			})
		}
		at += room
	}
	if at != n {
		return Record{}, fmt.Errorf("%w: %d bytes behind the last entry", ErrTorn, n-at)
	}
	return r, nil
}
