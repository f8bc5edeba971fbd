package blink

import "bytes"

// Place says where the place that is searched for is, seen from a node.
type Place uint8

// Places.
const (
	// Here: the node is responsible.
	Here Place = iota
	// GoRight: at or behind the high fence. Read the node that the right link leads to.
	GoRight
	// NotHere: before the low fence. What led here is stale: drop it, and start at the root.
	NotHere
)

// String names the place.
func (p Place) String() string {
	switch p {
	case Here:
		return "here"
	case GoRight:
		return "to the right"
	default:
		return "not here"
	}
}

// Cover says whether the node is responsible for the key.
func (n Node) Cover(key []byte) Place {
	if bytes.Compare(key, n.Low()) < 0 {
		return NotHere
	}
	if h := n.high(); !h.open && bytes.Compare(key, h.key) >= 0 {
		return GoRight
	}
	return Here
}

// Bound is a place between keys: one end of a scan. The zero Bound is the beginning of the
// key space. Two of them are the range of the keys between them: Before(a) and Before(b)
// that of a <= key < b.
type Bound struct {
	key  []byte
	side side
}

type side uint8

const (
	before side = iota
	after
	atEnd
)

// Before is the place just before the key. The Bound refers to key, which must stay as it is.
func Before(key []byte) Bound { return Bound{key: key} }

// After is the place just behind the key. The Bound refers to key, which must stay as it is.
func After(key []byte) Bound { return Bound{key: key, side: after} }

// End is the end of the key space.
func End() Bound { return Bound{side: atEnd} }

// Compare returns -1, 0 or 1 as b is before, at or behind c. A range whose from is not
// before its to is empty.
func (b Bound) Compare(c Bound) int {
	if b.side == atEnd || c.side == atEnd {
		return int(b.side/atEnd) - int(c.side/atEnd)
	}
	if d := bytes.Compare(b.key, c.key); d != 0 {
		return d
	}
	return int(b.side) - int(c.side)
}

// Above says whether the node is responsible for the keys just above b, where an ascending scan
// from b begins. To a descending scan that has come to this node and is to end at b, NotHere says
// that there is more: the keys below Before(n.Low()).
func (n Node) Above(b Bound) Place {
	if b.side != atEnd {
		return n.Cover(b.key)
	}
	if n.high().open {
		return Here
	}
	return GoRight
}

// Below says whether the node is responsible for the keys just below b, where a descending
// scan from b begins. To an ascending scan that has come to this node and is to end at b,
// GoRight says that there is more: the node that the right link leads to. No key is below the
// zero Bound: NotHere.
func (n Node) Below(b Bound) Place {
	if b.side != before {
		return n.Above(b)
	}
	if bytes.Compare(b.key, n.Low()) <= 0 {
		return NotHere
	}
	if h := n.high(); !h.open && bytes.Compare(b.key, h.key) > 0 {
		return GoRight
	}
	return Here
}

// Search returns the index of the entry with the key, and true; or the index where it would be,
// from 0 to Count(), and false.
func (n Node) Search(key []byte) (i int, found bool) {
	if n.prefix > 0 {
		p := n.Prefix()
		switch c := bytes.Compare(key[:min(len(key), len(p))], p); {
		case c < 0: // a shorter key that the prefix begins with, too
			return 0, false
		case c > 0:
			return n.count, false
		}
		key = key[len(p):]
	}
	b := n.b
	lo, hi := 0, n.count
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		slot := n.slots + slotSize*mid
		at, end := u16(b, slot), len(b)
		if mid+1 < n.count {
			end = u16(b, slot+slotSize)
		}
		switch c := bytes.Compare(b[at+n.payload:end], key); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true
		}
	}
	return lo, false
}

// Rank is the number of entries below the bound. The entries between two bounds, as far as this
// node has them, are those from Rank(from) to Rank(to)-1.
func (n Node) Rank(b Bound) int {
	if b.side == atEnd {
		return n.count
	}
	i, found := n.Search(b.key)
	if found && b.side == after {
		i++
	}
	return i
}

// Child returns the index of the child whose range, as far as this inner node knows, has the key.
// The node must be responsible for it. It is -1 if the node is empty, which Check does not accept.
func (n Node) Child(key []byte) int { return n.child(n.Rank(After(key))) }

// ChildAbove is Child for the keys just above b, where an ascending scan from b goes on.
func (n Node) ChildAbove(b Bound) int {
	if b.side == before {
		b.side = after // the range of a child begins with its separator
	}
	return n.child(n.Rank(b))
}

// ChildBelow is Child for the keys just below b, where a descending scan from b goes on.
func (n Node) ChildBelow(b Bound) int { return n.child(n.Rank(b)) }

// child returns the last of the first i entries; the first, if there are none.
func (n Node) child(i int) int { return min(max(i-1, 0), n.count-1) }
