package blink

import "txnode/memory/layout"

// Node is a view of a node's image. It has no memory of its own: it is good as long as the image is
// not changed, and may be copied and used by several goroutines. The slices that it returns are
// parts of the image.
//
// Its methods do not panic and do not read outside of the image, whatever Decode has accepted.
// Indices of entries must be from 0 to Count()-1.
type Node struct {
	b       []byte
	slots   int // offset of the slots
	count   int
	prefix  int // length of the prefix
	payload int // length of what precedes an entry's suffix
}

// Decode returns the view of the image b: exactly the node's bytes, which are the value of its
// record. It rejects bytes that the methods of Node could not use safely, with an error that wraps
// ErrMalformed. It does not look at keys: that is Node.Check. It does not allocate.
func Decode(b []byte) (Node, error) {
	if len(b) < headerSize || len(b) > maxRoom {
		return Node{}, malformed("%d bytes: nodes have %d to %d", len(b), headerSize, maxRoom)
	}
	if end := u16(b, endOff); end != len(b) {
		return Node{}, malformed("%d bytes, of a node of %d", len(b), end)
	}
	n := Accepted(b)
	if b[flagsOff] != 0 {
		return Node{}, malformed("flags %#x", b[flagsOff])
	}
	low, high := u16(b, lowOff), u16(b, highOff)
	common := low
	switch {
	case high == unbounded:
		high = 0
	case high < low:
		common = high
	}
	if n.prefix > common {
		return Node{}, malformed("fences of %d and %d bytes (%d: unbounded) with a prefix of %d",
			low, u16(b, highOff), unbounded, n.prefix)
	}
	entries := n.slots + slotSize*n.count
	if entries > len(b) {
		return Node{}, malformed("fences of %d and %d bytes and %d entries in a node of %d bytes",
			low, high, n.count, len(b))
	}
	if err := n.checkSlots(entries); err != nil {
		return Node{}, err
	}
	return n, nil
}

// Accepted returns the view of an image that Decode has accepted, and that has not been
// changed since: of another one the methods of Node may panic. It costs nothing, whatever the
// number of entries.
func Accepted(b []byte) Node {
	n := Node{b: b, count: u16(b, countOff), prefix: u16(b, prefixOff)}
	n.slots = headerSize + u16(b, lowOff)
	if high := u16(b, highOff); high != unbounded {
		n.slots += high
	}
	n.payload = childPayload
	if b[levelOff] == 0 {
		n.payload = rowPayload
	}
	return n
}

// checkSlots checks that the entries lie one after the other, from at to the end, and that each has
// room for its payload.
func (n Node) checkSlots(at int) error {
	b := n.b
	if n.count == 0 {
		if at != len(b) {
			return malformed("a node without entries has %d bytes, of which %d are used", len(b), at)
		}
		return nil
	}
	if first := n.start(0); first != at {
		return malformed("entry 0 at %d, not at %d", first, at)
	}
	for i := range n.count {
		end := len(b)
		if i+1 < n.count {
			end = u16(b, n.slots+slotSize*(i+1))
		}
		if end > len(b) || end-at < n.payload {
			return malformed("entry %d from %d to %d of %d bytes is too short", i, at, end, len(b))
		}
		at = end
	}
	return nil
}

// IsLeaf reports whether an image, which need not be sound, is that of a leaf.
func IsLeaf(b []byte) bool { return len(b) > levelOff && b[levelOff] == 0 }

// Bytes is the image.
func (n Node) Bytes() []byte { return n.b }

// Level is 0 for a leaf, and one more than that of the children for an inner node.
func (n Node) Level() int { return int(n.b[levelOff]) }

// Count is the number of entries.
func (n Node) Count() int { return n.count }

// Right is the right link, 0 if the node is the last of its level.
func (n Node) Right() layout.Addr { return addrAt(n.b, rightOff) }

// Low is the low fence: the node's range begins with it.
func (n Node) Low() []byte {
	end := headerSize + u16(n.b, lowOff)
	return n.b[headerSize:end:end]
}

// High is the high fence, the first key behind the node's range. bounded is false for the last node
// of a level, whose range has no end.
func (n Node) High() (key []byte, bounded bool) {
	h := n.high()
	return h.key, !h.open
}

// fence is a high fence: a key, or none.
type fence struct {
	key  []byte
	open bool // there is none: the range has no end
}

func (n Node) high() fence {
	if u16(n.b, highOff) == unbounded {
		return fence{open: true}
	}
	at := headerSize + u16(n.b, lowOff)
	return fence{key: n.b[at:n.slots:n.slots]}
}

// Prefix is what the keys of all entries begin with, and their suffixes leave out.
func (n Node) Prefix() []byte {
	end := headerSize + n.prefix
	return n.b[headerSize:end:end]
}

// start is the offset of entry i, or of the end for i = count.
func (n Node) start(i int) int {
	if i == n.count {
		return len(n.b)
	}
	return u16(n.b, n.slots+slotSize*i)
}

// entry returns offset and end of entry i.
func (n Node) entry(i int) (at, end int) { return n.start(i), n.start(i + 1) }

// Suffix is the key of entry i without the prefix.
func (n Node) Suffix(i int) []byte {
	at, end := n.entry(i)
	return n.b[at+n.payload : end : end]
}

// AppendKey appends the key of entry i to dst.
func (n Node) AppendKey(dst []byte, i int) []byte {
	return append(append(dst, n.Prefix()...), n.Suffix(i)...)
}

// Addr is the address that entry i leads to: a child's, or a row's.
func (n Node) Addr(i int) layout.Addr { return addrAt(n.b, n.start(i)) }

// Class is the size class of the row's block, in a leaf.
func (n Node) Class(i int) layout.Class {
	if n.payload != rowPayload {
		return 0
	}
	return layout.Class(n.b[n.start(i)+addrSize])
}
