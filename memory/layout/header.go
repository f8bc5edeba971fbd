package layout

import (
	"encoding/binary"
	"errors"
	"fmt"

	"txnode/memory/internal/mum"
	"txnode/rdma"
)

// The header of a region is one line. It is kept twice, in pages of their own,
// so that a writer that is killed half-way leaves a whole one.
//
//	 0  magic "txnoderg"
//	 8  format version 16 | blade 16 | blades 16 | backups 8 | 0 8   (from bit 0)
//	16  segment size 32 | epoch when it was written 32
//	24  database uuid, 16 bytes
//	40  size of the region in bytes
//	48  0
//	56  checksum of the words before it, seeded by the copy's offset
const (
	regionMagic      = 0x67726564_6f6e7874 // "txnoderg"
	regionVersion    = 3
	RegionHeaderSize = 64
	HeaderCopies     = 2
	HeaderStride     = 4096
)

// ToldOffset is where a blade remembers the latest revision of the catalog that it was told of, in
// the word of ToldWord: behind the first copy of the header. 0: it was told of none. It only grows.
const ToldOffset = RegionHeaderSize

// DoubtOffset is where the server of a region in a file notes, before it serves it, of what the
// region was told when its host restarted without having written the file to its disk: the word
// of ToldWord. What was written before may be missing, in part. It is so until the region is told
// of a later revision: by sessions that have looked at it, or have had it built anew. 0: there
// was no such restart.
const DoubtOffset = ToldOffset + 8

// toldBits of the word are the revision, and those above them its checksum.
const toldBits = 48

// ToldWord is the word for a revision.
func ToldWord(rev Revision) uint64 {
	rev &= 1<<toldBits - 1
	if rev == 0 {
		return 0
	}
	return uint64(rev) | mum.Mix(uint64(rev)^0x9e3779b97f4a7c15, 0xe7037ed1a0b428db)>>toldBits<<toldBits
}

// ParseTold returns the revision of a word; false: the word is damaged.
func ParseTold(word uint64) (Revision, bool) {
	rev := Revision(word & (1<<toldBits - 1))
	if word != ToldWord(rev) {
		return 0, false
	}
	return rev, true
}

// ToldIn returns the latest revision of the catalog that a blade was told of, by the first bytes of
// its region, 72 at least; 0: none, or the word is damaged.
func ToldIn(head []byte) Revision {
	rev, _ := ParseTold(binary.LittleEndian.Uint64(head[ToldOffset:]))
	return rev
}

// The last page of the header area belongs to no structure: tools that test a blade READ, WRITE and
// swap words there, several at once. Its bytes mean nothing. The area has memory behind it since
// the region was formatted.
const (
	ScratchOffset = HeaderArea - ScratchBytes
	ScratchBytes  = 4 << 10
	_             = uint(ScratchOffset - HeaderStride*HeaderCopies) // it is behind the headers
)

// RegionHeader is what a blade says of itself.
type RegionHeader struct {
	Blade       rdma.BladeID
	Blades      int
	Backups     int
	SegmentSize uint32
	Epoch       Epoch // when it was written; the current one may be later
	UUID        UUID
	Size        uint64
}

// HeaderOffset is where copy i of the header is.
func HeaderOffset(i int) uint64 { return uint64(i) * HeaderStride }

// EncodeTo writes copy i of the header to p.
func (h *RegionHeader) EncodeTo(p []byte, i int) {
	clear(p[:RegionHeaderSize])
	binary.LittleEndian.PutUint64(p, regionMagic)
	binary.LittleEndian.PutUint64(p[8:], regionVersion|uint64(h.Blade)<<16|uint64(h.Blades)<<32|uint64(h.Backups)<<48)
	binary.LittleEndian.PutUint64(p[16:], uint64(h.SegmentSize)|uint64(h.Epoch)<<32)
	copy(p[24:40], h.UUID[:])
	binary.LittleEndian.PutUint64(p[40:], h.Size)
	binary.LittleEndian.PutUint64(p[56:], mum.Sum(HeaderOffset(i), p[:56]))
}

// ParseHeaderCopy reads copy i of a region's header from p, RegionHeaderSize bytes
// at least. blank: all of them are zero. Otherwise err is nil, ErrForeign (no
// header at all), ErrFormat or ErrDamaged.
func ParseHeaderCopy(p []byte, i int) (h RegionHeader, blank bool, err error) {
	p = p[:RegionHeaderSize]
	blank = true
	for _, b := range p {
		blank = blank && b == 0
	}
	if blank {
		return h, true, nil
	}
	sum := mum.Sum(HeaderOffset(i), p[:56]) == binary.LittleEndian.Uint64(p[56:])
	if binary.LittleEndian.Uint64(p) != regionMagic {
		return h, false, fmt.Errorf("%w: it does not start with a region header", ErrForeign)
	}
	if !sum {
		return h, false, fmt.Errorf("%w: the region header does not match its checksum", ErrDamaged)
	}
	w := binary.LittleEndian.Uint64(p[8:])
	if v := w & 0xffff; v != regionVersion {
		return h, false, fmt.Errorf("%w: region header of version %d, this program knows %d",
			ErrFormat, v, regionVersion)
	}
	h.Blade = rdma.BladeID(w >> 16)
	h.Blades = int(w >> 32 & 0xffff)
	h.Backups = int(w >> 48 & 0xff)
	w = binary.LittleEndian.Uint64(p[16:])
	h.SegmentSize, h.Epoch = uint32(w), Epoch(w>>32)
	copy(h.UUID[:], p[24:40])
	h.Size = binary.LittleEndian.Uint64(p[40:])
	return h, false, nil
}

// ParseRegionHeader reads the header at the start of a region, of which p has
// the first 8 KiB at least, from the copy that was written last. A region that
// was never formatted is ErrNotFormatted; ErrForeign, ErrFormat and ErrDamaged say
// that neither copy can be read. It accepts any bytes.
func ParseRegionHeader(p []byte) (RegionHeader, error) {
	var best RegionHeader
	var first error
	found := false
	for i := range HeaderCopies {
		at := HeaderOffset(i)
		if uint64(len(p)) < at+RegionHeaderSize {
			return best, fmt.Errorf("%w: %d bytes are too few for a region header", ErrDamaged, len(p))
		}
		h, blank, err := ParseHeaderCopy(p[at:], i)
		switch {
		case blank:
		case err == nil && (!found || h.Epoch > best.Epoch):
			best, found = h, true
		case err != nil && first == nil:
			first = err
		}
	}
	if !found && first == nil {
		first = fmt.Errorf("%w: the region header is blank", ErrNotFormatted)
	}
	if found {
		first = nil
	}
	return best, first
}

// HeaderOf is the header that a blade should have.
func (l *Layout) HeaderOf(b rdma.BladeID) RegionHeader {
	return RegionHeader{
		Blade: b, Blades: len(l.Blades), Backups: l.Backups, SegmentSize: l.SegmentSize,
		Epoch: l.Epoch, UUID: l.UUID, Size: l.Blades[b].Size,
	}
}

// HeaderFault is in what a region's header is not as the layout says.
type HeaderFault uint8

// Faults of headers that are whole. Of several it is the first.
const (
	HeaderSound     HeaderFault = iota
	HeaderForeign               // another database's
	HeaderMisplaced             // another blade's, or of another number of blades
	HeaderBehind                // of before the database was opened last: the region is an old copy
	HeaderGeometry              // other backups, or segments
	HeaderAhead                 // later, or larger, than the catalog knows of: that is an old copy
	HeaderBlank                 // of Examine: there is none
	HeaderDamaged               // of Examine: no copy of it is intact
	// HeaderStale: of Examine: its blade was told of a later revision of the catalog than the
	// region: the region is an old copy
	HeaderStale
)

// Examine compares the first 8 KiB of a blade's region with what the layout says of the blade. The
// error, with the name of the blade, says what is wrong, and what to do: a *StaleError, or a
// *BladeError. nil: HeaderSound.
func (l *Layout) Examine(b rdma.BladeID, name string, head []byte) (HeaderFault, error) {
	h, err := ParseRegionHeader(head)
	fault := HeaderBlank
	switch {
	case errors.Is(err, ErrNotFormatted):
	case err != nil:
		return HeaderDamaged, &BladeError{
			Blade: b, Name: name, Err: err, What: "its region: bring back its memory or file, or " + l.Remedy(b),
		}
	default:
		fault = l.Judge(b, &h)
	}
	if fault == HeaderSound || fault == HeaderAhead {
		if err := l.Stale(b, name, binary.LittleEndian.Uint64(head[ToldOffset:]),
			binary.LittleEndian.Uint64(head[DoubtOffset:])); err != nil {
			return HeaderStale, err
		}
	}
	if fault == HeaderSound {
		return fault, nil
	}
	what, kind := l.Describe(b, fault, &h)
	return fault, &BladeError{Blade: b, Name: name, Err: kind, What: what}
}

// Stale compares the words at ToldOffset and DoubtOffset of a blade's region with what the catalog
// knows: a *StaleError. Words that are damaged say nothing; an old copy has whole ones. A restart
// of the host counts in a shared database alone: another one flushes what it has promised to.
func (l *Layout) Stale(b rdma.BladeID, name string, told, doubted uint64) error {
	x := &l.Blades[b]
	has, whole := ParseTold(told)
	if x.Told == 0 || !whole {
		return nil
	}
	doubt, noted := ParseTold(doubted)
	unflushed := l.Shared && noted && doubt != 0 && doubt >= has
	if has >= x.Told && !unflushed {
		return nil
	}
	return &StaleError{Blade: b, Name: name, Has: has, Knows: x.Told, Unflushed: unflushed, Advice: l.StaleRemedy(b)}
}

// Describe says what is wrong with a region whose header has a fault, and what to do.
func (l *Layout) Describe(b rdma.BladeID, fault HeaderFault, h *RegionHeader) (what string, kind error) {
	want := l.HeaderOf(b)
	switch fault {
	case HeaderBlank:
		return "its region is blank: was its memory or file lost or replaced? Bring it back, or " +
			l.Remedy(b), ErrForeign
	case HeaderForeign:
		return fmt.Sprintf("its region belongs to database %v, the catalog to %v: bring back the one that belongs "+
			"to the other", h.UUID, l.UUID), ErrForeign
	case HeaderMisplaced:
		hint := "The number in a name is the blade's"
		if l.Shared {
			hint = "Each server has the directory that it had"
		}
		return fmt.Sprintf("its region is that of blade %d of %d, not %d of %d: were files renamed? %s",
			h.Blade, h.Blades, b, want.Blades, hint), ErrGeometry
	case HeaderGeometry:
		return fmt.Sprintf("its region has %d backups and segments of %d bytes, the catalog says %d and %d",
			h.Backups, h.SegmentSize, want.Backups, want.SegmentSize), ErrGeometry
	case HeaderAhead:
		return fmt.Sprintf("its region is of epoch %d and %d bytes, the catalog of %d and %d: the catalog is an old "+
			"copy; bring the newest back", h.Epoch, h.Size, want.Epoch, want.Size), ErrGeometry
	case HeaderBehind:
		return fmt.Sprintf("its region is an old copy: it is of epoch %d, and all were written in epoch %d. Bring "+
			"the newest back, or all files of the database as they were at one moment, or move it away and %s",
			h.Epoch, l.Opened, l.Remedy(b)), ErrGeometry
	}
	return "", nil
}

// Judge compares what a blade says of itself with what the layout says of it.
func (l *Layout) Judge(b rdma.BladeID, h *RegionHeader) HeaderFault {
	want := l.HeaderOf(b)
	switch {
	case h.UUID != want.UUID:
		return HeaderForeign
	case h.Blade != b || h.Blades != want.Blades:
		return HeaderMisplaced
	case h.Epoch < l.Opened:
		return HeaderBehind
	case h.Backups != want.Backups || h.SegmentSize != want.SegmentSize:
		return HeaderGeometry
	case h.Epoch > want.Epoch || h.Size > want.Size:
		return HeaderAhead
	}
	return HeaderSound
}

// Encode returns the bytes of copy i of the header.
func (h RegionHeader) Encode(i int) []byte {
	p := make([]byte, RegionHeaderSize)
	h.EncodeTo(p, i)
	return p
}
