package bucket

import (
	"encoding/binary"
	"slices"

	"txnode/memory/layout"
)

// Leaf is a view of a leaf's image. It has no memory of its own: it is good as long as the image is
// not changed, and may be copied and used by several goroutines.
type Leaf struct {
	head, body []byte
	low        Hash
	depth      int
	size       int // of an entry
}

// Decode returns the view of an image: head and body, which ends with the last entry. It rejects
// bytes whose use would be unsafe, with an error that wraps ErrMalformed. It does not look at the
// entries: that is Leaf.Check. It does not allocate.
func Decode(head, body []byte) (Leaf, error) {
	if len(head) != HeadSize {
		return Leaf{}, malformed("a head of %d bytes: it has %d", len(head), HeadSize)
	}
	depth := int(head[depthOff])
	if head[levelOff] != 0 || head[flagsOff] != leafFlag || head[zeroOff] != 0 || depth > MaxDepth {
		return Leaf{}, malformed("level %d, flags %#x, depth %d, and %#x behind the range",
			head[levelOff], head[flagsOff], depth, head[zeroOff])
	}
	l := Accepted(head, body)
	if n := l.Count() * l.size; n != len(body) {
		return Leaf{}, malformed("%d bytes of entries: %d of depth %d have %d", len(body), l.Count(), depth, n)
	}
	if l.low&(width(depth)-1) != 0 {
		return Leaf{}, malformed("a range of depth %d that begins at %010x", depth, uint64(l.low))
	}
	return l, nil
}

// Accepted returns the view of an image that Decode has accepted, and that has not been changed
// since.
func Accepted(head, body []byte) Leaf {
	depth := int(head[depthOff])
	return Leaf{
		head: head, body: body, depth: depth, size: entrySize(depth),
		low: Hash(binary.BigEndian.Uint32(head[lowOff:]))<<8 | Hash(head[lowOff+4]),
	}
}

// Check checks what Decode does not: that the entries are of the leaf's range, in order, each block
// once, and that links and blocks have possible addresses.
func (l Leaf) Check() error {
	_, err := l.appendEntries(nil)
	return err
}

// appendEntries is Check; and, if it has none, appends the leaf's entries to dst.
func (l Leaf) appendEntries(dst []entry) ([]entry, error) {
	if r := l.Right(); r != 0 && !blockAt(r) {
		return dst, malformed("right link %v", r)
	}
	if last := l.low+width(l.depth) == 1<<MaxDepth; last != (l.Right() == 0) {
		return dst, malformed("right link %v of a leaf of depth %d from %010x", l.Right(), l.depth, uint64(l.low))
	}
	n, first := l.Count(), len(dst)
	dst = slices.Grow(dst, n)[:first+n]
	all := dst[first:]
	wide, last := width(l.depth), entry{}
	for i := range all {
		e := l.entry(i)
		switch {
		case e.hash-l.low >= wide:
			return dst[:first], malformed("entry %d has hash %010x, in a leaf of depth %d from %010x",
				i, uint64(e.hash), l.depth, uint64(l.low))
		case !blockAt(e.addr()) || e.class() >= layout.NumClasses:
			return dst[:first], malformed("entry %d leads to a block of class %d at %v", i, e.class(), e.addr())
		case e.hash <= last.hash && i > 0 && !last.before(e):
			return dst[:first], malformed("entry %d, %010x at %v, is behind %010x at %v", i, uint64(e.hash), e.addr(),
				uint64(last.hash), last.addr())
		}
		all[i], last = e, e
	}
	return dst, nil
}

// Count is the number of entries.
func (l Leaf) Count() int { return int(l.head[countOff]) }

// Depth is the number of bits that all of the leaf's hashes begin with.
func (l Leaf) Depth() int { return l.depth }

// Low is the lowest hash of the leaf's range.
func (l Leaf) Low() Hash { return l.low }

// High is the lowest hash behind the range. bounded is false for the last leaf.
func (l Leaf) High() (h Hash, bounded bool) {
	h = l.low + width(l.depth)
	return h, h < 1<<MaxDepth
}

// Right is the right link, 0 if the leaf is the last one.
func (l Leaf) Right() layout.Addr { return addrAt(l.head[rightOff:]) }

// Where says where a hash is, seen from a leaf.
type Where uint8

// Places.
const (
	Here    Where = iota // the leaf is responsible
	GoRight              // behind its range
	NotHere              // before its range: what led here was wrong
)

// Where says where h is.
func (l Leaf) Where(h Hash) Where {
	switch {
	case h < l.low:
		return NotHere
	case h-l.low >= width(l.depth):
		return GoRight
	}
	return Here
}

// Above says where the hashes from h on are; h may be 1<<MaxDepth, which is the end of all.
func (l Leaf) Above(h Hash) Where {
	if _, bounded := l.High(); !bounded && h >= l.low {
		return Here
	}
	return l.Where(h)
}

// Below says where the hashes just below h are.
func (l Leaf) Below(h Hash) Where {
	if h == 0 {
		return NotHere
	}
	return l.Where(h - 1)
}

// entry is entry i.
func (l Leaf) entry(i int) entry {
	b := l.body[i*l.size:][:l.size]
	return entry{hash: l.hashOf(b), word: binary.LittleEndian.Uint64(b[l.size-8:]) >> (64 - layout.AddrBits)}
}

// hashOf is the hash of an entry.
func (l Leaf) hashOf(b []byte) Hash {
	n := 8 * uint(l.size-wordBytes)
	return Hash(binary.BigEndian.Uint64(b)>>(64-n)) | l.low>>n<<n
}

// Rank is the number of entries of lower hashes.
func (l Leaf) Rank(h Hash) int {
	i, j := 0, l.Count()
	for i < j {
		m := (i + j) / 2
		if l.hashOf(l.body[m*l.size:]) < h {
			i = m + 1
		} else {
			j = m
		}
	}
	return i
}

// Block is a block that a leaf links.
type Block struct {
	Hash  Hash
	Addr  layout.Addr
	Class layout.Class
}

// Block is the block of entry i.
func (l Leaf) Block(i int) Block {
	e := l.entry(i)
	return Block{Hash: e.hash, Addr: e.addr(), Class: e.class()}
}
