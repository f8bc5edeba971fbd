package channel

import (
	"bytes"

	"txnode/rdma"
)

// images is a value with one writer at a time, in two slots that are written in turn, so that one
// of them is whole whenever the writer stops.
//
//	0              version    1, 2, ...; 0: never written
//	8              owner      the number of the member that wrote it
//	16             payload    padded to 8
//	16+payload     checksum   of all that, never 0 if version is not
//
// Version v lies in slot v mod 2. Slots begin at lines.
//
// # Which slot a reader takes
//
// If both slots are whole in one READ, the newer one. If one is torn, the other may be out of date:
// a READ copies lines in any order, so it can copy the whole slot, then two WRITEs can pass, and
// then it copies the other slot in the middle of the second. Two READs, one after the other, that
// find the same bytes decide. The torn bytes of the first were those of a WRITE that had begun, so
// the WRITE before it was placed before the second READ began, and the second found it. A reader of
// what a dead owner left half written therefore needs two READs, and not more.
type images struct {
	off  uint32 // in the object
	size uint32 // of the payload
}

// imageBytes is the size of both slots.
func imageBytes(size uint32) uint32 { return 2 * slotBytes(size) }

func slotBytes(size uint32) uint32 { return align(imageEnd(size), rdma.LineSize) }

// imageEnd is the size of an image, of which the checksum is the end.
func imageEnd(size uint32) uint32 { return 24 + align(size, 8) }

// image is what a slot was found to hold.
type image struct {
	version uint64
	owner   MemberID
	payload []byte // in the arena
}

// put fills a buffer of one slot, whose payload is in place.
func (g images) put(buf []byte, version uint64, owner MemberID) {
	le := align(g.size, 8)
	putWord(buf, 0, version)
	putWord(buf, 8, uint64(owner))
	clear(buf[16+g.size : 16+le])
	putWord(buf, 16+le, imageSum(buf[:16+le]))
}

// stageImage appends the WRITE of a version of v to b, from the object's buffer.
func stageImage[T any](o *object, g images, b *rdma.Batch, codec Codec[T], v T, version uint64) {
	n := slotBytes(g.size)
	buf := o.m.t.Bytes(o.buf, n)
	codec.Put(buf[16:16+g.size], v)
	g.put(buf, version, o.m.id)
	o.stageWrite(b, g.off+n*uint32(version%2), o.buf, n)
}

func imageSum(b []byte) uint64 { return max(1, sumBytes(sum(), b)) }

// get returns what a slot holds, and whether it is whole.
func (g images) get(slot []byte) (image, bool) {
	end := 16 + align(g.size, 8)
	m := image{word(slot, 0), MemberID(word(slot, 8)), slot[16 : 16+g.size]}
	s := word(slot, end)
	if m.version == 0 && m.owner == 0 && s == 0 {
		return m, true // never written; the first WRITE, to the other slot, may be under way
	}
	return m, s == imageSum(slot[:end])
}

// pick returns the newer image of both slots, and whether they decide alone: both are whole, or one
// is and the bytes are those that the READ before has found. ok is false if none is whole.
func (g images) pick(both, before []byte) (newest image, ok, decided bool) {
	n := slotBytes(g.size)
	x, xok := g.get(both[:n])
	y, yok := g.get(both[n:])
	switch {
	case xok && (!yok || x.version > y.version):
		newest = x
	case yok:
		newest = y
	default:
		return image{}, false, false
	}
	return newest, true, xok && yok || before != nil && bytes.Equal(both, before)
}
