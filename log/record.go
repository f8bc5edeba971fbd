package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"txnode/memory/layout"
	"txnode/memory/record"
)

// Kind says what the images of a record are.
type Kind uint8

// Kinds of records.
const (
	Redo Kind = 1 // new images: the transaction is committed
	Undo Kind = 2 // old images: the transaction may be undone
	Mark Kind = 3 // no images: of the coordinator's transactions up to this one, records may be gone
)

// EntryKind says what happens to a block.
type EntryKind uint8

// Kinds of entries.
const (
	Update EntryKind = 1 + iota // the block's image changes; insert and delete are changes of state
	Move                        // the record moves here from block From, whose slot is replaced
	Dead                        // superseded within the transaction: ignore
	New                         // the image goes to a free block, which the transaction has from its allocator
	numEntryKinds
)

// Layout constants, in bytes.
const (
	HeaderSize      = 32
	EntryHeaderSize = 32

	magic  = 0x474c5854 // "TXLG"
	format = 4
)

// Errors of Decode.
var (
	// ErrNoRecord: the bytes do not start with a log record.
	ErrNoRecord = errors.New("log: no record here")
	// ErrTorn: a record starts here but its checksum does not match.
	ErrTorn = errors.New("log: record is torn or damaged")
	// ErrFormat: a whole record of another release starts here, so its transaction
	// cannot be decided.
	ErrFormat = errors.New("log: record of another release: open and close the database with that release first")
)

// Entry is one decoded entry. Image aliases the decoded bytes.
type Entry struct {
	Kind EntryKind
	Addr layout.Addr
	Prev record.TxID
	From layout.Addr // of a Move
	// Freed, of an Update or a New: how many blocks had been freed when the record was written
	// (memory.Space.Frees); 0: not noted, or none. A block that is free, and was freed later,
	// has had the image.
	Freed uint64
	Image record.Image
}

// Record is one decoded record.
type Record struct {
	Kind Kind
	Tx   record.TxID
	// Generation is that of the checkpoint before which the transaction's images may
	// not be durable (memory.Space.Checkpoint); 0: nobody has promised that they are.
	Generation uint32
	// Ahead: when the record was written, the coordinator had drawn at most so many ids larger than
	// Tx; exact up to 31, then a power of two less one, rounded up. Their transactions may have
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

// EntryHeader is the header of an entry in a buffer that Builder lays out a record in.
type EntryHeader = [EntryHeaderSize]byte

// AddLine is Add of an image of one line: e is the header of the entry, at Len in the
// buffer, which has room for it.
func (b *Builder) AddLine(e *EntryHeader) int {
	binary.LittleEndian.PutUint64(e[0:], uint64(Dead)<<48)
	binary.LittleEndian.PutUint64(e[8:], 0)
	binary.LittleEndian.PutUint64(e[16:], record.LineSize<<32)
	binary.LittleEndian.PutUint64(e[24:], 0)
	at := b.n + EntryHeaderSize
	b.n = at + record.LineSize
	b.entries++
	return at
}

// SetLine is Set of an Update whose image is one line, sealed with checksum sum and free
// at its version: e is the header of the entry, at offset at in the record. What it
// returns for all entries of a record, combined by exclusive or, is for FinishLines.
func SetLine(e *EntryHeader, at uint32, addr layout.Addr, prev, version record.TxID, freed, sum uint64) uint64 {
	w := uint64(addr) | uint64(Update)<<48
	const sizes = record.LineSize | record.LineSize<<32
	binary.LittleEndian.PutUint64(e[0:], w)
	binary.LittleEndian.PutUint64(e[8:], uint64(prev))
	binary.LittleEndian.PutUint64(e[16:], sizes)
	binary.LittleEndian.PutUint64(e[24:], freed)
	return entrySum(uint64(at), w, uint64(prev), sizes, freed) ^ imageSum(sum, uint64(record.FreeAt(version)))
}

// FinishLines is Finish for a record all of whose entries SetLine has completed: h is
// the header of the record, and sums what SetLine returned.
func (b *Builder) FinishLines(h *EntryHeader, kind Kind, tx record.TxID, generation uint32, ahead, sums uint64) int {
	w := b.header(kind, ahead)
	n := uint64(b.n) | uint64(generation)<<32
	binary.LittleEndian.PutUint64(h[0:], w)
	binary.LittleEndian.PutUint64(h[8:], uint64(tx))
	binary.LittleEndian.PutUint64(h[16:], n)
	binary.LittleEndian.PutUint64(h[24:], headerSum(w, uint64(tx), n, sums))
	return b.n
}

// header is the first word of a record.
func (b *Builder) header(kind Kind, ahead uint64) uint64 {
	return magic | format<<32 | uint64(kind)<<40 | packAhead(ahead)<<42 | uint64(b.entries)<<48
}

// Set completes the entry whose image is at offset image: its first n bytes. from is the
// block that a Move leaves; of an Update or a New, it is Entry.Freed. A New replaces no
// version: prev is 0. Its image is not that of a free block, and its record a Redo.
func (b *Builder) Set(buf []byte, image int, kind EntryKind, addr layout.Addr, prev record.TxID, from uint64, n int) {
	e := buf[image-EntryHeaderSize : image]
	binary.LittleEndian.PutUint64(e, uint64(addr)|uint64(kind)<<48)
	binary.LittleEndian.PutUint64(e[8:], uint64(prev))
	binary.LittleEndian.PutUint32(e[16:], uint32(n))
	binary.LittleEndian.PutUint64(e[24:], from)
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
	binary.LittleEndian.PutUint64(buf, b.header(kind, ahead))
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

// checksum hashes everything of a record but what other checksums cover: of an image,
// its checksum, which covers the rest of it, and its guard, which that leaves out. So
// a commit, which waits for this, hashes what it has at hand. Room that nothing uses, of
// dead entries or behind an image, is hashed as it is: a newer record may lie there
// that has overwritten a part of this one, which must not count as intact then.
// Entries that are impossible are left out, and what follows them: Decode looks again.
func checksum(p []byte) uint64 {
	sums := uint64(0)
	at := HeaderSize
	for range int(binary.LittleEndian.Uint64(p) >> 48) {
		if len(p)-at < EntryHeaderSize {
			break
		}
		e := p[at:]
		w, sizes := binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[16:])
		var sum, guard, used uint64
		if EntryKind(w>>layout.AddrBits) != Dead && len(e) >= EntryHeaderSize+record.LineSize {
			img := record.Image(e[EntryHeaderSize:])
			sum, guard = img.Checksum(), uint64(img.Guard())
			used = (uint64(uint32(sizes)) + 7) &^ 7
		}
		if room := min(sizes>>32, uint64(len(e)-EntryHeaderSize)) &^ 7; room > used {
			sum ^= record.Sum(magic, e[EntryHeaderSize+used:EntryHeaderSize+room])
		}
		sums ^= entrySum(uint64(at), w, binary.LittleEndian.Uint64(e[8:]), sizes,
			binary.LittleEndian.Uint64(e[24:])) ^ imageSum(sum, guard)
		if sizes>>32 > uint64(len(e)-EntryHeaderSize) {
			break
		}
		at += EntryHeaderSize + int(sizes>>32)
	}
	return headerSum(binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:]),
		binary.LittleEndian.Uint64(p[16:]), sums)
}

// entrySum hashes the four words of the header of an entry at an offset in its record; to
// be combined with imageSum of its image. Entries differ in their offsets, so those of a
// record may be combined in any order.
func entrySum(at, w, prev, sizes, from uint64) uint64 {
	return record.Mix(w^0xa0761d6478bd642f, prev^0xe7037ed1a0b428db) ^ record.Mix(sizes^0x8ebc6af09c88c6e3,
		bits.RotateLeft64(from, 16)^at^0x589965cc75374cc3)
}

// imageSum hashes checksum and guard of an image.
func imageSum(sum, guard uint64) uint64 {
	return record.Mix(sum^0x1d8e4e27c47d124f, guard^0x9e3779b97f4a7c15)
}

// headerSum hashes the first three words of a record, and what its entries hash to.
func headerSum(w, tx, n, sums uint64) uint64 {
	return record.Mix(w^0xff51afd7ed558ccd, tx^0xc4ceb9fe1a85ec53) ^ record.Mix(n^0x8bb84b93962eacc9,
		sums^0x4b33a62ed433d4a3)
}

// Peek returns the length of the record that starts in p, of which at least
// HeaderSize bytes are there, or ErrNoRecord.
func Peek(p []byte) (int, error) {
	if len(p) < HeaderSize {
		return 0, ErrNoRecord
	}
	h := binary.LittleEndian.Uint64(p)
	n := int(binary.LittleEndian.Uint32(p[16:]))
	if h&(1<<32-1) != magic || n < HeaderSize || n&7 != 0 {
		return 0, ErrNoRecord
	}
	return n, nil
}

// Decode reads the record that starts in p. It never panics, whatever p holds. With ErrFormat it
// tells the record's transaction and length.
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
	if f := h >> 32 & 0xff; f != format {
		return r, fmt.Errorf("%w: it has format %d, this program knows %d", ErrFormat, f, format)
	}
	if r.Kind == 0 || r.Kind == Mark && n != HeaderSize {
		return Record{}, fmt.Errorf("%w: kind %d, of %d bytes", ErrTorn, r.Kind, n)
	}
	at := HeaderSize
	if count := int(h >> 48); count > 0 {
		r.Entries = make([]Entry, 0, min(count, (n-HeaderSize)/EntryHeaderSize))
	}
	for i := range int(h >> 48) {
		if n-at < EntryHeaderSize {
			return Record{}, fmt.Errorf("%w: entry %d is cut off", ErrTorn, i)
		}
		e := p[at:]
		w := binary.LittleEndian.Uint64(e)
		size, room := int(binary.LittleEndian.Uint32(e[16:])), int(binary.LittleEndian.Uint32(e[20:]))
		from := binary.LittleEndian.Uint64(e[24:])
		kind := EntryKind(w >> layout.AddrBits)
		if kind == 0 || w>>layout.AddrBits >= uint64(numEntryKinds) || kind != Update && kind != New &&
			from>>layout.AddrBits != 0 || room&7 != 0 || size > room ||
			room > n-at-EntryHeaderSize || kind != Dead && size < record.LineSize {
			return Record{}, fmt.Errorf("%w: entry %d has kind %d, image of %d bytes in %d",
				ErrTorn, i, w>>layout.AddrBits, size, room)
		}
		at += EntryHeaderSize
		if kind != Dead {
			if need, err := record.Image(p[at : at+
				size]).Check(layout.Addr(w & (1<<layout.AddrBits - 1))); err != nil || need != size {
				return Record{}, fmt.Errorf("%w: image of entry %d", ErrTorn, i)
			}
			x := Entry{
				Kind:  kind,
				Addr:  layout.Addr(w & (1<<layout.AddrBits - 1)),
				Prev:  record.TxID(binary.LittleEndian.Uint64(e[8:])),
				Image: record.Image(p[at : at+size]),
			}
			if kind == Update || kind == New {
				x.Freed = from
			} else {
				x.From = layout.Addr(from)
			}
			if kind == New && (r.Kind != Redo || x.Prev != 0 || x.Image.Meta().State() == record.Free ||
				x.Image.Version() != r.Tx) {
				return Record{}, fmt.Errorf("%w: entry %d fills a new block with version %v (%v) instead of %v, in a "+
					"record of kind %d",
					ErrTorn, i, x.Image.Version(), x.Image.Meta().State(), x.Prev, r.Kind)
			}
			r.Entries = append(r.Entries, x)
		}
		at += room
	}
	if at != n {
		return Record{}, fmt.Errorf("%w: %d bytes behind the last entry", ErrTorn, n-at)
	}
	return r, nil
}
